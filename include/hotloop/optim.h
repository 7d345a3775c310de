// Optimisers: updates of a tree of parameters from a tree of gradients; learning-rate schedules, and wrappers around optimisers.
//
//   optim::Optimizer opt = optim::ClipByNorm(optim::Adam({1e-3, {optim::Warmup(100), optim::Cosine(5000)}}), 1.0);
//   Tree<Array> state = opt.init(params);
//   auto [new_params, new_state] = opt.update(grads, state, params);   // under trace: in a step, or inside scan
//
// State is explicit, so that a step is a pure function. Each leaf is updated in its own dtype; the step count is one i32 scalar.
#pragma once

#include <concepts>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "hotloop/graph.h"
#include "hotloop/tree.h"

namespace hotloop::optim {

// ---- schedules: one line each; the class is in src/optim/schedules ---------------------------------------------------

// Interface of what multiplies a learning rate from step to step. All values are scalars under trace.
class ScheduleRule {
 public:
  virtual ~ScheduleRule() = default;
  // Values that must survive a step beside the step count; most schedules have none.
  virtual Tree<Array> init() const { return {}; }
  // The factor, f64, at a step: i32, the number of steps before this one.
  virtual Value factor(Value step, const Tree<Value>& state) const = 0;
  // The state once the validation gave `value` (f64, smaller is better), see UpdateRule::observe.
  virtual Tree<Value> observe(const Tree<Value>& state, Value /*value*/) const { return state; }
};

// A schedule's rule held by value: a shared, immutable handle.
class ScheduleFactor {
 public:
  explicit ScheduleFactor(std::shared_ptr<const ScheduleRule> rule) : rule_(std::move(rule)) {}
  template <std::derived_from<ScheduleRule> R> ScheduleFactor(R rule)
      : rule_(std::make_shared<const R>(std::move(rule))) {}
  const ScheduleRule& operator*() const { return *rule_; }
  const ScheduleRule* operator->() const { return rule_.get(); }

 private:
  std::shared_ptr<const ScheduleRule> rule_;
};

// A learning rate: a number times the product of factors, each a function of the step count. A number alone is constant.
class Schedule {
 public:
  Schedule(double learning_rate, std::vector<ScheduleFactor> factors = {})
      : learning_rate_(learning_rate), factors_(std::move(factors)) {}

  double learning_rate() const { return learning_rate_; }
  const std::vector<ScheduleFactor>& factors() const { return factors_; }
  bool is_constant() const { return factors_.empty(); }
  // The state of all factors: a child "0", "1", ... for each that has one.
  Tree<Array> init() const;
  // The learning rate in `dtype`; computed in f64.
  Value at(Value step, const Tree<Value>& state, DType dtype) const;
  Tree<Value> observe(const Tree<Value>& state, Value value) const;

 private:
  double learning_rate_;
  std::vector<ScheduleFactor> factors_;
};

// start + (1 - start) min(step / steps, 1): linear from `start` to 1 over the first steps, then 1.
struct Warmup : ScheduleFactor {
  explicit Warmup(std::int64_t steps, double start = 0);
};
// last + (1 - last) (1 + cos(pi min(step / steps, 1))) / 2: from 1 to `last`, and there it stays (Loshchilov and Hutter 2017).
struct Cosine : ScheduleFactor {
  explicit Cosine(std::int64_t steps, double last = 0);
};
// gamma^floor(step / every).
struct StepDecay : ScheduleFactor {
  explicit StepDecay(std::int64_t every, double gamma = 0.1);
};
// Up and down once (Smith and Topin 2018), PyTorch's form in two phases of half a cosine: from 1 / divisor up to 1 over the
// first `rise` of the steps, then down to 1 / (divisor * last_divisor) at the last step, and there it stays.
struct OneCycle : ScheduleFactor {
  explicit OneCycle(std::int64_t steps, double rise = 0.3, double divisor = 25, double last_divisor = 1e4);
};
// Multiplied by `factor` once the observed value has not become better, that is less than best - threshold |best|, for more than
// `patience` observations; then waits `cooldown` observations before it counts again. Never below `least`. PyTorch's rule in its
// mode "min", without its eps. State: "factor" and "best" (f64), "bad" and "wait" (i32).
struct PlateauOptions {
  double factor = 0.1;
  std::int64_t patience = 10, cooldown = 0;
  double threshold = 1e-4, least = 0;
};
struct Plateau : ScheduleFactor {
  explicit Plateau(const PlateauOptions& options = {});
};

// ---- optimisers: one line each; the class is in src/optim/rules ------------------------------------------------------

// Interface that an optimiser, or a wrapper around one, implements.
class UpdateRule {
 public:
  virtual ~UpdateRule() = default;
  // The state before the first step.
  virtual Tree<Array> init(const Tree<Array>& params) const = 0;
  // The same of parameters under trace, for programs that train from the start. What init() gives for parameters that are 0, so a state
  // that depends on their values needs its own.
  virtual Tree<Value> traced_init(const Tree<Value>& params) const;
  // (params, state) after one step. All trees of values under trace; grads and params of one structure.
  virtual std::pair<Tree<Value>, Tree<Value>> update(const Tree<Value>& grads, const Tree<Value>& state,
                                                     const Tree<Value>& params) const = 0;
  // The state once the validation gave `value`: an f64 scalar under trace, smaller is better (an accuracy is given negated).
  // Training calls it after each validation of an optimiser that observes(); the others leave the state as it is.
  virtual Tree<Value> observe(const Tree<Value>& state, Value /*value*/) const { return state; }
  virtual bool observes() const { return false; }
  // The parameters to validate, keep and predict with; those of the last step unless a wrapper has better ones.
  virtual Tree<Array> evaluated(const Tree<Array>& params, const Tree<Array>& /*state*/) const { return params; }
  // The same inside a traced function.
  virtual Tree<Value> traced_evaluated(const Tree<Value>& params, const Tree<Value>& /*state*/) const { return params; }
};

// An update rule held by value: a shared, immutable handle.
class Optimizer {
 public:
  explicit Optimizer(std::shared_ptr<const UpdateRule> rule) : rule_(std::move(rule)) {}
  template <std::derived_from<UpdateRule> R> Optimizer(R rule) : rule_(std::make_shared<const R>(std::move(rule))) {}

