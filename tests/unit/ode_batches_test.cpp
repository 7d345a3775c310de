// Trajectories of a batch take steps of their own, and are bit for bit what they are alone.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

#include "hotloop/jit.h"
#include "hotloop/nn.h"
#include "hotloop/transforms.h"
#include "ir/op_def.h"
#include "ode_problems.h"
#include "op_checks.h"

namespace hotloop {
namespace {

using ode::Options;
using ode::SaveAt;
using testing::vector_of;

// Lorenz systems that need different numbers of steps: (rho, y0) -> saved rows, counts.
std::vector<Value> lorenz(std::span<const Value> in) {
  const ode::Field field = [](Value, const Tree<Value>& y, const Tree<Value>& rho) {
    const Value a = take(y.leaf(), 0, 0), b = take(y.leaf(), 0, 1), c = take(y.leaf(), 0, 2);
    const Value parts[] = {10 * (b - a), a * (rho.leaf() - c) - b, a * b - 8.0 / 3 * c};
    return Tree<Value>(stack(parts, 0));
  };
  Options options;
  options.args = Tree<Value>(in[0]);
  options.controller = ode::PID(1e-6, 1e-6);
  options.saveat = SaveAt::times(std::vector<double>{0.3, 0.5});
  options.max_steps = 500;
  const auto s = ode::solve(field, ode::Tsit5(), 0, 0.5, Tree<Value>(in[1]), options);
  return {s.ys.leaf(), s.y1.leaf(), s.stats.num_accepted, s.stats.num_steps, s.result};
}

std::vector<Array> lorenz_batch(std::int64_t n, DType dtype) {
  Array rho(dtype, {n}), y0(dtype, {n, 3});
  for (std::int64_t i = 0; i < n; ++i) {
    rho.set(i, 28.0 * static_cast<double>((i * 7919) % 1000) / 1000);
    for (std::int64_t c = 0; c < 3; ++c) y0.set(3 * i + c, 1 + 0.1 * static_cast<double>(c));
  }
  return {rho, y0};
}

TEST(OdeBatch, CompiledAgreesWithTheOracle) {
  const auto inputs = lorenz_batch(11, DType::F64);
  const auto graph = trace(vmap(lorenz, {0, 0}), ir::types_of(inputs), "batch");
  const auto oracle = ir::evaluate(*graph, inputs);
  for (const char* backend : {"llvm", "c"}) {
    CompileOptions options;
    options.backend = backend;
    const auto got = compile(graph, options)(inputs);
    for (std::size_t i = 0; i < got.size(); ++i) EXPECT_TRUE(ir::close(got[i], oracle[i], 1e-10)) << backend << i;
  }
}

// bitwise: alone, in a batch of any size, with any number of threads.
TEST(OdeBatch, TrajectoriesDoNotDependOnTheBatch) {
  for (const DType dtype : {DType::F32, DType::F64}) {
    const auto all = lorenz_batch(200, dtype);
    const Jit alone = jit(lorenz);
    const auto whole = jit(vmap(lorenz, {0, 0}))(all);
    CompileOptions two;
    two.threads = 2;
    const auto threaded = jit(vmap(lorenz, {0, 0}), two)(all);
    const auto same = [&](const Array& a, std::int64_t from, const Array& b, std::int64_t at) {
      const std::size_t bytes = b.bytes() / static_cast<std::size_t>(at < 0 ? 1 : b.shape()[0]);
      const auto* p = static_cast<const char*>(a.raw()) + static_cast<std::size_t>(from) * bytes;
      const auto* q = static_cast<const char*>(b.raw()) + (at < 0 ? 0 : static_cast<std::size_t>(at) * bytes);
      return std::memcmp(p, q, bytes) == 0;
    };
    for (std::size_t k = 0; k < whole.size(); ++k)
      EXPECT_EQ(std::memcmp(whole[k].raw(), threaded[k].raw(), whole[k].bytes()), 0) << k;
    for (const std::int64_t n : {1, 7, 16}) {
      const auto got = jit(vmap(lorenz, {0, 0}))(lorenz_batch(n, dtype));
      for (std::size_t k = 0; k < got.size(); ++k)
        for (std::int64_t i = 0; i < n; ++i) EXPECT_TRUE(same(whole[k], i, got[k], i)) << n << " " << k << " " << i;
    }
    for (const std::int64_t i : {0, 1, 50, 199}) {
      Array rho(dtype, {}), y0(dtype, {3});
      rho.set(0, all[0].at(i));
      for (std::int64_t c = 0; c < 3; ++c) y0.set(c, all[1].at(3 * i + c));
      const auto got = alone({rho, y0});
      for (std::size_t k = 0; k < got.size(); ++k) EXPECT_TRUE(same(whole[k], i, got[k], -1)) << i << " " << k;
    }
  }
}

// A neural field, whose layers are dots: (y0, weights) -> y(1).
TracedFunction neural(std::int64_t width) {
  return [width](std::span<const Value> in) {
    const nn::Sequential model(nn::Linear(3, width), nn::Activation("tanh"), nn::Linear(width, 3));
    const Tree<Array> params = model.init(4, in[0].dtype());
    const ode::Field field = [&](Value, const Tree<Value>& y, const Tree<Value>&) {
      return Tree<Value>(3 * model.apply(params.map([](const Array& a) { return constant(a); }), y.leaf()));
    };
    Options options;
    options.controller = ode::PID(1e-5, 1e-5);
    const auto s = ode::solve(field, ode::Tsit5(), 0, 1, Tree<Value>(in[0]), options);
    return std::vector<Value>{s.y1.leaf(), s.stats.num_steps};
  };
}

TEST(OdeBatch, NeuralFieldsDoNotDependOnTheBatch) {
  for (const std::int64_t width : {8, 100}) {
    Array all(DType::F32, {10000, 3});
    for (std::int64_t i = 0; i < all.size(); ++i) all.set(i, 3 * std::sin(static_cast<double>(i * 37 % 1013)));
    const auto whole = jit(vmap(neural(width), {0}))({all});
    CompileOptions two;
    two.threads = 2;
    const auto threaded = jit(vmap(neural(width), {0}), two)({all});
    EXPECT_EQ(std::memcmp(whole[0].raw(), threaded[0].raw(), whole[0].bytes()), 0);
    for (const std::int64_t n : {1, 7, 16}) {
      Array some(DType::F32, {n, 3});
      for (std::int64_t i = 0; i < some.size(); ++i) some.set(i, all.at(i));
      const auto got = jit(vmap(neural(width), {0}))({some});
      EXPECT_EQ(std::memcmp(got[0].raw(), whole[0].raw(), got[0].bytes()), 0) << n;
      EXPECT_EQ(std::memcmp(got[1].raw(), whole[1].raw(), got[1].bytes()), 0) << n;
    }
    Array one(DType::F32, {3});
    for (std::int64_t i = 0; i < 3; ++i) one.set(i, all.at(i));
    const auto alone = jit(neural(width))({one});
    EXPECT_EQ(std::memcmp(alone[0].raw(), whole[0].raw(), one.bytes()), 0);
  }
}

}  // namespace
}  // namespace hotloop
