#include "hotloop/ops.h"
#include "nn/recurrent.h"

namespace hotloop::nn {
namespace {

class LstmCell : public Cell {
 public:
  LstmCell(std::int64_t inputs, std::int64_t hidden) : inputs_(inputs), hidden_(hidden) {}

  Tree<Array> init(std::uint64_t seed, DType dtype, Init init) const override {
    Tree<Array> params = init_gated({inputs_, hidden_, 4}, seed, dtype, init);
    if (init == Init::Keras)  // unit_forget_bias (Jozefowicz et al. 2015)
      for (std::int64_t i = hidden_; i < 2 * hidden_; ++i) params["bias_ih"].set(i, 1);
    return params;
  }

  Tree<Value> initial_state(std::int64_t batch, DType dtype) const override {
    return {{"h", zero_state(batch, hidden_, dtype)}, {"c", zero_state(batch, hidden_, dtype)}};
  }

  std::pair<Tree<Value>, Value> step(const Tree<Value>& params, const Tree<Value>& state, Value x) const override {
    check_step_input("lstm", x, params["weight_ih"]);
    const Value gates = linear(x, params["weight_ih"]) + linear(state["h"], params["weight_hh"]) + summed_bias(params);
    const auto gate = [&](std::int64_t k) { return narrow(gates, 1, k * hidden_, hidden_); };
    const Value i = sigmoid(gate(0)), f = sigmoid(gate(1)), g = tanh(gate(2)), o = sigmoid(gate(3));
    const Value c = f * state["c"] + i * g;
    const Value h = o * tanh(c);
    return {{{"h", h}, {"c", c}}, h};
  }

 private:
  std::int64_t inputs_, hidden_;
};

Layer make(std::int64_t inputs, std::int64_t hidden, std::int64_t num_layers) {
  check_sizes("lstm", inputs, hidden, num_layers);
  std::vector<std::shared_ptr<const Cell>> cells;
  for (std::int64_t l = 0; l < num_layers; ++l)
    cells.push_back(std::make_shared<const LstmCell>(l == 0 ? inputs : hidden, hidden));
  return stacked_recurrent(std::move(cells));
}

}  // namespace

LSTM::LSTM(std::int64_t inputs, std::int64_t hidden, std::int64_t num_layers)
    : Layer(make(inputs, hidden, num_layers)) {}

std::vector<LayerDef> layers_lstm() {
  return {{"lstm", "long short-term memory: (batch, time, features) -> (batch, time, hidden)", recurrent_settings(),
           [](const Config& config, const ValueType& input) -> Layer {
             return LSTM(features_of(input, 3, "lstm"), config.integer("hidden"), config.integer("layers"));
           }}};
}

}  // namespace hotloop::nn
