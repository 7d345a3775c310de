#include "transforms/final_carries.h"

#include <algorithm>
#include <numeric>
#include <optional>

#include "hotloop/ops.h"
#include "ir/op_def.h"
#include "ir/rewrite.h"

namespace hotloop::ir {
namespace {

// A slice of a loop's ys at the last step only, seen through a transpose.
struct LastStep {
  Value carry;                            // result of the loop
  std::vector<std::int64_t> permutation;  // of the transpose between; the identity without one
};

std::optional<LastStep> match(const Node& slice) {
  if (!is(slice, OpKind::Slice)) return std::nullopt;
  Value stacked = slice.operands[0];
  std::vector<std::int64_t> permutation(static_cast<std::size_t>(stacked.rank()));
  std::iota(permutation.begin(), permutation.end(), 0);
  if (is(*stacked.node, OpKind::Transpose)) {
    permutation = stacked.node->attrs.integers("permutation");
    stacked = stacked.node->operands[0];
  }
  if (!is(*stacked.node, OpKind::Loop)) return std::nullopt;
  const LoopView loop(*stacked.node);
  if (loop.until() != nullptr || loop.has_trip() || loop.length() == 0) return std::nullopt;
  const int y = stacked.index - loop.num_carry();
  if (y < 0 || y >= loop.num_ys()) return std::nullopt;
  const auto axis = static_cast<std::size_t>(std::ranges::find(permutation, 0) - permutation.begin());
  const std::int64_t last = loop.reverse() ? 0 : loop.length() - 1;
  if (slice.attrs.integers("start")[axis] != last || slice.types[0].shape[static_cast<int>(axis)] != 1)
    return std::nullopt;
  for (int c = 0; c < loop.num_carry(); ++c)
    if (loop.carry_out(c) == loop.y_out(y)) return LastStep{loop.carry_result(c), permutation};
  return std::nullopt;
}

}  // namespace

std::shared_ptr<Graph> use_final_carries(const Graph& graph) {
  bool found = false;
  for (const auto& node : graph.nodes()) found = found || match(*node).has_value();
  if (!found) return nullptr;
  Rebuild rebuild(graph);
  TraceScope scope(rebuild.to());
  for (const auto& node : graph.nodes()) {
    if (is(*node, OpKind::Input)) continue;
    const auto last = match(*node);
    if (!last) {
      rebuild.copy(*node);
      continue;
    }
    const Value step = transpose(expand_dims(rebuild(last->carry), 0), last->permutation);
    std::vector<std::int64_t> start = node->attrs.integers("start"), stop = node->attrs.integers("stop");
    const auto axis = static_cast<std::size_t>(std::ranges::find(last->permutation, 0) - last->permutation.begin());
    start[axis] = 0;
    stop[axis] = 1;
    rebuild.map().set({node.get(), 0}, slice(step, start, stop, node->attrs.integers("step")));
  }
  return rebuild.finish();
}

}  // namespace hotloop::ir
