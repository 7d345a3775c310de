#include "schedule/block.h"

#include <algorithm>
#include <functional>
#include <map>
#include <set>

#include "hotloop/error.h"
#include "ir/op_def.h"
#include "schedule/dot_plan.h"
#include "schedule/indirect_writes.h"
#include "schedule/map_builder.h"
#include "schedule/reshape_groups.h"

namespace hotloop {

using ir::OpKind;
using kernel::Block;
using kernel::Extent;

IndexSpace space_of(const LoweringContext& context, Value v) {
  IndexSpace space;
  for (int i = 0; i < v.rank(); ++i)
    if (v.shape()[i] != 1) space.outer.push_back(context.extent(v, i));
  return space;
}

kernel::Stmt fill(LoweringContext& context, int buffer, const kernel::Affine& offset, std::int64_t elements,
                  double value) {
  kernel::Map map;
  map.name = "fill";
  map.dims.push_back({context.new_var("i"), {elements, -1}});
  map.num_outer = 1;
  map.vector_dim = 0;
  const DType dtype = context.program.buffers[static_cast<std::size_t>(buffer)].dtype;
  kernel::Instr number, store;
  number.kind = kernel::Instr::Kind::Const;
  number.dtype = dtype;
  number.bits = bits_of(dtype, value);
  store.kind = kernel::Instr::Kind::Store;
  store.dtype = dtype;
  store.args[0] = 0;
  store.access = {buffer, offset + kernel::Affine::of(map.dims[0].var), {}};
  map.instrs = {number, store};
  map.body_end = 2;
  return {map};
}

namespace {

bool merges_axes(const Node& reshape) {
  return std::ranges::any_of(reshape_groups(reshape.operands[0].shape(), reshape.types[0].shape),
                             [](const ReshapeGroup& g) { return g.in.size() > 1; });
}

// Every point of the result reads the point of the operand with the same indices (axes of extent 1 aside).
bool keeps_index(const Node& node) {
  if (ir::is(node, OpKind::Elementwise) || ir::is(node, OpKind::StopGradient)) return true;
  if (!ir::is(node, OpKind::Reshape) && !ir::is(node, OpKind::Broadcast)) return false;
  const auto long_axes = [](const Shape& s) {
    std::vector<std::int64_t> d;
    for (std::int64_t n : s.dims())
      if (n != 1) d.push_back(n);
    return d;
  };
  return long_axes(node.operands[0].shape()) == long_axes(node.types[0].shape);
}

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

// A reduction over axes of extent 1 only is a change of shape.
bool is_trivial_reduction(const Node& reduce) {
  return std::ranges::all_of(reduce.attrs.integers("axes"),
                             [&](std::int64_t a) { return reduce.operands[0].shape()[static_cast<int>(a)] == 1; });
}

class BlockLowering {
 public:
  BlockLowering(LoweringContext& context, std::span<const Node* const> nodes, std::span<const BlockTarget> targets,
                std::span<const Value> required)
      : context_(context), nodes_(nodes), targets_(targets.begin(), targets.end()) {
    for (BlockTarget& t : targets_) t.value = context.resolve(t.value);
    for (Value v : required) required_.push_back(context.resolve(v));
    for (const Node* n : nodes) members_.insert(n);
  }

  Block run() {
    find_needed();
    plan_dots();
    choose_memory();
    place();
    settle_overwrites();
    return emit();
  }

 private:
  struct Item {  // something a slot computes
    Value value;
    bool is_copy = false;               // the value exists already and is only copied to the place
    std::optional<std::size_t> target;  // index into targets_ of a further or only place
    bool accumulate = false;
  };
  struct Slot {
    enum class Kind { Map, Reduction, Dot, Other } kind = Kind::Map;
    IndexSpace space;
    std::vector<Item> items;
    std::map<ValueKey, bool> reads;  // values in memory; true: only at the same point
  };

