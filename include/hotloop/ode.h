// Differential equations: dy/dt = f(t, y, args), solved inside the program under trace.
//
//   Tree<Value> y0 = ..., args = ...;
//   auto field = [](Value t, const Tree<Value>& y, const Tree<Value>& args) { return Tree<Value>(args["rate"] * y.leaf()); };
//   ode::Solution sol = ode::solve(field, ode::Tsit5(), 0, 1, y0, {.args = args, .saveat = ode::SaveAt::times(ts),
//                                                                  .controller = ode::PID(1e-3, 1e-6)});
//
// solve() appends one `loop` to the graph: one iteration is one attempted step. So jit, jvp, vjp and vmap apply to it as to any other
// traced code, and a training step with a solve inside is one executable. Under vmap each trajectory takes its own steps.
// The state is any tree of f32 or f64 values; time has the widest dtype among them. Vocabulary and defaults are diffrax's.
#pragma once

#include <concepts>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "hotloop/graph.h"
#include "hotloop/tree.h"

namespace hotloop::ode {

// dy/dt at (t, y): a tree like y. t is a scalar. Traced where it stands, so it may also use values of the enclosing trace.
using Field = std::function<Tree<Value>(Value t, const Tree<Value>& y, const Tree<Value>& args)>;

// A scalar known when the program is traced, or computed by it.
class Scalar {
 public:
  Scalar(double number) : number_(number) {}  // NOLINT: a number is a scalar
  Scalar(int number) : number_(number) {}     // NOLINT
  Scalar(Value value) : value_(value) {}      // NOLINT
  bool is_number() const { return !value_.defined(); }
  double number() const { return number_; }
  // As a value of the current trace. UserError unless it is a float scalar.
  Value as(DType dtype) const;

 private:
  double number_ = 0;
  Value value_;
};

// ---- what solvers and controllers are made of ------------------------------------------------------------------------

// Values of the leaves of the state, in flatten() order.
using Leaves = std::vector<Value>;

// The field on leaves, integrated in the direction of increasing s = direction * t: solvers never see time run backwards.
class VectorField {
 public:
  VectorField(Field field, Tree<Value> args, Tree<Value> like, Scalar direction);
  // dy/ds at (s, y). UserError when the field gives another structure, shape or dtype than the state's.
  Leaves operator()(Value s, const Leaves& y) const;
  Value time(Value s) const;  // t
  DType time_dtype() const { return time_dtype_; }
  // Traces of the field so far, which is what a step or a start costs.
  int num_evaluations() const { return *num_evaluations_; }
  const Tree<Value>& like() const { return like_; }

 private:
  Field field_;
  Tree<Value> args_, like_;
  Scalar direction_;
  DType time_dtype_ = DType::F32;
  std::shared_ptr<int> num_evaluations_ = std::make_shared<int>(0);
};

struct StepInput {
  Value t0, t1;  // the step's ends, t0 < t1
  const Leaves& y0;
  const Leaves& state;                               // of the solver
  std::function<Leaves(const Leaves& y)> tolerance;  // for each leaf of a state: what counts as an error of one
  Value made_jump;  // bool[]: the field may be another one than the state was computed for. Undefined: it never is
};

struct StepResult {
  Leaves y1;
  Leaves error;  // estimate of y1's local error; empty: the solver has none
  // The free interpolant, degree by degree from the first: y(t0 + x (t1 - t0)) = y0 + sum_j interpolant[j] x^(j+1).
  std::vector<Leaves> interpolant;
  Leaves state;
  Value num_evaluations;  // i32[]: of the field. Undefined: as many as were traced
  // bool[]: nonlinear equations were not solved, so the step is rejected; y1 is NaN or infinite only where the field is. Undefined: that cannot happen
  Value failed;
};

// Interface of a solver.
class StepRule {
 public:
  virtual ~StepRule() = default;
  virtual std::string name() const = 0;
  virtual int order() const = 0;
  // Local order of the error estimate, as step size control uses it; 0 for a solver without an estimate.
  virtual int error_order() const = 0;
  virtual bool is_implicit() const { return false; }
  // What the solver carries from step to step, at the start.
  virtual Leaves start(const VectorField& field, Value t0, const Leaves& y0) const = 0;
  virtual StepResult step(const VectorField& field, const StepInput& input) const = 0;
};

// A solver held by value: a shared, immutable handle.
class Solver {
 public:
  explicit Solver(std::shared_ptr<const StepRule> rule) : rule_(std::move(rule)) {}
  template <std::derived_from<StepRule> R> Solver(R rule) : rule_(std::make_shared<const R>(std::move(rule))) {}
  const StepRule& rule() const { return *rule_; }

