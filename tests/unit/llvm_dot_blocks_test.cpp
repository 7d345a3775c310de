// Dots of pairs in blocks, as AMX multiplies them: by the llvm backend against the reference, with the instructions where this machine has them, and
// without.
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "backends/backend.h"
#include "kernel_builder.h"
#include "kernel_reference.h"
#include "llvm_backend.h"
#include "schedule/host.h"

namespace hotloop::kernel {
namespace {

enum class Start {
  Zero,
  Bias,
  Scalar,
  C,
  Turned
};  // Scalar: a number for each row; Turned: of C', as C lies where `turned`

struct BlockCase {
  std::int64_t m = 1, n = 1;
  std::vector<std::int64_t> blocks;  // of k, one number a segment
  Start start = Start::Zero;
  bool run_time_m = false, turned = false;  // whether C lies column by column
};

Program block_program(const BlockCase& c) {
  ProgramBuilder p(target_named("amx"), c.m);
  Dot dot;
  dot.name = "dot";
  dot.pairs = dot.in_blocks = true;
  dot.m = {c.m, c.run_time_m ? rows_var : -1};
  dot.n = {c.n, -1};
  const std::int64_t width = (c.n + 15) / 16 * 16;
  for (std::size_t s = 0; s < c.blocks.size(); ++s) {
    const std::int64_t steps = c.blocks[s] * steps_of_block;
    DotSegment segment;
    segment.a = at(p.argument(u32, (c.m + rows_of_blocks - 1) / rows_of_blocks * rows_of_blocks * steps));
    segment.k = {{{steps, -1}, 0, 0}};
    segment.b = at(p.argument(u32, steps * width));
    segment.panel = columns_of_blocks;
    dot.segments.push_back(segment);
  }
  const std::int64_t row = c.n + 3;
  dot.c = at(p.result(f32, c.turned ? c.n * c.m : c.m * row), Affine(c.turned ? 0 : 2));
  dot.c_m = c.turned ? 1 : row;
  dot.c_n = c.turned ? c.m : 1;
  if (c.start == Start::C) {
    dot.init = dot.c;
    dot.init_m = dot.c_m;
    dot.init_n = dot.c_n;
  } else if (c.start != Start::Zero) {
    dot.init = at(p.argument(f32, c.m * c.n));
    dot.init_m = c.start == Start::Bias ? 0 : 1;
    dot.init_n = c.start == Start::Bias ? 1 : c.start == Start::Scalar ? 0 : c.m;
  }
  p.add(Single{{{dot}}});
  return p.build();
}

// Two bfloat16 of a few binades, whose sums round.
Array random_pairs(std::int64_t n, std::mt19937& random) {
  Array array(u32, Shape{n});
  const auto half = [&] {
    const std::uint32_t bits = random();
    return (bits & 0x807fu) | ((124u + (bits >> 16) % 6) << 7);
  };
  auto* to = static_cast<std::uint32_t*>(array.raw());
  for (std::int64_t i = 0; i < n; ++i) to[i] = half() << 16 | half();
  return array;
}

class DotBlocks : public ::testing::TestWithParam<const char*> {
 protected:
  bool emulates() const { return std::string(GetParam()) == "memory"; }
  void SetUp() override {
    if (!host_runs(emulates() ? "avx512" : "amx"))
      GTEST_SKIP() << "THIS MACHINE HAS NO " << GetParam() << ": NOT TESTED";
  }

