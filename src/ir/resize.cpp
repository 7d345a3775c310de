#include "ir/resize.h"

#include <cstring>
#include <variant>

#include "core/index.h"
#include "ir/rewrite.h"

namespace hotloop::ir {
namespace {

// The leading elements of `array` along each axis.
Array cropped(const Array& array, const Shape& shape) {
  Array out(array.dtype(), shape);
  const std::size_t element = size_of(array.dtype());
  for (std::int64_t i = 0; i < out.size(); ++i) {
    std::int64_t rest = i, source = 0, stride = 1;
    for (int axis = shape.rank() - 1; axis >= 0; --axis) {
      source += rest % shape[axis] * stride;
      rest /= shape[axis];
      stride *= array.shape()[axis];
    }
    std::memcpy(static_cast<std::byte*>(out.raw()) + at(i) * element,
                static_cast<const std::byte*>(array.raw()) + at(source) * element, element);
  }
  return out;
}

}  // namespace

Attrs resized_attrs(const Node& node, const Shape& shape) {
  Attrs attrs = node.attrs;
  const std::string& name = node.op->extents;
  const Shape& from = node.types[0].shape;
  if (name.empty() || shape == from) return attrs;
  if (const auto* elements = std::get_if<Array>(&attrs.entries().at(name))) {
    attrs.set(name, cropped(*elements, shape));
    return attrs;
  }
  std::vector<std::int64_t> extents = attrs.integers(name);
  for (int i = 0; i < shape.rank(); ++i)
    if (shape[i] != from[i]) extents[at(i)] = shape[i];
  attrs.set(name, std::move(extents));
  return attrs;
}

std::shared_ptr<Graph> resized(const Graph& graph, const std::function<Shape(Value)>& shape_of) {
  auto result = std::make_shared<Graph>(graph.name());
  ValueMap map(graph);
  for (const Value& v : graph.inputs()) map.set(v, result->add_input({v.dtype(), shape_of(v)}));
  for (const auto& node : graph.nodes()) {
    if (is(*node, OpKind::Input)) continue;
    std::vector<Value> operands;
    for (const Value& v : node->operands) operands.push_back(map(v));
    std::vector<std::shared_ptr<const Graph>> regions;
    for (const auto& region : node->regions) regions.push_back(resized(*region, shape_of));
    Node* copy = result->append(*node->op, std::move(operands), resized_attrs(*node, shape_of(node->result())),
                                std::move(regions), node->generation);
    for (int i = 0; i < static_cast<int>(copy->types.size()); ++i) map.set(node->result(i), copy->result(i));
  }
  std::vector<Value> outputs;
  for (const Value& v : graph.outputs()) outputs.push_back(map(v));
  result->set_outputs(std::move(outputs));
  return result;
}

}  // namespace hotloop::ir
