// 10,000 Lorenz systems, rho 0 to 21, adaptive Tsit5 at 1e-6 in f32, with the state as one leaf of three and as three leaves.
#include <algorithm>
#include <array>
#include <chrono>
#include <cstdio>

#include "hotloop/hotloop.h"

using namespace hotloop;

namespace {

double seconds() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

std::array<Value, 3> lorenz(Value a, Value b, Value c, Value rho) {
  return {10 * (b - a), a * (rho - c) - b, a * b - 8.0 / 3 * c};
}

std::vector<Value> as_one_leaf(const ode::Options& options) {
  const ode::Field field = [](Value, const Tree<Value>& y, const Tree<Value>& rho) {
    const auto parts = lorenz(take(y.leaf(), 0, 0), take(y.leaf(), 0, 1), take(y.leaf(), 0, 2), rho.leaf());
    return Tree<Value>(stack(parts, 0));
  };
  const Tree<Value> y0(constant(Array::from(std::vector<float>{1, 0, 0}, {3})));
  return {ode::solve(field, ode::Tsit5(), 0, 1, y0, options).y1.leaf()};
}

std::vector<Value> as_three_leaves(const ode::Options& options) {
  const ode::Field field = [](Value, const Tree<Value>& y, const Tree<Value>& rho) {
    const auto parts = lorenz(y["a"], y["b"], y["c"], rho.leaf());
    return Tree<Value>{{"a", parts[0]}, {"b", parts[1]}, {"c", parts[2]}};
  };
  const Tree<Value> y0 = {{"a", constant(1)}, {"b", constant(0)}, {"c", constant(0)}};
  return ode::solve(field, ode::Tsit5(), 0, 1, y0, options).y1.flatten();
}

}  // namespace

int main() {
  constexpr std::int64_t n = 10000;
  Array rho(DType::F32, {n});
  for (std::int64_t i = 0; i < n; ++i) rho.set(i, 21.0 * static_cast<double>(i) / (n - 1));
  for (const bool together : {true, false}) {
    const auto fn = [&](std::span<const Value> in) {
      ode::Options options;
      options.args = Tree<Value>(in[0]);
      options.dt0 = 0.01;
      options.controller = ode::PID(1e-6, 1e-6);
      return together ? as_one_leaf(options) : as_three_leaves(options);
    };
    const std::vector<ValueType> types = {rho.type()};
    double start = seconds();
    const Executable run = compile(trace(vmap(fn, {0}), types));
    const double compiled = seconds() - start;
    double best = 1e9;
    for (int i = 0; i < 60; ++i) {
      start = seconds();
      (void)run(std::vector<Array>{rho});
      best = std::min(best, seconds() - start);
    }
    std::printf("%s: compile %.3f s, run %.2f ms\n", together ? "one leaf of three" : "three leaves", compiled,
                best * 1e3);
  }
}