  void check(const BlockCase& c, const std::vector<std::int64_t>& all_rows = {1}) {
    const Program program = block_program(c);
    verify(program);
    const auto kernel = compile_llvm(program, {.keep_source = true, .emulates_blocks = emulates()});
    EXPECT_EQ(kernel->source.find("x86.tdpbf16ps") == std::string::npos, emulates());
    for (const std::int64_t rows : all_rows) {
      SCOPED_TRACE(std::to_string(c.m) + " x " + std::to_string(c.n) + ", " + std::to_string(rows) + " rows, start " +
                   std::to_string(static_cast<int>(c.start)));
      std::mt19937 random(static_cast<unsigned>(rows));
      std::vector<Array> arguments, got, want;
      for (const ValueType& type : program.arguments)
        arguments.push_back(type.dtype == u32 ? random_pairs(type.shape.size(), random)
                                              : random_values(f32, type.shape.size(), random));
      for (const ValueType& type : program.results) {
        got.push_back(random_values(type.dtype, type.shape.size(), random));
        want.push_back(got.back().clone());
      }
      run_kernel(program, kernel->function(), arguments, got, rows, 1, nullptr, 0);
      Reference(program, arguments, want, rows).run();
      ASSERT_EQ(std::memcmp(got[0].raw(), want[0].raw(), got[0].bytes()), 0);
    }
  }
};

INSTANTIATE_TEST_SUITE_P(By, DotBlocks, ::testing::Values("registers", "memory"),
                         [](const auto& info) { return std::string(info.param); });

TEST_P(DotBlocks, HaveTheBitsOfTheReference) {
  for (const std::int64_t m : {1, 5, 16, 17, 31, 32, 33, 64, 75})
    for (const std::int64_t n : {1, 16, 17, 32, 40, 64, 100, 129}) {
      check({.m = m, .n = n, .blocks = {1 + (m + n) % 3}, .start = (m * n) % 2 == 0 ? Start::Zero : Start::Bias});
      if (HasFatalFailure()) return;
    }
}

TEST_P(DotBlocks, AddUpSeveralSegments) {
  check({.m = 32, .n = 64, .blocks = {1, 4}, .start = Start::Bias});
  check({.m = 21, .n = 50, .blocks = {2, 3, 1}});
}

TEST_P(DotBlocks, BeginWithWhatLiesAnywhere) {
  for (const Start start : {Start::Zero, Start::Bias, Start::Scalar, Start::C, Start::Turned})
    for (const bool turned : {false, true})
      for (const std::int64_t m : {7, 40}) {
        check({.m = m, .n = 37, .blocks = {2}, .start = start, .turned = turned});
        if (HasFatalFailure()) return;
      }
}

TEST_P(DotBlocks, TakeAsManyRowsAsThereAre) {
  check({.m = 70, .n = 70, .blocks = {2, 1}, .start = Start::Bias, .run_time_m = true},
        {0, 1, 2, 15, 16, 17, 31, 32, 33, 48, 64, 65, 70});
}

// Long sums come in parts between which C waits in memory, and of many rows in groups of rows and columns.
TEST_P(DotBlocks, AreCutIntoPartsAndGroups) {
  check({.m = 33, .n = 48, .blocks = {131}, .start = Start::Bias});
  check({.m = 20, .n = 33, .blocks = {40, 200, 3}});
  check({.m = 20, .n = 33, .blocks = {90, 7}, .start = Start::C, .turned = true});
  if (!emulates()) check({.m = 1500, .n = 1100, .blocks = {85}, .run_time_m = true}, {1500, 1030});
}

TEST(DotBlocksRules, AreVerified) {
  const Program good = block_program({.m = 3, .n = 20, .blocks = {2}});
  verify(good);
  const auto broken = [&](const auto& change) {
    Program program = good;
    change(std::get<Dot>(std::get<Single>(program.body[0].node).body[0].node));
    EXPECT_THROW(verify(program), InternalError);
  };
  broken([](Dot& dot) { dot.pairs = false; });
  broken([](Dot& dot) { dot.segments[0].panel = 0; });
  broken([](Dot& dot) { dot.segments[0].panel = 16; });
  broken([](Dot& dot) { dot.segments[0].k[0].extent = {24, -1}; });
  broken([](Dot& dot) { dot.segments[0].k.push_back({{16, -1}, 1, 1}); });
  broken([](Dot& dot) { dot.segments[0].a.index = Affine(1); });
  broken([](Dot& dot) { dot.segments[0].b.index = Affine(16 * 32); });
}

}  // namespace
}  // namespace hotloop::kernel
