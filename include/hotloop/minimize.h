// Minimisation inside the program: all iterations of a method, with the derivatives and the line searches they need, are one loop of the
// graph. So a whole fit is one kernel, many starts at once are vmap of it, and it may stand inside a larger program.
//
//   Minimum m = minimize([&](const Tree<Value>& p) { return mean(square(net(p, x) - y)); }, params);
//   m.params, m.value, m.gradient_norm, m.iterations, m.evaluations, m.status
//
// Nothing can be raised while a program runs: what became of a minimisation is its status, see minimizers::describe(). The result's derivative
// with respect to what the function uses from its surroundings is that of the minimum (the implicit function theorem), not of the iterations.
#pragma once

#include <concepts>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "hotloop/graph.h"
#include "hotloop/tree.h"

namespace hotloop {

namespace minimizers {

// How a minimisation ended. Up to Step it converged.
enum class Status : std::int32_t {
  Gradient = 0,  // no element of the gradient is larger than gradient_tolerance
  Value = 1,     // the last step changed the value by no more than value_tolerance of it
  Step = 2,      // least squares: steps became shorter than step_tolerance of the parameters
  MaxIterations = 3,
  MaxEvaluations = 4,
  Stalled = 5,    // no step could be found that makes the value smaller, steepest descent included
  NonFinite = 6,  // the value or the gradient at the start is infinite or NaN
};
// "the gradient is within its tolerance", and what to try. UserError for a code that does not exist.
std::string describe(Status status);
std::string remedy(Status status);
Value converged(Value status);  // bool, of its shape

using State = std::vector<Value>;

// ---- methods for a value: a direction, and a line search along it ------------------------------------------------------

// A step: it changes the parameters by `s` and the gradient by `y`, which is then `g`; all (n,).
struct StepTaken {
  Value s, y, g;
  Value sy;         // s . y
  Value is_taken;   // bool[]: else the line search goes on, and the state must stay as it is
  Value is_usable;  // bool[]: taken, and sy is positive beyond rounding, so that it tells of a positive curvature
};

// Interface of a method that chooses directions.
class DescentRule {
 public:
  virtual ~DescentRule() = default;
  // What it keeps from step to step while it knows of none. x: (n,).
  virtual State start(Value x) const = 0;
  // The state after a step, and the next direction, (n,); one that does not descend is replaced by -g, and the state forgotten.
  virtual std::pair<State, Value> next(const State& state, const StepTaken& taken) const = 0;
  // The state, or where `condition` holds one that knows of no step: start()'s unless a method can forget with less.
  virtual State forget(Value condition, const State& state, Value x) const;
  // The line search ends where the slope has fallen to this part of the first one.
  virtual double curvature() const { return 0.9; }
  // Whether a step of 1 along a direction is the natural one, as for quasi-Newton methods.
  virtual bool has_unit_step() const { return true; }
};

// A method held by value: a shared, immutable handle.
class Descent {
 public:
  template <std::derived_from<DescentRule> R> Descent(R rule) : rule_(std::make_shared<const R>(std::move(rule))) {}
  const DescentRule& rule() const { return *rule_; }

