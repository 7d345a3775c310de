#include "ir/scalar.h"

#include <array>
#include <cstddef>

namespace hotloop::ir {
namespace {

constexpr std::array<std::string_view, num_scalar_ops> names = {
    "none",      "neg",       "abs",   "sign",   "floor",   "ceil",   "rint",   "sqrt", "exp",  "expm1",    "log",
    "log1p",     "sin",       "cos",   "tanh",   "sigmoid", "erf",    "erfinv", "erfc", "ndtr", "log_ndtr", "not",
    "cast",      "bitcast",   "copy",  "add",    "sub",     "mul",    "div",    "rem",  "pow",  "min",      "max",
    "far_angle", "far_turns", "ldexp", "and",    "or",      "xor",    "shl",    "shr",  "eq",   "ne",       "lt",
    "le",        "gt",        "ge",    "select", "far_rem", "random", "fma"};
static_assert(!names.back().empty(), "a scalar operation has no name");

}  // namespace

std::string_view name_of(ScalarOp op) { return names[static_cast<std::size_t>(op)]; }

int num_operands(ScalarOp op) {
  if (op == ScalarOp::None) return 0;
  if (op < ScalarOp::Add) return 1;
  return op < ScalarOp::Select ? 2 : 3;
}

}  // namespace hotloop::ir
