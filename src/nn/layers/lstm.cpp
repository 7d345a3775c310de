#include "hotloop/ops.h"
#include "nn/activations.h"
#include "nn/recurrent.h"

namespace hotloop::nn {
namespace {

class LstmCell : public Cell {
 public:
  LstmCell(std::int64_t inputs, std::int64_t hidden, const RecurrentOptions& options)
      : inputs_(inputs),
        hidden_(hidden),
        gate_(activation_function(options.gate)),
        activation_(activation_function(options.activation)) {}

  Tree<Array> init(const Seed& seed, DType dtype, Init init) const override {
    Tree<Array> params = init_gated({inputs_, hidden_, 4}, seed, dtype, init);
    if (init == Init::Keras)  // unit_forget_bias (Jozefowicz et al. 2015)
      for (std::int64_t i = hidden_; i < 2 * hidden_; ++i) params["bias_ih"].set(i, 1);
    return params;
  }

  Tree<Value> initial_state(std::int64_t batch, DType dtype) const override {
    return {{"h", zero_state(batch, hidden_, dtype)}, {"c", zero_state(batch, hidden_, dtype)}};
  }

  std::pair<Tree<Value>, Value> step(const Tree<Value>& params, const Tree<Value>& state, Value x) const override {
    check_step("lstm", {inputs_, hidden_, 4}, params, x);
    const Value gates =
        linear(x, params["weight_ih"]) + linear(recurrent_input(state), params["weight_hh"]) + summed_bias(params);
    const auto gate = [&](std::int64_t k) { return narrow(gates, 1, k * hidden_, hidden_); };
    const Value i = gate_(gate(0)), f = gate_(gate(1)), g = activation_(gate(2)), o = gate_(gate(3));
    const Value c = f * state["c"] + i * g;
    const Value h = o * activation_(c);
    return {{{"h", h}, {"c", c}}, h};
  }

 private:
  std::int64_t inputs_, hidden_;
  ActivationFunction gate_, activation_;
};

}  // namespace

LSTM::LSTM(std::int64_t inputs, std::int64_t hidden, const RecurrentOptions& options)
    : Layer(stacked_recurrent("lstm", inputs, hidden, options, [&](std::int64_t cell_inputs) {
        return std::make_shared<const LstmCell>(cell_inputs, hidden, options);
      })) {}

LSTM::LSTM(std::int64_t inputs, std::int64_t hidden, std::int64_t num_layers)
    : LSTM(inputs, hidden, RecurrentOptions{.num_layers = num_layers}) {}

std::vector<LayerDef> layers_lstm() {
  std::vector<Parameter> parameters = recurrent_settings();
  for (Parameter& p : gate_settings()) parameters.push_back(std::move(p));
  return {{"lstm", "long short-term memory: (batch, time, features) -> (batch, time, hidden)", parameters,
           [](const Config& config, const ValueType& input) -> Layer {
             RecurrentOptions options = recurrent_options(config);
             options.gate = config.text("gate");
             options.activation = config.text("activation");
             return LSTM(features_of(input, 3, "lstm"), config.integer("hidden"), options);
           }}};
}

}  // namespace hotloop::nn
