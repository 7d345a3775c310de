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

// Whether two steps, x to v and v to y, keep blocks together as the whole does, in the same order.
bool keeps_blocks(const AxisFlow& to_v, const AxisFlow& to_y, const JacobianStructure& structure) {
  std::vector<std::pair<int, int>> through;  // (axis of v, axis of x)
  int last = -1;
  for (const auto& [y_axis, x_axis] : structure.paired) {
    const int v_axis = to_v.axes[static_cast<std::size_t>(x_axis)];
    if (v_axis <= last || to_y.axes[static_cast<std::size_t>(v_axis)] != y_axis) return false;
    last = v_axis;
  }
  // No step may be finer than the whole.
  const auto aligned = [](const AxisFlow& flow) {
    return static_cast<std::size_t>(std::ranges::count_if(flow.axes, [](int axis) { return axis >= 0; }));
  };
  return aligned(to_v) == structure.paired.size() && aligned(to_y) == structure.paired.size();
}

}  // namespace

std::shared_ptr<JacobianCut> find_cut(const Graph& graph, int input, const JacobianStructure& structure) {
  const Value x = graph.inputs()[static_cast<std::size_t>(input)];
  const std::int64_t blocks = std::max<std::int64_t>(structure.num_blocks(), 1);
  std::int64_t narrowest = std::min(structure.num_rows, structure.num_columns) * blocks;
  std::shared_ptr<JacobianCut> best;
  for (const Value& v : cuts(graph, x)) {
    if (v.shape().size() == 0 || v.shape().size() >= narrowest) continue;
    const auto cut = std::make_shared<JacobianCut>();
    std::vector<ValueType> types = graph.input_types();
    const auto part = [&](Value wanted, bool from_v) {
      return trace(
          [&](std::span<const Value> in) {
            ValueMap map(graph);
            for (std::size_t i = 0; i < graph.inputs().size(); ++i) map.set(graph.inputs()[i], in[i]);
            if (from_v) map.set(v, in.back());
            return copy_needed(graph, map, {&wanted, 1});
          },
          types);
    };
    cut->before = part(v, false);
    types.push_back(v.type());
    cut->after = part(graph.outputs()[0], true);
    std::vector<AxisFlow> flows(graph.inputs().size());
    flows[static_cast<std::size_t>(input)] = flow_of_input(x.rank());
    const AxisFlow to_v = flow_through(*cut->before, flows)[0];
    flows[static_cast<std::size_t>(input)] = {};
    flows.push_back(flow_of_input(v.rank()));
    const AxisFlow to_y = flow_through(*cut->after, flows)[0];
    if (!to_v.depends || !to_y.depends || !keeps_blocks(to_v, to_y, structure)) continue;
    narrowest = v.shape().size();
    best = cut;
  }
  return best;
}

}  // namespace hotloop::ir
