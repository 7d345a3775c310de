// Stencils put together at random: neighbours by rolling, by padding and by borders of their own, along any axis, of values that steps of a loop hand on to one
// another, alone and in a batch. What is compiled gives the oracle's bits on every target, and neither reads nor writes beyond its memory; so do its kernel
// statements, cut at the edges or not.
#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <utility>
#include <vector>

#include "array_writer.h"
#include "arrays.h"
#include "compiled.h"
#include "guard_pages.h"
#include "hotloop/jit.h"
#include "hotloop/transforms.h"
#include "ir/op_def.h"
#include "kernel_reference.h"
#include "passes/pipeline.h"
#include "schedule/schedule.h"
#include "seeds.h"

namespace hotloop::testing {
namespace {

using Values = std::span<const Value>;

class RandomStencil : public ArrayWriter {
 public:
  // With `more`, some are so large that workers share them out, and steps have places and loops of their own.
  RandomStencil(std::uint64_t seed, DType dtype, bool more)
      : ArrayWriter(seed, dtype, sizes(more), more ? 100000 : 12000), more_(more) {}

  Shape any_shape() { return shape(1 + pick(3)); }

  // Two arrays of one shape, and a weight of each point.
  std::vector<Value> operator()(Values in) {
    const Value weight = in[2];
    const auto step = [&](Values carry) {
      std::vector<Value> known(carry.begin(), carry.end());
      Value sum = one_of(known);
      for (int i = 0, n = 1 + pick(5); i < n; ++i) {
        const Value term = neighbour(one_of(known), 2);
        sum = chance(3) ? sum - term : chance(3) ? sum + term * weight : sum + term;
        if (chance(4)) known.push_back(sum);
      }
      if (more_ && chance(3)) sum = written_somewhere(sum, one_of(known));
      if (more_ && is_float(sum.dtype()) && chance(3)) sum = sum * by_a_loop(sum);
      return settled(sum);
    };
    if (chance(3)) return {step(in.first(2)), step(in.first(2))};
    ScanOptions options;
    options.length = 1 + pick(11);
    options.reverse = chance(2);
    const int kind = pick(4);
    const auto [last, ys] = scan(
        [&](Values carry, Values) {
          const Value next = step(carry);
          std::vector<Value> carries{next, carry[0]};  // as a leapfrog does
          if (kind == 1) carries = {carry[1], next};
          if (kind == 2) carries = {next, settled(carry[1] + next)};
          if (kind == 3) carries = {carry[1], carry[0]};
          return std::pair(carries, std::vector<Value>{next});
        },
        in.first(2), {}, options);
    return {last[0], last[1], ys[0]};
  }

 private:
  static Extents sizes(bool more) {
    Extents some{1, 2, 3, 16, 17, 33, 48, 64, 70, 100};
    if (more) some.insert(some.end(), {150, 300, 700});
    return some;
  }
  // Small whole numbers stay exact, and stay small.
  Value settled(Value v) {
    if (v.dtype() == DType::I32) return bit_and(v, like(v, 1023));
    return v * 0.25;
  }
  Value filled(Value v, int axis, std::int64_t n) {
    Shape s = v.shape();
    s[axis] = n;
    return broadcast_to(like(v, pick(3)), s);
  }
  Value first_of(Value v) { return reshape(slice(v, zeros(v), Extents(static_cast<std::size_t>(v.rank()), 1)), {}); }
  // Most of v, in another one, at a place that only the numbers tell.
  Value written_somewhere(Value v, Value into) {
    const int axis = pick(v.rank());
    const std::int64_t n = v.shape()[axis];
    std::vector<Value> starts(static_cast<std::size_t>(v.rank()), constant(0, DType::I32));
    starts[static_cast<std::size_t>(axis)] = cast(first_of(into), DType::I32);
    return dynamic_update(into, cut(v, axis, 0, n - n / 4, 1), starts);
  }
  // The slope of a loop that ends by itself, which has as many steps backwards as it took.
  Value by_a_loop(Value v) {
    const Function grown = [](Values in) {
      const Value by = 1.5 + square(in[0]) * 0.001, one = like(by, 1);
      return while_loop([](Values x) { return less(x[0], 10.0); }, [&](Values x) { return std::vector{x[0] * by}; },
                        {&one, 1}, 6);
    };
    const Value at = first_of(v);
    return minimum(grad(grown, {0})({&at, 1})[0], like(at, 2));
  }
  // v moved by so many places along an axis, with what comes in behind.
  Value neighbour(Value v, int depth) {
    const int axis = pick(v.rank());
    const std::int64_t n = v.shape()[axis];
    if (n < 2) return v;
    const std::int64_t by = 1 + pick(std::min<std::int64_t>(n - 1, chance(4) ? n : 3));
    const bool up = chance(2);
    if (depth > 0 && chance(3)) v = neighbour(v, depth - 1);
    if (chance(8)) v = v * like(v, 3);
    const Value inside = up ? cut(v, axis, 0, n - by, 1) : cut(v, axis, by, n - by, 1);
    Value outside;
    switch (pick(5)) {
      case 0:
      case 1: outside = up ? cut(v, axis, n - by, by, 1) : cut(v, axis, 0, by, 1); break;  // round
      case 2: outside = filled(v, axis, by); break;
      case 3: outside = cut(v, axis, pick(n - by + 1), by, 1) * like(v, 2); break;  // computed
      default: {
        std::vector<std::int64_t> low = zeros(v), high = low, interior = low;
        (up ? low : high)[static_cast<std::size_t>(axis)] = by;
        return pad(inside, like(v, pick(3)), low, high, interior);
      }
    }
    return up ? concat({outside, inside}, axis) : concat({inside, outside}, axis);
  }