  Value result(const Node* n, int i = 0) const { return {const_cast<Node*>(n), i}; }
  bool in_block(Value v) const { return members_.contains(v.node); }
  bool stored(Value v) { return planned_.contains(key_of(v)) || context_.find(v).has_value(); }

  void find_needed();
  void plan_dots();
  void choose_memory();
  void need_memory(Value v);
  double inline_cost(Value v);
  void place();
  std::size_t slot_for_map(const IndexSpace& space, Slot::Kind kind, const std::map<ValueKey, bool>& reads);
  void collect_reads(Value v, bool same_point, std::map<ValueKey, bool>& reads);
  std::map<ValueKey, bool> reads_of_definition(Value v);
  void place_definition(Value v);
  void place_copy(std::size_t target);
  void settle_overwrites();
  void assign_storage();
  Block emit();
  void emit_slot(Slot& slot, Block& block);
  bool is_read_elsewhere(Value v, std::size_t slot) const;

  LoweringContext& context_;
  std::span<const Node* const> nodes_;
  std::vector<BlockTarget> targets_;
  std::vector<Value> required_;
  std::set<const Node*> members_, needed_;
  std::map<ValueKey, int> uses_;
  std::map<ValueKey, DotPlan> dots_;  // by result
  std::set<ValueKey> absorbed_;       // results that vanish inside a plan
  std::set<ValueKey> planned_;        // values that this block puts into memory
  std::vector<Value> planned_order_;
  std::map<ValueKey, Storage> place_of_;                // fixed places of planned values
  std::map<ValueKey, std::pair<Value, int>> piece_of_;  // value -> concat it is a piece of, which
  std::map<ValueKey, std::size_t> primary_target_;
  std::vector<Slot> slots_;
  std::map<ValueKey, std::size_t> producer_;
  std::vector<std::size_t> late_copies_;  // targets written at the end, from a place of their own
};

void BlockLowering::find_needed() {
  std::vector<Value> work;
  for (const BlockTarget& t : targets_) work.push_back(t.value);
  for (Value v : required_) work.push_back(v);
  for (Value v : work) ++uses_[key_of(v)];
  while (!work.empty()) {
    const Value v = context_.resolve(work.back());
    work.pop_back();
    if (!in_block(v) || !needed_.insert(v.node).second || ir::is(*v.node, OpKind::Extent)) continue;
    for (Value o : v.node->operands) {
      o = context_.resolve(o);
      ++uses_[key_of(o)];
      work.push_back(o);
    }
  }
}

void BlockLowering::plan_dots() {
  std::set<ValueKey> fixed;
  for (const BlockTarget& t : targets_) fixed.insert(key_of(t.value));
  for (Value v : required_) fixed.insert(key_of(v));
  const auto absorbable = [&](Value v) {
    return in_block(v) && uses_[key_of(v)] == 1 && !fixed.contains(key_of(v)) && !context_.find(v);
  };
  for (std::size_t i = nodes_.size(); i-- > 0;) {
    const Node* n = nodes_[i];
    if (!needed_.contains(n) || absorbed_.contains({n, 0}) || context_.find(result(n))) continue;
    auto plan = plan_dot(*n, absorbable);
    if (!plan) continue;
    // Adds and dots below the top vanish.
    const std::function<void(Value)> absorb = [&](Value v) {
      if (plan->init && v == *plan->init) return;
      absorbed_.insert(key_of(v));
      if (v.node->op->name == "add")
        for (Value o : v.node->operands) absorb(o);
    };
    if (n->op->name == "add")
      for (Value o : n->operands) absorb(o);
    dots_.emplace(ValueKey{n, 0}, std::move(*plan));
  }
}

double BlockLowering::inline_cost(Value v) {
  v = context_.resolve(v);
  if (stored(v)) return 0;
  if (ir::is(*v.node, OpKind::Extent)) return 0;
  if (ir::is(*v.node, OpKind::RandomBits)) return 100;
  double cost = v.node->op->kind == OpKind::Elementwise ? v.node->op->cost_per_element : 0;
  for (Value o : v.node->operands)
    if ((cost += inline_cost(o)) > 50) break;
  return cost;
}

void BlockLowering::need_memory(Value v) {
  v = context_.resolve(v);
  if (stored(v)) return;
  const Node& node = *v.node;
  if (is_strided_view(node) && !(ir::is(node, OpKind::Reshape) && merges_axes(node)))
    return need_memory(node.operands[0]);
  if (ir::is(node, OpKind::Reshape)) need_memory(node.operands[0]);
  planned_.insert(key_of(v));
  planned_order_.push_back(v);
}

void BlockLowering::choose_memory() {
  for (const BlockTarget& t : targets_) {
    const Value v = t.value;
    if (in_block(v) && !stored(v) && !is_strided_view(*v.node)) need_memory(v);
  }
  for (Value v : required_) need_memory(v);
  // A carry that becomes a view of something gets a place of its own first, since the view may be of an old carry.
  for (const BlockTarget& t : targets_)
    if (t.overwrites && in_block(t.value) && is_strided_view(*t.value.node) && planned_.insert(key_of(t.value)).second)
      planned_order_.push_back(t.value);
  // Consumers first, so that a value's users have decided before it is looked at.
  for (std::size_t i = nodes_.size(); i-- > 0;) {
    const Node* n = nodes_[i];
    if (!needed_.contains(n)) continue;
    const Value v = result(n);
    if (absorbed_.contains(key_of(v)) || (n->types.size() == 1 && context_.find(v))) continue;
    if (is_strided_view(*n)) uses_[key_of(context_.resolve(n->operands[0]))] += uses_[key_of(v)] - 1;
    if (const auto it = dots_.find(key_of(v)); it != dots_.end()) {
      need_memory(v);
      for (const Node* term : it->second.terms)
        for (Value o : term->operands) need_memory(o);
      if (it->second.init) need_memory(*it->second.init);
      continue;
    }
    switch (n->op->kind) {
      case OpKind::Elementwise:
        if (uses_[key_of(v)] > 1 && inline_cost(v) >= 4) need_memory(v);
        break;
      case OpKind::Broadcast:
        // Computing before repeating.
        if (n->operands[0].shape().size() < v.shape().size() && inline_cost(n->operands[0]) >= 1) {
          Value source = context_.resolve(n->operands[0]);
          while (!stored(source) && is_strided_view(*source.node)) source = context_.resolve(source.node->operands[0]);
          need_memory(source);
        }
        break;
      case OpKind::Reshape:
        if (merges_axes(*n)) need_memory(v);
        break;
      case OpKind::Pad:
        if (const auto& interior = n->attrs.integers("interior");
            std::ranges::any_of(interior, [](std::int64_t k) { return k > 0; }))
          need_memory(v);
        break;
      case OpKind::Reduce:
      case OpKind::Concat: need_memory(v); break;
      case OpKind::ArgMax:
      case OpKind::ScatterAdd:
      case OpKind::DynamicUpdate:
        need_memory(v);
        need_memory(n->operands[0]);
        break;
      case OpKind::Gather:
      case OpKind::DynamicSlice: need_memory(n->operands[0]); break;
      case OpKind::RandomBits: need_memory(n->operands[0]); break;
      case OpKind::Loop: {
        for (int k = 0; k < static_cast<int>(n->types.size()); ++k)
          if (uses_.contains({n, k})) need_memory(result(n, k));
        const auto num_carry = static_cast<std::size_t>(n->attrs.integer("num_carry"));
        const auto num_xs = static_cast<std::size_t>(n->attrs.integer("num_xs"));
        for (std::size_t k = num_carry; k < n->operands.size(); ++k) {
          const Value o = context_.resolve(n->operands[k]);
          const bool is_const = k >= num_carry + num_xs;
          const bool light = ir::is(*o.node, OpKind::Iota) || ir::is(*o.node, OpKind::Extent);
          if (!(is_const && light && k + 1 < n->operands.size())) need_memory(o);
        }
        break;
      }
      default: break;
    }
  }
}

// Reads of v, which is used at the same point or at another one.
void BlockLowering::collect_reads(Value v, bool same_point, std::map<ValueKey, bool>& reads) {
  v = context_.resolve(v);
  if (planned_.contains(key_of(v)) || (context_.find(v) && !is_strided_view(*v.node))) {
    const auto [it, fresh] = reads.try_emplace(key_of(v), same_point);
    if (!fresh) it->second = it->second && same_point;
    return;
  }
  if (ir::is(*v.node, OpKind::Extent)) return;  // reads no element
  const bool keeps = keeps_index(*v.node);
  for (Value o : v.node->operands) collect_reads(o, same_point && keeps, reads);
}

std::map<ValueKey, bool> BlockLowering::reads_of_definition(Value v) {
  std::map<ValueKey, bool> reads;
  const bool keeps = keeps_index(*v.node);
  for (Value o : v.node->operands) collect_reads(o, keeps, reads);
  return reads;
}

std::size_t BlockLowering::slot_for_map(const IndexSpace& space, Slot::Kind kind,
                                        const std::map<ValueKey, bool>& reads) {
  std::size_t earliest = 0;
  for (const auto& [key, same_point] : reads) {
    const auto it = producer_.find(key);
    if (it == producer_.end()) continue;
    const Slot& from = slots_[it->second];
    const bool joinable = kind == Slot::Kind::Map && from.kind == Slot::Kind::Map && from.space == space && same_point;
    earliest = std::max(earliest, it->second + (joinable ? 0 : 1));
  }
  for (std::size_t s = earliest; s < slots_.size(); ++s)
    if (slots_[s].kind == kind && slots_[s].space == space) return s;
  slots_.push_back({kind, space, {}, {}});
  return slots_.size() - 1;
}

void BlockLowering::place_definition(Value v) {
  const Node& node = *v.node;
  Slot::Kind kind = Slot::Kind::Map;
  IndexSpace space;
  if (dots_.contains(key_of(v)))
    kind = Slot::Kind::Dot;
  else if (ir::is(node, OpKind::Reduce) && !is_trivial_reduction(node))
    kind = Slot::Kind::Reduction;
  else if (ir::is(node, OpKind::ArgMax) || ir::is(node, OpKind::ScatterAdd) || ir::is(node, OpKind::DynamicUpdate) ||
           ir::is(node, OpKind::Loop) || ir::is(node, OpKind::Concat) || ir::is(node, OpKind::Pad))
    kind = Slot::Kind::Other;
  if (ir::is(node, OpKind::Pad) &&
      std::ranges::all_of(node.attrs.integers("interior"), [](std::int64_t k) { return k == 0; }))
    kind = Slot::Kind::Map;

  std::map<ValueKey, bool> reads;
  if (kind == Slot::Kind::Dot) {
    const DotPlan& plan = dots_.at(key_of(v));
    for (const Node* term : plan.terms)
      for (Value o : term->operands) collect_reads(o, false, reads);
    if (plan.init) collect_reads(*plan.init, false, reads);
  } else {
    reads = reads_of_definition(v);
  }
  std::size_t s;
  if (kind == Slot::Kind::Map) {
    // A merging reshape is a copy in the index space of its operand.
    const bool merging = ir::is(node, OpKind::Reshape);
    s = slot_for_map(space_of(context_, merging ? node.operands[0] : v), kind, reads);
  } else if (kind == Slot::Kind::Reduction) {
    const auto& axes = node.attrs.integers("axes");
    for (int i = 0; i < node.operands[0].rank(); ++i) {
      if (node.operands[0].shape()[i] == 1) continue;
      auto& list = std::ranges::find(axes, i) == axes.end() ? space.outer : space.reduced;
      list.push_back(context_.extent(node.operands[0], i));
    }
    s = slot_for_map(space, kind, reads);
    // Only reductions that read their operand in the same order share a nest.
    const auto& first = slots_[s].items;
    if (!first.empty() && first[0].value.node->attrs.integers("axes") != axes) {
      slots_.push_back({kind, space, {}, {}});
      s = slots_.size() - 1;
    }
  } else {
    slots_.push_back({kind, {}, {}, {}});
    s = slots_.size() - 1;
  }
  Item item{v, false, std::nullopt, false};
  slots_[s].items.push_back(item);
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
  const std::size_t s = slot_for_map(space_of(context_, v), Slot::Kind::Map, reads);
  slots_[s].items.push_back({v, true, t, targets_[t].accumulate});
  for (const auto& [key, same_point] : reads) {
    const auto [it, fresh] = slots_[s].reads.try_emplace(key, same_point);
    if (!fresh) it->second = it->second && same_point;
  }
}

void BlockLowering::place() {
  // The first target of a value that is computed here is where it is computed to.
  for (std::size_t t = 0; t < targets_.size(); ++t)
    if (planned_.contains(key_of(targets_[t].value))) primary_target_.try_emplace(key_of(targets_[t].value), t);
  // Pieces of a concatenation are computed into it, unless they have a place already.
  for (Value v : planned_order_) {
    if (!ir::is(*v.node, OpKind::Concat)) continue;
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
  std::set<const Node*> done;
  for (Value v : planned_order_)
    if (done.insert(v.node).second) place_definition(v);
  for (std::size_t t = 0; t < targets_.size(); ++t) {
    const auto it = primary_target_.find(key_of(targets_[t].value));
    if (it != primary_target_.end() && it->second == t) continue;
    if (targets_[t].overwrites)
      late_copies_.push_back(t);
    else
      place_copy(t);
  }
}

// A value may be computed straight into the place of a carry if nothing reads the old carry afterwards.
void BlockLowering::settle_overwrites() {
  for (std::size_t t = 0; t < targets_.size(); ++t) {
    if (!targets_[t].overwrites) continue;
    const auto primary = primary_target_.find(key_of(targets_[t].value));
    if (primary == primary_target_.end() || primary->second != t) continue;
    const std::size_t writer = producer_.at(key_of(targets_[t].value));
    bool safe = slots_[writer].kind == Slot::Kind::Map || slots_[writer].kind == Slot::Kind::Dot;
    const ValueKey old = key_of(*targets_[t].overwrites);
    for (std::size_t s = 0; s < slots_.size(); ++s) {
      const auto it = slots_[s].reads.find(old);
      if (it == slots_[s].reads.end()) continue;
      const bool same_point = s == writer && slots_[s].kind == Slot::Kind::Map && it->second;
      safe = safe && (s < writer || same_point);
    }
    for (std::size_t other : late_copies_) safe = safe && key_of(targets_[other].value) != old;
    if (!safe) {
      primary_target_.erase(primary);
      late_copies_.push_back(t);
    }
  }
}

bool BlockLowering::is_read_elsewhere(Value v, std::size_t slot) const {
  for (std::size_t s = 0; s < slots_.size(); ++s)
    if (s != slot && slots_[s].reads.contains(key_of(v))) return true;
  return false;
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
    } else {
      storage = context_.allocate(v, v.node->op->name);
    }
    place_of_[key_of(v)] = storage;
  }
}

Block BlockLowering::emit() {
  assign_storage();
  Block block;
  // Copies from a place of their own into carries come last; a carry that goes to another carry is saved first.
  std::vector<BlockTarget> last;
  std::vector<BlockTarget> saved;
  for (std::size_t t : late_copies_) {
    const Value v = targets_[t].value;
    const bool is_old_carry = std::ranges::any_of(
        targets_, [&](const BlockTarget& other) { return other.overwrites && *other.overwrites == v; });
    if (is_old_carry && v != *targets_[t].overwrites) saved.push_back({v, context_.allocate(v, "swap"), {}, false});
  }
  const Block save = lower_copies(context_, saved);
  block.insert(block.end(), save.begin(), save.end());
  for (Slot& slot : slots_) emit_slot(slot, block);
  for (const BlockTarget& s : saved) context_.bind(s.value, s.storage);
  for (std::size_t t : late_copies_) last.push_back({targets_[t].value, targets_[t].storage, {}, false});
  Block copies = lower_copies(context_, last);
  block.insert(block.end(), std::make_move_iterator(copies.begin()), std::make_move_iterator(copies.end()));
  return block;
}

void BlockLowering::emit_slot(Slot& slot, Block& block) {
  const std::size_t index = static_cast<std::size_t>(&slot - slots_.data());
  const auto append = [&](Block part) {
    block.insert(block.end(), std::make_move_iterator(part.begin()), std::make_move_iterator(part.end()));
  };
  const auto is_target = [&](Value v) { return primary_target_.contains(key_of(v)); };
  const auto is_copied_late = [&](Value v) {
    return std::ranges::any_of(late_copies_, [&](std::size_t t) { return targets_[t].value == v; });
  };
  const auto accumulates = [&](Value v) {
    const auto t = primary_target_.find(key_of(v));
    return t != primary_target_.end() && targets_[t->second].accumulate;
  };
  switch (slot.kind) {
    case Slot::Kind::Map: {
      MapBuilder builder(context_, slot.space);
      std::string name;
      for (const Item& item : slot.items) {
        if (item.is_copy) {
          builder.add(item.value, &targets_[*item.target].storage, false);
          continue;
        }
        const Value v = item.value;
        const Storage& place = place_of_.at(key_of(v));
        if (ir::is(*v.node, OpKind::Reshape)) {
          const Storage as_operand = seen_as_operand(*v.node, place);
          builder.add(v.node->operands[0], &as_operand, false);
        } else {
          const bool keep = is_target(v) || is_copied_late(v) || piece_of_.contains(key_of(v)) ||
                            is_read_elsewhere(v, index) || std::ranges::find(required_, v) != required_.end();
          builder.add(v, keep ? &place : nullptr, true);
        }
        context_.bind(v, place);
        name += (name.empty() ? "" : "+") + v.node->op->name;
      }
      if (name.size() > 40) name = name.substr(0, 37) + "...";
      block.push_back({builder.finish(name.empty() ? "copy" : name)});
      return;
    }
    case Slot::Kind::Reduction: {
      MapBuilder builder(context_, slot.space);
      for (const Item& item : slot.items) {
        builder.add_reduction(item.value, place_of_.at(key_of(item.value)), accumulates(item.value));
        context_.bind(item.value, place_of_.at(key_of(item.value)));
      }
      block.push_back({builder.finish(slot.items[0].value.node->op->name)});
      return;
    }
    case Slot::Kind::Dot: {
      const Value v = slot.items[0].value;
      append(lower_dot(context_, dots_.at(key_of(v)), place_of_.at(key_of(v)), accumulates(v)));
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
      append(lower_loop(context_, node, results));
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
      append(lower_copies(context_, copies));
      break;
    }
    default: append(lower_indirect_write(context_, node, place_of_.at(key_of(v)))); break;
  }
  context_.bind(v, place_of_.at(key_of(v)));
}

}  // namespace

Block lower_copies(LoweringContext& context, std::span<const BlockTarget> copies) {
  Block block;
  std::vector<bool> done(copies.size());
  for (std::size_t i = 0; i < copies.size(); ++i) {
    if (done[i]) continue;
    const IndexSpace space = space_of(context, copies[i].value);
    MapBuilder builder(context, space);
    for (std::size_t j = i; j < copies.size(); ++j) {
      if (done[j] || !(space_of(context, copies[j].value) == space)) continue;
      builder.add(copies[j].value, &copies[j].storage, false);
      done[j] = true;
    }
    block.push_back({builder.finish("copy")});
  }
  return block;
}

Block lower_block(LoweringContext& context, std::span<const Node* const> nodes, std::span<const BlockTarget> targets,
                  std::span<const Value> required) {
  return BlockLowering(context, nodes, targets, required).run();
}

}  // namespace hotloop
