#include "core/print_number.h"
#include "hotloop/ops.h"
#include "optim/learning_rate.h"
#include "optim/registry.h"

namespace hotloop::optim {
namespace {

class SgdRule : public UpdateRule {
 public:
  SgdRule(const Schedule& learning_rate, double momentum, bool nesterov)
      : learning_rate_("sgd", learning_rate), momentum_(momentum), nesterov_(nesterov) {
    if (!(momentum >= 0)) throw UserError("sgd", "momentum must not be negative", print_number(momentum));
    if (nesterov && momentum == 0) throw UserError("sgd", "nesterov needs momentum", "momentum 0", "momentum = 0.9");
  }

  Tree<Array> init(const Tree<Array>& params) const override {
    Tree<Array> state = learning_rate_.init();
    if (momentum_ > 0)
      state.set("momentum", params.map([](const Array& p) { return Array::zeros(p.dtype(), p.shape()); }));
    return state;
  }

  std::pair<Tree<Value>, Tree<Value>> update(const Tree<Value>& grads, const Tree<Value>& state,
                                             const Tree<Value>& params) const override {
    const LearningRate::Now rate = learning_rate_.now(state);
    const auto descend = [&](Value p, Value direction) { return p - rate(p.dtype()) * direction; };
    Tree<Value> next = rate.next();
    if (momentum_ == 0) return {map_trees(descend, params, grads), next};
    const Tree<Value> velocity =
        map_trees([&](Value v, Value g) { return momentum_ * v + g; }, state.at("momentum"), grads);
    const Tree<Value> direction =
        nesterov_ ? map_trees([&](Value v, Value g) { return g + momentum_ * v; }, velocity, grads) : velocity;
    next.set("momentum", velocity);
    return {map_trees(descend, params, direction), next};
  }

  Tree<Value> observe(const Tree<Value>& state, Value value) const override {
    return learning_rate_.observe(state, value);
  }
  bool observes() const override { return learning_rate_.observes(); }

 private:
  LearningRate learning_rate_;
  double momentum_;
  bool nesterov_;
};

}  // namespace

SGD::SGD(const Schedule& learning_rate, double momentum, bool nesterov)
    : Optimizer(SgdRule(learning_rate, momentum, nesterov)) {}

std::vector<OptimizerDef> optimizers_sgd() {
  return {{"sgd",
           "stochastic gradient descent",
           {{"learning_rate", 0.01, "step size"},
            {"momentum", 0.0, "decay of the velocity; 0: none"},
            {"nesterov", false, "look ahead along the velocity"}},
           [](const Config& config, const Schedule& learning_rate) -> Optimizer {
             return SGD(learning_rate, config.number("momentum"), config.flag("nesterov"));
           }}};
}

}  // namespace hotloop::optim
