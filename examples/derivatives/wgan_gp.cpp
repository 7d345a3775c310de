// A Wasserstein GAN with gradient penalty (Gulrajani et al. 2017) on windows of a series, its critic a GRU: the penalty is on the
// gradient with respect to the input, so that training takes derivatives of derivatives through the recurrence.
//   wgan_gp TABLE.csv COLUMN [rounds]       e.g. wgan_gp data/elecdemand.csv Demand 400
#include <cmath>
#include <cstdio>
#include <cstdlib>

#include "hotloop/hotloop.h"

using namespace hotloop;

constexpr std::int64_t batch = 32, length = 24, noise = 8, hidden = 16;
constexpr double penalty_weight = 10;

struct Player {
  nn::Sequential model;
  optim::Adam optimizer{1e-3};
  Tree<Array> params, state;
  Player(nn::Sequential of, std::uint64_t seed)
      : model(std::move(of)), params(model.init(seed)), state(optimizer.init(params)) {}
  // One step down the loss, a function of the parameters.
  template <class Loss>
  std::tuple<Tree<Value>, Tree<Value>, Value> step(const Tree<Value>& p, const Tree<Value>& s, const Loss& loss) const {
    const auto [value, grads] = value_and_grad(loss)(p);
    const auto [new_p, new_s] = optimizer.update(grads, s, p);
    return {new_p, new_s, value};
  }
};

int main(int argc, char** argv) try {
  if (argc < 3) return std::fprintf(stderr, "usage: wgan_gp TABLE.csv COLUMN [rounds]\n"), 2;
  const int rounds = argc > 3 ? std::atoi(argv[3]) : 400;
  const data::Table table = data::read_csv(argv[1]);
  const std::span<const double> series = table[argv[2]];
  double mean_value = 0, square_value = 0;
  for (const double x : series) mean_value += x / static_cast<double>(series.size());
  for (const double x : series)
    square_value += (x - mean_value) * (x - mean_value) / static_cast<double>(series.size());
  const double scale = std::sqrt(square_value);

  Player critic(nn::Sequential(nn::GRU(1, hidden), nn::Last(), nn::Linear(hidden, 1)), 1);
  Player generator(nn::Sequential(nn::Linear(noise, 32), nn::Activation("tanh"), nn::Linear(32, length)), 2);
  const auto score = [&](const Tree<Value>& params, Value x) { return critic.model.apply(params, expand_dims(x, 2)); };
  // |gradient of the critic| at each of the points x (B, T).
  const auto slopes = [&](const Tree<Value>& params, Value x) {
    const Value g = grad([&](Value at) { return sum(score(params, at)); })(x);
    return sqrt(reduce_sum(g * g, {1}) + 1e-12);
  };
  // real (B, T), fake (B, T), where between them the penalty is taken (B, 1).
  const auto critic_step = jit([&](const Tree<Value>& p, const Tree<Value>& s, Value real, Value fake, Value where) {
    const Value at = broadcast_to(where, real.shape()), between = at * real + (1.0 - at) * fake;
    return critic.step(p, s, [&](const Tree<Value>& params) {
      return mean(score(params, fake)) - mean(score(params, real)) +
             penalty_weight * mean(square(slopes(params, between) - 1.0));
    });
  });
  const auto generator_step =
      jit([&](const Tree<Value>& p, const Tree<Value>& s, Value noise, const Tree<Value>& judge) {
        return generator.step(
            p, s, [&](const Tree<Value>& params) { return -mean(score(judge, generator.model.apply(params, noise))); });
      });
  const auto generate =
      jit([&](const Tree<Value>& params, Value noise) { return generator.model.apply(params, noise); });
  const auto measure = jit([&](const Tree<Value>& params, Value x) { return mean(slopes(params, x)); });

  std::uint64_t draw = 0;
  const auto fresh = [&] { return nn::fold_in(3, std::to_string(draw++)); };
  const auto draw_noise = [&] { return nn::normal(fresh(), {batch, noise}, DType::F32); };
  double distance = 0, slope = 0;
  std::size_t launches = 0;
  for (int round = 0; round < rounds; ++round) {
    for (int k = 0; k < 5; ++k) {
      Array real(DType::F32, {batch, length});
      const Array start = nn::uniform(fresh(), {batch}, DType::F64, 0, static_cast<double>(series.size()) - length - 1);
      for (std::int64_t b = 0; b < batch; ++b)
        for (std::int64_t t = 0; t < length; ++t)
          real.set(b * length + t,
                   (series[static_cast<std::size_t>(start.at(b)) + static_cast<std::size_t>(t)] - mean_value) / scale);
      const Array fake = generate(generator.params, draw_noise());
      const Array where = nn::uniform(fresh(), {batch, 1}, DType::F32, 0, 1);
      if (round == 1) KernelHistory::start();
      Array loss;
      std::tie(critic.params, critic.state, loss) = critic_step(critic.params, critic.state, real, fake, where);
      if (round == 1) launches = KernelHistory::stop().size();
      distance = -loss.at(0);
      if (k == 4) slope = measure(critic.params, real).at(0);
    }
    std::tie(generator.params, generator.state, std::ignore) =
        generator_step(generator.params, generator.state, draw_noise(), critic.params);
  }
  std::printf("%d rounds, %zu launch a step of the critic: distance less penalty %.3f, mean slope of the critic %.3f\n",
              rounds, launches, distance, slope);
  // The penalty holds the critic near slope one.
  return launches == 1 && std::isfinite(distance) && slope > 0.4 && slope < 1.6 ? 0 : 1;
} catch (const UserError& e) {
  std::fprintf(stderr, "%s\n", e.what());
  return 2;
}
