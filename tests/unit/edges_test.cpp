// Neighbours of a stencil are read where they lie, not copied first, and a Map that asks where a point is goes over its inner points without asking.
#include "schedule/edges.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "hotloop/ops.h"
#include "kernel_builder.h"
#include "kernel_reference.h"
#include "passes/pipeline.h"
#include "schedule/accesses.h"
#include "schedule/schedule.h"

namespace hotloop {
namespace {

using kernel::Affine;
using kernel::Instr;
using kernel::Map;
using Values = std::span<const Value>;

Value rolled(Value v, int axis, std::int64_t by) {
  const std::int64_t n = v.shape()[axis], cut = by > 0 ? n - by : -by;
  return concat({narrow(v, axis, cut, n - cut), narrow(v, axis, 0, cut)}, axis);
}

std::vector<Value> laplacian(Values in) {
  const Value u = in[0];
  return {rolled(u, 0, 1) + rolled(u, 0, -1) + rolled(u, 1, 1) + rolled(u, 1, -1) - 4.0 * u};
}

kernel::Program scheduled(const TracedFunction& f, const std::vector<ValueType>& types, const std::string& target,
                          int num_workers = 1) {
  ScheduleOptions options;
  options.num_workers = num_workers;
  options.target = kernel::target_named(target);
  return schedule(*passes::optimize(*trace(f, types), {}), options);
}

std::vector<Map> maps_of(const kernel::Program& program) {
  std::vector<Map> maps;
  kernel::for_each_statement(program.body, [&](const auto& statement) {
    if constexpr (std::is_same_v<std::decay_t<decltype(statement)>, Map>) maps.push_back(statement);
  });
  return maps;
}

bool asks(const Map& map) {
  return std::ranges::any_of(map.instrs, [](const Instr& in) { return in.kind == Instr::Kind::Index; });
}

double points(const Map& map) {
  double points = 1;
  for (const kernel::Dim& dim : map.dims) points *= static_cast<double>(dim.extent.bound);
  return points;
}

TEST(Edges, RolledNeighboursAreReadWhereTheyLie) {
  for (const char* target : {"avx512", "avx2"}) {
    const kernel::Program program = scheduled(laplacian, {{DType::F32, {64, 64}}}, target);
    SCOPED_TRACE(kernel::print(program));
    double all = 0, unasked = 0;
    for (const Map& map : maps_of(program)) {
      all += points(map);
      if (!asks(map)) unasked += points(map);
    }
    EXPECT_EQ(all, 64 * 64);      // no copy
    EXPECT_EQ(unasked, 64 * 32);  // all but a vector at either end of a row
    for (const kernel::Buffer& buffer : program.buffers) EXPECT_NE(buffer.name, "concat");
  }
}

TEST(Edges, PaddedNeighboursAreNotAskedForInside) {
  const auto f = [](Values in) {
    const Value padded = pad(in[0], constant(0, DType::F32), {1, 1}, {1, 1}, {0, 0});
    return std::vector{slice(padded, {0, 1}, {100, 101}) + slice(padded, {2, 1}, {102, 101}) +
                       slice(padded, {1, 0}, {101, 100}) + slice(padded, {1, 2}, {101, 102})};
  };
  const kernel::Program program = scheduled(f, {{DType::F32, {100, 100}}}, "avx512");
  SCOPED_TRACE(kernel::print(program));
  double unasked = 0;
  for (const Map& map : maps_of(program))
    if (!asks(map)) unasked += points(map);
  EXPECT_EQ(unasked, 100 * 80);  // of 16 columns to begin with, and 4 at the end
}

// Where loads have no masks, and where a product reads the whole, it lies in memory.
TEST(Edges, WhatIsReadAsAWholeIsCopied) {
  const auto is_copied = [](const kernel::Program& program) {
    return std::ranges::any_of(program.buffers, [](const kernel::Buffer& b) { return b.name == "concat"; });
  };
  EXPECT_TRUE(is_copied(scheduled(laplacian, {{DType::F32, {64, 64}}}, "portable")));
  const auto product = [](Values in) { return std::vector{matmul(rolled(in[0], 1, 1), in[1])}; };
  EXPECT_TRUE(is_copied(scheduled(product, {{DType::F32, {64, 64}}, {DType::F32, {64, 64}}}, "avx512")));
}

// A part is to have a vector of points, and workers that share out rows must not meet where parts do: a place that is known at run time may be any.
TEST(Edges, OtherMapsStayWhole) {
  const auto spread_3d = [](Values in) {
    return std::vector{rolled(in[0], 0, 1) + rolled(in[0], 1, 1) + rolled(in[0], 2, 1) + rolled(in[0], 2, -1)};
  };
  for (const Shape& shape : {Shape{2, 2, 48}, Shape{3, 16}}) {
    const auto f = [&](Values in) {
      return shape.rank() == 3 ? spread_3d(in) : std::vector{rolled(in[0], 0, 1) + rolled(in[0], 1, 1)};
    };
    const kernel::Program program = scheduled(f, {{DType::F32, shape}}, "avx512");
    SCOPED_TRACE(kernel::print(program));
    const std::vector<Map> maps = maps_of(program);
    for (const Map& map : maps) EXPECT_GE(points(map) * 3, 16);
    EXPECT_LE(maps.size(), static_cast<std::size_t>(shape.size() / 16));
  }
  const auto writes = [](Values in) {
    return std::vector{dynamic_update(in[0], rolled(in[1], 1, 1), {in[2], constant(0, DType::I32)})};
  };
  const kernel::Program program =
      scheduled(writes, {{DType::F32, {200, 150}}, {DType::F32, {150, 150}}, {DType::I32, {}}}, "avx512", 2);
  kernel::verify(program);
  EXPECT_EQ(std::ranges::count_if(maps_of(program), asks), 1) << kernel::print(program);
}

// A step that hands the old state on, as a leapfrog does: one statement reads both and writes both.
TEST(Edges, CarriesThatChangePlacesAreCopiedAtOnce) {
  const auto leapfrog = [](Values in) {
    ScanOptions options;
    options.length = 10;
    const auto step = [](Values carry, Values) {
      const Value u = carry[0], next = 2.0 * u - carry[1] + 0.1 * laplacian(carry)[0];
      return std::pair(std::vector{next, u}, std::vector<Value>{});
    };
    return scan(step, in, {}, options).first;
  };
  const std::vector<ValueType> types(2, ValueType{DType::F32, {20, 20}});
  const kernel::Program program = scheduled(leapfrog, types, "avx512");
  SCOPED_TRACE(kernel::print(program));
  for (const kernel::Buffer& buffer : program.buffers) EXPECT_NE(buffer.name, "swap");
}

// Of a Map written by hand: comparisons of either kind, of indices that rise and fall, in what is read, written and chosen.
TEST(Edges, EachPointComputesWhatItDid) {
  constexpr std::int64_t rows = 9, columns = 70;
  for (const std::int64_t edge : {0, 1, 5, 16, 33, 64, 69, 70, 90})
    for (const bool rises : {true, false})
      for (const int vector_dim : {0, 1}) {
        kernel::ProgramBuilder builder(kernel::target_named("avx512"));
        const int x = builder.argument(DType::F32, rows * columns), y = builder.result(DType::F32, rows * columns);
        const kernel::Var i = builder.var("i"), j = builder.var("j");
        const Affine place = Affine::of(i, columns) + Affine::of(j),
                     along = rises ? Affine::of(j) + Affine(2) : Affine::of(j, -1) + Affine(72);
        kernel::MapBuilder map({{i, {rows, -1}}, {j, {columns, -1}}}, 2, vector_dim);
        const int index = map.index(DType::I32, along), bound = map.constant(static_cast<std::int32_t>(edge)),
                  row = map.index(DType::I64, Affine::of(i)), third = map.constant(std::int64_t{3});
        const int after = map.op(ir::ScalarOp::Ge, DType::Bool, index, bound),
                  before = map.op(ir::ScalarOp::Lt, DType::Bool, row, third);
        const int both = map.op(ir::ScalarOp::And, DType::Bool, after, before);
        const int read = map.load(DType::F32, kernel::at(x, place), both),
                  whole = map.load(DType::F32, kernel::at(x, place));
        const int sum = map.op(ir::ScalarOp::Add, DType::F32, read, whole);
        map.store(DType::F32, kernel::at(y, place), map.op(ir::ScalarOp::Select, DType::F32, after, sum, read));
        map.store(DType::F32, kernel::at(y, place), whole, before);
        builder.add(kernel::Single{{{map.build()}}});
        const kernel::Program program = builder.build();
        kernel::Program parts = program;
        kernel::cut_at_edges(parts);
        kernel::verify(parts);
        if (vector_dim == 1) EXPECT_GT(maps_of(parts).size(), 1u);  // at row 3 at least
        Array in(DType::F32, {rows * columns});
        for (std::int64_t k = 0; k < in.size(); ++k) in.set(k, static_cast<double>(k + 1));
        std::vector<Array> want{Array(DType::F32, {rows * columns})}, got{Array(DType::F32, {rows * columns})};
        kernel::Reference(program, {in}, want, 1).run();
        kernel::Reference(parts, {in}, got, 1).run();
        for (std::int64_t k = 0; k < in.size(); ++k)
          ASSERT_EQ(got[0].at(k), want[0].at(k)) << k << kernel::print(parts);
      }
}

}  // namespace
}  // namespace hotloop
