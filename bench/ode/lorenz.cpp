// Neural ODE training on Lorenz' equations as one executable: model, solve, adjoint, Adam and the loop over iterations.
//
// usage: ode_lorenz [width] [iterations] [tanh|softplus|relu] [depth] [repeats]
// prints compile and run times, the loss, and the steps of the last iteration.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "hotloop/hotloop.h"

using namespace hotloop;

namespace {

double seconds() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

Tree<Value> lorenz(Value, const Tree<Value>& y, const Tree<Value>&) {
  const Value a = take(y.leaf(), 0, 0), b = take(y.leaf(), 0, 1), c = take(y.leaf(), 0, 2);
  const Value parts[] = {10 * (b - a), a * (28 - c) - b, a * b - 8.0 / 3 * c};
  return stack(parts, 0);
}

}  // namespace

int main(int argc, char** argv) {
  const std::int64_t width = argc > 1 ? std::atoll(argv[1]) : 100, iterations = argc > 2 ? std::atoll(argv[2]) : 1000;
  const std::string activation = argc > 3 ? argv[3] : "tanh";
  const int depth = argc > 4 ? std::atoi(argv[4]) : 1, repeats = argc > 5 ? std::atoi(argv[5]) : 5;
  constexpr int saves = 101;
  std::vector<double> ts;
  for (int i = 0; i < saves; ++i) ts.push_back(i * 0.01);
  ts.back() = 1;
  ode::Options options;
  options.saveat = ode::SaveAt::times(ts);
  options.dt0 = 0.01;
  options.controller = ode::PID(1e-3, 1e-6);
  const Array y0 = Array::from(std::vector<float>{1, 0, 0}, {3});

  const Array data = jit([&](std::span<const Value> in) {
    return std::vector<Value>{ode::solve(lorenz, ode::Tsit5(), 0, 1, in[0], options).ys.leaf()};
  })({y0})[0];

  std::vector<nn::Layer> layers = {nn::Linear(3, width), nn::Activation(activation)};
  for (int i = 1; i < depth; ++i) {
    layers.push_back(nn::Linear(width, width));
    layers.push_back(nn::Activation(activation));
  }
  layers.push_back(nn::Linear(width, 3));
  const nn::Sequential model(layers);
  const Tree<Array> params = model.init(0);
  const optim::Adam adam(0.01);
  const Tree<Array> state = adam.init(params);
  std::vector<Array> arguments = params.flatten();
  const std::size_t num_params = arguments.size();
  for (const Array& leaf : state.flatten()) arguments.push_back(leaf);
  const std::size_t num_carry = arguments.size();
  arguments.push_back(y0);
  arguments.push_back(data);

  const auto train = [&](std::span<const Value> in) {
    const Value start = in[num_carry], target = in[num_carry + 1];
    const auto loss = [&](std::span<const Value> p) {
      const Tree<Value> tree = params.unflatten(p);
      const ode::Field field = [&](Value, const Tree<Value>& y, const Tree<Value>& args) {
        return Tree<Value>(model.apply(args, y.leaf()));
      };
      ode::Options with = options;
      with.args = tree;
      const ode::Solution s = ode::solve(field, ode::Tsit5(), 0, 1, start, with);
      return std::vector<Value>{sum(square(s.ys.leaf() - target)), s.stats.num_accepted, s.stats.num_rejected};
    };
    std::vector<int> argnums;
    for (std::size_t i = 0; i < num_params; ++i) argnums.push_back(static_cast<int>(i));
    const auto [carry, ys] = scan(
        [&](std::span<const Value> c, std::span<const Value>) {
          const auto out = value_and_grad(loss, argnums)(c.first(num_params));
          const Tree<Value> p = params.unflatten(c.first(num_params)), s = state.unflatten(c.subspan(num_params)),
                            g = params.unflatten(std::span(out).subspan(3));
          const auto [new_p, new_s] = adam.update(g, s, p);
          std::vector<Value> next = new_p.flatten();
          for (const Value& v : new_s.flatten()) next.push_back(v);
          return std::pair(next, std::vector<Value>{out[0], out[1], out[2]});
        },
        in.first(num_carry), {}, {.length = iterations});
    return ys;
  };
  std::vector<ValueType> types;
  for (const Array& a : arguments) types.push_back(a.type());
  double start = seconds();
  const auto graph = trace(train, types, "lorenz");
  const double traced = seconds() - start;
  start = seconds();
  const Executable run = compile(graph);
  const double compiled = seconds() - start;
  double best = 1e9;
  std::vector<Array> out;
  for (int r = 0; r < repeats; ++r) {
    start = seconds();
    out = run(arguments);
    best = std::min(best, seconds() - start);
  }
  const std::int64_t last = iterations - 1;
  std::printf("width %lld trace %.3f s compile %.3f s run %.4f s, loss %.3f -> %.3f -> %.4f, steps %g + %g\n",
              static_cast<long long>(width), traced, compiled, best, out[0].at(0),
              out[0].at(std::min<std::int64_t>(30, last)), out[0].at(last), out[1].at(last), out[2].at(last));
  if (std::getenv("HOTLOOP_EXPLAIN") != nullptr)
    std::printf("%s\n%s\n", run.explain().c_str(), run.kernel_text().c_str());
}