  bool more_;
};

struct DrawnStencil {
  explicit DrawnStencil(std::uint64_t s) : seed(s * 0x9e3779b97f4a7c15u), rng(seed) {
    constexpr DType dtypes[] = {DType::F32, DType::F32, DType::F64, DType::I32};
    dtype = dtypes[rng() % 4];
    rows = rng() % 3 == 0 ? 2 + static_cast<std::int64_t>(rng() % 20) : 0;
    more = (seed >> 63) != 0;
    const Shape shape = RandomStencil(rng(), dtype, more).any_shape();
    for (int i = 0; i < 3; ++i) {
      Array a(dtype, rows > 0 && i < 2 ? shape.with_inserted(0, rows) : shape);
      for (std::int64_t k = 0; k < a.size(); ++k) a.set(k, static_cast<double>(rng() % 64));
      arrays.push_back(a);
    }
  }
  std::shared_ptr<Graph> graph() const {
    const Function one = [this](Values in) { return RandomStencil(seed, dtype, more)(in); };
    std::vector<ValueType> types;
    for (const Array& a : arrays) types.push_back(a.type());
    return trace(rows > 0 ? vmap(one, {0, 0, -1}) : one, types);
  }
  std::uint64_t seed;
  std::mt19937_64 rng;
  DType dtype = DType::F32;
  bool more = false;
  std::int64_t rows = 0;
  std::vector<Array> arrays;
};

// check(seed, the program's inputs, its graph, the oracle's results)
template <class Check> void for_stencils(Check check) {
  for_seeds(
      [&](std::uint64_t seed) {
        SCOPED_TRACE("HOTLOOP_SEED=" + std::to_string(seed));
        const DrawnStencil it(seed);
        const auto graph = it.graph();
        check(seed, it.arrays, graph, ir::evaluate(*graph, it.arrays));
      },
      60,
      {
          388,   // turns of a loop set the same variable
          1015,  // gcc 12 mixed up numbers that lie side by side and are each read under a condition
          3165,  // no point asks for any piece of a concatenation within another one
      });
}

using Arrays = std::vector<Array>;
using SharedGraph = std::shared_ptr<const Graph>;

TEST(RandomStencils, HaveTheOraclesBits) {
  for_stencils([](std::uint64_t seed, const Arrays& inputs, const SharedGraph& graph, const Arrays& expected) {
    for (const Compiled& compiled : all_compiled()) {
      CompileOptions options = compiled.options();
      options.threads = 1 + static_cast<int>(seed % 2);
      const Arrays got = compile(graph, options)(inputs);
      for (std::size_t r = 0; r < expected.size(); ++r)
        EXPECT_TRUE(same_bits(got[r], expected[r])) << compiled.backend << " " << compiled.target << " result " << r;
      if (compiled.backend == "llvm") expect_within_guards(*graph, inputs, options, seed % 2 == 0, got);
    }
  });
}

// Of every target, also of those that this machine does not run.
TEST(RandomStencils, AreStatementsWithTheOraclesBits) {
  for_stencils([](std::uint64_t seed, const Arrays& inputs, const SharedGraph& graph, const Arrays& expected) {
    for (const char* target : kernel::native_targets) {
      ScheduleOptions options;
      options.target = kernel::target_named(target);
      options.num_workers = 1 + static_cast<int>(seed % 2);
      const kernel::Program program = schedule(*passes::optimize(*graph, {}), options);
      kernel::verify(program);
      Arrays got;
      for (const Array& a : expected) got.emplace_back(a.dtype(), a.shape());
      kernel::Reference(program, inputs, got, program.max_rows).run();
      for (std::size_t r = 0; r < expected.size(); ++r)
        EXPECT_TRUE(same_bits(got[r], expected[r])) << target << " result " << r << "\n" << kernel::print(program);
    }
  });
}

}  // namespace
}  // namespace hotloop::testing
