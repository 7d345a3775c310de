// A stream against the whole sequence: every step of one is that step of the other, to the bit.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <cstring>
#include <memory>
#include <tuple>
#include <vector>

#include "hotloop/jit.h"
#include "hotloop/stream.h"
#include "hotloop/train.h"

namespace hotloop::testing {

// The model with fresh buffers on x (batch, T, features), as a graph and what it takes.
struct Prediction {
  std::shared_ptr<const Graph> graph;
  std::vector<Array> arguments;
};
inline Prediction prediction(const nn::Layer& model, const Tree<Array>& params, const Array& x) {
  const Tree<Array> buffers = model.init_buffers(x.dtype());
  const train::Step step = train::predict_step(model, params, x.type(), {.buffers = buffers});
  return {step.graph(), step.arguments(params, {}, buffers, {.x = x})};
}

// Outputs of the whole sequence x (batch, T, features).
inline Array whole(const nn::Layer& model, const Tree<Array>& params, const Array& x,
                   const CompileOptions& options = {}) {
  const Prediction p = prediction(model, params, x);
  return compile(p.graph, options)(p.arguments)[0];
}

// One row of many, as a batch of one.
inline Array row_of(const Array& a, std::int64_t row) {
  Shape shape = a.shape();
  shape[0] = 1;
  Array part(a.dtype(), shape);
  std::memcpy(part.raw(), static_cast<const char*>(a.raw()) + static_cast<std::size_t>(row) * part.bytes(),
              part.bytes());
  return part;
}

// (batch, T, width) -> (batch, width).
inline Array at_step(const Array& x, std::int64_t t) {
  const std::int64_t batch = x.shape()[0], width = x.shape()[2];
  Array row(x.dtype(), {batch, width});
  for (std::int64_t b = 0; b < batch; ++b)
    for (std::int64_t i = 0; i < width; ++i) row.set(b * width + i, x.at((b * x.shape()[1] + t) * width + i));
  return row;
}

// Every step of the stream gives the bits of that step of `expected`, the outputs for the whole of x.
inline void expect_steps_of(const Array& expected, const Stream& stream, const Array& x) {
  Tree<Array> state = stream.initial_state();
  for (std::int64_t t = 0; t < x.shape()[1]; ++t) {
    Array y;
    std::tie(y, state) = stream.step(state, at_step(x, t));
    const Array wanted = at_step(expected, t);
    ASSERT_EQ(y.type(), wanted.type());
    EXPECT_EQ(std::memcmp(y.raw(), wanted.raw(), y.bytes()), 0)
        << "step " << t << ": " << y.str() << " and " << wanted.str();
  }
}

}  // namespace hotloop::testing
