// Programs of whole arrays put together at random, and their derivatives and batches: what is compiled gives what the oracle gives, but for rounding, the same
// bits for any number of threads and rows, within its memory. One that fails is printed as small as it could be made.
#include "random_arrays.h"

#include <cstdlib>
#include <cstring>

#include "arrays.h"
#include "compiled.h"
#include "derivative_checks.h"
#include "guard_pages.h"
#include "hotloop/error.h"
#include "rounding.h"
#include "seeds.h"
#include "shrink.h"

namespace hotloop::testing {
namespace {

using Values = std::span<const Value>;

struct DrawnArrays {
  explicit DrawnArrays(std::uint64_t seed) : rng(seed * 6364136223846793005u + 1442695040888963407u) {
    constexpr std::int64_t sizes[] = {1, 2, 3, 4, 5, 7, 8, 9, 16, 17, 31, 33, 64, 65, 70, 100, 130};
    const auto pick = [&](std::uint64_t n) { return rng() % n; };
    dtype = pick(2) ? DType::F32 : DType::F64;
    for (std::uint64_t i = 0, n = 1 + pick(3); i < n; ++i) extents.push_back(sizes[pick(std::size(sizes))]);
    kind = pick(10);
    rows = kind == 9 ? sizes[pick(11)] : 1;
    most_elements = 18000 / rows;
    const auto add = [&](DType of, std::uint64_t most_rank) {
      Shape shape;
      for (std::uint64_t i = 0, rank = pick(most_rank + 1); i < rank; ++i) {
        const std::int64_t n = extents[pick(extents.size())];
        if (shape.size() * n <= most_elements) shape.push_back(n);
      }
      const bool batched = kind == 9 && (arrays.empty() || pick(3) != 0);
      axes.push_back(batched ? 0 : -1);
      if (batched) shape = shape.with_inserted(0, rows);
      Array a(of, shape);
      std::uniform_real_distribution<double> uniform(0.3, 1.5);
      for (std::int64_t i = 0; i < a.size(); ++i)
        a.set(i, of == DType::Bool  ? static_cast<double>(pick(2))
                 : of == DType::I32 ? static_cast<double>(pick(14)) - 2
                                    : uniform(rng) * (pick(2) ? 1 : -1));
      arrays.push_back(a);
    };
    for (std::uint64_t i = 0, n = 2 + pick(3); i < n; ++i) add(dtype, 4);
    if (pick(3) == 0) add(DType::I32, 2);
    if (pick(5) == 0) add(DType::Bool, 2);
  }
  Function function() const {
    const Function one = [seed = rng, this](Values in) mutable {
      std::mt19937_64 copy = seed;
      return RandomArrayProgram(copy(), dtype, extents, most_elements)(in);
    };
    switch (kind) {
      case 6:
      case 7:
      case 8: return value_and_grad(scalar_of(one), float_inputs(arrays));
      case 5:
        return [one](Values in) {
          std::vector<Value> tangents;
          for (const Value& x : in) tangents.push_back(is_float(x.dtype()) ? x * 0.3 + 0.1 : Value{});
          auto [outputs, t] = jvp(one, in, tangents);
          for (std::size_t i = 0; i < t.size(); ++i)
            if (t[i].defined()) outputs.push_back(t[i]);
          return outputs;
        };
      case 9: return vmap(one, axes);
      default: return one;
    }
  }

