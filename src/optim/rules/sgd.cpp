#include "hotloop/ops.h"
#include "optim/registry.h"

namespace hotloop::optim {
namespace {

class SgdRule : public UpdateRule {
 public:
  SgdRule(double learning_rate, double momentum, bool nesterov)
      : learning_rate_(learning_rate), momentum_(momentum), nesterov_(nesterov) {
    if (!(learning_rate >= 0))
      throw UserError("sgd", "the learning rate must not be negative", std::to_string(learning_rate));
    if (!(momentum >= 0)) throw UserError("sgd", "momentum must not be negative", std::to_string(momentum));
    if (nesterov && momentum == 0) throw UserError("sgd", "nesterov needs momentum", "momentum 0", "momentum = 0.9");
  }

  Tree<Array> init(const Tree<Array>& params) const override {
    if (momentum_ == 0) return {};
    return {{"momentum", params.map([](const Array& p) { return Array::zeros(p.dtype(), p.shape()); })}};
  }

  std::pair<Tree<Value>, Tree<Value>> update(const Tree<Value>& grads, const Tree<Value>& state,
                                             const Tree<Value>& params) const override {
    const auto descend = [&](Value p, Value direction) { return p - learning_rate_ * direction; };
    if (momentum_ == 0) return {map_trees(descend, params, grads), state};
    const Tree<Value> velocity =
        map_trees([&](Value v, Value g) { return momentum_ * v + g; }, state.at("momentum"), grads);
    const Tree<Value> direction =
        nesterov_ ? map_trees([&](Value v, Value g) { return g + momentum_ * v; }, velocity, grads) : velocity;
    return {map_trees(descend, params, direction), {{"momentum", velocity}}};
  }

 private:
  double learning_rate_, momentum_;
  bool nesterov_;
};

}  // namespace

SGD::SGD(double learning_rate, double momentum, bool nesterov)
    : Optimizer(SgdRule(learning_rate, momentum, nesterov)) {}

std::vector<OptimizerDef> optimizers_sgd() {
  return {{"sgd",
           "stochastic gradient descent",
           {{"learning_rate", 0.01, "step size"},
            {"momentum", 0.0, "decay of the velocity; 0: none"},
            {"nesterov", false, "look ahead along the velocity"}},
           [](const Config& config) -> Optimizer {
             return SGD(config.number("learning_rate"), config.number("momentum"), config.flag("nesterov"));
           }}};
}

}  // namespace hotloop::optim
