// Where the values of a block lie, and the statements that compute them.
#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "core/cancel.h"
#include "core/reshape_groups.h"
#include "hotloop/error.h"
#include "ir/op_def.h"
#include "schedule/block_lowering.h"
#include "schedule/indirect_writes.h"

namespace hotloop {

using ir::OpKind;
using kernel::Block;

namespace {

// The result of a reshape lies at `place`; the same memory with the axes of its operand.
Storage seen_as_operand(const Node& reshape, const Storage& place) {
  const Shape& in = reshape.operands[0].shape();
  Storage s = place;
  s.strides.assign(static_cast<std::size_t>(in.rank()), 0);
  for (const ReshapeGroup& g : reshape_groups(in, reshape.types[0].shape)) {
    std::int64_t run = place.strides[static_cast<std::size_t>(g.out.back())];
    for (std::size_t i = g.in.size(); i-- > 0;) {
      s.strides[static_cast<std::size_t>(g.in[i])] = run;
      run *= in[g.in[i]];
    }
  }
  return s;
}

using Names = std::vector<std::string>;

// Called by what it computes: the functions and quotients that have no place of their own, then its results.
kernel::Map named(kernel::Map map, const Names& results) {
  constexpr double costly = 10;
  constexpr std::size_t longest = 40;
  Names all, of_results = results;
  for (const kernel::Instr& instr : map.instrs) {
    if (instr.kind != kernel::Instr::Kind::Op) continue;
    const std::string name(ir::name_of(instr.op));
    const ir::OpDef* def = ir::find_op(name);
    if (def == nullptr || def->cost_per_element < costly) continue;
    if (const auto result = std::ranges::find(of_results, name); result != of_results.end())
      of_results.erase(result);
    else
      all.push_back(name);
  }
  all.insert(all.end(), results.begin(), results.end());
  if (all.empty()) return map;
  map.name.clear();
  for (const std::string& name : all) map.name += (map.name.empty() ? "" : "+") + name;
  if (map.name.size() > longest) map.name = map.name.substr(0, longest - 3) + "...";
  return map;
}

}  // namespace

// A carry that is a sum of dots is laid out as these are written.
Storage BlockLowering::allocate_carry(Value v) {
  const Value next = v.node->regions[0]->outputs()[static_cast<std::size_t>(v.index)];
  if (!is_float(v.dtype()) || ir::is(*next.node, OpKind::Input)) return context_.allocate(v, "loop");
  const auto plan = plan_dot(*next.node, [](Value) { return true; });
  return plan && plan->init ? allocate_dot(context_, *plan, "loop") : context_.allocate(v, "loop");
}

bool BlockLowering::is_read_elsewhere(Value v, std::size_t slot) const {
  for (std::size_t s = 0; s < slots_.size(); ++s)
    if (s != slot && slots_[s].reads.contains(key_of(v))) return true;
  return false;
}

// Whether v, which a slot computes, is read from memory.
bool BlockLowering::is_kept(Value v, std::size_t slot) const {
  const auto is_copied_late = [&](std::size_t t) { return targets_[t].value == v; };
  return primary_target_.contains(key_of(v)) || std::ranges::any_of(late_copies_, is_copied_late) ||
         piece_of_.contains(key_of(v)) || is_read_elsewhere(v, slot) ||
         std::ranges::find(required_, v) != required_.end();
}

void BlockLowering::assign_storage() {
  // Users first: a concatenation has its place before its pieces ask for theirs.
  for (std::size_t i = planned_order_.size(); i-- > 0;) {
    const Value v = planned_order_[i];
    Storage storage;
    if (const auto t = primary_target_.find(key_of(v)); t != primary_target_.end()) {
      storage = targets_[t->second].storage;
    } else if (const auto p = piece_of_.find(key_of(v)); p != piece_of_.end()) {
      const auto [whole, which] = p->second;
      storage = place_of_.at(key_of(whole));
      const std::size_t axis = static_cast<std::size_t>(whole.node->attrs.integer("axis"));
      std::int64_t before = 0;
      for (int k = 0; k < which; ++k)
        before += whole.node->operands[static_cast<std::size_t>(k)].shape()[static_cast<int>(axis)];
      storage.offset = storage.offset + kernel::Affine(before * storage.strides[axis]);
    } else if (const auto d = dots_.find(key_of(v)); d != dots_.end()) {
      storage = allocate_dot(context_, d->second, "dot");
    } else if (ir::is(*v.node, OpKind::Loop) && v.index < v.node->attrs.integer("num_carry")) {
      storage = allocate_carry(v);
    } else {
      storage = context_.allocate(v, v.node->op->name);
    }
    place_of_[key_of(v)] = storage;
  }
}

Block BlockLowering::emit() {
  assign_storage();
  Block block;
  // Copies from a place of their own into carries come last; a carry that goes to another carry is saved first, unless one statement copies both: at each
  // point it reads before it writes.
  std::vector<BlockTarget> last;
  std::vector<BlockTarget> saved;
  const auto are_copied_at_once = [&](Value v) {
    if (context_.by_lanes()) return false;
    const IndexSpace space = space_of(context_, v);
    const auto count = static_cast<std::size_t>(std::ranges::count_if(
        late_copies_, [&](std::size_t t) { return space_of(context_, targets_[t].value) == space; }));
    return 2 * count <= most_separate_arrays(space);
  };
  for (std::size_t t : late_copies_) {
    const Value v = targets_[t].value;
    const bool is_old_carry = std::ranges::any_of(
        targets_, [&](const BlockTarget& other) { return other.overwrites && *other.overwrites == v; });
    if (is_old_carry && v != *targets_[t].overwrites && !are_copied_at_once(v))
      saved.push_back({v, context_.allocate(v, "swap"), {}, false});
  }
  append(block, lower_copies(context_, saved));
  auto outside = std::exchange(context_.factors_here, {});
  const auto is_by_parts = [&](const Slot& slot) {
    return std::ranges::any_of(slot.items, [&](const Item& item) { return sum_of_parts(item.value) != nullptr; });
  };
  for (std::size_t i = 0, end = 0; i < slots_.size(); i = end) {
    leave_if_cancelled();
    end = i + 1;
    if (!is_by_parts(slots_[i])) {
      emit_slot(slots_[i], block);
      continue;
    }
    while (end < slots_.size() && is_by_parts(slots_[end])) ++end;
    emit_by_parts(std::span(slots_).subspan(i, end - i), block);
  }
  context_.factors_here = std::move(outside);
  for (const BlockTarget& s : saved) context_.bind(s.value, s.storage);
  for (std::size_t t : late_copies_) last.push_back({targets_[t].value, targets_[t].storage, {}, false});
  append(block, lower_copies(context_, last));
  return block;
}

// What a slot passes over row by row for results that lie in lanes: the columns of dots, what reductions sum.
std::vector<Value> BlockLowering::summed_over_rows(const Slot& slot) const {
  std::vector<Value> found;
  const auto has_lanes = [](Value v) { return v.rank() > 0 && v.shape()[v.rank() - 1] > 1; };
  if (slot.kind == Slot::Kind::Dot) {
    const DotPlan& plan = dots_.at(key_of(slot.items[0].value));
    for (const Node* term : plan.terms)
      if (context_.axes().contracts(*term, context_.tile_class))
        found.push_back(term->operands[rows_from_rhs(context_, plan) ? 0 : 1]);
  }
  if (slot.kind == Slot::Kind::Reduction)
    for (const Item& item : slot.items) {
      const Node& node = *item.value.node;
      if (ir::is(node, OpKind::Reduce) && has_lanes(item.value) && !axis_over_lanes(node) &&
          context_.axes().contracts(node, context_.tile_class))
        found.push_back(node.operands[0]);
    }
  return found;
}

// The target of a sum over the rows of a tile, if the tile has several parts and v is one.
const BlockTarget* BlockLowering::sum_of_parts(Value v) const {
  if (context_.num_parts() == 1) return nullptr;
  const auto t = primary_target_.find(key_of(v));
  return t != primary_target_.end() && targets_[t->second].accumulate ? &targets_[t->second] : nullptr;
}

// The sums of one part after the other: a part's rows are added up as those of a tile of its own would be. What several sums read of a part is still near then,
// and laid out once.
void BlockLowering::emit_by_parts(std::span<Slot> slots, Block& block) {
  context_.enter_region();
  kernel::For loop;
  loop.counter = context_.new_var("part");
  loop.trip = {context_.num_parts(), -1};
  for (const Slot& slot : slots)
    for (const Item& item : slot.items) {
      const BlockTarget* sum = sum_of_parts(item.value);
      HOTLOOP_CHECK(sum != nullptr, "a statement sums over the rows of a part or does not");
      Storage& place = place_of_.at(key_of(item.value));
      place.offset = place.offset + kernel::Affine::of(loop.counter, sum->to_next_part);
      context_.regions.back().written.insert(place.buffer);
    }
  kernel::Var rows = -1;
  if (context_.rows_of_tile() >= 0) {
    rows = context_.new_var("part_rows");
    loop.body.push_back({context_.let_rows_of_part(rows, loop.counter)});
    for (Slot& slot : slots)
      for (auto* dims : {&slot.space.outer, &slot.space.reduced})
        for (kernel::Extent& extent : *dims)
          if (extent.var == context_.rows_of_tile()) extent.var = rows;
  }
  context_.enter_part(loop.counter, rows);
  auto outside = std::exchange(context_.factors_here, {});
  for (Slot& slot : slots) emit_slot(slot, loop.body);
  context_.factors_here = std::move(outside);
  context_.leave_part();
  append(block, context_.leave_region());
  block.push_back({std::move(loop)});
}

void BlockLowering::emit_slot(Slot& slot, Block& block) {
  const std::size_t index = static_cast<std::size_t>(&slot - slots_.data());
  const auto accumulates = [&](Value v) {
    const auto t = primary_target_.find(key_of(v));
    return t != primary_target_.end() && targets_[t->second].accumulate;
  };
  switch (slot.kind) {
    case Slot::Kind::Map: {
      MapBuilder builder(context_, slot.space, context_.by_lanes() ? &dots_ : nullptr);
      Names results;
      for (const Item& item : slot.items) {
        if (item.is_copy) {
          builder.add(item.value, &targets_[*item.target].storage, false);
          continue;
        }
        const Value v = item.value;
        const Storage& place = place_of_.at(key_of(v));
        if (ir::is(*v.node, OpKind::Reshape) && !context_.is_short_row(v)) {
          const Storage as_operand = seen_as_operand(*v.node, place);
          builder.add(v.node->operands[0], &as_operand, false);
        } else {
          builder.add(v, is_kept(v, index) ? &place : nullptr, true);
        }
        context_.bind(v, place);
        results.push_back(v.node->op->name);
      }
      block.push_back({named(builder.finish("copy"), results)});
      return;
    }
    case Slot::Kind::Reduction: {
      turned_.bind(summed_over_rows(slot), block);
      MapBuilder builder(context_, slot.space);
      Names results{slot.items[0].value.node->op->name};
      for (const Item& item : slot.items) {
        const Value v = item.value;
        const Storage* place = is_kept(v, index) ? &place_of_.at(key_of(v)) : nullptr;
        if (ir::is(*v.node, OpKind::Reduce)) {
          builder.add_reduction(v, place, accumulates(v));
        } else {
          builder.add_finish(v, place);
          results.push_back(v.node->op->name);
        }
      }
      block.push_back({named(builder.finish("copy"), results)});
      turned_.release();
      for (const Item& item : slot.items) context_.bind(item.value, place_of_.at(key_of(item.value)));
      return;
    }
    case Slot::Kind::Dot: {
      const Value v = slot.items[0].value;
      turned_.bind(summed_over_rows(slot), block);
      append(block, lower_dot(context_, dots_.at(key_of(v)), place_of_.at(key_of(v)), accumulates(v)));
      turned_.release();
      context_.bind(v, place_of_.at(key_of(v)));
      return;
    }
    case Slot::Kind::Other: break;
  }
  const Value v = slot.items[0].value;
  const Node& node = *v.node;
  switch (node.op->kind) {
    case OpKind::Loop: {
      std::vector<std::optional<Storage>> results(node.types.size());
      for (int i = 0; i < static_cast<int>(node.types.size()); ++i)
        if (const auto it = place_of_.find({&node, i}); it != place_of_.end())
          results[static_cast<std::size_t>(i)] = it->second;
      append(block, lower_loop(context_, node, results));
      for (int i = 0; i < static_cast<int>(node.types.size()); ++i)
        if (results[static_cast<std::size_t>(i)]) context_.bind({v.node, i}, *results[static_cast<std::size_t>(i)]);
      return;
    }
    case OpKind::Concat: {
      // Pieces that were not computed in place are copied in.
      std::vector<BlockTarget> copies;
      Storage at = place_of_.at(key_of(v));
      const auto axis = static_cast<std::size_t>(node.attrs.integer("axis"));
      for (std::size_t i = 0; i < node.operands.size(); ++i) {
        const Value piece = context_.resolve(node.operands[i]);
        const auto p = piece_of_.find(key_of(piece));
        if (p == piece_of_.end() || p->second.first != v || p->second.second != static_cast<int>(i))
          copies.push_back({piece, at, {}, false});
        at.offset = at.offset + kernel::Affine(piece.shape()[static_cast<int>(axis)] * at.strides[axis]);
      }
      append(block, lower_copies(context_, copies));
      break;
    }
    default: append(block, lower_indirect_write(context_, node, place_of_.at(key_of(v)), accumulates(v))); break;
  }
  context_.bind(v, place_of_.at(key_of(v)));
}

}  // namespace hotloop
