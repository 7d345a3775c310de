#include <cmath>

#include "hotloop/ops.h"
#include "ops/rules/arguments.h"
#include "ops/rules/elementwise.h"
#include "ops/rules/sampling.h"

namespace hotloop {

Value floor(Value x) { return ir::append_op("floor", {x}); }
Value ceil(Value x) { return ir::append_op("ceil", {x}); }
Value rint(Value x) { return ir::append_op("rint", {x}); }

namespace ir {
namespace {

// Numbers 0.1 to 0.4 above a multiple of a half: no step of any of the three is near.
std::vector<Sample> between_steps(Rng& rng, DType dtype) {
  std::vector<Sample> samples;
  for (const Shape& shape : sample_shapes()) {
    Array x = random_array(rng, dtype, shape, 0.1, 0.4);
    for (std::int64_t i = 0; i < x.size(); ++i) x.set(i, x.at(i) + 0.5 * static_cast<double>(rng() % 9) - 2);
    samples.push_back({{x}, {}, {}});
  }
  return samples;
}

template <class F> OpDef rounding(const std::string& name, const std::string& summary, ScalarOp scalar, F f) {
  OpDef def = unary_op(name, summary, scalar, Accepts::Floats);
  def.eval = eval_math(f);
  def.samples = between_steps;
  return def;
}

}  // namespace

std::vector<OpDef> ops_round() {
  return {
      rounding("floor", "largest whole number not above x", ScalarOp::Floor, [](double x) { return std::floor(x); }),
      rounding("ceil", "smallest whole number not below x", ScalarOp::Ceil, [](double x) { return std::ceil(x); }),
      rounding("rint", "nearest whole number, ties to even", ScalarOp::Rint,
               [](double x) { return std::nearbyint(x); })};
}

}  // namespace ir
}  // namespace hotloop
