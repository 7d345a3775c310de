// Which values of a block lie in memory; the others are computed where they are read.
#include <algorithm>
#include <functional>

#include "core/reshape_groups.h"
#include "hotloop/error.h"
#include "ir/op_def.h"
#include "schedule/block_lowering.h"

namespace hotloop {

using ir::OpKind;

namespace {

// Some group of the reshape has several axes of the operand.
bool merges_axes(const Node& reshape) {
  return std::ranges::any_of(reshape_groups(reshape.operands[0].shape(), reshape.types[0].shape),
                             [](const ReshapeGroup& g) { return g.in.size() > 1; });
}

// The numbers of the operand lie apart in what is padded.
bool is_spread(const Node& pad) {
  return std::ranges::any_of(pad.attrs.integers("interior"), [](std::int64_t k) { return k > 0; });
}

// What a loop gives of each step, in order.
bool is_stacked(Value v) {
  if (!ir::is(*v.node, OpKind::Loop)) return false;
  const auto num_carry = v.node->attrs.integer("num_carry");
  return v.index >= num_carry && v.index + 1 < static_cast<int>(v.node->types.size());
}

}  // namespace

// A result that is a transpose or reshape of a dot, or of what a loop gives of its steps, is written by the dot or the loop itself, if its
// columns still lie side by side.
void BlockLowering::look_through_views() {
  for (BlockTarget& t : targets_) {
    if (t.overwrites || t.accumulate) continue;
    Value v = t.value;
    std::optional<Storage> place = t.storage;
    while (place && (ir::is(*v.node, OpKind::Transpose) || ir::is(*v.node, OpKind::Reshape)) && in_block(v) &&
           !context_.find(v) && !context_.crosses_tiles(*v.node)) {
      place = operand_place(*v.node, *place);
      v = context_.resolve(v.node->operands[0]);
    }
    if (!place || v == t.value || !in_block(v) || context_.find(v)) continue;
    const bool is_sum = v.node->op->name == "add" &&
                        std::ranges::any_of(v.node->operands, [](Value o) { return ir::is(*o.node, OpKind::Dot); });
    if (!is_sum && !ir::is(*v.node, OpKind::Dot) && (!is_stacked(v) || context_.by_lanes())) continue;
    int last = v.rank() - 1;
    while (last >= 0 && v.shape()[last] == 1) --last;
    if (last >= 0 && place->strides[static_cast<std::size_t>(last)] != 1) continue;
    t.value = v;
    t.storage = *place;
  }
}

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

namespace {

// Slices of a value along its last axis, by which it is read, as a cell reads its gates.
struct Slices {
  std::set<std::int64_t> starts;
  std::int64_t width = 0;
  bool is_read_otherwise = false;

  void add(const Node& reader, Value v) {
    const auto last = static_cast<std::size_t>(v.rank()) - 1;
    if (!ir::is(reader, OpKind::Slice) || v.rank() == 0 || v.shape().size() == 0 || reader.types[0].shape.size() == 0) {
      is_read_otherwise = true;
      return;
    }
    const Shape& shape = reader.types[0].shape;
    const std::int64_t extent = shape[v.rank() - 1], start = reader.attrs.integers("start")[last];
    is_read_otherwise |= shape.size() / extent != v.shape().size() / v.shape()[v.rank() - 1] || start % extent != 0 ||
                         (width != 0 && width != extent);
    width = extent;
    starts.insert(start);
  }
  // How many equal parts they are; 1 if they are not all of the axis, or something else is read.
  std::int64_t parts_of(Value v) const {
    const auto parts = static_cast<std::int64_t>(starts.size());
    return !is_read_otherwise && parts > 0 && parts * width == v.shape()[v.rank() - 1] ? parts : 1;
  }
};

}  // namespace

void BlockLowering::plan_dots() {
  std::map<ValueKey, Slices> slices;
  if (context_.loop_depth > 0)  // where it is asked for
    for (const Node* n : nodes_)
      for (const Value& operand : n->operands) {
        const Value v = context_.resolve(operand);
        if (ir::is(*v.node, OpKind::Dot) || v.node->op->name == "add") slices[key_of(v)].add(*n, v);
      }
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
    if (const auto it = slices.find({n, 0}); it != slices.end()) plan->parts = it->second.parts_of(result(n));
    dots_.emplace(ValueKey{n, 0}, std::move(*plan));
  }
}