 private:
  std::shared_ptr<const StepRule> rule_;
};

// What became of a solve; anything but Success and Event comes with a remedy.
enum class Result : std::int32_t {
  Success = 0,
  Event = 1,
  MaxSteps = 2,
  StepTooSmall = 3,
  NonFinite = 4,
  NewtonFailed = 5
};
// "the maximum number of steps was reached before t1", and what to try. UserError for a code that does not exist.
std::string describe(Result result);
std::string remedy(Result result);

// A controller's answer to an attempted step.
struct Proposal {
  Value keep;    // bool[]: the step is accepted. Undefined: always
  Value t0, t1;  // the next step
  Leaves state;  // of the controller
  Value result;  // i32[], a Result; undefined: Success
  Value finite;  // bool[]: the error estimate is a number. Undefined: not known
};

// An attempted step as a controller sees it.
struct Attempt {
  Value t0, t1;
  const Leaves &y0, &y1, &error;
  int error_order;
  const Leaves& state;  // of the controller
  Value failed;         // bool[]: StepResult's. y1 is not to be accepted then, however short the step
};

// The ends of a step, in s.
struct StepEnds {
  Value t0, t1;
};

// By how much times, (n,) or one, may differ from another and count as the same: roundings of what the solve's times are sums of.
using TimeMargin = std::function<Value(Value times)>;

// Interface of a step size controller.
class StepSizeRule {
 public:
  virtual ~StepSizeRule() = default;
  virtual bool is_adaptive() const = 0;               // needs an error estimate
  virtual bool makes_jumps() const { return false; }  // limit() moves beginnings
  // End of the first step, which starts at t0, and the controller's state. `dt0` undefined: to be chosen.
  virtual std::pair<Value, Leaves> start(const VectorField& field, Value t0, const Leaves& y0, Value dt0,
                                         int error_order) const = 0;
  // For each leaf, the size that an error may have; by default 1e-6 (1 + |y|).
  virtual Leaves tolerance(const Leaves& y) const;
  virtual Proposal propose(const VectorField& field, const Attempt& attempt) const = 0;
  // A step from t0 to t1, the first, one proposed or the one after an event, within the times that steps must not pass. One that would end within
  // the margin of such a time ends there, and a time within the margin ahead of t0 was reached. Where the field jumps at t0 it begins after that.
  virtual StepEnds limit(const VectorField&, Value t0, Value t1, const TimeMargin&) const { return {t0, t1}; }
};

// A controller held by value.
class Controller {
 public:
  explicit Controller(std::shared_ptr<const StepSizeRule> rule) : rule_(std::move(rule)) {}
  template <std::derived_from<StepSizeRule> R> Controller(R rule) : rule_(std::make_shared<const R>(std::move(rule))) {}
  const StepSizeRule& rule() const { return *rule_; }

 private:
  std::shared_ptr<const StepSizeRule> rule_;
};

// ---- solvers: one line each; the coefficients are in src/ode/solvers --------------------------------------------------

struct Euler : Solver {  // order 1
  Euler();
};
struct Heun : Solver {  // order 2(1)
  Heun();
};
struct Midpoint : Solver {  // order 2(1)
  Midpoint();
};
struct Ralston : Solver {  // order 2(1), Ralston 1962
  Ralston();
};
struct Bosh3 : Solver {  // order 3(2), Bogacki and Shampine 1989
  Bosh3();
};
struct RK4 : Solver {  // order 4, Kutta 1901
  RK4();
};
struct Tsit5 : Solver {  // order 5(4), Tsitouras 2011: the default
  Tsit5();
};
struct Dopri5 : Solver {  // order 5(4), Dormand and Prince 1980
  Dopri5();
};
struct Dopri8 : Solver {  // order 8(7), Prince and Dormand 1981
  Dopri8();
};
// Order 7(6), Verner 2010, the "efficient" pair. Between its steps (SaveAt::times, events) it interpolates at third order: see Clip.
struct Vern7 : Solver {
  Vern7();
};
// Leapfrog (Stoermer-Verlet), symplectic, order 2, for a state {position, velocity} of two children with equal leaves, where the
// position's derivative depends on t and velocity alone and the velocity's on t and position. Constant steps only.
struct Leapfrog : Solver {
  Leapfrog();
};

// Implicit, for stiff problems: fields whose fast parts would force an explicit solver to steps far below what accuracy asks for.
// They use the Jacobian, by forward mode, as a dense matrix: for tens of unknowns, not thousands.
struct ImplicitEuler : Solver {  // order 1
  ImplicitEuler();
};
struct Rosenbrock23 : Solver {  // order 2(3), Shampine and Reichelt 1997
  Rosenbrock23();
};
struct Rodas5P : Solver {  // order 5(4), Steinebach 2023
  Rodas5P();
};
struct Kvaerno3 : Solver {  // order 3(2), Kvaerno 2004
  Kvaerno3();
};
struct Kvaerno5 : Solver {  // order 5(4), Kvaerno 2004
  Kvaerno5();
};

// ---- controllers ------------------------------------------------------------------------------------------------------

// One number for the whole state, known or computed by the program (a float scalar > 0, so that one executable serves all
// tolerances), or an array for each leaf that broadcasts against it.
class Tolerance {
 public:
  Tolerance(double number) : number_(number) {}                  // NOLINT: a number is a tolerance
  Tolerance(Value value) : value_(value) {}                      // NOLINT
  Tolerance(Tree<Array> leaves) : leaves_(std::move(leaves)) {}  // NOLINT
  // For leaf i of the state.
  Value of(std::size_t i, Value like) const;
  void check(const std::string& name, const Tree<Value>& state) const;

