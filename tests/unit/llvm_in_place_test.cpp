// Small statements in a loop, which are emitted in place: what one computes stays in registers for the next.
#include <functional>

#include "llvm_backend.h"
#include "schedule/lower_math.h"

namespace hotloop::kernel {
namespace {

class LlvmInPlace : public LlvmBackend {};

// A state of 3 numbers, a layer of n, its inner products with 3 rows and the state again: no tail is a whole vector.
TEST_P(LlvmInPlace, ASmallNetworkStepsOn) {
  for (const DType dtype : {f32, f64}) {
    for (const std::int64_t n : {5, 16, 30, 50}) {
      ProgramBuilder p(target());
      const int w = p.argument(dtype, 3 * n), u = p.argument(dtype, 3 * n), b = p.argument(dtype, n),
                y0 = p.argument(dtype, 3), y = p.result(dtype, 3), norm = p.result(dtype, 1);
      const int state = p.shared(dtype, 3), hidden = p.shared(dtype, n), active = p.shared(dtype, n),
                change = p.shared(dtype, 3);
      const Var t = p.var("t"), i = p.var("i"), k = p.var("k");
      const auto copy = [&](int from, int to) {
        MapBuilder m({{i, {3, -1}}}, 1, 0);
        m.store(dtype, at(to, Affine::of(i)), m.load(dtype, at(from, Affine::of(i))));
        return Stmt{m.build()};
      };
      p.add(std::get<Map>(copy(y0, state).node));
      For loop{t, {3, -1}, false, {}, {}, {}};
      Dot dot;
      dot.name = "layer";
      dot.dtype = dtype;
      dot.n = {n, -1};
      dot.init = at(b);
      dot.init_n = 1;
      dot.c = at(hidden);
      DotSegment segment;
      segment.a = at(state);
      segment.b = at(w);
      segment.b_n = 1;
      segment.k = {{{3, -1}, 1, n}};
      dot.segments = {segment};
      loop.body.push_back({dot});
      MapBuilder act({{i, {n, -1}}}, 1, 0);
      const int h = act.load(dtype, at(hidden, Affine::of(i)));
      act.store(
          dtype, at(active, Affine::of(i)),
          act.op(ScalarOp::Div, dtype, h,
                 act.op(ScalarOp::Max, dtype, act.op(ScalarOp::Abs, dtype, h), act.op(ScalarOp::Mul, dtype, h, h))));
      loop.body.push_back({act.build()});
      MapBuilder products({{i, {3, -1}}, {k, {n, -1}}}, 1, 1);
      const int product = products.op(ScalarOp::Mul, dtype, products.load(dtype, at(active, Affine::of(k))),
                                      products.load(dtype, at(u, Affine::of(i, n) + Affine::of(k))));
      const int sum = products.reduced(ScalarOp::Add, dtype, product);
      const int start = products.load(dtype, at(state, Affine::of(i)));
      products.store(dtype, at(change, Affine::of(i)), products.op(ScalarOp::Add, dtype, start, sum));
      loop.body.push_back({products.build()});
      MapBuilder squares({{i, {3, -1}}}, 0, -1);
      const int x = squares.load(dtype, at(change, Affine::of(i)));
      const int total = squares.reduced(ScalarOp::Add, dtype, squares.op(ScalarOp::Mul, dtype, x, x));
      squares.store(dtype, at(norm), total);
      loop.body.push_back({squares.build()});
      MapBuilder scale({{i, {3, -1}}}, 1, 0);
      scale.store(dtype, at(state, Affine::of(i)),
                  scale.op(ScalarOp::Div, dtype, scale.load(dtype, at(change, Affine::of(i))),
                           scale.op(ScalarOp::Sqrt, dtype, scale.load(dtype, at(norm)))));
      loop.body.push_back({scale.build()});
      loop.body.push_back(copy(state, y));
      p.add(loop);
      check(p.build());
      if (HasFatalFailure()) return;
    }
  }
}

// Steps are written out one by one for as many registers as the machine has: where a vector of the program takes two of them a product of as many
// vectors stands apart, in a loop. Written out it made LLVM keep a step's number in memory for each sum.
TEST_P(LlvmInPlace, AProductStandsApartWhereItsVectorsTakeSeveralRegisters) {
  constexpr std::int64_t n = 64, steps = 24;
  ProgramBuilder p(target());
  const int w = p.argument(f32, steps * n), y0 = p.argument(f32, steps), y = p.result(f32, n);
  const int state = p.shared(f32, steps), sums = p.shared(f32, n);
  const Var t = p.var("t"), i = p.var("i");
  const auto copy = [&](int from, int to, std::int64_t count) {
    MapBuilder m({{i, {count, -1}}}, 1, 0);
    m.store(f32, at(to, Affine::of(i)), m.load(f32, at(from, Affine::of(i))));
    return m.build();
  };
  p.add(copy(y0, state, steps));
  For loop{t, {3, -1}, false, {}, {}, {}};
  Dot dot;
  dot.name = "layer";
  dot.dtype = f32;
  dot.n = {n, -1};
  dot.c = at(sums);
  DotSegment segment;
  segment.a = at(state);
  segment.b = at(w);
  segment.b_n = 1;
  segment.k = {{{steps, -1}, 1, n}};
  dot.segments = {segment};
  loop.body.push_back({dot});
  loop.body.push_back({copy(sums, state, steps)});
  p.add(loop);
  p.add(copy(sums, y, n));
  const Program program = p.build();
  check(program);
  if (!target().has_fma) return;
  const std::string source = compile_llvm(program, {.keep_source = true, .cache_dir = {}})->source;
  std::int64_t products = 0;
  for (std::size_t at = 0; (at = source.find("call <16 x float> @llvm.fma", at)) != std::string::npos; ++at) ++products;
  EXPECT_EQ(products == steps * n / 16, target().vector_registers == 1) << products;
}

// What was written through an index that is only known at run time, through a stride, or in part, is read again from memory.
TEST_P(LlvmInPlace, WhatIsOverwrittenIsForgotten) {
  for (const int where : {0, 2, 6}) {
    ProgramBuilder p(target());
    const int index = p.argument(i32, 1), x = p.argument(f32, 7), y = p.result(f32, 21);
    const int table = p.shared(f32, 7);
    const Var t = p.var("t"), i = p.var("i");
    const auto map = [&](std::int64_t n, const auto& write) {
      MapBuilder m({{i, {n, -1}}}, 1, 0);
      write(m);
      return Stmt{m.build()};
    };
    const auto keep = [&](std::int64_t row) {
      return map(7, [&](MapBuilder& m) {
        m.store(f32, at(y, Affine::of(i) + row * 7), m.load(f32, at(table, Affine::of(i))));
      });
    };
    For loop{t, {2, -1}, false, {}, {}, {}};
    loop.body.push_back(
        map(7, [&](MapBuilder& m) { m.store(f32, at(table, Affine::of(i)), m.load(f32, at(x, Affine::of(i)))); }));
    loop.body.push_back(map(1, [&](MapBuilder& m) {
      const int at_run_time = m.load(i32, at(index));
      Access one = at(table);
      one.indirect = {{at_run_time, 1}};
      m.store(f32, one, m.constant(5.0f));
    }));
    loop.body.push_back(keep(0));
    loop.body.push_back(map(3, [&](MapBuilder& m) { m.store(f32, at(table, Affine::of(i, 2)), m.constant(6.0f)); }));
    loop.body.push_back(keep(1));
    loop.body.push_back(map(2, [&](MapBuilder& m) { m.store(f32, at(table, Affine::of(i) + 3), m.constant(7.0f)); }));
    loop.body.push_back(keep(2));
    p.add(loop);
    check(p.build(), {1}, 1, {Array::from<std::int32_t>({where}, Shape{1})});
    if (HasFatalFailure()) return;
  }
}

// The slopes of a small system, written one by one as a stack of expressions is, and read side by side: no load waits for several stores.
TEST_P(LlvmInPlace, NumbersStoredOneByOneAreReadAsAVector) {
  for (const DType dtype : {f32, f64}) {
    for (const std::int64_t n : {2, 3, 5, 8, 9}) {
      ProgramBuilder p(target());
      const int x0 = p.argument(dtype, n), y = p.result(dtype, 4 * n), state = p.shared(dtype, n),
                slopes = p.shared(dtype, n);
      const Var t = p.var("t"), i = p.var("i");
      const auto side_by_side = [&](const std::function<void(MapBuilder&, const Affine&)>& fill) {
        MapBuilder m({{i, {n, -1}}}, 1, 0);
        fill(m, Affine::of(i));
        return Stmt{m.build()};
      };
      p.add(std::get<Map>(side_by_side([&](MapBuilder& m, const Affine& at_i) {
                            m.store(dtype, at(state, at_i), m.load(dtype, at(x0, at_i)));
                          }).node));
      For loop{t, {4, -1}, false, {}, {}, {}};
      MapBuilder one_by_one({}, 0, -1);
      for (std::int64_t k = 0; k < n; ++k)
        one_by_one.store(dtype, at(slopes, k),
                         one_by_one.op(ScalarOp::Sub, dtype, one_by_one.load(dtype, at(state, (k + 1) % n)),
                                       one_by_one.load(dtype, at(state, k))));
      loop.body.push_back({one_by_one.build()});
      loop.body.push_back(side_by_side([&](MapBuilder& m, const Affine& at_i) {
        const int next = m.op(ScalarOp::Add, dtype, m.load(dtype, at(state, at_i)), m.load(dtype, at(slopes, at_i)));
        m.store(dtype, at(state, at_i), next);
        m.store(dtype, at(y, at_i + Affine::of(t, n)), next);
      }));
      p.add(loop);
      const Program program = p.build();
      check(program);
      if (HasFatalFailure()) return;
      if (dtype != f32 || n != 2 || std::string(GetParam()) != "avx512") continue;
      const std::string source = compile_llvm(program, {.keep_source = true, .cache_dir = {}})->source;
      EXPECT_EQ(source.find("load <2 x float>, ptr", source.find("\nfor:")), std::string::npos) << source;
    }
  }
}

// Rows that lie in registers, read where a predicate holds: of the first lanes, in the first rows, or nowhere. As from memory, the others are 0.
TEST_P(LlvmInPlace, WhatAPredicateLeavesOutIsZero) {
  for (const DType dtype : {f32, f64}) {
    for (const std::int64_t first_lanes : {0, 2, 5}) {
      for (const std::int64_t first_rows : {0, 1, 2}) {
        constexpr std::int64_t n = 5, rows = 2;
        ProgramBuilder p(target());
        const int x = p.argument(dtype, rows * n), y = p.result(dtype, rows * n), kept = p.shared(dtype, rows * n);
        const Var t = p.var("t"), r = p.var("r"), i = p.var("i");
        For loop{t, {2, -1}, false, {}, {}, {}};
        const Affine here = Affine::of(r, n) + Affine::of(i);
        MapBuilder twice({{r, {rows, -1}}, {i, {n, -1}}}, 2, 1);
        const int number = twice.load(dtype, at(x, here));
        twice.store(dtype, at(kept, here), twice.op(ScalarOp::Add, dtype, number, number));
        loop.body.push_back({twice.build()});
        MapBuilder some({{r, {rows, -1}}, {i, {n, -1}}}, 2, 1);
        const auto is_before = [&](const Affine& index, std::int64_t end) {
          return some.op(ScalarOp::Lt, DType::Bool, some.index(i32, index),
                         some.constant(static_cast<std::int32_t>(end)));
        };
        const int wanted = some.op(ScalarOp::And, DType::Bool, is_before(Affine::of(i), first_lanes),
                                   is_before(Affine::of(r), first_rows));
        some.store(dtype, at(y, here), some.load(dtype, at(kept, here), wanted));
        loop.body.push_back({some.build()});
        p.add(loop);
        check(p.build());
        if (HasFatalFailure()) return;
      }
    }
  }
}

// Rows of a few numbers beside a transposed operand fill vectors, whatever the length of a row.
TEST_P(LlvmInPlace, RowsOfAFewNumbersAndATransposedOperand) {
  for (const DType dtype : {f32, f64}) {
    for (const std::int64_t rows : {2, 33, 100}) {
      for (const std::int64_t n : {1, 2, 3, 6, 7, 8}) {
        ProgramBuilder p(target());
        const int x = p.argument(dtype, rows * n), g = p.argument(dtype, rows * n + 3), y = p.result(dtype, rows * n);
        const Var i = p.var("i"), k = p.var("k");
        MapBuilder m({{i, {rows, -1}}, {k, {n, -1}}}, 2, 1);
        const Affine even = Affine::of(i, n) + Affine::of(k);
        const int a = m.load(dtype, at(x, even));
        const int b = m.load(dtype, at(g, Affine::of(i) + Affine::of(k, rows) + 3));
        m.store(dtype, at(y, even), m.op(ScalarOp::Fma, dtype, a, b, a));
        p.add(m.build());
        check(p.build());
        if (HasFatalFailure()) return;
      }
    }
  }
}

// The activation of a hidden layer of a hundred is small: what it reads and writes stays in registers. Reading a float's bits costs nothing.
TEST_P(LlvmInPlace, TheActivationOfAHiddenLayer) {
  ProgramBuilder p(target());
  const int x = p.argument(f32, 100), y = p.result(f32, 100);
  const Var i = p.var("i"), t = p.var("t");
  MapBuilder m({{i, {100, -1}}}, 1, 0);
  m.store(f32, at(y, Affine::of(i)), m.op(ScalarOp::Tanh, f32, m.load(f32, at(x, Affine::of(i)))));
  p.add(Single{{{For{t, {3, -1}, false, {}, {}, {{m.build()}}}}}});
  Program program = p.build();
  lower_math(program);
  check_one(program);
  const std::string source = compile_llvm(program, {.keep_source = true, .cache_dir = {}})->source;
  EXPECT_EQ(source.find("@map_"), std::string::npos) << source;
}

INSTANTIATE_TEST_SUITE_P(Targets, LlvmInPlace, testing::ValuesIn(hotloop::kernel::native_targets),
                         [](const auto& info) { return std::string(info.param); });

}  // namespace
}  // namespace hotloop::kernel
