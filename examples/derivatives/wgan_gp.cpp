// A Wasserstein GAN with gradient penalty (Gulrajani et al. 2017) on windows of a series, its critic a GRU: the penalty is on the
// gradient with respect to the input, so that training takes derivatives of derivatives through the recurrence.
//   wgan_gp TABLE.csv COLUMN [rounds]       e.g. wgan_gp data/elecdemand.csv Demand 400
#include <cmath>
#include <cstdio>
#include <cstdlib>

#include "hotloop/hotloop.h"

using namespace hotloop;
using Values = std::span<const Value>;

constexpr std::int64_t batch = 32, length = 24, noise = 8, hidden = 16;
constexpr double penalty_weight = 10;

struct Player {
  nn::Sequential model;
  optim::Adam optimizer{1e-3};
  Tree<Array> params, state;
  Player(nn::Sequential of, std::uint64_t seed)
      : model(std::move(of)), params(model.init(seed)), state(optimizer.init(params)) {}
  std::size_t num_leaves() const { return params.num_leaves() + state.num_leaves(); }

  std::vector<Array> leaves() const {
    std::vector<Array> all = params.flatten();
    for (const Array& a : state.flatten()) all.push_back(a);
    return all;
  }
  void take(const std::vector<Array>& from) {
    const std::span<const Array> all(from);
    params = params.unflatten(all.first(params.num_leaves()));
    state = state.unflatten(all.subspan(params.num_leaves(), state.num_leaves()));
  }
  // (leaves..., rest...) -> (new leaves..., loss): one step down the loss, a function of (parameters, rest).
  template <class Loss> Function step(const Loss& loss) const {
    return [this, loss](Values v) {
      const std::size_t n = params.num_leaves(), rest = num_leaves();
      std::vector<int> argnums(n);
      for (std::size_t i = 0; i < n; ++i) argnums[i] = static_cast<int>(i);
      const Function of_params = [&](Values p) { return std::vector{loss(params.unflatten(p), v.subspan(rest))}; };
      const std::vector<Value> given = value_and_grad(of_params, argnums)(v.first(n));
      const auto [p, s] = optimizer.update(params.unflatten(Values(given).subspan(1)),
                                           state.unflatten(v.subspan(n, rest - n)), params.unflatten(v.first(n)));
      std::vector<Value> result = p.flatten();
      for (const Value& leaf : s.flatten()) result.push_back(leaf);
      result.push_back(given[0]);
      return result;
    };
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
    const Function total = [&](Values at) { return std::vector{sum(score(params, at[0]))}; };
    const Value at[] = {x};
    const Value g = grad(total, {0})(at)[0];
    return sqrt(reduce_sum(g * g, {1}) + 1e-12);
  };
  // rest: real (B, T), fake (B, T), where between them the penalty is taken (B, 1).
  const Jit critic_step = jit(critic.step([&](const Tree<Value>& params, Values rest) {
    const Value real = rest[0], fake = rest[1], at = broadcast_to(rest[2], real.shape());
    const Value between = at * real + (1.0 - at) * fake;
    return mean(score(params, fake)) - mean(score(params, real)) +
           penalty_weight * mean(square(slopes(params, between) - 1.0));
  }));
  // rest: noise (B, N), then the critic's parameters.
  const Jit generator_step = jit(generator.step([&](const Tree<Value>& params, Values rest) {
    return -mean(score(critic.params.unflatten(rest.subspan(1)), generator.model.apply(params, rest[0])));
  }));
  const std::size_t num_generator = generator.params.num_leaves();
  const Jit generate = jit([&](Values v) {
    return std::vector{generator.model.apply(generator.params.unflatten(v.first(num_generator)), v[num_generator])};
  });
  const Jit measure = jit([&](Values v) {
    return std::vector{mean(slopes(critic.params.unflatten(v.first(critic.params.num_leaves())), v.back()))};
  });

  std::uint64_t draw = 0;
  const auto fresh = [&] { return nn::fold_in(3, std::to_string(draw++)); };
  const auto fakes = [&] {
    std::vector<Array> inputs = generator.params.flatten();
    inputs.push_back(nn::normal(fresh(), {batch, noise}, DType::F32));
    return generate(inputs)[0];
  };
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
      std::vector<Array> inputs = critic.leaves();
      inputs.push_back(real);
      inputs.push_back(fakes());
      inputs.push_back(nn::uniform(fresh(), {batch, 1}, DType::F32, 0, 1));
      if (round == 1) KernelHistory::start();
      const std::vector<Array> outputs = critic_step(inputs);
      if (round == 1) launches = KernelHistory::stop().size();
      critic.take(outputs);
      distance = -outputs.back().at(0);
      std::vector<Array> at = critic.params.flatten();
      at.push_back(real);
      if (k == 4) slope = measure(at)[0].at(0);
    }
    std::vector<Array> inputs = generator.leaves();
    inputs.push_back(nn::normal(fresh(), {batch, noise}, DType::F32));
    for (const Array& a : critic.params.flatten()) inputs.push_back(a);
    generator.take(generator_step(inputs));
  }
  std::printf("%d rounds, %zu launch a step of the critic: distance less penalty %.3f, mean slope of the critic %.3f\n",
              rounds, launches, distance, slope);
  // The penalty holds the critic near slope one.
  return launches == 1 && std::isfinite(distance) && slope > 0.4 && slope < 1.6 ? 0 : 1;
} catch (const UserError& e) {
  std::fprintf(stderr, "%s\n", e.what());
  return 2;
}
