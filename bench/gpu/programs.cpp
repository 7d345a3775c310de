// What Hotloop takes on a CUDA device for the programs of rivals.py, beside the same machine's processor; each result is compared first.
//
// usage: gpu_programs [--quick] [--device] [NAME...]
// --device: without the processor, and so without comparing
//
// call    a call: the arrays go there, and the results come back
// device  of it from the launch to its end
// stream  launches back to back, without copies and without waiting for single ones; in training each goes on from what the last one left
#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <functional>
#include <string>
#include <vector>

#include "hotloop/hotloop.h"
#include "hotloop/train.h"
#include "recorded_launches.h"
#include "user_cells.h"

namespace {

using namespace hotloop;
using Clock = std::chrono::steady_clock;

struct Job {
  std::string name;
  std::shared_ptr<const Graph> graph;
  std::vector<Array> inputs;
  std::int64_t steps = 1;  // of training in one call
};

Array numbers(const ValueType& type, int seed, double scale) {
  Array a(type.dtype, type.shape);
  std::uint32_t state = static_cast<std::uint32_t>(seed) * 2654435761u + 12345u;
  for (std::int64_t i = 0; i < a.size(); ++i) {
    state = state * 1664525u + 1013904223u;
    a.set(i, is_float(type.dtype) ? scale * (static_cast<double>(state >> 8) / 8388608.0 - 1) : 1);
  }
  return a;
}

Job training(const std::string& name, const nn::Layer& cell, std::int64_t B, std::int64_t T, std::int64_t I,
             std::int64_t H, std::int64_t steps) {
  const nn::Sequential model(cell, nn::Last(), nn::Linear(H, 1));
  const Tree<Array> params = model.init(0);
  const optim::SGD optimizer(1e-3);
  const Tree<Array> state = optimizer.init(params);
  train::Step step =
      train::train_step(model, losses::MSE(), optimizer, params, state, {DType::F32, {B, T, I}}, {DType::F32, {B, 1}});
  if (steps > 1) step = train::many_steps(step, steps);
  Job job{name + (steps > 1 ? ", " + std::to_string(steps) + " steps a call" : ""), step.graph(), {}, steps};
  const std::vector<Array> leaves = params.flatten(), more = state.flatten();
  for (const Array& a : leaves) job.inputs.push_back(a);
  for (const Array& a : more) job.inputs.push_back(a);
  int seed = 1;
  while (job.inputs.size() < job.graph->inputs().size())
    job.inputs.push_back(numbers(job.graph->input_types()[job.inputs.size()], seed++, 1));
  return job;
}

Job inference(const std::string& name, const nn::Layer& cell, std::int64_t B, std::int64_t T, std::int64_t I,
              std::int64_t H) {
  const nn::Sequential model(cell, nn::Last(), nn::Linear(H, 1));
  const Tree<Array> params = model.init(0);
  const train::Step step = train::predict_step(model, params, {DType::F32, {B, T, I}});
  Job job{name, step.graph(), params.flatten(), 1};
  job.inputs.push_back(numbers({DType::F32, {B, T, I}}, 3, 1));
  return job;
}

Job function(const std::string& name, const Function& fn, const std::vector<Array>& inputs) {
  std::vector<ValueType> types;
  for (const Array& a : inputs) types.push_back(a.type());
  return {name, trace(fn, types), inputs, 1};
}

using Values = std::span<const Value>;

Value mlp(Values p, Value x) {
  for (std::size_t i = 0; i + 1 < p.size(); i += 2) {
    x = nn::linear(x, p[i]) + p[i + 1];
    if (i + 3 < p.size()) x = tanh(x);
  }
  return x;
}
std::vector<Array> weights(const std::vector<std::int64_t>& widths) {
  std::vector<Array> all;
  for (std::size_t i = 0; i + 1 < widths.size(); ++i) {
    all.push_back(numbers({DType::F32, {widths[i + 1], widths[i]}}, static_cast<int>(i) + 7,
                          1 / std::sqrt(static_cast<double>(widths[i]))));
    all.push_back(numbers({DType::F32, {widths[i + 1]}}, static_cast<int>(i) + 17, 0.1));
  }
  return all;
}

Job jacobian_of(std::int64_t batch) {
  std::vector<Array> inputs = weights({1, 20, 20, 400});
  inputs.push_back(numbers({DType::F32, {batch, 1}}, 5, 1));
  const Function one = jacfwd([](Values in) { return std::vector{mlp(in.first(in.size() - 1), in.back())}; }, {6});
  return function("jacobian 1-20-20-400 batch " + std::to_string(batch), vmap(one, {-1, -1, -1, -1, -1, -1, 0}),
                  inputs);
}

Value rk4(const std::function<Value(Value)>& f, Value s, double dt) {
  const Value k1 = f(s), k2 = f(s + dt / 2 * k1), k3 = f(s + dt / 2 * k2), k4 = f(s + dt * k3);
  return s + dt / 6 * (k1 + 2 * k2 + 2 * k3 + k4);
}

Job lorenz(std::int64_t systems, std::int64_t steps) {
  const auto field = [](Value s) {
    const Value x = take(s, 0, 0), y = take(s, 0, 1), z = take(s, 0, 2);
    const Value parts[] = {10 * (y - x), x * (28 - z) - y, x * y - 8.0 / 3 * z};
    return stack(parts, 0);
  };
  const Function one = [=](Values in) {
    return scan(
               [=](Values carry, Values) {
                 return std::pair{std::vector{rk4(field, carry[0], 0.002)}, std::vector<Value>{}};
               },
               in, {}, {.length = steps})
        .first;
  };
  return function("lorenz " + std::to_string(systems) + ", " + std::to_string(steps) + " RK4 steps", vmap(one, {1}),
                  {numbers({DType::F32, {3, systems}}, 9, 10)});
}

Job neural_ode(std::int64_t batch, std::int64_t steps) {
  std::vector<Array> inputs = weights({3, 100, 3});
  inputs.push_back(numbers({DType::F32, {batch, 3}}, 5, 1));
  const Function loss = [=](Values in) {
    const std::vector<Value> p(in.begin(), in.end() - 1);
    const auto field = [&](Value s) { return mlp(p, s); };
    const Value start[] = {in.back()};
    const auto last = scan(
                          [&](Values carry, Values) {
                            return std::pair{std::vector{rk4(field, carry[0], 0.025)}, std::vector<Value>{}};
                          },
                          start, {}, {.length = steps})
                          .first;
    return std::vector{mean(square(last[0]))};
  };
  return function("neural ODE 3-100-3, " + std::to_string(steps) + " RK4 steps, gradient", grad(loss, {0, 1, 2, 3}),
                  inputs);
}

struct Times {
  double median_us = 0, device_us = 0, stream_us = 0;
};

double median(std::vector<double> values) {
  std::ranges::sort(values);
  return values.empty() ? 0 : values[values.size() / 2];
}

// As long rows of launches as rivals.py takes.
double back_to_back_us(const bench::Launch& launch, double one_us, double seconds) {
  const int n = static_cast<int>(std::clamp(seconds * 1e6 / 5 / std::max(one_us, 1.0), 2.0, 2000.0));
  std::vector<double> us;
  for (int round = 0; round < 5; ++round) {
    const auto start = Clock::now();
    for (int i = 0; i < n; ++i) launch.again();
    launch.stream->wait();
    us.push_back(std::chrono::duration<double, std::micro>(Clock::now() - start).count() / n);
  }
  return median(us);
}

Times measure(const Executable& e, const std::vector<Array>& inputs, double seconds,
              const bench::RecordingDevice* on = nullptr) {
  std::vector<Array> outputs(e.output_types().size());
  for (int i = 0; i < 2; ++i) e.run(inputs, outputs);
  std::vector<double> us;
  const auto start = Clock::now();
  while (us.size() < 5 || std::chrono::duration<double>(Clock::now() - start).count() < seconds) {
    const auto before = Clock::now();
    e.run(inputs, outputs);
    us.push_back(std::chrono::duration<double, std::micro>(Clock::now() - before).count());
    if (us.size() >= 3 && std::chrono::duration<double>(Clock::now() - start).count() > 4 * seconds) break;
  }
  Times times{.median_us = median(us)};
  if (on == nullptr) return times;
  std::vector<double> device;
  for (int i = 0; i < 9; ++i) {
    KernelHistory::start();
    e.run(inputs, outputs);
    for (const KernelRecord& r : KernelHistory::stop()) device.push_back(r.device_us);
  }
  times.device_us = median(device);
  times.stream_us = back_to_back_us(on->last_launch(), times.device_us, seconds);
  return times;
}

double difference(const std::vector<Array>& a, const std::vector<Array>& b) {
  double worst = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    double largest = 1e-30, apart = 0;
    for (std::int64_t k = 0; k < a[i].size(); ++k) {
      const double x = a[i].at(k), y = b[i].at(k);
      if (!(std::isfinite(x) && std::isfinite(y))) return INFINITY;
      largest = std::max(largest, std::fabs(y));
      apart = std::max(apart, std::fabs(x - y));
    }
    worst = std::max(worst, apart / largest);
  }
  return worst;
}

}  // namespace

