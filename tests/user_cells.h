// Recurrent cells written as a user would write them: nothing in the library knows them.
//
// The engine must make them as fast as its own LSTM: tests of structure and benchmarks use them untouched.
#pragma once

#include <string>

#include "hotloop/nn.h"
#include "hotloop/ops.h"

namespace hotloop::testing {

// LSTM with layer normalisation of each gate's sum and of the cell (Ba et al. 2016), and separate weights for each gate:
// names W_i, U_i, gain_i, bias_i, ... for i, f, g, o; W (H, I), U (H, H), gain, bias (H); gain_c, bias_c (H).
class LayerNormLstmCell : public nn::Cell {
 public:
  LayerNormLstmCell(std::int64_t inputs, std::int64_t hidden) : inputs_(inputs), hidden_(hidden) {}

  Tree<Array> init(const nn::Seed& seed, DType dtype, nn::Init) const override {
    Tree<Array> params;
    for (const std::string gate : {"i", "f", "g", "o"}) {
      params.set("W_" + gate, nn::glorot_uniform(nn::fold_in(seed, "W_" + gate), {hidden_, inputs_}, dtype));
      params.set("U_" + gate, nn::orthogonal(nn::fold_in(seed, "U_" + gate), {hidden_, hidden_}, dtype));
      params.set("gain_" + gate, Array::full(dtype, {hidden_}, 1));
      params.set("bias_" + gate, Array::full(dtype, {hidden_}, gate == "f" ? 1 : 0));
    }
    params.set("gain_c", Array::full(dtype, {hidden_}, 1));
    params.set("bias_c", Array::zeros(dtype, {hidden_}));
    return params;
  }

  Tree<Value> initial_state(std::int64_t batch, DType dtype) const override {
    return {{"h", nn::zero_state(batch, hidden_, dtype)}, {"c", nn::zero_state(batch, hidden_, dtype)}};
  }

  std::pair<Tree<Value>, Value> step(const Tree<Value>& p, const Tree<Value>& state, Value x) const override {
    const auto gate = [&](const std::string& name) {
      const Value sum = nn::linear(x, p["W_" + name]) + nn::linear(state["h"], p["U_" + name]);
      return nn::layer_norm(sum, p["gain_" + name], p["bias_" + name]);
    };
    const Value i = sigmoid(gate("i")), f = sigmoid(gate("f")), g = tanh(gate("g")), o = sigmoid(gate("o"));
    const Value c = f * state["c"] + i * g;
    const Value h = o * tanh(nn::layer_norm(c, p["gain_c"], p["bias_c"]));
    return {{{"h", h}, {"c", c}}, h};
  }

 private:
  std::int64_t inputs_, hidden_;
};

// LSTM with peepholes (Gers and Schmidhuber 2000), whose gates are each sliced from a sum that is written again: W (4H, I), U (4H, H), b (4H);
// peep_i, peep_f, peep_o (H).
class SlicedGatesCell : public nn::Cell {
 public:
  SlicedGatesCell(std::int64_t inputs, std::int64_t hidden) : inputs_(inputs), hidden_(hidden) {}

  Tree<Array> init(const nn::Seed& seed, DType dtype, nn::Init) const override {
    Tree<Array> params;
    params.set("W", nn::glorot_uniform(nn::fold_in(seed, "W"), {4 * hidden_, inputs_}, dtype));
    params.set("U", nn::glorot_uniform(nn::fold_in(seed, "U"), {4 * hidden_, hidden_}, dtype));
    params.set("b", nn::uniform(nn::fold_in(seed, "b"), {4 * hidden_}, dtype, -0.1, 0.1));
    for (const std::string name : {"peep_i", "peep_f", "peep_o"})
      params.set(name, nn::uniform(nn::fold_in(seed, name), {hidden_}, dtype, -0.5, 0.5));
    return params;
  }

  Tree<Value> initial_state(std::int64_t batch, DType dtype) const override {
    return {{"h", nn::zero_state(batch, hidden_, dtype)}, {"c", nn::zero_state(batch, hidden_, dtype)}};
  }

  std::pair<Tree<Value>, Value> step(const Tree<Value>& p, const Tree<Value>& state, Value x) const override {
    const auto gate = [&](std::int64_t k) {
      const Value sum = nn::linear(x, p["W"]) + nn::linear(state["h"], p["U"]) + p["b"];
      return narrow(sum, 1, k * hidden_, hidden_);
    };
    const Value i = sigmoid(gate(0) + p["peep_i"] * state["c"]), f = sigmoid(gate(1) + p["peep_f"] * state["c"]);
    const Value c = f * state["c"] + i * tanh(gate(2));
    const Value h = sigmoid(gate(3) + p["peep_o"] * c) * tanh(c);
    return {{{"h", h}, {"c", c}}, h};
  }

