// The Jacobian of a 1-20-20-400 tanh network for a batch of inputs: one forward tangent a sample, in one kernel, whatever the batch.
//   seed_jacobian [rows]...        (default 100 1000 100000)
#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>

#include "hotloop/hotloop.h"

using namespace hotloop;
using Values = std::span<const Value>;

std::vector<Value> network(Values v) {  // x (N, 1), w1, b1, w2, b2, w3, b3 -> (N, 400)
  const Value h = tanh(matmul(tanh(matmul(v[0], v[1]) + v[2]), v[3]) + v[4]);
  return {matmul(h, v[5]) + v[6]};
}

int main(int argc, char** argv) {
  std::vector<std::int64_t> batches{100, 1000, 100000};
  if (argc > 1) batches.assign(argc - 1, 0);
  for (int i = 1; i < argc; ++i) batches[static_cast<std::size_t>(i - 1)] = std::atoll(argv[i]);
  for (const std::int64_t rows : batches) {
    std::vector<Array> inputs{nn::uniform(1, {rows, 1}, DType::F32, -1, 1)};
    std::int64_t width = 1;
    for (const std::int64_t next : {20, 20, 400}) {
      inputs.push_back(nn::uniform(nn::fold_in(2, std::to_string(inputs.size())), {width, next}, DType::F32, -1, 1));
      inputs.push_back(Array::zeros(DType::F32, {next}));
      width = next;
    }
    std::string explanation;
    const Jit blocks = jit([&](Values v) {
      const Jacobian j = jacobian(network)(v);
      explanation = j.explain();
      return std::vector{j.blocks()};
    });
    const Array first = blocks(inputs)[0];
    double best = 1e300;
    for (int i = 0; i < 5; ++i) {
      const auto start = std::chrono::steady_clock::now();
      blocks(inputs);
      best =
          std::min(best, std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - start).count());
    }
    // A difference quotient in the first sample, as a check.
    const Jit outputs = jit(network);
    const auto moved = [&](float by) {
      std::vector<Array> at = inputs;
      at[0] = inputs[0].clone();
      at[0].set(0, inputs[0].at(0) + by);
      return outputs(at)[0];
    };
    const Array high = moved(1e-2F), low = moved(-1e-2F);
    double error = 0;
    for (std::int64_t k = 0; k < 400; ++k)
      error = std::max(error, std::abs((high.at(k) - low.at(k)) / 2e-2 - first.at(k)));
    std::printf("%s%lld rows: %.1f us, %.3f us a row; differs from a difference quotient by %.1e\n\n",
                explanation.c_str(), static_cast<long long>(rows), best, best / static_cast<double>(rows), error);
    if (!(error < 5e-3)) return 1;
  }
  return 0;
}