// A sum of short dots, by lanes.
bool BlockLowering::is_expression(const DotPlan& plan) const {
  return context_.by_lanes() &&
         std::ranges::all_of(plan.terms, [&](const Node* term) { return is_short_dot(context_, *term); });
}

// What computing v where it is read costs, in cost_per_element; once it is `enough`, no more is looked at.
double BlockLowering::inline_cost(Value v, double enough) {
  std::map<ValueKey, double> known;
  return inline_cost(v, enough, known);
}

double BlockLowering::inline_cost(Value v, double enough, std::map<ValueKey, double>& known) {
  v = context_.resolve(v);
  if (const auto it = known.find(key_of(v)); it != known.end()) return it->second;
  if (stored(v)) return 0;
  if (ir::is(*v.node, OpKind::Extent)) return 0;
  if (ir::is(*v.node, OpKind::RandomBits)) return 100;
  double cost = v.node->op->kind == OpKind::Elementwise ? v.node->op->cost_per_element
                : ir::is(*v.node, OpKind::Concat)       ? 1
                                                        : 0;
  for (Value o : v.node->operands) {
    if (cost >= enough) break;
    cost += inline_cost(o, enough, known);
  }
  return known[key_of(v)] = cost;
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

namespace {

// What a view shows.
Value base_of(const LoweringContext& context, Value v) {
  for (v = context.resolve(v); is_strided_view(*v.node); v = context.resolve(v.node->operands[0])) {
  }
  return v;
}

}  // namespace

// Whether the numbers that fill vectors lie one after the other in what v shows, not with others between them.
bool BlockLowering::lies_in_order(Value v) {
  v = context_.resolve(v);
  const auto place_of = [&](auto&& self, Value shown) -> std::optional<Storage> {
    shown = context_.resolve(shown);
    if (!is_strided_view(*shown.node)) {
      const auto known = context_.find(shown);
      return known ? known : row_major(-1, shown.shape());
    }
    const auto operand = self(self, shown.node->operands[0]);
    return operand ? view_through(*shown.node, *operand) : std::nullopt;
  };
  const auto place = place_of(place_of, v);
  int last = v.rank() - 1;
  while (last >= 0 && v.shape()[last] == 1) --last;
  return context_.by_lanes() || last < 0 || (place && std::abs(place->strides[static_cast<std::size_t>(last)]) <= 1);
}

// Whether a piece of a concatenation that is not in memory itself has a place: one that is counted or is a constant has none, and one that shows another
// concatenation may be of what is read by pieces, too.
bool BlockLowering::lies_somewhere(Value piece) {
  const Node& base = *base_of(context_, piece).node;
  return !ir::is(base, OpKind::Iota) && !ir::is(base, OpKind::Extent) && !ir::is(base, OpKind::Constant) &&
         !ir::is(base, OpKind::Concat);
}

// The pieces that a point may be in, those of a concatenation of concatenations counted one by one, as long as they are not more than `most`.
std::size_t BlockLowering::num_pieces(Value concat, std::size_t most) {
  std::size_t count = 0;
  for (const Value& piece : concat.node->operands) {
    if (count > most) break;
    const Value base = base_of(context_, piece);
    count += ir::is(*base.node, OpKind::Concat) && !stored(base) ? num_pieces(base, most - count) : 1;
  }
  return count;
}

// Whether a concatenation of what lies in memory is read from there at each point, not copied first: values that are rolled round or have a border, as the
// neighbours of a stencil, of which one piece is at least half. What is computed, but for a small border, is computed into the whole, and what lies with other
// numbers between is copied once.
bool BlockLowering::is_read_by_pieces(Value v) {
  constexpr int most_uses = 4;
  constexpr std::size_t most_pieces = 4;
  constexpr std::int64_t large_part = 4;
  const kernel::Target& target = context_.options().target;
  // In one instruction loads leave out what is in other pieces, where vectors have 32 bytes or more.
  if (target.has_blocks() || target.vector_registers > 2) return false;
  const auto axis = static_cast<int>(v.node->attrs.integer("axis"));
  if (context_.is_short_row(v) || uses_[key_of(v)] > most_uses) return false;
  if (context_.is_row_axis(v, axis) || !context_.extent(v, axis).is_static()) return false;
  std::int64_t apart = 0, largest = 0;
  for (const Value& operand : v.node->operands) {
    const Value piece = context_.resolve(operand);
    const bool exists = stored(piece) || is_strided_view(*piece.node) || ir::is(*piece.node, OpKind::Constant) ||
                        ir::is(*piece.node, OpKind::Loop) || ir::is(*piece.node, OpKind::Concat);
    if (!exists || !lies_in_order(piece)) apart += piece.shape().size();
    largest = std::max(largest, piece.shape().size());
  }
  const std::int64_t all = v.shape().size();
  return 2 * largest >= all && apart * large_part <= all && num_pieces(v, most_pieces) <= most_pieces;
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
    // What lies nowhere is read at the points of its readers.
    const bool shows = is_strided_view(*n) || (ir::is(*n, OpKind::Pad) && !is_spread(*n) && !stored(v));
    if (shows) uses_[key_of(context_.resolve(n->operands[0]))] += uses_[key_of(v)] - 1;
    if (const auto it = dots_.find(key_of(v)); it != dots_.end()) {
      need_memory(v);
      if (is_expression(it->second)) continue;
      for (const Node* term : it->second.terms) {
        need_memory(term->operands[0]);
        need_memory(term->operands[1]);
      }
      if (it->second.init) need_memory(*it->second.init);
      continue;
    }
    switch (n->op->kind) {
      case OpKind::Elementwise:
        if (uses_[key_of(v)] > 1 && inline_cost(v, 4) >= 4) need_memory(v);
        break;
      case OpKind::Broadcast:
        // Computing before repeating.
        if (n->operands[0].shape().size() < v.shape().size() && inline_cost(n->operands[0], 1) >= 1) {
          Value source = context_.resolve(n->operands[0]);
          while (!stored(source) && is_strided_view(*source.node)) source = context_.resolve(source.node->operands[0]);
          need_memory(source);
        }
        break;
      case OpKind::Reshape:
        if (merges_axes(*n)) need_memory(v);
        break;
      case OpKind::Pad:
        if (is_spread(*n)) need_memory(v);
        break;
      case OpKind::Reduce: need_memory(v); break;
      case OpKind::Concat:
        if (stored(v)) break;
        if (!is_read_by_pieces(v)) {
          need_memory(v);
          break;
        }
        for (const Value& piece : n->operands)
          if (lies_somewhere(piece)) need_memory(piece);
        break;
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
  compute_updates_first();
  keep_lookups();
  cut_long_chains();
  shorten_rows();
}

// What sums, multiplies or moves the numbers of a short row reads them from memory where they are computed in turn.
void BlockLowering::shorten_rows() {
  for (std::size_t i = 0; i < planned_order_.size(); ++i) {  // it grows
    const Value v = planned_order_[i];
    const auto shorten = [&](Value o) {
      o = context_.resolve(o);
      if (in_block(o) && !stored(o) && computes_in_turn(o)) need_memory(o);
    };
    const auto dot = dots_.find(key_of(v));
    if (dot == dots_.end()) {
      if (!ir::is(*v.node, OpKind::Elementwise) && !ir::is(*v.node, OpKind::Loop))
        std::ranges::for_each(v.node->operands, shorten);
      continue;
    }
    for (const Node* term : dot->second.terms) std::ranges::for_each(term->operands, shorten);
    if (dot->second.init) shorten(*dot->second.init);
  }
}

// A chain of values of one use each, an unrolled loop say, is followed down to what lies in memory, by functions that call themselves.
void BlockLowering::cut_long_chains() {
  constexpr int longest_chain = 64;
  std::map<ValueKey, int> length;  // of the longest chain to a value that is not in memory
  for (const Node* n : nodes_) {
    const Value v = result(n);
    if (!needed_.contains(n) || n->types.size() != 1 || stored(v) || absorbed_.contains(key_of(v))) continue;
    int longest = 0;
    for (const Value& o : n->operands)
      if (const auto it = length.find(key_of(context_.resolve(o))); it != length.end())
        longest = std::max(longest, it->second);
    if (longest >= longest_chain && ir::is(*n, OpKind::Elementwise))
      need_memory(v);
    else
      length[key_of(v)] = longest + 1;
  }
}

}  // namespace hotloop
