#include "hotloop/ops.h"
#include "nn/activations.h"
#include "nn/recurrent.h"

namespace hotloop::nn {
namespace {

class GruCell : public Cell {
 public:
  GruCell(std::int64_t inputs, std::int64_t hidden, const RecurrentOptions& options, Reset reset)
      : inputs_(inputs),
        hidden_(hidden),
        reset_(reset),
        gate_(activation_function(options.gate)),
        activation_(activation_function(options.activation)) {}

  Tree<Array> init(const Seed& seed, DType dtype, Init init) const override {
    return init_gated({inputs_, hidden_, 3, reset_ == Reset::After}, seed, dtype, init);
  }

  Tree<Value> initial_state(std::int64_t batch, DType dtype) const override {
    return {{"h", zero_state(batch, hidden_, dtype)}};
  }

  std::pair<Tree<Value>, Value> step(const Tree<Value>& params, const Tree<Value>& state, Value x) const override {
    check_step("gru", {inputs_, hidden_, 3}, params, x);
    const Value next = reset_ == Reset::After ? reset_after(params, state, x) : reset_before(params, state, x);
    return {{{"h", next}}, next};
  }

 private:
  Value gate(Value gates, std::int64_t k, std::int64_t count = 1) const {
    return narrow(gates, gates.rank() - 1, k * hidden_, count * hidden_);
  }
  Value rows(Value weight, std::int64_t k, std::int64_t count) const {
    return narrow(weight, 0, k * hidden_, count * hidden_);
  }

  Value reset_after(const Tree<Value>& params, const Tree<Value>& state, Value x) const {
    const Value from_x = linear(x, params["weight_ih"]) + params["bias_ih"];
    Value from_h = linear(recurrent_input(state), params["weight_hh"]);
    if (params.has("bias_hh")) from_h = from_h + params["bias_hh"];
    const Value r = gate_(gate(from_x, 0) + gate(from_h, 0)), z = gate_(gate(from_x, 1) + gate(from_h, 1));
    const Value n = activation_(gate(from_x, 2) + r * gate(from_h, 2));
    return (1.0 - z) * n + z * state["h"];
  }

  Value reset_before(const Tree<Value>& params, const Tree<Value>& state, Value x) const {
    const Value from_x = linear(x, params["weight_ih"]) + summed_bias(params);
    const Value from_h = linear(recurrent_input(state), rows(params["weight_hh"], 0, 2));
    const Value r = gate_(gate(from_x, 0) + gate(from_h, 0)), z = gate_(gate(from_x, 1) + gate(from_h, 1));
    const Value n = activation_(gate(from_x, 2) + linear(r * recurrent_input(state), rows(params["weight_hh"], 2, 1)));
    return (1.0 - z) * n + z * state["h"];
  }

  std::int64_t inputs_, hidden_;
  Reset reset_;
  ActivationFunction gate_, activation_;
};

}  // namespace

GRU::GRU(std::int64_t inputs, std::int64_t hidden, const RecurrentOptions& options, Reset reset)
    : Layer(stacked_recurrent("gru", inputs, hidden, options, [&](std::int64_t cell_inputs) {
        return std::make_shared<const GruCell>(cell_inputs, hidden, options, reset);
      })) {}

GRU::GRU(std::int64_t inputs, std::int64_t hidden, std::int64_t num_layers, Reset reset)
    : GRU(inputs, hidden, RecurrentOptions{.num_layers = num_layers}, reset) {}

std::vector<LayerDef> layers_gru() {
  std::vector<Parameter> parameters = recurrent_settings();
  for (Parameter& p : gate_settings()) parameters.push_back(std::move(p));
  parameters.push_back({"reset",
                        "after",
                        "whether the reset gate acts after the recurrent product or before it",
                        false,
                        {"after", "before"}});
  return {{"gru", "gated recurrent unit: (batch, time, features) -> (batch, time, hidden)", parameters,
           [](const Config& config, const ValueType& input) -> Layer {
             RecurrentOptions options = recurrent_options(config);
             options.gate = config.text("gate");
             options.activation = config.text("activation");
             return GRU(features_of(input, 3, "gru"), config.integer("hidden"), options,
                        config.text("reset") == "after" ? Reset::After : Reset::Before);
           }}};
}

}  // namespace hotloop::nn
