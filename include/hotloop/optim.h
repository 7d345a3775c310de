// Optimisers: updates of a tree of parameters from a tree of gradients.
//
//   optim::Adam opt(1e-3);
//   Tree<Array> state = opt.init(params);
//   auto [new_params, new_state] = opt.update(grads, state, params);   // under trace: in a step, or inside scan
//
// State is explicit, so that a step is a pure function. Each leaf is updated in its own dtype; the step count is one i32 scalar.
#pragma once

#include <concepts>
#include <memory>
#include <string>
#include <utility>

#include "hotloop/graph.h"
#include "hotloop/tree.h"

namespace hotloop::optim {

// Interface that an optimiser, or a wrapper around one, implements.
class UpdateRule {
 public:
  virtual ~UpdateRule() = default;
  // The state before the first step.
  virtual Tree<Array> init(const Tree<Array>& params) const = 0;
  // (params, state) after one step. All trees of values under trace; grads and params of one structure.
  virtual std::pair<Tree<Value>, Tree<Value>> update(const Tree<Value>& grads, const Tree<Value>& state,
                                                     const Tree<Value>& params) const = 0;
};

// An update rule held by value: a shared, immutable handle.
class Optimizer {
 public:
  explicit Optimizer(std::shared_ptr<const UpdateRule> rule) : rule_(std::move(rule)) {}
  template <std::derived_from<UpdateRule> R> Optimizer(R rule) : rule_(std::make_shared<const R>(std::move(rule))) {}

  Tree<Array> init(const Tree<Array>& params) const { return rule_->init(params); }
  std::pair<Tree<Value>, Tree<Value>> update(const Tree<Value>& grads, const Tree<Value>& state,
                                             const Tree<Value>& params) const {
    return rule_->update(grads, state, params);
  }

 private:
  std::shared_ptr<const UpdateRule> rule_;
};

// v = momentum v + g;  p -= learning_rate v, or with nesterov p -= learning_rate (g + momentum v): PyTorch's formulas
// (Sutskever et al. 2013), which at a constant learning rate give Keras' values too. State: "momentum" (as params) if momentum > 0.
struct SGD : Optimizer {
  explicit SGD(double learning_rate, double momentum = 0, bool nesterov = false);
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
  explicit Adam(double learning_rate = 1e-3, const AdamOptions& options = {});
};

}  // namespace hotloop::optim