 private:
  std::shared_ptr<const DescentRule> rule_;
};

// Limited-memory BFGS by the two-loop recursion over the last `history` steps (Nocedal 1980; Nocedal and Wright 2006, 7.4).
struct LBFGS : Descent {
  explicit LBFGS(std::int64_t history = 10);
};
// BFGS with the inverse Hessian as an (n, n) matrix (Nocedal and Wright 2006, 6.1): for tens or hundreds of parameters.
struct BFGS : Descent {
  BFGS();
};
// Conjugate gradients by Polak and Ribiere with restarts (Nocedal and Wright 2006, 5.2): the memory of one direction.
struct NonlinearCG : Descent {
  NonlinearCG();
};

// ---- methods for a sum of squares: a step from the normal equations ------------------------------------------------------

// A step h, (n,), how much it should take off half the sum of squares, an f64 scalar > 0, and `whole`, (n,): h if nothing held it back, parameter
// by parameter, by which it is judged whether there is still a way to go.
struct ProposedStep {
  Value h, promised, whole;
};

// Interface of a method for residuals r with the Jacobian J: it sees a = J^T J, (n, n), and g = J^T r, (n,), where it is.
class LeastSquaresRule {
 public:
  virtual ~LeastSquaresRule() = default;
  virtual State start(Value a) const = 0;
  virtual ProposedStep propose(const State& state, Value a, Value g) const = 0;
  // The state after a step that took `gain` of what was promised, f64; it was taken if `accepted`, and a is that of the new place then.
  virtual State judge(const State& state, Value a, Value gain, Value accepted) const = 0;
  // bool[]: no step can be proposed any more.
  virtual Value is_exhausted(const State& state) const = 0;
};

// A method held by value.
class LeastSquares {
 public:
  template <std::derived_from<LeastSquaresRule> R> LeastSquares(R rule)
      : rule_(std::make_shared<const R>(std::move(rule))) {}
  const LeastSquaresRule& rule() const { return *rule_; }

 private:
  std::shared_ptr<const LeastSquaresRule> rule_;
};

// Levenberg-Marquardt: (J^T J + damping D) h = -J^T r by Cholesky, the damping by how well the last step kept its promise (Nielsen 1999;
// Madsen, Nielsen, Tingleff 2004). D is the identity or, scaled, the largest diagonal of J^T J so far (Moré 1978), so that
// the units of parameters do not matter.
struct LevenbergMarquardt : LeastSquares {
  explicit LevenbergMarquardt(double initial_damping = 1e-3, bool scaled = false);
};

}  // namespace minimizers

struct MinimizeOptions {
  std::int64_t max_iterations = 1000;
  std::int64_t max_evaluations = 0;  // of value and gradient together; 0: 20 an iteration
  double gradient_tolerance = 1e-5;  // of the largest element of the gradient
  double value_tolerance =
      1e-9;  // of the relative change in a step; below the dtype's resolution it counts as that. 0: not looked at
};

// What minimize() and least_squares() give.
struct Minimum {
  Tree<Value> params;   // of the least value found
  Value value;          // there: a scalar
  Value gradient_norm;  // the largest element of the gradient there, a scalar of the parameters' widest dtype
  Value iterations;     // i32[]: steps taken
  Value evaluations;    // i32[]
  Value status;         // i32[]: a minimizers::Status
};

// The parameters, f32 and f64 leaves, at which fn, a float scalar, is least near `params`. Along each direction a step is searched that meets the
// strong Wolfe conditions (Moré and Thuente 1994), or the approximate ones where the value's rounding hides its decrease (Hager and Zhang
// 2005). Under trace; UserError for trees and options that do not fit.
using Objective = std::function<Value(const Tree<Value>& params)>;
Minimum minimize(const Objective& fn, const Tree<Value>& params,
                 const minimizers::Descent& method = minimizers::LBFGS(), const MinimizeOptions& options = {});

struct LeastSquaresOptions {
  std::int64_t max_iterations = 1000;
  std::int64_t max_evaluations = 0;  // of the residuals; 0: 20 an iteration
  double gradient_tolerance = 1e-8;  // of the largest element of J^T r
  double value_tolerance = 1e-8;     // of the relative change in a step, found and promised; 0: not looked at
  double step_tolerance = 1e-8;      // of the step beside the parameters, by what they change of r; 0: not looked at
};

// The parameters at which half the sum of squares of `residuals`, leaves of f32 and f64, is least near `params`; that is the `value`, and its gradient
// is J^T r. The Jacobian is found as by jacobian(): passes follow its structure, so that residuals of rows that share the parameters take one
// row's passes. Under trace; UserError as above.
using Residuals = std::function<Tree<Value>(const Tree<Value>& params)>;
Minimum least_squares(const Residuals& residuals, const Tree<Value>& params,
                      const minimizers::LeastSquares& method = minimizers::LevenbergMarquardt(),
                      const LeastSquaresOptions& options = {});

}  // namespace hotloop
