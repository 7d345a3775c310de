#include "hotloop/ops.h"
#include "ops/rules/elementwise.h"

namespace hotloop {

Value equal(Value a, Value b) { return ir::append_binary("eq", a, b); }
Value not_equal(Value a, Value b) { return ir::append_binary("ne", a, b); }
Value less(Value a, Value b) { return ir::append_binary("lt", a, b); }
Value less_equal(Value a, Value b) { return ir::append_binary("le", a, b); }
Value greater(Value a, Value b) { return ir::append_binary("gt", a, b); }
Value greater_equal(Value a, Value b) { return ir::append_binary("ge", a, b); }

namespace ir {
namespace {

template <class F> OpDef compare(const std::string& name, const std::string& sign, ScalarOp scalar, F f) {
  const std::string nan = name == "ne" ? "true" : "false";
  OpDef def = compare_op(name, "a " + sign + " b as bool; " + nan + " if either is NaN", scalar);
  def.commutative = name == "eq" || name == "ne";
  def.eval = eval_elementwise(f);
  return def;
}

}  // namespace

std::vector<OpDef> ops_compare() {
  return {compare("eq", "==", ScalarOp::Eq, []<class T>(T a, T b) { return a == b; }),
          compare("ne", "!=", ScalarOp::Ne, []<class T>(T a, T b) { return a != b; }),
          compare("lt", "<", ScalarOp::Lt, []<class T>(T a, T b) { return a < b; }),
          compare("le", "<=", ScalarOp::Le, []<class T>(T a, T b) { return a <= b; }),
          compare("gt", ">", ScalarOp::Gt, []<class T>(T a, T b) { return a > b; }),
          compare("ge", ">=", ScalarOp::Ge, []<class T>(T a, T b) { return a >= b; })};
}

}  // namespace ir
}  // namespace hotloop
