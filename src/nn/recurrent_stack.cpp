#include <utility>

#include "core/memory.h"
#include "hotloop/ops.h"
#include "nn/activations.h"
#include "nn/dropout.h"
#include "nn/recurrent.h"

namespace hotloop::nn {
namespace {

// What runs of a stack: a layer in one direction.
struct Pass {
  std::string name;  // of its state: "l0", "l0_reverse"
  bool reverse = false;
};

class RecurrentStack : public BuiltInModule {
 public:
  RecurrentStack(std::vector<std::shared_ptr<const Cell>> cells, const RecurrentOptions& options)
      : cells_(std::move(cells)), options_(options) {}

  Tree<Array> init(const Seed& seed, DType dtype, Init init) const override {
    Tree<Array> params;
    for (std::size_t layer = 0; layer < cells_.size(); ++layer)
      for (const Pass& pass : passes(layer)) {
        const Tree<Array> own = cells_[layer]->init(fold_in(seed, pass.name), dtype, init);
        for (const auto& [name, value] : own.children()) params.set(name + "_" + pass.name, value);
      }
    return params;
  }

  Value apply(const Tree<Value>& params, Value x, Context& context) const override {
    for (std::size_t layer = 0; layer < cells_.size(); ++layer) {
      if (layer > 0 && options_.dropout > 0 && context.is_training())
        x = x * dropout_factor(with_key(context, layer, 2), x.type(), options_.dropout);
      std::vector<Value> outputs;
      for (const Pass& pass : passes(layer)) {
        Context inner = with_key(context, layer, pass.reverse ? 1 : 0);
        inner.reverse = context.reverse != pass.reverse;
        if (context.state) inner.state = single() ? *context.state : context.state->at(pass.name);
        outputs.push_back(
            run_over_time(*cells_[layer], parameters_of(params, pass.name), x, inner, options_.recurrent_dropout));
        if (context.state && single())
          context.state = inner.state;
        else if (context.state)
          context.state->set(pass.name, *inner.state);
      }
      x = outputs.size() == 1 ? outputs[0] : concat(outputs, outputs[0].rank() - 1);
    }
    return x;
  }

  Tree<Value> initial_state(std::int64_t batch, DType dtype) const override {
    if (single()) return cells_[0]->initial_state(batch, dtype);
    Tree<Value> state;
    for (std::size_t layer = 0; layer < cells_.size(); ++layer)
      for (const Pass& pass : passes(layer)) state.set(pass.name, cells_[layer]->initial_state(batch, dtype));
    return state;
  }

 private:
  bool single() const { return cells_.size() == 1 && !options_.bidirectional; }

  std::vector<Pass> passes(std::size_t layer) const {
    const std::string name = "l" + std::to_string(layer);
    if (!options_.bidirectional) return {{name, false}};
    return {{name, false}, {name + "_reverse", true}};
  }

  // Each use of random numbers in each layer has a key of its own.
  static Context with_key(const Context& context, std::size_t layer, std::int64_t use) {
    Context inner = context;
    const auto index = static_cast<std::int64_t>(3 * layer) + use;
    if (context.key.defined()) inner.key = take(random_bits(context.key, {index + 1, 2}), 0, index);
    return inner;
  }

  static Tree<Value> parameters_of(const Tree<Value>& params, const std::string& pass) {
    const std::string suffix = "_" + pass;
    Tree<Value> own;
    for (const auto& [name, value] : params.children())
      if (name.ends_with(suffix)) own.set(name.substr(0, name.size() - suffix.size()), value);
    if (own.empty()) params.at("weight_ih" + suffix);  // throws, naming what is there
    return own;
  }

  std::vector<std::shared_ptr<const Cell>> cells_;
  RecurrentOptions options_;
};

void check_positive(const std::string& where, const std::string& what, std::int64_t value) {
  if (value <= 0) throw UserError(where, what + " must be positive", std::to_string(value));
  if (value > most_elements)
    throw UserError(where, "a weight must have at most 2^59 elements", what + " = " + std::to_string(value));
}

}  // namespace

Layer stacked_recurrent(const std::string& where, std::int64_t inputs, std::int64_t hidden,
                        const RecurrentOptions& options, const MakeCell& make_cell) {
  check_positive(where, "inputs", inputs);
  check_positive(where, "hidden", hidden);
  check_positive(where, "num_layers", options.num_layers);
  check_dropout_rate(where, options.dropout);
  check_dropout_rate(where, options.recurrent_dropout);
  std::vector<std::shared_ptr<const Cell>> cells;
  for (std::int64_t l = 0; l < options.num_layers; ++l)
    cells.push_back(make_cell(l == 0 ? inputs : (options.bidirectional ? 2 : 1) * hidden));
  return Layer(std::make_shared<const RecurrentStack>(std::move(cells), options));
}

std::vector<Parameter> recurrent_settings() {
  return {{"hidden", std::int64_t{0}, "number of hidden units", true},
          {"layers", std::int64_t{1}, "number of stacked layers"},
          {"bidirectional", false, "also run from the last step to the first; outputs side by side"},
          {"dropout", 0.0, "rate between stacked layers"},
          {"recurrent_dropout", 0.0, "rate of h from step to step, the same elements at all steps"}};
}

RecurrentOptions recurrent_options(const Config& config) {
  RecurrentOptions options;
  options.num_layers = config.integer("layers");
  options.bidirectional = config.flag("bidirectional");
  options.dropout = config.number("dropout");
  options.recurrent_dropout = config.number("recurrent_dropout");
  return options;
}

std::vector<Parameter> gate_settings() {
  return {
      {"gate", "sigmoid", "activation of the gates", false, {"sigmoid", "hard_sigmoid_keras2", "hard_sigmoid_keras3"}},
      {"activation", "tanh", "of the candidate and the cell", false, activation_names()}};
}

}  // namespace hotloop::nn
