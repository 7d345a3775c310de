// profile(): the times of a kernel's statements add up, what it counts is what the program does, and clocks change no result.
#include "hotloop/profile.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <memory>
#include <sstream>
#include <string>
#include <vector>

#include "arrays.h"
#include "hotloop/error.h"
#include "hotloop/hotloop.h"
#include "runtime/executable.h"

namespace hotloop {
namespace {

using testing::normal_array;
using testing::same_bits;
using Arrays = std::vector<Array>;
using Values = std::span<const Value>;

constexpr std::int64_t steps = 20, rows = 8, width = 32;

std::shared_ptr<const Graph> graph_of(const TracedFunction& fn, const Arrays& inputs) {
  std::vector<ValueType> types;
  for (const Array& a : inputs) types.push_back(a.type());
  return trace(fn, types);
}

Array drawn(const Shape& shape, unsigned seed) { return normal_array(shape, DType::F32, seed); }

// h <- tanh(x_t + h W) over all steps, of x (rows, steps, width), W and the first h.
std::vector<Value> recurrence(Values v) {
  const Value x = transpose(v[0], {1, 0, 2});
  const auto body = [&](Values carry, Values xs) {
    const Value h = tanh(xs[0] + matmul(carry[0], v[1]));
    return std::pair{std::vector<Value>{h}, std::vector<Value>{}};
  };
  const std::vector<Value> init = {v[2]}, xs = {x};
  return scan(body, init, xs).first;
}

Arrays recurrence_inputs(std::int64_t num_rows = rows) {
  return {drawn({num_rows, steps, width}, 1), drawn({width, width}, 2), drawn({num_rows, width}, 3)};
}

double sum_of(const Profile& p, double StatementTime::*member) {
  double sum = 0;
  for (const StatementTime& s : p.statements) sum += s.*member;
  return sum;
}

std::string refusal(const std::function<void()>& call) {
  try {
    call();
  } catch (const UserError& e) {
    return e.what();
  }
  return "accepted";
}

// Some processors compute many times more slowly with them, which times alone do not tell.
TEST(Profile, SaysThatDenormalsCameUp) {
#if !defined(__x86_64__)
  GTEST_SKIP() << "no flag tells of them here";
#endif
  const auto f = [](Values in) { return std::vector{in[0] * 1e-10 * in[0]}; };
  const auto profile_of = [&](double number, bool flushes) {
    Array x(DType::F32, {1000});
    for (std::int64_t i = 0; i < x.size(); ++i) x.set(i, number);
    CompileOptions options;
    options.flush_denormals = flushes;
    return profile(compile(graph_of(f, {x}), options), Arrays{x}, 0);
  };
  const Profile met = profile_of(1e-30, false);
  EXPECT_TRUE(met.met_denormals);
  EXPECT_NE(met.str().find("flush_denormals"), std::string::npos) << met.str();
  EXPECT_FALSE(profile_of(1, false).met_denormals);
  EXPECT_FALSE(profile_of(1e-30, true).met_denormals);
  EXPECT_EQ(profile_of(1, false).str().find("denormals"), std::string::npos);
}

TEST(Profile, TellsWhatRanHowOftenAndHowMuchItWas) {
  const Arrays inputs = recurrence_inputs();
  const Profile p = profile(compile(graph_of(recurrence, inputs)), inputs, 0);
  EXPECT_EQ(p.num_calls, 3);
  EXPECT_DOUBLE_EQ(sum_of(p, &StatementTime::flops), 2.0 * steps * rows * width * width);
  const auto product = std::ranges::find_if(p.statements, [](const StatementTime& s) { return s.flops > 0; });
  ASSERT_NE(product, p.statements.end());
  EXPECT_GT(product->runs, 0);
  EXPECT_EQ(std::fmod(product->runs, steps), 0) << product->runs;  // each tile of rows has its own
  EXPECT_EQ(product->elements, 0);
  EXPECT_NE(product->statement.find(" x 32 of 32"), std::string::npos) << product->statement;
  EXPECT_GT(p.without_clocks_us, 0);
}

TEST(Profile, TimesAddUpToTheCallAndTheLongestComesFirst) {
  const Arrays inputs = recurrence_inputs();
  const Profile p = profile(compile(graph_of(recurrence, inputs)), inputs, 0.01);
  EXPECT_GT(p.num_calls, 3);
  EXPECT_NEAR(sum_of(p, &StatementTime::time_us), p.call_us, 1e-9 * p.call_us);
  EXPECT_TRUE(std::ranges::is_sorted(p.statements, std::ranges::greater(), &StatementTime::time_us));
  for (const StatementTime& s : p.statements) EXPECT_GE(s.time_us, 0) << s.statement;
}

// Factors in bfloat16 are multiplied two at a time.
TEST(Profile, CountsEachProductOfAPair) {
  const Arrays inputs = recurrence_inputs();
  CompileOptions options;
  options.dot_precision = "bf16";
  const Profile p = profile(compile(graph_of(recurrence, inputs), options), inputs, 0);
  EXPECT_DOUBLE_EQ(sum_of(p, &StatementTime::flops), 2.0 * steps * rows * width * width);
}

// What counts is how many rows a call brings, not how many it may.
TEST(Profile, CountsTheRowsThatAreThere) {
  const Arrays most = recurrence_inputs(), some = recurrence_inputs(3);
  CompileOptions options;
  options.batch_axes = {0, -1, 0};
  const Executable program = compile(graph_of(recurrence, most), options);
  const Profile p = profile(program, some, 0);
  EXPECT_DOUBLE_EQ(sum_of(p, &StatementTime::flops), 2.0 * steps * 3 * width * width);
}

// Loops inside tiles, gradients, statements that run as one, values held in registers from statement to statement, several
// functions and objects: the kernel with clocks is the same but for these.
TEST(Profile, ClocksChangeNoResult) {
  const auto training_step = [](Values v) {
    const auto loss = [](Values w) { return std::vector<Value>{sum(square(recurrence(w)[0]))}; };
    return value_and_grad(loss, {0, 1, 2})(v);
  };
  const auto halving = [](Values v) {
    return while_loop([](Values c) { return greater(sum(square(c[0])), like(sum(c[0]), 1)); },
                      [](Values c) { return std::vector<Value>{c[0] * 0.5 + sin(c[0]) * 0.01}; }, v.subspan(2, 1), 40);
  };
  const Arrays inputs = recurrence_inputs();
  for (const TracedFunction& fn :
       {TracedFunction(recurrence), TracedFunction(training_step), TracedFunction(halving)}) {
    const Executable program = compile(graph_of(fn, inputs));
    const Arrays expected = program(inputs);
    const runtime::Engine::Clocked clocked = program.impl().engine->clocked();
    EXPECT_EQ(clocked.without->describe(rows).num_workers, 1);
    for (const runtime::Engine* engine : {clocked.with_clocks.get(), clocked.without.get()}) {
      std::vector<void*> in, out;
      Arrays results;
      for (const Array& a : inputs) in.push_back(a.memory().get());
      for (const ValueType& type : program.output_types()) results.emplace_back(type.dtype, type.shape);
      for (Array& a : results) out.push_back(a.raw());
      engine->run(in.data(), out.data(), 1);
      for (std::size_t i = 0; i < results.size(); ++i) EXPECT_TRUE(same_bits(results[i], expected[i])) << i;
    }
  }
}

TEST(Profile, LeavesItsInputsAlone) {
  const auto decay = [](Values v) { return std::vector<Value>{v[0] * 0.5}; };
  const Arrays inputs = {drawn({100}, 4)};
  const Array before = inputs[0].clone();
  CompileOptions options;
  options.donated = {0};
  const Profile p = profile(compile(graph_of(decay, inputs), options), inputs, 0);
  EXPECT_EQ(sum_of(p, &StatementTime::elements), 100);
  EXPECT_TRUE(same_bits(inputs[0], before));
}

TEST(Profile, OfBoundPrograms) {
  const Arrays inputs = recurrence_inputs();
  const Arrays bound = {Array(), inputs[1], Array()}, open = {inputs[0], inputs[2]};
  const Profile p = profile(compile_bound(graph_of(recurrence, inputs), bound), open, 0);
  EXPECT_DOUBLE_EQ(sum_of(p, &StatementTime::flops), 2.0 * steps * rows * width * width);
}

TEST(Profile, IsReadInATerminal) {
  const Arrays inputs = recurrence_inputs();
  const std::string text = profile(compile(graph_of(recurrence, inputs)), inputs, 0).str();
  EXPECT_NE(text.find("without the clocks"), std::string::npos) << text;
  EXPECT_NE(text.find("flop/s"), std::string::npos) << text;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) EXPECT_LE(line.size(), 80u) << line;
}

TEST(Profile, RefusesWhatIsNoKernelOfTheProcessors) {
  const Arrays inputs = recurrence_inputs();
  const std::shared_ptr<const Graph> graph = graph_of(recurrence, inputs);
  const auto with = [&](auto set) {
    CompileOptions options;
    set(options);
    return refusal([&] { profile(compile(graph, options), inputs, 0); });
  };
  EXPECT_EQ(
      with([](CompileOptions& o) { o.backend = "interp"; }),
      "[profile] the program must be one kernel of the llvm backend. Received: backend interp. Try: backend llvm, "
      "dispatch fused.");
  EXPECT_NE(with([](CompileOptions& o) { o.dispatch = "per_op"; }).find("Received: dispatch per_op"),
            std::string::npos);
  const Executable program = compile(graph);
  EXPECT_NE(refusal([&] { profile(program, Arrays{inputs[0]}, 0); }).find("takes 3 arguments"), std::string::npos);
  EXPECT_NE(refusal([&] { profile(program, inputs, -1); }).find("seconds must not be negative"), std::string::npos);
}

}  // namespace
}  // namespace hotloop
