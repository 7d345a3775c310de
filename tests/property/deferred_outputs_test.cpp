// What steps of few numbers only emit is computed after the loop (defer_outputs): random chains of elementwise operations of states, inputs and
// what stays the same, with derivatives, give the same bits as in the loop.
#include <algorithm>

#include "arrays.h"
#include "compiled.h"
#include "derivative_checks.h"
#include "guard_pages.h"
#include "seeds.h"
#include "transformed.h"

namespace hotloop::testing {
namespace {

using Values = std::span<const Value>;

void check(std::uint64_t seed) {
  SCOPED_TRACE("HOTLOOP_SEED=" + std::to_string(seed));
  std::mt19937_64 rng(seed);
  const auto pick = [&](int n) { return static_cast<int>(rng() % static_cast<std::uint64_t>(n)); };
  const DType dtype = pick(3) ? DType::F32 : DType::F64;
  const std::vector<Shape> shapes = {{}, {1}, {3}, {1, 2}, {2, 2}, {8}, {9}};
  const Shape shape = shapes[static_cast<std::size_t>(pick(7))];
  const std::int64_t steps = 15 + pick(30);
  const int num_ys = 1 + pick(3), num_states = 1 + pick(2);
  const std::uint64_t program = rng();
  const bool reverse = pick(2) == 1;
  const auto fn = [=](Values in) {
    const auto body = [=](Values state, Values x) {
      std::mt19937_64 choose(program);
      const auto one_of = [&](std::size_t n) { return static_cast<std::size_t>(choose() % n); };
      std::vector<Value> pool(state.begin(), state.end());
      pool.push_back(x[0]);
      pool.push_back(in[2]);
      std::vector<Value> next;
      for (const Value& s : state) next.push_back(tanh(s * 0.9 + pool[one_of(pool.size())] * in[2]));
      pool.insert(pool.end(), next.begin(), next.end());
      std::vector<Value> ys;
      for (int i = 0; i < 9; ++i) {
        const Value a = pool[one_of(pool.size())], b = pool[one_of(pool.size())];
        switch (one_of(8)) {
          case 0: pool.push_back(a * b); break;
          case 1: pool.push_back(log(square(a) + 1.5)); break;
          case 2: pool.push_back(a / (square(b) + 0.7)); break;
          case 3: pool.push_back(exp(a * 0.3)); break;
          case 4: pool.push_back(select(less(a, b), a, sin(b))); break;
          case 5: pool.push_back(a + sum(b)); break;  // a part of it stays
          case 6: pool.push_back(reshape(reshape(a, {shape.size()}), shape) - b); break;
          default: pool.push_back(sqrt(square(a) + square(b) + 0.1)); break;
        }
      }
      for (int i = 0; i < num_ys; ++i) ys.push_back(pool[pool.size() - 1 - one_of(6)]);
      return std::pair{next, ys};
    };
    const std::vector<Value> init(in.begin() + 3, in.end()), xs{in[0] * in[1]};
    auto [carry, ys] = scan(body, init, xs, {.reverse = reverse});
    std::vector<Value> out = carry;
    for (const Value& y : ys) out.push_back(program % 2 ? sum(y) : y);
    return out;
  };
  Arrays arrays;
  for (int i = 0; i < 2; ++i) arrays.push_back(random_like(rng, {dtype, shape.with_inserted(0, steps)}));
  for (int i = 0; i <= num_states; ++i) arrays.push_back(random_like(rng, {dtype, shape}));
  Function whole = fn;
  if (pick(3) == 0) whole = value_and_grad(scalar_of(fn), {0, 2, 3});
  const auto graph = trace(whole, types_of(arrays));
  const std::vector<Compiled> compiled = llvm_targets();
  CompileOptions options = compiled[seed % compiled.size()].options();
  const Arrays got = compile(graph, options)(arrays);
  expect_near(got, ir::evaluate(*graph, arrays), dtype == DType::F32 ? 1e-3 : 1e-10, "oracle");
  expect_within_guards(*graph, arrays, options, seed % 2 != 1, got);
  options.disabled_passes = {"defer_outputs"};
  const Arrays in_loop = compile(graph, options)(arrays);
  for (std::size_t i = 0; i < got.size(); ++i) EXPECT_TRUE(same_bits(got[i], in_loop[i])) << "output " << i;
}

TEST(DeferredOutputs, HaveTheBitsOfTheLoop) { for_seeds(check, 24); }

// What stays the same and was not hoisted, as a loop inside is not without that pass, is not found outside.
TEST(DeferredOutputs, ReadWhatIsFoundOutside) {
  const auto fn = [](Values in) {
    const Value w = in[1], init[] = {w * 0.0};
    const auto body = [&](Values c, Values x) {
      const auto inner = [](Values a, Values) { return std::pair{std::vector{sin(a[0]) * 1.1}, std::vector<Value>{}}; };
      const Value start[] = {w};
      const Value z = x[0] * scan(inner, start, {}, {.length = 3}).first[0] + 0.25;
      const Value next = tanh(c[0] * 0.5 + z);
      return std::pair{std::vector{next}, std::vector{exp(z * next) * sin(next + z)}};
    };
    auto [carry, ys] = scan(body, init, in.first(1));
    return std::vector{carry[0], ys[0]};
  };
  std::mt19937_64 rng(1);
  const Arrays arrays = {random_like(rng, {DType::F64, {64}}), random_like(rng, {DType::F64, {}})};
  const auto graph = trace(fn, types_of(arrays));
  for (const std::vector<std::string>& disabled : {std::vector<std::string>{}, {"hoist"}, {"hoist", "inline_loops"}}) {
    CompileOptions options;
    options.disabled_passes = disabled;
    expect_near(compile(graph, options)(arrays), ir::evaluate(*graph, arrays), 1e-12, "oracle");
  }
}

}  // namespace
}  // namespace hotloop::testing