 private:
  double number_ = 0;
  Value value_;
  std::optional<Tree<Array>> leaves_;
};

// Steps of dt0, which must be given.
struct ConstantStep : Controller {
  ConstantStep();
};

struct PIDOptions {
  double pcoeff = 0, icoeff = 1, dcoeff = 0;  // I control; PI: 0.4, 0.3, 0; PID: e.g. 0.2, 0.3, 0.1 (Soederlind 2003)
  std::optional<double> dtmin = {}, dtmax = {};
  bool force_dtmin =
      true;  // take steps of dtmin whatever their error, if they were solved, rather than stop with StepTooSmall
  double factormin = 0.2, factormax = 10, safety = 0.9;
};
// Keeps rms(error / (atol + rtol |y|)) below one. Soederlind 2003, Hairer, Norsett, Wanner II.4 for the first step.
struct PID : Controller {
  PID(Tolerance rtol, Tolerance atol, const PIDOptions& options = {});
};
// Another controller, with steps that end at the times given, of which those that differ by rounding count as one: at `step_ts` just so, at `jump_ts`
// because the field is discontinuous there (what solvers know of it from before is forgotten): a step ends just before such a time, t1 too, and the next
// one, or the first at t0, begins just after it.
struct Clip : Controller {
  Clip(Controller inner, std::vector<double> step_ts, std::vector<double> jump_ts = {});
};

// ---- gradients --------------------------------------------------------------------------------------------------------

struct Problem;   // a solve and its options
struct Solution;  // below
using TakeSteps = std::function<Solution(const Problem& problem)>;

// How derivatives are taken of a solve. All compose with jvp, vmap and themselves unless said otherwise.
class AdjointRule {
 public:
  virtual ~AdjointRule() = default;
  virtual std::string name() const = 0;
  // The solve, by one or more calls of `take_steps`, which leaves the derivative of its steps to the transforms. That is all that is done here
  // unless an adjoint has a derivative of its own.
  virtual Solution solve(const Problem& problem, const TakeSteps& take_steps) const;
  // Residual policy of the loop over steps: see LoopSpec.
  virtual std::string residuals() const { return ""; }
  // Whether the steps are taken in a loop of loops, so that backward keeps 2 sqrt(max_steps) states at a time.
  virtual bool nests() const { return false; }
};
class Adjoint {
 public:
  template <std::derived_from<AdjointRule> R> Adjoint(R rule) : rule_(std::make_shared<const R>(std::move(rule))) {}
  const AdjointRule& rule() const { return *rule_; }

