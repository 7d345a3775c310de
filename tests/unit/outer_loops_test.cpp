// Loops of training steps, whose bodies hold tiles of their own: a carry may be computed where its old value lies only if nothing that runs then or later reads
// that one, be it a copy of it for another carry, an output of the step or a loop of the same level.
#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "arrays.h"
#include "hotloop/jit.h"
#include "hotloop/ops.h"
#include "hotloop/transforms.h"
#include "op_checks.h"

namespace hotloop {
namespace {

using Values = std::span<const Value>;
using Carries = std::vector<Value>;

constexpr std::int64_t rows = 200, width = 32;

Value rolled(Value x) {
  const std::int64_t n = x.shape()[0];
  return concat({narrow(x, 0, n - 1, 1), narrow(x, 0, 0, n - 1)}, 0);
}
Value through_layers(Value x, Value w, int count) {
  for (int i = 0; i < count; ++i) x = tanh(matmul(x, w));
  return x;
}
// A step of gradient descent on rows x.
Value trained(Value w, Value x) {
  const Function loss = [&](Values in) { return std::vector{mean(square(through_layers(x, in[0], 2) - 1.0))}; };
  return w - 0.1 * grad(loss, {0})({&w, 1})[0];
}
Value trained_twice(Value w, Value x) {
  return scan([&](Values c, Values) { return std::pair(Carries{trained(c[0], x)}, Carries{}); }, {&w, 1}, {},
              {.length = 2})
      .first[0];
}

struct Case {
  std::string name;
  ScanBody step;  // carries: two matrices of weights, two batches of rows
};
void PrintTo(const Case& c, std::ostream* out) { *out << c.name; }

std::vector<Case> cases() {
  const auto only = [](Carries next) { return std::pair(std::move(next), Carries{}); };
  return {
      {"rolled_and_handed_on",
       [=](Values c, Values) {
         return only({trained(c[0], c[3]), c[1], rolled(c[2]), c[2]});
       }},
      {"rolled_and_emitted",
       [](Values c, Values) {
         return std::pair(Carries{trained(c[0], c[3]), c[1], rolled(c[2]), c[3] * 1.01}, Carries{c[2]});
       }},
      {"reversed_and_emitted",
       [](Values c, Values) {
         return std::pair(Carries{trained(c[0], c[3]), c[1], reverse(c[2], {0}) * 0.9, c[3] * 1.01}, Carries{c[2]});
       }},
      {"centred_and_shown_reversed",
       [=](Values c, Values) {
         const Value centred = c[2] - broadcast(mean(c[2], {0}), c[2].shape(), {1});
         return only({trained(c[0], c[3]), c[1], centred, reverse(c[2], {0})});
       }},
      {"through_layers_and_shown_reversed",
       [](Values c, Values) {
         return std::pair(Carries{trained(c[0], c[3]), c[1], through_layers(c[2], c[1], 2), reverse(c[2], {0})},
                          Carries{c[2]});
       }},
      {"read_by_an_inner_loop",
       [=](Values c, Values) {
         return only({trained_twice(c[0], c[2]), c[1], through_layers(c[2], c[1], 12) + 0.1, c[3]});
       }},
      {"read_by_an_inner_loop_and_handed_on",
       [=](Values c, Values) {
         return only({trained_twice(c[0], c[2]), trained(c[1], c[3]), through_layers(c[2], c[1], 12) + 0.1, c[2]});
       }},
  };
}

class OuterLoops : public ::testing::TestWithParam<Case> {};
INSTANTIATE_TEST_SUITE_P(Steps, OuterLoops, ::testing::ValuesIn(cases()),
                         [](const auto& info) { return info.param.name; });

TEST_P(OuterLoops, ReadOldCarries) {
  const auto fn = [](Values in) {
    auto [last, emitted] = scan(GetParam().step, in, {}, {.length = 5});
    last.insert(last.end(), emitted.begin(), emitted.end());
    return last;
  };
  std::vector<Array> inputs;
  for (const Shape& shape : {Shape{width, width}, Shape{width, width}, Shape{rows, width}, Shape{rows, width}}) {
    inputs.push_back(testing::normal_array(shape, DType::F64, static_cast<unsigned>(inputs.size())));
    if (shape[0] == width)
      for (std::int64_t i = 0; i < inputs.back().size(); ++i) inputs.back().set(i, 0.1 * inputs.back().at(i));
  }
  const auto graph = trace(fn, ir::types_of(inputs));
  const std::vector<Array> wanted = ir::evaluate(*graph, inputs);
  for (const int threads : {1, 2}) {
    CompileOptions options;
    options.threads = threads;
    const Executable compiled = compile(graph, options);
    EXPECT_NE(compiled.kernel_text().find("grid"), std::string::npos) << "no tiles: nothing is tested";
    const std::vector<Array> got = compiled(inputs);
    for (std::size_t i = 0; i < wanted.size(); ++i)
      EXPECT_TRUE(ir::close(got[i], wanted[i], 1e-10)) << threads << " threads, output " << i;
  }
}

}  // namespace
}  // namespace hotloop
