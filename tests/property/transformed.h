// A function as transforms leave it, and what holds of any program compiled: it is what the oracle gives, the same bits for any number of threads,
// within its memory, without passes and op by op.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <random>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "arrays.h"
#include "compiled.h"
#include "derivative_checks.h"
#include "guard_pages.h"
#include "hotloop/jacobian.h"

namespace hotloop::testing {

// `rows` samples, each a little apart from the first.
inline Array batch_of(const Array& a, std::int64_t rows, std::mt19937_64& rng) {
  Array all(a.dtype(), a.shape().with_inserted(0, rows));
  std::uniform_real_distribution<double> uniform(-0.4, 0.4);
  for (std::int64_t r = 0; r < rows; ++r)
    for (std::int64_t i = 0; i < a.size(); ++i)
      all.set(r * a.size() + i,
              is_float(a.dtype()) ? a.at(i) + uniform(rng) : std::fmod(a.at(i) + static_cast<double>(r), 9.0));
  return all;
}

// Outputs, and their tangents along directions made of the inputs.
inline Function tangents_of(const Function& fn) {
  return [=](std::span<const Value> v) {
    std::vector<Value> tangents;
    for (const Value& x : v) tangents.push_back(is_float(x.dtype()) ? x * 0.3 + 0.1 : Value{});
    auto [outputs, t] = jvp(fn, v, tangents);
    for (std::size_t i = 0; i < t.size(); ++i) outputs.push_back(t[i].defined() ? t[i] : zeros_like(outputs[i]));
    return outputs;
  };
}

inline Function products_of(const Function& loss) {
  return [=](std::span<const Value> v) {
    std::vector<Value> vectors, out;
    for (const Value& x : v) vectors.push_back(is_float(x.dtype()) ? x * 0.3 + 0.1 : Value{});
    for (const Value& product : hvp(loss, v, vectors))
      if (product.defined()) out.push_back(product);
    return out;
  };
}

struct Program {
  std::string name;
  Function function;
  Arrays arrays;
};

// What is transformed, and by what.
struct Subject {
  Function function;
  Arrays arrays;
  std::vector<int> by;    // inputs that it is differentiated by
  std::vector<int> axes;  // 0: an input of which a batch has one each, -1: one that its samples share
  int jacobian_by = 0;    // the input and the output of a whole Jacobian
  int jacobian_output = 0;
  std::int64_t rows = 1;
};

// The transform that a number stands for; num_transforms of them.
inline constexpr std::uint64_t num_transforms = 13;
inline Program transformed(const Subject& s, std::uint64_t which, std::mt19937_64& rng) {
  const Function fn = s.function, loss = scalar_of(fn);
  Arrays batch = s.arrays;
  for (std::size_t i = 0; i < batch.size(); ++i)
    if (s.axes[i] == 0) batch[i] = batch_of(s.arrays[i], s.rows, rng);
  switch (which) {
    case 0: return {"value", fn, s.arrays};
    case 1: return {"jvp", tangents_of(fn), s.arrays};
    case 2: return {"gradient", value_and_grad(loss, s.by), s.arrays};
    case 3: return {"hvp", products_of(loss), s.arrays};
    case 4: return {"gradient of gradient", grad(scalar_of(grad(loss, s.by)), s.by), s.arrays};
    case 5: return {"jacfwd", jacfwd(fn, {s.jacobian_by}), s.arrays};
    case 6: return {"jacrev", jacrev(fn, {s.jacobian_by}), s.arrays};
    case 7:
      return {"jacobian",
              [=](std::span<const Value> v) {
                JacobianOptions options;
                options.argnum = s.jacobian_by;
                options.output = s.jacobian_output;
                return std::vector{jacobian(fn, options)(v).dense()};
              },
              s.arrays};
    case 8: return {"vmap", vmap(fn, s.axes), batch};
    case 9: return {"per-sample gradient", per_sample_grad(loss, s.by, s.axes), batch};
    case 10: return {"gradient of vmap", value_and_grad(scalar_of(vmap(fn, s.axes)), s.by), batch};
    case 11: return {"jvp of vmap", tangents_of(vmap(fn, s.axes)), batch};
    default: return {"vmap of hvp", vmap(products_of(loss), s.axes), batch};
  }
}

// By the largest finite number of an output, or by 1.
inline void expect_near(const Arrays& got, const Arrays& wanted, double tolerance, const std::string& what) {
  ASSERT_EQ(got.size(), wanted.size());
  for (std::size_t i = 0; i < got.size(); ++i) {
    ASSERT_EQ(got[i].type(), wanted[i].type()) << what << ", output " << i;
    double largest = 1;
    for (std::int64_t e = 0; e < got[i].size(); ++e)
      if (std::isfinite(wanted[i].at(e))) largest = std::max(largest, std::fabs(wanted[i].at(e)));
    for (std::int64_t e = 0; e < got[i].size(); ++e) {
      const double g = got[i].at(e), w = wanted[i].at(e);
      if ((std::isnan(g) && std::isnan(w)) || g == w) continue;
      ASSERT_LE(std::fabs(g - w), tolerance * largest)
          << what << ", output " << i << ", element " << e << ": " << g << " and " << w;
    }
  }
}

// On one of the backends and targets of this machine, which the seed says; `donated` inputs may be consumed by a call.
inline void expect_compiled_is_the_oracles(const Program& it, double tolerance, std::uint64_t seed,
                                           const std::vector<int>& donated) {
  SCOPED_TRACE(it.name);
  const auto graph = trace(it.function, types_of(it.arrays));
  ir::verify(*graph);
  const Arrays wanted = ir::evaluate(*graph, it.arrays);
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
    options.donated = donated;
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
  if (seed % 8 == 2 && options.device != "cuda") {
    options.dispatch = "per_op";
    expect_near(compile(graph, options)(it.arrays), wanted, tolerance, "op by op");
  }
}

// Products of matrices, on one of the backends and targets, which the seed says: also with rounded factors.
inline void expect_products_are_the_oracles(const Function& fn, const Arrays& arrays, DType dtype, std::uint64_t seed) {
  const auto graph = trace(fn, types_of(arrays));
  const Arrays wanted = ir::evaluate(*graph, arrays);
  const double tolerance = dtype == DType::F32 ? 1e-3 : 1e-10;
  const std::vector<Compiled> compiled = all_compiled();
  Compiled which = compiled[seed / 5 % compiled.size()];
  if (which.backend == "c" && seed % 4 != 0) which = llvm_targets().back();
  SCOPED_TRACE(which.backend + " for " + which.target);
  CompileOptions options = which.options();
  const Arrays got = compile(graph, options)(arrays);
  expect_near(got, wanted, tolerance, "oracle");
  expect_within_guards(*graph, arrays, options, seed % 4 != 1, got);
  if (which.backend == "c") return;
  options.threads = 2;
  const Arrays threaded = compile(graph, options)(arrays);
  for (std::size_t i = 0; i < got.size(); ++i) EXPECT_TRUE(same_bits(got[i], threaded[i])) << "threads, output " << i;
  if (seed % 4 == 2 && options.device != "cuda") {
    options.threads = 1;
    options.dispatch = "per_op";
    expect_near(compile(graph, options)(arrays), wanted, tolerance, "op by op");
    options.dispatch = "fused";
  }
  if (seed % 4 == 1 && dtype == DType::F32) {
    options.dot_precision = "bf16";
    if (which.backend == "llvm" && seed % 16 < 8 && kernel::host_runs("amx")) options.target = "amx";
    const Arrays rounded = compile(graph, options)(arrays);
    options.threads = 1;
    expect_within_guards(*graph, arrays, options, seed % 8 != 1, rounded);
    options = {.backend = "interp", .dot_precision = "bf16"};
    expect_near(rounded, compile(graph, options)(arrays), 2e-2,
                "oracle, bf16");  // a factor may be rounded the other way
  }
}

}  // namespace hotloop::testing
