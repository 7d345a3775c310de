// jvp, vjp, grad and vmap through every form of loop and call: against finite differences, each other, and loops over elements.
#include <algorithm>

#include "derivative_checks.h"
#include "hotloop/jit.h"
#include "ir/rewrite.h"
#include "op_checks.h"
#include "property/cells.h"

namespace hotloop::testing {
namespace {

using cells::run_gru;
using cells::run_lstm;
using Values = std::span<const Value>;

struct Case {
  std::string name;
  Function fn;
  std::vector<ValueType> inputs;
  std::vector<int> in_axes;  // for vmap: 0 = batched, -1 = not
  double low = -1, high = 1;
  std::vector<std::int32_t> integers = {};  // values of the i32 inputs, in order
  int order = 2;
};

ValueType f64(std::initializer_list<std::int64_t> shape) { return {DType::F64, Shape(shape)}; }
const ValueType i32_scalar{DType::I32, {}};

// x[T, S, H], w[H, H]: a scan over T whose body scans over S.
std::vector<Value> nested(Values v, const std::string& outer_policy, const std::string& inner_policy) {
  const Value w = v[1];
  const Value init[] = {zeros_like(take(take(v[0], 0, 0), 0, 0))}, xs[] = {v[0]};
  auto [carry, ys] = scan(
      [&](Values outer, Values x) {
        const Value scaled = outer[0] * 0.5;
        const Value inner_init[] = {outer[0]}, inner_xs[] = {x[0]};
        auto [inner, inner_ys] = scan(
            [&](Values h, Values row) {
              const Value next = tanh(matmul(h[0], w) + row[0] + scaled);
              return std::pair{std::vector<Value>{next}, std::vector<Value>{next * next}};
            },
            inner_init, inner_xs, {-1, false, inner_policy});
        return std::pair{std::vector<Value>{inner[0]}, std::vector<Value>{sum(inner_ys[0])}};
      },
      init, xs, {-1, false, outer_policy});
  return {carry[0], ys[0]};
}

// x[T, H], w[H, H], trip
std::vector<Value> tripped(Values v, bool reverse) {
  LoopSpec spec;
  spec.carry = {zeros_like(take(v[0], 0, 0))};
  spec.xs = {v[0]};
  spec.consts = {v[1]};
  spec.trip = v[2];
  spec.length = v[0].shape()[0];
  spec.reverse = reverse;
  const ValueType row{v[0].dtype(), v[0].shape().without(0)};
  spec.body = trace(
      [](Values b) {
        const Value h = tanh(matmul(b[0], b[2]) + b[1]);
        return std::vector<Value>{h, h * b[1]};
      },
      std::vector{row, row, v[1].type()});
  const LoopResult result = loop(spec);
  return {result.carry[0], result.ys[0]};
}

// x, growth: grows until it passes a limit; the count depends on the data.
std::vector<Value> growing(Values v) {
  const Value growth = v[1];
  const Value init[] = {v[0], v[0] * 0.1};
  const auto carry = while_loop([](Values c) { return less(c[0], like(c[0], 6)); },
                                [&](Values c) {
                                  return std::vector<Value>{c[0] * growth, c[1] + sin(c[0]) * growth};
                                },
                                init, 12);
  return {carry[0], carry[1]};
}

// x, w[H, H], h[H]: the same with a state and a shared weight.
std::vector<Value> growing_state(Values v) {
  const Value w = v[1];
  const Value init[] = {v[0], v[2]};
  const auto carry = while_loop([](Values c) { return less(c[0], like(c[0], 6)); },
                                [&](Values c) {
                                  return std::vector<Value>{c[0] * 1.7, tanh(matmul(c[1], w) + c[0] * 0.1)};
                                },
                                init, 12);
  return {carry[0], carry[1]};
}

// until with saved residuals, reverse and xs: x, xs[T]
std::vector<Value> until_loop(Values v, bool reverse, const std::string& residuals) {
  LoopSpec spec;
  spec.carry = {v[0]};
  spec.xs = {v[1]};
  spec.length = v[1].shape()[0];
  spec.reverse = reverse;
  spec.residuals = residuals;
  const ValueType scalar = v[0].type();
  spec.body = trace(
      [](Values b) {
        return std::vector<Value>{b[0] * (1.5 + b[1] * 0.1) + sin(b[0]) * 0.1, b[0] * b[1]};
      },
      std::vector{scalar, scalar});
  spec.until = trace([](Values b) { return std::vector<Value>{greater(b[0], like(b[0], 3))}; }, std::vector{scalar});
  const LoopResult result = loop(spec);
  return {result.carry[0], result.ys[0], result.count};
}

std::vector<Value> choice(Values v) {
  const Value x = v[0], y = v[1];
  const Value operands[] = {x};
  return cond(
      greater(x, like(x, 0)),
      [&](Values o) {
        return std::vector<Value>{sqrt(o[0]) * y, o[0] * o[0]};
      },
      [&](Values o) {
        return std::vector<Value>{exp(o[0]), y * o[0]};
      },
      operands);
}

// sin by a rule of its own, whose derivative is written in another way.
Value custom_sine(Value x) {
  const auto body = trace([](Values v) { return std::vector<Value>{sin(v[0])}; }, std::vector{x.type()});
  const auto rule = trace(
      [](Values v) {
        const Value s = sin(v[0]);
        return std::vector<Value>{s, v[1] * (cos(v[0] * 0.5) * cos(v[0] * 0.5) * 2.0 - 1.0)};
      },
      std::vector{x.type(), x.type()});
  const Value operands[] = {x};
  return call(body, operands, "sine", rule)[0];
}

std::vector<Value> checkpointed(Values v) {
  const Value w = v[1];
  const Function layer = checkpoint([&](Values x) { return std::vector<Value>{tanh(matmul(x[0], w)), sin(x[0])}; });
  const Value first[] = {v[0]};
  const auto a = layer(first);
  const Value second[] = {a[0] + a[1]};
  const auto b = layer(second);
  return {b[0], b[1]};
}

std::vector<Value> checkpointed_scan(Values v) {
  return checkpoint([](Values x) { return run_gru(x); })(v);
}

std::vector<Value> scan_of_checkpoints(Values v) {
  const Value w = v[1];
  const Function cell = checkpoint([&](Values x) { return std::vector<Value>{tanh(matmul(x[0], w) + x[1])}; });
  const Value init[] = {zeros_like(take(v[0], 0, 0))}, xs[] = {v[0]};
  auto [carry, ys] = scan(
      [&](Values h, Values x) {
        const Value arguments[] = {h[0], x[0]};
        const Value next = cell(arguments)[0];
        return std::pair{std::vector<Value>{next}, std::vector<Value>{next * x[0]}};
      },
      init, xs);
  return {carry[0], ys[0]};
}

// Newton's iteration for the square root inside a scan: a while loop in a loop.
std::vector<Value> while_in_scan(Values v) {
  const Value init[] = {v[1]}, xs[] = {v[0]};
  auto [carry, ys] = scan(
      [&](Values c, Values x) {
        const Value target = x[0] * x[0] + 1.0 + c[0] * c[0];
        const Value guess[] = {target};
        const Value root =
            while_loop([&](Values g) { return greater(abs(g[0] * g[0] - target), like(target, 1e-2)); },
                       [&](Values g) { return std::vector<Value>{0.5 * (g[0] + target / g[0])}; }, guess, 20)[0];
        return std::pair{std::vector<Value>{root * 0.5}, std::vector<Value>{root}};
      },
      init, xs);
  return {carry[0], ys[0]};
}

std::vector<Case> cases() {
  const std::vector<ValueType> lstm_inputs{f64({4, 2, 3}), f64({2, 2}), f64({2, 2}), f64({5, 8}), f64({8})};
  const std::vector<ValueType> gru_inputs{f64({3, 2, 2}), f64({2, 3}), f64({2, 9}), f64({3, 9})};
  std::vector<Case> all{
      {"lstm", [](Values v) { return run_lstm(v); }, lstm_inputs, {0, 0, 0, -1, -1}},
      {"lstm_reverse",
       [](Values v) {
         return run_lstm(v, {-1, true, ""});
       },
       lstm_inputs,
       {0, -1, 0, -1, 0}},
      {"lstm_recompute",
       [](Values v) {
         return run_lstm(v, {-1, false, "recompute"});
       },
       lstm_inputs,
       {0, 0, 0, 0, 0}},
      {"gru", run_gru, gru_inputs, {0, 0, -1, -1}},
      {"nested", [](Values v) { return nested(v, "", ""); }, {f64({3, 2, 2}), f64({2, 2})}, {0, -1}},
      {"nested_recompute_outer",
       [](Values v) { return nested(v, "recompute", "save"); },
       {f64({3, 2, 2}), f64({2, 2})},
       {-1, 0}},
      {"nested_recompute_both",
       [](Values v) { return nested(v, "recompute", "recompute"); },
       {f64({3, 2, 2}), f64({2, 2})},
       {0, 0}},
      {"trip",
       [](Values v) { return tripped(v, false); },
       {f64({5, 2}), f64({2, 2}), i32_scalar},
       {0, -1, -1},
       -1,
       1,
       {3}},
      {"trip_reverse",
       [](Values v) { return tripped(v, true); },
       {f64({5, 2}), f64({2, 2}), i32_scalar},
       {0, 0, -1},
       -1,
       1,
       {3}},
      {"trip_zero",
       [](Values v) { return tripped(v, false); },
       {f64({5, 2}), f64({2, 2}), i32_scalar},
       {0, -1, -1},
       -1,
       1,
       {0}},
      {"while", growing, {f64({}), f64({})}, {0, 0}, 1.4, 1.7},
      {"while_unbatched_growth", growing, {f64({}), f64({})}, {0, -1}, 1.4, 1.7},
      {"while_state", growing_state, {f64({}), f64({2, 2}), f64({2})}, {0, -1, 0}, 0.5, 0.9},
      {"until_save", [](Values v) { return until_loop(v, false, "save"); }, {f64({}), f64({6})}, {0, 0}, 0.5, 0.9},
      {"until_recompute",
       [](Values v) { return until_loop(v, false, "recompute"); },
       {f64({}), f64({6})},
       {0, -1},
       0.5,
       0.9},
      {"until_reverse", [](Values v) { return until_loop(v, true, "save"); }, {f64({}), f64({6})}, {0, 0}, 0.5, 0.9},
      {"cond_true", choice, {f64({}), f64({})}, {0, -1}, 0.3, 0.9},
      {"cond_false", choice, {f64({}), f64({})}, {0, 0}, -0.9, -0.3},
      {"custom_rule",
       [](Values v) { return std::vector<Value>{custom_sine(v[0] * v[1])}; },
       {f64({3}), f64({3})},
       {0, -1}},
      {"checkpoint", checkpointed, {f64({2, 3}), f64({3, 3})}, {0, -1}},
      {"checkpointed_scan", checkpointed_scan, gru_inputs, {0, 0, -1, -1}},
      {"scan_of_checkpoints", scan_of_checkpoints, {f64({3, 2}), f64({2, 2})}, {0, -1}},
      {"while_in_scan", while_in_scan, {f64({3}), f64({})}, {0, 0}, 0.5, 0.9},
      {"vmapped_lstm",
       vmap([](Values v) { return run_lstm(v); }, {1, 0, 0, -1, -1}),
       {f64({3, 2, 1, 2}), f64({2, 1, 2}), f64({2, 1, 2}), f64({4, 8}), f64({8})},
       {0, -1, -1, -1, 0},
       -1,
       1,
       {},
       2},
      {"vmapped_while", vmap(growing, {0, -1}), {f64({4}), f64({})}, {0, -1}, 0.7, 2.8},
      {"vmapped_while_state",
       vmap(growing_state, {0, -1, 0}),
       {f64({3}), f64({2, 2}), f64({3, 2})},
       {0, -1, -1},
       0.7,
       2.8},
      {"twice_vmapped_while",
       vmap(vmap(growing_state, {0, -1, 0}), {0, -1, -1}),
       {f64({2, 3}), f64({2, 2}), f64({3, 2})},
       {0, -1, -1},
       0.7,
       2.8},
      {"vmapped_until_save",
       vmap([](Values v) { return until_loop(v, false, "save"); }, {0, 0}),
       {f64({3}), f64({3, 6})},
       {0, -1},
       0.7,
       2.8},
      {"vmapped_until_reverse",
       vmap([](Values v) { return until_loop(v, true, "save"); }, {0, -1}),
       {f64({3}), f64({6})},
       {0, -1},
       0.7,
       2.8},
      {"vmapped_cond", vmap(choice, {0, -1}), {f64({4}), f64({})}, {0, -1}, -0.9, 0.9},
      {"vmapped_trip",
       vmap([](Values v) { return tripped(v, false); }, {0, -1, 0}),
       {f64({4, 5, 2}), f64({2, 2}), {DType::I32, {4}}},
       {0, -1, -1},
       -1,
       1,
       {3, 0, 5, 1}},
      {"vmapped_trip_reverse",
       vmap([](Values v) { return tripped(v, true); }, {0, -1, 0}),
       {f64({4, 5, 2}), f64({2, 2}), {DType::I32, {4}}},
       {0, -1, 0},
       -1,
       1,
       {3, 0, 5, 1}},
      {"vmapped_while_in_scan", vmap(while_in_scan, {0, 0}), {f64({3, 2}), f64({3})}, {0, -1}, 0.5, 2},
      {"vmap_of_grad",
       vmap(grad(scalar_of(growing_state), {0, 1, 2}), {0, -1, 0}),
       {f64({3}), f64({2, 2}), f64({3, 2})},
       {0, -1, -1},
       0.7,
       2.8},
  };
  return all;
}

Arrays sample(const Case& c, std::mt19937_64& rng) {
  Arrays inputs;
  std::size_t next = 0;
  for (const ValueType& t : c.inputs) {
    inputs.push_back(random_like(rng, t, c.low, c.high));
    for (std::int64_t k = 0; t.dtype == DType::I32 && k < t.shape.size(); ++k)
      inputs.back().set(k, c.integers.at(next++));
  }
  return inputs;
}

class Transforms : public ::testing::TestWithParam<Case> {
 protected:
  void SetUp() override { RecordProperty("seed", std::to_string(seed)); }
  static constexpr std::uint64_t seed = 20261;
  std::mt19937_64 rng{seed};
};

TEST_P(Transforms, Jvp) { check_jvp(GetParam().fn, sample(GetParam(), rng), rng, GetParam().name); }
TEST_P(Transforms, Vjp) { check_vjp(GetParam().fn, sample(GetParam(), rng), rng, GetParam().name); }
TEST_P(Transforms, SecondOrder) {
  const Arrays at = sample(GetParam(), rng);
  const Function gradient = grad(scalar_of(GetParam().fn), float_inputs(at));
  check_jvp(gradient, at, rng, GetParam().name + ", gradient");
  check_vjp(gradient, at, rng, GetParam().name + ", gradient");
}
TEST_P(Transforms, Vmap) {
  check_vmap(GetParam().fn, sample(GetParam(), rng), GetParam().in_axes, 3, rng, GetParam().name);
}
TEST_P(Transforms, VmapOfGrad) {
  const Arrays at = sample(GetParam(), rng);
  check_vmap(grad(scalar_of(GetParam().fn), float_inputs(at)), at, GetParam().in_axes, 3, rng, GetParam().name);
}

// The function, its gradient and its gradient's gradient, with all passes, on the machine.
TEST_P(Transforms, Compiled) {
  const Arrays at = sample(GetParam(), rng);
  std::vector<ValueType> types;
  for (const Array& a : at) types.push_back(a.type());
  const Function gradient = grad(scalar_of(GetParam().fn), float_inputs(at));
  const Function second = grad(scalar_of(gradient), float_inputs(at));
  int order = 0;
  for (const Function& f : {GetParam().fn, gradient, second}) {
    SCOPED_TRACE("derivatives of order " + std::to_string(order++));
    const auto graph = trace(f, types);
    const Arrays wanted = ir::evaluate(*graph, at), got = compile(graph)(at);
    ASSERT_EQ(got.size(), wanted.size());
    for (std::size_t i = 0; i < got.size(); ++i)
      EXPECT_TRUE(ir::close(got[i], wanted[i], 1e-11)) << GetParam().name << ", result " << i;
  }
}

INSTANTIATE_TEST_SUITE_P(All, Transforms, ::testing::ValuesIn(cases()),
                         [](const auto& test) { return test.param.name; });

}  // namespace
}  // namespace hotloop::testing
