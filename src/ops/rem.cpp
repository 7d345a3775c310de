#include <cmath>

#include "core/denormals.h"
#include "hotloop/error.h"
#include "hotloop/ops.h"
#include "ops/rules/arguments.h"
#include "ops/rules/elementwise.h"
#include "ops/rules/sampling.h"

namespace hotloop {

Value rem(Value a, Value b) { return ir::append_binary("rem", a, b); }

namespace ir {
namespace {

std::vector<Value> jvp(const JvpContext& c) {
  // rem = a - trunc(a / b) b, whose quotient is constant between its steps; (a - rem) / b is that whole number.
  if (!c.tangents[1].defined()) return {c.tangents[0]};
  const Value quotient = rint((c.primals[0] - c.outputs[0]) / c.primals[1]);
  const Value pull = neg(quotient * c.tangents[1]);
  return {add_or_either(c.tangents[0], pull)};
}

}  // namespace

std::vector<OpDef> ops_rem() {
  OpDef def = binary_op("rem", "remainder of a / b with the sign of a; a itself for integers when b is 0",
                        ScalarOp::Rem, Accepts::Numbers, 10);
  def.eval = eval_elementwise([]<class T>(T a, T b) {
    if constexpr (std::is_floating_point_v<T>)
      return as_operand(std::fmod(as_operand(a), as_operand(b)));
    else if (b == 0)
      return a;
    // Dividing by -1 leaves nothing, and would trap on the lowest number.
    else
      return std::is_signed_v<T> && b == static_cast<T>(-1) ? T{0} : static_cast<T>(a % b);
  });
  def.jvp = jvp;
  def.samples = [](Rng& rng, DType dtype) {
    std::vector<Sample> samples;
    for (const Shape& shape : sample_shapes()) {
      // a = b * (k + f) with f away from 0 and 1: clear of the steps.
      const Array b = random_signed(rng, dtype, shape, 0.5, 2);
      Array a = random_signed(rng, dtype, shape, 0.2, 0.8);
      for (std::int64_t i = 0; i < a.size(); ++i) {
        const double f = a.at(i);
        a.set(i, b.at(i) * (f + (f < 0 ? -1 : 1) * static_cast<double>(rng() % 4)));
      }
      samples.push_back({{a, b}, {}, {}});
    }
    for (DType d : {DType::I32, DType::U32, DType::I64}) {
      const double low = d == DType::U32 ? 0 : -20;
      samples.push_back({{random_array(rng, d, {9}, low, 20), random_array(rng, d, {9}, low / 5, 4)}, {}, {}});
    }
    return samples;
  };
  return {def};
}

}  // namespace ir
}  // namespace hotloop
