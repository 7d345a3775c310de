#include "ode/esdirk.h"

#include <algorithm>
#include <cmath>

#include "hotloop/error.h"
#include "hotloop/ops.h"
#include "ode/implicit.h"
#include "ode/tableau.h"

namespace hotloop::ode {
namespace {

class EsdirkRule : public StepRule {
 public:
  explicit EsdirkRule(Esdirk tableau) : tableau_(std::move(tableau)) {}

  std::string name() const override { return tableau_.name; }
  int order() const override { return tableau_.order; }
  int error_order() const override { return tableau_.order; }
  bool is_implicit() const override { return true; }
  Leaves start(const VectorField& field, Value t0, const Leaves& y0) const override { return field(t0, y0); }

  StepResult step(const VectorField& field, const StepInput& in) const override {
    const Esdirk& t = tableau_;
    const FlatField f(field, in.y0);
    const Value y0 = f.pack(in.y0), dt = in.t1 - in.t0, h = cast(dt, y0.dtype());
    // One Jacobian, where the step starts, serves all stages.
    const Value scale = t.gamma * h;
    const Value matrix =
        identity(f.size(), y0.dtype()) - scale * stop_gradient(f.jacobian(stop_gradient(in.t0), stop_gradient(y0)));
    const Factors factors = factorize(matrix);
    const NewtonTolerance tolerance = newton_tolerance(f, in);
    std::vector<Value> ks = {in.made_jump.defined() ? f(in.t0, y0) : f.pack(in.state)};
    const auto weighted = [&](const std::vector<double>& weights) {
      Value total;
      for (std::size_t j = 0; j < weights.size(); ++j)
        if (weights[j] != 0) {
          const Value term = weights[j] * ks[j];
          total = total.defined() ? total + term : term;
        }
      return total;
    };
    Value z, failed, evaluations;
    for (std::size_t i = 1; i < t.c.size(); ++i) {
      const Value known = y0 + h * weighted(t.a[i]);
      const Value time = t.c[i] == 1 ? in.t1 : in.t0 + t.c[i] * dt;
      const NewtonSolution solution =
          newton(f, time, scale, known, scale * weighted(t.predictor[i]), matrix, factors, tolerance);
      z = solution.z;
      ks.push_back(solution.increment / scale);
      const Value missed = logical_not(solution.converged);
      failed = failed.defined() ? bit_or(failed, missed) : missed;
      evaluations = evaluations.defined() ? evaluations + solution.iterations : solution.iterations;
    }
    StepResult result;
    result.y1 = f.unpack(z);
    result.error = f.unpack(h * weighted(t.error));
    // Cubic Hermite.
    const Value change = z - y0, k0 = h * ks.front(), k1 = h * ks.back();
    result.interpolant = {f.unpack(k0), f.unpack(3 * change - 2 * k0 - k1), f.unpack(k0 + k1 - 2 * change)};
    result.state = f.unpack(ks.back());
    result.failed = failed;
    // The Jacobian counts once.
    result.num_evaluations = evaluations + 1;
    return result;
  }

 private:
  Esdirk tableau_;
};

}  // namespace

void Esdirk::check(double tolerance) const {
  // As a full tableau on which order conditions can be evaluated.
  const std::size_t n = c.size();
  const auto require = [&](bool condition, const std::string& what) { HOTLOOP_CHECK(condition, name + ": " + what); };
  require(a.size() == n && predictor.size() == n && error.size() == n, "sizes of the tableau");
  std::vector<std::vector<double>> full(n, std::vector<double>(n));
  for (std::size_t i = 0; i < n; ++i) {
    require(a[i].size() == i && predictor[i].size() == i, "row " + std::to_string(i) + " has that many entries");
    double sum = i == 0 ? 0 : gamma;
    for (std::size_t j = 0; j < i; ++j) sum += full[i][j] = a[i][j];
    if (i > 0) full[i][i] = gamma;
    require(std::abs(sum - c[i]) <= tolerance, "row " + std::to_string(i) + " sums to its c");
  }
  std::vector<double> embedded = full.back();
  for (std::size_t i = 0; i < n; ++i) embedded[i] -= error[i];
  check_weights(name, full, full, {full.back(), embedded, hermite(full.back()), order, order - 1, std::min(order, 3)},
                tolerance);
}

Solver esdirk(Esdirk tableau, double tolerance) {
  tableau.check(tolerance);
  return EsdirkRule(std::move(tableau));
}

}  // namespace hotloop::ode
