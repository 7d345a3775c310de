// Recurrent cells written as a user would, each gate with weights of its own, and their training losses. Nothing in
// Hotloop knows these cells.
#pragma once

#include <string>
#include <vector>

#include "hotloop/ops.h"

namespace hotloop::cells {

struct Program {
  std::string name;
  TracedFunction loss;  // inputs: weights..., xs (time, batch, input), target (batch, hidden)
  std::vector<ValueType> inputs;
  std::vector<int> weights;  // positions of what a gradient is wanted for
};

struct Sizes {
  std::int64_t time = 5, batch = 3, input = 4, hidden = 6;
};

inline Value affine(Value x, Value w, Value h, Value u, Value b) { return matmul(x, w) + matmul(h, u) + b; }

inline Value layer_norm(Value x, Value gain, Value shift) {
  const Value centred = x - broadcast_to(expand_dims(mean(x, {1}), 1), x.shape());
  const Value scale = rsqrt(variance(x, {1}) + 1e-5);
  return centred * broadcast_to(expand_dims(scale, 1), x.shape()) * gain + shift;
}

using Step = std::function<std::vector<Value>(std::span<const Value> w, std::span<const Value> state, Value x)>;

// Loss: mean squared error of the last h, plus a term that reads every h.
inline TracedFunction loss_of(const Step& step, std::size_t num_weights, int num_states, const Sizes& s, DType dtype) {
  return [=](std::span<const Value> in) -> std::vector<Value> {
    const auto w = in.subspan(0, num_weights);
    const Value xs = in[num_weights], target = in[num_weights + 1];
    std::vector<Value> init(static_cast<std::size_t>(num_states), constant(0, dtype, {s.batch, s.hidden}));
    const auto [carry, hs] = scan(
        [&](std::span<const Value> state, std::span<const Value> x) {
          std::vector<Value> next = step(w, state, x[0]);
          return std::pair(next, std::vector<Value>{next[0]});
        },
        init, std::vector<Value>{xs});
    return {mean(square(carry[0] - target)) + 0.1 * mean(hs[0])};
  };
}

inline Program make(const std::string& name, const Step& step, std::vector<ValueType> weights, int num_states,
                    const Sizes& s, DType dtype) {
  Program p{name, loss_of(step, weights.size(), num_states, s, dtype), weights, {}};
  for (std::size_t i = 0; i < weights.size(); ++i) p.weights.push_back(static_cast<int>(i));
  p.inputs.push_back({dtype, {s.time, s.batch, s.input}});
  p.inputs.push_back({dtype, {s.batch, s.hidden}});
  return p;
}

// n times (input weights, recurrent weights, bias).
inline std::vector<ValueType> gate_weights(int n, const Sizes& s, DType dtype) {
  std::vector<ValueType> types;
  for (int i = 0; i < n; ++i) {
    types.push_back({dtype, {s.input, s.hidden}});
    types.push_back({dtype, {s.hidden, s.hidden}});
    types.push_back({dtype, {s.hidden}});
  }
  return types;
}

inline Program lstm(const Sizes& s = {}, DType dtype = DType::F64) {
  const Step step = [](std::span<const Value> w, std::span<const Value> state, Value x) -> std::vector<Value> {
    const Value h = state[0], c = state[1];
    const Value i = sigmoid(affine(x, w[0], h, w[1], w[2]));
    const Value f = sigmoid(affine(x, w[3], h, w[4], w[5]));
    const Value g = tanh(affine(x, w[6], h, w[7], w[8]));
    const Value o = sigmoid(affine(x, w[9], h, w[10], w[11]));
    const Value next = f * c + i * g;
    return {o * tanh(next), next};
  };
  return make("lstm", step, gate_weights(4, s, dtype), 2, s, dtype);
}

// An LSTM whose gates have their weights side by side, and whose user writes the whole sum again for each gate.
inline Program sliced_lstm(const Sizes& s = {}, DType dtype = DType::F64) {
  const Step step = [hidden = s.hidden](std::span<const Value> w, std::span<const Value> state,
                                        Value x) -> std::vector<Value> {
    const Value h = state[0], c = state[1];
    const auto gate = [&](std::int64_t k) { return narrow(affine(x, w[0], h, w[1], w[2]), 1, k * hidden, hidden); };
    const Value next = sigmoid(gate(1)) * c + sigmoid(gate(0)) * tanh(gate(2));
    return {sigmoid(gate(3)) * tanh(next), next};
  };
  const std::vector<ValueType> weights = {
      {dtype, {s.input, 4 * s.hidden}}, {dtype, {s.hidden, 4 * s.hidden}}, {dtype, {4 * s.hidden}}};
  return make("sliced_lstm", step, weights, 2, s, dtype);
}

inline Program gru(const Sizes& s = {}, DType dtype = DType::F64) {
  const Step step = [](std::span<const Value> w, std::span<const Value> state, Value x) -> std::vector<Value> {
    const Value h = state[0];
    const Value r = sigmoid(affine(x, w[0], h, w[1], w[2]));
    const Value z = sigmoid(affine(x, w[3], h, w[4], w[5]));
    const Value n = tanh(matmul(x, w[6]) + w[8] + r * (matmul(h, w[7]) + w[9]));
    return {(1.0 - z) * n + z * h};
  };
  auto weights = gate_weights(3, s, dtype);
  weights.push_back({dtype, {s.hidden}});
  return make("gru", step, weights, 1, s, dtype);
}

inline Program layer_norm_lstm(const Sizes& s = {}, DType dtype = DType::F64) {
  const Step step = [](std::span<const Value> w, std::span<const Value> state, Value x) -> std::vector<Value> {
    const Value h = state[0], c = state[1];
    const auto gate = [&](std::size_t k) {
      return layer_norm(affine(x, w[3 * k], h, w[3 * k + 1], w[3 * k + 2]), w[12 + 2 * k], w[13 + 2 * k]);
    };
    const Value i = sigmoid(gate(0)), f = sigmoid(gate(1)), g = tanh(gate(2)), o = sigmoid(gate(3));
    const Value next = f * c + i * g;
    return {o * tanh(layer_norm(next, w[20], w[21])), next};
  };
  auto weights = gate_weights(4, s, dtype);
  for (int i = 0; i < 10; ++i) weights.push_back({dtype, {s.hidden}});
  return make("layer_norm_lstm", step, weights, 2, s, dtype);
}

// Both, gates merged, on inputs of a caller: x[T, B, I], h[B, H], c[B, H], w[I + H, 4H], b[4H] to the last h, the last c and every h.
inline std::vector<Value> run_lstm(std::span<const Value> v, const ScanOptions& options = {}) {
  const Value w = v[3], b = v[4];
  const std::int64_t hidden = v[1].shape()[1];
  const Value init[] = {v[1], v[2]}, xs[] = {v[0]};
  auto [carry, ys] = scan(
      [&](std::span<const Value> carry, std::span<const Value> x) {
        const Value parts[] = {x[0], carry[0]};
        const Value gates = matmul(concat(parts, 1), w) + b;
        const auto gate = [&](std::int64_t k) { return narrow(gates, 1, k * hidden, hidden); };
        const Value c = sigmoid(gate(1)) * carry[1] + sigmoid(gate(0)) * tanh(gate(2));
        const Value h = sigmoid(gate(3)) * tanh(c);
        return std::pair{std::vector<Value>{h, c}, std::vector<Value>{h}};
      },
      init, xs, options);
  return {carry[0], carry[1], ys[0]};
}

// x[T, B, I], h[B, H], w[I, 3H], u[H, 3H] to the last h, every h and every update gate.
inline std::vector<Value> run_gru(std::span<const Value> v) {
  const std::int64_t hidden = v[1].shape()[1];
  const Value init[] = {v[1]}, xs[] = {v[0]};
  auto [carry, ys] = scan(
      [&](std::span<const Value> carry, std::span<const Value> x) {
        const Value from_x = matmul(x[0], v[2]), from_h = matmul(carry[0], v[3]);
        const auto part = [&](Value all, std::int64_t k) { return narrow(all, 1, k * hidden, hidden); };
        const Value r = sigmoid(part(from_x, 0) + part(from_h, 0)), z = sigmoid(part(from_x, 1) + part(from_h, 1));
        const Value n = tanh(part(from_x, 2) + r * part(from_h, 2));
        const Value h = (1.0 - z) * n + z * carry[0];
        return std::pair{std::vector<Value>{h}, std::vector<Value>{h, z}};
      },
      init, xs);
  return {carry[0], ys[0], ys[1]};
}

}  // namespace hotloop::cells
