#include <algorithm>
#include <map>

#include "hotloop/error.h"
#include "transforms/axis_flow.h"
#include "transforms/jacobian_plan.h"
#include "transforms/split.h"

namespace hotloop::ir {
namespace {

// Values through which every dependence of the output on the input goes: where, between two nodes, one dependent value alone is
// read later.
std::vector<Value> cuts(const Graph& graph, Value x) {
  std::map<std::pair<const Node*, int>, int> last_read;  // id of the last reader
  for (const auto& node : graph.nodes())
    for (const Value& v : node->operands) last_read[{v.node, v.index}] = node->id;
  const int end = static_cast<int>(graph.nodes().size());
  for (const Value& v : graph.outputs()) last_read[{v.node, v.index}] = end;

  std::vector<bool> depends(graph.nodes().size());
  depends[static_cast<std::size_t>(x.node->id)] = true;
  std::vector<Value> alive{x}, found;
  for (const auto& node : graph.nodes()) {
    if (is(*node, OpKind::Input)) continue;
    const bool here = std::ranges::any_of(node->operands, [&](const Value& v) {
      return static_cast<bool>(depends[static_cast<std::size_t>(v.node->id)]);
    });
    depends[static_cast<std::size_t>(node->id)] = here;
    for (int i = 0; here && i < static_cast<int>(node->types.size()); ++i) alive.push_back({node.get(), i});
    std::erase_if(alive, [&](const Value& v) {
      const auto it = last_read.find({v.node, v.index});
      return it == last_read.end() || it->second <= node->id;
    });
    if (here && alive.size() == 1 && alive[0] != graph.outputs()[0] && is_float(alive[0].dtype()))
      found.push_back(alive[0]);
  }
  return found;
}

// Whether a step is as fine as the whole, which keeps blocks along the paired axes together, and not finer.
bool is_as_fine(const AxisFlow& step, const JacobianStructure& structure) {
  return step.depends && std::ranges::count_if(step.axes, [](int axis) { return axis >= 0; }) ==
                             static_cast<std::ptrdiff_t>(structure.paired.size());
}

// Whether two steps as fine as the whole, x to v and v to y, keep its blocks together in the same order.
bool keeps_blocks(const AxisFlow& to_v, const AxisFlow& to_y, const JacobianStructure& structure) {
  int last = -1;
  for (const auto& [y_axis, x_axis] : structure.paired) {
    const int v_axis = to_v.axes[static_cast<std::size_t>(x_axis)];
    if (v_axis <= last || to_y.axes[static_cast<std::size_t>(v_axis)] != y_axis) return false;
    last = v_axis;
  }
  return true;
}

}  // namespace

std::shared_ptr<JacobianCut> find_cut(const Graph& graph, int input, const JacobianStructure& structure) {
  const Value x = graph.inputs()[static_cast<std::size_t>(input)];
  const std::int64_t blocks = std::max<std::int64_t>(structure.num_blocks(), 1);
  std::int64_t narrowest = std::min(structure.num_rows, structure.num_columns) * blocks;
  std::shared_ptr<JacobianCut> best;
  std::vector<ValueType> types = graph.input_types();
  const auto part = [&](std::span<const Value> wanted, Value from) {
    return trace(
        [&](std::span<const Value> in) {
          ValueMap map(graph);
          for (std::size_t i = 0; i < graph.inputs().size(); ++i) map.set(graph.inputs()[i], in[i]);
          if (from.defined()) map.set(from, in.back());
          return copy_needed(graph, map, wanted);
        },
        types);
  };
  std::vector<Value> candidates = cuts(graph, x);
  std::erase_if(candidates, [&](const Value& v) { return v.shape().size() == 0 || v.shape().size() >= narrowest; });
  if (candidates.empty()) return best;
  std::vector<AxisFlow> from_x(graph.inputs().size()), from_v(graph.inputs().size());
  from_x[static_cast<std::size_t>(input)] = flow_of_input(x.rank());
  const std::vector<AxisFlow> to_v = flow_through(*part(candidates, {}), from_x);
  for (std::size_t i = 0; i < candidates.size(); ++i) {
    const Value v = candidates[i];
    if (v.shape().size() >= narrowest || !is_as_fine(to_v[i], structure)) continue;
    types.push_back(v.type());
    from_v.push_back(flow_of_input(v.rank()));
    const auto after = part({graph.outputs().data(), 1}, v);
    const AxisFlow to_y = flow_through(*after, from_v)[0];
    types.pop_back();
    from_v.pop_back();
    if (!is_as_fine(to_y, structure) || !keeps_blocks(to_v[i], to_y, structure)) continue;
    best = std::make_shared<JacobianCut>();
    best->before = part({&v, 1}, {});
    best->after = after;
    narrowest = v.shape().size();
  }
  return best;
}

}  // namespace hotloop::ir
