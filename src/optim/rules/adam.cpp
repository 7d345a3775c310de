#include <cmath>
#include <map>

#include "hotloop/ops.h"
#include "optim/registry.h"

namespace hotloop::optim {
namespace {

class AdamRule : public UpdateRule {
 public:
  AdamRule(double learning_rate, const AdamOptions& options) : learning_rate_(learning_rate), options_(options) {
    if (!(learning_rate >= 0))
      throw UserError("adam", "the learning rate must not be negative", std::to_string(learning_rate));
    for (double beta : {options.beta1, options.beta2})
      if (!(beta >= 0 && beta < 1)) throw UserError("adam", "betas must be in [0, 1)", std::to_string(beta));
    if (!(options.epsilon >= 0))
      throw UserError("adam", "epsilon must not be negative", std::to_string(options.epsilon));
  }

  Tree<Array> init(const Tree<Array>& params) const override {
    const auto zeros = params.map([](const Array& p) { return Array::zeros(p.dtype(), p.shape()); });
    return {{"step", Array::scalar<std::int32_t>(0)}, {"exp_avg", zeros}, {"exp_avg_sq", zeros}};
  }

  std::pair<Tree<Value>, Tree<Value>> update(const Tree<Value>& grads, const Tree<Value>& state,
                                             const Tree<Value>& params) const override {
    const Value step = state["step"] + constant(1, DType::I32);
    const double b1 = options_.beta1, b2 = options_.beta2;
    const Tree<Value> m =
        map_trees([&](Value old, Value g) { return b1 * old + (1 - b1) * g; }, state.at("exp_avg"), grads);
    const Tree<Value> v =
        map_trees([&](Value old, Value g) { return b2 * old + (1 - b2) * square(g); }, state.at("exp_avg_sq"), grads);
    // Once a dtype, not once a parameter.
    std::map<DType, Scales> scales;
    params.for_each([&](const std::string&, Value p) {
      if (!scales.contains(p.dtype())) scales[p.dtype()] = scales_at(step, p.dtype());
    });
    const Tree<Value> updated = map_trees(
        [&](Value p, Value m_p, Value v_p) {
          const Scales& s = scales.at(p.dtype());
          const Value root = options_.epsilon_hat ? sqrt(v_p) : sqrt(v_p) * s.root;
          return p - s.step_size * m_p / (root + options_.epsilon);
        },
        params, m, v);
    return {updated, {{"step", step}, {"exp_avg", m}, {"exp_avg_sq", v}}};
  }

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

  Scales scales_at(Value step, DType dtype) const {
    const Value c1 = correction(options_.beta1, step, dtype);
    const Value root_c2 = sqrt(correction(options_.beta2, step, dtype));
    if (options_.epsilon_hat) return {learning_rate_ * root_c2 / c1, {}};
    return {learning_rate_ / c1, 1.0 / root_c2};
  }

  double learning_rate_;
  AdamOptions options_;
};

}  // namespace

Adam::Adam(double learning_rate, const AdamOptions& options) : Optimizer(AdamRule(learning_rate, options)) {}

std::vector<OptimizerDef> optimizers_adam() {
  return {{"adam",
           "Adam (Kingma and Ba 2015)",
           {{"learning_rate", 1e-3, "step size"},
            {"beta1", 0.9, "decay of the mean of gradients"},
            {"beta2", 0.999, "decay of the mean of squared gradients"},
            {"epsilon", 1e-8, "added to the root of the second mean (Keras has 1e-7)"},
            {"epsilon_hat", false, "add epsilon before the bias correction, as Keras does"}},
           [](const Config& config) -> Optimizer {
             return Adam(config.number("learning_rate"), {config.number("beta1"), config.number("beta2"),
                                                          config.number("epsilon"), config.flag("epsilon_hat")});
           }}};
}

}  // namespace hotloop::optim
