#include "ode/continuous_adjoint.h"
#include "ode/registry.h"

namespace hotloop::ode {
namespace {

// The adjoint and the integral of a df/dargs go back along the forward solution's interpolant.
Cotangents carry_back(const AdjointEquation& equation, Value later, Value earlier, const Leaves& y,
                      const Cotangents& cotangents) {
  const auto n = static_cast<std::ptrdiff_t>(y.size());
  const Field field = [&](Value t, const Tree<Value>& x, const Tree<Value>&) {
    const Leaves leaves = x.flatten();
    const auto slopes = equation.slopes(t, equation.state_at(t), Leaves(leaves.begin(), leaves.begin() + n));
    return tree_of({{"a", slopes.a}, {"args", slopes.args}});
  };
  const Tree<Value> start = tree_of({{"a", cotangents.state}, {"args", cotangents.args}});
  const Leaves end = equation.solve(field, later, earlier, start, y.size()).y1.flatten();
  return {Leaves(end.begin(), end.begin() + n), Leaves(end.begin() + n, end.end())};
}

}  // namespace

Interpolating::Interpolating(const AdjointTolerance& tolerance)
    : Adjoint(AdjointOfEquation("interpolating", true, carry_back, tolerance)) {}

std::vector<AdjointDef> adjoints_interpolating() {
  return {{"interpolating", "of the equation, solved backwards along the forward solution's interpolant",
           tolerance_parameters(), [](const Config& c) -> Adjoint { return Interpolating(tolerance_of(c)); }}};
}

}  // namespace hotloop::ode
