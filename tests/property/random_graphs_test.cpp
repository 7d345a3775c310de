// Programs put together at random, loops and calls inside loops included: every transform against the others. A failure
// prints the seed of its program.
#include <algorithm>
#include <cmath>

#include "derivative_checks.h"
#include "hotloop/jacobian.h"
#include "hotloop/jit.h"

namespace hotloop::testing {
namespace {

using Values = std::span<const Value>;

// A function of values of shape [2] and scalars. Which operations it holds depends on the seed alone, so that it is the
// same whenever it is traced.
class RandomProgram {
 public:
  RandomProgram(std::uint64_t seed, int depth) : rng_(seed), depth_(depth) {}

  std::vector<Value> operator()(Values inputs) {
    std::vector<Value> pool(inputs.begin(), inputs.end());
    const int num_steps = 3 + pick(4);
    for (int i = 0; i < num_steps; ++i) pool.push_back(step(pool));
    return {pool.back(), pool[pool.size() - 2], any(pool)};
  }

 private:
  int pick(int n) { return static_cast<int>(rng_() % static_cast<std::uint64_t>(n)); }
  Value any(const std::vector<Value>& pool) {
    return pool[static_cast<std::size_t>(pick(static_cast<int>(pool.size())))];
  }
  Value any_vector(const std::vector<Value>& pool) { return broadcast_to(any(pool), {2}); }
  Value any_scalar(const std::vector<Value>& pool) {
    const Value v = any(pool);
    return v.rank() == 0 ? v : sum(v) * 0.5;
  }
  std::vector<Value> nested(std::uint64_t seed, Values inputs) { return RandomProgram(seed, depth_ - 1)(inputs); }

  Value step(const std::vector<Value>& pool) {
    const std::uint64_t seed = rng_();
    switch (pick(depth_ > 0 ? 13 : 8)) {
      case 0: return any(pool) + any(pool);
      case 1: return tanh(any(pool)) * any(pool);
      case 2: return sin(any(pool));
      case 3: return sigmoid(any(pool)) - any(pool) * 0.5;
      case 4: return any(pool) / (any(pool) * any(pool) * 0.1 + 1.5);
      case 5: return sum(any_vector(pool));
      case 6: {
        const Value v = any_vector(pool);
        const Value outer = reshape(v, {2, 1}) * reshape(any_vector(pool), {1, 2});
        return matmul(tanh(v), tanh(outer));
      }
      case 7: {
        const Value parts[] = {narrow(any_vector(pool), 0, 1, 1), narrow(any_vector(pool), 0, 0, 1)};
        return concat(parts, 0);
      }
      case 8:
      case 9: {  // a scan with captured values
        const Value outside = any(pool), init[] = {any_vector(pool), any_scalar(pool)}, xs[] = {any_vector(pool)};
        const char* policies[] = {"", "save", "recompute"};
        const ScanOptions options{-1, pick(2) == 1, policies[pick(3)]};
        const int use = pick(3);
        auto [carry, ys] = scan(
            [&](Values c, Values x) {
              const Value all[] = {c[0], c[1], x[0], tanh(outside)};
              auto out = nested(seed, all);
              std::vector<Value> next{broadcast_to(tanh(out[0]), {2}), sum(tanh(out[1]))};
              return std::pair{next, std::vector<Value>{sum(sin(out[2]))}};
            },
            init, xs, options);
        return use == 0 ? carry[0] : use == 1 ? carry[1] : ys[0];
      }
      case 10: {  // a while loop whose count depends on the data
        const Value outside = any(pool), init[] = {any_scalar(pool) * 0.1, any_vector(pool)};
        return while_loop(
            [](Values c) { return less(abs(c[0]), like(c[0], 4)); },
            [&](Values c) {
              const Value all[] = {c[1], tanh(outside)};
              auto out = nested(seed, all);
              return std::vector<Value>{c[0] * 1.1 + 1.013 + tanh(sum(out[0])) * 0.3, broadcast_to(tanh(out[1]), {2})};
            },
            init, 8)[1];
      }
      case 11: {
        const Value outside = any(pool), operands[] = {any_vector(pool)};
        const auto branch = [&](std::uint64_t s) {
          return [&, s](Values o) {
            const Value all[] = {o[0], tanh(outside)};
            return std::vector<Value>{broadcast_to(nested(s, all)[0], {2})};
          };
        };
        return cond(greater(any_scalar(pool), like(outside, 0.123)), branch(seed), branch(seed + 1), operands)[0];
      }
      default: {
        const Value outside = any(pool), operands[] = {any_vector(pool)};
        return checkpoint([&](Values o) {
          const Value all[] = {o[0], sin(outside)};
          return nested(seed, all);
        })(operands)[0];
      }
    }
  }

