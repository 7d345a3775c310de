// 64 GRUs with weights of their own, each trained on a bootstrap sample of one series, in one kernel: vmap over the parameters of a
// training step. The spread of their forecasts says how sure they are.
//   gru_ensemble [steps]
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>

#include "hotloop/hotloop.h"

using namespace hotloop;

constexpr std::int64_t members = 64, batch = 16, length = 24, hidden = 8;

int main(int argc, char** argv) {
  const int steps = argc > 1 ? std::atoi(argv[1]) : 300;
  const nn::Sequential model(nn::GRU(1, hidden), nn::Last(), nn::Linear(hidden, 1));
  const optim::Adam optimizer(1e-2);
  const Tree<Array> params = model.init(0), state = optimizer.init(params);

  // One member's step: x (batch, length, 1), y (batch, 1). The ensemble's takes and gives the same with a leading axis of members.
  const auto step = [&](const Tree<Value>& p, const Tree<Value>& s, Value x, Value y) {
    const auto [loss, grads] =
        value_and_grad([&](const Tree<Value>& q) { return mean(square(model.apply(q, x) - y)); })(p);
    const auto [new_p, new_s] = optimizer.update(grads, s, p);
    return std::tuple(new_p, new_s, loss);
  };
  const auto ensemble_step = jit(vmap(step));

  const auto of_all = [](const Array& one) { return Array::zeros(one.dtype(), one.shape().with_inserted(0, members)); };
  Tree<Array> all_params = params.map(of_all), all_state = state.map(of_all);
  for (std::int64_t m = 0; m < members; ++m)
    map_trees(
        [&](Array all, const Array& own) {
          for (std::int64_t i = 0; i < own.size(); ++i) all.set(m * own.size() + i, own.at(i));
          return all;
        },
        all_params, model.init(static_cast<std::uint64_t>(m)));
  const auto series = [](double t) { return std::sin(0.5 * t) + 0.4 * std::sin(1.7 * t); };
  Array x(DType::F32, {members, batch, length, 1}), y(DType::F32, {members, batch, 1});

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
    Array losses;
    std::tie(all_params, all_state, losses) = ensemble_step(all_params, all_state, x, y);
    if (k > 0) seconds += std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
    if (k == 1) launches = KernelHistory::stop().size();
    double loss = 0;
    for (std::int64_t m = 0; m < members; ++m) loss += losses.at(m) / members;
    (k == 0 ? first_loss : last_loss) = loss;
  }
  std::printf("%lld GRUs, %zu launch a step, %.0f us a step; mean loss %.4f -> %.4f\n", static_cast<long long>(members),
              launches, seconds / (steps - 1) * 1e6, first_loss, last_loss);
  return launches == 1 && last_loss < 0.5 * first_loss ? 0 : 1;
}
