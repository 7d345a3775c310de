// Transforms of random programs, compiled: what a program gives, its derivatives in every mode and order, and batches of them are what the
// oracle gives, and the same bits for any number of threads.
#include <cmath>

#include "arrays.h"
#include "compiled.h"
#include "derivative_checks.h"
#include "guard_pages.h"
#include "hotloop/jacobian.h"
#include "random_program.h"
#include "seeds.h"

namespace hotloop::testing {
namespace {

using Values = std::span<const Value>;

struct Case {
  std::string name;
  Function function;
  Arrays arrays;
};

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

// `rows` samples, each a little apart from the first.
Array batch_of(const Array& a, std::int64_t rows, std::mt19937_64& rng) {
  Array all(a.dtype(), a.shape().with_inserted(0, rows));
  std::uniform_real_distribution<double> uniform(-0.4, 0.4);
  for (std::int64_t r = 0; r < rows; ++r)
    for (std::int64_t i = 0; i < a.size(); ++i)
      all.set(r * a.size() + i,
              is_float(a.dtype()) ? a.at(i) + uniform(rng) : std::fmod(a.at(i) + static_cast<double>(r), 9.0));
  return all;
}

Function tangents_of(const Function& fn) {
  return [=](Values v) {
    std::vector<Value> tangents;
    for (const Value& x : v) tangents.push_back(is_float(x.dtype()) ? x * 0.3 + 0.1 : Value{});
    auto [outputs, t] = jvp(fn, v, tangents);
    for (std::size_t i = 0; i < t.size(); ++i) outputs.push_back(t[i] ? t[i] : zeros_like(outputs[i]));
    return outputs;
  };
}

Function products_of(const Function& loss) {
  return [=](Values v) {
    std::vector<Value> vectors, out;
    for (const Value& x : v) vectors.push_back(is_float(x.dtype()) ? x * 0.3 + 0.1 : Value{});
    for (const Value& product : hvp(loss, v, vectors))
      if (product) out.push_back(product);
    return out;
  };
}

Case case_of(std::uint64_t seed, DType dtype) {
  Arrays arrays = inputs_of(seed, dtype);
  std::mt19937_64 rng(seed + 77);
  const Function fn = [=](Values v) { return RandomProgram(seed, dtype, 1 + static_cast<int>(seed % 2))(v); };
  const Function loss = scalar_of(fn);
  const std::vector<int> by = {0, 1, 2, 3};
  constexpr std::int64_t sizes[] = {1, 2, 3, 7, 17, 33};
  const std::int64_t rows = sizes[seed / 13 % 6];
  std::vector<int> axes(arrays.size(), 0);
  if (seed % 3 == 0) axes[1] = -1;
  if (seed % 5 == 0) axes[3] = -1;
  if (seed % 7 < 4) axes[5] = -1;
  Arrays batch = arrays;
  for (std::size_t i = 0; i < batch.size(); ++i)
    if (axes[i] == 0) batch[i] = batch_of(arrays[i], rows, rng);
  switch (seed % 13) {
    case 0: return {"value", fn, arrays};
    case 1: return {"jvp", tangents_of(fn), arrays};
    case 2: return {"gradient", value_and_grad(loss, by), arrays};
    case 3: return {"hvp", products_of(loss), arrays};
    case 4: return {"gradient of gradient", grad(scalar_of(grad(loss, by)), by), arrays};
    case 5: return {"jacfwd", jacfwd(fn, {static_cast<int>(seed / 13 % 3)}), arrays};
    case 6: return {"jacrev", jacrev(fn, {static_cast<int>(seed / 13 % 4)}), arrays};
    case 7:
      return {"jacobian",
              [=](Values v) {
                JacobianOptions options;
                options.argnum = static_cast<int>(seed / 13 % 3);
                options.output = static_cast<int>(seed / 39 % 3);
                return std::vector{jacobian(fn, options)(v).dense()};
              },
              arrays};
    case 8: return {"vmap", vmap(fn, axes), batch};
    case 9: return {"per-sample gradient", per_sample_grad(loss, by, axes), batch};
    case 10: return {"gradient of vmap", value_and_grad(scalar_of(vmap(fn, axes)), by), batch};
    case 11: return {"jvp of vmap", tangents_of(vmap(fn, axes)), batch};
    default: return {"vmap of hvp", vmap(products_of(loss), axes), batch};
  }
}

void expect_near(const Arrays& got, const Arrays& wanted, double tolerance, const std::string& what) {
  ASSERT_EQ(got.size(), wanted.size());
  for (std::size_t i = 0; i < got.size(); ++i) {
    ASSERT_EQ(got[i].type(), wanted[i].type()) << what << ", output " << i;
    double largest = 0;
    for (std::int64_t e = 0; e < got[i].size(); ++e)
      if (std::isfinite(wanted[i].at(e))) largest = std::max(largest, std::fabs(wanted[i].at(e)));
    for (std::int64_t e = 0; e < got[i].size(); ++e) {
      const double g = got[i].at(e), w = wanted[i].at(e);
      if ((std::isnan(g) && std::isnan(w)) || g == w) continue;
      ASSERT_LE(std::fabs(g - w), tolerance * (1 + largest))
          << what << ", output " << i << ", element " << e << ": " << g << " and " << w;
    }
  }
}

void check(std::uint64_t seed) {
  const DType dtype = seed / 13 % 3 != 0 ? DType::F64 : DType::F32;
  const Case it = case_of(seed, dtype);
  SCOPED_TRACE("HOTLOOP_SEED=" + std::to_string(seed) + ", " + it.name);
  const auto graph = trace(it.function, types_of(it.arrays));
  ir::verify(*graph);
  const Arrays wanted = ir::evaluate(*graph, it.arrays);
  const double tolerance = dtype == DType::F32 ? 2e-3 : 1e-9;
  const std::vector<Compiled> compiled = all_compiled();
  Compiled which = compiled[seed / 7 % compiled.size()];
  if (which.backend == "c" && seed / 28 % 4 != 0) which = llvm_targets().back();
  SCOPED_TRACE(which.backend + " for " + which.target);
  CompileOptions options = which.options();
  const Arrays got = compile(graph, options)(it.arrays);
  expect_near(got, wanted, tolerance, "oracle");
  expect_within_guards(*graph, it.arrays, options, seed / 2 % 3 != 0, got);
  if (which.backend == "c") return;
  options.threads = 2 + static_cast<int>(seed / 2 % 2);
  const Arrays threaded = compile(graph, options)(it.arrays);
  for (std::size_t i = 0; i < got.size(); ++i)
    EXPECT_TRUE(same_bits(got[i], threaded[i])) << options.threads << " threads, output " << i;
  if (seed % 4 == 0) {
    options.donated = {0, 1, 2, 3};
    Arrays given, outputs(got.size());
    for (const Array& a : it.arrays) given.push_back(a.clone());
    compile(graph, options).run_donating(given, outputs);
    for (std::size_t i = 0; i < got.size(); ++i) EXPECT_TRUE(same_bits(got[i], outputs[i])) << "donated, output " << i;
    options.donated = {};
  }
  if (seed % 4 == 1) {
    options.disabled_passes = {"all"};
    expect_near(compile(graph, options)(it.arrays), wanted, tolerance, "without passes");
  }
  if (seed % 8 == 2) {
    options.dispatch = "per_op";
    expect_near(compile(graph, options)(it.arrays), wanted, tolerance, "op by op");
  }
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
