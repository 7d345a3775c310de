// How Maps read what does not lie one after the other: from few addresses, by whole vectors and moves between registers.
#include "llvm_backend.h"

#include <sys/mman.h>
#include <unistd.h>

#include <cstring>
#include <memory>
#include <numeric>

namespace hotloop::kernel {
namespace {

class LlvmLaneMoves : public LlvmBackend {};

// A number that some lanes want, as of a slope that is padded, is read once; nowhere if no lane does.
TEST_P(LlvmLaneMoves, OneAddressForSomeLanesIsNoGather) {
  for (const DType dtype : {f32, f64})
    for (const std::int64_t n : {3, 4, 16, 21}) {
      constexpr std::int64_t rows = 8;
      ProgramBuilder p(target());
      const int x = p.argument(dtype, rows), y = p.result(dtype, rows * n);
      const Var r = p.var("r"), i = p.var("i");
      MapBuilder m({{r, {rows, -1}}, {i, {n, -1}}}, 2, 1);
      const int after = m.op(ScalarOp::Gt, DType::Bool, m.index(i32, Affine::of(i)), m.constant<std::int32_t>(1));
      const int inside = m.op(ScalarOp::Lt, DType::Bool, m.index(i32, Affine::of(r)), m.constant<std::int32_t>(6));
      // Of the last two rows the address is outside the buffer.
      const int wanted = m.load(dtype, at(x, Affine::of(r) + 2), m.op(ScalarOp::And, DType::Bool, after, inside));
      m.store(dtype, at(y, Affine::of(r, n) + Affine::of(i)), wanted);
      p.add(m.build());
      check(p.build());
      if (HasFatalFailure()) return;
      const std::string source = compile_llvm(p.build(), {.keep_source = true, .cache_dir = {}})->source;
      EXPECT_EQ(source.find("masked.gather"), std::string::npos) << n << source;
    }
}

// `n` elements that lie against the end of accessible memory, or against its beginning.
Array beside_a_guard(DType dtype, std::int64_t n, bool at_end, std::mt19937& random) {
  const auto page = static_cast<std::size_t>(sysconf(_SC_PAGESIZE)),
             bytes = static_cast<std::size_t>(n) * size_of(dtype);
  char* pages = static_cast<char*>(mmap(nullptr, 3 * page, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
  EXPECT_LE(bytes, page);
  EXPECT_EQ(mprotect(pages + page, page, PROT_READ | PROT_WRITE), 0);
  char* first = pages + (at_end ? 2 * page - bytes : page);
  const Array values = random_values(dtype, n, random);
  std::memcpy(first, values.raw(), bytes);
  return Array::wrap(dtype, Shape{n}, std::shared_ptr<void>(first, [=](void*) { munmap(pages, 3 * page); }));
}

// Every third element, say, by whole vectors and moves between registers, where they hold enough of them; and nothing beyond the
// first and the last element is read.
TEST_P(LlvmLaneMoves, ElementsAFewApart) {
  std::mt19937 random(5);
  for (const DType dtype : {f32, f64}) {
    for (const std::int64_t stride : {2, 3, 4, 7, -2, -3}) {
      for (const std::int64_t n : {2, 5, 15, 16, 33, 45}) {
        ProgramBuilder p(target());
        const std::int64_t span = (n - 1) * std::abs(stride) + 1;
        const int x = p.argument(dtype, span), y = p.argument(dtype, span), z = p.result(dtype, n);
        const Var i = p.var("i");
        MapBuilder m({{i, {n, -1}}}, 1, 0);
        const Affine place = Affine::of(i, stride) + (stride < 0 ? span - 1 : 0);
        const int a = m.load(dtype, at(x, place)), b = m.load(dtype, at(y, place));
        m.store(dtype, at(z, Affine::of(i)), m.op(ScalarOp::Fma, dtype, a, b, a));
        p.add(m.build());
        const Program program = p.build();
        check(program, {1}, 1, {beside_a_guard(dtype, span, true, random), beside_a_guard(dtype, span, false, random)});
        if (HasFatalFailure()) return;
        const std::string source = compile_llvm(program, {.keep_source = true, .cache_dir = {}})->source;
        if (std::abs(stride) <= 4)
          EXPECT_EQ(source.find("masked.gather"), std::string::npos) << stride << ' ' << n << source;
      }
    }
  }
}

// The same of rows whose number is known at run time: of the last ones only what is there is read.
TEST_P(LlvmLaneMoves, ElementsAFewApartOfRunTimeRows) {
  std::mt19937 random(7);
  for (const DType dtype : {f32, f64}) {
    for (const std::int64_t stride : {2, 3, 4}) {
      for (const std::int64_t most : {2, 9, 16, 24, 33}) {
        ProgramBuilder p(target(), most);
        const std::int64_t span = (most - 1) * stride + 1;
        const int x = p.argument(dtype, span), z = p.result(dtype, most), sum = p.result(dtype, 1);
        const Var i = p.var("i"), j = p.var("j");
        MapBuilder m({{i, {most, rows_var}}}, 1, 0);
        const int a = m.load(dtype, at(x, Affine::of(i, stride)));
        m.store(dtype, at(z, Affine::of(i)), m.op(ScalarOp::Mul, dtype, a, a));
        p.add(m.build());
        MapBuilder r({{j, {most, rows_var}}}, 0, 0);
        const int b = r.load(dtype, at(x, Affine::of(j, stride)));
        r.store(dtype, at(sum, Affine(0)), r.reduced(ScalarOp::Add, dtype, b));
        p.add(r.build(true));
        const Program program = p.build();
        std::vector<std::int64_t> rows(static_cast<std::size_t>(most + 1));
        std::iota(rows.begin(), rows.end(), 0);
        check(program, rows, 1, {beside_a_guard(dtype, span, true, random)});
        if (HasFatalFailure()) return;
        const std::string source = compile_llvm(program, {.keep_source = true, .cache_dir = {}})->source;
        if (program.target.vector_registers > 2) continue;  // no masked loads: lane by lane
        for (const char* one_by_one : {"masked.gather", "inttoptr"})
          EXPECT_EQ(source.find(one_by_one), std::string::npos) << stride << ' ' << most << source;
      }
    }
  }
}

// What one condition lets a whole row read, where rows end within a vector: nothing behind the last row is touched.
TEST_P(LlvmLaneMoves, ATailUnderOneCondition) {
  std::mt19937 random(6);
  for (const DType dtype : {f32, f64})
    for (const std::int64_t n : {3, 5, 7, 11}) {
      constexpr std::int64_t rows = 6, present = 3;
      ProgramBuilder p(target());
      const int x = p.argument(dtype, present * n), y = p.result(dtype, rows * n), z = p.result(dtype, rows * n);
      const Var r = p.var("r"), i = p.var("i");
      MapBuilder m({{r, {rows, -1}}, {i, {n, -1}}}, 2, 1);
      const int inside =
          m.op(ScalarOp::Lt, DType::Bool, m.index(i32, Affine::of(r)), m.constant<std::int32_t>(present));
      const Affine place = Affine::of(r, n) + Affine::of(i);
      const int value = m.load(dtype, at(x, place), inside);
      m.store(dtype, at(y, place), value);
      m.store(dtype, at(z, place), value, inside);
      p.add(m.build());
      check(p.build(), {1}, 1, {beside_a_guard(dtype, present * n, true, random)});
      if (HasFatalFailure()) return;
    }
}

// Differences of the coordinates of points, each divided by a number of the pair: three of sixteen lanes a row, if rows did not fill vectors.
TEST_P(LlvmLaneMoves, CoordinatesOfPairsFillVectors) {
  for (const DType dtype : {f32, f64}) {
    for (const std::int64_t width : {2, 3, 5, 7}) {
      for (const std::int64_t points : {3, 17, 32}) {
        ProgramBuilder p(target());
        const int x = p.argument(dtype, points * width), r = p.argument(dtype, points * points),
                  y = p.result(dtype, points * points * width);
        const Var i = p.var("i"), j = p.var("j"), c = p.var("c");
        MapBuilder m({{i, {points, -1}}, {j, {points, -1}}, {c, {width, -1}}}, 3, 2);
        const int of_j = m.load(dtype, at(x, Affine::of(j, width) + Affine::of(c))),
                  of_i = m.load(dtype, at(x, Affine::of(i, width) + Affine::of(c))),
                  of_pair = m.load(dtype, at(r, Affine::of(i, points) + Affine::of(j)));
        m.store(dtype, at(y, Affine::of(i, points * width) + Affine::of(j, width) + Affine::of(c)),
                m.op(ScalarOp::Div, dtype, m.op(ScalarOp::Sub, dtype, of_j, of_i), of_pair));
        p.add(m.build());
        check(p.build());
        if (HasFatalFailure()) return;
        if (dtype != f32 || width != 3 || points != 32) continue;
        const std::string source = compile_llvm(p.build(), {.keep_source = true, .cache_dir = {}})->source;
        EXPECT_EQ(source.find("masked.gather"), std::string::npos);
        EXPECT_EQ(source.find("masked.store"), std::string::npos) << "96 numbers a point fill vectors";
      }
    }
  }
}

// What is only turned is gathered number by number whichever way vectors run, so they are full: eight of sixteen lanes a row otherwise.
TEST_P(LlvmLaneMoves, NarrowRowsOfWhatIsTurnedFillVectors) {
  for (const DType dtype : {f32, f64}) {
    for (const std::int64_t n : {2, 3, 4, 8}) {
      constexpr std::int64_t rows = 128;
      ProgramBuilder p(target());
      const int x = p.argument(dtype, rows * n), y = p.result(dtype, rows * n);
      const Var i = p.var("i"), j = p.var("j");
      MapBuilder m({{i, {rows, -1}}, {j, {n, -1}}}, 2, 1);
      const int a = m.load(dtype, at(x, Affine::of(i) + Affine::of(j, rows)));
      m.store(dtype, at(y, Affine::of(i, n) + Affine::of(j)),
              m.op(ScalarOp::Div, dtype, a, m.op(ScalarOp::Fma, dtype, a, a, a)));
      p.add(m.build());
      check(p.build());
      if (HasFatalFailure()) return;
      if (dtype != f32 || n != 8 || GetParam() != std::string("avx512")) continue;
      const std::string source = compile_llvm(p.build(), {.keep_source = true, .cache_dir = {}})->source;
      EXPECT_NE(source.find("store <16 x float>"), std::string::npos);
    }
  }
}

// So do those of a tile, whose number is known when it runs, with one row for all, one number a row and columns that are looked up.
TEST_P(LlvmLaneMoves, NarrowRowsOfATileFillVectors) {
  std::mt19937 random(9);
  for (const std::int64_t columns : {2, 3, 4, 5, 6, 7, 8})
    for (const bool looked_up : {false, true}) {
      constexpr std::int64_t rows = 53;
      ProgramBuilder p(target(), rows);
      const int x = p.argument(f32, rows * columns), shift = p.argument(f32, columns), of_row = p.argument(f32, rows),
                y = p.result(f32, rows * columns);
      std::vector<std::int32_t> reversed;
      for (std::int64_t c = columns - 1; c >= 0; --c) reversed.push_back(static_cast<std::int32_t>(c));
      const int places = p.constant(Array::from(reversed, {columns}));
      const Var r = p.var("r"), c = p.var("c");
      MapBuilder m({{r, {rows, rows_var}}, {c, {columns, -1}}}, 2, 1);
      const Affine here = Affine::of(r, columns) + Affine::of(c);
      const int place = m.load(i32, at(places, Affine::of(c)));
      const int a = looked_up ? m.load(f32, {x, Affine::of(r, columns), {{place, 1}}}) : m.load(f32, at(x, here));
      const int moved = m.op(ScalarOp::Add, f32, a, m.load(f32, at(shift, Affine::of(c))));
      m.store(f32, at(y, here), m.op(ScalarOp::Mul, f32, moved, m.load(f32, at(of_row, Affine::of(r)))));
      p.add(m.build());
      const Program program = p.build();
      check(program, {0, 1, 3, 4, 15, 16, 17, 31, 32, 48, 52, 53}, 1,
            {beside_a_guard(f32, rows * columns, true, random), beside_a_guard(f32, columns, true, random),
             beside_a_guard(f32, rows, true, random)});
      if (HasFatalFailure()) return;
      const std::string source = compile_llvm(program, {.keep_source = true, .cache_dir = {}})->source;
      EXPECT_NE(source.find("store <16 x float>"), std::string::npos) << columns << source;
    }
}

// All columns of a table of a few, read and written, are whole vectors that are taken apart and woven together; nothing is gathered or scattered but
// a tail. In any order, and also where a column is read again after it was written.
TEST_P(LlvmLaneMoves, AllColumnsOfATableAreWholeVectors) {
  std::mt19937 random(11);
  for (const DType dtype : {f32, f64, DType::Bool}) {
    for (const std::int64_t columns : {2, 3, 6, 8}) {
      for (const std::int64_t n : {16, 53}) {
        ProgramBuilder p(target());
        const int x = p.argument(dtype, n * columns), y = p.result(dtype, n * columns),
                  z = p.result(dtype, n * columns);
        const Var i = p.var("i");
        MapBuilder m({{i, {n, -1}}}, 1, 0);
        const auto place = [&](std::int64_t c) { return Affine::of(i, columns) + c; };
        std::vector<int> read;
        for (std::int64_t c = 0; c < columns; ++c) read.push_back(m.load(dtype, at(x, place(columns - 1 - c))));
        for (std::int64_t c = 0; c < columns; ++c) m.store(dtype, at(y, place(c)), read[static_cast<std::size_t>(c)]);
        const int again = m.load(dtype, at(y, place(1)));
        for (std::int64_t c = columns; c-- > 0;)
          m.store(dtype, at(z, place(c)), c == 0 ? again : read[static_cast<std::size_t>((c + 1) % columns)]);
        p.add(m.build());
        const Program program = p.build();
        check(program, {1}, 1, {random_values(dtype, n * columns, random)});
        if (HasFatalFailure()) return;
        const std::string source = compile_llvm(program, {.keep_source = true, .cache_dir = {}})->source;
        if (program.target.name == "avx512" && n % 16 == 0 && dtype != DType::Bool)
          EXPECT_EQ(source.find("masked.scatter"), std::string::npos) << columns << ' ' << n << source;
      }
    }
  }
}

// Where a predicate keeps a load from its array, the vectors that lie pages away from it read elsewhere: there may be no memory.
TEST_P(LlvmLaneMoves, WhatIsFarFromItsArrayIsNotLookedAt) {
  constexpr std::int64_t n = 100, room = 5000;
  for (const bool by_row : {false, true}) {
    ProgramBuilder p(target());
    const int x = p.argument(f32, by_row ? n * 20 : n), y = p.result(f32, (n + room) * (by_row ? 20 : 1));
    const Var r = p.var("r"), i = p.var("i");
    MapBuilder m(by_row ? std::vector<Dim>{{r, {n + room, -1}}, {i, {20, -1}}} : std::vector<Dim>{{i, {n + room, -1}}},
                 by_row ? 2 : 1, by_row ? 1 : 0);
    const int place = m.index(i32, (by_row ? Affine::of(r) : Affine::of(i)) + -room);
    const int inside = m.op(ScalarOp::Ge, DType::Bool, place, m.constant<std::int32_t>(0));
    const Affine whole = by_row ? Affine::of(r, 20) + Affine::of(i) : Affine::of(i);
    const int read = m.load(f32, at(x, whole + -room * (by_row ? 20 : 1)), inside);
    m.store(f32, at(y, whole), m.op(ScalarOp::Select, f32, inside, read, m.constant<float>(2)));
    p.add(m.build());
    const Program program = p.build();
    check(program);
    if (HasFatalFailure()) return;
    const std::string source = compile_llvm(program, {.keep_source = true, .cache_dir = {}})->source;
    EXPECT_NE(source.find("@zeros"), std::string::npos) << source;
  }
}

// The ends of edges are rows of one table, looked up in two ways; or the same rows, left out in two ways.
TEST_P(LlvmLaneMoves, RowsOfOneTableAreLookedUpTwice) {
  constexpr std::int64_t edges = 64, nodes = 40;
  std::mt19937 random(5);
  const auto drawn = [&] {
    std::vector<std::int32_t> all;
    for (std::int64_t e = 0; e < edges; ++e) all.push_back(static_cast<std::int32_t>(random() % nodes));
    return Array::from(all, {edges});
  };
  for (const DType dtype : {f32, f64, i32})
    for (const std::int64_t columns : {2, 3, 4, 5, 8, 11})
      for (const bool looked_up : {false, true}) {
        ProgramBuilder p(target());
        const int x = p.argument(dtype, std::max(edges, nodes) * columns), y = p.result(dtype, edges * columns);
        const int starts = p.constant(drawn()), ends = p.constant(drawn());
        const Var e = p.var("e"), c = p.var("c");
        MapBuilder m({{e, {edges, -1}}, {c, {columns, -1}}}, 2, 0);
        const int start = m.load(i32, at(starts, Affine::of(e))), end = m.load(i32, at(ends, Affine::of(e)));
        const auto read = [&](int place) {
          if (looked_up) return m.load(dtype, at(x, Affine::of(c), {{place, columns}}));
          const int wanted = m.op(ScalarOp::Lt, DType::Bool, place, m.constant<std::int32_t>(nodes / 2));
          return m.load(dtype, at(x, Affine::of(e, columns) + Affine::of(c)), wanted);
        };
        const int from = read(start), to = read(end);
        m.store(dtype, at(y, Affine::of(e, columns) + Affine::of(c)), m.op(ScalarOp::Sub, dtype, to, from));
        p.add(m.build());
        check(p.build());
        if (HasFatalFailure()) return;
      }
}

// Rows of two columns fill vectors with their places crossed; so many dims around them would be worth squares too, which know nothing of that.
TEST_P(LlvmLaneMoves, RowsOfFewColumnsAreLookedUpInsideOtherDims) {
  constexpr std::int64_t around = 17, places = 16, rows = 2;
  std::vector<std::int32_t> looked_up;
  for (std::int64_t i = 0; i < places; ++i) looked_up.push_back(static_cast<std::int32_t>(i * i % 7 % 2));
  for (const DType dtype : {f32, f64, i32})
    for (const std::int64_t columns : {2, 3, 4, 8}) {
      ProgramBuilder p(target());
      const int x = p.argument(dtype, around * around * rows * columns),
                y = p.result(dtype, around * around * places * columns);
      const int index = p.constant(Array::from(looked_up, {places}));
      const Var a = p.var("a"), b = p.var("b"), i = p.var("i"), c = p.var("c");
      MapBuilder m({{a, {around, -1}}, {b, {around, -1}}, {i, {places, -1}}, {c, {columns, -1}}}, 4, 3);
      const int row = m.load(i32, at(index, Affine::of(i)));
      const Affine table = Affine::of(a, around * rows * columns) + Affine::of(b, rows * columns) + Affine::of(c);
      m.store(dtype,
              at(y, Affine::of(a, around * places * columns) + Affine::of(b, places * columns) +
                        Affine::of(i, columns) + Affine::of(c)),
              m.load(dtype, at(x, table, {{row, columns}})));
      p.add(m.build());
      check(p.build());
      if (HasFatalFailure()) return;
    }
}

INSTANTIATE_TEST_SUITE_P(Targets, LlvmLaneMoves, testing::ValuesIn(hotloop::kernel::native_targets),
                         [](const auto& info) { return std::string(info.param); });

}  // namespace
}  // namespace hotloop::kernel
