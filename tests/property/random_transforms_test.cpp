// Transforms of random programs, compiled: what a program gives, its derivatives in every mode and order, and batches of them are what the
// oracle gives, and the same bits for any number of threads.
#include "derivative_checks.h"
#include "random_program.h"
#include "seeds.h"
#include "transformed.h"

namespace hotloop::testing {
namespace {

using Values = std::span<const Value>;

Arrays inputs_of(std::uint64_t seed, DType dtype) {
  std::mt19937_64 rng(seed ^ 0x9e3779b97f4a7c15);
  constexpr std::int64_t extents[] = {1, 2, 3, 5, 7, 13, 17};
  const auto pick = [&](int n) { return static_cast<std::int64_t>(rng() % static_cast<std::uint64_t>(n)); };
  const auto extent = [&](int n) { return extents[pick(n)]; };
  Arrays arrays;
  for (const Shape& shape :
       {Shape{extent(7)}, Shape{extent(6), extent(7)}, Shape{}, Shape{extent(3), extent(4), extent(5)}})
    arrays.push_back(random_like(rng, {dtype, shape}));
  for (const Shape& shape : {Shape{extent(5)}, Shape{}}) {
    arrays.emplace_back(DType::I32, shape);
    for (std::int64_t i = 0; i < arrays.back().size(); ++i) arrays.back().set(i, static_cast<double>(pick(9)));
  }
  return arrays;
}

Program program_of(std::uint64_t seed, DType dtype) {
  std::mt19937_64 rng(seed + 77);
  constexpr std::int64_t sizes[] = {1, 2, 3, 7, 17, 33};
  Subject it{
      .function = [=](Values v) { return RandomProgram(seed, dtype, 1 + static_cast<int>(seed % 2))(v); },
      .arrays = inputs_of(seed, dtype),
      .by = {0, 1, 2, 3},
      .axes = {0, seed % 3 == 0 ? -1 : 0, 0, seed % 5 == 0 ? -1 : 0, 0, seed % 7 < 4 ? -1 : 0},
      .jacobian_by = static_cast<int>(seed / 13 % (seed % 13 == 6 ? 4 : 3)),
      .jacobian_output = static_cast<int>(seed / 39 % 3),
      .rows = sizes[seed / 13 % 6],
  };
  return transformed(it, seed % num_transforms, rng);
}

void check(std::uint64_t seed) {
  SCOPED_TRACE("HOTLOOP_SEED=" + std::to_string(seed));
  const DType dtype = seed / 13 % 3 != 0 ? DType::F64 : DType::F32;
  expect_compiled_is_the_oracles(program_of(seed, dtype), dtype == DType::F32 ? 2e-3 : 1e-9, seed, {0, 1, 2, 3});
}

// Transforms against each other and against finite differences, by the oracle.
void check_oracle(std::uint64_t seed) {
  SCOPED_TRACE("HOTLOOP_SEED=" + std::to_string(seed));
  const Arrays at = inputs_of(seed, DType::F64);
  std::mt19937_64 rng(seed + 5);
  const Function fn = [=](Values v) { return RandomProgram(seed, DType::F64, 1 + static_cast<int>(seed % 2))(v); };
  check_vjp(fn, at, rng, "program");
  check_vmap(fn, at, {0, -1, 0, 0, -1, -1}, 3, rng, "program");
  check_jvp(fn, at, rng, "program");
  const Function gradient = grad(scalar_of(fn), float_inputs(at));
  check_vjp(gradient, at, rng, "gradient");
  check_vmap(gradient, at, {-1, 0, 0, -1, -1, -1}, 2, rng, "gradient");
  check_jvp(gradient, at, rng, "gradient");
}

// Those that failed: a C compiler mixed up the conditions of loads, and read what they exclude; squares were read once for all that is summed.
TEST(RandomTransforms, CompiledAreTheOracles) { for_seeds(check, 26, {357, 1704, 7077, 20147}); }
TEST(RandomTransforms, OfTheOracleAreDerivatives) { for_seeds(check_oracle, 12); }

}  // namespace
}  // namespace hotloop::testing
