// How long single steps of a stream take: the middle, the slow ones, and steps on inputs below the normal range.
//
// usage: step_latency [STEPS]       prints a table for docs/benchmarks/latency.md; 2,000,000 steps of each kind by default
//
// LSTM(8, H) and Linear(H, 1), batch 1, f32, one voice, a step after the other. Each step is timed by itself with the processor's clock,
// whose own time (the least of many empty readings) is taken off. What the system does meanwhile is in the numbers: they are of
// an ordinary process, pinned or not as it was started.
#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <random>
#include <span>
#include <vector>

#include "hotloop/hotloop.h"

using namespace hotloop;

namespace {

using Clock = std::chrono::steady_clock;

std::int64_t ns_of(Clock::time_point from, Clock::time_point to) {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(to - from).count();
}

std::int64_t least_empty_reading() {
  std::int64_t least = 1'000'000;
  for (int i = 0; i < 100'000; ++i) {
    const Clock::time_point a = Clock::now();
    least = std::min(least, ns_of(a, Clock::now()));
  }
  return least;
}

// Times of `steps` steps in ns, in ascending order. `scale` of the inputs: 1, or what makes them subnormal.
std::vector<std::int64_t> times(const Stream& stream, std::size_t steps, double scale, std::int64_t overhead) {
  Stream::Voice voice = stream.voice();
  std::mt19937 generator(3);
  std::normal_distribution<float> normal;
  std::vector<float> inputs(8 * 1024);
  for (float& v : inputs) v = static_cast<float>(scale * static_cast<double>(normal(generator)));
  float y = 0;
  std::vector<std::int64_t> all(steps);
  for (std::size_t i = 0; i < steps + 1000; ++i) {
    const std::span<const float> x(inputs.data() + i % 1024 * 8, 8);
    const Clock::time_point start = Clock::now();
    voice.step(x, std::span<float>(&y, 1));
    const std::int64_t ns = ns_of(start, Clock::now()) - overhead;
    if (i >= 1000) all[i - 1000] = ns;  // the first ones fill caches
  }
  std::ranges::sort(all);
  return all;
}

}  // namespace

int main(int argc, char** argv) {
  const std::size_t steps = argc > 1 ? std::strtoull(argv[1], nullptr, 10) : 2'000'000;
  const std::int64_t overhead = least_empty_reading();
  std::printf("| H | inputs | p50, ns | p99 | p99.99 | slowest of %zu |\n|---|---|---|---|---|---|\n", steps);
  for (const std::int64_t hidden : {16, 64, 128}) {
    const nn::Sequential model(nn::LSTM(8, hidden), nn::Last(), nn::Linear(hidden, 1));
    const Stream stream(model, model.init(0), 8);
    for (const bool subnormal : {false, true}) {
      const std::vector<std::int64_t> all = times(stream, steps, subnormal ? 1e-40 : 1.0, overhead);
      const auto at = [&](double share) {
        return static_cast<long long>(all[static_cast<std::size_t>(share * static_cast<double>(steps - 1))]);
      };
      std::printf("| %lld | %s | %lld | %lld | %lld | %lld |\n", static_cast<long long>(hidden),
                  subnormal ? "below 1e-38" : "normal", at(0.5), at(0.99), at(0.9999),
                  static_cast<long long>(all.back()));
    }
  }
}
