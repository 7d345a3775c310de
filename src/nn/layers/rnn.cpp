#include "hotloop/ops.h"
#include "nn/recurrent.h"

namespace hotloop::nn {
namespace {

class RnnCell : public Cell {
 public:
  RnnCell(std::int64_t inputs, std::int64_t hidden, Nonlinearity nonlinearity)
      : inputs_(inputs), hidden_(hidden), nonlinearity_(nonlinearity) {}

  Tree<Array> init(const Seed& seed, DType dtype, Init init) const override {
    return init_gated({inputs_, hidden_, 1}, seed, dtype, init);
  }

  Tree<Value> initial_state(std::int64_t batch, DType dtype) const override {
    return {{"h", zero_state(batch, hidden_, dtype)}};
  }

  std::pair<Tree<Value>, Value> step(const Tree<Value>& params, const Tree<Value>& state, Value x) const override {
    check_step("rnn", {inputs_, hidden_, 1}, params, x);
    const Value sum =
        linear(x, params["weight_ih"]) + linear(recurrent_input(state), params["weight_hh"]) + summed_bias(params);
    const Value h = nonlinearity_ == Nonlinearity::Tanh ? tanh(sum) : relu(sum);
    return {{{"h", h}}, h};
  }

 private:
  std::int64_t inputs_, hidden_;
  Nonlinearity nonlinearity_;
};

}  // namespace

RNN::RNN(std::int64_t inputs, std::int64_t hidden, const RecurrentOptions& options, Nonlinearity nonlinearity)
    : Layer(stacked_recurrent("rnn", inputs, hidden, options, [&](std::int64_t cell_inputs) {
        return std::make_shared<const RnnCell>(cell_inputs, hidden, nonlinearity);
      })) {}

RNN::RNN(std::int64_t inputs, std::int64_t hidden, std::int64_t num_layers, Nonlinearity nonlinearity)
    : RNN(inputs, hidden, RecurrentOptions{.num_layers = num_layers}, nonlinearity) {}

std::vector<LayerDef> layers_rnn() {
  std::vector<Parameter> parameters = recurrent_settings();
  parameters.push_back({"nonlinearity", "tanh", "of the new state", false, {"tanh", "relu"}});
  return {{"rnn", "plain recurrent network: (batch, time, features) -> (batch, time, hidden)", parameters,
           [](const Config& config, const ValueType& input) -> Layer {
             return RNN(features_of(input, 3, "rnn"), config.integer("hidden"), recurrent_options(config),
                        config.text("nonlinearity") == "tanh" ? Nonlinearity::Tanh : Nonlinearity::Relu);
           }}};
}

}  // namespace hotloop::nn
