// A Dot and a Map beside it that sums what the Dot reads: to the bit what one after the other gives.
#include <string>
#include <vector>

#include "llvm_backend.h"

namespace hotloop::kernel {
namespace {

enum class Twist {
  None,
  MapFirst,       // the Map stands in front of the Dot
  SumsRows,       // of A, in place of the columns of B
  InRounds,       // the steps are those of two dims, and of a matrix with more rows
  RowsInRounds,   // both of these
  AtRunTime,      // as many steps as the call has rows
  OtherSteps,     // the Map sums fewer steps than the Dot takes
  OtherColumns,   // and other columns
  ReadsProducts,  // the Map's end reads what the Dot gives
  Overwrites,     // the Map's end writes where the Dot reads
  Squares,        // the Map sums something else
  TwoSums,        // the Map sums other numbers beside, with an end of their own
  TwoSumsMeet,    // and an end for both
};

struct Case {
  DType dtype = f32;
  std::int64_t m = 8, n = 32, steps = 40;
  bool init = true;
  Twist twist = Twist::None;
};

Program products_and_sums(const Target& target, const Case& c) {
  const bool at_run_time = c.twist == Twist::AtRunTime,
             in_rounds = c.twist == Twist::InRounds || c.twist == Twist::RowsInRounds,
             sums_rows = c.twist == Twist::SumsRows || c.twist == Twist::RowsInRounds;
  ProgramBuilder p(target, at_run_time ? c.steps : 1);
  const std::int64_t rounds = in_rounds ? 3 : 1, gap = in_rounds ? 2 : 0, columns = c.n + gap,
                     count = sums_rows ? c.m : c.n;
  const int a = p.argument(c.dtype, rounds * (c.steps + gap) * c.m);
  const int given = p.argument(c.dtype, rounds * (c.steps + gap) * columns + 1), scale = p.argument(c.dtype, count);
  const int b = p.shared(c.dtype, rounds * (c.steps + gap) * columns + 1);
  const int products = p.result(c.dtype, c.m * c.n), sums = p.result(c.dtype, count);
  const Var i = p.var("i"), k = p.var("k"), round = p.var("round"), j = p.var("j");
  MapBuilder copy({{j, {rounds * (c.steps + gap) * columns + 1, -1}}}, 1, 0);
  copy.store(c.dtype, at(b, Affine::of(j)), copy.load(c.dtype, at(given, Affine::of(j))));
  const Extent steps{c.steps, at_run_time ? rows_var : -1};

  Dot dot;
  dot.name = "products";
  dot.dtype = c.dtype;
  dot.m = {c.m, -1};
  dot.n = {c.n, -1};
  DotSegment segment;
  segment.a = at(a);
  segment.a_m = 1;
  segment.b = at(b);
  segment.b_n = 1;
  segment.k = {{steps, c.m, columns}};
  if (rounds > 1) segment.k.insert(segment.k.begin(), {{rounds, -1}, (c.steps + gap) * c.m, (c.steps + gap) * columns});
  dot.segments = {segment};
  dot.c = at(products);
  dot.c_m = c.n;
  if (c.init) {
    dot.init = at(p.argument(c.dtype, c.m * c.n));
    dot.init_m = c.n;
    dot.init_n = 1;
  }

  std::vector<Dim> dims{{i, {count, -1}}, {k, steps}};
  if (c.twist == Twist::OtherSteps) dims[1].extent = {c.steps - 1, -1};
  if (rounds > 1) dims.insert(dims.begin() + 1, {round, {rounds, -1}});
  MapBuilder map(dims, 1, 0);
  const std::int64_t step = sums_rows ? c.m : columns;
  Affine place = Affine::of(i) + Affine::of(k, step) + Affine::of(round, rounds > 1 ? (c.steps + gap) * step : 0);
  if (c.twist == Twist::OtherColumns) place = place + 1;
  int number = map.load(c.dtype, at(sums_rows ? a : b, place));
  if (c.twist == Twist::Squares) number = map.op(ScalarOp::Mul, c.dtype, number, number);
  const bool is_twofold = c.twist == Twist::TwoSums || c.twist == Twist::TwoSumsMeet;
  const int others =
      is_twofold ? map.load(c.dtype, at(p.argument(c.dtype, c.steps * count), Affine::of(i) + Affine::of(k, count)))
                 : -1;
  const int other_sum = is_twofold ? map.reduced(ScalarOp::Add, c.dtype, others) : -1;
  const int sum = map.reduced(ScalarOp::Add, c.dtype, number);
  const int factor = map.load(c.dtype, at(c.twist == Twist::ReadsProducts ? products : scale, Affine::of(i)));
  int end = map.op(ScalarOp::Mul, c.dtype, sum, factor);
  if (c.twist == Twist::TwoSumsMeet) end = map.op(ScalarOp::Add, c.dtype, end, other_sum);
  map.store(c.dtype, at(sums, Affine::of(i)), end);
  if (is_twofold)
    map.store(c.dtype, at(p.result(c.dtype, count), Affine::of(i)), map.op(ScalarOp::Mul, c.dtype, factor, other_sum));
  if (c.twist == Twist::Overwrites) map.store(c.dtype, at(b, Affine::of(i)), sum);

  Block block{{copy.build()}};
  if (c.twist == Twist::MapFirst)
    append(block, {{map.build()}, {dot}});
  else
    append(block, {{dot}, {map.build()}});
  p.add(Single{block});
  return p.build();
}

class LlvmDotAndSum : public LlvmBackend {
 protected:
  bool sums_beside(const Program& program) const {
    return compile_llvm(program, {.keep_source = true, .cache_dir = {}})->source.find("_and_sum_") != std::string::npos;
  }
  void expect(const Case& c, bool beside) { expect(target(), c, beside); }
  void expect(const Target& there, const Case& c, bool beside) {
    SCOPED_TRACE(std::string(name_of(c.dtype)) + " " + std::to_string(c.m) + " x " + std::to_string(c.n) + ", " +
                 std::to_string(c.steps) + " steps, twist " + std::to_string(static_cast<int>(c.twist)));
    const Program program = products_and_sums(there, c);
    verify(program);
    // Which tiles leave registers for sums depends on how many a vector takes.
    if (is_wide() || !beside) EXPECT_EQ(sums_beside(program), beside);
    check(program,
          c.twist == Twist::AtRunTime ? std::vector<std::int64_t>{0, 1, 7, c.steps} : std::vector{std::int64_t{1}});
  }
  bool is_wide() const { return std::string(GetParam()) == "avx512"; }
};

TEST_P(LlvmDotAndSum, SumsColumnsBesideProducts) {
  for (const Twist twist : {Twist::None, Twist::MapFirst, Twist::InRounds, Twist::AtRunTime})
    for (const DType dtype : {f32, f64}) {
      expect({.dtype = dtype, .m = 1, .twist = twist}, true);
      expect({.dtype = dtype, .m = 1, .n = 16, .twist = twist}, true);
      for (const std::int64_t m : {4, 5, 12, 32}) {
        expect({.dtype = dtype, .m = m, .n = 16, .twist = twist}, true);
        expect({.dtype = dtype, .m = m, .n = dtype == f32 ? 20 : 10, .twist = twist}, true);
      }
      expect({.dtype = dtype, .m = 8, .n = 128, .init = false, .twist = twist}, true);
      expect({.dtype = dtype, .m = 12, .n = 128, .twist = twist},
             true);  // where all registers would be full, by lower blocks
      expect({.dtype = dtype, .m = 6, .n = 70, .twist = twist}, true);
    }
}

TEST_P(LlvmDotAndSum, SumsRowsBesideProducts) {
  for (const DType dtype : {f32, f64}) {
    for (const std::int64_t m : {2, 3, 4, 7, 12, 13, 32, 64})
      expect({.dtype = dtype, .m = m, .n = 16, .twist = Twist::SumsRows}, true);
    expect({.dtype = dtype, .m = 25, .n = 160, .twist = Twist::SumsRows}, true);  // beside each tile of columns
  }
}

// Of many parts, between which sums wait in memory.
TEST_P(LlvmDotAndSum, SumsBesideDeepProducts) {
  for (const DType dtype : {f32, f64})
    for (const Twist twist : {Twist::None, Twist::SumsRows, Twist::AtRunTime}) {
      expect({.dtype = dtype, .m = 130, .n = 32, .steps = 700, .twist = twist}, true);
      expect({.dtype = dtype, .m = 70, .n = 100, .steps = 300, .init = false, .twist = twist}, true);
    }
}

// Of products that pass their rows in groups, which are packed: by that, in blocks of two heights, of steps in two dims as well.
TEST_P(LlvmDotAndSum, SumsRowsOfLargeProductsAsTheyArePacked) {
  Target small = target();
  small.l2_bytes_there = 48 << 10;
  for (const DType dtype : {f32, f64})
    for (const std::int64_t steps : {66, 300}) {
      expect(small, {.dtype = dtype, .m = 131, .n = 140, .steps = steps, .twist = Twist::SumsRows}, true);
      expect(small, {.dtype = dtype, .m = 60, .n = 133, .steps = steps, .init = false, .twist = Twist::SumsRows}, true);
      expect(small, {.dtype = dtype, .m = 61, .n = 140, .steps = steps, .twist = Twist::RowsInRounds}, true);
      expect(small, {.dtype = dtype, .m = 60, .n = 140, .steps = steps}, false);  // of columns by a pass of their own
    }
}

TEST_P(LlvmDotAndSum, CutsMapsOfSeveralSums) {
  for (const DType dtype : {f32, f64}) {
    expect({.dtype = dtype, .twist = Twist::TwoSums}, true);
    expect({.dtype = dtype, .twist = Twist::TwoSumsMeet}, false);
  }
}

TEST_P(LlvmDotAndSum, LeavesApartWhatMeetsOrDiffers) {
  for (const Twist twist :
       {Twist::OtherSteps, Twist::OtherColumns, Twist::ReadsProducts, Twist::Overwrites, Twist::Squares})
    expect({.m = 1, .twist = twist}, false);
}

INSTANTIATE_TEST_SUITE_P(Targets, LlvmDotAndSum, testing::ValuesIn(hotloop::kernel::native_targets),
                         [](const auto& info) { return std::string(info.param); });

}  // namespace
}  // namespace hotloop::kernel
