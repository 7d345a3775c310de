#include "hotloop/error.h"
#include "hotloop/ops.h"
#include "ops/rules/arguments.h"
#include "ops/rules/elementwise.h"

namespace hotloop {

Value mul(Value a, Value b) { return ir::append_binary("mul", a, b); }

namespace ir {

std::vector<OpDef> ops_mul() {
  OpDef def = binary_op("mul", "a * b; integers wrap", ScalarOp::Mul, Accepts::Numbers);
  def.commutative = true;
  def.eval = eval_elementwise([]<class T>(T a, T b) { return wrapping(a, b, [](auto x, auto y) { return x * y; }); });
  def.jvp = [](const JvpContext& c) {
    const Value left = c.tangents[0].defined() ? mul(c.tangents[0], c.primals[1]) : Value{};
    const Value right = c.tangents[1].defined() ? mul(c.primals[0], c.tangents[1]) : Value{};
    return std::vector<Value>{add_or_either(left, right)};
  };
  def.transpose = [](const TransposeContext& c) {
    const Value a = c.operands[0], b = c.operands[1], ct = c.cotangents[0];
    HOTLOOP_CHECK(a.defined() || b.defined(), "mul is linear in one operand at a time");
    return std::vector<Value>{a.defined() || !ct.defined() ? Value{} : mul(ct, b),
                              b.defined() || !ct.defined() ? Value{} : mul(a, ct)};
  };
  return {def};
}

}  // namespace ir
}  // namespace hotloop
