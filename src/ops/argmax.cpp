#include "core/convert.h"
#include "hotloop/error.h"
#include "hotloop/ops.h"
#include "ops/rules/arguments.h"
#include "ops/rules/axes.h"
#include "ops/rules/sampling.h"
#include "ops/rules/walk.h"

namespace hotloop {
namespace {

Value place_of(const char* op, Value x, int axis) {
  ir::require_defined(op, {&x, 1});
  return ir::append_op(op, {x}, {{"axis", ir::checked_axis(op, axis, x.type())}});
}

}  // namespace

Value argmax(Value x, int axis) { return place_of("argmax", x, axis); }
Value argmin(Value x, int axis) { return place_of("argmin", x, axis); }

namespace ir {
namespace {

std::vector<Array> eval(const EvalContext& c, bool smallest) {
  const Array& x = c.operands[0];
  const int axis = static_cast<int>(c.node.attrs.integer("axis"));
  const auto strides = strides_of(x.shape());
  const std::int64_t step = strides[static_cast<std::size_t>(axis)];
  Array out(DType::I32, c.node.types[0].shape);
  std::int64_t i = 0;
  visit_dtype(x.dtype(), [&](auto tag) {
    const auto* element = static_cast<const decltype(tag)*>(x.raw());
    for_each_index(out.shape(), [&](Index index) {
      index.insert(index.begin() + axis, 0);
      const std::int64_t base = flat_index(index, strides);
      std::int32_t best = 0;
      for (std::int32_t k = 1; k < x.shape()[axis]; ++k) {
        const auto candidate = element[base + k * step], leader = element[base + best * step];
        // False for a NaN that leads; true for the first NaN, which is neither above nor below.
        if (leader == leader && !(smallest ? candidate >= leader : candidate <= leader)) best = k;
      }
      out.data<std::int32_t>()[static_cast<std::size_t>(i++)] = best;
    });
  });
  return {out};
}

OpDef place_of_extremum(const std::string& name, const std::string& summary, bool smallest,
                        const std::function<Value(Value, int)>& op) {
  OpDef def;
  def.name = name;
  def.summary = summary;
  def.kind = OpKind::ArgMax;
  def.num_operands = 1;
  def.infer = [name](const InferContext& c) {
    const int axis = static_cast<int>(checked_axis(name, c.attrs.integer("axis"), c.operands[0]));
    if (c.operands[0].shape[axis] == 0)
      throw UserError(name, "the axis must not be empty",
                      "axis " + std::to_string(axis) + " of " + c.operands[0].str());
    if (!holds(DType::I32, c.operands[0].shape[axis]))
      throw UserError(name, "the axis must have at most 2^31 - 1 elements, since the index is i32",
                      "axis " + std::to_string(axis) + " of " + c.operands[0].str(), "reshape() to shorter axes");
    return std::vector<ValueType>{{DType::I32, c.operands[0].shape.without(axis)}};
  };
  def.eval = [smallest](const EvalContext& c) { return eval(c, smallest); };
  def.axes = [](const Node& node) { return axes_without(node, {node.attrs.integer("axis")}, AxisUse::Mixed); };
  def.batch = [op](const BatchContext& c) {
    return std::vector<Batched>{{op(c.operands[0].value, static_cast<int>(c.node.attrs.integer("axis")) + 1), true}};
  };
  def.flops = [](const Node& node) { return static_cast<double>(node.operands[0].shape().size()); };
  def.samples = [](Rng& rng, DType dtype) {
    const auto sample = [&](DType d, const Shape& shape, std::int64_t axis) {
      return Sample{{random_array(rng, d, shape, d == DType::U32 ? 0 : -3, 3)}, {{"axis", axis}}, {}};
    };
    return std::vector<Sample>{sample(dtype, {1}, 0),       sample(dtype, {7}, 0),         sample(dtype, {3, 5}, 0),
                               sample(dtype, {2, 1, 5}, 2), sample(DType::I32, {3, 9}, 1), sample(DType::U32, {9}, 0),
                               sample(DType::I64, {9}, 0),  sample(DType::Bool, {5}, 0)};
  };
  return def;
}

}  // namespace

std::vector<OpDef> ops_argmax() {
  return {place_of_extremum(
              "argmax",
              "index of the largest element along an axis, as i32; the first of equals; a NaN counts as the largest",
              false, argmax),
          place_of_extremum(
              "argmin",
              "index of the smallest element along an axis, as i32; the first of equals; a NaN counts as the smallest",
              true, argmin)};
}

}  // namespace ir
}  // namespace hotloop
