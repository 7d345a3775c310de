#include "nn/recurrent.h"

#include <cmath>
#include <numeric>

#include "hotloop/ops.h"

namespace hotloop::nn {
namespace {

// x with its first two axes exchanged.
Value swap_batch_and_time(Value x) {
  std::vector<std::int64_t> permutation(static_cast<std::size_t>(x.rank()));
  std::iota(permutation.begin(), permutation.end(), 0);
  std::swap(permutation[0], permutation[1]);
  return transpose(x, permutation);
}

std::string describe(const Tree<Value>& state) {
  std::string text;
  state.for_each([&](const std::string& name, Value v) {
    text += (text.empty() ? "" : ", ") + (name.empty() ? "" : name + " ") + (v ? v.type().str() : "undefined");
  });
  return text.empty() ? "no leaves" : text;
}

void check_same_state(const Tree<Value>& wanted, const Tree<Value>& received, const std::string& requirement) {
  bool same = wanted.names() == received.names();
  if (same) {
    const std::vector<Value> a = wanted.flatten(), b = received.flatten();
    for (std::size_t i = 0; i < a.size(); ++i) same = same && b[i] && a[i].type() == b[i].type();
  }
  if (!same) throw UserError("recurrent", requirement + ", " + describe(wanted), describe(received));
}

class StackedRecurrent : public Module {
 public:
  explicit StackedRecurrent(std::vector<std::shared_ptr<const Cell>> cells) : cells_(std::move(cells)) {}

  Tree<Array> init(std::uint64_t seed, DType dtype, Init init) const override {
    Tree<Array> params;
    for (std::size_t layer = 0; layer < cells_.size(); ++layer) {
      const Tree<Array> own = cells_[layer]->init(fold_in(seed, child(layer)), dtype, init);
      for (const auto& [name, value] : own.children()) params.set(name + "_" + child(layer), value);
    }
    return params;
  }

  Value apply(const Tree<Value>& params, Value x, Context& context) const override {
    for (std::size_t layer = 0; layer < cells_.size(); ++layer) {
      std::optional<Tree<Value>> state;
      if (context.state) state = cells_.size() == 1 ? *context.state : context.state->at(child(layer));
      x = run_over_time(*cells_[layer], parameters_of(params, layer), x, state);
      if (context.state && cells_.size() == 1)
        context.state = state;
      else if (context.state)
        context.state->set(child(layer), *state);
    }
    return x;
  }

  Tree<Value> initial_state(std::int64_t batch, DType dtype) const override {
    if (cells_.size() == 1) return cells_[0]->initial_state(batch, dtype);
    Tree<Value> state;
    for (std::size_t layer = 0; layer < cells_.size(); ++layer)
      state.set(child(layer), cells_[layer]->initial_state(batch, dtype));
    return state;
  }

 private:
  static std::string child(std::size_t layer) { return "l" + std::to_string(layer); }

  static Tree<Value> parameters_of(const Tree<Value>& params, std::size_t layer) {
    const std::string suffix = "_" + child(layer);
    Tree<Value> own;
    for (const auto& [name, value] : params.children())
      if (name.ends_with(suffix)) own.set(name.substr(0, name.size() - suffix.size()), value);
    if (own.empty()) params.at("weight_ih" + suffix);  // throws, naming what is there
    return own;
  }

  std::vector<std::shared_ptr<const Cell>> cells_;
};

}  // namespace

Value run_over_time(const Cell& cell, const Tree<Value>& params, Value x, std::optional<Tree<Value>>& state) {
  if (x.rank() < 3)
    throw UserError("recurrent", "the input must be a sequence (batch, time, features)", x.type().str(),
                    "add the missing axis, or put recurrent layers before Last");
  const std::int64_t batch = x.shape()[0];
  const Tree<Value> fresh = cell.initial_state(batch, x.dtype());
  if (state) check_same_state(fresh, *state, "the given state must be as the cell's initial state");
  const Tree<Value> first = state ? *state : fresh;

  const auto body = [&](std::span<const Value> carry, std::span<const Value> xs) {
    auto [next, y] = cell.step(params, first.unflatten(carry), xs[0]);
    check_same_state(first, next, "a cell's step must give a state as its initial state");
    if (!y || y.rank() < 1 || y.shape()[0] != batch)
      throw UserError("recurrent",
                      "a cell's output must have the batch of " + std::to_string(batch) + " as its first axis",
                      y ? y.type().str() : "an undefined value");
    return std::pair(next.flatten(), std::vector<Value>{y});
  };
  const std::vector<Value> xs = {swap_batch_and_time(x)};
  const auto [last, ys] = scan(body, first.flatten(), xs);
  if (state) state = first.unflatten(last);
  return swap_batch_and_time(ys[0]);
}

Layer stacked_recurrent(std::vector<std::shared_ptr<const Cell>> cells) {
  return Layer(std::make_shared<const StackedRecurrent>(std::move(cells)));
}

Tree<Array> init_gated(const GatedParameters& sizes, std::uint64_t seed, DType dtype, Init init) {
  const std::int64_t rows = sizes.gates * sizes.hidden;
  const Shape ih{rows, sizes.inputs}, hh{rows, sizes.hidden}, bias{rows};
  Tree<Array> params;
  if (init == Init::Torch) {
    const double bound = 1 / std::sqrt(static_cast<double>(sizes.hidden));
    for (const auto& [name, shape] :
         {std::pair<const char*, Shape>{"weight_ih", ih}, {"weight_hh", hh}, {"bias_ih", bias}, {"bias_hh", bias}})
      params.set(name, uniform(fold_in(seed, name), shape, dtype, -bound, bound));
    return params;
  }
  params.set("weight_ih", glorot_uniform(fold_in(seed, "weight_ih"), ih, dtype));
  params.set("weight_hh", orthogonal(fold_in(seed, "weight_hh"), hh, dtype));
  params.set("bias_ih", Array::zeros(dtype, bias));
  if (sizes.two_keras_biases) params.set("bias_hh", Array::zeros(dtype, bias));
  return params;
}

Value summed_bias(const Tree<Value>& params) {
  return params.has("bias_hh") ? params["bias_ih"] + params["bias_hh"] : params["bias_ih"];
}

void check_step_input(const std::string& where, Value x, Value weight_ih) {
  const std::int64_t inputs = weight_ih.shape()[1];
  if (x.rank() != 2 || x.shape()[1] != inputs)
    throw UserError(where, "a step's input must be (batch, " + std::to_string(inputs) + ")", x.type().str(),
                    "make the layer with as many inputs as the data has features");
  if (x.dtype() != weight_ih.dtype())
    throw UserError(where, "input and parameters must have one dtype",
                    x.type().str() + " and " + weight_ih.type().str(), "init the parameters in the dtype of the data");
}

void check_sizes(const std::string& where, std::int64_t inputs, std::int64_t hidden, std::int64_t num_layers) {
  const auto positive = [&](const std::string& what, std::int64_t value) {
    if (value <= 0) throw UserError(where, what + " must be positive", std::to_string(value));
  };
  positive("inputs", inputs);
  positive("hidden", hidden);
  positive("num_layers", num_layers);
}

std::vector<Parameter> recurrent_settings() {
  return {{"hidden", std::int64_t{0}, "number of hidden units", true},
          {"layers", std::int64_t{1}, "number of stacked layers"}};
}

Value zero_state(std::int64_t batch, std::int64_t features, DType dtype) {
  return constant(0.0, dtype, {batch, features});
}

Value linear(Value x, Value weight) { return dot(x, weight, {{x.rank() - 1}, {1}, {}, {}}); }

}  // namespace hotloop::nn
