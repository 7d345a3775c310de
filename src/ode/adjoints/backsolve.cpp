#include "ode/continuous_adjoint.h"
#include "ode/registry.h"

namespace hotloop::ode {
namespace {

// State, adjoint and the integral of a df/dargs go back together.
Cotangents carry_back(const AdjointEquation& equation, Value later, Value earlier, const Leaves& y,
                      const Cotangents& cotangents) {
  const std::size_t n = y.size();
  const Tree<Value> start = tree_of({{"y", y}, {"a", cotangents.state}, {"args", cotangents.args}});
  const Field field = [&](Value t, const Tree<Value>& x, const Tree<Value>&) {
    const Leaves leaves = x.flatten();
    const auto at = leaves.begin() + static_cast<std::ptrdiff_t>(n);
    const auto slopes = equation.slopes(t, Leaves(leaves.begin(), at), Leaves(at, at + static_cast<std::ptrdiff_t>(n)));
    return tree_of({{"y", slopes.y}, {"a", slopes.a}, {"args", slopes.args}});
  };
  const Leaves end = equation.solve(field, later, earlier, start, 2 * n).y1.flatten();
  const auto at = [&](std::size_t i) { return end.begin() + static_cast<std::ptrdiff_t>(i); };
  return {Leaves(at(n), at(2 * n)), Leaves(at(2 * n), end.end())};
}

}  // namespace

Backsolve::Backsolve(const AdjointTolerance& tolerance)
    : Adjoint(AdjointOfEquation("backsolve", false, carry_back, tolerance)) {}

std::vector<AdjointDef> adjoints_backsolve() {
  return {{"backsolve", "of the equation, solved backwards with the state: constant memory, approximate",
           tolerance_parameters(), [](const Config& c) -> Adjoint { return Backsolve(tolerance_of(c)); }}};
}

}  // namespace hotloop::ode
