// What holds of any model: outputs and a step of training are the oracle's, with the same bits whichever way they are computed.
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
#include "streams.h"

namespace hotloop::testing {

inline void expect_near(const Array& got, const Array& wanted, double tolerance, const std::string& what) {
  ASSERT_EQ(got.type(), wanted.type());
  for (std::int64_t e = 0; e < got.size(); ++e)
    ASSERT_NEAR(got.at(e), wanted.at(e), tolerance * (1 + std::fabs(wanted.at(e)))) << what << ", element " << e;
}

inline Array oracle(const nn::Layer& model, const Tree<Array>& params, const Array& x) {
  const Prediction p = prediction(model, params, x);
  return ir::evaluate(*p.graph, p.arguments)[0];
}

enum class Steps { None, OfTheFirstRow, OfAllRows };  // of a stream

// The output, which any number of threads, a row alone and the steps of a stream give to the bit.
inline Array expect_the_same_bits(const nn::Layer& model, const Tree<Array>& params, const Array& x,
                                  CompileOptions options, std::uint64_t seed, Steps steps) {
  const Array got = whole(model, params, x, options);
  options.threads = 2 + static_cast<int>(seed % 2);
  EXPECT_TRUE(same_bits(whole(model, params, x, options), got)) << "threads";
  options.threads = 1;
  for (const std::int64_t row : {std::int64_t{0}, x.shape()[0] - 1})
    EXPECT_TRUE(same_bits(whole(model, params, row_of(x, row), options), row_of(got, row))) << "row " << row;
  if (steps == Steps::None) return got;
  const bool one = steps == Steps::OfTheFirstRow;
  const Array rows = one ? row_of(x, 0) : x;
  const Stream stream(model, params, x.shape()[2],
                      {.batch = rows.shape()[0], .buffers = model.init_buffers(x.dtype()), .compile = options});
  expect_steps_of(one ? row_of(got, 0) : got, stream, rows);
  return got;
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
