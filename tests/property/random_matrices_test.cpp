// Programs of products and systems of small matrices put together at random: factors as they lie, turned, parts of larger ones, a step apart;
// linear systems; states that are matrices inside loops. Alone and as batches they give what the oracle gives, within their memory.
#include <algorithm>

#include "arrays.h"
#include "compiled.h"
#include "derivative_checks.h"
#include "guard_pages.h"
#include "hotloop/linalg.h"
#include "seeds.h"
#include "transformed.h"

namespace hotloop::testing {
namespace {

using Values = std::span<const Value>;

class RandomMatrices {
 public:
  RandomMatrices(std::uint64_t seed, DType dtype) : rng_(seed), dtype_(dtype) {}

  // (a [m, n], b [p, q], v [w], i i32[]) -> two floats.
  std::vector<Value> operator()(Values in) {
    pool_ = {in[0], in[1]};
    vectors_ = {in[2]};
    index_ = in[3];
    for (int i = 0, n = 2 + pick(4); i < n; ++i) {
      const Value next = step();
      (next.rank() == 1 ? vectors_ : pool_).push_back(tanh(next));
    }
    return {pool_.back(), vectors_.back()};
  }

 private:
  int pick(int n) { return static_cast<int>(rng_() % static_cast<std::uint64_t>(n)); }
  int pick(std::int64_t n) { return pick(static_cast<int>(n)); }
  Value any() { return pool_[static_cast<std::size_t>(pick(static_cast<int>(pool_.size())))]; }
  Value any_vector() { return vectors_[static_cast<std::size_t>(pick(static_cast<int>(vectors_.size())))]; }
  std::int64_t extent() {
    constexpr std::int64_t few[] = {1, 2, 3, 6, 7, 15, 16, 17, 32, 33};
    return pick(2) ? few[pick(10)] : 1 + pick(40);
  }
  // v with that extent: cut at any place, also with a step, or filled up with itself.
  Value fit(Value v, int axis, std::int64_t extent) {
    while (v.shape()[axis] < extent) {
      const Value parts[] = {v, v * 0.9};
      v = concat(parts, axis);
    }
    const std::int64_t has = v.shape()[axis], by = std::max<std::int64_t>(1, has / extent);
    if (by == 1 || pick(2)) return has == extent ? v : narrow(v, axis, pick(has - extent + 1), extent);
    std::vector<std::int64_t> start(static_cast<std::size_t>(v.rank())), stop, step(start.size(), 1);
    for (int a = 0; a < v.rank(); ++a) stop.push_back(v.shape()[a]);
    const auto at = static_cast<std::size_t>(axis);
    start[at] = pick(has - (extent - 1) * by), stop[at] = start[at] + (extent - 1) * by + 1, step[at] = by;
    return slice(v, start, stop, step);
  }
  // A matrix of that shape, which may be the other way round in memory.
  Value matrix(std::int64_t rows, std::int64_t columns) {
    const Value v = any();
    return pick(2) ? transpose(fit(fit(v, 0, columns), 1, rows), {1, 0}) : fit(fit(v, 0, rows), 1, columns);
  }
  Value vector(std::int64_t n) {
    switch (pick(4)) {
      case 0: return fit(take(any(), pick(2), -1), 0, n);
      case 1: return reduce_sum(matrix(n, extent()), {1}) * 0.3;
      case 2: return reduce_sum(matrix(extent(), n), {0}) * 0.3;
      default: return fit(any_vector(), 0, n);
    }
  }
  // Far from singular, with rows exchanged at random.
  Value system(std::int64_t n) {
    const Value diagonal = cast(equal(iota(DType::I32, {n, n}, 0), iota(DType::I32, {n, n}, 1)), dtype_);
    const Value a = matrix(n, n) * (0.5 / std::sqrt(static_cast<double>(n))) + diagonal * 2.0;
    return pick(2) ? reverse(a, {0}) : a;
  }
  Value positive(std::int64_t n) {
    const Value diagonal = cast(equal(iota(DType::I32, {n, n}, 0), iota(DType::I32, {n, n}, 1)), dtype_);
    const Value a = matrix(n, n) * (0.7 / std::sqrt(static_cast<double>(n)));
    return matmul(a, transpose(a, {1, 0})) + diagonal * 1.5;
  }

