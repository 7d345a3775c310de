// Sums over short rows put together at random: of neighbours along a sequence that is cut into rows of a few numbers, over both axes or one, alone and in a
// batch. What is compiled gives the oracle's numbers on every target, and neither reads nor writes beyond its memory.
#include <gtest/gtest.h>

#include <random>
#include <string>
#include <vector>

#include "array_writer.h"
#include "arrays.h"
#include "compiled.h"
#include "guard_pages.h"
#include "hotloop/jit.h"
#include "ir/op_def.h"
#include "op_checks.h"
#include "seeds.h"

namespace hotloop::testing {
namespace {

using Values = std::span<const Value>;

class RandomRowSums : public ArrayWriter {
 public:
  RandomRowSums(std::uint64_t seed, DType dtype) : ArrayWriter(seed, dtype, {}, 0) {
    batch_ = one_of(Extents{1, 1, 3, 7, 20});
    rows_ = one_of(Extents{1, 2, 5, 9, 16, 17, 31, 32, 40, 65});
    row_ = 1 + pick(9);
    most_taps_ = chance(2) ? row_ : 1 + pick(9);
    step_seed_ = rng_();
  }

  // A sequence with room for all taps, a number of each row, and one of each column.
  std::vector<Array> inputs() {
    std::vector<Array> all;
    for (const Shape& shape : {Shape{batch_, rows_ * row_ + most_taps_}, Shape{rows_}, Shape{row_}}) {
      all.emplace_back(dtype_, shape);
      for (std::int64_t i = 0; i < all.back().size(); ++i) all.back().set(i, pick(17) - 8);
    }
    return all;
  }

  std::vector<Value> operator()(Values in) {
    rng_.seed(step_seed_);
    const Shape rows{batch_, rows_, row_};
    std::vector<Value> results;
    for (int n = 1 + pick(2); n > 0; --n) {
      Value y = tap(in[0], 0);
      for (std::int64_t i = 1; i < most_taps_; ++i) {
        if (chance(8)) continue;
        const Value next = tap(in[0], i);
        y = chance(3) ? next - y : chance(4) ? maximum(y, next) : y + next;
      }
      if (chance(2)) y = y * (chance(2) ? y : tap(in[0], pick(most_taps_)));
      y = reshape(y, rows);
      if (chance(4)) y = y * broadcast(in[1], rows, {1});
      if (chance(4)) y = y + broadcast(in[2], rows, {2});
      const Extents axes = chance(2) ? Extents{1, 2} : chance(2) ? Extents{2} : Extents{0, 1, 2};
      results.push_back(chance(4) ? reduce_max(y, axes) : reduce_sum(y, axes));
    }
    return results;
  }

 private:
  Value tap(Value x, std::int64_t first) { return narrow(x, 1, first, rows_ * row_); }

  std::int64_t batch_, rows_, row_, most_taps_;
  std::uint64_t step_seed_;
};

void check_program(std::uint64_t seed) {
  SCOPED_TRACE("HOTLOOP_SEED=" + std::to_string(seed));
  constexpr DType dtypes[] = {DType::F32, DType::F32, DType::F64, DType::I32};
  const DType dtype = dtypes[seed % 4];
  RandomRowSums program(seed * 0x9e3779b97f4a7c15u, dtype);
  const std::vector<Array> inputs = program.inputs();
  const auto graph = trace([&](Values in) { return program(in); }, ir::types_of(inputs));
  const std::vector<Array> wanted = ir::evaluate(*graph, inputs);
  for (const Compiled& compiled : all_compiled()) {
    CompileOptions options = compiled.options();
    options.threads = 1 + static_cast<int>(seed % 2);
    const std::vector<Array> got = compile(graph, options)(inputs);
    for (std::size_t r = 0; r < wanted.size(); ++r)
      EXPECT_TRUE(ir::close(got[r], wanted[r], 64 * ir::epsilon_of(dtype)))
          << compiled.backend << " " << compiled.target << " result " << r;
    if (compiled.backend == "llvm") expect_within_guards(*graph, inputs, options, seed % 3 == 0, got);
  }
}

TEST(RandomRowSums, GiveTheOraclesNumbers) { for_seeds(check_program, 40); }

}  // namespace
}  // namespace hotloop::testing
