// The llvm backend against the reference interpreter, to the bit, on every target this machine runs: the fixture of the tests named
// llvm_*_test.cpp.
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "kernel_builder.h"
#include "kernel_reference.h"
#include "schedule/column_walk.h"
#include "targets.h"

namespace hotloop::kernel {

inline constexpr DType f32 = DType::F32, f64 = DType::F64, i32 = DType::I32, i64 = DType::I64, u32 = DType::U32;

inline Array random_values(DType dtype, std::int64_t n, std::mt19937& random) {
  Array array(dtype, Shape{n});
  std::uniform_real_distribution<double> real(-2, 2);
  for (std::int64_t i = 0; i < n; ++i) {
    array.set(i, dtype == DType::Bool ? double(random() & 1)
                 : is_float(dtype)    ? real(random)
                                      : std::floor(real(random) * 8));
  }
  return array;
}

struct DotCase {
  DType dtype = f32;
  std::int64_t m = 1, n = 1;
  std::vector<std::int64_t> k;  // one number a segment
  bool packed = false, init = true, run_time_m = false;
  std::int64_t b_n = 1, c_n = 1, panel = 0;  // vectors of a panel; 0: the target's for so many rows
};

inline Program dot_program(const Target& target, const DotCase& c) {
  ProgramBuilder p(target, c.m);
  Dot dot;
  dot.name = "dot";
  dot.dtype = c.dtype;
  dot.m = {c.m, c.run_time_m ? rows_var : -1};
  dot.n = {c.n, -1};
  const std::int64_t lanes = lanes_of(c.dtype), width = (c.n + lanes - 1) / lanes * lanes;
  for (std::size_t s = 0; s < c.k.size(); ++s) {
    const std::int64_t k = c.k[s];
    const int a = p.argument(c.dtype, c.m * (k + 2) + 1);
    const int b = p.argument(c.dtype, k * c.n * c.b_n + c.b_n);
    DotSegment segment;
    const bool a_transposed = s == 1;  // segments differ in the layout of A
    segment.a = at(a, Affine(1));
    segment.a_m = a_transposed ? 1 : k + 2;
    const std::int64_t b_k = c.b_n == 1 ? c.n : 1, b_n = c.b_n == 1 ? 1 : k;
    segment.b = at(b);
    segment.b_n = b_n;
    segment.k = {{{k, -1}, a_transposed ? c.m : 1, b_k}};
    if (c.packed) {
      Pack pack;
      pack.source = at(b);
      pack.k_stride = b_k;
      pack.n_stride = b_n;
      pack.k = k;
      pack.n = c.n;
      pack.panel = c.panel > 0
                       ? c.panel * lanes
                       : panel_columns(target, {c.dtype, dot.m, c.n,
                                                std::accumulate(c.k.begin(), c.k.end(), std::int64_t{0}), true});
      pack.target = p.shared(c.dtype, k * width);
      pack.dtype = c.dtype;
      segment.b = at(pack.target);
      segment.panel = pack.panel;
      p.add(Single{{{pack}}});
      p.add(Barrier{});
    }
    dot.segments.push_back(segment);
  }
  dot.c = at(p.result(c.dtype, c.m * (c.n + 1) * c.c_n));
  dot.c_m = c.c_n == 1 ? c.n + 1 : 1;
  dot.c_n = c.c_n == 1 ? 1 : c.m;
  if (c.init) {
    dot.init = at(p.argument(c.dtype, c.n));
    dot.init_m = 0;
    dot.init_n = 1;
  }
  p.add(dot);
  return p.build();
}

class LlvmBackend : public testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    if (!host_runs(GetParam())) GTEST_SKIP() << "THIS MACHINE DOES NOT RUN " << GetParam() << ": NOT TESTED";
  }
  Target target() const { return target_named(GetParam()); }

  // The program, and the same in a loop, where small statements are emitted in place.
  void check(const Program& program, const std::vector<std::int64_t>& all_rows = {1}, int num_workers = 1,
             const std::vector<Array>& given = {}, std::int64_t turn = 0) {
    check_one(program, all_rows, num_workers, given, turn);
    if (HasFatalFailure()) return;
    Program twice = program;
    twice.vars.push_back("again");
    twice.body = {{For{static_cast<Var>(twice.vars.size()) - 1, {2, -1}, false, {}, {}, program.body}}};
    if (num_workers == 1) check_one(twice, all_rows, num_workers, given, turn);
  }

  // Random arguments; results of the kernel and of the reference must agree to the bit, for each number of rows.
  void check_one(const Program& program, const std::vector<std::int64_t>& all_rows = {1}, int num_workers = 1,
                 const std::vector<Array>& given = {}, std::int64_t turn = 0) {
    const auto kernel = compile_llvm(program, {.keep_source = true, .cache_dir = {}});
    ASSERT_NE(kernel->function(), nullptr);
    EXPECT_GT(kernel->code_bytes, 0u);
    for (const std::int64_t rows : all_rows) {
      std::mt19937 random(static_cast<unsigned>(42 + rows));
      std::vector<Array> arguments = given;
      for (std::size_t i = given.size(); i < program.arguments.size(); ++i) {
        arguments.push_back(random_values(program.arguments[i].dtype, program.arguments[i].shape.size(), random));
      }
      std::vector<Array> got, want;
      for (const ValueType& type : program.results) {
        const double before = type.dtype == DType::Bool ? 1 : 77;
        got.push_back(Array::full(type.dtype, type.shape, before));
        want.push_back(Array::full(type.dtype, type.shape, before));
      }
      run_kernel(program, kernel->function(), arguments, got, rows, num_workers, nullptr, turn);
      Reference(program, arguments, want, rows).run();
      for (std::size_t r = 0; r < got.size(); ++r) {
        for (std::int64_t i = 0; i < got[r].size(); ++i) {
          const double x = got[r].at(i), y = want[r].at(i);
          const bool same =
              std::isnan(x) ? std::isnan(y) : std::bit_cast<std::int64_t>(x) == std::bit_cast<std::int64_t>(y);
          ASSERT_TRUE(same) << "result " << r << " element " << i << ": " << x << " is not " << y << " (rows " << rows
                            << ")\n"
                            << kernel->source.substr(0, 6000);
        }
      }
    }
  }
};

}  // namespace hotloop::kernel
