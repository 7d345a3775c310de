#include <cmath>

#include "hotloop/ops.h"
#include "ops/rules/arguments.h"
#include "ops/rules/elementwise.h"
#include "ops/rules/sampling.h"

namespace hotloop {

Value log(Value x) { return ir::append_op("log", {x}); }
Value log1p(Value x) { return ir::append_op("log1p", {x}); }

namespace ir {

std::vector<OpDef> ops_log() {
  OpDef log_def = unary_op("log", "natural logarithm; -inf at 0, NaN below", ScalarOp::Log, Accepts::Floats, 20);
  log_def.eval = eval_math([](double x) { return std::log(x); });
  log_def.jvp = [](const JvpContext& c) {
    return std::vector<Value>{c.tangents[0].defined() ? div(c.tangents[0], c.primals[0]) : Value{}};
  };
  log_def.samples = [](Rng& rng, DType dtype) { return uniform_samples(rng, dtype, 1, 0.3, 3); };

  OpDef log1p_def = unary_op("log1p", "log(1 + x), accurate near 0", ScalarOp::Log1p, Accepts::Floats, 25);
  log1p_def.eval = eval_math([](double x) { return std::log1p(x); });
  log1p_def.jvp = [](const JvpContext& c) {
    return std::vector<Value>{c.tangents[0].defined() ? div(c.tangents[0], c.primals[0] + 1.0) : Value{}};
  };
  log1p_def.samples = [](Rng& rng, DType dtype) { return uniform_samples(rng, dtype, 1, -0.6, 2); };
  return {log_def, log1p_def};
}

}  // namespace ir
}  // namespace hotloop
