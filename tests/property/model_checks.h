// A step of training of any model: the oracle's numbers, and the same bits for any number of threads.
#pragma once

#include <cmath>
#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include "arrays.h"
#include "compiled.h"
#include "derivative_checks.h"
#include "hotloop/losses.h"
#include "hotloop/optim.h"
#include "hotloop/train.h"

namespace hotloop::testing {

inline void expect_near(const Array& got, const Array& wanted, double tolerance, const std::string& what) {
  ASSERT_EQ(got.type(), wanted.type());
  for (std::int64_t e = 0; e < got.size(); ++e)
    ASSERT_NEAR(got.at(e), wanted.at(e), tolerance * (1 + std::fabs(wanted.at(e)))) << what << ", element " << e;
}

// On two of the machine's targets, of which the seed says one.
inline void expect_trains_as_the_oracle(const nn::Layer& model, const Tree<Array>& params, const Array& x,
                                        std::mt19937_64& rng, std::uint64_t seed) {
  const optim::SGD optimizer(1.0);
  const Tree<Array> state = optimizer.init(params), buffers = model.init_buffers(x.dtype());
  const ValueType out = model.output_type(x.type());
  const Array y = random_like(rng, out);
  const train::Step step =
      train::train_step(model, losses::MSE(), optimizer, params, state, x.type(), out, {.buffers = buffers});
  const auto graph = step.graph();
  const Arrays arguments = step.arguments(params, state, buffers, {.x = x, .y = y}),
               wanted = ir::evaluate(*graph, arguments);
  const std::vector<Compiled> targets = llvm_targets();
  for (const Compiled& which : {targets[seed % targets.size()], targets.back()}) {
    SCOPED_TRACE(which.target);
    CompileOptions options = which.options();
    const Arrays got = compile(graph, options)(arguments);
    for (std::size_t i = 0; i < got.size(); ++i)
      expect_near(got[i], wanted[i], x.dtype() == DType::F32 ? 1e-4 : 1e-11, "output " + std::to_string(i));
    options.threads = 2 + static_cast<int>(seed % 2);
    const Arrays threads = compile(graph, options)(arguments);
    for (std::size_t i = 0; i < got.size(); ++i) EXPECT_TRUE(same_bits(threads[i], got[i])) << "threads, output " << i;
  }
}

}  // namespace hotloop::testing
