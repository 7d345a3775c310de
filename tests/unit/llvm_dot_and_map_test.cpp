// A Dot of one row and the Map after it, which follows block by block of its columns: to the bit what one after the other gives.
#include <string>
#include <vector>

#include "llvm_backend.h"

namespace hotloop::kernel {
namespace {

// What the Map does beside computing from the Dot's columns.
enum class Twist {
  None,
  WritesRow,     // where A lies: the state of the next step
  WritesInit,    // where the sums begin
  WritesB,       // into the first numbers of B
  ReadsShifted,  // columns that are no vectors of a part
  LeavesPart,    // a part of the columns unread
  LastFirst,     // the parts from the last one on
  ReadsAgain,    // the columns, after the Map
  SharesMemory,  // what it writes has the memory of what the Dot reads for the last time
};

struct Case {
  DType dtype = f32;
  std::int64_t parts = 4, points = 64;
  std::int64_t x = 8, h = 64;  // depths of the segments
  std::int64_t panel = 1;      // vectors; 0: not packed
  bool is_long = true;         // enough work in the Map to be worth it
  Twist twist = Twist::None;
};

// Three steps of: sums = init + x U + h W; then points that read one vector of each part, h among them.
Program steps(const Target& target, const Case& c) {
  ProgramBuilder p(target);
  const std::int64_t n = c.parts * c.points;
  const int xs = p.argument(c.dtype, 3 * c.x), start = p.argument(c.dtype, n), first = p.argument(c.dtype, c.h);
  const int out = p.result(c.dtype, 3 * c.points);
  const int h = p.shared(c.dtype, c.h), init = p.shared(c.dtype, n), sums = p.shared(c.dtype, n);
  const Var t = p.var("t"), i = p.var("i"), j = p.var("j"), k = p.var("k");
  Block before;
  const auto copy = [&](int from, int to, Var var, std::int64_t count) {
    MapBuilder map({{var, {count}}}, 1, 0);
    map.store(c.dtype, at(to, Affine::of(var)), map.load(c.dtype, at(from, Affine::of(var))));
    before.push_back({map.build()});
  };
  copy(first, h, j, c.h);
  copy(start, init, k, n);
  Dot dot;
  dot.name = "sums";
  dot.dtype = c.dtype;
  dot.m = {1, -1};
  dot.n = {n, -1};
  int last_b = -1;
  for (const std::int64_t depth : {c.x, c.h}) {
    if (depth == 0) continue;
    const int given = p.argument(c.dtype, depth * n), b = p.shared(c.dtype, depth * n);
    DotSegment segment;
    segment.a = depth == c.x ? at(xs, Affine::of(t, c.x)) : at(h);
    segment.b_n = 1;
    segment.k = {{{depth, -1}, 1, n}};
    if (c.panel > 0) {
      Pack pack{.source = at(given), .k_stride = n, .n_stride = 1, .k = depth, .n = n};
      pack.panel = segment.panel = c.panel * lanes_of(c.dtype);
      pack.target = b;
      pack.dtype = c.dtype;
      before.push_back({pack});
    } else {
      copy(given, b, p.var("m"), depth * n);
    }
    segment.b = at(last_b = b);
    dot.segments.push_back(segment);
  }
  dot.init = at(init);
  dot.init_n = 1;
  dot.c = at(sums);

  MapBuilder map({{i, {c.points}}}, 1, 0);
  int value = -1;
  for (std::int64_t number = 0; number < c.parts - (c.twist == Twist::LeavesPart ? 1 : 0); ++number) {
    const std::int64_t part = c.twist == Twist::LastFirst ? c.parts - 1 - number : number;
    const std::int64_t shift = c.twist == Twist::ReadsShifted && part == 1 ? -1 : 0;
    const int sum = map.load(c.dtype, at(sums, Affine::of(i) + Affine(part * c.points + shift)));
    value = value < 0 ? sum : map.op(ScalarOp::Add, c.dtype, value, sum);
    for (int op = 0; op < (c.is_long ? 40 : 1); ++op)
      value = map.op(op % 2 == 0 ? ScalarOp::Mul : ScalarOp::Max, c.dtype, value, sum);
  }
  const int one = c.dtype == f32 ? map.constant(1.0F) : map.constant(1.0);
  value = map.op(ScalarOp::Min, c.dtype, value, one);
  if (c.points <= c.h) value = map.op(ScalarOp::Add, c.dtype, value, map.load(c.dtype, at(h, Affine::of(i))));
  map.store(c.dtype, at(out, Affine::of(t, c.points) + Affine::of(i)), value);
  if (c.twist == Twist::WritesRow) map.store(c.dtype, at(h, Affine::of(i)), value);
  if (c.twist == Twist::WritesInit) map.store(c.dtype, at(init, Affine::of(i)), value);
  if (c.twist == Twist::WritesB) map.store(c.dtype, at(last_b, Affine::of(i)), value);
  const int beside = c.twist == Twist::SharesMemory ? p.shared(c.dtype, c.points) : -1;
  if (beside >= 0) map.store(c.dtype, at(beside, Affine::of(i)), value);
  For loop{t, {3, -1}, false, {}, {}, {{dot}, {map.build()}}};
  if (c.twist == Twist::SharesMemory) {
    // Each step makes its beginning anew, so that it is read for the last time by the Dot.
    MapBuilder again({{k, {n}}}, 1, 0);
    again.store(c.dtype, at(init, Affine::of(k)), again.load(c.dtype, at(start, Affine::of(k))));
    loop.body.insert(loop.body.begin(), {again.build()});
  }
  if (c.twist == Twist::ReadsAgain) {
    MapBuilder again({{k, {n}}}, 1, 0);
    const int all = p.result(c.dtype, 3 * n);
    again.store(c.dtype, at(all, Affine::of(t, n) + Affine::of(k)), again.load(c.dtype, at(sums, Affine::of(k))));
    loop.body.push_back({again.build()});
  }
  before.push_back({loop});
  p.add(Single{before});
  Program program = p.build();
  if (beside >= 0) {
    // In the middle of what the Dot starts from.
    auto& buffers = program.buffers;
    buffers[static_cast<std::size_t>(beside)].offset =
        buffers[static_cast<std::size_t>(init)].offset + (n - c.points) * static_cast<std::int64_t>(size_of(c.dtype));
  }
  return program;
}

class LlvmDotAndMap : public LlvmBackend {
 protected:
  bool follows_by_blocks(const Program& program) const {
    return compile_llvm(program, {.keep_source = true, .cache_dir = {}})->source.find("_and_map_") != std::string::npos;
  }
  void expect(const Case& c, bool by_blocks) {
    SCOPED_TRACE(std::string(name_of(c.dtype)) + ", " + std::to_string(c.parts) + " parts of " +
                 std::to_string(c.points) + ", panels of " + std::to_string(c.panel));
    const Program program = steps(target(), c);
    verify(program);
    // Too few accumulators there for more than two parts.
    if (std::string(GetParam()) != "portable") EXPECT_EQ(follows_by_blocks(program), by_blocks);
    for (const std::int64_t turn : {0, 1}) check(program, {1}, 1, {}, turn);
  }
};

TEST_P(LlvmDotAndMap, FollowsBlockByBlock) {
  for (const Twist twist : {Twist::None, Twist::WritesRow, Twist::LastFirst, Twist::ReadsAgain}) {
    expect({.twist = twist}, true);
    expect({.x = 0, .twist = twist}, true);
    expect({.parts = 3, .h = 100, .twist = twist}, true);
    expect({.points = 80, .h = 83, .twist = twist}, true);
    expect({.dtype = f64, .points = 48, .h = 50, .twist = twist}, true);
    expect({.dtype = f64, .parts = 2, .points = 64, .h = 70, .twist = twist}, true);
    expect({.panel = 0, .twist = twist}, true);
  }
}

// A tile is then a part of each panel, and leaves most of the first cache's sets alone: only where nothing of B stays there anyway.
TEST_P(LlvmDotAndMap, ReadsPartsOfWiderPanels) {
  for (const std::int64_t panel : {2, 4}) {
    expect({.points = 128, .h = 240, .panel = panel}, true);
    expect({.points = 128, .h = 240, .panel = panel, .twist = Twist::WritesRow}, true);
    expect({.points = 80, .h = 240, .panel = panel}, false);  // five blocks: a part begins within a panel
  }
}

TEST_P(LlvmDotAndMap, LeavesApartWhatMeets) {
  for (const Twist twist :
       {Twist::WritesInit, Twist::WritesB, Twist::ReadsShifted, Twist::LeavesPart, Twist::SharesMemory})
    expect({.twist = twist}, false);
}

TEST_P(LlvmDotAndMap, LeavesApartWhatGainsNothing) {
  expect({.is_long = false}, false);
  expect({.points = 32, .h = 32}, false);  // all of B stays
  expect({.points = 72, .h = 80}, false);  // no whole vectors
}

INSTANTIATE_TEST_SUITE_P(Targets, LlvmDotAndMap, testing::ValuesIn(hotloop::kernel::native_targets),
                         [](const auto& info) { return std::string(info.param); });

}  // namespace
}  // namespace hotloop::kernel
