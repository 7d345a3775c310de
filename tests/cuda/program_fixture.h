// What tests of whole programs on an emulated CUDA device share.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <memory>
#include <vector>

#include "cuda/emulated_device.h"
#include "hotloop/hotloop.h"
#include "hotloop/train.h"

namespace hotloop {

using cuda::EmulatedDevice;
using cuda::EmulatedOptions;
using cuda::ThreadOrder;
using Values = std::span<const Value>;

class CudaPrograms : public ::testing::Test {
 protected:
  ~CudaPrograms() override { cuda::set_device(nullptr); }
  // For this test alone. It is never gone while executables of the process' cache hold memory of it.
  EmulatedDevice& device(const EmulatedOptions& options = {}) {
    static auto& made = *new std::vector<std::unique_ptr<EmulatedDevice>>;
    made.push_back(cuda::make_emulated_device(options));
    cuda::set_device(made.back().get());
    return *made.back();
  }
};

inline CompileOptions on_cuda() {
  CompileOptions options;
  options.device = "cuda";
  return options;
}

inline Array numbers(const ValueType& type, std::uint32_t state) {
  Array a(type.dtype, type.shape);
  for (std::int64_t i = 0; i < a.size(); ++i) {
    state = state * 1664525u + 1013904223u;
    a.set(i, is_float(type.dtype) ? static_cast<double>(state >> 8) / 8388608.0 - 1 : 1);
  }
  return a;
}
inline std::vector<Array> numbers(const Graph& graph, std::uint32_t seed) {
  std::vector<Array> all;
  for (const ValueType& t : graph.input_types()) all.push_back(numbers(t, ++seed));
  return all;
}
inline bool same_bits(const Array& a, const Array& b) {
  return a.type() == b.type() && std::memcmp(a.raw(), b.raw(), a.bytes()) == 0;
}
inline void expect_near(const std::vector<Array>& got, const std::vector<Array>& wanted, double tolerance) {
  ASSERT_EQ(got.size(), wanted.size());
  for (std::size_t i = 0; i < got.size(); ++i) {
    ASSERT_EQ(got[i].type(), wanted[i].type()) << "output " << i;
    double largest = 1e-6;
    for (std::int64_t k = 0; k < wanted[i].size(); ++k) largest = std::max(largest, std::fabs(wanted[i].at(k)));
    for (std::int64_t k = 0; k < wanted[i].size(); ++k)
      ASSERT_LE(std::fabs(got[i].at(k) - wanted[i].at(k)), tolerance * largest) << "output " << i << ", element " << k;
  }
}

struct Training {
  explicit Training(const nn::Layer& cell, std::int64_t units, std::int64_t rows = 10, std::int64_t steps = 5)
      : model(cell, nn::Last(), nn::Linear(units, 2)),
        params(model.init(1)),
        optimizer(1e-2),
        state(optimizer.init(params)),
        step(train::train_step(model, losses::MSE(), optimizer, params, state, {DType::F32, {rows, steps, 3}},
                               {DType::F32, {rows, 2}})) {}
  std::vector<Array> inputs(const Graph& graph) const {
    std::vector<Array> all = params.flatten();
    for (const Array& a : state.flatten()) all.push_back(a);
    while (all.size() < graph.inputs().size())
      all.push_back(numbers(graph.input_types()[all.size()], static_cast<std::uint32_t>(all.size())));
    return all;
  }
  nn::Sequential model;
  Tree<Array> params;
  optim::Adam optimizer;
  Tree<Array> state;
  train::Step step;
};

}  // namespace hotloop
