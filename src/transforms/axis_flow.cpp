#include "transforms/axis_flow.h"

#include <map>

#include "ir/axis_links.h"

namespace hotloop::ir {
namespace {

// A flow whose every aligned axis is mapped.
template <class F> AxisFlow mapped(const AxisFlow& flow, F&& f) {
  AxisFlow result = flow;
  for (int& axis : result.axes) axis = f(axis);
  return result;
}

class Flows {
 public:
  explicit Flows(int depth) : depth_(depth) {}

  std::vector<AxisFlow> run(const Graph& graph, std::span<const AxisFlow> inputs) {
    std::map<std::pair<const Node*, int>, AxisFlow> flows;
    for (std::size_t i = 0; i < inputs.size(); ++i)
      flows[{graph.inputs()[i].node, 0}] = is_float(graph.inputs()[i].dtype()) ? inputs[i] : AxisFlow{};
    for (const auto& node : graph.nodes()) {
      if (is(*node, OpKind::Input)) continue;
      std::vector<AxisFlow> operands;
      for (const Value& v : node->operands) operands.push_back(flows[{v.node, v.index}]);
      std::vector<AxisFlow> results;
      if (is(*node, OpKind::Loop))
        results = loop(LoopView(*node), operands);
      else if (is(*node, OpKind::Call))
        results = call(*node, operands);
      else
        results = {flow_through(*node, operands)};
      for (std::size_t i = 0; i < results.size(); ++i) flows[{node.get(), static_cast<int>(i)}] = std::move(results[i]);
    }
    std::vector<AxisFlow> outputs;
    for (const Value& v : graph.outputs()) outputs.push_back(flows[{v.node, v.index}]);
    return outputs;
  }

 private:
  std::vector<AxisFlow> loop(const LoopView& view, std::span<const AxisFlow> operands) {
    const auto nc = static_cast<std::size_t>(view.num_carry()), nx = static_cast<std::size_t>(view.num_xs());
    std::vector<AxisFlow> inputs(operands.begin(),
                                 operands.begin() + static_cast<std::ptrdiff_t>(view.body().inputs().size()));
    for (std::size_t i = nc; i < nc + nx; ++i) inputs[i] = flow_of_element(inputs[i], depth_);
    // Carries to a fixpoint; a join can rise twice an axis, so this ends.
    for (;;) {
      std::vector<AxisFlow> outputs = Flows(depth_ + 1).run(view.body(), inputs);
      bool changed = false;
      for (std::size_t i = 0; i < nc; ++i) {
        const AxisFlow next = join(inputs[i], flow_of_carry(outputs[i], depth_));
        changed = changed || !(next == inputs[i]);
        inputs[i] = next;
      }
      if (changed) continue;
      for (std::size_t i = 0; i < nc; ++i) outputs[i] = inputs[i];
      for (std::size_t i = nc; i < outputs.size(); ++i) outputs[i] = flow_of_stack(outputs[i], depth_);
      outputs.emplace_back();  // the count
      return outputs;
    }
  }

  std::vector<AxisFlow> call(const Node& node, std::span<const AxisFlow> operands) {
    if (is_plain_call(node)) return run(*node.regions[0], operands);
    // A derivative rule of the user's: nothing is known of it.
    AxisFlow all;
    for (const AxisFlow& flow : operands)
      if (flow.depends) all = {true, std::vector<int>(flow.axes.size(), AxisFlow::mixed)};
    std::vector<AxisFlow> results;
    for (const ValueType& type : node.types) results.push_back(is_float(type.dtype) ? all : AxisFlow{});
    return results;
  }

  int depth_;
};

}  // namespace

AxisFlow flow_of_input(int rank) {
  AxisFlow flow{true, {}};
  for (int i = 0; i < rank; ++i) flow.axes.push_back(i);
  return flow;
}

AxisFlow join(const AxisFlow& a, const AxisFlow& b) {
  if (!a.depends) return b;
  if (!b.depends) return a;
  AxisFlow result = a;
  for (std::size_t i = 0; i < a.axes.size(); ++i)
    if (a.axes[i] != b.axes[i]) result.axes[i] = AxisFlow::mixed;
  return result;
}

AxisFlow flow_through(const Node& node, std::span<const AxisFlow> operands) {
  if (!is_float(node.types[0].dtype) || !node.op->jvp) return {};
  AxisFlow result;
  const std::vector<AxisLink> links = axis_links(node);
  for (std::size_t k = 0; k < operands.size(); ++k)
    if (operands[k].depends)
      result = join(result, mapped(operands[k], [&](int axis) {
                      return axis >= 0 ? result_axis(links, static_cast<int>(k), axis) : axis;
                    }));
  return result;
}

std::vector<AxisFlow> flow_through(const Graph& graph, std::span<const AxisFlow> inputs, int depth) {
  return Flows(depth).run(graph, inputs);
}

AxisFlow flow_of_element(const AxisFlow& stacked, int depth) {
  return mapped(stacked, [&](int axis) { return axis > 0 ? axis - 1 : axis == 0 ? AxisFlow::step - depth : axis; });
}

AxisFlow flow_of_stack(const AxisFlow& element, int depth) {
  return mapped(element, [&](int axis) { return axis >= 0 ? axis + 1 : axis == AxisFlow::step - depth ? 0 : axis; });
}

AxisFlow flow_of_carry(const AxisFlow& carry, int depth) {
  return mapped(carry, [&](int axis) { return axis == AxisFlow::step - depth ? AxisFlow::mixed : axis; });
}

}  // namespace hotloop::ir