int main(int argc, char** argv) {
  std::vector<std::string> wanted;
  bool quick = false, device_alone = false;
  for (int i = 1; i < argc; ++i) {
    if (std::strcmp(argv[i], "--quick") == 0)
      quick = true;
    else if (std::strcmp(argv[i], "--device") == 0)
      device_alone = true;
    else
      wanted.emplace_back(argv[i]);
  }
  std::vector<std::function<Job()>> jobs;
  struct Shape {
    std::int64_t I, H, B, T, layers;
  };
  for (const Shape s : {Shape{8, 64, 512, 100, 1},
                        {8, 32, 32, 200, 1},
                        {12, 128, 256, 60, 1},
                        {64, 256, 128, 100, 1},
                        {64, 512, 64, 100, 2}}) {
    const std::string name = "LSTM I" + std::to_string(s.I) + " H" + std::to_string(s.H) + " B" + std::to_string(s.B) +
                             " T" + std::to_string(s.T) + (s.layers > 1 ? " layers" + std::to_string(s.layers) : "");
    const auto lstm = [=] { return nn::LSTM(s.I, s.H, s.layers); };
    for (const std::int64_t steps : {1, 16})
      if (steps == 1 || s.H <= 128)
        jobs.emplace_back([=] { return training(name + " train", lstm(), s.B, s.T, s.I, s.H, steps); });
    jobs.emplace_back([=] { return inference(name + " predict", lstm(), s.B, s.T, s.I, s.H); });
  }
  for (const std::int64_t steps : {1, 16})
    jobs.emplace_back([=] {
      return training("LayerNorm-LSTM I12 H48 B48 T60 train", nn::Recurrent(testing::LayerNormLstmCell(12, 48)), 48, 60,
                      12, 48, steps);
    });
  for (const std::int64_t batch : {100, 1000}) jobs.emplace_back([=] { return jacobian_of(batch); });
  jobs.emplace_back([] { return lorenz(8192, 1000); });
  jobs.emplace_back([] { return neural_ode(128, 40); });

  std::string why;
  cuda::Device* machine = cuda::find_device(&why);
  if (machine == nullptr) {
    std::fprintf(stderr, "%s\n", why.c_str());
    return 1;
  }
  auto& recording = *new bench::RecordingDevice(*machine);  // what the process keeps of executables has memory of it
  cuda::set_device(&recording);
  std::printf("%s; %s\n%-52s %9s %9s %9s %9s %9s %8s %s\n", machine->info().name.c_str(),
              machine->info().versions.c_str(), "ms a call (training: a step)", "call", "device", "stream", "1 core",
              "cores", "off by", "auto");
  for (const auto& make : jobs) {
    const Job job = make();
    if (!wanted.empty() &&
        std::ranges::none_of(wanted, [&](const std::string& w) { return job.name.find(w) != std::string::npos; }))
      continue;
    try {
      CompileOptions gpu, cpu;
      gpu.device = "cuda";
      cpu.device = "cpu";
      const Executable e = compile(job.graph, gpu);
      const double seconds = quick ? 0.02 : 0.25, scale = 1e-3 / static_cast<double>(job.steps);
      if (device_alone) {
        const Times t = measure(e, job.inputs, seconds, &recording);
        std::printf("%-52s %9.4f %9.4f %9.4f\n", job.name.c_str(), t.median_us * scale, t.device_us * scale,
                    t.stream_us * scale);
        std::fflush(stdout);
        continue;
      }
      const Executable one = compile(job.graph, cpu);
      cpu.threads = 0;
      const Executable all = compile(job.graph, cpu);
      const double off = difference(e(job.inputs), one(job.inputs));
      const Times t = measure(e, job.inputs, seconds, &recording), c = measure(one, job.inputs, seconds),
                  a = measure(all, job.inputs, seconds);
      cpu.device = "auto";
      const std::string choice = compile(job.graph, cpu).explain();
      std::printf("%-52s %9.4f %9.4f %9.4f %9.4f %9.4f %8.1e %s\n", job.name.c_str(), t.median_us * scale,
                  t.device_us * scale, t.stream_us * scale, c.median_us * scale, a.median_us * scale, off,
                  choice.find("cuda, chosen") != std::string::npos ? "cuda" : "cpu");
    } catch (const std::exception& error) {
      std::printf("%-52s %s\n", job.name.c_str(), error.what());
    }
    std::fflush(stdout);
  }
}
