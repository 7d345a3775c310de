// Dots and packs by the llvm backend.
#include <array>
#include <numeric>
#include <regex>
#include <string_view>
#include <vector>

#include "llvm_backend.h"

namespace hotloop::kernel {
namespace {

class LlvmDots : public LlvmBackend {};

TEST_P(LlvmDots, DotShapes) {
  for (const DType dtype : {f32, f64}) {
    for (const std::int64_t m : {1, 2, 3, 5, 6, 7, 12, 13}) {
      for (const std::int64_t n : {1, 3, 8, 16, 17, 40, 64, 100, 130, 200}) {
        const bool packed = (m + n) % 2 == 0;
        check(dot_program(target(), {dtype, m, n, {1 + (m * n) % 9}, packed, n % 3 != 0}));
        if (HasFatalFailure()) return;
      }
    }
  }
}

TEST_P(LlvmDots, DotDepths) {
  for (const std::int64_t k : {1, 2, 3, 4, 5, 7, 8, 31, 72, 600}) {
    for (const bool packed : {false, true}) check(dot_program(target(), {f32, 12, 96, {k}, packed}));
  }
}

TEST_P(LlvmDots, DotSegments) {
  for (const bool packed : {false, true}) {
    for (const DType dtype : {f32, f64}) {
      check(dot_program(target(), {dtype, 12, 48, {8, 16}, packed}));
      check(dot_program(target(), {dtype, 5, 70, {3, 7, 12}, packed, false}));
    }
  }
}

TEST_P(LlvmDots, DotRunTimeRows) {
  for (const std::int64_t bound : {1, 3, 4, 12, 17}) {
    for (const std::int64_t n : {1, 24, 64, 128, 136}) {
      const Program program = dot_program(target(), {f32, bound, n, {9, 4}, true, true, true});
      std::vector<std::int64_t> rows(static_cast<std::size_t>(bound + 1));
      std::iota(rows.begin(), rows.end(), 0);
      check(program, rows);
      if (HasFatalFailure()) return;
    }
  }
}

TEST_P(LlvmDots, DotStrides) {
  for (const std::int64_t n : {1, 5, 33}) {
    for (const std::int64_t m : {4, 18}) {
      check(dot_program(target(), {f32, m, n, {10, 6}, false, true, false, 2}));            // B by columns
      check(dot_program(target(), {f64, m, n, {10}, false, false, false, 2, 2}));           // and C
      check(dot_program(target(), {f32, m, n, {10, 3}, true, true, true, 2, 2}), {m - 1});  // packed from columns
    }
  }
}

// dW += x^T dz over all steps and a run-time number of rows: three k dims, A contiguous along m, accumulating in place.
TEST_P(LlvmDots, DotOverStepsAndRowsInPlace) {
  for (const auto [m, n, steps, rows] : std::vector<std::array<std::int64_t, 4>>{
           {11, 20, 5, 7}, {11, 64, 5, 7}, {11, 160, 5, 7}, {50, 84, 100, 7}, {50, 64, 3, 300}}) {
    ProgramBuilder p(target(), rows);
    const int x = p.argument(f32, steps * rows * m), z = p.argument(f32, steps * rows * n), w = p.result(f32, m * n);
    Dot dot;
    dot.m = {m, -1};
    dot.n = {n, -1};
    dot.segments.push_back({at(x), at(z), 1, 1, {{{steps, -1}, rows * m, rows * n}, {{rows, rows_var}, m, n}}});
    dot.init = dot.c = at(w);
    dot.init_m = dot.c_m = n;
    dot.init_n = dot.c_n = 1;
    p.add(dot);
    p.add(dot);
    check(p.build(), {1, rows - 1, rows});
  }
}

// Many rows over a deep k go over it in parts; few rows over a large B visit its panels in turns from either end.
TEST_P(LlvmDots, DotInParts) {
  for (const DType dtype : {f32, f64}) {
    check(dot_program(target(), {dtype, 51, 70, {700}, false, true}));
    check(dot_program(target(), {dtype, 50, 33, {601, 560}, false, false}));
    check(dot_program(target(), {dtype, 50, 17, {530}, false, true, false, 2, 2}));
  }
}

// One or two rows over a B that leaves the first cache: the walk turns round, with tiles of their own at either end, whole columns or not.
TEST_P(LlvmDots, DotThatTurns) {
  for (const DType dtype : {f32, f64})
    for (const std::int64_t m : {1, 2})
      for (const std::int64_t n : {251, 325, 512})
        for (const std::int64_t panel :
             dtype == f32 ? std::vector<std::int64_t>{0, 1, 2} : std::vector<std::int64_t>{0})
          for (const std::int64_t turn : {0, 1}) {
            check(dot_program(target(), {.dtype = dtype,
                                         .m = m,
                                         .n = n,
                                         .k = {8, n / 4},
                                         .packed = true,
                                         .init = turn == 0,
                                         .panel = panel}),
                  {1}, 1, {}, turn);
            if (HasFatalFailure()) return;
          }
}

// Of a large product some rows at a time are passed by all columns, for some steps of k, and sums wait in C between them: with factors that lie along rows or
// columns, packed or not, rows in blocks of two heights, columns that fill no tile, groups and parts that are not full, and segments of unequal length.
TEST_P(LlvmDots, ALargeProductIsCutIntoGroupsOfRows) {
  kernel::Target small = target();
  small.l2_bytes_there = 48 << 10;
  struct Case {
    DType dtype = f32;
    std::int64_t m = 0, n = 0;
    std::vector<std::int64_t> k;
    bool packed = false, by_columns = false, init = false;
    std::int64_t b_n = 1;  // 2: B lies by columns as well
  };
  const auto program = [&](const kernel::Target& there, const Case& c) {
    std::int64_t steps = 0;
    for (const std::int64_t k : c.k) steps += k;
    ProgramBuilder p(there);
    const std::int64_t columns = c.n + 64;  // panels are whole
    const int a = p.argument(c.dtype, c.m * steps), b = p.argument(c.dtype, steps * columns),
              start = p.argument(c.dtype, c.n), result = p.result(c.dtype, c.m * c.n);
    Dot dot;
    dot.dtype = c.dtype;
    dot.m = {c.m, -1};
    dot.n = {c.n, -1};
    std::int64_t first = 0;
    for (const std::int64_t k : c.k) {
      dot.segments.push_back({at(a, Affine(first * (c.by_columns ? c.m : 1))),
                              at(b, Affine(first * columns)),
                              c.by_columns ? 1 : steps,
                              c.b_n == 1 ? 1 : k,
                              {{{k, -1}, c.by_columns ? c.m : 1, c.b_n == 1 ? c.n : 1}},
                              c.packed ? there.panel(c.dtype) : 0});
      first += k;
    }
    dot.c = at(result);
    dot.c_m = c.n;
    if (c.init) {
      dot.init = at(start);
      dot.init_n = 1;
    }
    p.add(dot);
    return p.build();
  };
  for (const DType dtype : {f32, f64})
    for (const bool by_columns : {false, true})
      for (const bool packed : {false, true}) {
        check(program(small, {dtype, 24, 133, {70}, packed, by_columns}));
        check(program(small, {dtype, 50, 5, {75}, packed, by_columns}));
        check(program(small, {dtype, 131, 140, {75, 66}, packed, by_columns, true}));
        if (!packed) check(program(small, {dtype, 40, 133, {80}, false, by_columns, true, 2}));
        if (HasFatalFailure()) return;
      }
  const auto has = [&](const Case& c, const kernel::Target& there, const std::string& what) {
    const Program of = program(there, c);
    return compile_llvm(of, {.keep_source = true, .cache_dir = {}})->source.find(what) != std::string::npos;
  };
  // The next group's rows are packed beside this one's products where registers are left for that.
  const Case apart{f32, 131, 140, {200}, false, true}, one_group{f32, 24, 140, {200}, false, true};
  EXPECT_EQ(has(apart, small, "next_line"), kernel::has_wide_vectors(small));
  EXPECT_FALSE(has(one_group, target(), "next_line"));
  EXPECT_FALSE(has({f32, 131, 140, {200}}, small, "next_line")) << "steps lie side by side";
  // Rows of C begin within a line, so that the one of a vector's first number is there: what is fetched is that of the last one.
  const std::string source =
      compile_llvm(program(small, {f32, 61, 141, {70}, true}), {.keep_source = true, .cache_dir = {}})->source;
  const std::regex fetch(R"(@llvm\.prefetch\.p0\(ptr (%\w+), i32 0, i32 3)");
  int fetched = 0;
  for (std::sregex_iterator it(source.begin(), source.end(), fetch), end; it != end; ++it, ++fetched)
    EXPECT_TRUE(std::regex_search(source, std::regex((*it)[1].str() + " = getelementptr i8, ptr %\\w+, i64 60\n")));
  EXPECT_GT(fetched, 0);
  if (std::string(GetParam()) != "avx512") return;
  const auto reads_c = [&](const Case& c, const kernel::Target& there) {  // also what the next block finds there
    return has(c, there, "i32 0, i32 3, i32 1)");
  };
  const Case rows{f32, 61, 140, {70}, true}, few{f32, 20, 140, {200}, true}, shallow{f32, 400, 140, {40}, true};
  EXPECT_TRUE(reads_c(rows, small));
  EXPECT_FALSE(reads_c(rows, target())) << "A is near anyway";
  EXPECT_FALSE(reads_c(few, small));
  EXPECT_FALSE(reads_c(shallow, small));
}

// Rows that lie side by side are packed in blocks of rows where each step of k has them in another line: also of steps in several dims, of a number known at
// run time, and of sums in place.
TEST_P(LlvmDots, RowsOfALargeProductArePackedInBlocks) {
  const auto transposed = [&](DType dtype, std::int64_t m, std::int64_t n, const std::vector<KDim>& k, int num_segments,
                              bool in_place) {
    std::int64_t steps = 1;
    for (const KDim& dim : k) steps *= dim.extent.bound;
    ProgramBuilder p(target(), k.back().extent.bound);
    const int a = p.argument(dtype, steps * m), b = p.argument(dtype, steps * n), start = p.argument(dtype, n),
              c = p.result(dtype, m * n);
    Dot dot;
    dot.dtype = dtype;
    dot.m = {m, -1};
    dot.n = {n, -1};
    for (int segment = 0; segment < num_segments; ++segment) {
      dot.segments.push_back({at(a), at(b), 1, 1, k});
      dot.segments.back().k[0].extent.bound -= 9 * segment;
    }
    dot.c = at(c);
    dot.init = in_place ? dot.c : at(start);
    dot.c_m = n;
    dot.init_m = in_place ? n : 0;
    dot.init_n = dot.c_n = 1;
    p.add(dot);
    if (in_place) p.add(dot);
    return p.build();
  };
  constexpr std::int64_t m = 170, n = 131, rows = 7;
  const Program single = transposed(f32, m, n, {{{390, -1}, m, n}}, 1, false);
  check(single);
  check(transposed(f64, m, n, {{{251, -1}, m, n}}, 2, true));
  check(transposed(f64, m, n, {{{36, -1}, rows * m, rows * n}, {{rows, rows_var}, m, n}}, 1, false), {5});
  check(transposed(f64, m, n, {{{36, -1}, rows * m, rows * n}, {{rows, -1}, m, n}}, 2, true));
  const auto packs = [&](const Program& program) {
    const std::string source = compile_llvm(program, {.keep_source = true, .cache_dir = {}})->source;
    return source.find("load <6 x ") != std::string::npos;  // rows of A at a time
  };
  if (std::string(GetParam()) == "portable") return;
  EXPECT_TRUE(packs(single));
  EXPECT_FALSE(packs(transposed(f32, m, n, {{{60, -1}, m, n}}, 1, false))) << "too few steps to pay for it";
  EXPECT_FALSE(packs(transposed(f32, m, 30, {{{390, -1}, m, 30}}, 1, false))) << "too few columns";
}

// Columns of B that lie apart are packed beside it before many rows pass over them, also where k is short.
TEST_P(LlvmDots, ColumnsApartArePackedOnce) {
  for (const DType dtype : {f32, f64}) {
    for (const std::int64_t n : {1, 5, 33, 70}) {
      check(dot_program(target(), {dtype, 53, n, {10}, false, true, false, 2}));
      check(dot_program(target(), {dtype, 53, n, {10, 6}, false, false, false, 2}));
      check(dot_program(target(), {dtype, 50, n, {9}, false, false, true, 2, 2}), {1, 49, 50});
    }
  }
  const Program program = dot_program(target(), {f32, 53, 70, {10}, false, true, false, 2});
  const std::string source = compile_llvm(program, {.keep_source = true, .cache_dir = {}})->source;
  EXPECT_NE(source.find("alloca ["), std::string::npos) << "room for the columns of a tile";
}

// W^T x: what lies side by side along k is read line by line and turned in registers, by dots of few rows, by packs, and where many rows pass
// over columns that were packed once. No lane is loaded by itself.
TEST_P(LlvmDots, LinesOfBAreTurnedInRegisters) {
  for (const DType dtype : {f32, f64}) {
    for (const std::int64_t k : {5, 16, 19, 40}) {
      for (const std::int64_t n : {5, 16, 70}) {
        for (const auto& [m, packed] : {std::pair(1, false), {53, false}, {2, true}}) {
          const Program program = dot_program(target(), {dtype, m, n, {k, 9}, packed, m % 2 == 0, false, 2});
          check(program);
          if (HasFatalFailure()) return;
          const std::string source = compile_llvm(program, {.keep_source = true, .cache_dir = {}})->source;
          EXPECT_EQ(source.find("masked.gather"), std::string::npos) << m << ' ' << n << ' ' << k << source;
        }
      }
    }
  }
}

// One column is computed as one row, whose columns fill vectors: as they lie, or turned in squares, and as many as a call has.
TEST_P(LlvmDots, OneColumnFillsVectorsWithItsRows) {
  for (const DType dtype : {f32, f64})
    for (const std::int64_t k : {3, 5, 16, 40})
      for (const std::int64_t m : {5, 16, 70}) {
        check(dot_program(target(), {dtype, m, 1, {k, 9}, false, k % 2 == 0, false, 1, 2}));
        check(dot_program(target(), {dtype, m, 1, {k, 9}, false, k % 2 == 0, true, 1, 2}), {1, m / 2, m - 1, m});
        if (HasFatalFailure()) return;
      }
  if (std::string(GetParam()) != "avx512") return;
  const Program program = dot_program(target(), {f32, 70, 1, {40, 9}, false, true, true, 1, 2});
  const std::string source = compile_llvm(program, {.keep_source = true, .cache_dir = {}})->source;
  EXPECT_NE(source.find("llvm.fma.v16f32"), std::string::npos);
}

// A matrix that leaves the second cache is read in bands of lines by few rows, or by one of as many columns as a call has: all sums wait in C meanwhile.
TEST_P(LlvmDots, FewRowsReadALargeMatrixInBands) {
  for (const DType dtype : {f32, f64})
    for (const std::int64_t m : {1, 2, 6})
      for (const bool init : {false, true}) check(dot_program(target(), {dtype, m, 450, {300, 13}, false, init}));
  const auto one_column = [&](DType dtype, std::int64_t m, const std::vector<KDim>& k) {
    ProgramBuilder p(target(), m);
    const int a = p.argument(dtype, k[0].extent.bound * k[0].a_stride),
              b = p.argument(dtype, k[0].extent.bound * k[0].b_stride), c = p.result(dtype, m);
    Dot dot;
    dot.dtype = dtype;
    dot.m = {m, rows_var};
    dot.n = {1, -1};
    dot.segments.push_back({at(a), at(b), 1, 0, k});
    dot.c = at(c);
    dot.c_m = 1;
    p.add(dot);
    return p.build();
  };
  constexpr std::int64_t m = 499, steps = 300;
  check(one_column(f64, m, {{{5, -1}, 60 * m, 60}, {{59, -1}, m, 1}}), {1, 8, 97, m});
  const Program program = one_column(f32, m, {{{steps, -1}, m, 1}});
  check(program, {1, 16, 130, m});
  if (std::string(GetParam()) != "avx512") return;
  const std::string source = compile_llvm(program, {.keep_source = true, .cache_dir = {}})->source;
  EXPECT_NE(source.find("store <16 x float> zeroinitializer"), std::string::npos);
}

// So is one that does not stay in the third cache by some blocks of rows, as many as are there.
TEST_P(LlvmDots, ABandFromMemoryServesAllBlocksOfRows) {
  kernel::Target small = target();
  small.l2_bytes = 4096;
  for (const DType dtype : {f32, f64})
    for (const std::int64_t m : {1, 7, 16, 20})
      for (const bool init : {false, true}) {
        check(dot_program(small, {dtype, m, 170, {100}, false, init}));
        check(dot_program(small, {dtype, m, 170, {37, 3}, false, init, true}), {1, (m + 1) / 2, m});
      }
  const auto bands = [&](const kernel::Target& there) {
    const Program program = dot_program(there, {f32, 16, 170, {100}, false, false});
    return compile_llvm(program, {.keep_source = true, .cache_dir = {}})->source.find("zeroinitializer, ptr");
  };
  if (std::string(GetParam()) != "avx512") return;
  EXPECT_NE(bands(small), std::string::npos);
  EXPECT_EQ(bands(target()), std::string::npos);
}

// Where the second cache does not hold B, blocks of rows fetch the lines of the next tile of columns beside those of this one.
TEST_P(LlvmDots, TheNextTileOfABFromFarIsFetchedMeanwhile) {
  kernel::Target small = target();
  small.l2_bytes_there = 16 << 10;
  for (const DType dtype : {f32, f64})
    for (const bool packed : {false, true})
      for (const std::int64_t m : {7, 16, 20, 61}) {
        check(dot_program(small, {dtype, m, 512, {11}, packed}));
        check(dot_program(small, {dtype, m, 330, {20}, packed, true}));
        check(dot_program(small, {dtype, m, 512, {20}, packed, false, true}), {1, (m + 1) / 2, m});
      }
  const auto fetches = [&](const kernel::Target& there, std::int64_t m, std::int64_t k, bool packed,
                           bool variable_rows = false) {
    const Program program = dot_program(there, {f32, m, 512, {k}, packed, false, variable_rows});
    const std::string source = compile_llvm(program, {.keep_source = true, .cache_dir = {}})->source;
    return source.find("i32 0, i32 2, i32 1)") != std::string::npos;  // reads, the second cache, data
  };
  if (std::string(GetParam()) != "avx512") return;
  for (const bool packed : {false, true}) {
    EXPECT_TRUE(fetches(small, 16, 20, packed));
    EXPECT_FALSE(fetches(target(), 16, 20, packed)) << "it stays";
    EXPECT_FALSE(fetches(small, 6, 20, packed)) << "one block of rows has nothing else to do";
    EXPECT_FALSE(fetches(small, 16, 60, packed)) << "two tiles find no room";
    EXPECT_TRUE(fetches(small, 16, 20, packed, true)) << "as fit() has it";
    EXPECT_TRUE(fetches(small, 96, 20, packed));
    EXPECT_FALSE(fetches(small, 97, 20, packed)) << "so many blocks that what one waits for is nothing";
  }
}

TEST_P(LlvmDots, DotPanelsInTurns) {
  for (const std::int64_t m : {1, 4})
    for (const std::int64_t n : {200, 512})
      for (const std::int64_t turn : {0, 1, 2, 3})
        check(dot_program(target(), {f32, m, n, {40, 9}, true}), {1}, 1, {}, turn);
}

// A narrow output with a transposed A takes the other operand's rows as vectors.
TEST_P(LlvmDots, DotNarrowOutputs) {
  for (const std::int64_t m : {3, 16, 50}) {
    ProgramBuilder p(target());
    constexpr std::int64_t k = 13, n = 2;
    const int a = p.argument(f32, k * m), b = p.argument(f32, k * n), c = p.result(f32, m * n);
    Dot dot;
    dot.m = {m, -1};
    dot.n = {n, -1};
    dot.segments.push_back({at(a), at(b), 1, 1, {{{k, -1}, m, n}}});
    dot.c = at(c);
    dot.c_m = n;
    p.add(dot);
    check(p.build());
  }
}

// A layer of a few outputs is computed in registers that it fills, whatever way its weights lie, and however deep its sums are.
TEST_P(LlvmDots, DotFewColumns) {
  for (const DType dtype : {f32, f64}) {
    for (const std::int64_t n : {2, 3, 4, 7, 8}) {
      for (const std::int64_t m : {1, 17}) {
        for (const bool packed : {false, true}) {
          for (const std::int64_t b_n : {1, 2})
            check(dot_program(target(), {dtype, m, n, {10, 6}, packed, m > 1, false, b_n}));
          check(dot_program(target(), {dtype, m, n, {16}, packed, true, true}), {m - 1, m});
          if (HasFatalFailure()) return;
        }
      }
      check(dot_program(target(), {dtype, 70, n, {900}, false, true, false, 900}));  // in parts, turned
      if (HasFatalFailure()) return;
    }
  }
  if (GetParam() != std::string("avx512")) return;
  const Program program = dot_program(target(), {f32, 24, 4, {16}, false, true});
  const std::string source = compile_llvm(program, {.keep_source = true, .cache_dir = {}})->source;
  EXPECT_NE(source.find("<4 x float>"), std::string::npos) << source;
  EXPECT_EQ(source.find("<16 x float>"), std::string::npos) << source;
}

// A matrix times a vector: one column would fill one lane of a vector, and be scattered to memory. It is one row, or scalar code.
TEST_P(LlvmDots, DotOneColumn) {
  for (const DType dtype : {f32, f64}) {
    for (const std::int64_t k : {1, 3, 9, 1200}) {
      ProgramBuilder p(target(), 60);
      const int a = p.argument(dtype, 60 * k), b = p.argument(dtype, k), c = p.result(dtype, 60);
      Dot dot;
      dot.dtype = dtype;
      dot.m = {60, rows_var};
      dot.n = {1, -1};
      dot.segments.push_back({at(a), at(b), k, 0, {{{k, -1}, 1, 1}}});
      dot.c = at(c);
      dot.c_m = 1;
      dot.c_n = 0;
      p.add(dot);
      const Program program = p.build();
      check(program, {1, 11, 12, 60});
      const std::string source = compile_llvm(program, {.keep_source = true, .cache_dir = {}})->source;
      EXPECT_EQ(source.find("scatter"), std::string::npos);
      if (k > 1 && 4 * k < lanes_of(dtype))
        EXPECT_EQ(source.find(" x float>"), std::string::npos) << "too short for squares";
    }
    for (const std::int64_t m : {1, 7, 51}) check(dot_program(target(), {dtype, m, 1, {8, 16}, true, true}));
  }
}

INSTANTIATE_TEST_SUITE_P(Targets, LlvmDots, testing::ValuesIn(hotloop::kernel::native_targets),
                         [](const auto& info) { return std::string(info.param); });

}  // namespace
}  // namespace hotloop::kernel
