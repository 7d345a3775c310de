#include "hotloop/ops.h"
#include "ops/rules/arguments.h"
#include "ops/rules/elementwise.h"

namespace hotloop {

Value add(Value a, Value b) { return ir::append_binary("add", a, b); }

namespace ir {

std::vector<OpDef> ops_add() {
  OpDef def = binary_op("add", "a + b; integers wrap", ScalarOp::Add, Accepts::Numbers);
  def.commutative = true;
  def.eval = eval_elementwise([]<class T>(T a, T b) { return wrapping(a, b, [](auto x, auto y) { return x + y; }); });
  def.jvp = [](const JvpContext& c) { return std::vector<Value>{add_or_either(c.tangents[0], c.tangents[1])}; };
  def.transpose = [](const TransposeContext& c) {
    const Value ct = c.cotangents[0];
    return std::vector<Value>{c.operands[0].defined() ? Value{} : ct, c.operands[1].defined() ? Value{} : ct};
  };
  return {def};
}

}  // namespace ir
}  // namespace hotloop
