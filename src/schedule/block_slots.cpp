// Which statement computes a value: maps over one index space are joined where no point needs another one's result first.
#include <algorithm>

#include "hotloop/error.h"
#include "ir/op_def.h"
#include "schedule/block_lowering.h"
#include "schedule/filled_tables.h"
#include "schedule/replaced_parts.h"

namespace hotloop {

using ir::OpKind;

namespace {

bool is_light_op(const Node& node, DType dtype) {
  constexpr double most_cost = 10;  // a division, a square root
  const bool fits = node.types[0].dtype == DType::Bool || (node.types[0].dtype == dtype && is_float(dtype));
  return ir::is(node, OpKind::Elementwise) && fits && node.op->cost_per_element <= most_cost;
}

// A reduction over axes of extent 1 only is a change of shape.
bool is_trivial_reduction(const Node& reduce) {
  return std::ranges::all_of(reduce.attrs.integers("axes"),
                             [&](std::int64_t a) { return reduce.operands[0].shape()[static_cast<int>(a)] == 1; });
}

// Whether what a gather or dynamic_slice looks up lies in the same row.
bool looks_into_its_row(const LoweringContext& context, const Node& node, Value table) {
  const int rows = context.axes().axis_in(table, context.tile_class);
  if (ir::is(node, OpKind::Gather)) return node.attrs.integer("axis") != rows;
  return rows < node.types[0].shape.rank() && node.types[0].shape[rows] == table.shape()[rows];
}

}  // namespace

// Every point of the result reads the point of the operand with the same indices (axes of extent 1 aside). A point of short rows is
// the whole row, so that what moves numbers within a row keeps it, also at places that the program computes if the row lies in memory:
// a point reads all before it writes.
bool keeps_index(const LoweringContext& context, const Node& node, Value operand) {
  if (context.is_short_row({const_cast<Node*>(&node), 0}) && context.is_short_row(operand) &&
      !context.crosses_tiles(node)) {
    switch (node.op->kind) {
      case OpKind::Elementwise:
      case OpKind::Pad:
      case OpKind::Concat:
      case OpKind::Reduce: return true;
      case OpKind::Gather:
      case OpKind::DynamicSlice:
        return operand == context.resolve(node.operands[0]) && context.is_bound(operand) &&
               looks_into_its_row(context, node, operand);
      default: return is_strided_view(node);
    }
  }
  if (ir::is(node, OpKind::Elementwise) || ir::is(node, OpKind::StopGradient)) return true;
  if (!ir::is(node, OpKind::Reshape) && !ir::is(node, OpKind::Broadcast)) return false;
  const auto long_axes = [](const Shape& s) {
    std::vector<std::int64_t> d;
    for (std::int64_t n : s.dims())
      if (n != 1) d.push_back(n);
    return d;
  };
  return long_axes(operand.shape()) == long_axes(node.types[0].shape);
}

// Reads of v, which is used at the same point or at another one.
void BlockLowering::collect_reads(Value v, bool same_point, std::map<ValueKey, bool>& reads) {
  MetAtPoints met;
  collect_reads(v, same_point, reads, met);
}

void BlockLowering::collect_reads(Value v, bool same_point, std::map<ValueKey, bool>& reads, MetAtPoints& met) {
  v = context_.resolve(v);
  if (!met.is_first(v, same_point)) return;
  if (planned_.contains(key_of(v)) || (context_.find(v) && !is_strided_view(*v.node))) {
    const auto [it, fresh] = reads.try_emplace(key_of(v), same_point);
    if (!fresh) it->second = it->second && same_point;
    return;
  }
  if (ir::is(*v.node, OpKind::Extent)) return;  // reads no element
  for (Value o : v.node->operands)
    collect_reads(o, same_point && keeps_index(context_, *v.node, context_.resolve(o)), reads, met);
}

std::map<ValueKey, bool> BlockLowering::reads_of_definition(Value v) {
  std::map<ValueKey, bool> reads;
  MetAtPoints met;
  for (Value o : operands_read(*v.node))
    collect_reads(o, keeps_index(context_, *v.node, context_.resolve(o)), reads, met);
  return reads;
}

// Reads of the statement that computes v.
std::map<ValueKey, bool> BlockLowering::reads_to_compute(Value v) {
  const auto dot = dots_.find(key_of(v));
  if (dot == dots_.end()) return reads_of_definition(v);
  std::map<ValueKey, bool> reads;
  const auto at_same_point = [&](Value o) { return is_expression(dot->second) && context_.is_short_row(o); };
  for (const Node* term : dot->second.terms)
    for (Value o : term->operands) collect_reads(o, at_same_point(o), reads);
  if (dot->second.init) collect_reads(*dot->second.init, at_same_point(*dot->second.init), reads);
  return reads;
}

// Whether v is made of numbers of one float dtype by cheap instructions. They cost the end of a reduction little, also where it has one lane, and
// what they load leaves the number of lanes, which is the order of the reduction, as it is.
bool BlockLowering::is_light(Value v, DType dtype, Met& met) {
  v = context_.resolve(v);
  if (!met.is_first(v)) return true;
  const bool is_view = is_strided_view(*v.node);
  if (ir::is(*v.node, OpKind::Constant) || (stored(v) && !is_view)) return v.dtype() == dtype;
  if (is_view) return !context_.crosses_tiles(*v.node) && is_light(v.node->operands[0], dtype, met);
  return is_light_op(*v.node, dtype) &&
         std::ranges::all_of(v.node->operands, [&](Value o) { return is_light(o, dtype, met); });
}

bool BlockLowering::may_finish(Value v) {
  const auto overwrites = [&](const BlockTarget& t) { return t.value == v && (t.overwrites || t.accumulate); };
  Met met;
  return !context_.by_lanes() && is_light_op(*v.node, v.dtype()) && std::ranges::none_of(targets_, overwrites) &&
         std::ranges::all_of(v.node->operands, [&](Value o) { return is_light(o, v.dtype(), met); });
}

bool BlockLowering::takes_finish(const Slot& slot, const IndexSpace& space, DType dtype) const {
  if (slot.kind != Slot::Kind::Reduction || slot.space.outer != space.outer) return false;
  return std::ranges::all_of(slot.items, [&](const Item& item) {
    const bool accumulates =
        std::ranges::any_of(targets_, [&](const BlockTarget& t) { return t.value == item.value && t.accumulate; });
    return item.value.dtype() == dtype && !accumulates;
  });
}

// How many functions of many instructions one after another lead from what lies in memory to v.
int BlockLowering::long_functions_before(Value v) {
  std::map<ValueKey, int> known;  // values meet again on many ways
  const auto visit = [&](auto&& self, Value at) -> int {
    if (ir::is(*at.node, OpKind::Loop) || ir::is(*at.node, OpKind::Dot) || ir::is(*at.node, OpKind::Extent)) return 0;
    const auto [found, is_new] = known.try_emplace(key_of(at), 0);
    if (!is_new) return found->second;
    int most = 0;
    for (Value o : at.node->operands) {
      o = context_.resolve(o);
      if (!stored(o) || is_strided_view(*o.node)) most = std::max(most, self(self, o));
    }
    constexpr double transcendental = 20;  // cost_per_element
    const bool is_long = ir::is(*at.node, OpKind::Elementwise) && at.node->op->cost_per_element >= transcendental;
    return known[key_of(at)] = most + (is_long ? 1 : 0);
  };
  return visit(visit, v);
}

// The map of v, whose functions follow those that its map has already passed through on the way to what v reads.
std::size_t BlockLowering::slot_for_map_of(Value v, const IndexSpace& space, const std::map<ValueKey, bool>& reads,
                                           bool finishes) {
  const int own = long_functions_before(v);
  double cost = cost_of_point(context_, v, [&](Value o) { return stored(o); });
  if (context_.is_short_row(v) && space.outer.size() == 1)
    cost *= static_cast<double>(v.shape().size() / context_.axes().extent(context_.tile_class));
  const std::size_t s =
      slot_for_map(space, Slot::Kind::Map, reads, own, cost, finishes ? std::optional(v) : std::nullopt);
  slots_[s].cost += cost;
  int before = 0;
  for (const auto& [key, same_point] : reads)
    if (const auto it = producer_.find(key); it != producer_.end() && it->second == s)
      before = std::max(before, long_functions_[key]);
  long_functions_[key_of(v)] = before + own;
  return s;
}

// Whether the slot may compute one more value, which costs this and reads this.
bool BlockLowering::has_room(std::size_t s, const std::map<ValueKey, bool>& reads, double cost) const {
  // An unrolled loop would be one map without end, and compilers need time with the square of a function's length. What follows an
  // end is some stores and loads; maps that are alike share their code.
  constexpr double most_map_cost = 1000;
  const Slot& slot = slots_[s];
  if (slot.cost > 0 && slot.cost + cost > most_map_cost) return false;
  // Nor does a map take up ever more arrays.
  const std::size_t num_arrays = slot.reads.size() + slot.items.size();
  if (num_arrays < most_separate_arrays(slot.space)) return true;
  return num_arrays < most_arrays && std::ranges::any_of(reads, [&](const auto& read) {
           const auto producer = producer_.find(read.first);
           const bool is_there =
               slot.reads.contains(read.first) || (producer != producer_.end() && producer->second == s);
           return is_there && Value{const_cast<Node*>(read.first.first), read.first.second}.shape().size() > 1;
         });
}

std::size_t BlockLowering::slot_for_map(const IndexSpace& space, Slot::Kind kind, const std::map<ValueKey, bool>& reads,
                                        int long_functions, double cost, std::optional<Value> finish) {
  // A processor works at some 200 instructions at once. Where a tanh waits for a sigmoid in the same map that is hardly more than one
  // vector, and both chains are waited for; in a map of its own the tanh of several vectors are under way together. Rows that fill no
  // vector would pay more for the second pass.
  constexpr double enough_points = 256;
  const double points = num_points(space);
  const bool splits = long_functions > 0 && points >= enough_points && !space.outer.empty() &&
                      space.outer.back().bound >= kernel::lanes_of(DType::F32);
  std::size_t earliest = 0;
  std::set<std::size_t> ends;  // reductions whose results are read as they end
  for (const auto& [key, same_point] : reads) {
    const auto it = producer_.find(key);
    if (it == producer_.end()) continue;
    const Slot& from = slots_[it->second];
    // A reshape is written as its operand, point by point: the map that writes it has no value of its own indices to give.
    const bool written_as_operand =
        ir::is(*key.first, OpKind::Reshape) && !context_.is_short_row({const_cast<Node*>(key.first), 0});
    const bool joinable = kind == Slot::Kind::Map && from.kind == Slot::Kind::Map && from.space == space &&
                          same_point && !written_as_operand && !(splits && long_functions_[key] > 0) &&
                          has_room(it->second, reads, cost);
    const bool at_end = finish && same_point && !written_as_operand && takes_finish(from, space, finish->dtype());
    if (at_end) ends.insert(it->second);
    earliest = std::max(earliest, it->second + (joinable || at_end ? 0 : 1));
  }
  if (ends.contains(earliest)) return earliest;
  for (std::size_t s = earliest; s < slots_.size(); ++s)
    if (slots_[s].kind == kind && slots_[s].space == space && has_room(s, reads, cost)) return s;
  slots_.push_back({kind, space, {}, {}});
  return slots_.size() - 1;
}

void BlockLowering::place_definition(Value v) {
  const Node& node = *v.node;
  Slot::Kind kind = Slot::Kind::Map;
  IndexSpace space;
  // What is summed or put together within short rows is an expression of the map.
  const bool within_rows = (ir::is(node, OpKind::Reduce) || ir::is(node, OpKind::Concat)) && context_.is_short_row(v) &&
                           context_.is_short_row(node.operands[0]);
  const bool is_dot = dots_.contains(key_of(v));
  if (is_dot)
    kind = is_expression(dots_.at(key_of(v))) ? Slot::Kind::Map : Slot::Kind::Dot;
  else if (within_rows)
    kind = Slot::Kind::Map;
  else if (ir::is(node, OpKind::Reduce) && !is_trivial_reduction(node))
    kind = Slot::Kind::Reduction;
  else if (ir::is(node, OpKind::ArgMax) || ir::is(node, OpKind::ScatterAdd) || ir::is(node, OpKind::DynamicUpdate) ||
           ir::is(node, OpKind::Loop) || ir::is(node, OpKind::Concat) || ir::is(node, OpKind::Pad))
    kind = Slot::Kind::Other;
  if (ir::is(node, OpKind::Pad) &&
      std::ranges::all_of(node.attrs.integers("interior"), [](std::int64_t k) { return k == 0; }))
    kind = Slot::Kind::Map;

  std::map<ValueKey, bool> reads = reads_to_compute(v);
  std::size_t s;
  if (kind == Slot::Kind::Map && computes_in_turn(v)) {
    for (auto& [key, same_point] : reads) same_point = false;  // the same row, which may be another number of it
    s = slot_for_map_of(v, space_of_copy(context_, v, true), reads, false);
  } else if (kind == Slot::Kind::Map) {
    // A merging reshape is a copy in the index space of its operand.
    const bool merging = ir::is(node, OpKind::Reshape) && !context_.is_short_row(v);
    const bool finishes = !merging && !is_dot && may_finish(v);
    s = slot_for_map_of(v, space_of(context_, merging ? node.operands[0] : v), reads, finishes);
  } else if (kind == Slot::Kind::Reduction) {
    const auto& axes = node.attrs.integers("axes");
    const Value x = node.operands[0];
    space.of_a_part = sum_of_parts(v) != nullptr;
    for (int i = 0; i < x.rank(); ++i) {
      if (x.shape()[i] == 1) continue;
      auto& list = std::ranges::find(axes, i) == axes.end() ? space.outer : space.reduced;
      list.push_back(context_.extent(x, i));
      if (space.of_a_part && context_.is_row_axis(x, i)) list.back().bound = context_.rows_of_part();
    }
    s = slot_for_map(space, kind, reads);
    // Only reductions that read their operand in the same order share a nest.
    const auto alike = [&](const Node& other) {
      return other.attrs.integers("axes") == axes && axis_over_lanes(other) == axis_over_lanes(node);
    };
    if (!slots_[s].items.empty() && !alike(*slots_[s].items[0].value.node)) {
      slots_.push_back({kind, space, {}, {}});
      s = slots_.size() - 1;
    }
  } else {
    slots_.push_back({kind, {}, {}, {}});
    s = slots_.size() - 1;
  }
  slots_[s].items.push_back({v, false, std::nullopt});
  for (const auto& [key, same_point] : reads) {
    const auto [it, fresh] = slots_[s].reads.try_emplace(key, same_point);
    if (!fresh) it->second = it->second && same_point;
  }
  for (int i = 0; i < static_cast<int>(node.types.size()); ++i) producer_[{&node, i}] = s;
}

void BlockLowering::place_copy(std::size_t t) {
  const Value v = targets_[t].value;
  std::map<ValueKey, bool> reads;
  collect_reads(v, true, reads);
  const bool in_turn = !stored(v) && computes_in_turn(v);
  if (in_turn)
    for (auto& [key, same_point] : reads) same_point = false;
  const IndexSpace space = space_of_copy(context_, v, in_turn || changes_layout(targets_[t]));
  // What is in memory, or on its way there, is stored once more; no function is called again for it.
  const std::size_t s =
      stored(v) ? slot_for_map(space, Slot::Kind::Map, reads) : slot_for_map_of(v, space, reads, false);
  slots_[s].items.push_back({v, true, t});
  for (const auto& [key, same_point] : reads) {
    const auto [it, fresh] = slots_[s].reads.try_emplace(key, same_point);
    if (!fresh) it->second = it->second && same_point;
  }
}

// By lanes, what a loop computes again and again lies with the rows innermost until it ends, and what is computed row by row until it is turned. A table
// that a loop only fills, at places of each row's own, would have to be turned at the end, and is scattered either way.
bool BlockLowering::changes_layout(const BlockTarget& target) const {
  const Value v = target.value;
  if (!context_.by_lanes() || context_.axes().axis_in(v, context_.tile_class) < 0) return false;
  if (target.overwrites || target.accumulate || context_.has_rows_innermost(v, target.storage)) return false;
  if (ir::is(*v.node, OpKind::Loop)) return !is_only_filled(context_, v);
  if (const auto dot = dots_.find(key_of(v)); dot != dots_.end() && !is_expression(dot->second)) return false;
  return computes_rows(*v.node) && turns_in_a_copy(context_, v);
}

void BlockLowering::place() {
  // The first target of a value that is computed here is where it is computed to.
  for (std::size_t t = 0; t < targets_.size(); ++t)
    if (planned_.contains(key_of(targets_[t].value)) && !changes_layout(targets_[t]))
      primary_target_.try_emplace(key_of(targets_[t].value), t);
  // Pieces of a concatenation are computed into it, unless they have a place already.
  for (std::size_t planned = 0; planned < planned_order_.size(); ++planned) {  // it grows by the pieces
    const Value v = planned_order_[planned];
    if (!ir::is(*v.node, OpKind::Concat) || context_.is_short_row(v)) continue;
    for (std::size_t i = 0; i < v.node->operands.size(); ++i) {
      const Value piece = context_.resolve(v.node->operands[i]);
      if (!in_block(piece) || context_.find(piece) || primary_target_.contains(key_of(piece)) ||
          piece_of_.contains(key_of(piece)) || ir::is(*piece.node, OpKind::Loop) || is_strided_view(*piece.node) ||
          ir::is(*piece.node, OpKind::Concat))
        continue;
      piece_of_[key_of(piece)] = {v, static_cast<int>(i)};
      need_memory(piece);
    }
  }
  // Values of enclosing graphs depend on nothing in the block.
  std::ranges::stable_sort(planned_order_, {}, [&](Value v) { return std::pair(in_block(v), v.node->id); });
  find_updates();
  std::set<const Node*> done;
  std::vector<Value> last;
  for (Value v : planned_order_) {
    if (comes_last_.contains(key_of(v)))
      last.push_back(v);
    else if (done.insert(v.node).second)
      place_definition(v);
  }
  std::vector<std::size_t> last_copies;
  for (std::size_t t = 0; t < targets_.size(); ++t) {
    const auto it = primary_target_.find(key_of(targets_[t].value));
    if (it != primary_target_.end() && it->second == t) continue;
    if (targets_[t].overwrites)
      late_copies_.push_back(t);
    else if (reads_one_of(targets_[t].value, comes_last_))
      last_copies.push_back(t);
    else
      place_copy(t);
  }
  // What is read comes before what reads it, and what reads a table before that is written.
  std::map<ValueKey, std::map<ValueKey, bool>> reads;
  for (Value v : last) reads.emplace(key_of(v), reads_to_compute(v));
  const auto is_read_by_another = [&](Value v, Value reader) {
    return std::ranges::any_of(
        last, [&](Value w) { return w.node != reader.node && reads.at(key_of(w)).contains(key_of(v)); });
  };
  while (!last.empty()) {
    const auto follows = [&](Value v) {
      return std::ranges::any_of(last,
                                 [&](Value w) { return w.node != v.node && reads.at(key_of(v)).contains(key_of(w)); });
    };
    const auto writes_over_what_is_read = [&](Value v) {
      const auto table = table_of_.find(key_of(v));
      return table != table_of_.end() && is_read_by_another(table->second, v);
    };
    auto next = std::ranges::find_if(last, [&](Value v) { return !follows(v) && !writes_over_what_is_read(v); });
    if (next == last.end()) next = std::ranges::find_if(last, [&](Value v) { return !follows(v); });
    HOTLOOP_CHECK(next != last.end(), "values of a block follow from one another");
    const Value v = *next;
    last.erase(next);
    if (done.insert(v.node).second) place_definition(v);
  }
  for (const std::size_t t : last_copies) place_copy(t);
}

}  // namespace hotloop
