// Each rule of kernel IR, broken once; and the text form.
#include <gtest/gtest.h>

#include <functional>

#include "hotloop/error.h"
#include "kernel_builder.h"

namespace hotloop::kernel {
namespace {

// y[i] = -x[i] for 8 elements in a Single.
struct Sample {
  Program program;
  Map& map() { return std::get<Map>(std::get<Single>(program.body[0].node).body[0].node); }
};
Sample sample() {
  ProgramBuilder builder(target_named("avx2"), 8);
  const int x = builder.argument(DType::F32, 8), y = builder.result(DType::F32, 8);
  const Var i = builder.var("i");
  MapBuilder map({{i, {8, -1}}}, 1, 0);
  map.store(DType::F32, at(y, Affine::of(i)),
            map.op(ScalarOp::Neg, DType::F32, map.load(DType::F32, at(x, Affine::of(i)))));
  builder.add(Single{{{map.build()}}});
  return {builder.build()};
}

void expect_broken(const std::string& rule, const std::function<void(Sample&)>& damage) {
  Sample s = sample();
  verify(s.program);
  damage(s);
  try {
    verify(s.program);
    ADD_FAILURE() << "must be refused: " << rule;
  } catch (const InternalError& e) {
    EXPECT_NE(std::string(e.what()).find(rule), std::string::npos) << e.what();
  }
}

TEST(KernelVerify, Registers) {
  expect_broken("must be defined before use", [](Sample& s) { s.map().instrs[1].args[0] = 1; });
  expect_broken("a store defines no register", [](Sample& s) {
    s.map().instrs.push_back(s.map().instrs[2]);
    s.map().instrs[3].args[0] = 2;
    s.map().body_end = 4;
  });
  expect_broken("must have the dtype of the store",
                [](Sample& s) { s.map().instrs[1].op = ScalarOp::Cast, s.map().instrs[1].dtype = DType::F64; });
  expect_broken("must agree in dtype", [](Sample& s) { s.map().instrs[1].dtype = DType::F64; });
  expect_broken("has no more operands", [](Sample& s) { s.map().instrs[1].args[1] = 0; });
  expect_broken("a predicate must be bool", [](Sample& s) { s.map().instrs[2].args[1] = 0; });
}

TEST(KernelVerify, SumsOfProducts) {
  const auto reduction = [](ScalarOp op, int x, int y) {
    return [=](Sample& s) {
      Map& map = s.map();
      map.body_end = 2;
      map.num_outer = 0;
      map.instrs.insert(map.instrs.begin() + 2, reduced_instr(op, DType::F32, x, y));
      map.instrs[3].args[0] = 2;
      map.instrs[3].access.index = Affine(0);
    };
  };
  expect_broken("has two factors", reduction(ScalarOp::Add, 0, 1));
  expect_broken("must name a register of the body", reduction(ScalarOp::Fma, 0, -1));
  expect_broken("must name a register of the body", reduction(ScalarOp::Fma, 0, 2));
}

TEST(KernelVerify, Memory) {
  expect_broken("runs over [1, 8] of 8 elements", [](Sample& s) { s.map().instrs[0].access.index.constant = 1; });
  expect_broken("runs over [-7, 0]", [](Sample& s) { s.map().instrs[0].access.index = Affine::of(1, -1); });
  expect_broken("is read only", [](Sample& s) { s.map().instrs[2].access.buffer = 0; });
  expect_broken("must name a buffer", [](Sample& s) { s.map().instrs[0].access.buffer = 7; });
  expect_broken("must have its dtype", [](Sample& s) { s.map().instrs[0].dtype = DType::I32; });
  expect_broken("must be those of f32[8]", [](Sample& s) { s.program.buffers[0].elements = 9; });
  expect_broken("lie within its arena", [](Sample& s) {
    s.program.buffers[0].space = Space::Shared;
    s.program.shared_bytes = 16;
  });
  expect_broken("multiple of 64",
                [](Sample& s) { s.program.buffers[0].space = Space::Worker, s.program.buffers[0].offset = 4; });
  expect_broken("result 0 must be written", [](Sample& s) { s.map().instrs.pop_back(), s.map().body_end = 2; });
}

TEST(KernelVerify, VariablesAndStructure) {
  expect_broken("must be defined before use and in scope", [](Sample& s) {
    s.map().instrs[0].access.index = Affine::of(0) + Affine::of(2);
    s.program.vars.push_back("late");
  });
  expect_broken("already in scope", [](Sample& s) { s.map().dims[0].var = rows_var; });
  expect_broken("has no name", [](Sample& s) { s.map().dims[0].var = 9; });
  expect_broken("without reduced dims", [](Sample& s) { s.map().body_end = 2; });
  expect_broken("vector_dim must be", [](Sample& s) { s.map().vector_dim = 1; });
  expect_broken("is split", [](Sample& s) { s.map().split = true; });
  expect_broken("all workers would write",
                [](Sample& s) { s.program.body = Block(std::get<Single>(s.program.body[0].node).body); });
  expect_broken("a Single must not stand in", [](Sample& s) { s.program.body = {{Single{s.program.body}}}; });
  expect_broken("a Barrier must not stand in",
                [](Sample& s) { std::get<Single>(s.program.body[0].node).body.push_back({Barrier{}}); });
  expect_broken("points of a vector must not store at one place",
                [](Sample& s) { s.map().instrs[2].access.index = 3; });
  expect_broken("an extent lies between 0 and its bound, its variable in [0, 8] with 4", [](Sample& s) {
    s.map().dims[0].extent = {4, rows_var};
  });
  expect_broken("must be defined before use", [](Sample& s) {  // an extent by another dim of the same Map
    s.program.vars.emplace_back("j");
    s.map().dims.push_back({static_cast<Var>(s.program.vars.size() - 1), {8, s.map().dims[0].var}});
    s.map().num_outer = 2;
  });
  expect_broken("must not use registers of the body", [](Sample& s) {
    s.map().num_outer = 0;
    s.map().body_end = 1;
    s.map().instrs[2].access.index = 0;
  });
  expect_broken("a Grid must not stand in", [](Sample& s) {
    Grid grid;
    s.program.vars.insert(s.program.vars.end(), {"block", "row0", "rows"});
    grid.block = 2, grid.row0 = 3, grid.rows = 4, grid.total = {8, -1}, grid.tile_rows = 8;
    std::get<Single>(s.program.body[0].node).body.push_back({grid});
  });
}

// Rows of a short last tile stay within the buffer, which intervals of row0 and row alone would not show.
TEST(KernelVerify, KnowsTheLastTile) {
  for (const std::int64_t shift : {0, 1}) {
    ProgramBuilder builder(target_named("avx2"), 10);
    const int y = builder.result(DType::F32, 10);
    const Var block = builder.var("block"), row0 = builder.var("row0"), rows = builder.var("rows"),
              r = builder.var("r");
    Grid grid;
    grid.block = block, grid.row0 = row0, grid.rows = rows, grid.total = {10, rows_var}, grid.tile_rows = 4,
    grid.num_blocks = 3;
    MapBuilder map({{r, {4, rows}}}, 1, 0);
    map.store(DType::F32, at(y, Affine::of(row0) + Affine::of(r) + shift), map.constant(1.0f));
    grid.body.push_back({map.build()});
    builder.add(grid);
    if (shift == 0)
      EXPECT_NO_THROW(verify(builder.build()));
    else
      EXPECT_THROW(verify(builder.build()), InternalError);
  }
}

// So do those of a short last part of the last tile, or of one without rows, of which there are as many as the tile has left.
TEST(KernelVerify, KnowsTheLastPartOfATile) {
  const auto program = [](std::int64_t shift, bool of_dot) {
    ProgramBuilder builder(target_named("avx2"), 10);
    const int x = builder.argument(DType::F32, 10), y = builder.result(DType::F32, of_dot ? 3 : 10);
    Grid grid;
    grid.block = builder.var("block"), grid.row0 = builder.var("row0"), grid.rows = builder.var("rows");
    grid.total = {10, rows_var}, grid.tile_rows = 6, grid.num_blocks = 2;
    For parts;
    const Var part = parts.counter = builder.var("part"), rows = builder.var("part_rows"), r = builder.var("r");
    parts.trip = {3, -1};
    parts.body.push_back({Let{rows, {}, DType::I64, 0, 2, Affine::of(grid.rows) + Affine::of(part, -2)}});
    const Affine first = Affine::of(grid.row0) + Affine::of(part, 2) + shift;
    if (of_dot) {
      Dot dot;
      dot.m = dot.n = {1, -1};
      dot.segments = {{.a = at(x, first), .b = at(x, first), .k = {{{2, rows}, 1, 1}}}};
      dot.c = at(y, Affine::of(grid.block));
      parts.body.push_back({dot});
    } else {
      MapBuilder map({{r, {2, rows}}}, 1, 0);
      map.store(DType::F32, at(y, first + Affine::of(r)), map.load(DType::F32, at(x, first + Affine::of(r))));
      parts.body.push_back({map.build()});
    }
    grid.body.push_back({parts});
    builder.add(grid);
    return builder.build();
  };
  for (const bool of_dot : {false, true}) {
    EXPECT_NO_THROW(verify(program(0, of_dot)));
    try {
      verify(program(1, of_dot));
      ADD_FAILURE() << "an element behind the last is read";
    } catch (const InternalError& e) {
      EXPECT_NE(std::string(e.what()).find("[1, 10] of 10"), std::string::npos) << e.what();
    }
  }
}

// Blocks of a grid run side by side: what they write must be their own.
TEST(KernelVerify, BlocksOfAGridWriteElementsOfTheirOwn) {
  for (const bool own : {true, false}) {
    ProgramBuilder builder(target_named("avx2"), 10);
    const int y = builder.result(DType::F32, 3);
    Grid grid;
    grid.block = builder.var("block"), grid.row0 = builder.var("row0"), grid.rows = builder.var("rows");
    grid.total = {10, rows_var}, grid.tile_rows = 4, grid.num_blocks = 3;
    MapBuilder map({}, 0, -1);
    map.store(DType::F32, at(y, own ? Affine::of(grid.block) : Affine(0)), map.constant(1.0f));
    grid.body.push_back({map.build()});
    builder.add(grid);
    if (own)
      EXPECT_NO_THROW(verify(builder.build()));
    else
      EXPECT_THROW(verify(builder.build()), InternalError);
  }
}

TEST(KernelPrint, IsDeterministicAndShowsWhatMatters) {
  Sample s = sample();
  EXPECT_EQ(print(s.program), R"(program by_hand
target avx2 dot 6x1 fma l1 32768 (49152 there, 64 a cycle) l2 1048576 (1048576 there)
rows <= 8, shared 0 bytes, worker 0 bytes
argument 0: f32[8]
result 0: f32[8]
buffer arg0#0: f32 x 8 argument 0
buffer result1#1: f32 x 8 result 0
vars rows.0 i.1
  single
    map map (vector i.1 < 8)
      %0 = load f32 arg0#0[i.1]
      %1 = neg f32 %0
      store f32 result1#1[i.1] = %1
)");
  const std::string text = print(s.program);
  s.map().instrs[1].op = ScalarOp::Abs;
  EXPECT_NE(print(s.program), text);
  ProgramBuilder constants(target_named("avx2"));
  std::vector<float> data(100, 1.0f);
  constants.constant(Array::from(data, {100}));
  const std::string before = print(constants.build());
  ProgramBuilder changed(target_named("avx2"));
  data[99] = 2;
  changed.constant(Array::from(data, {100}));
  EXPECT_NE(print(changed.build()), before) << "a large literal counts with all of its bits";
}

}  // namespace
}  // namespace hotloop::kernel
