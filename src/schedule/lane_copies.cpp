#include "schedule/lane_copies.h"

#include <algorithm>
#include <set>

#include "ir/op_def.h"
#include "schedule/map_builder.h"

namespace hotloop {

using ir::OpKind;

namespace {

// A part of it in each iteration of a loop.
bool reads_in_parts(const Node& node, std::size_t operand) {
  if (!ir::is(node, OpKind::Loop)) return false;
  const auto num_carry = static_cast<std::size_t>(node.attrs.integer("num_carry"));
  return operand >= num_carry && operand < num_carry + static_cast<std::size_t>(node.attrs.integer("num_xs"));
}

// All of it, again and again.
bool reads_often(const Node& node, std::size_t operand) {
  if (ir::is(node, OpKind::Loop))
    return operand >= static_cast<std::size_t>(node.attrs.integer("num_carry")) && !reads_in_parts(node, operand);
  return ir::is(node, OpKind::Broadcast) && node.types[0].shape.size() > node.operands[operand].shape().size();
}

// At points that are whole rows.
bool reads_rows(const LoweringContext& context, const Node& node, std::size_t operand) {
  if (ir::is(node, OpKind::Dot) && !is_short_dot(context, node)) return false;
  return computes_rows(node) && context.is_short_row({const_cast<Node*>(&node), 0}) &&
         turns_in_a_copy(context, node.operands[operand]);
}

// How many numbers of a row lie one after the other.
std::int64_t run_of_row(Value v, int rows, const Storage& place) {
  std::vector<std::pair<std::int64_t, std::int64_t>> axes;  // stride, extent
  for (int i = 0; i < v.rank(); ++i)
    if (i != rows && v.shape()[i] > 1) axes.emplace_back(place.strides[static_cast<std::size_t>(i)], v.shape()[i]);
  std::ranges::sort(axes);
  std::int64_t run = 1;
  for (const auto& [stride, extent] : axes) {
    if (stride != run) break;
    run *= extent;
  }
  return run;
}

// What lies in memory where v is a view, or a view of views.
Value seen_value(const LoweringContext& context, Value v) {
  v = context.resolve(v);
  while (is_strided_view(*v.node) && !context.is_bound(v)) v = context.resolve(v.node->operands[0]);
  return v;
}

}  // namespace

kernel::Block copy_rows_innermost(LoweringContext& context, std::span<const Node* const> nodes) {
  constexpr std::int64_t most_bytes = 256 << 10;  // of a tile, which should stay in the second cache
  constexpr std::int64_t least_run = 16;          // fewer are no cheaper to turn than to gather while others compute
  // A view that shows rows of other tiles wants them all.
  if (std::ranges::any_of(nodes, [&](const Node* n) { return is_strided_view(*n) && context.crosses_tiles(*n); }))
    return {};
  const std::set<const Node*> members(nodes.begin(), nodes.end());
  std::vector<BlockTarget> copies;
  std::int64_t bytes = 0;
  for (const Node* n : nodes)
    for (std::size_t i = 0; i < n->operands.size(); ++i) {
      const bool often = reads_often(*n, i), in_parts = reads_in_parts(*n, i);
      if (!often && !in_parts && !reads_rows(context, *n, i)) continue;
      const Value v = seen_value(context, n->operands[i]);
      const int axis = context.axes().axis_in(v, context.tile_class);
      if (members.contains(v.node) || axis < 0 || v.shape()[axis] == 0) continue;
      if (std::ranges::any_of(copies, [&](const BlockTarget& c) { return c.value == v; })) continue;
      const auto place = context.find(v);
      if (!place || context.has_rows_innermost(v, *place)) continue;
      if (in_parts && run_of_row(v, axis, *place) < least_run) continue;
      if (!often && !in_parts && !turns_in_a_copy(context, v)) continue;  // it shows a part of longer rows
      if (bytes + context.bytes_of(v) > most_bytes) continue;
      bytes += context.bytes_of(v);
      copies.push_back({v, context.allocate(v, "rows"), {}, false});
    }
  kernel::Block block = lower_copies(context, copies);
  for (const BlockTarget& copy : copies) context.bind(copy.value, copy.storage);
  return block;
}

bool TurnedRows::is_turned(Value v, const Storage& place) const {
  if (!context_.has_rows_innermost(v, place)) return false;
  // Few numbers a row are read once or twice, which costs what turning them would.
  if (context_.is_short_row(v) && !context_.is_turned_in_squares(v)) return false;
  const auto space = context_.program.buffers[static_cast<std::size_t>(place.buffer)].space;
  return space == kernel::Space::Worker && v.shape()[v.rank() - 1] > 1 &&
         context_.axes().axis_in(v, context_.tile_class) < v.rank() - 1 &&
         context_.bytes_of(v) <= context_.options().target.l2_bytes / 4;
}

void TurnedRows::bind(std::span<const Value> factors, kernel::Block& block) {
  if (!context_.by_lanes()) return;
  for (const Value& factor : factors) {
    const Value v = seen_value(context_, factor);
    if (!context_.is_bound(v)) continue;
    const Storage place = *context_.find(v);
    auto copy = copies_.find(key_of(v));
    if (copy == copies_.end()) {
      if (!is_turned(v, place)) continue;
      Shape shape = v.shape();
      const int axis = context_.axes().axis_in(v, context_.tile_class);
      shape[axis] = context_.extent(v, axis).bound;
      const int buffer = context_.new_buffer("turned", v.dtype(), shape.size(), kernel::Space::Worker);
      copy = copies_.emplace(key_of(v), row_major(buffer, shape)).first;
      const BlockTarget target{v, copy->second, {}, false};
      append(block, lower_copies(context_, {&target, 1}));
    }
    bound_.emplace_back(v, place);
    context_.bind(v, copy->second);
  }
}

void TurnedRows::release() {
  for (const auto& [v, place] : bound_) context_.bind(v, place);
  bound_.clear();
}

}  // namespace hotloop