  Value step() {
    const std::int64_t m = extent(), n = extent(), k = extent();
    switch (pick(14)) {
      case 0: return matmul(matrix(m, k), matrix(k, n)) * 0.3;
      case 1: return matmul(matrix(m, k), vector(k)) * 0.3;
      case 2: return matmul(vector(k), matrix(k, n)) * 0.3;
      case 3: return matmul(matrix(m, k), matrix(k, n)) * 0.3 + vector(n);
      case 4: return exp(matrix(m, n) * 0.3) + matrix(m, n) * expand_dims(vector(m), 1);
      case 5: return matrix(m, n) - expand_dims(mean(matrix(m, n), {1}), 1);
      case 6: {
        const std::int64_t size = std::min<std::int64_t>(n, 20);
        return linalg::solve(system(size), pick(2) ? matrix(size, std::min<std::int64_t>(m, 17)) : vector(size));
      }
      case 7: {
        const std::int64_t size = std::min<std::int64_t>(n, 20);
        const Value l = linalg::cholesky(positive(size));
        return pick(2) ? linalg::cholesky_solve(l, vector(size)) : l;
      }
      case 8: return vector(n) * linalg::det(system(std::min<std::int64_t>(m, 9)) * 0.5);
      case 9: {  // a block written at a place that is computed, which may be beyond the end
        const Value into = matrix(m, n), zero = constant(0, DType::I32),
                    starts[] = {pick(2) ? index_ : zero, index_ * 3 - 4};
        return dynamic_update(into, matrix(1 + pick(m), 1 + pick(n)), starts);
      }
      case 10: {
        const Value from = matrix(m, n), starts[] = {index_ * 2 - 3, index_};
        return dynamic_slice(from, starts, {1 + pick(m), 1 + pick(n)});
      }
      case 11: {  // a filter's covariance
        const std::int64_t size = std::min<std::int64_t>(n, 11), steps = 1 + pick(4);
        const Value f = matrix(size, size) * (0.6 / std::sqrt(static_cast<double>(size))), noise = positive(size);
        const Value xs[] = {matrix(steps, size)}, init[] = {positive(size), vector(size)};
        auto [carry, ys] = scan(
            [&](Values c, Values x) {
              const Value p = matmul(matmul(f, c[0]), transpose(f, {1, 0})) + noise;
              const Value gain = linalg::solve(p + noise, matmul(p, x[0]));
              return std::pair{std::vector{p * 0.5, tanh(matmul(f, c[1]) + gain)}, std::vector{gain}};
            },
            init, xs, {});
        return carry[static_cast<std::size_t>(pick(2))];
      }
      case 12: {  // a cell with a matrix of its own for a state
        const std::int64_t rows = std::min<std::int64_t>(m, 16), columns = std::min<std::int64_t>(n, 16),
                           steps = 1 + pick(5);
        const Value xs[] = {matrix(steps, columns), matrix(steps, rows)}, init[] = {matrix(rows, columns)};
        const bool by_columns = pick(2) == 1;
        const auto [carry, ys] = scan(
            [&](Values c, Values x) {
              const Value read = matmul(c[0], x[0]),
                          outer = expand_dims(tanh(x[1] - read * 0.2), 1) * expand_dims(x[0], 0);
              const Value next = c[0] * 0.8 + outer * 0.3;
              const Value y = by_columns ? reduce_sum(next, {0}) : reduce_max(next, {1});
              return std::pair{std::vector{next}, std::vector{y}};
            },
            init, xs, {});
        return pick(2) ? carry[0] : ys[0];
      }
      default: {  // until it is small
        const std::int64_t size = std::min<std::int64_t>(n, 12);
        const Value a = matrix(size, size) * (0.4 / std::sqrt(static_cast<double>(size))),
                    init[] = {vector(size), matrix(size, 3)};
        return while_loop([](Values c) { return greater(sum(square(c[0])), like(sum(c[0]), 0.013)); },
                          [&](Values c) {
                            return std::vector{matmul(a, c[0]) * 0.5, tanh(matmul(a, c[1]) + expand_dims(c[0], 1))};
                          },
                          init, 6)[static_cast<std::size_t>(pick(2))];
      }
    }
  }

  std::mt19937_64 rng_;
  DType dtype_;
  Value index_;
  std::vector<Value> pool_, vectors_;
};

void check(std::uint64_t seed) {
  SCOPED_TRACE("HOTLOOP_SEED=" + std::to_string(seed));
  const DType dtype = seed % 3 != 0 ? DType::F32 : DType::F64;
  std::mt19937_64 rng(seed + 11);
  const auto extent = [&] { return 1 + static_cast<std::int64_t>(rng() % 40); };
  constexpr std::int64_t sizes[] = {0, 0, 1, 3, 16, 19};
  const std::int64_t rows = sizes[seed / 3 % 6];
  Arrays arrays;
  for (Shape shape : {Shape{extent(), extent()}, Shape{extent(), extent()}, Shape{extent()}}) {
    if (rows > 0 && (seed / 18 % 2 == 0 || arrays.empty())) shape = shape.with_inserted(0, rows);
    arrays.push_back(random_like(rng, {dtype, shape}));
  }
  Array index(DType::I32, rows > 0 ? Shape{rows} : Shape{});
  for (std::int64_t i = 0; i < index.size(); ++i) index.set(i, static_cast<double>(rng() % 14) - 3);
  arrays.push_back(index);
  std::vector<int> axes;
  for (std::size_t i = 0; i < arrays.size(); ++i) axes.push_back(i == 0 || i == 3 || seed / 18 % 2 == 0 ? 0 : -1);
  const Function one = [=](Values v) { return RandomMatrices(seed, dtype)(v); };
  Function fn = rows > 0 ? vmap(one, axes) : one;
  if (seed / 2 % 3 == 1) fn = value_and_grad(scalar_of(fn), {0, 1, 2});
  expect_products_are_the_oracles(fn, arrays, dtype, seed);
}

TEST(RandomMatrices, AreTheOraclesWithinTheirMemory) { for_seeds(check, 16, {56}); }

}  // namespace
}  // namespace hotloop::testing
