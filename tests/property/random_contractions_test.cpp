// Products of arrays whose axes lie in any order, alone, in batches, in loops and in loops of batches: factors that are read with strides are copied
// where that pays, and what comes out is the oracle's, within its memory and with any number of threads.
#include <algorithm>
#include <numeric>

#include "arrays.h"
#include "compiled.h"
#include "derivative_checks.h"
#include "guard_pages.h"
#include "seeds.h"
#include "transformed.h"

namespace hotloop::testing {
namespace {

using Values = std::span<const Value>;

struct Contraction {
  std::vector<std::int64_t> lhs, rhs;  // extents
  DotAxes axes;
};

class RandomContraction {
 public:
  explicit RandomContraction(std::uint64_t seed) : rng_(seed) {}

  int pick(int n) { return static_cast<int>(rng_() % static_cast<std::uint64_t>(n)); }

  Contraction operator()() {
    Contraction made;
    const int num_batch = pick(3), num_contract = 1 + pick(5) / 4;
    std::vector<std::int64_t> shared;
    for (int i = 0; i < num_batch; ++i) shared.push_back(extent(12));
    for (int i = 0; i < num_contract; ++i) shared.push_back(extent(70));
    const std::vector<std::int64_t> of_lhs = place(shared, 1 + pick(4) / 3, made.lhs),
                                    of_rhs = place(shared, pick(5) == 0 ? 0 : 1 + pick(4) / 3, made.rhs);
    const auto batch_end = static_cast<std::ptrdiff_t>(num_batch);
    made.axes.lhs_batch.assign(of_lhs.begin(), of_lhs.begin() + batch_end);
    made.axes.rhs_batch.assign(of_rhs.begin(), of_rhs.begin() + batch_end);
    made.axes.lhs_contract.assign(of_lhs.begin() + batch_end, of_lhs.end());
    made.axes.rhs_contract.assign(of_rhs.begin() + batch_end, of_rhs.end());
    return made;
  }

 private:
  std::int64_t extent(int most) {
    constexpr std::int64_t few[] = {1, 2, 3, 6, 7, 8, 15, 16, 17, 32, 33, 64};
    const std::int64_t n = pick(2) ? few[pick(12)] : 1 + pick(most);
    return std::min<std::int64_t>(n, most);
  }
  // An array with these axes and `num_free` of its own in any order: its extents, and where the axes are.
  std::vector<std::int64_t> place(const std::vector<std::int64_t>& axes, int num_free,
                                  std::vector<std::int64_t>& extents) {
    std::vector<std::int64_t> all = axes;
    for (int i = 0; i < num_free; ++i) all.push_back(extent(num_free == 1 ? 70 : 12));
    std::vector<std::size_t> order(all.size());
    std::iota(order.begin(), order.end(), 0);
    std::ranges::shuffle(order, rng_);
    std::vector<std::int64_t> at(axes.size());
    for (std::size_t i = 0; i < order.size(); ++i) {
      extents.push_back(all[order[i]]);
      if (order[i] < axes.size()) at[order[i]] = static_cast<std::int64_t>(i);
    }
    return at;
  }

  std::mt19937_64 rng_;
};

void check(std::uint64_t seed) {
  SCOPED_TRACE("HOTLOOP_SEED=" + std::to_string(seed));
  RandomContraction random(seed);
  const Contraction c = random();
  const DType dtype = seed % 3 != 0 ? DType::F32 : DType::F64;
  const int in_loop = random.pick(4), rows = random.pick(2) ? 0 : 1 + random.pick(20), what = random.pick(3);
  constexpr std::int64_t steps = 3;
  // In a loop one factor, or both, are a step's.
  const bool lhs_steps = in_loop == 1 || in_loop == 3, rhs_steps = in_loop == 2 || in_loop == 3;
  const auto product = [=](Value a, Value b) {
    const Value y = dot(a, b, c.axes);
    return what == 0 ? y : what == 1 ? tanh(y * 0.2) : mean(y * y);
  };
  const Function one = [=](Values in) {
    if (in_loop == 0) return std::vector<Value>{product(in[0], in[1])};
    std::vector<Value> xs;
    if (lhs_steps) xs.push_back(in[0]);
    if (rhs_steps) xs.push_back(in[1]);
    const Value init[] = {sum(in[0]) * 0.01};
    const auto [carry, ys] = scan(
        [=](Values state, Values x) {
          const Value y = product(lhs_steps ? x[0] : in[0] * 0.5, rhs_steps ? x[x.size() - 1] : in[1]);
          return std::pair{std::vector{tanh(state[0] + mean(y))}, std::vector{y}};
        },
        init, xs, {});
    return std::vector<Value>{carry[0], ys[0]};
  };
  std::mt19937_64 rng(seed + 5);
  Arrays arrays;
  std::vector<int> axes;
  for (const bool is_lhs : {true, false}) {
    Shape shape(is_lhs ? c.lhs : c.rhs);
    if (is_lhs ? lhs_steps : rhs_steps) shape = shape.with_inserted(0, steps);
    const bool batched = rows > 0 && (is_lhs || random.pick(2) == 0);
    const int axis = batched ? random.pick(shape.rank() + 1) : -1;
    if (batched) shape = shape.with_inserted(axis, rows);
    axes.push_back(axis);
    arrays.push_back(random_like(rng, {dtype, shape}));
  }
  Function fn = rows > 0 ? vmap(one, axes) : one;
  if (random.pick(3) == 0) fn = value_and_grad(scalar_of(fn), {0, 1});
  expect_products_are_the_oracles(fn, arrays, dtype, seed);
}

TEST(RandomContractions, AreTheOraclesWithinTheirMemory) { for_seeds(check, 24, {73}); }

}  // namespace
}  // namespace hotloop::testing
