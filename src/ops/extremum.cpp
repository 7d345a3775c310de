#include <cmath>

#include "hotloop/ops.h"
#include "ops/rules/arguments.h"
#include "ops/rules/elementwise.h"
#include "ops/rules/sampling.h"

namespace hotloop {

Value maximum(Value a, Value b) { return ir::append_binary("max", a, b); }
Value minimum(Value a, Value b) { return ir::append_binary("min", a, b); }

namespace ir {
namespace {

// The winner's tangent; half of each at a tie.
Value share(Value tangent, Value own, Value other, Value winner) {
  if (!tangent.defined()) return {};
  const Value won = select(equal(own, winner), like(own, 1), like(own, 0));
  return mul(tangent, select(equal(own, other), like(own, 0.5), won));
}

OpDef extremum(const std::string& name, const std::string& summary, ScalarOp scalar) {
  OpDef def = binary_op(name, summary, scalar, Accepts::Any);
  def.commutative = true;
  def.jvp = [](const JvpContext& c) {
    const Value a = c.primals[0], b = c.primals[1], out = c.outputs[0];
    return std::vector<Value>{add_or_either(share(c.tangents[0], a, b, out), share(c.tangents[1], b, a, out))};
  };
  def.samples = [](Rng& rng, DType dtype) {
    std::vector<Sample> samples;
    for (const Shape& shape : sample_shapes()) {
      const Array a = random_array(rng, dtype, shape);
      Array b = random_signed(rng, dtype, shape, 0.1, 1);  // their difference: no ties
      for (std::int64_t i = 0; i < b.size(); ++i) b.set(i, b.at(i) + a.at(i));
      samples.push_back({{a, b}, {}, {}});
    }
    for (DType d : {DType::I32, DType::U32, DType::I64, DType::Bool}) {
      const double low = d == DType::U32 ? 0 : -4;
      samples.push_back({{random_array(rng, d, {9}, low, 4), random_array(rng, d, {9}, low, 4)}, {}, {}});
    }
    return samples;
  };
  return def;
}

template <class T> bool is_nan(T x) {
  if constexpr (std::is_floating_point_v<T>)
    return std::isnan(x);
  else
    return false;
}

}  // namespace

std::vector<OpDef> ops_extremum() {
  OpDef max = extremum("max", "the larger of a and b; NaN if either is", ScalarOp::Max);
  max.eval = eval_elementwise([]<class T>(T a, T b) { return is_nan(a) ? a : is_nan(b) ? b : a < b ? b : a; });
  OpDef min = extremum("min", "the smaller of a and b; NaN if either is", ScalarOp::Min);
  min.eval = eval_elementwise([]<class T>(T a, T b) { return is_nan(a) ? a : is_nan(b) ? b : b < a ? b : a; });
  return {max, min};
}

}  // namespace ir
}  // namespace hotloop
