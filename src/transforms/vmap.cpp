#include "hotloop/error.h"
#include "hotloop/transforms.h"
#include "ir/interpreters.h"
#include "ir/region.h"
#include "ops/rules/batching.h"

namespace hotloop {

Function vmap(const Function& fn, std::vector<int> in_axes) {
  return [fn, in_axes](std::span<const Value> inputs) {
    if (inputs.size() != in_axes.size())
      throw UserError("vmap", "in_axes must name an axis (or -1) for each input",
                      std::to_string(in_axes.size()) + " axes, " + std::to_string(inputs.size()) + " inputs",
                      "-1 for an input that all elements share");
    std::int64_t size = -1;
    std::vector<ValueType> types;
    std::vector<ir::Batched> arguments;
    for (std::size_t i = 0; i < inputs.size(); ++i) {
      const ValueType& type = inputs[i].type();
      const int axis = in_axes[i];
      if (axis < -1)
        throw UserError("vmap", "a batch axis must be counted from the first, or be -1",
                        "axis " + std::to_string(axis) + " of input " + std::to_string(i) + " = " + type.str(),
                        type.shape.rank() + axis >= 0 ? std::to_string(type.shape.rank() + axis)
                                                      : "-1 for an input that all elements share");
      if (axis < 0) {
        types.push_back(type);
        arguments.push_back({inputs[i], false});
        continue;
      }
      const std::string name = "input " + std::to_string(i) + " = " + type.str();
      if (axis >= type.shape.rank())
        throw UserError("vmap", "the batch axis must be an axis of the input",
                        "axis " + std::to_string(axis) + " of " + name, "-1 for an input that all elements share");
      if (size >= 0 && type.shape[axis] != size)
        throw UserError("vmap", "batch axes must agree in extent", std::to_string(size) + " before, and " + name);
      size = type.shape[axis];
      types.push_back({type.dtype, type.shape.without(axis)});
      arguments.push_back({ir::axis_to_front(inputs[i], axis), true});
    }
    if (size < 0)
      throw UserError("vmap", "at least one input must have a batch axis", "-1 for every input",
                      "0 for an input whose first axis is mapped");
    const ir::Region region = ir::trace_region("vmap", fn, types);
    for (const Value& v : region.captures) arguments.push_back({v, false});
    std::vector<Value> outputs;
    for (const ir::Batched& b : ir::push_batch(*region.graph, arguments, size))
      outputs.push_back(ir::materialize_batch(b, size));
    return outputs;
  };
}

std::shared_ptr<Graph> vmap_graph(const Graph& graph, const std::vector<bool>& batched, std::int64_t size) {
  HOTLOOP_CHECK(batched.size() == graph.inputs().size(), "vmap_graph: one flag an input");
  std::vector<ValueType> types;
  for (std::size_t i = 0; i < batched.size(); ++i) {
    ValueType type = graph.inputs()[i].type();
    if (batched[i]) type.shape = type.shape.with_inserted(0, size);
    types.push_back(type);
  }
  return trace(
      [&](std::span<const Value> inputs) {
        std::vector<ir::Batched> arguments;
        for (std::size_t i = 0; i < inputs.size(); ++i) arguments.push_back({inputs[i], batched[i]});
        std::vector<Value> outputs;
        for (const ir::Batched& b : ir::push_batch(graph, arguments, size))
          outputs.push_back(ir::materialize_batch(b, size));
        return outputs;
      },
      types, graph.name());
}

}  // namespace hotloop