  Tree<Array> init(const Tree<Array>& params) const { return rule_->init(params); }
  Tree<Value> traced_init(const Tree<Value>& params) const { return rule_->traced_init(params); }
  std::pair<Tree<Value>, Tree<Value>> update(const Tree<Value>& grads, const Tree<Value>& state,
                                             const Tree<Value>& params) const {
    return rule_->update(grads, state, params);
  }
  Tree<Value> observe(const Tree<Value>& state, Value value) const { return rule_->observe(state, value); }
  bool observes() const { return rule_->observes(); }
  Tree<Array> evaluated(const Tree<Array>& params, const Tree<Array>& state) const {
    return rule_->evaluated(params, state);
  }
  Tree<Value> traced_evaluated(const Tree<Value>& params, const Tree<Value>& state) const {
    return rule_->traced_evaluated(params, state);
  }

 private:
  std::shared_ptr<const UpdateRule> rule_;
};

// Every optimiser below takes a Schedule where it takes a learning rate. Its state then has "step" (i32 scalar) and, for a
// schedule with a state, "schedule".

// v = momentum v + g;  p -= learning_rate v, or with nesterov p -= learning_rate (g + momentum v): PyTorch's formulas
// (Sutskever et al. 2013), which at a constant learning rate give Keras' values too. State: "momentum" (as params) if momentum > 0.
struct SGD : Optimizer {
  explicit SGD(const Schedule& learning_rate, double momentum = 0, bool nesterov = false);
};

// Kingma and Ba 2015. m = beta1 m + (1 - beta1) g, v = beta2 v + (1 - beta2) g^2, c_i = 1 - beta_i^step;
//   PyTorch: p -= learning_rate (m / c1) / (sqrt(v / c2) + epsilon)
//   Keras:   p -= learning_rate sqrt(c2) / c1 * m / (sqrt(v) + epsilon), the "epsilon hat" of the paper's section 2
// State: "step" (i32 scalar), "exp_avg" and "exp_avg_sq" (as params).
struct AdamOptions {
  double beta1 = 0.9, beta2 = 0.999;
  double epsilon = 1e-8;
  bool epsilon_hat = false;  // add epsilon to the uncorrected root
  static AdamOptions keras() { return {.epsilon = 1e-7, .epsilon_hat = true}; }
};
struct Adam : Optimizer {
  explicit Adam(const Schedule& learning_rate = 1e-3, const AdamOptions& options = {});
};
// Adam after p -= learning_rate weight_decay p (Loshchilov and Hutter 2019): decay that the moments do not see. Applied to every
// parameter, biases included, as PyTorch and Keras do. PyTorch's default is 0.01, Keras' 0.004.
struct AdamW : Optimizer {
  explicit AdamW(const Schedule& learning_rate = 1e-3, double weight_decay = 0.01, const AdamOptions& options = {});
};

// Hinton 2012. v = decay v + (1 - decay) g^2; d = g / (sqrt(v') + epsilon), with v' = v, or v - m^2 if centered, but no less than v's last digit
// (m = decay m + (1 - decay) g); b = momentum b + d; p -= learning_rate b.
//   PyTorch: epsilon outside the root, decay 0.99, 1e-8.   Keras: d = g / sqrt(v' + epsilon), decay 0.9, 1e-7.
// State: "square_avg", "grad_avg" if centered, "momentum" if momentum > 0 (each as params).
struct RMSpropOptions {
  double decay = 0.99;
  double epsilon = 1e-8;
  double momentum = 0;
  bool centered = false;
  bool epsilon_inside = false;  // add epsilon under the root
  static RMSpropOptions keras() { return {.decay = 0.9, .epsilon = 1e-7, .epsilon_inside = true}; }
};
struct RMSprop : Optimizer {
  explicit RMSprop(const Schedule& learning_rate = 1e-2, const RMSpropOptions& options = {});
};

// ---- wrappers: one line each; the class is in src/optim/wrappers -----------------------------------------------------

// Gradients scaled by min(1, max_norm / (norm + 1e-6)), norm the Euclidean one of all gradients together, as PyTorch's
// clip_grad_norm_ (Pascanu et al. 2013). State: the inner one's.
struct ClipByNorm : Optimizer {
  ClipByNorm(Optimizer inner, double max_norm);
};
// Each element of the gradients clamped to [-max_value, max_value]. State: the inner one's.
struct ClipByValue : Optimizer {
  ClipByValue(Optimizer inner, double max_value);
};
// Beside the inner optimiser's steps, average = decay average + (1 - decay) params after each (Polyak and Juditsky 1992; the
// average starts from the initial parameters): what is validated, kept and predicted with. State: "average" (as params),
// "inner".
struct EMA : Optimizer {
  explicit EMA(Optimizer inner, double decay = 0.999);
};

}  // namespace hotloop::optim
