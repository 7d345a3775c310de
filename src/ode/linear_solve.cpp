#include "ode/linear_solve.h"

#include <vector>

#include "hotloop/ops.h"
#include "ir/region.h"

namespace hotloop::ode {
namespace {

// At the end of the tower of rules the elimination itself is differentiated.
Value solve_call(Value a, Value lu, Value rows, Value b, int order) {
  if (order == 0) return linalg::lu_solve(linalg::lu_factor(a), b);
  const std::vector<Value> operands = {a, lu, rows, b};
  const auto types = ir::types_of(operands);
  const auto body = trace(
      [](std::span<const Value> v) {
        return std::vector<Value>{linalg::lu_solve({v[1], v[2]}, v[3])};
      },
      types, "lu_solve");
  const auto rule = [order](std::span<const Value> v) {
    const auto again = [&](Value rhs) { return solve_call(v[0], v[1], v[2], rhs, order - 1); };
    const Value x = again(v[3]);
    return std::vector<Value>{x, again(v[7] - matmul(v[4], x))};
  };
  return call_with_rule(body, operands, "lu_solve", rule)[0];
}

}  // namespace

Factors factorize(Value a) {
  const Factors factors = linalg::lu_factor(stop_gradient(a));
  return {stop_gradient(factors.lu), factors.rows, factors.parity};
}

Value solve_with(Value a, const Factors& factors, Value b) { return solve_call(a, factors.lu, factors.rows, b, 1); }

}  // namespace hotloop::ode
