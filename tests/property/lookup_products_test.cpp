// Products with rows that are looked up in a table, made for the table or for each row: forward the same to the bit, whatever the places, the axes
// and the sum they stand in, and backward the oracle's to rounding.
#include <cmath>
#include <limits>
#include <random>

#include "compiled.h"
#include "hotloop/nn.h"
#include "hotloop/ops.h"
#include "hotloop/optim.h"
#include "hotloop/train.h"
#include "hotloop/transforms.h"
#include "ir/op_def.h"
#include "op_checks.h"
#include "passes/pipeline.h"

namespace hotloop::testing {
namespace {

using Values = std::span<const Value>;
using Rng = std::mt19937_64;

std::int64_t draw(Rng& rng, std::int64_t low, std::int64_t high) {
  return std::uniform_int_distribution<std::int64_t>(low, high)(rng);
}
template <class T> T one_of(Rng& rng, std::initializer_list<T> choices) {
  return choices.begin()[draw(rng, 0, static_cast<std::int64_t>(choices.size()) - 1)];
}

Array numbers(Rng& rng, const ValueType& type) {
  Array x(type.dtype, type.shape);
  for (std::int64_t i = 0; i < x.size(); ++i) x.set(i, std::normal_distribution<double>(0, 0.5)(rng));
  return x;
}
// Some of them out of range.
Array places(Rng& rng, const Shape& shape, std::int64_t rows) {
  Array x(DType::I32, shape);
  for (std::int64_t i = 0; i < x.size(); ++i) x.set(i, static_cast<double>(draw(rng, -1, rows)));
  return x;
}

struct Case {
  Function function;
  std::vector<Array> inputs;
  std::vector<ValueType> types() const {
    std::vector<ValueType> all;
    for (const Array& a : inputs) all.push_back(a.type());
    return all;
  }
};

CompileOptions without_pass(CompileOptions options = {}) {
  options.disabled_passes = {"lookup_products"};
  return options;
}

bool is_rewritten(const Graph& graph) {
  std::vector<passes::PassReport> reports;
  passes::optimize(graph, {}, &reports);
  return std::ranges::any_of(reports, [](const auto& r) { return r.name == "lookup_products" && r.changed; });
}

void expect_same_bits(const std::vector<Array>& got, const std::vector<Array>& wanted) {
  ASSERT_EQ(got.size(), wanted.size());
  for (std::size_t k = 0; k < got.size(); ++k)
    for (std::int64_t i = 0; i < got[k].size(); ++i)
      ASSERT_EQ(got[k].at(i), wanted[k].at(i)) << "result " << k << ", element " << i;
}
void expect_near(const std::vector<Array>& got, const std::vector<Array>& wanted, double tolerance) {
  ASSERT_EQ(got.size(), wanted.size());
  for (std::size_t k = 0; k < got.size(); ++k) {
    double most = 0;
    for (std::int64_t i = 0; i < wanted[k].size(); ++i) most = std::max(most, std::abs(wanted[k].at(i)));
    for (std::int64_t i = 0; i < wanted[k].size(); ++i)
      ASSERT_NEAR(got[k].at(i), wanted[k].at(i), tolerance * (most + 1e-3)) << "result " << k << ", element " << i;
  }
}

// A table with its rows along any axis, looked up at places of one or two axes, as either factor of a product over the table's last or first other
// axis; a sum that begins or ends with it, a function of that, and another product.
Case product_of_lookups(std::uint64_t seed, DType dtype) {
  Rng rng(seed);
  const std::int64_t rows = draw(rng, 1, 7), depth = draw(rng, 4, 20), width = draw(rng, 1, 20);
  const int rank = static_cast<int>(draw(rng, 2, 3)), axis = static_cast<int>(draw(rng, 0, rank - 1));
  const Shape at = one_of<Shape>(rng, {{draw(rng, 20, 120)}, {7, draw(rng, 4, 18)}, {draw(rng, 4, 18), 5}});
  Shape table;
  for (int i = 0; i < rank; ++i) table.push_back(i == axis ? rows : depth);
  const std::int64_t contracted = axis == 0 ? rank - 1 : draw(rng, 0, axis - 1);  // of the table
  const std::int64_t in_lookup = contracted < axis ? contracted : contracted + at.rank() - 1;
  const bool is_lhs = draw(rng, 0, 1) == 0, has_bias_first = draw(rng, 0, 1) == 0;
  const std::int64_t kind = draw(rng, 0, 3);
  const auto function = [=](Values v) {
    const Value x = gather(v[0], v[1], axis);
    const Value y = is_lhs ? dot(x, v[2], {{in_lookup}, {0}}) : dot(v[2], x, {{0}, {in_lookup}});
    const Value bias = broadcast(v[3], y.shape(), {is_lhs ? y.rank() - 1 : 0});
    const Value sum = has_bias_first ? bias + y : y + bias;
    if (kind == 0) return std::vector{sum};
    if (kind == 1) return std::vector{tanh(sum), y};
    const Value h = tanh(sum) * sigmoid(bias);
    if (kind == 2) return std::vector{h, x};
    return std::vector{is_lhs ? dot(h, v[4], {{h.rank() - 1}, {0}}) : dot(v[4], h, {{0}, {0}})};
  };
  return {function,
          {numbers(rng, {dtype, table}), places(rng, at, rows), numbers(rng, {dtype, {depth, width}}),
           numbers(rng, {dtype, {width}}), numbers(rng, {dtype, {width, draw(rng, 1, 12)}})}};
}

TEST(LookupProducts, AreTheSameToTheBit) {
  int rewritten = 0;
  for (std::uint64_t seed = 0; seed < 80; ++seed) {
    SCOPED_TRACE(seed);
    const Case c = product_of_lookups(seed, seed % 3 == 0 ? DType::F64 : DType::F32);
    const auto graph = trace(c.function, c.types());
    rewritten += is_rewritten(*graph);
    const auto wanted = ir::evaluate(*graph, c.inputs);
    for (const Compiled& compiled : seed % 8 == 0 ? all_compiled() : std::vector<Compiled>{all_compiled().front()}) {
      SCOPED_TRACE(name_of_case(compiled));
      const auto got = compile(graph, compiled.options())(c.inputs);
      expect_near(got, wanted, 1e-5);
      expect_same_bits(got, compile(graph, without_pass(compiled.options()))(c.inputs));
    }
  }
  EXPECT_GT(rewritten, 60);
}

TEST(LookupProducts, HaveTheOraclesDerivatives) {
  int rewritten = 0;
  for (std::uint64_t seed = 0; seed < 40; ++seed) {
    SCOPED_TRACE(seed);
    const Case c = product_of_lookups(seed, DType::F64);
    const auto loss = [&](Values v) {
      Value total = sum(v[0]) * 0;
      for (const Value& y : c.function(v)) total = total + sum(sin(y) * y);
      return std::vector{total};
    };
    const auto graph = trace(grad(loss, {0, 2, 3}), c.types());
    rewritten += is_rewritten(*graph);
    expect_near(compile(graph, {})(c.inputs), ir::evaluate(*graph, c.inputs), 1e-11);
  }
  EXPECT_GT(rewritten, 30);
}

// A recurrence over looked-up rows, in one direction or both; x_t W at any place of its sum, beside another input's product, or read twice; rows with
// the steps first or the batch, which may be read elsewhere as well.
Case recurrence(std::uint64_t seed, DType dtype) {
  Rng rng(seed);
  const std::int64_t rows = draw(rng, 2, 5), features = draw(rng, 4, 70), hidden = draw(rng, 2, 20),
                     batch = draw(rng, 1, 16), steps = draw(rng, 3, 12);
  const std::int64_t order = draw(rng, 0, 5);
  const bool reverse = draw(rng, 0, 1) == 0, is_batch_first = draw(rng, 0, 1) == 0, is_both_ways = draw(rng, 0, 1) == 0,
             is_read_again = draw(rng, 0, 2) == 0;
  const auto function = [=](Values v) {
    Value x = gather(v[0], v[1], 0);
    if (is_batch_first) x = transpose(x, {1, 0, 2});
    const Value xs[] = {x, v[6]}, init[] = {v[5]};
    const auto step = [&](Values c, Values in) {
      const Value xw = matmul(in[0], v[2]), hu = matmul(c[0], v[3]), uw = matmul(in[1], v[2]),
                  bias = broadcast(v[4], xw.shape(), {1});
      Value sum;
      switch (order) {
        case 0: sum = xw + bias + hu; break;
        case 1: sum = hu + xw + bias; break;
        case 2: sum = bias + (hu + xw); break;
        case 3: sum = (xw + uw) + (bias + hu); break;
        case 4: sum = uw + xw + hu * sigmoid(xw); break;
        default: sum = c[0] * 0.5 + bias + xw + matmul(tanh(c[0]), v[3]);
      }
      const Value h = tanh(sum);
      return std::pair{std::vector{h}, std::vector{h * 2.0}};
    };
    const auto [carry, ys] = scan(step, init, xs, {steps, reverse, ""});
    std::vector<Value> out = {carry[0], ys[0]};
    if (is_both_ways) out.push_back(scan(step, init, xs, {steps, !reverse, ""}).second[0]);
    if (is_read_again) out.push_back(tanh(x));
    return out;
  };
  const Shape at = is_batch_first ? Shape{batch, steps} : Shape{steps, batch};
  return {function,
          {numbers(rng, {dtype, {rows, features}}), places(rng, at, rows), numbers(rng, {dtype, {features, hidden}}),
           numbers(rng, {dtype, {hidden, hidden}}), numbers(rng, {dtype, {hidden}}),
           numbers(rng, {dtype, {batch, hidden}}), numbers(rng, {dtype, {steps, batch, features}})}};
}

// Rows that are not looked up have no part in the gradients, whatever they hold.
TEST(LookupProducts, RowsWithoutAPlaceMayHoldAnything) {
  constexpr std::int64_t rows = 5, depth = 12, width = 8, places = 400;
  for (const DType dtype : {DType::F32, DType::F64}) {
    Rng rng(3);
    Array table = numbers(rng, {dtype, {rows, depth}}), index(DType::I32, {places});
    for (std::int64_t i = 0; i < depth; ++i)
      table.set(2 * depth + i, i % 2 == 0 ? std::numeric_limits<double>::infinity() : std::nan(""));
    for (std::int64_t i = 0; i < places; ++i)
      index.set(i, static_cast<double>(i % 4 == 2 ? 17 : i % 4));  // 17: the last row
    const std::vector<Array> inputs{table, index, numbers(rng, {dtype, {depth, width}})};
    const auto loss = [](Values v) { return std::vector{sum(tanh(matmul(gather(v[0], v[1], 0), v[2])))}; };
    const auto graph = trace(grad(loss, {0, 2}), ir::types_of(inputs));
    EXPECT_TRUE(is_rewritten(*graph));
    const auto wanted = ir::evaluate(*graph, inputs);
    for (const Array& gradient : wanted)
      for (std::int64_t i = 0; i < gradient.size(); ++i) ASSERT_TRUE(std::isfinite(gradient.at(i)));
    for (const int threads : {1, 2}) {
      CompileOptions options;
      options.threads = threads;
      expect_near(compile(graph, options)(inputs), wanted, 1e-4);
    }
  }
}

TEST(LookupProducts, OfLoopsAreTheSameToTheBit) {
  int rewritten = 0;
  for (std::uint64_t seed = 0; seed < 60; ++seed) {
    SCOPED_TRACE(seed);
    const Case c = recurrence(seed, seed % 3 == 0 ? DType::F64 : DType::F32);
    const auto graph = trace(c.function, c.types());
    rewritten += is_rewritten(*graph);
    for (const Compiled& compiled : seed % 8 == 0 ? all_compiled() : std::vector<Compiled>{all_compiled().front()}) {
      SCOPED_TRACE(name_of_case(compiled));
      const auto got = compile(graph, compiled.options())(c.inputs);
      expect_near(got, ir::evaluate(*graph, c.inputs), 1e-4);
      expect_same_bits(got, compile(graph, without_pass(compiled.options()))(c.inputs));
    }
  }
  EXPECT_GT(rewritten, 30);
}

TEST(LookupProducts, OfLoopsHaveTheOraclesDerivatives) {
  int rewritten = 0;
  for (std::uint64_t seed = 0; seed < 40; ++seed) {
    SCOPED_TRACE(seed);
    const Case c = recurrence(seed, DType::F64);
    const auto loss = [&](Values v) {
      Value total = sum(v[0]) * 0;
      for (const Value& y : c.function(v)) total = total + sum(sin(y) * y);
      return std::vector{total};
    };
    const auto graph = trace(grad(loss, {0, 2, 3, 4, 5, 6}), c.types());
    rewritten += is_rewritten(*graph);
    const auto wanted = ir::evaluate(*graph, c.inputs);
    for (const int threads : {1, 2}) {
      CompileOptions options;
      options.threads = threads;
      expect_near(compile(graph, options)(c.inputs), wanted, 1e-10);
    }
  }
  EXPECT_GT(rewritten, 30);
}

double flops_of_dots(const Graph& graph) {
  double flops = 0;
  for (const auto& node : graph.nodes()) {
    if (ir::is(*node, ir::OpKind::Dot)) flops += ir::estimate_flops(*node);
    if (ir::is(*node, ir::OpKind::Loop))
      flops += flops_of_dots(*node->regions[0]) * static_cast<double>(node->attrs.integer("length"));
  }
  return flops;
}

// A training step of an embedding and an LSTM: the products with the inputs of all steps, forward and both ways back, are those of the table.
TEST(LookupProducts, AnLstmOfLettersMultipliesItsAlphabet) {
  constexpr std::int64_t letters = 30, features = 32, hidden = 32, batch = 16, steps = 50;
  const nn::Sequential model(nn::Embedding(letters, features), nn::LSTM(features, hidden), nn::Last(),
                             nn::Linear(hidden, 1));
  const optim::SGD optimizer{0.1};
  const Tree<Array> params = model.init(1, DType::F32), state = optimizer.init(params);
  const train::Step step = train::train_step(model, losses::MSE(), optimizer, params, state,
                                             {DType::I32, {batch, steps}}, {DType::F32, {batch, 1}});
  passes::PassOptions on, off;
  off.disabled = {"lookup_products"};
  const double one_way = 2.0 * steps * batch * hidden * 4 * hidden;  // h U of all steps, or x W
  const double table = 2.0 * letters * features * 4 * hidden, head = 3 * 2.0 * batch * hidden;
  EXPECT_EQ(flops_of_dots(*passes::optimize(*step.graph(), off)), 6 * one_way + head);
  EXPECT_EQ(flops_of_dots(*passes::optimize(*step.graph(), on)), 3 * one_way + 3 * table + head);
}

}  // namespace
}  // namespace hotloop::testing