 private:
  std::int64_t inputs_, hidden_;
};

// An odd one: the input gate is coupled to the forget gate (i = 1 - f, Greff et al. 2017), gates look at the cell through
// peepholes, the candidate is softplus - a log, a fast and a slow cell decay at learned rates, and the output (B, 2H) is not the
// state. Weights for each gate: W_f, U_f, b_f, ...; peep_f, peep_o, rate (H).
class CoupledTwoSpeedCell : public nn::Cell {
 public:
  CoupledTwoSpeedCell(std::int64_t inputs, std::int64_t hidden) : inputs_(inputs), hidden_(hidden) {}

  Tree<Array> init(const nn::Seed& seed, DType dtype, nn::Init) const override {
    Tree<Array> params;
    for (const std::string gate : {"f", "g", "o"}) {
      params.set("W_" + gate, nn::glorot_uniform(nn::fold_in(seed, "W_" + gate), {hidden_, inputs_}, dtype));
      params.set("U_" + gate, nn::orthogonal(nn::fold_in(seed, "U_" + gate), {hidden_, hidden_}, dtype));
      params.set("b_" + gate, nn::uniform(nn::fold_in(seed, "b_" + gate), {hidden_}, dtype, -0.1, 0.1));
    }
    for (const std::string name : {"peep_f", "peep_o", "rate"})
      params.set(name, nn::uniform(nn::fold_in(seed, name), {hidden_}, dtype, -0.5, 0.5));
    return params;
  }

  Tree<Value> initial_state(std::int64_t batch, DType dtype) const override {
    return {{"h", nn::zero_state(batch, hidden_, dtype)},
            {"fast", nn::zero_state(batch, hidden_, dtype)},
            {"slow", constant(0.5, dtype, {batch, hidden_})}};
  }

  std::pair<Tree<Value>, Value> step(const Tree<Value>& p, const Tree<Value>& state, Value x) const override {
    const auto sum = [&](const std::string& name) {
      return nn::linear(x, p["W_" + name]) + nn::linear(state["h"], p["U_" + name]) + p["b_" + name];
    };
    const Value f = sigmoid(sum("f") + p["peep_f"] * state["fast"]);
    const Value fast = f * state["fast"] + (1.0 - f) * (softplus(sum("g")) - 0.69);
    const Value keep = sigmoid(p["rate"]);
    const Value slow = keep * state["slow"] + (1.0 - keep) * fast;
    const Value o = sigmoid(sum("o") + p["peep_o"] * fast);
    const Value h = o * tanh(fast - slow);
    const Value outputs[] = {h, slow};
    return {{{"h", h}, {"fast", fast}, {"slow", slow}}, concat(outputs, 1)};
  }

 private:
  std::int64_t inputs_, hidden_;
};

// Functions that other libraries take from the C library, of near arguments and of far ones. W (H, I), U (H, H).
class FunctionsCell : public nn::Cell {
 public:
  FunctionsCell(std::int64_t inputs, std::int64_t hidden) : inputs_(inputs), hidden_(hidden) {}

  Tree<Array> init(const nn::Seed& seed, DType dtype, nn::Init) const override {
    return {{"W", nn::uniform(nn::fold_in(seed, "W"), {hidden_, inputs_}, dtype, -1, 1)},
            {"U", nn::uniform(nn::fold_in(seed, "U"), {hidden_, hidden_}, dtype, -0.3, 0.3)}};
  }
  Tree<Value> initial_state(std::int64_t batch, DType dtype) const override {
    return {{"h", nn::zero_state(batch, hidden_, dtype)}};
  }
  std::pair<Tree<Value>, Value> step(const Tree<Value>& p, const Tree<Value>& state, Value x) const override {
    const Value a = nn::linear(x, p["W"]) + nn::linear(state["h"], p["U"]);
    const Value angles = sin(a * 3.0) + cos(a) + sin(a * 1e7) * cos(a * 1e9);
    const Value remainders = rem(a * 9.0, 2.0 + sin(a)) + rem(a * 1e20, 0.7 + a * a);
    const Value h = tanh(angles + erf(a) + pow(abs(a) + 0.1, a) + remainders);
    return {{{"h", h}}, h};
  }

 private:
  std::int64_t inputs_, hidden_;
};

}  // namespace hotloop::testing
