#include "hotloop/error.h"
#include "hotloop/ops.h"
#include "ops/rules/arguments.h"
#include "ops/rules/elementwise.h"
#include "ops/rules/sampling.h"

namespace hotloop {

Value div(Value a, Value b) { return ir::append_binary("div", a, b); }

namespace ir {

std::vector<OpDef> ops_div() {
  OpDef def = binary_op("div", "a / b; integers round toward zero, and n / 0 = 0", ScalarOp::Div, Accepts::Numbers, 10);
  def.eval = eval_elementwise([]<class T>(T a, T b) {
    if constexpr (std::is_integral_v<T>) {
      if (b == 0) return T{0};
      // The one quotient that does not fit: lowest / -1 wraps to lowest.
      if (std::is_signed_v<T> && b == static_cast<T>(-1))
        return wrapping(T{0}, a, [](auto x, auto y) { return x - y; });
    }
    return static_cast<T>(a / b);
  });
  def.jvp = [](const JvpContext& c) {
    const Value ta = c.tangents[0], tb = c.tangents[1], b = c.primals[1];
    if (!ta.defined() && !tb.defined()) return std::vector<Value>{{}};
    if (!tb.defined()) return std::vector<Value>{div(ta, b)};
    const Value pull = mul(c.outputs[0], tb);
    return std::vector<Value>{div(ta.defined() ? sub(ta, pull) : neg(pull), b)};
  };
  def.transpose = [](const TransposeContext& c) {
    HOTLOOP_CHECK(c.operands[1].defined(), "div is linear in its numerator alone");
    const bool wanted = !c.operands[0].defined() && c.cotangents[0].defined();
    return std::vector<Value>{wanted ? div(c.cotangents[0], c.operands[1]) : Value{}, {}};
  };
  def.samples = [](Rng& rng, DType dtype) {
    std::vector<Sample> samples;
    for (const Shape& shape : sample_shapes())
      samples.push_back({{random_array(rng, dtype, shape), random_signed(rng, dtype, shape, 0.5, 2)}, {}, {}});
    for (DType d : {DType::I32, DType::U32, DType::I64}) {
      const double low = d == DType::U32 ? 0 : -4;
      samples.push_back({{random_array(rng, d, {9}, low, 20), random_array(rng, d, {9}, low, 4)}, {}, {}});
    }
    return samples;
  };
  return {def};
}

}  // namespace ir
}  // namespace hotloop
