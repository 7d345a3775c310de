#include <cmath>

#include "core/denormals.h"
#include "hotloop/ops.h"
#include "ops/rules/arguments.h"
#include "ops/rules/elementwise.h"
#include "ops/rules/sampling.h"

namespace hotloop {

Value pow(Value a, Value b) { return ir::append_binary("pow", a, b); }

namespace ir {
namespace {

std::vector<Value> jvp(const JvpContext& c) {
  const Value a = c.primals[0], b = c.primals[1], zero = like(a, 0), one = like(a, 1);
  Value by_base, by_exponent;
  if (c.tangents[0].defined()) {
    // b a^(b-1) is 0 at b = 0, though a^-1 is infinite at a = 0 (and a NaN to the power 0 is 1). Elsewhere the formula is 0 there by itself, and
    // has the derivative by b.
    const Value constant = bit_and(equal(b, zero), logical_not(greater(abs(a), zero)));
    const Value slope = select(constant, zero, b * pow(a, select(constant, one, b - 1.0)));
    by_base = c.tangents[0] * slope;
  }
  if (c.tangents[1].defined()) {
    // a^b log(a) tends to 0 with a, though the logarithm does not.
    by_exponent = c.tangents[1] * (c.outputs[0] * log(select(equal(a, zero), one, a)));
  }
  return {add_or_either(by_base, by_exponent)};
}

}  // namespace

std::vector<OpDef> ops_pow() {
  OpDef def =
      binary_op("pow", "a to the power b; NaN for a negative a and a fractional b", ScalarOp::Pow, Accepts::Floats, 40);
  def.eval = eval_elementwise([]<std::floating_point T>(T a, T b) {
    return static_cast<T>(std::pow(as_operand(static_cast<double>(a)), as_operand(static_cast<double>(b))));
  });
  def.jvp = jvp;
  def.samples = [](Rng& rng, DType dtype) {
    std::vector<Sample> samples;
    for (const Shape& shape : sample_shapes())
      samples.push_back({{random_array(rng, dtype, shape, 0.3, 2), random_array(rng, dtype, shape)}, {}, {}});
    return samples;
  };
  return {def};
}

}  // namespace ir
}  // namespace hotloop
