// How statements are shared out among the threads of a block: which points may run at once, who waits for whom, what each thread computes.
#include <gtest/gtest.h>

#include <functional>

#include "backends/render/cuda_c.h"
#include "backends/render/dot_shape.h"
#include "backends/render/point_order.h"
#include "kernel_builder.h"

namespace hotloop::kernel {
namespace {

using render::order_of;
using render::PointOrder;

// x[f(i, j)] += 1 over i < 4, j < 3, in order.
Map added_in_order(ProgramBuilder& builder, const std::function<Affine(Var, Var)>& index, int indirect_stride = 0) {
  const Var i = builder.var("i"), j = builder.var("j");
  MapBuilder m({{i, {4, -1}}, {j, {3, -1}}}, 2, -1);
  Access access{builder.result(DType::F32, 400), index(i, j), {}};
  if (indirect_stride > 0)
    access.indirect = {{m.load(DType::I32, at(builder.argument(DType::I32, 4), Affine::of(i))), indirect_stride}};
  m.store(DType::F32, access, m.op(ScalarOp::Add, DType::F32, m.load(DType::F32, access), m.constant(1.0f)));
  return m.build();
}

TEST(PointOrder, PointsThatTouchNothingInCommonRunAtOnce) {
  ProgramBuilder builder(cuda_target());
  const auto order = [&](const std::function<Affine(Var, Var)>& index, int stride = 0) {
    return order_of(added_in_order(builder, index, stride));
  };
  const PointOrder all = order([](Var i, Var j) { return Affine::of(i, 3) + Affine::of(j); });
  EXPECT_EQ(all.shared, (std::vector<int>{1, 0}));
  EXPECT_TRUE(all.in_order.empty());
  // A sum along i: columns are each other's strangers, rows are not.
  const PointOrder sum = order([](Var, Var j) { return Affine::of(j); });
  EXPECT_EQ(sum.shared, (std::vector<int>{1}));
  EXPECT_EQ(sum.in_order, (std::vector<int>{0}));
  // Rows that overlap.
  const PointOrder overlap = order([](Var i, Var j) { return Affine::of(i, 2) + Affine::of(j); });
  EXPECT_TRUE(overlap.shared.empty());
  // Rows of a table at places that are computed: the columns of all of them are apart.
  const PointOrder table = order([](Var, Var j) { return Affine::of(j); }, 3);
  EXPECT_EQ(table.shared, (std::vector<int>{1}));
  EXPECT_EQ(table.in_order, (std::vector<int>{0}));
  const PointOrder anywhere = order([](Var, Var j) { return Affine::of(j); }, 2);
  EXPECT_TRUE(anywhere.shared.empty());
}

int count(const std::string& text, const std::string& what) {
  int n = 0;
  for (std::size_t at = text.find(what); at != std::string::npos; at = text.find(what, at + 1)) ++n;
  return n;
}

TEST(BlockWriter, ThreadsMeetOnlyWhereOneReadsWhatAnotherWrote) {
  ProgramBuilder builder(cuda_target());
  const int x = builder.argument(DType::F32, 8), y = builder.result(DType::F32, 8), z = builder.result(DType::F32, 8);
  const auto copied = [&](int from, int to) {
    const Var i = builder.var("i");
    MapBuilder m({{i, {8, -1}}}, 1, 0);
    m.store(DType::F32, at(to, Affine::of(i)), m.load(DType::F32, at(from, Affine::of(i))));
    return m.build();
  };
  const auto body = [&](int second_reads) {
    ProgramBuilder fresh = builder;
    fresh.add(Single{{{copied(x, y)}, {copied(second_reads, z)}}});
    const std::string text = render::render_cuda(fresh.build()).text;
    return text.substr(text.find("HL_KERNEL void"));
  };
  EXPECT_EQ(count(body(x), "hl_sync();"), 1) << "at the end alone";
  EXPECT_EQ(count(body(y), "hl_sync();"), 2);
}

// A thread reads words of four numbers of them.
TEST(BlockWriter, ConstantsAreAlignedForWords) {
  ProgramBuilder builder(cuda_target());
  const int three = builder.constant(Array::zeros(DType::F32, {3}));
  const Var i = builder.var("i");
  MapBuilder m({{i, {3, -1}}}, 1, 0);
  m.store(DType::F32, at(builder.result(DType::F32, 3), Affine::of(i)), m.load(DType::F32, at(three, Affine::of(i))));
  builder.add(Single{{{m.build()}}});
  EXPECT_EQ(count(render::render_cuda(builder.build()).text, "alignas(16) HL_TABLE"), 1);
}

// More points than 32 bits count are counted by 64, from the first factor on.
TEST(BlockWriter, ManyPointsAreCountedByWideIntegers) {
  ProgramBuilder builder(cuda_target());
  const int x = builder.argument(DType::F32, 8), y = builder.result(DType::F32, 8);
  const Var i = builder.var("i"), j = builder.var("j");
  MapBuilder m({{i, {50000, -1}}, {j, {50000, -1}}}, 2, 1);
  m.store(DType::F32, at(y), m.load(DType::F32, at(x)));
  builder.add(Single{{{m.build()}}});
  EXPECT_EQ(count(render::render_cuda(builder.build()).text, "n = (int64_t)1 * 50000 * 50000"), 1);
}

// Few rows of many columns: all threads have a column, and rows share what is read of it.
TEST(BlockWriter, RegisterTilesFillTheBlock) {
  const auto tile = [](std::int64_t m, std::int64_t n) { return render::choose_register_tile(m, n, DType::F32, 256); };
  EXPECT_EQ(tile(1, 128).rows, 1);
  EXPECT_EQ(tile(1, 128).columns, 1);
  EXPECT_GT(tile(4, 256).rows * tile(4, 256).columns, 2);
  EXPECT_GE(tile(256, 64).rows * tile(256, 64).columns, 16) << "enough products for what is read";
  for (const std::int64_t m : {1, 2, 5, 40})
    for (const std::int64_t n : {1, 3, 17, 400}) {
      EXPECT_LE(tile(m, n).rows, m);
      EXPECT_LE(tile(m, n).columns, n);
    }
}

// What sums start from is read in front of a loop only where it knows how many rows there are.
TEST(BlockWriter, RowsThatAreReadInALoopStartInIt) {
  const auto starts = [](bool rows_are_read) {
    ProgramBuilder builder(cuda_target());
    const int a = builder.argument(DType::F32, 32), w = builder.argument(DType::F32, 64),
              bias = builder.argument(DType::F32, 8), rows = builder.argument(DType::I32, 5),
              y = builder.result(DType::F32, 160);
    const Var t = builder.var("t"), m = builder.var("m");
    Dot dot;
    dot.name = "dot";
    dot.m = {4, rows_are_read ? m : -1};
    dot.n = {8};
    dot.segments = {{at(a), at(w), 8, 1, {{{8}, 1, 8}}}};
    dot.c = at(y, Affine::of(t, 32));
    dot.c_m = 8;
    dot.init = at(bias);
    dot.init_n = 1;
    For loop;
    loop.counter = t;
    loop.trip = {5};
    loop.body = {{Let{.var = m, .source = at(rows, Affine::of(t)), .low = 0, .high = 4}}, {dot}};
    builder.add(Single{{{loop}}});
    const Program program = builder.build();
    verify(program);
    return count(render::render_cuda(program).text, "start0[1] = {};");
  };
  EXPECT_EQ(starts(false), 1);
  EXPECT_EQ(starts(true), 0);
}

// What a loop keeps lies behind the panels that each of its iterations writes before it is multiplied.
TEST(BlockWriter, PanelsAreNotWrittenOverWhatTheirLoopKeeps) {
  constexpr std::int64_t m = 40, n = 72, depth = 100, steps = 4;
  ProgramBuilder builder(cuda_target());
  const int a = builder.argument(DType::F32, steps * depth * m), b = builder.argument(DType::F32, steps * depth * n),
            w = builder.argument(DType::F32, n * n), c = builder.shared(DType::F32, m * n),
            y = builder.result(DType::F32, steps * m * n);
  const Var t = builder.var("t");
  Dot outer, product;
  outer.name = "outer";
  product.name = "product";
  outer.m = product.m = {m};
  outer.n = product.n = {n};
  outer.c_m = product.c_m = n;
  outer.segments = {{at(a, Affine::of(t, depth * m)), at(b, Affine::of(t, depth * n)), 1, 1, {{{depth}, m, n}}}};
  outer.c = at(c);
  product.segments = {{at(c), at(w), n, 1, {{{n}, 1, n}}}};
  product.c = at(y, Affine::of(t, m * n));
  For loop;
  loop.counter = t;
  loop.trip = {steps};
  loop.body = {{outer}, {product}};
  builder.add(Single{{{loop}}});
  const std::string text = render::render_cuda(builder.build(), {.worker = {.near_room = 100 << 10}}).text;
  const auto begin = [&](const std::string& pointer) {
    const std::size_t found = text.find(pointer + " = (float*)(near + ");
    return found == std::string::npos ? -1 : std::stoll(text.substr(text.find("near + ", found) + 7));
  };
  const std::int64_t panels = begin("panels"), kept = begin("float* const to");
  ASSERT_GE(panels, 0);
  ASSERT_GE(kept, 0);
  EXPECT_GE(kept, panels + 3 * 8 * (m + n) * 4) << "three panels of eight steps at least";
}

// Where a segment's left factor is near in the step before, another one has room that it would not have beside it.
TEST(BlockWriter, FactorsThatAreStagedHaveRoomOfTheirOwn) {
  constexpr std::int64_t m = 32, few = 8, many = 120, n = 16, steps = 6;
  ProgramBuilder builder(cuda_target());
  const int x = builder.argument(DType::F32, steps * m * few), h = builder.argument(DType::F32, m * many),
            w = builder.argument(DType::F32, few * n), v = builder.argument(DType::F32, many * n),
            y = builder.result(DType::F32, steps * m * n);
  const Var t = builder.var("t");
  Dot dot;
  dot.name = "dot";
  dot.m = {m};
  dot.n = {n};
  dot.segments = {{at(x, Affine::of(t, m * few)), at(w), few, 1, {{{few}, 1, n}}},
                  {at(h), at(v), many, 1, {{{many}, 1, n}}}};
  dot.c = at(y, Affine::of(t, m * n));
  dot.c_m = n;
  For loop;
  loop.counter = t;
  loop.trip = {steps};
  loop.body = {{dot}};
  builder.add(Single{{{loop}}});
  const render::BlockText text = render::render_cuda(builder.build());
  EXPECT_GT(count(text.text, "float next0 = 0;"), 0) << "the first segment's factor comes in the step before";
  EXPECT_GE(text.near_bytes, 4 * m * (few + many)) << "both are near at once";
}

}  // namespace
}  // namespace hotloop::kernel
