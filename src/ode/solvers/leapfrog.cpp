#include "hotloop/error.h"
#include "hotloop/ops.h"
#include "ode/registry.h"

namespace hotloop::ode {
namespace {

// Kick, drift, kick (Verlet 1967). The acceleration after the second kick is that of the next step's first.
class LeapfrogRule : public StepRule {
 public:
  std::string name() const override { return "leapfrog"; }
  int order() const override { return 2; }
  int error_order() const override { return 0; }

  Leaves start(const VectorField& field, Value t0, const Leaves& y0) const override {
    const auto& parts = field.like().children();
    bool fits = parts.size() == 2 && parts[0].second.num_leaves() == parts[1].second.num_leaves();
    for (std::size_t i = 0; fits && i < y0.size() / 2; ++i) fits = y0[i].type() == y0[i + y0.size() / 2].type();
    if (!fits)
      throw UserError("ode.Leapfrog", "the state must have two children of equal leaves, position and velocity",
                      std::to_string(parts.size()) + " children, " + std::to_string(y0.size()) + " leaves",
                      "{\"q\", ...}, {\"v\", ...}; or Tsit5() for a system that is not of this form");
    return half(field(t0, y0), 1);
  }

  StepResult step(const VectorField& field, const StepInput& in) const override {
    const Value h = in.t1 - in.t0;
    Leaves acceleration = in.state;
    if (in.made_jump.defined())
      acceleration = cond(
          in.made_jump, [&](std::span<const Value>) { return half(field(in.t0, in.y0), 1); },
          [&](std::span<const Value>) { return in.state; }, {});
    const Leaves q0 = half(in.y0, 0), v_half = moved(half(in.y0, 1), 0.5 * h, acceleration);
    const Leaves q1 = moved(q0, h, half(field(in.t0 + 0.5 * h, joined(q0, v_half)), 0));
    StepResult result;
    result.state = half(field(in.t1, joined(q1, v_half)), 1);
    result.y1 = joined(q1, moved(v_half, 0.5 * h, result.state));
    Leaves line;
    for (std::size_t i = 0; i < in.y0.size(); ++i) line.push_back(result.y1[i] - in.y0[i]);
    result.interpolant = {line};
    return result;
  }

 private:
  static Leaves half(const Leaves& y, std::size_t which) {
    const auto middle = y.begin() + static_cast<std::ptrdiff_t>(y.size() / 2);
    return which == 0 ? Leaves(y.begin(), middle) : Leaves(middle, y.end());
  }
  static Leaves joined(Leaves q, const Leaves& v) {
    q.insert(q.end(), v.begin(), v.end());
    return q;
  }
  static Leaves moved(const Leaves& x, Value h, const Leaves& rate) {
    Leaves out;
    for (std::size_t i = 0; i < x.size(); ++i) out.push_back(x[i] + cast(h, x[i].dtype()) * rate[i]);
    return out;
  }
};

}  // namespace

Leapfrog::Leapfrog() : Solver(LeapfrogRule()) {}

std::vector<SolverDef> solvers_leapfrog() {
  return {{"leapfrog",
           "Stoermer-Verlet, symplectic, order 2: position and velocity, constant steps",
           {},
           [](const Config&) -> Solver { return Leapfrog(); }}};
}

}  // namespace hotloop::ode
