// Small programs, one thread, ns or us a call, the best of many short runs: one streaming step of LSTM(8, H) and Linear(H, 1), a
// matrix times a vector, and a full-batch training step of small networks.
//   step_bench [substring of a name]
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <string>
#include <vector>

#include "hotloop/hotloop.h"

using namespace hotloop;

namespace {

double best_seconds(const std::function<void()>& call) {
  using Clock = std::chrono::steady_clock;
  const auto seconds = [&](int calls) {
    const auto start = Clock::now();
    for (int i = 0; i < calls; ++i) call();
    return std::chrono::duration<double>(Clock::now() - start).count() / calls;
  };
  seconds(3);
  const int calls = std::clamp(static_cast<int>(200e-6 / std::max(1e-8, seconds(5))), 1, 2000);
  double best = seconds(calls);
  for (int repeat = 0; repeat < 300; ++repeat) best = std::min(best, seconds(calls));
  return best;
}

void stream(std::int64_t hidden) {
  const nn::Sequential model(nn::LSTM(8, hidden), nn::Last(), nn::Linear(hidden, 1));
  const Stream stream(model, model.init(0), 8);
  Stream::Voice voice = stream.voice();
  std::vector<float> x(8, 0.5F), y(1);
  std::printf("stream LSTM(8, %lld): %.1f ns a step\n", static_cast<long long>(hidden),
              best_seconds([&] { voice.step(x, y); }) * 1e9);
}

void mlp(const std::vector<std::int64_t>& sizes, std::int64_t samples, DType dtype) {
  std::vector<nn::Layer> layers;
  std::string name;
  for (std::size_t i = 0; i + 1 < sizes.size(); ++i) {
    name += std::to_string(sizes[i]) + "-";
    if (i > 0) layers.push_back(nn::Activation("tanh"));
    layers.push_back(nn::Linear(sizes[i], sizes[i + 1]));
  }
  name += std::to_string(sizes.back());
  const nn::Sequential model(layers);
  const Tree<Array> params = model.init(0, dtype);
  const optim::Adam optimizer(1e-3);
  const Tree<Array> state = optimizer.init(params);
  const Array x = nn::uniform(1, {samples, sizes.front()}, dtype, -1, 1),
              y = nn::uniform(2, {samples, sizes.back()}, dtype, -1, 1);
  const train::Step step = train::train_step(model, losses::MSE(), optimizer, params, state, x.type(), y.type());
  CompileOptions options;
  options.batch_axes = step.batch_axes;
  const Executable run = compile(step.graph(), options);
  const std::vector<Array> arguments = step.arguments(params, state, {}, {.x = x, .y = y});
  std::vector<Array> out(run.output_types().size());
  std::printf("mlp %s, %lld samples, %s: %.2f us a training step\n", name.c_str(), static_cast<long long>(samples),
              std::string(name_of(dtype)).c_str(), best_seconds([&] { run.run(arguments, out); }) * 1e6);
  if (std::getenv("HOTLOOP_KERNEL")) std::puts(run.kernel_text().c_str());
}

void matvec(std::int64_t rows, std::int64_t columns) {
  const std::vector<ValueType> types = {{DType::F32, {rows, columns}}, {DType::F32, {columns}}};
  const Executable run =
      compile(trace([](std::span<const Value> in) { return std::vector<Value>{matmul(in[0], in[1])}; }, types));
  Array a = nn::uniform(1, {rows, columns}, DType::F32, -1, 1), x = nn::uniform(2, {columns}, DType::F32, -1, 1);
  Array y(DType::F32, {rows});
  void* const in[] = {a.raw(), x.raw()};
  void* const out[] = {y.raw()};
  std::printf("matvec %lldx%lld: %.1f ns a call\n", static_cast<long long>(rows), static_cast<long long>(columns),
              best_seconds([&] { run.run_raw(in, out, 1); }) * 1e9);
  if (std::getenv("HOTLOOP_KERNEL")) std::puts(run.kernel_text().c_str());
}

}  // namespace

int main(int argc, char** argv) {
  const std::string wanted = argc > 1 ? argv[1] : "";
  const auto if_wanted = [&](const std::string& name, const std::function<void()>& fn) {
    if (name.find(wanted) != std::string::npos) fn();
  };
  for (const std::int64_t hidden : {16, 64, 128}) if_wanted("stream" + std::to_string(hidden), [&] { stream(hidden); });
  if_wanted("matvec1x1", [] { matvec(1, 1); });
  if_wanted("matvec100x3", [] { matvec(100, 3); });
  if_wanted("matvec100x100", [] { matvec(100, 100); });
  if_wanted("mlp4", [] { mlp({4, 32, 16, 4}, 10000, DType::F32); });
  if_wanted("mlp24", [] { mlp({24, 8, 2}, 200, DType::F64); });
}
