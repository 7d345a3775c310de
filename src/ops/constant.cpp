#include <cstdint>
#include <string>
#include <utility>

#include "core/convert.h"
#include "core/print_number.h"
#include "hotloop/error.h"
#include "hotloop/ops.h"
#include "ops/rules/arguments.h"
#include "ops/rules/sampling.h"

namespace hotloop {

Value constant(const Array& array) {
  if (!array.defined()) throw UserError("constant", "the array must hold values", "an empty Array{}");
  return ir::append_op("constant", {}, {{"value", array}});
}

Value constant(double value, DType dtype, const Shape& shape) {
  if (!holds(dtype, value))
    throw UserError("constant", "the number must be one of the dtype, " + std::string(name_of(dtype)),
                    print_number(value), "a float dtype, or cast() of a float");
  // One literal, repeated: large constants cost no memory, and folding sees the number.
  return broadcast_to(constant(Array::full(dtype, Shape{}, value)), shape);
}

namespace {

[[noreturn]] void refuse_number(Value x, const std::string& number) {
  throw UserError("like", "a number beside a value must be one of its dtype, " + std::string(name_of(x.dtype())),
                  number + " beside " + x.type().str(), "cast(x, DType::F32) first");
}

}  // namespace

Value like(Value x, double value) {
  ir::require_defined("like", {&x, 1});
  if (!holds(x.dtype(), value)) refuse_number(x, print_number(value));
  return constant(value, x.dtype());
}

namespace detail {

Value like_integer(Value x, std::int64_t value) {
  ir::require_defined("like", {&x, 1});
  // Below it a double is every integer; what is beside floats is rounded as they are.
  constexpr std::int64_t exact = std::int64_t{1} << 53;
  if (is_float(x.dtype()) || (-exact <= value && value <= exact)) return like(x, static_cast<double>(value));
  if (x.dtype() != DType::I64) refuse_number(x, std::to_string(value));
  return constant(Array::scalar(value));
}

Value like_integer(Value x, std::uint64_t value) {
  ir::require_defined("like", {&x, 1});
  if (std::in_range<std::int64_t>(value)) return like_integer(x, static_cast<std::int64_t>(value));
  if (!is_float(x.dtype())) refuse_number(x, std::to_string(value));
  return like(x, static_cast<double>(value));
}

}  // namespace detail

namespace ir {

std::vector<OpDef> ops_constant() {
  OpDef def;
  def.name = "constant";
  def.summary = "a literal array";
  def.kind = OpKind::Constant;
  def.num_operands = 0;
  def.cost_per_element = 0;
  def.infer = [](const InferContext& c) { return std::vector<ValueType>{c.attrs.get<Array>("value").type()}; };
  def.eval = [](const EvalContext& c) { return std::vector<Array>{c.node.attrs.get<Array>("value")}; };
  def.extents = "value";
  def.samples = [](Rng& rng, DType dtype) {
    std::vector<Sample> samples;
    for (const Shape& shape : sample_shapes())
      samples.push_back({{}, {{"value", random_array(rng, dtype, shape)}}, {}});
    samples.push_back({{}, {{"value", random_array(rng, DType::Bool, {3})}}, {}});
    return samples;
  };
  return {def};
}

}  // namespace ir
}  // namespace hotloop
