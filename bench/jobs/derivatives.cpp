// Times one derivative task and may write its results, for jacobian_cost.py.
//   derivatives TASK [seconds] [threads] [FILE]
// Prints one JSON line; times are of calls. FILE gets the f32 results, one after the other. HOTLOOP_KERNEL=1 prints the kernel.
#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <fstream>
#include <map>
#include <string>
#include <vector>

#include "hotloop/hotloop.h"

using namespace hotloop;

namespace {

using Values = std::span<const Value>;

struct Task {
  std::vector<Shape> inputs;
  Function fn;
};

// tanh layers and a linear one: x, w, b, w, b, ...
std::vector<Value> mlp(Values v) {
  Value h = v[0];
  for (std::size_t k = 1; k + 1 < v.size(); k += 2) {
    h = matmul(h, v[k]) + v[k + 1];
    if (k + 2 < v.size()) h = tanh(h);
  }
  return {h};
}

std::vector<Shape> mlp_shapes(std::int64_t batch, const std::vector<std::int64_t>& widths) {
  std::vector<Shape> shapes{{batch, widths[0]}};
  for (std::size_t k = 0; k + 1 < widths.size(); ++k) {
    shapes.push_back({widths[k], widths[k + 1]});
    shapes.push_back({widths[k + 1]});
  }
  return shapes;
}

// All outputs (T, B, H) of an LSTM on x (T, B, I), from zero states. wx (I, 4H), wh (H, 4H), b (4H): gates i, f, g, o.
Value lstm(Value x, Value wx, Value wh, Value b) {
  const std::int64_t hidden = wh.shape()[0];
  const Value zero = constant(0, DType::F32, {x.shape()[1], hidden});
  const Value init[] = {zero, zero}, xs[] = {x};
  return scan(
             [&](Values carry, Values x_t) {
               const Value gates = matmul(x_t[0], wx) + matmul(carry[0], wh) + b;
               const auto gate = [&](std::int64_t k) { return narrow(gates, 1, k * hidden, hidden); };
               const Value c = sigmoid(gate(1)) * carry[1] + sigmoid(gate(0)) * tanh(gate(2));
               const Value h = sigmoid(gate(3)) * tanh(c);
               return std::pair{std::vector<Value>{h, c}, std::vector<Value>{h}};
             },
             init, xs)
      .second[0];
}

// Mean squared error of a linear head on the last output: wx, wh, b, wo, bo, x, y.
std::vector<Value> lstm_loss(Values v) {
  const Value last = take(lstm(v[5], v[0], v[1], v[2]), 0, -1);
  return {mean(square(matmul(last, v[3]) + v[4] - v[6]))};
}

constexpr std::int64_t steps = 60, features = 12, hidden = 48, batch = 48;
const std::vector<Shape> lstm_params{{features, 4 * hidden}, {hidden, 4 * hidden}, {4 * hidden}, {hidden, 1}, {1}};

std::vector<Shape> joined(std::vector<Shape> a, const std::vector<Shape>& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

const std::map<std::string, Task>& tasks() {
  const auto blocks = [](Values v) { return std::vector{jacobian(mlp)(v).blocks()}; };
  const auto dense = [](Values v) { return std::vector{jacobian(mlp)(v).dense()}; };
  const std::vector<std::int64_t> seed{1, 20, 20, 400};
  const Shape x{steps, batch, features}, y{batch, 1};
  static const std::map<std::string, Task> all{
      {"seed_dense_100", {mlp_shapes(100, seed), dense}},
      {"seed_100", {mlp_shapes(100, seed), blocks}},
      {"seed_1000", {mlp_shapes(1000, seed), blocks}},
      {"seed_10000", {mlp_shapes(10000, seed), blocks}},
      {"seed_100000", {mlp_shapes(100000, seed), blocks}},
      {"mlp_3_64_5_128", {mlp_shapes(128, {3, 64, 5}), blocks}},
      {"lstm_hvp",
       {joined(joined(lstm_params, {x, y}), lstm_params),
        [](Values v) {
          std::vector<Value> vectors(v.begin() + 7, v.end());
          vectors.resize(7);
          std::vector<Value> products = hvp(lstm_loss, v.first(7), vectors);
          products.resize(5);
          return products;
        }}},
      {"lstm_per_sample_grad",
       {joined(lstm_params, {x, y}), per_sample_grad(
                                         [](Values v) {
                                           std::vector<Value> one(v.begin(), v.end());
                                           one[5] = expand_dims(v[5], 1);
                                           one[6] = expand_dims(v[6], 0);
                                           return lstm_loss(one);
                                         },
                                         {0, 1, 2, 3, 4}, {-1, -1, -1, -1, -1, 1, 0})}},
      {"lstm_jvp_inputs",
       {joined(lstm_params, {x, y, x}),
        [](Values v) {
          const Function outputs = [&](Values in) { return std::vector{lstm(in[0], v[0], v[1], v[2])}; };
          auto [primal, tangent] = jvp(outputs, v.subspan(5, 1), v.subspan(7, 1));
          return std::vector{primal[0], tangent[0]};
        }}},
  };
  return all;
}

// The same numbers in every implementation: element i of input k.
Array input(const Shape& shape, std::size_t k) {
  Array a(DType::F32, shape);
  const double scale = shape.rank() == 2 ? 1 / std::sqrt(static_cast<double>(shape[0])) : 0.5;
  for (std::int64_t i = 0; i < a.size(); ++i)
    a.set(i, scale * std::sin(0.37 * static_cast<double>(i) + static_cast<double>(k)));
  return a;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 2 || !tasks().contains(argv[1])) {
    std::fprintf(stderr, "usage: derivatives TASK [seconds] [threads] [FILE]\n");
    for (const auto& [name, task] : tasks()) std::fprintf(stderr, "  %s\n", name.c_str());
    return 2;
  }
  const Task& task = tasks().at(argv[1]);
  const double seconds = argc > 2 ? std::atof(argv[2]) : 1;
  std::vector<ValueType> types;
  std::vector<Array> inputs;
  for (std::size_t k = 0; k < task.inputs.size(); ++k) {
    inputs.push_back(input(task.inputs[k], k));
    types.push_back(inputs.back().type());
  }
  CompileOptions options;
  options.threads = argc > 3 ? std::atoi(argv[3]) : 1;
  using Clock = std::chrono::steady_clock;
  const auto since = [](Clock::time_point start) {
    return std::chrono::duration<double>(Clock::now() - start).count();
  };
  const auto compile_start = Clock::now();
  const Executable run = compile(trace(task.fn, types), options);
  const double compile_ms = since(compile_start) * 1e3;
  if (std::getenv("HOTLOOP_GRAPH")) std::puts(run.graph_text().c_str());
  if (std::getenv("HOTLOOP_KERNEL")) std::puts(run.kernel_text().c_str());

  std::vector<Array> outputs = run(inputs);
  if (argc > 4) {
    std::ofstream file(argv[4], std::ios::binary);
    for (const Array& a : outputs)
      file.write(static_cast<const char*>(a.raw()), static_cast<std::streamsize>(a.bytes()));
  }
  std::vector<double> times;
  const auto begin = Clock::now();
  const std::clock_t cpu_begin = std::clock();
  while (times.size() < 5 || (since(begin) < seconds && times.size() < 200000)) {
    const auto start = Clock::now();
    run.run(inputs, outputs);
    times.push_back(since(start));
  }
  const double cpu_us =
      static_cast<double>(std::clock() - cpu_begin) / CLOCKS_PER_SEC * 1e6 / static_cast<double>(times.size());
  std::ranges::sort(times);
  std::printf(
      "{\"task\": \"%s\", \"us\": %.3f, \"min_us\": %.3f, \"cpu_us\": %.3f, \"calls\": %zu, \"compile_ms\": %.1f}\n",
      argv[1], times[times.size() / 2] * 1e6, times[0] * 1e6, cpu_us, times.size(), compile_ms);
}
