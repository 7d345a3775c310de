#include "hotloop/ops.h"
#include "ode/tableau.h"

namespace hotloop::ode {
namespace {

class ExplicitRungeKutta : public StepRule {
 public:
  explicit ExplicitRungeKutta(Tableau tableau) : tableau_(std::move(tableau)) {}

  std::string name() const override { return tableau_.name; }
  int order() const override { return tableau_.order; }
  int error_order() const override { return tableau_.error.empty() ? 0 : tableau_.order; }

  Leaves start(const VectorField& field, Value t0, const Leaves& y0) const override {
    return tableau_.fsal() ? field(t0, y0) : Leaves{};
  }

  StepResult step(const VectorField& field, const StepInput& in) const override {
    const Tableau& t = tableau_;
    const Value h = in.t1 - in.t0;
    std::vector<Leaves> ks = {t.fsal() ? first_stage(field, in) : field(in.t0, in.y0)};
    StepResult result;
    for (std::size_t i = 1; i < t.b.size(); ++i) {
      const Leaves y = combine(in.y0, h, t.a[i], ks);
      // c = 1 is the step's end exactly, as the next step's start is.
      ks.push_back(field(t.c[i] == 1 ? in.t1 : in.t0 + t.c[i] * h, y));
      if (t.fsal() && i + 1 == t.b.size()) result.y1 = y;
    }
    if (!t.fsal()) result.y1 = combine(in.y0, h, t.b, ks);
    if (!t.error.empty()) result.error = combine(h, t.error, ks);
    for (const auto& row : t.dense) result.interpolant.push_back(combine(h, row, ks));
    if (t.dense.empty()) {
      Leaves line;
      for (std::size_t i = 0; i < in.y0.size(); ++i) line.push_back(result.y1[i] - in.y0[i]);
      result.interpolant.push_back(line);
    }
    if (t.fsal()) result.state = ks.back();
    return result;
  }

 private:
  static Leaves first_stage(const VectorField& field, const StepInput& in) {
    if (!in.made_jump.defined()) return in.state;
    return cond(
        in.made_jump, [&](std::span<const Value>) { return field(in.t0, in.y0); },
        [&](std::span<const Value>) { return in.state; }, {});
  }

  Tableau tableau_;
};

Value weighted(const std::vector<double>& weights, const std::vector<Leaves>& ks, std::size_t leaf) {
  Value sum;
  for (std::size_t i = 0; i < weights.size(); ++i) {
    if (weights[i] == 0) continue;
    const Value term = weights[i] == 1 ? ks[i][leaf] : weights[i] * ks[i][leaf];
    sum = sum.defined() ? sum + term : term;
  }
  return sum.defined() ? sum : zeros_like(ks[0][leaf]);
}

}  // namespace

Leaves combine(const Leaves& y, Value h, const std::vector<double>& weights, const std::vector<Leaves>& ks) {
  Leaves out;
  for (std::size_t i = 0; i < y.size(); ++i) out.push_back(y[i] + cast(h, y[i].dtype()) * weighted(weights, ks, i));
  return out;
}

Leaves combine(Value h, const std::vector<double>& weights, const std::vector<Leaves>& ks) {
  Leaves out;
  for (std::size_t i = 0; i < ks[0].size(); ++i) out.push_back(cast(h, ks[0][i].dtype()) * weighted(weights, ks, i));
  return out;
}

Solver explicit_runge_kutta(Tableau tableau, double tolerance) {
  tableau.check(tolerance);
  return ExplicitRungeKutta(std::move(tableau));
}

}  // namespace hotloop::ode
