#include "core/print_number.h"
#include "core/resolution.h"
#include "hotloop/ops.h"
#include "optim/learning_rate.h"
#include "optim/registry.h"

namespace hotloop::optim {
namespace {

class RmspropRule : public UpdateRule {
 public:
  RmspropRule(const Schedule& learning_rate, const RMSpropOptions& options)
      : learning_rate_("rmsprop", learning_rate), options_(options) {
    for (const double decay : {options.decay, options.momentum})
      if (!(decay >= 0 && decay < 1))
        throw UserError("rmsprop", "decay and momentum must be in [0, 1)", print_number(decay));
    if (!(options.epsilon >= 0))
      throw UserError("rmsprop", "epsilon must not be negative", print_number(options.epsilon));
  }

  Tree<Array> init(const Tree<Array>& params) const override {
    const auto zeros = params.map([](const Array& p) { return Array::zeros(p.dtype(), p.shape()); });
    Tree<Array> state = learning_rate_.init();
    state.set("square_avg", zeros);
    if (options_.centered) state.set("grad_avg", zeros);
    if (options_.momentum > 0) state.set("momentum", zeros);
    return state;
  }

  std::pair<Tree<Value>, Tree<Value>> update(const Tree<Value>& grads, const Tree<Value>& state,
                                             const Tree<Value>& params) const override {
    const LearningRate::Now rate = learning_rate_.now(state);
    Tree<Value> next = rate.next();
    const double d = options_.decay;
    const Tree<Value> v =
        map_trees([&](Value old, Value g) { return d * old + (1 - d) * square(g); }, state.at("square_avg"), grads);
    next.set("square_avg", v);
    Tree<Value> spread = v;
    if (options_.centered) {
      const Tree<Value> m =
          map_trees([&](Value old, Value g) { return d * old + (1 - d) * g; }, state.at("grad_avg"), grads);
      spread = map_trees(variance, v, m);
      next.set("grad_avg", m);
    }
    Tree<Value> direction = map_trees(
        [&](Value g, Value s) {
          return g / (options_.epsilon_inside ? sqrt(s + options_.epsilon) : sqrt(s) + options_.epsilon);
        },
        grads, spread);
    if (options_.momentum > 0) {
      direction =
          map_trees([&](Value old, Value g) { return options_.momentum * old + g; }, state.at("momentum"), direction);
      next.set("momentum", direction);
    }
    const auto descend = [&](Value p, Value by) { return p - rate(p.dtype()) * by; };
    return {map_trees(descend, params, direction), next};
  }

  Tree<Value> observe(const Tree<Value>& state, Value value) const override {
    return learning_rate_.observe(state, value);
  }
  bool observes() const override { return learning_rate_.observes(); }

 private:
  // What rounding leaves of a difference of two that are alike may be below 0, of which there is no root, or nothing, by which a step would
  // have no bound: it is not taken for less than a step of v's own digits.
  static Value variance(Value v, Value m) { return maximum(v - square(m), resolution(v.dtype()) * v); }

  LearningRate learning_rate_;
  RMSpropOptions options_;
};

}  // namespace

RMSprop::RMSprop(const Schedule& learning_rate, const RMSpropOptions& options)
    : Optimizer(RmspropRule(learning_rate, options)) {}

std::vector<OptimizerDef> optimizers_rmsprop() {
  return {{"rmsprop",
           "RMSprop (Hinton 2012)",
           {{"learning_rate", 0.01, "step size (Keras has 0.001)"},
            {"decay", 0.99, "of the mean of squared gradients (Keras has 0.9)"},
            {"epsilon", 1e-8, "beside the root of the mean (Keras has 1e-7)"},
            {"momentum", 0.0, "decay of the velocity; 0: none"},
            {"centered", false, "subtract the square of the mean gradient"},
            {"epsilon_inside", false, "add epsilon under the root, as Keras does"}},
           [](const Config& config, const Schedule& learning_rate) -> Optimizer {
             return RMSprop(learning_rate, {config.number("decay"), config.number("epsilon"), config.number("momentum"),
                                            config.flag("centered"), config.flag("epsilon_inside")});
           }}};
}

}  // namespace hotloop::optim
