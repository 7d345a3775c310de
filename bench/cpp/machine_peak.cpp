// What one core of this machine can do, for the roofline: products added in registers, and memory read and written.
// Prints {"gflops_f32": ..., "gb_s": ...}.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <vector>

namespace {

using Clock = std::chrono::steady_clock;
#if defined(__AVX512F__)
constexpr int lanes = 16;
#elif defined(__AVX__)
constexpr int lanes = 8;
#else
constexpr int lanes = 4;
#endif
using Vector __attribute__((vector_size(lanes * sizeof(float)))) = float;

double seconds_since(Clock::time_point start) { return std::chrono::duration<double>(Clock::now() - start).count(); }

// Chains enough to hide the latency of a fused multiply-add (4 cycles, two units), few enough for the registers.
double products(float seed) {
  constexpr int chains = 12, repeats = 200000;
  Vector sums[chains], factor, term;
  for (int i = 0; i < lanes; ++i) factor[i] = seed, term[i] = 1 - seed;
  for (int i = 0; i < chains; ++i)
    sums[i] = factor * (seed + static_cast<float>(i));  // equal chains would be computed once
  const Clock::time_point start = Clock::now();
  for (int n = 0; n < repeats; ++n) {
#pragma GCC unroll 12
    for (int i = 0; i < chains; ++i) sums[i] = sums[i] * factor + term;
  }
  const double seconds = seconds_since(start);
  volatile float kept = 0;
  for (const Vector& sum : sums) kept = kept + sum[0];
  return 2.0 * repeats * chains * lanes / seconds / 1e9;
}

double copied(std::vector<char>& to, const std::vector<char>& from) {
  const Clock::time_point start = Clock::now();
  std::memcpy(to.data(), from.data(), from.size());
  return 2.0 * static_cast<double>(from.size()) / seconds_since(start) / 1e9;
}

}  // namespace

int main(int argc, char**) {
  double gflops = 0, gb_s = 0;
  for (int i = 0; i < 200; ++i) gflops = std::max(gflops, products(0.5F + 0.001F * static_cast<float>(argc)));
  std::vector<char> from(std::size_t{128} << 20, 1), to(from.size());
  for (int i = 0; i < 20; ++i) gb_s = std::max(gb_s, copied(to, from));
  std::printf("{\"gflops_f32\": %.1f, \"gb_s\": %.1f}\n", gflops, gb_s);
}
