#include "runtime/row_specializer.h"

#include <cstring>
#include <map>
#include <utility>

#include "hotloop/error.h"
#include "hotloop/fixed_rows.h"
#include "ir/op_def.h"
#include "schedule/desugar.h"

namespace hotloop::runtime {
namespace {

constexpr const char* remedy = "compile for a fixed batch";

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
    std::memcpy(static_cast<std::byte*>(out.raw()) + static_cast<std::size_t>(i) * element,
                static_cast<const std::byte*>(array.raw()) + static_cast<std::size_t>(source) * element, element);
  }
  return out;
}

}  // namespace

RowSpecializer::RowSpecializer(const Graph& graph, const std::vector<int>& batch_axes)
    : graph_(desugar(graph)), axes_(*graph_, batch_axes) {
  for (std::size_t i = 0; i < batch_axes.size(); ++i) {
    if (batch_axes[i] < 0) continue;
    const Value input = graph_->inputs()[i];
    if (batch_axes[i] != 0)
      throw UserError("compile", "with a variable number of rows the batch must be the first axis",
                      "axis " + std::to_string(batch_axes[i]) + " of input " + std::to_string(i),
                      "transpose inside the function");
    class_ = axes_.axis_class(input, 0);
  }
  for (const auto& node : graph_->nodes())
    if (class_ >= 0 && axes_.couples(*node, class_))
      throw NeedsFixedRows(
          "compile",
          "with a variable number of rows every operation must treat the rows of the batch alone or sum "
          "over them",
          "operation '" + node->op->name + "' of type " + node->types[0].str(), remedy);
  for (const Value& v : graph_->outputs()) {
    const int axis = class_ < 0 ? -1 : axes_.axis_in(v, class_);
    if (axis > 0)
      throw UserError("compile", "with a variable number of rows the batch must be the first axis of every output",
                      "axis " + std::to_string(axis) + " of an output of type " + v.type().str(),
                      "transpose inside the function");
    output_axes_.push_back(axis);
  }
}

void RowSpecializer::resize(Value v, std::vector<std::int64_t>& extents, std::int64_t rows) const {
  for (int axis = 0; axis < v.rank(); ++axis)
    if (axes_.axis_class(v, axis) == class_) extents[static_cast<std::size_t>(axis)] = rows;
}

Shape RowSpecializer::resized(Value v, std::int64_t rows) const {
  std::vector<std::int64_t> extents = v.shape().vec();
  resize(v, extents, rows);
  return Shape(extents);
}

std::shared_ptr<const Graph> RowSpecializer::with_rows(std::int64_t rows) const { return specialize(*graph_, rows); }

std::shared_ptr<const Graph> RowSpecializer::specialize(const Graph& graph, std::int64_t rows) const {
  using ir::OpKind;
  auto result = std::make_shared<Graph>(graph.name());
  std::map<std::pair<const Node*, int>, Value> map;
  for (const Value& v : graph.inputs()) map[{v.node, v.index}] = result->add_input({v.dtype(), resized(v, rows)});
  for (const auto& node : graph.nodes()) {
    if (ir::is(*node, OpKind::Input)) continue;
    const Value out = node->result();
    Attrs attrs = node->attrs;
    const auto resize_attr = [&](const char* name) {
      std::vector<std::int64_t> extents = attrs.integers(name);
      resize(out, extents, rows);
      attrs.set(name, extents);
    };
    // The attributes that hold extents. An axis of the batch is never cut, so a slice of it ends where it ends.
    switch (node->op->kind) {
      case OpKind::Iota:
      case OpKind::RandomBits:
      case OpKind::Reshape:
      case OpKind::Broadcast: resize_attr("shape"); break;
      case OpKind::Slice: resize_attr("stop"); break;
      case OpKind::DynamicSlice: resize_attr("sizes"); break;
      case OpKind::Constant: attrs.set("value", cropped(attrs.get<Array>("value"), resized(out, rows))); break;
      default: break;
    }
    std::vector<Value> operands;
    for (const Value& v : node->operands) operands.push_back(map.at({v.node, v.index}));
    std::vector<std::shared_ptr<const Graph>> regions;
    for (const auto& region : node->regions) regions.push_back(specialize(*region, rows));
    Node* copy = result->append(*node->op, std::move(operands), std::move(attrs), std::move(regions), node->generation);
    for (int i = 0; i < static_cast<int>(copy->types.size()); ++i) map[{node.get(), i}] = copy->result(i);
  }
  std::vector<Value> outputs;
  for (const Value& v : graph.outputs()) outputs.push_back(map.at({v.node, v.index}));
  result->set_outputs(std::move(outputs));
  return result;
}

}  // namespace hotloop::runtime
