#include "hotloop/ops.h"
#include "ops/rules/arguments.h"
#include "ops/rules/elementwise.h"

namespace hotloop {

Value bit_and(Value a, Value b) { return ir::append_binary("and", a, b); }
Value bit_or(Value a, Value b) { return ir::append_binary("or", a, b); }
Value bit_xor(Value a, Value b) { return ir::append_binary("xor", a, b); }

namespace ir {

std::vector<OpDef> ops_bitwise() {
  const auto bitwise = [](const std::string& name, const std::string& summary, ScalarOp scalar, auto f) {
    OpDef def = binary_op(name, summary, scalar, Accepts::Integral);
    def.commutative = true;
    def.eval = eval_elementwise(f);
    return def;
  };
  return {bitwise("and", "a and b, bit by bit", ScalarOp::And,
                  []<std::integral T>(T a, T b) { return static_cast<T>(a & b); }),
          bitwise("or", "a or b, bit by bit", ScalarOp::Or,
                  []<std::integral T>(T a, T b) { return static_cast<T>(a | b); }),
          bitwise("xor", "a or else b, bit by bit", ScalarOp::Xor,
                  []<std::integral T>(T a, T b) { return static_cast<T>(a ^ b); })};
}

}  // namespace ir
}  // namespace hotloop
