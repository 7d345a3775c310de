// What the adjoints have in common that solve the adjoint equation da/dt = - a df/dy backwards in time: optimise, then discretise.
#pragma once

#include <functional>
#include <memory>

#include "core/config.h"
#include "hotloop/ode.h"

namespace hotloop::ode {

// Cotangents of the state, and what has come together of those of the arguments that are floats.
struct Cotangents {
  Leaves state, args;
};

// The equation on its way back.
struct AdjointEquation {
  // dy/dt, da/dt = - a df/dy, and - a df/dargs.
  struct Slopes {
    Leaves y, a, args;
  };
  std::function<Slopes(Value t, const Leaves& y, const Leaves& a)> slopes;
  // The forward solution at t; undefined unless it was asked for.
  std::function<Leaves(Value t)> state_at;
  const Solver& solver;
  const AdjointTolerance& tolerance;

  // Solves dx/dt = field(t, x) from one time to another. Only the first `controlled` leaves decide about the steps: quadratures need not
  // (Kidger, Chen, Lyons 2021). y1 is NaN unless `to` was reached.
  Solution solve(const Field& field, Value from, Value to, const Tree<Value>& x, std::size_t controlled,
                 const SaveAt& saveat = SaveAt::end()) const;
};

// The leaves, NaN unless the solve of that result went all its way.
Leaves or_nan(Value result, Leaves leaves);

// Carries cotangents over an interval between two saved times, from `later`, where the state is y, to `earlier`.
using CarryBack = std::function<Cotangents(const AdjointEquation& equation, Value later, Value earlier, const Leaves& y,
                                           const Cotangents& cotangents)>;

// An adjoint whose derivatives are those of `carry_back`, with the forward solution at hand if `keep_solution`. Its solve throws UserError for
// what such a derivative is not there for: times that the program computes, events, output at every step or dense.
class AdjointOfEquation : public AdjointRule {
 public:
  AdjointOfEquation(std::string name, bool keep_solution, CarryBack carry_back, const AdjointTolerance& tolerance)
      : name_(std::move(name)),
        keep_solution_(keep_solution),
        carry_back_(std::move(carry_back)),
        tolerance_(tolerance) {}
  std::string name() const override { return name_; }
  Solution solve(const Problem& problem, const TakeSteps& take_steps) const override;

 private:
  std::string name_;
  bool keep_solution_;
  CarryBack carry_back_;
  AdjointTolerance tolerance_;
};

// An AdjointTolerance as settings by name.
std::vector<Parameter> tolerance_parameters();
AdjointTolerance tolerance_of(const Config& config);

// Leaves under the names `name`.0, `name`.1, ... of one tree, and back.
Tree<Value> tree_of(const std::vector<std::pair<std::string, Leaves>>& parts);

}  // namespace hotloop::ode