  std::mt19937_64 rng_;
  int depth_;
};

class RandomGraphs : public ::testing::TestWithParam<int> {
 protected:
  const std::uint64_t seed = 7000 + static_cast<std::uint64_t>(GetParam());
  const int depth = GetParam() % 3;
  const Function fn = [this](Values v) { return RandomProgram(seed, depth)(v); };
  const Function batched = vmap(fn, {0, 0, -1});  // lanes with different counts
  std::mt19937_64 rng{seed};
  const Arrays batch{random_like(rng, {DType::F64, {3, 2}}), random_like(rng, {DType::F64, {3}}),
                     random_like(rng, {DType::F64, {2}})};
  const ::testing::ScopedTrace trace_{__FILE__, __LINE__, "seed " + std::to_string(seed)};
};

TEST_P(RandomGraphs, TransformsAgree) {
  const ValueType vector{DType::F64, {2}}, scalar{DType::F64, {}};
  const Arrays at{random_like(rng, vector), random_like(rng, scalar), random_like(rng, vector)};
  check_jvp(fn, at, rng, "random");
  check_vjp(fn, at, rng, "random");
  check_vmap(fn, at, {0, 0, -1}, 3, rng, "random");
  const Function gradient = grad(scalar_of(fn), {0, 1, 2});
  check_jvp(gradient, at, rng, "gradient");
  check_vmap(gradient, at, {0, -1, 0}, 2, rng, "gradient");
  // Derivatives of a batched function.
  check_vjp(batched, batch, rng, "batched");
  if (depth < 2) check_vjp(grad(scalar_of(batched), {0, 1, 2}), batch, rng, "gradient of batched");
}

// The same programs and their derivatives, compiled: nested loops, lanes with different counts, calls.
TEST_P(RandomGraphs, CompiledProgramsAgreeWithTheOracle) {
  std::vector<ValueType> types;
  for (const Array& a : batch) types.push_back(a.type());
  for (const Function& f : {batched, grad(scalar_of(batched), {0, 1, 2})}) {
    const auto graph = trace(f, types);
    const Arrays wanted = ir::evaluate(*graph, batch), got = compile(graph)(batch);
    ASSERT_EQ(got.size(), wanted.size());
    for (std::size_t i = 0; i < got.size(); ++i)
      for (std::int64_t k = 0; k < got[i].size(); ++k)
        EXPECT_NEAR(got[i].at(k), wanted[i].at(k), 1e-10 * std::max(1.0, std::fabs(wanted[i].at(k))))
            << "result " << i << ", element " << k;
  }
}

// Zeros found in random programs are zeros, whatever the loops, predicates and lanes around them; and a batch is found.
TEST_P(RandomGraphs, JacobiansWithStructureAreTheDenseOnes) {
  const Arrays dense = evaluate(jacfwd(batched, {0, 1, 2}), batch);
  for (int output = 0; output < 3; ++output)
    for (int argnum = 0; argnum < 3; ++argnum) {
      SCOPED_TRACE("output " + std::to_string(output) + ", input " + std::to_string(argnum));
      JacobianOptions options;
      options.output = output;
      options.argnum = argnum;
      std::shared_ptr<const JacobianStructure> structure;
      const Arrays got = evaluate(
          [&](Values v) {
            const Jacobian j = jacobian(batched, options)(v);
            structure = j.shared_structure();
            return std::vector{j.dense()};
          },
          batch);
      expect_close(got, {dense[static_cast<std::size_t>(output * 3 + argnum)]}, 1e-12, structure->explain());
      const bool depends = structure->forward_passes + structure->reverse_passes > 0;
      if (depends && argnum < 2) {
        EXPECT_FALSE(structure->paired.empty()) << structure->explain();
      }
    }
  if (depth == 2) return;
  const Function loss = scalar_of(batched);
  const Arrays hessians = evaluate([&](Values v) { return std::vector{sparse_hessian(loss)(v).dense()}; }, batch);
  expect_close(hessians, evaluate(hessian(loss), batch), 1e-10, "Hessian");
}

INSTANTIATE_TEST_SUITE_P(Seeds, RandomGraphs, ::testing::Range(0, 60));

}  // namespace
}  // namespace hotloop::testing
