#include "hotloop/ops.h"
#include "ode/continuous_adjoint.h"
#include "ode/registry.h"
#include "ops/composed/bounded_while.h"

namespace hotloop::ode {
namespace {

// Gauss' four nodes and weights on [0, 1], exact to degree 7.
struct Node {
  double x, weight;
};
constexpr Node nodes[] = {{0.06943184420297371, 0.17392742256872693},
                          {0.33000947820757187, 0.32607257743127307},
                          {0.66999052179242813, 0.32607257743127307},
                          {0.93056815579702629, 0.17392742256872693}};

Value row(Value rows, Value index) {
  const Value starts[] = {index};
  return reshape(dynamic_slice(rows, starts, {1}), {});
}

// The adjoint alone goes back; the integral of a df/dargs is a quadrature over its steps, of both interpolants.
Cotangents carry_back(const AdjointEquation& equation, Value later, Value earlier, const Leaves& y,
                      const Cotangents& cotangents) {
  const Field field = [&](Value t, const Tree<Value>& a, const Tree<Value>&) {
    return tree_of({{"a", equation.slopes(t, equation.state_at(t), a.flatten()).a}});
  };
  SaveAt saveat = SaveAt::interpolation();
  saveat.steps = true;
  const Solution back = equation.solve(field, later, earlier, tree_of({{"a", cotangents.state}}), y.size(), saveat);

  // Carried: the number of steps done, where the next one begins, the integral.
  std::vector<Value> init = {constant(0, DType::I32), later};
  init.insert(init.end(), cotangents.args.begin(), cotangents.args.end());
  const auto result = ir::bounded_while(
      "ode.solve", [&](std::span<const Value> c) { return less(c[0], back.stats.num_accepted); },
      [&](std::span<const Value> c) {
        const Value end = row(back.ts, c[0]), length = end - c[1];
        std::vector<Value> next = {c[0] + 1, end};
        Leaves sums(c.begin() + 2, c.end());
        for (const Node& node : nodes) {
          const Value t = c[1] + node.x * length;
          const auto slopes = equation.slopes(t, equation.state_at(t), back.evaluate(t).flatten());
          for (std::size_t i = 0; i < sums.size(); ++i)
            sums[i] = sums[i] + cast(node.weight * length, sums[i].dtype()) * slopes.args[i];
        }
        next.insert(next.end(), sums.begin(), sums.end());
        return next;
      },
      init, equation.tolerance.max_steps);
  return {back.y1.flatten(), or_nan(back.result, {result.carry.begin() + 2, result.carry.end()})};
}

}  // namespace

Gauss::Gauss(const AdjointTolerance& tolerance) : Adjoint(AdjointOfEquation("gauss", true, carry_back, tolerance)) {}

std::vector<AdjointDef> adjoints_gauss() {
  return {{"gauss", "of the equation, along the interpolant; the arguments' part by Gauss' quadrature",
           tolerance_parameters(), [](const Config& c) -> Adjoint { return Gauss(tolerance_of(c)); }}};
}

}  // namespace hotloop::ode
