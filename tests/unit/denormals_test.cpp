// CompileOptions::flush_denormals: numbers below the normal range count as 0, inside of calls alone, on every thread that takes part.
#include <algorithm>
#include <chrono>
#include <cmath>
#include <functional>
#include <limits>
#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "compiled.h"
#include "core/denormals.h"
#include "hotloop/error.h"
#include "hotloop/hotloop.h"
#include "hotloop/ops.h"
#include "hotloop/stream.h"
#include "hotloop/train.h"

namespace hotloop {
namespace {

using testing::Compiled;
using In = std::span<const Value>;

double least_normal(DType dtype) {
  return dtype == DType::F32 ? double{std::numeric_limits<float>::min()} : std::numeric_limits<double>::min();
}
bool is_denormal(double x, DType dtype) { return x != 0 && std::fabs(x) < least_normal(dtype); }
bool is_zero(double x) { return x == 0; }

// The compiled ways and the oracle.
std::vector<Compiled> all_ways() {
  std::vector<Compiled> all = testing::all_compiled();
  all.push_back({"interp", "host"});
  return all;
}

class Denormals : public ::testing::TestWithParam<Compiled> {
 protected:
  CompileOptions options(bool flush, int threads = 1) const {
    CompileOptions options = GetParam().options();
    options.flush_denormals = flush;
    options.threads = threads;
    return options;
  }
  // A CUDA device counts those of f32 as 0 alone.
  std::vector<DType> dtypes() const {
    if (GetParam().backend == "cuda") return {DType::F32};
    return {DType::F32, DType::F64};
  }
};

INSTANTIATE_TEST_SUITE_P(Ways, Denormals, ::testing::ValuesIn(all_ways()),
                         [](const auto& info) { return testing::name_of_case(info.param); });

struct Program {
  std::string name;
  std::function<Value(Value x, double root)> make;
};

// Of x between `root` and twice that, root = sqrt(least normal number) / 8. All numbers are in the normal range but the results, which are not.
const std::vector<Program>& programs() {
  static const std::vector<Program> all = {
      {"product", [](Value x, double root) { return x * root; }},
      {"negative", [](Value x, double root) { return x * -root; }},
      {"quotient", [](Value x, double root) { return x / (1 / root); }},
      {"difference", [](Value x, double root) { return x * (128 * root) - x * (112 * root); }},
      {"dot",
       [](Value x, double root) {
         return matmul(x, transpose(x, {1, 0})) * (root / root);
       }},
      {"decay",
       [](Value x, double root) {
         const auto body = [](In carry, In) { return std::pair{std::vector{carry[0] * 0.5}, std::vector<Value>{}}; };
         const int steps = static_cast<int>(-std::log2(root)) - 2;
         return scan(body, std::vector{x}, {}, {.length = steps}).first[0];
       }},
  };
  return all;
}

double root_of(DType dtype) { return std::sqrt(least_normal(dtype)) / 8; }

Array roots(DType dtype, const Shape& shape) {
  Array x(dtype, shape);
  for (std::int64_t i = 0; i < x.size(); ++i) x.set(i, root_of(dtype) * (1 + static_cast<double>(i % 97) / 97));
  return x;
}

template <class Predicate> std::int64_t count(const Array& a, Predicate predicate) {
  std::int64_t n = 0;
  for (std::int64_t i = 0; i < a.size(); ++i) n += predicate(a.at(i));
  return n;
}

TEST_P(Denormals, ResultsAreZeroOnlyWhereTheOptionIsOn) {
  for (const DType dtype : dtypes())
    for (const Program& p : programs()) {
      const Array x = roots(dtype, {96, 5});
      const auto graph =
          trace([&](In in) { return std::vector{p.make(in[0], root_of(dtype))}; }, std::vector{x.type()});
      for (const int threads : {1, 3}) {
        SCOPED_TRACE(p.name + " of " + std::string(name_of(dtype)) + " on " + std::to_string(threads));
        const Executable flushing = compile(graph, options(true, threads)),
                         other = compile(graph, options(false, threads));
        // In turns: the team's threads serve both.
        for (int turn = 0; turn < 3; ++turn) {
          const Array with = flushing(std::vector{x})[0], without = other(std::vector{x})[0];
          EXPECT_EQ(count(with, is_zero), with.size());
          EXPECT_EQ(count(with, [](double v) { return std::signbit(v); }), p.name == "negative" ? with.size() : 0);
          EXPECT_EQ(count(without, [&](double v) { return is_denormal(v, dtype); }), without.size());
        }
      }
    }
}

TEST_P(Denormals, OperandsAreZeroOnlyWhereTheOptionIsOn) {
  for (const DType dtype : dtypes()) {
    const double large = 0.5 / least_normal(dtype), tiny = least_normal(dtype) / 4;
    const Array x = Array::full(dtype, {64, 3}, tiny), y = Array::full(dtype, {64, 3}, -tiny);
    const auto graph = trace(
        [&](In in) {
          return std::vector{in[0] * large,
                             greater(in[0], in[1]),
                             sqrt(in[0]),
                             log(in[0]),
                             reverse(in[0], {0}),
                             pow(in[0], 0.5 + 0.0 * in[0]),
                             rem(like(in[0], 1.5), in[0])};
        },
        std::vector{x.type(), y.type()});
    const std::vector<Array> with = compile(graph, options(true))(std::vector{x, y});
    const std::vector<Array> without = compile(graph, options(false))(std::vector{x, y});
    EXPECT_EQ(count(with[0], is_zero), x.size());
    EXPECT_EQ(without[0].at(7), 0.125);
    EXPECT_EQ(count(with[1], is_zero), x.size()) << "two zeros are equal";
    EXPECT_EQ(without[1].at(7), 1);
    EXPECT_EQ(count(with[2], is_zero), x.size());
    EXPECT_GT(without[2].at(7), 0);
    EXPECT_EQ(with[3].at(7), -std::numeric_limits<double>::infinity());
    EXPECT_NEAR(without[3].at(7), std::log(tiny), 1e-3);
    EXPECT_EQ(with[4].at(7), x.at(7)) << "what moves numbers keeps them";
    EXPECT_EQ(with[5].at(7), 0);
    EXPECT_NEAR(without[5].at(7) / std::sqrt(tiny), 1, 1e-6);
    EXPECT_TRUE(std::isnan(with[6].at(7))) << "as by any zero";
    EXPECT_EQ(without[6].at(7), 0);
  }
}

// exp and sigmoid leave the normal range by a last product or quotient; others hand small arguments on. What is in the range keeps its bits.
TEST_P(Denormals, FunctionsDifferBelowTheNormalRangeAlone) {
  using Function = Value (*)(Value);
  const std::vector<std::pair<std::string, Function>> functions = {
      {"exp", [](Value v) { return exp(v); }},
      {"sigmoid", [](Value v) { return sigmoid(v); }},
      {"tanh", [](Value v) { return tanh(v); }},
      {"expm1", [](Value v) { return expm1(v); }},
      {"log", [](Value v) { return log(v); }},
      {"log1p", [](Value v) { return log1p(v); }},
      {"sin", [](Value v) { return sin(v); }},
      {"cos", [](Value v) { return cos(v); }},
      {"erf", [](Value v) { return erf(v); }},
      {"sqrt", [](Value v) { return sqrt(v); }},
      {"2^x", [](Value v) { return pow(2.0, v); }},
      {"x^y", [](Value v) { return pow(abs(v), 9.7 + 0.0 * v); }},
      {"rem", [](Value v) { return rem(v, like(v, 0.7)); }},
  };
  for (const DType dtype : dtypes()) {
    const double edge = std::log(least_normal(dtype));
    std::vector<double> samples;
    for (int i = 0; i < 400; ++i) samples.push_back(edge * (1.3 - i / 400.0 * 2.6));
    for (int i = 0; i < 60; ++i) samples.push_back(edge - i * 0.7);  // through the denormals to where all is 0
    for (int i = 0; i < 200; ++i) samples.push_back(std::pow(least_normal(dtype), i / 200.0) * (i % 2 == 0 ? 1 : -1));
    Array x(dtype, {static_cast<std::int64_t>(samples.size())});
    for (std::size_t i = 0; i < samples.size(); ++i) x.set(static_cast<std::int64_t>(i), samples[i]);
    for (const auto& [name, function] : functions) {
      const auto graph = trace([&](In in) { return std::vector{function(in[0])}; }, std::vector{x.type()});
      const Array with = compile(graph, options(true))(std::vector{x})[0];
      const Array without = compile(graph, options(false))(std::vector{x})[0];
      for (std::int64_t i = 0; i < x.size(); ++i) {
        const double wanted = without.at(i), got = with.at(i);
        if (std::fabs(wanted) < 64 * least_normal(dtype) && !is_denormal(wanted, dtype))
          EXPECT_LT(std::fabs(got - wanted), least_normal(dtype)) << name << " of " << x.at(i) << " gave " << got;
        else if (is_denormal(wanted, dtype))
          EXPECT_TRUE(got == 0 || (got == wanted && wanted == x.at(i))) << name << " of " << x.at(i) << " gave " << got;
        else
          EXPECT_TRUE(got == wanted || (std::isnan(got) && std::isnan(wanted)))
              << name << " of " << x.at(i) << ": " << got << " and " << wanted;
      }
    }
  }
}

TEST_P(Denormals, LiteralsAreFoldedAsTheyWouldBeComputed) {
  const auto graph = trace(
      [](In in) {
        const Value tiny =
            constant(Array::full(DType::F32, {4}, 1e-30)) * constant(Array::full(DType::F32, {4}, 1e-10));
        return std::vector{tiny, in[0] + tiny * 1e30};
      },
      std::vector<ValueType>{{DType::F32, {4}}});
  const std::vector<Array> x = {Array::zeros(DType::F32, {4})};
  const std::vector<Array> with = compile(graph, options(true))(x), without = compile(graph, options(false))(x);
  EXPECT_EQ(with[0].at(0), 0);
  EXPECT_EQ(with[1].at(0), 0);
  EXPECT_TRUE(is_denormal(without[0].at(0), DType::F32));
  EXPECT_NEAR(without[1].at(0), 1e-10, 1e-14);
}

TEST_P(Denormals, BoundProgramsAndTheirPreparation) {
  for (const DType dtype : dtypes()) {
    // The square of what is bound is computed when it is bound, and is a denormal.
    const double root = root_of(dtype);
    const auto graph = trace(
        [](In in) {
          return std::vector{in[0] * in[0] * (1 / 8.0), in[0] * in[1]};
        },
        std::vector<ValueType>(2, {dtype, {40}}));
    const std::vector<Array> bound = {Array::full(dtype, {40}, root), Array()}, x = {Array::full(dtype, {40}, root)};
    const std::vector<Array> with = compile_bound(graph, bound, options(true))(x);
    const std::vector<Array> without = compile_bound(graph, bound, options(false))(x);
    for (std::size_t i = 0; i < 2; ++i) {
      // What is bound is prepared by the processor, whatever runs the program.
      EXPECT_EQ(count(with[i], is_zero), 40) << "output " << i;
      EXPECT_EQ(count(without[i], [&](double v) { return is_denormal(v, dtype); }), 40) << "output " << i;
    }
  }
}

std::shared_ptr<const Graph> endless_graph() {
  return trace(
      [](In x) {
        return while_loop([](In v) { return less(sum(v[0]), like(v[0], -1)); },
                          [](In v) { return std::vector<Value>{sin(v[0]) - 1.0}; }, x, 2'000'000'000);
      },
      std::vector<ValueType>{{DType::F32, {16}}});
}

TEST_P(Denormals, TheCallersModeIsWhatItWas) {
  const auto graph =
      trace([](In in) { return std::vector{in[0] * 1e-30}; }, std::vector<ValueType>{{DType::F32, {300}}});
  const Array x = Array::full(DType::F32, {300}, 1e-10);
  // But for the flags of exceptions, which add up where nothing is changed.
  const auto mode = [] { return DenormalsAsZero::control() & ~DenormalsAsZero::Control{0x3f}; };
  for (const int threads : {1, 3}) {
    const Executable run = compile(graph, options(true, threads)),
                     endless = compile(endless_graph(), options(true, threads));
    for (const bool caller_flushes : {false, true}) {
      const DenormalsAsZero callers(caller_flushes);
      const auto before = mode();
      EXPECT_EQ((before & DenormalsAsZero::flushing) == DenormalsAsZero::flushing, caller_flushes);
      run(std::vector{x});
      EXPECT_EQ(mode(), before) << "after a call";
      EXPECT_THROW(run(std::vector{Array::zeros(DType::F64, {300})}), UserError);
      EXPECT_EQ(mode(), before) << "after an error";
      if (GetParam().backend == "interp" || GetParam().backend == "cuda")
        continue;  // ends between calls; on another device
      std::thread canceller([] {
        std::this_thread::sleep_for(std::chrono::milliseconds(20));
        request_cancel();
      });
      EXPECT_THROW(endless(std::vector{Array::full(DType::F32, {16}, -1)}), Cancelled);
      canceller.join();
      clear_cancel();
      EXPECT_EQ(mode(), before) << "after a call that was cancelled";
    }
  }
}

// Compilation folds literals in that mode.
TEST(DenormalsMode, ACompilationLeavesItAsItWas) {
  const auto before = DenormalsAsZero::control();
  const auto graph =
      trace([](In in) { return std::vector{in[0] + constant(Array::full(DType::F32, {4}, 1e-30)) * 1e-12}; },
            std::vector<ValueType>{{DType::F32, {4}}});
  compile(graph, {.flush_denormals = true});
  EXPECT_EQ(DenormalsAsZero::control(), before);
  compile(graph, {.dispatch = "per_op", .flush_denormals = true});
  EXPECT_EQ(DenormalsAsZero::control(), before);
}

TEST(DenormalsMode, IsOfEachKernelOfAProgramRunOpByOp) {
  const auto graph = trace([](In in) { return std::vector{in[0] * in[0] + in[0] * 1e-25}; },
                           std::vector<ValueType>{{DType::F32, {30}}});
  const std::vector<Array> x = {Array::full(DType::F32, {30}, 1e-20)};
  const Array with = compile(graph, {.dispatch = "per_op", .flush_denormals = true})(x)[0];
  const Array without = compile(graph, {.dispatch = "per_op"})(x)[0];
  EXPECT_EQ(count(with, is_zero), 30);
  EXPECT_EQ(count(without, is_zero), 0);
}

TEST(DenormalsMode, IsPartOfTheTextAndTheExplanation) {
  const auto graph = trace([](In in) { return std::vector{in[0] * 2.0}; }, std::vector<ValueType>{{DType::F32, {3}}});
  const Executable with = compile(graph, {.flush_denormals = true}), without = compile(graph);
  EXPECT_NE(with.kernel_text().find("denormals are 0"), std::string::npos);
  EXPECT_EQ(without.kernel_text().find("denormals"), std::string::npos);
  EXPECT_NE(with.explain().find("denormals   count as 0 in arithmetic"), std::string::npos) << with.explain();
  EXPECT_EQ(without.explain().find("denormals"), std::string::npos) << without.explain();
}

// Of themselves programs do so whose loops run backwards, in loops of theirs too, on each backend; others do not.
TEST(DenormalsMode, OfGradientsOfLoopsByItself) {
  const auto decays = [](Value x, bool reverse) {
    const ScanBody body = [](In carry, In) { return std::pair(std::vector{carry[0] * 0.1}, std::vector<Value>{}); };
    return scan(body, std::vector{x}, {}, {.length = 12, .reverse = reverse}).first[0];
  };
  const std::vector<Array> x = {Array::full(DType::F32, {3}, 1e-30)};
  for (const bool reverse : {false, true})
    for (const bool nested : {false, true}) {
      const auto graph = trace(
          [&](In in) {
            if (!nested) return std::vector{decays(in[0], reverse)};
            const ScanBody all = [&](In carry, In) {
              return std::pair(std::vector{decays(carry[0], reverse) * 1e12}, std::vector<Value>{});
            };
            return scan(all, in, {}, {.length = 2}).first;
          },
          std::vector<ValueType>{{DType::F32, {3}}});
      for (const char* backend : {"llvm", "interp"}) {
        EXPECT_EQ(count(compile(graph, {.backend = backend})(x)[0], is_zero), reverse ? 3 : 0) << nested << backend;
        EXPECT_EQ(count(compile(graph, {.backend = backend, .flush_denormals = false})(x)[0], is_zero), 0);
      }
      EXPECT_EQ(count(compile(graph, {.dispatch = "per_op"})(x)[0], is_zero), reverse ? 3 : 0) << nested;
    }
}

// A decaying signal: a bound step, of a Voice too, which goes past Executable::run.
TEST(DenormalsMode, OfAStream) {
  const nn::Sequential model(nn::Linear(4, 4));
  const Tree<Array> params = model.init(1).map(
      [](const Array& a) { return Array::full(DType::F32, a.shape(), a.shape().rank() == 2 ? 0.25 : 0.0); });
  for (const bool flush : {true, false}) {
    const Stream stream(model, params, 4, {.compile = {.flush_denormals = flush}});
    const float tiny = std::numeric_limits<float>::min() * (flush ? 16.0F : 0.5F);
    Stream::Voice voice = stream.voice();
    std::vector<float> x = {tiny, tiny, tiny, tiny}, y(4);
    voice.step(x, y);
    EXPECT_EQ(y[0] == 0, false);
    x.assign(4, std::numeric_limits<float>::min() / 2);
    voice.step(x, y);
    EXPECT_EQ(y[0] == 0, flush);
    EXPECT_EQ(stream.step(stream.initial_state(), Array::full(DType::F32, {1, 4}, x[0])).first.at(0) == 0, flush);
  }
}

// Gradients of the last step's output by what came 200 steps before vanish; with them gone nothing else changes.
TEST(DenormalsMode, GradientsOfManySteps) {
  const nn::Sequential model(nn::LSTM(2, 12), nn::Last(), nn::Linear(12, 1));
  const Tree<Array> params = model.init(3);
  Array x(DType::F32, {6, 200, 2}), y = Array::zeros(DType::F32, {6, 1});
  for (std::int64_t i = 0; i < x.size(); ++i) x.set(i, std::sin(static_cast<double>(i)));
  std::vector<Array> inputs = params.flatten();
  const std::size_t num_params = inputs.size();
  inputs.insert(inputs.end(), {x, y});
  std::vector<ValueType> types;
  for (const Array& a : inputs) types.push_back(a.type());
  const auto graph = trace(
      [&](In in) {
        const losses::MSE mse;
        const auto loss = [&](const Tree<Value>& p, Value signal) {
          return mse(model.apply(p, signal), in[num_params + 1]);
        };
        const Tree<Value> p = params.unflatten(in.first(num_params));
        std::vector<Value> all = grad([&](const Tree<Value>& q) { return loss(q, in[num_params]); })(p).flatten();
        all.push_back(grad([&](Value signal) { return loss(p, signal); })(in[num_params]));
        return all;
      },
      types);
  for (const int threads : {1, 2}) {
    const std::vector<Array> with = compile(graph, {.threads = threads, .flush_denormals = true})(inputs);
    const std::vector<Array> without = compile(graph, {.threads = threads, .flush_denormals = false})(inputs);
    EXPECT_GT(count(without.back(), [](double v) { return is_denormal(v, DType::F32); }), 0);
    EXPECT_EQ(count(with.back(), [](double v) { return is_denormal(v, DType::F32); }), 0);
    for (std::size_t i = 0; i < with.size(); ++i)
      for (std::int64_t k = 0; k < with[i].size(); ++k)
        EXPECT_NEAR(with[i].at(k), without[i].at(k), 1e-36) << "output " << i << ", element " << k;
  }
}

}  // namespace
}  // namespace hotloop