  std::mt19937_64 rng;
  DType dtype;
  std::vector<std::int64_t> extents;
  std::uint64_t kind;
  std::int64_t rows, most_elements;
  Arrays arrays;
  std::vector<int> axes;
};

// The first rows of what has an axis of them.
Arrays first_rows(const Arrays& arrays, const std::vector<int>& axes, std::int64_t rows) {
  Arrays cut;
  for (std::size_t i = 0; i < arrays.size(); ++i) {
    if (i < axes.size() && axes[i] < 0) {
      cut.push_back(arrays[i]);
      continue;
    }
    Shape shape = arrays[i].shape();
    shape[0] = rows;
    cut.emplace_back(arrays[i].dtype(), shape);
    std::memcpy(cut.back().raw(), arrays[i].raw(), cut.back().bytes());
  }
  return cut;
}

std::string same(const Arrays& got, const Arrays& wanted) {
  for (std::size_t i = 0; i < got.size(); ++i)
    if (!same_bits(got[i], wanted[i])) return "result " + std::to_string(i) + " has other bits";
  return "";
}

// What is wrong with a program compiled in the ways that the seed says.
Difference failure(const Case& it, const Compiled& which, std::uint64_t seed) {
  const Measured wanted = measured(*it.graph, it.inputs, seed);
  CompileOptions options = which.options();
  if (seed % 16 == 3 && which.backend != "cuda") options.disabled_passes = {"all"};
  if (seed % 32 == 9 && which.backend == "llvm") options.dispatch = "per_op";
  const bool has_threads = which.backend != "c" && options.dispatch != "per_op";
  options.threads = has_threads ? 3 : 1;
  const Arrays got = compile(it.graph, options)(it.inputs);
  const Difference found = difference(got, wanted);
  if (!found.text.empty() || !has_threads || seed / 2 % 2 != 0) return found;
  options.threads = 1;
  if (seed / 4 % 2 == 0) setenv("HOTLOOP_TILES", "joined", 1);
  const std::string other = same(compile(it.graph, options)(it.inputs), got);
  unsetenv("HOTLOOP_TILES");
  return {other.empty() ? "" : "1 thread and 3: " + other};
}

void check(std::uint64_t seed) {
  SCOPED_TRACE("HOTLOOP_SEED=" + std::to_string(seed));
  const DrawnArrays drawn(seed);
  const Case it{trace(drawn.function(), types_of(drawn.arrays)), drawn.arrays};
  ir::verify(*it.graph);
  const std::vector<Compiled> compiled = all_compiled();
  Compiled which = compiled[seed % compiled.size()];
  if (which.backend == "c" && seed % 24 != 7) which = llvm_targets().back();  // a C compiler takes its time
  const auto tried = [&](const Case& of) {
    try {
      return failure(of, which, seed);
    } catch (const std::exception& error) {
      return Difference{error.what()};
    }
  };
  if (const Difference found = tried(it); !found.text.empty()) {
    const Case small = shrunk(it, [&](const Case& other) {
      const Difference still = tried(other);
      return !still.text.empty() && still.excess >= std::min(found.excess, 1e3);
    });
    ADD_FAILURE() << which.backend << " for " << which.target << ": " << found.text << "\n"
                  << small.graph->str() << tried(small).text;
    return;
  }
  if (which.backend == "c") return;
  CompileOptions options = which.options();
  if (seed % 8 == 4)
    expect_within_guards(*it.graph, it.inputs, options, seed % 16 == 4, compile(it.graph, options)(it.inputs));
  if (drawn.kind == 9 && drawn.rows > 1) {
    // Without a batch by name another axis may be cut, and sums over it have parts.
    options.batch_axes = drawn.axes;
    options.threads = 2;
    const Executable variable = compile(it.graph, options);
    const Arrays all = variable(it.inputs);
    EXPECT_EQ(difference(all, measured(*it.graph, it.inputs, seed)).text, "") << "rows\n" << it.graph->str();
    for (const std::int64_t few : {(drawn.rows + 1) / 2, std::int64_t{1}}) {
      const Arrays got = variable(first_rows(it.inputs, drawn.axes, few));
      // What depends on no row has as many as were traced.
      Arrays expected = first_rows(all, {}, few);
      for (std::size_t i = 0; i < got.size(); ++i)
        if (got[i].type() == all[i].type()) expected[i] = all[i];
      const std::string found = same(got, expected);
      EXPECT_EQ(found, "") << few << " of " << drawn.rows << " rows\n" << it.graph->str();
    }
  }
}

// Those that failed: a loop with tiles inside began with axes that were exchanged and merged (253).
TEST(RandomArrays, AreTheOraclesForAnyThreadsRowsAndMemory) { for_seeds(check, 50, {253}); }

}  // namespace
}  // namespace hotloop::testing
