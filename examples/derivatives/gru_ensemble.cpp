// 64 GRUs with weights of their own, each trained on a bootstrap sample of one series, in one kernel: vmap over the parameters of a
// training step. The spread of their forecasts says how sure they are.
//   gru_ensemble [steps]
#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>

#include "hotloop/hotloop.h"

using namespace hotloop;
using Values = std::span<const Value>;

constexpr std::int64_t members = 64, batch = 16, length = 24, hidden = 8;

int main(int argc, char** argv) {
  const int steps = argc > 1 ? std::atoi(argv[1]) : 300;
  const nn::Sequential model(nn::GRU(1, hidden), nn::Last(), nn::Linear(hidden, 1));
  const optim::Adam optimizer(1e-2);
  const Tree<Array> params = model.init(0), state = optimizer.init(params);
  const std::size_t num_params = params.num_leaves(), num_state = state.num_leaves();

  // One member's step: parameters, optimiser state, x (batch, length, 1), y (batch, 1) -> the same, and the loss.
  const Function step = [&](Values v) {
    const Tree<Value> p = params.unflatten(v.first(num_params)), s = state.unflatten(v.subspan(num_params, num_state));
    const Value x = v[num_params + num_state], y = v[num_params + num_state + 1];
    std::vector<int> argnums(num_params);
    for (std::size_t i = 0; i < num_params; ++i) argnums[i] = static_cast<int>(i);
    const Function loss = [&](Values leaves) {
      return std::vector{mean(square(model.apply(params.unflatten(leaves), x) - y))};
    };
    const std::vector<Value> given = value_and_grad(loss, argnums)(v.first(num_params));
    const auto [new_p, new_s] = optimizer.update(params.unflatten(Values(given).subspan(1)), s, p);
    std::vector<Value> result = new_p.flatten();
    for (const Value& leaf : new_s.flatten()) result.push_back(leaf);
    result.push_back(given[0]);
    return result;
  };
  const Jit ensemble_step = jit(vmap(step, std::vector<int>(num_params + num_state + 2, 0)));

  // Leaves of all members, one after the other along a leading axis.
  std::vector<Array> inputs;
  for (std::size_t leaf = 0; leaf < num_params + num_state; ++leaf) {
    const ValueType type =
        leaf < num_params ? params.flatten()[leaf].type() : state.flatten()[leaf - num_params].type();
    inputs.push_back(Array::zeros(type.dtype, type.shape.with_inserted(0, members)));
  }
  for (std::int64_t m = 0; m < members; ++m) {
    const std::vector<Array> own = model.init(static_cast<std::uint64_t>(m)).flatten();
    for (std::size_t leaf = 0; leaf < num_params; ++leaf)
      for (std::int64_t i = 0; i < own[leaf].size(); ++i) inputs[leaf].set(m * own[leaf].size() + i, own[leaf].at(i));
  }
  const auto series = [](double t) { return std::sin(0.5 * t) + 0.4 * std::sin(1.7 * t); };
  Array x(DType::F32, {members, batch, length, 1}), y(DType::F32, {members, batch, 1});
  inputs.push_back(x);
  inputs.push_back(y);

  double seconds = 0, first_loss = 0, last_loss = 0;
  std::size_t launches = 0;
  for (int k = 0; k < steps; ++k) {
    // Each member draws windows of its own.
    const Array start = nn::uniform(nn::fold_in(7, std::to_string(k)), {members * batch}, DType::F32, 0, 200);
    for (std::int64_t w = 0; w < members * batch; ++w) {
      for (std::int64_t t = 0; t < length; ++t) x.set(w * length + t, series(start.at(w) + static_cast<double>(t)));
      y.set(w, series(start.at(w) + length));
    }
    if (k == 1) KernelHistory::start();
    const auto begin = std::chrono::steady_clock::now();
    std::vector<Array> outputs = ensemble_step(inputs);
    if (k > 0) seconds += std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
    if (k == 1) launches = KernelHistory::stop().size();
    double loss = 0;
    for (std::int64_t m = 0; m < members; ++m) loss += outputs.back().at(m) / members;
    (k == 0 ? first_loss : last_loss) = loss;
    std::copy(outputs.begin(), outputs.end() - 1, inputs.begin());
  }
  std::printf("%lld GRUs, %zu launch a step, %.0f us a step; mean loss %.4f -> %.4f\n", static_cast<long long>(members),
              launches, seconds / (steps - 1) * 1e6, first_loss, last_loss);
  return launches == 1 && last_loss < 0.5 * first_loss ? 0 : 1;
}
