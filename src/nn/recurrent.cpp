#include "nn/recurrent.h"

#include <cmath>
#include <numeric>

#include "hotloop/ops.h"
#include "nn/dropout.h"
#include "nn/parameters.h"

namespace hotloop::nn {
namespace {

// x with its first two axes exchanged.
Value swap_batch_and_time(Value x) {
  std::vector<std::int64_t> permutation(static_cast<std::size_t>(x.rank()));
  std::iota(permutation.begin(), permutation.end(), 0);
  std::swap(permutation[0], permutation[1]);
  return transpose(x, permutation);
}

// bool (B, T): whether step t of the row is one of its first lengths.
Value valid_steps_of(Value lengths, std::int64_t batch, std::int64_t time) {
  if (lengths.type() != ValueType{DType::I32, {batch}})
    throw UserError("lengths", "there must be one length a row, " + ValueType{DType::I32, {batch}}.str(),
                    lengths.type().str(),
                    lengths.shape() == Shape{batch}
                        ? "cast() them to i32"
                        : "the steps of each row before its padding, " + std::to_string(time) + " for a row without");
  const Shape shape{batch, time};
  return less(iota(DType::I32, shape, 1), broadcast(lengths, shape, {0}));
}

std::string describe(const Tree<Value>& state) {
  std::string text;
  state.for_each([&](const std::string& name, Value v) {
    text +=
        (text.empty() ? "" : ", ") + (name.empty() ? "" : name + " ") + (v.defined() ? v.type().str() : "undefined");
  });
  return text.empty() ? "no leaves" : text;
}

void check_same_state(const Tree<Value>& wanted, const Tree<Value>& received, const std::string& requirement) {
  bool same = wanted.names() == received.names();
  if (same) {
    const std::vector<Value> a = wanted.flatten(), b = received.flatten();
    for (std::size_t i = 0; i < a.size(); ++i) same = same && b[i].defined() && a[i].type() == b[i].type();
  }
  if (!same) throw UserError("recurrent", requirement + ", " + describe(wanted), describe(received));
}

}  // namespace

Value run_over_time(const Cell& cell, const Tree<Value>& params, Value x, Context& context, double recurrent_dropout) {
  if (x.rank() < 3)
    throw UserError("recurrent", "the input must be a sequence (batch, time, features)", x.type().str(),
                    "add the missing axis, or put recurrent layers before Last");
  const std::int64_t batch = x.shape()[0];
  const Tree<Value> fresh = cell.initial_state(batch, x.dtype());
  std::optional<Tree<Value>>& state = context.state;
  if (state) check_same_state(fresh, *state, "the given state must be as the cell's initial state");
  const Tree<Value> first = state ? *state : fresh;

  // One mask for all steps (Gal and Ghahramani 2016).
  Value kept;
  if (recurrent_dropout > 0 && context.is_training())
    kept = dropout_factor(context, first["h"].type(), recurrent_dropout);

  const auto body = [&](std::span<const Value> carry, std::span<const Value> xs) {
    Tree<Value> before = first.unflatten(carry);
    if (kept.defined()) before.set("h_dropped", before["h"] * kept);
    auto [next, y] = cell.step(params, before, xs[0]);
    check_same_state(first, next, "a cell's step must give a state as its initial state");
    if (!y.defined() || y.rank() < 1 || y.shape()[0] != batch)
      throw UserError("recurrent",
                      "a cell's output must have the batch of " + std::to_string(batch) + " as its first axis",
                      y.defined() ? y.type().str() : "an undefined value");
    std::vector<Value> new_carry = next.flatten();
    if (xs.size() > 1) {  // rows whose steps are over keep their state
      const auto where_valid = [&](Value a, Value b) { return select(broadcast(xs[1], a.shape(), {0}), a, b); };
      for (std::size_t i = 0; i < new_carry.size(); ++i) new_carry[i] = where_valid(new_carry[i], carry[i]);
      y = where_valid(y, zeros_like(y));
    }
    return std::pair(new_carry, std::vector<Value>{y});
  };
  std::vector<Value> xs = {swap_batch_and_time(x)};
  if (context.lengths.defined())
    xs.push_back(swap_batch_and_time(valid_steps_of(context.lengths, batch, x.shape()[1])));
  ScanOptions options;
  options.reverse = context.reverse;
  const auto [last, ys] = scan(body, first.flatten(), xs, options);
  if (state) state = first.unflatten(last);
  return swap_batch_and_time(ys[0]);
}

Tree<Array> init_gated(const GatedParameters& sizes, const Seed& seed, DType dtype, Init init) {
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

Value recurrent_input(const Tree<Value>& state) { return state.has("h_dropped") ? state["h_dropped"] : state["h"]; }

Value summed_bias(const Tree<Value>& params) {
  return params.has("bias_hh") ? params["bias_ih"] + params["bias_hh"] : params["bias_ih"];
}

void check_step(const std::string& where, const GatedParameters& sizes, const Tree<Value>& params, Value x) {
  const std::int64_t inputs = sizes.inputs, rows = sizes.gates * sizes.hidden;
  check_parameters(
      where, params,
      {{"weight_ih", {rows, inputs}}, {"weight_hh", {rows, sizes.hidden}}, {"bias_ih", {rows}}, {"bias_hh", {rows}}});
  const Value weight_ih = params["weight_ih"];
  if (x.rank() != 2 || x.shape()[1] != inputs) {
    // An embedding of (batch, time, 1) has one axis more than one of (batch, time).
    const std::string remedy =
        x.rank() > 2 ? "(batch, time, features) to the layer; if an Embedding gives it, ids (batch, time), or "
                       "feature = 0 for ids that are the first feature"
                     : "make the layer with as many inputs as the data has features";
    throw UserError(where, "a step's input must be (batch, " + std::to_string(inputs) + ")", x.type().str(), remedy);
  }
  if (x.dtype() != weight_ih.dtype())
    throw UserError(where, "input and parameters must have one dtype",
                    x.type().str() + " and " + weight_ih.type().str(),
                    "cast the input, or init the parameters in its dtype");
}

Value valid_steps(Value x, Value lengths) {
  if (x.rank() < 2) throw UserError("lengths", "only a sequence (batch, time, ...) has lengths", x.type().str());
  return broadcast(valid_steps_of(lengths, x.shape()[0], x.shape()[1]), x.shape(), {0, 1});
}

Value without_padding(Value x, Value lengths) {
  return lengths.defined() && is_float(x.dtype()) ? select(valid_steps(x, lengths), x, zeros_like(x)) : x;
}

Value zero_state(std::int64_t batch, std::int64_t features, DType dtype) {
  return constant(0.0, dtype, {batch, features});
}

Value linear(Value x, Value weight) { return dot(x, weight, {{x.rank() - 1}, {1}, {}, {}}); }

Value linear(Value x, Value weight, Value bias) { return linear(x, weight) + bias; }

}  // namespace hotloop::nn
