// Times one training step (forward, backward, Adam) of a recurrent cell with a linear head on its last output.
//   train_step CELL T I H B [threads] [seconds]
// CELL: lstm | gru | rnn | ln_lstm (tests/user_cells.h) | coupled (there too). Prints one JSON line; times are medians of calls.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "hotloop/jit.h"
#include "hotloop/losses.h"
#include "hotloop/nn.h"
#include "hotloop/optim.h"
#include "hotloop/train.h"
#include "user_cells.h"

using namespace hotloop;

namespace {

nn::Layer cell_named(const std::string& name, std::int64_t inputs, std::int64_t hidden) {
  if (name == "lstm") return nn::LSTM(inputs, hidden);
  if (name == "gru") return nn::GRU(inputs, hidden);
  if (name == "rnn") return nn::RNN(inputs, hidden);
  if (name == "ln_lstm") return nn::Recurrent(testing::LayerNormLstmCell(inputs, hidden));
  if (name == "coupled") return nn::Recurrent(testing::CoupledTwoSpeedCell(inputs, hidden));
  std::fprintf(stderr, "unknown cell %s\n", name.c_str());
  std::exit(2);
}

Array random(const Shape& shape, unsigned seed) {
  std::mt19937 generator(seed);
  std::normal_distribution<float> normal;
  Array a(DType::F32, shape);
  for (float& v : a.data<float>()) v = normal(generator);
  return a;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 6) return std::fprintf(stderr, "usage: train_step CELL T I H B [threads] [seconds]\n"), 2;
  const std::string cell = argv[1];
  const std::int64_t t = std::atoll(argv[2]), i = std::atoll(argv[3]), h = std::atoll(argv[4]), b = std::atoll(argv[5]);
  const int threads = argc > 6 ? std::atoi(argv[6]) : 1;
  const double seconds = argc > 7 ? std::atof(argv[7]) : 1;

  const std::int64_t width = cell == "coupled" ? 2 * h : h;
  const nn::Sequential model(cell_named(cell, i, h), nn::Last(), nn::Linear(width, 1));
  const Tree<Array> params = model.init(0);
  const optim::Adam optimizer(1e-3);
  const Tree<Array> state = optimizer.init(params);
  const Array x = random({b, t, i}, 1), y = random({b, 1}, 2);
  const train::Step step = train::train_step(model, losses::MSE(), optimizer, params, state, x.type(), y.type());

  CompileOptions options;
  options.threads = threads;
  options.batch_axes = step.batch_axes;
  options.donated = step.donated;
  if (const char* disabled = std::getenv("HOTLOOP_DISABLE"))
    for (char* p = std::strtok(const_cast<char*>(disabled), ","); p; p = std::strtok(nullptr, ","))
      options.disabled_passes.push_back(p);
  using Clock = std::chrono::steady_clock;
  const auto since = [](Clock::time_point start) {
    return std::chrono::duration<double>(Clock::now() - start).count();
  };
  const auto compile_start = Clock::now();
  const Executable run = compile(step.graph(), options);
  const double compile_ms = since(compile_start) * 1e3;
  if (std::getenv("HOTLOOP_KERNEL")) std::puts(run.kernel_text().c_str());
  if (std::getenv("HOTLOOP_GRAPH")) std::puts(run.graph_text().c_str());

  std::vector<Array> values = step.arguments(params, state, x, y);
  std::vector<double> times;
  const auto begin = Clock::now();
  float first_loss = 0, loss = 0;
  while (times.size() < 5 || (since(begin) < seconds && times.size() < 100000)) {
    const auto start = Clock::now();
    const std::vector<Array> out = run(values);
    times.push_back(since(start));
    loss = out.back().data<float>()[0];
    if (times.size() == 1) first_loss = loss;
    std::copy(out.begin(), out.end() - 1, values.begin());
  }
  std::ranges::sort(times);
  std::printf(
      "{\"cell\": \"%s\", \"T\": %lld, \"I\": %lld, \"H\": %lld, \"B\": %lld, \"threads\": %d, \"ms\": %.5f, "
      "\"min_ms\": %.5f, \"steps\": %zu, \"compile_ms\": %.1f, \"first_loss\": %g, \"last_loss\": %g}\n",
      cell.c_str(), static_cast<long long>(t), static_cast<long long>(i), static_cast<long long>(h),
      static_cast<long long>(b), threads, times[times.size() / 2] * 1e3, times[0] * 1e3, times.size(), compile_ms,
      static_cast<double>(first_loss), static_cast<double>(loss));
}
