// The visitor over what kernel statements touch: every kind of access, in order, seen alike by all who walk.
#include <gtest/gtest.h>

#include <string>

#include "hotloop/error.h"
#include "kernel_builder.h"
#include "schedule/accesses.h"
#include "schedule/donate.h"

namespace hotloop::kernel {
namespace {

constexpr DType f32 = DType::F32;
constexpr std::int64_t n = 20;

// "r3 w5[1x20]": in order, with strides; "|" for each block inside.
template <class S> std::string seen(const S& statement) {
  std::string text;
  for_each_part(
      statement,
      [&](const Use& use) {
        text += (use.writes ? " w" : " r") + std::to_string(use.access->buffer);
        for (const auto& stride : use.strides)
          text += "[" + std::to_string(*stride.elements) + "x" + std::to_string(stride.extent.bound) + "]";
        if (use.panels) text += "[panels " + std::to_string(*use.panels) + "]";
        if (use.predicate >= 0) text += "?" + std::to_string(use.predicate);
      },
      [&](const Block& inside) { text += " |" + std::to_string(inside.size()); });
  return text;
}

TEST(Accesses, OfEachKindOfStatement) {
  MapBuilder m({{1, {n, -1}}}, 1, 0);
  const int mask = m.load(DType::Bool, at(7));
  m.store(f32, at(2, Affine::of(1)), m.load(f32, at(3, Affine::of(1)), mask), mask);
  m.store(f32, at(4), m.load(f32, at(5)));
  EXPECT_EQ(seen(m.build()), " r7 r3?0 r5 w2?0 w4") << "reads before writes";

  Dot dot;
  dot.m = {3, -1};
  dot.n = {n, -1};
  dot.segments.push_back({at(0), at(1), 5, 1, {{{5, -1}, 1, n}}});
  dot.segments.push_back({at(2), at(3), 4, 0, {{{4, -1}, 1, 0}}, 64});
  dot.init = at(4);
  dot.init_n = 1;
  dot.c = at(5);
  dot.c_m = n;
  EXPECT_EQ(seen(dot), " r0[5x3][1x5] r1[1x20][20x5] r2[4x3][1x4] r3[panels 128] r4[0x3][1x20] w5[20x3][1x20]");

  EXPECT_EQ(seen(Pack{at(1), n, 1, 5, n, 64, 2, f32}), " r1[20x5][1x20] w2[panels 160]");
  EXPECT_EQ(seen(Let{3, at(6), DType::I32, 0, 9}), " r6");
  EXPECT_EQ(seen(Let{3, {}, DType::I64, 0, 9, Affine::of(2) + 1}), "");
  For loop;
  loop.test.push_back({m.build()});
  loop.stop = at(8);
  loop.body = {{dot}, {dot}};
  EXPECT_EQ(seen(loop), " |1 r8 |2") << "in the order in which they run";
  EXPECT_EQ(seen(Stmt{loop}), seen(loop));
  Grid grid;
  grid.prologue.push_back({loop});
  EXPECT_EQ(seen(grid), " |1 |0");
  EXPECT_EQ(seen(Single{{{loop}, {grid}}}), " |2");
  Sections all;
  all.sections.resize(3);
  EXPECT_EQ(seen(all), " |0 |0 |0");
  EXPECT_EQ(seen(Barrier{}), "");
}

TEST(Accesses, OfAllStatementsInside) {
  For loop;
  loop.stop = at(0);
  loop.body = {{Pack{at(1), n, 1, 5, n, 64, 2, f32}}};
  Sections all;
  all.sections.resize(1);
  all.sections[0].body.push_back({loop});
  Grid grid;
  grid.prologue.push_back({Let{3, at(4), DType::I32, 0, 9}});
  Block block{{all}, {grid}};
  int statements = 0;
  for_each_statement(block, [&](auto& s) {
    ++statements;
    for_each_access(s, [](const MutableUse& use) {
      use.access->buffer += 10;
      for (const auto& stride : use.strides) *stride.elements *= 2;
    });
  });
  EXPECT_EQ(statements, 5);
  const auto& moved = std::get<For>(std::get<Sections>(block[0].node).sections[0].body[0].node);
  EXPECT_EQ(seen(moved), " |0 r10 |1");
  EXPECT_EQ(seen(moved.body[0]), " r11[40x5][2x20] w12[panels 160]") << "a Pack's target as well";
  EXPECT_EQ(seen(std::get<Grid>(block[1].node).prologue[0]), " r14");
}

// What another worker reads in a section counts like anything else.
TEST(Accesses, InSectionsKeepAnArgument) {
  for (const bool read_by_another : {false, true}) {
    ProgramBuilder p(target_named("portable"));
    const int x = p.argument(f32, n), y = p.argument(f32, n), out = p.result(f32, n), other = p.result(f32, n);
    Sections all;
    all.sections.resize(2);
    MapBuilder m({{p.var("i"), {n, -1}}}, 1, 0);
    const Affine i = Affine::of(m.build().dims[0].var);
    m.store(f32, at(out, i), m.op(ScalarOp::Neg, f32, m.load(f32, at(x, i))));
    all.sections[0].body.push_back({m.build()});
    MapBuilder o({{p.var("j"), {n, -1}}}, 1, 0);
    const Affine j = Affine::of(o.build().dims[0].var);
    o.store(f32, at(other, j), o.load(f32, at(read_by_another ? x : y, j * -1 + Affine(n - 1))));
    all.sections[1].body.push_back({o.build()});
    p.add(all);
    Program program = p.build();
    const int donated[] = {0};
    take_over_arguments(program, donated, [](int, int result) { return result == 0; });
    EXPECT_EQ(program.in_place[0], read_by_another ? -1 : 0);
    EXPECT_NO_THROW(verify(program));
  }
}

}  // namespace
}  // namespace hotloop::kernel
