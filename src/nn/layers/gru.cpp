#include "hotloop/ops.h"
#include "nn/recurrent.h"

namespace hotloop::nn {
namespace {

class GruCell : public Cell {
 public:
  GruCell(std::int64_t inputs, std::int64_t hidden, Reset reset) : inputs_(inputs), hidden_(hidden), reset_(reset) {}

  Tree<Array> init(std::uint64_t seed, DType dtype, Init init) const override {
    return init_gated({inputs_, hidden_, 3, reset_ == Reset::After}, seed, dtype, init);
  }

  Tree<Value> initial_state(std::int64_t batch, DType dtype) const override {
    return {{"h", zero_state(batch, hidden_, dtype)}};
  }

  std::pair<Tree<Value>, Value> step(const Tree<Value>& params, const Tree<Value>& state, Value x) const override {
    check_step_input("gru", x, params["weight_ih"]);
    const Value h = state["h"];
    const Value next = reset_ == Reset::After ? reset_after(params, h, x) : reset_before(params, h, x);
    return {{{"h", next}}, next};
  }

 private:
  Value gate(Value gates, std::int64_t k, std::int64_t count = 1) const {
    return narrow(gates, gates.rank() - 1, k * hidden_, count * hidden_);
  }
  Value rows(Value weight, std::int64_t k, std::int64_t count) const {
    return narrow(weight, 0, k * hidden_, count * hidden_);
  }

  Value reset_after(const Tree<Value>& params, Value h, Value x) const {
    const Value from_x = linear(x, params["weight_ih"]) + params["bias_ih"];
    Value from_h = linear(h, params["weight_hh"]);
    if (params.has("bias_hh")) from_h = from_h + params["bias_hh"];
    const Value r = sigmoid(gate(from_x, 0) + gate(from_h, 0)), z = sigmoid(gate(from_x, 1) + gate(from_h, 1));
    const Value n = tanh(gate(from_x, 2) + r * gate(from_h, 2));
    return (1.0 - z) * n + z * h;
  }

  Value reset_before(const Tree<Value>& params, Value h, Value x) const {
    const Value from_x = linear(x, params["weight_ih"]) + summed_bias(params);
    const Value from_h = linear(h, rows(params["weight_hh"], 0, 2));
    const Value r = sigmoid(gate(from_x, 0) + gate(from_h, 0)), z = sigmoid(gate(from_x, 1) + gate(from_h, 1));
    const Value n = tanh(gate(from_x, 2) + linear(r * h, rows(params["weight_hh"], 2, 1)));
    return (1.0 - z) * n + z * h;
  }

  std::int64_t inputs_, hidden_;
  Reset reset_;
};

Layer make(std::int64_t inputs, std::int64_t hidden, std::int64_t num_layers, Reset reset) {
  check_sizes("gru", inputs, hidden, num_layers);
  std::vector<std::shared_ptr<const Cell>> cells;
  for (std::int64_t l = 0; l < num_layers; ++l)
    cells.push_back(std::make_shared<const GruCell>(l == 0 ? inputs : hidden, hidden, reset));
  return stacked_recurrent(std::move(cells));
}

}  // namespace

GRU::GRU(std::int64_t inputs, std::int64_t hidden, std::int64_t num_layers, Reset reset)
    : Layer(make(inputs, hidden, num_layers, reset)) {}

std::vector<LayerDef> layers_gru() {
  std::vector<Parameter> parameters = recurrent_settings();
  parameters.push_back({"reset",
                        "after",
                        "whether the reset gate acts after the recurrent product or before it",
                        false,
                        {"after", "before"}});
  return {{"gru", "gated recurrent unit: (batch, time, features) -> (batch, time, hidden)", parameters,
           [](const Config& config, const ValueType& input) -> Layer {
             return GRU(features_of(input, 3, "gru"), config.integer("hidden"), config.integer("layers"),
                        config.text("reset") == "after" ? Reset::After : Reset::Before);
           }}};
}

}  // namespace hotloop::nn
