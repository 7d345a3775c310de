// Steps written one after the other become a loop (ir::reroll): random programs of that kind give the same bits by the oracle with and without it,
// what is compiled gives the oracle's numbers, and gradients agree with tangents, which are of the straight code.
#include "ops/composed/reroll.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <random>
#include <span>
#include <vector>

#include "arrays.h"
#include "compiled.h"
#include "derivative_checks.h"
#include "ir/rewrite.h"
#include "seeds.h"
#include "transformed.h"

namespace hotloop::testing {
namespace {

using Values = std::span<const Value>;

std::int64_t count_loops(const Graph& graph) {
  return std::ranges::count_if(graph.nodes(), [](const auto& node) { return ir::is(*node, ir::OpKind::Loop); });
}

Shape with_time(const Shape& shape, int axis, std::int64_t extent) { return shape.with_inserted(axis, extent); }

void check(std::uint64_t seed) {
  SCOPED_TRACE("HOTLOOP_SEED=" + std::to_string(seed));
  std::mt19937_64 rng(seed);
  const auto pick = [&](int n) { return static_cast<int>(rng() % static_cast<std::uint64_t>(n)); };
  const DType dtype = pick(2) ? DType::F32 : DType::F64;
  const std::int64_t rows = 1 + pick(4), size = 1 + pick(5), steps = 9 + pick(9);
  const Shape shape{rows, size};
  const int time_axis = pick(3), states = 1 + pick(2), kind = pick(7), delay = pick(3), ending = pick(6);
  const std::int64_t apart = 1 + pick(2);  // elements of x from one step to the next
  const std::int64_t wide = 1 + pick(3);
  const bool backwards = pick(2) == 1, in_front = pick(2) == 1, first_differs = pick(4) == 0;
  const std::int64_t extent = apart * steps + wide - 1 + pick(2);
  const Function fn = [=](Values in) {
    const Value x = in[0], weights = in[1], bias = in[2];
    const auto element = [&](std::int64_t t) { return take(x, time_axis, apart * (backwards ? steps - 1 - t : t)); };
    std::vector<Value> before;
    for (std::int64_t t = 0; in_front && t < steps; ++t) before.push_back(element(t));
    std::vector<std::vector<Value>> history(1);
    for (int i = 0; i < states; ++i) history[0].push_back(tanh(in[3] * (0.5 + i)));
    std::vector<Value> outputs;
    for (std::int64_t t = 0; t < steps; ++t) {
      const auto& now = history.back();
      const auto& old = history[history.size() > static_cast<std::size_t>(delay)
                                    ? history.size() - 1 - static_cast<std::size_t>(delay)
                                    : 0];
      const Value x_t = in_front ? before[static_cast<std::size_t>(t)] : element(t);
      std::vector<Value> next;
      for (int i = 0; i < states; ++i) {
        const auto k = static_cast<std::size_t>(i);
        Value z = matmul(now[k], weights) + bias + x_t;
        if (kind == 1) z = z + now[static_cast<std::size_t>(states - 1 - i)] * (0.01 * static_cast<double>(t));
        if (kind == 2) z = z + old[k] * 0.3;
        if (kind == 3) z = z + sum(now[k] * old[k]);
        if (kind == 4) z = z * constant(Array::full(dtype, shape, 1 + 0.01 * static_cast<double>(t)));
        if (kind == 5) z = z + expand_dims(logsumexp(now[k], 1), 1);
        if (kind == 6) {
          // Windows: side by side, overlapping or apart.
          const std::int64_t from = apart * (backwards ? steps - 1 - t : t);
          z = z + reduce_sum(narrow(x, time_axis, from, wide), {time_axis});
        }
        if (first_differs && t == 0) z = exp(z * 0.1);
        next.push_back(tanh(z));
      }
      outputs.push_back(next[0] * next.back());
      history.push_back(next);
    }
    std::vector<Value> out = history.back();
    if (ending == 1) out.push_back(stack(outputs, time_axis));
    if (ending == 2) {
      std::ranges::reverse(outputs);
      out.push_back(concat(outputs, 1));
    }
    if (ending == 3) out.push_back(outputs[3] + outputs[outputs.size() - 2]);
    if (ending == 4) {
      Value total = outputs[0];
      for (std::size_t i = 1; i < outputs.size(); ++i) total = total + outputs[i];
      out.push_back(total);
    }
    if (ending == 5) {
      outputs.push_back(sin(outputs.back()));
      outputs.insert(outputs.begin(), in[3]);
      out = {stack(outputs, 0)};
    }
    return out;
  };
  const Arrays arrays = {random_like(rng, {dtype, with_time(shape, time_axis, extent)}),
                         random_like(rng, {dtype, {size, size}}), random_like(rng, {dtype, {size}}),
                         random_like(rng, {dtype, shape})};
  const auto straight = trace(fn, types_of(arrays));
  const auto rolled = ir::reroll(*straight);
  ASSERT_TRUE(rolled) << straight->str();
  ir::verify(*rolled);
  EXPECT_GE(count_loops(*rolled), 1);
  const Arrays want = ir::evaluate(*straight, arrays), same = ir::evaluate(*rolled, arrays);
  for (std::size_t i = 0; i < want.size(); ++i) EXPECT_TRUE(same_bits(same[i], want[i])) << "output " << i;

  const double tolerance = dtype == DType::F32 ? 2e-4 : 1e-11;
  const std::vector<Compiled> compiled = llvm_targets();
  expect_near(compile(straight, compiled[seed % compiled.size()].options())(arrays), want, tolerance, "compiled");
  const Function loss = scalar_of(fn);
  const Arrays along = directions(rng, arrays);
  const Arrays gradients = evaluate(grad(loss, {0, 1, 2, 3}), arrays);
  const Function tangent = [&](Values in) { return jvp(loss, in.first(4), in.subspan(4)).second; };
  Arrays both = arrays;
  both.insert(both.end(), along.begin(), along.end());
  const double slope = evaluate(tangent, both)[0].at(0);
  EXPECT_NEAR(inner(gradients, along), slope, tolerance * 10 * (1 + std::abs(slope)));
}

TEST(Reroll, GivesTheBitsOfTheStraightCode) { for_seeds(check, 60); }

}  // namespace
}  // namespace hotloop::testing
