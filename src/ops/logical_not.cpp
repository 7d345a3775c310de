#include "hotloop/ops.h"
#include "ops/rules/arguments.h"
#include "ops/rules/elementwise.h"

namespace hotloop {

Value logical_not(Value x) { return ir::append_op("not", {x}); }

namespace ir {

std::vector<OpDef> ops_logical_not() {
  OpDef def = unary_op("not", "negation of bool; all bits flipped of an integer", ScalarOp::Not, Accepts::Integral);
  def.eval = eval_elementwise([]<std::integral T>(T x) {
    if constexpr (std::is_same_v<T, std::uint8_t>)
      return x == 0;
    else
      return static_cast<T>(~x);
  });
  return {def};
}

}  // namespace ir
}  // namespace hotloop
