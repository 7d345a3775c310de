// A recurrent cell put together at random, as users write them: terms such as b + x W + h U in any order, gates with weights of their own, shared,
// or sliced from a wide sum, gates of gates, layer norms.
#pragma once

#include <cmath>
#include <cstdint>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "hotloop/nn.h"
#include "hotloop/ops.h"

namespace hotloop::testing {

// Weights to draw from, so that gates share some: W_k (H, I), U_k (H, H), b_k, p_k (H) for k in 0, 1, 2; wide ones W (4H, I), U (4H, H), b (4H).
class RandomCell : public nn::Cell {
 public:
  RandomCell(std::uint64_t seed, std::int64_t inputs, std::int64_t hidden)
      : seed_(seed), inputs_(inputs), hidden_(hidden) {}

  Tree<Array> init(const nn::Seed& seed, DType dtype, nn::Init) const override {
    Tree<Array> params;
    const auto add = [&](const std::string& name, const Shape& shape) {
      const double bound = 1.5 / std::sqrt(static_cast<double>(shape.rank() == 2 ? shape[1] : 1));
      params.set(name, nn::uniform(nn::fold_in(seed, name), shape, dtype, -bound, bound));
    };
    for (const std::string k : {"0", "1", "2"})
      add("W" + k, {hidden_, inputs_}), add("U" + k, {hidden_, hidden_}), add("b" + k, {hidden_}),
          add("p" + k, {hidden_});
    add("W", {4 * hidden_, inputs_}), add("U", {4 * hidden_, hidden_}), add("b", {4 * hidden_});
    return params;
  }

  Tree<Value> initial_state(std::int64_t batch, DType dtype) const override {
    return {{"h", nn::zero_state(batch, hidden_, dtype)}, {"c", constant(0.25, dtype, {batch, hidden_})}};
  }

  std::pair<Tree<Value>, Value> step(const Tree<Value>& params, const Tree<Value>& state, Value x) const override {
    return Writer{std::mt19937_64(seed_), params, x, hidden_, {state["h"], state["c"]}}.write();
  }

 private:
  struct Writer {
    std::mt19937_64 rng;
    const Tree<Value>& params;
    Value x;
    std::int64_t hidden;
    std::vector<Value> vectors;  // (batch, hidden)

    int pick(int n) { return static_cast<int>(rng() % static_cast<std::uint64_t>(n)); }
    Value weight(const std::string& name) { return params[name + std::to_string(pick(3))]; }
    Value any() { return vectors[static_cast<std::size_t>(pick(static_cast<int>(vectors.size())))]; }
    Value input() { return pick(4) ? x : tanh(x * 0.7); }

    Value term() {
      switch (pick(9)) {
        case 0:
        case 1: return nn::linear(input(), weight("W"));
        case 2:
        case 3: return nn::linear(any(), weight("U"));
        case 4: return matmul(any(), weight("U")) * 0.5;
        case 5: {
          const Value b = weight("b");
          return broadcast_to(pick(2) ? b : b * 0.3, any().shape());
        }
        case 6: return weight("p") * any();
        case 7: return any() * 0.3;
        default: {
          const Value wide = nn::linear(x, params["W"]) + nn::linear(vectors[0], params["U"]);
          const std::int64_t gate = pick(4) * hidden;
          return pick(2) ? narrow(wide + params["b"], 1, gate, hidden) : narrow(wide, 1, gate, hidden);
        }
      }
    }
    Value sum() {
      Value total = term();
      for (int i = 0, n = pick(4); i < n; ++i) {
        const Value next = pick(4) ? term() : term() + term();
        total = pick(6) == 0 ? total - next : pick(3) ? total + next : next + total;
      }
      return total;
    }
    Value activated(Value v) {
      switch (pick(7)) {
        case 0:
        case 1: return sigmoid(v);
        case 2: return nn::layer_norm(v, weight("p"), weight("b"));
        case 3: return softplus(v) * 0.4;
        case 4: return relu(v) * 0.3;
        default: return tanh(v);
      }
    }
    // The same function of a product and something else, either way round.
    Value lopsided() {
      const Value product = nn::linear(any(), weight("U")), other = any();
      const auto of = [](Value a, Value b) { return tanh(a) * sigmoid(b) + b * 0.3; };
      return pick(2) ? of(product, other) : of(other, product);
    }
    std::pair<Tree<Value>, Value> write() {
      for (int i = 0, n = 1 + pick(5); i < n; ++i) vectors.push_back(pick(5) == 0 ? lopsided() : activated(sum()));
      const Value keep = sigmoid(vectors.back()), c = keep * vectors[1] + (1.0 - keep) * tanh(any());
      const Value h = pick(2) ? tanh(any() + c) : tanh(sum()) * 0.5 + c * 0.5;
      const Value both[] = {h, c};
      return {{{"h", h}, {"c", c}}, pick(4) ? h : concat(both, 1)};
    }
  };

  std::uint64_t seed_;
  std::int64_t inputs_, hidden_;
};

}  // namespace hotloop::testing
