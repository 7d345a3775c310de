#include <cmath>
#include <map>

#include "core/print_number.h"
#include "hotloop/ops.h"
#include "optim/learning_rate.h"
#include "optim/registry.h"

namespace hotloop::optim {
namespace {

class AdamRule : public UpdateRule {
 public:
  AdamRule(const std::string& where, const Schedule& learning_rate, double weight_decay, const AdamOptions& options)
      : learning_rate_(where, learning_rate, true), weight_decay_(weight_decay), options_(options) {
    if (!(weight_decay >= 0)) throw UserError(where, "weight_decay must not be negative", print_number(weight_decay));
    for (double beta : {options.beta1, options.beta2})
      if (!(beta >= 0 && beta < 1)) throw UserError(where, "betas must be in [0, 1)", print_number(beta));
    if (!(options.epsilon >= 0)) throw UserError(where, "epsilon must not be negative", print_number(options.epsilon));
  }

  Tree<Array> init(const Tree<Array>& params) const override {
    const auto zeros = params.map([](const Array& p) { return Array::zeros(p.dtype(), p.shape()); });
    Tree<Array> state = learning_rate_.init();
    state.set("exp_avg", zeros);
    state.set("exp_avg_sq", zeros);
    return state;
  }

  std::pair<Tree<Value>, Tree<Value>> update(const Tree<Value>& grads, const Tree<Value>& state,
                                             const Tree<Value>& params) const override {
    const LearningRate::Now rate = learning_rate_.now(state);
    const double b1 = options_.beta1, b2 = options_.beta2;
    const Tree<Value> m =
        map_trees([&](Value old, Value g) { return b1 * old + (1 - b1) * g; }, state.at("exp_avg"), grads);
    const Tree<Value> v =
        map_trees([&](Value old, Value g) { return b2 * old + (1 - b2) * square(g); }, state.at("exp_avg_sq"), grads);
    // Once a dtype, not once a parameter.
    std::map<DType, Scales> scales;
    params.for_each([&](const std::string&, Value p) {
      if (!scales.contains(p.dtype())) scales[p.dtype()] = scales_at(rate.step(), rate(p.dtype()));
    });
    const Tree<Value> updated = map_trees(
        [&](Value p, Value m_p, Value v_p) {
          const Scales& s = scales.at(p.dtype());
          const Value root = options_.epsilon_hat ? sqrt(v_p) : sqrt(v_p) * s.root;
          if (weight_decay_ > 0) p = p * (1.0 - weight_decay_ * rate(p.dtype()));
          return p - s.step_size * m_p / (root + options_.epsilon);
        },
        params, m, v);
    Tree<Value> next = rate.next();
    next.set("exp_avg", m);
    next.set("exp_avg_sq", v);
    return {updated, next};
  }

  Tree<Value> observe(const Tree<Value>& state, Value value) const override {
    return learning_rate_.observe(state, value);
  }
  bool observes() const override { return learning_rate_.observes(); }

 private:
  struct Scales {
    Value step_size;  // of m
    Value root;       // of sqrt(v), where the epsilon is added to the corrected root
  };

  // 1 - beta^step. Through expm1, since in f32 1 - pow(0.999, 1) has lost four of its seven digits.
  static Value correction(double beta, Value step, DType dtype) {
    if (beta == 0) return constant(1, dtype);
    return -expm1(cast(step, dtype) * std::log(beta));
  }

  Scales scales_at(Value step, Value learning_rate) const {
    const Value c1 = correction(options_.beta1, step, learning_rate.dtype());
    const Value root_c2 = sqrt(correction(options_.beta2, step, learning_rate.dtype()));
    if (options_.epsilon_hat) return {learning_rate * root_c2 / c1, {}};
    return {learning_rate / c1, 1.0 / root_c2};
  }

  LearningRate learning_rate_;
  double weight_decay_;
  AdamOptions options_;
};

std::vector<Parameter> parameters_of_adam() {
  return {{"learning_rate", 1e-3, "step size"},
          {"beta1", 0.9, "decay of the mean of gradients"},
          {"beta2", 0.999, "decay of the mean of squared gradients"},
          {"epsilon", 1e-8, "added to the root of the second mean (Keras has 1e-7)"},
          {"epsilon_hat", false, "add epsilon before the bias correction, as Keras does"}};
}

AdamOptions options_of(const Config& config) {
  return {config.number("beta1"), config.number("beta2"), config.number("epsilon"), config.flag("epsilon_hat")};
}

}  // namespace

Adam::Adam(const Schedule& learning_rate, const AdamOptions& options)
    : Optimizer(AdamRule("adam", learning_rate, 0, options)) {}

AdamW::AdamW(const Schedule& learning_rate, double weight_decay, const AdamOptions& options)
    : Optimizer(AdamRule("adamw", learning_rate, weight_decay, options)) {}

std::vector<OptimizerDef> optimizers_adam() {
  std::vector<Parameter> decoupled = parameters_of_adam();
  decoupled.push_back(
      {"weight_decay", 0.01, "times the learning rate: part of a parameter that goes (Keras has 0.004)"});
  return {{"adam", "Adam (Kingma and Ba 2015)", parameters_of_adam(),
           [](const Config& config, const Schedule& learning_rate) -> Optimizer {
             return Adam(learning_rate, options_of(config));
           }},
          {"adamw", "Adam with decoupled weight decay (Loshchilov and Hutter 2019)", decoupled,
           [](const Config& config, const Schedule& learning_rate) -> Optimizer {
             return AdamW(learning_rate, config.number("weight_decay"), options_of(config));
           }}};
}

}  // namespace hotloop::optim