 private:
  std::shared_ptr<const AdjointRule> rule_;
};

// The derivative of the steps as they were taken: exact for what was computed. Backward keeps the state at the start of each step, and what
// it needs of the stages if that takes at most 32 MiB for `max_steps` steps of one solve; else it computes the stages again. Step sizes are
// constants of it. The default.
struct Discrete : Adjoint {
  Discrete();
};
// The same derivative; keeps the stages however large: more memory, fewer evaluations.
struct FullSave : Adjoint {
  FullSave();
};

// The same derivative in the memory of 2 sqrt(max_steps) states instead of max_steps, for one more forward pass: backward keeps every
// sqrt(max_steps)-th state and finds those between again (Griewank 1992, in two levels).
struct Checkpointed : Adjoint {
  Checkpointed();
};

// The adjoints of the equation: what is solved backwards is da/dt = - a df/dy, with steps of its own, so that the gradient is that of the
// exact solution up to these tolerances, not that of the steps that were taken. For known t0, t1 and saved times, no events, and solvers
// with an error estimate. Forward mode and what is differentiated twice are those of the steps. Where the solve, or
// the backward one, does not get to its end (max_steps, or an equation that blows up backwards) the gradient is NaN.
struct AdjointTolerance {
  double rtol = 1e-6, atol = 1e-8;  // of the backward solve
  std::int64_t max_steps = 4096;    // of it, between two saved times
};
// The state is found again by solving backwards too, from each saved row to the one before: constant memory, but what decays fast going
// forward grows going back (Chen et al. 2018).
struct Backsolve : Adjoint {
  explicit Backsolve(const AdjointTolerance& tolerance = {});
};
// The state comes from the forward solve's interpolant, kept for all of its steps. UserError for solvers of order 5 and more whose interpolant is a cubic,
// which would cost more digits than the tolerance promises: Vern7 and Kvaerno5. The same holds for Gauss.
struct Interpolating : Adjoint {
  explicit Interpolating(const AdjointTolerance& tolerance = {});
};
// The same, with the arguments' part by Gauss' quadrature over the backward steps: the solve is one of the state's size, however many
// arguments there are (Kim et al. 2021).
struct Gauss : Adjoint {
  explicit Gauss(const AdjointTolerance& tolerance = {});
};

// ---- solving ----------------------------------------------------------------------------------------------------------

// Where the solution is wanted. Rows of the output come in the order of the fields.
struct SaveAt {
  bool t0 = false;
  // Times computed by the program, (n,). A row is inf where its time is no number or not within [t0, t1], or comes after later ones and steps have
  // passed it.
  Value ts_value = {};
  std::vector<double> ts = {};  // or known
  bool steps = false;           // after each accepted step: max_steps rows, those beyond the last are inf
  bool t1 = false;
  bool dense = false;  // Solution::evaluate

  static SaveAt end();                          // the default
  static SaveAt times(std::vector<double> ts);  // sorted in the direction of integration, within [t0, t1]
  static SaveAt times(Value ts);
  static SaveAt every_step();
  static SaveAt interpolation();
};

// Something that happens where function(t, y, args), a float scalar, crosses zero: found after each accepted step by the signs at
// its ends, located on the interpolant, and differentiable: the event's time has the derivative of the equation
// function(t, y(t)) = 0. Two crossings within one step are not seen (dtmax bounds steps). Events at one place all happen, in the order of the list.
struct Event {
  using Function = std::function<Value(Value t, const Tree<Value>& y, const Tree<Value>& args)>;
  using Change = std::function<Tree<Value>(Value t, const Tree<Value>& y, const Tree<Value>& args)>;
  Function function;
  int direction = 0;     // 1: only where it rises, -1: only where it falls
  bool terminal = true;  // the solve ends there, with Result::Event
  Change change = {};    // the state after the event, as of a ball that bounces
};

struct Options {
  Tree<Value> args = {};
  std::optional<Scalar> dt0 = {};  // first step, positive also backwards in time; without one a controller chooses
  SaveAt saveat = SaveAt::end();
  Controller controller = PID(1e-3, 1e-6);
  Adjoint adjoint = Discrete();
  std::vector<Event> events = {};
  std::int64_t max_steps = 4096;
};

// Counts of one solve, i32 scalars.
struct Stats {
  Value num_steps, num_accepted, num_rejected;
  Value num_evaluations;  // of the field
  Value num_events;       // undefined without events
};

struct Solution {
  Value ts;        // (n,): times of the rows of ys
  Tree<Value> ys;  // the state with a leading axis n; rows that were not reached are inf
  Value t1;        // where the solve ended: t1, an event, or where it got to
  Tree<Value> y1;  // the state there
  Value result;    // i32[]: a Result
  Stats stats;

  // The interpolant at t, one time or an array of them of any shape within the interval solved, whose axes come first; needs
  // SaveAt::dense. y0 where no step was taken.
  Tree<Value> evaluate(Value t) const;

  struct Dense {
    Value ends;                        // (max_steps,), in s; inf beyond the last step
    Value starts, lengths;             // (max_steps,); a step that an event cut short is longer than it lasted
    std::vector<Leaves> coefficients;  // degree by degree from 0, each leaf (max_steps, ...)
    Scalar direction = 1;
    Tree<Value> like;
  };
  std::shared_ptr<const Dense> dense;
};

struct Problem {
  const Field& field;
  const Solver& solver;
  Scalar t0, t1;
  const Tree<Value>& y0;
  const Options& options;
};

// Solves from t0 to t1, which may be the earlier. Under trace. UserError for trees, shapes and settings that do not fit; what happens
// while the program runs is Solution::result.
Solution solve(const Field& field, const Solver& solver, Scalar t0, Scalar t1, const Tree<Value>& y0,
               const Options& options = {});

// Throws UserError with the remedy when a result (of one solve, or of each trajectory of a batch) is neither Success nor Event.
void check(const Array& result);

}  // namespace hotloop::ode
