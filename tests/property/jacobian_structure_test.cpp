// Jacobians with structure: what is called zero is zero and nothing else is, and every form of a Jacobian is the same matrix.
#include <algorithm>
#include <cmath>

#include "hotloop/jit.h"
#include "hotloop/nn.h"
#include "jacobian_cases.h"

namespace hotloop::testing {
namespace {

Value matrix(std::int64_t n, const std::function<double(std::int64_t, std::int64_t)>& element) {
  Array a(DType::F64, {n, n});
  for (std::int64_t i = 0; i < n; ++i)
    for (std::int64_t j = 0; j < n; ++j) a.set(i * n + j, element(i, j));
  return constant(a);
}

Value index_array(std::initializer_list<int> places) {
  return constant(Array::from(std::vector<std::int32_t>(places.begin(), places.end()),
                              Shape{static_cast<std::int64_t>(places.size())}));
}

Value laplace(Value u) {  // with zero ends
  const Value zero = like(u, 0);
  return pad(narrow(u, 0, 1, u.shape()[0] - 1), zero, {0}, {1}) +
         pad(narrow(u, 0, 0, u.shape()[0] - 1), zero, {1}, {0}) - 2.0 * u;
}

std::vector<JacobianCase> cases() {
  return {
      {"elementwise", one_result([](Values v) { return sin(v[0]) * v[0]; }), {f64({3, 4})}, {{0, 0}, {1, 1}}, 1},
      {"mlp",
       one_result([](Values v) { return matmul(tanh(matmul(v[0], v[1]) + v[2]), v[3]); }),
       {f64({7, 2}), f64({2, 5}), f64({5}), f64({5, 4})},
       {{0, 0}},
       2},
      {"mlp_reverse",
       one_result([](Values v) { return matmul(tanh(matmul(v[0], v[1]) + v[2]), v[3]); }),
       {f64({7, 6}), f64({6, 5}), f64({5}), f64({5, 2})},
       {{0, 0}},
       2},
      {"transposed_mlp",
       one_result([](Values v) {
         return transpose(tanh(matmul(v[0], v[1])), {1, 0});
       }),
       {f64({7, 2}), f64({2, 5})},
       {{1, 0}},
       2},
      {"softmax", one_result([](Values v) { return softmax(v[0], 1); }), {f64({6, 3})}, {{0, 0}}, 3},
      {"batch_norm",
       one_result([](Values v) {
         const Value centred = v[0] - broadcast(mean(v[0], {0}), v[0].shape(), {1});
         return centred / broadcast(sqrt(variance(v[0], {0}) + 1e-5), v[0].shape(), {1});
       }),
       {f64({5, 3})},
       {{1, 1}},
       5},
      {"layer_norm_then_batch_sum",
       one_result([](Values v) { return reduce_sum(softmax(v[0], 1), {0}); }),
       {f64({4, 3})},
       {},
       3},
      {"convolution",
       one_result([](Values v) { return matmul(windows(v[0], 0, 3), v[1]); }),
       {f64({12}), f64({3})},
       {},
       3},
      {"strided_convolution",
       one_result([](Values v) { return matmul(windows(v[0], 0, 3, 2, 2), v[1]); }),
       {f64({13}), f64({3})},
       {},
       3},
      {"batch_convolution",
       one_result([](Values v) { return matmul(windows(v[0], 1, 3), v[1]); }),
       {f64({4, 12}), f64({3})},
       {{0, 0}},
       3},
      {"stencil", one_result([](Values v) { return laplace(v[0]) + square(v[0]); }), {f64({11})}, {}, 3},
      {"batch_stencil",
       vmap(one_result([](Values v) { return laplace(v[0]) * v[0]; }), {0}),
       {f64({5, 9})},
       {{0, 0}},
       3},
      {"banded",
       one_result([](Values v) {
         return matmul(
             matrix(10, [](auto i, auto j) { return std::abs(i - j) <= 1 ? 1.0 + 0.1 * static_cast<double>(i) : 0.0; }),
             tanh(v[0]));
       }),
       {f64({10})},
       {},
       3},
      {"masked",
       one_result([](Values v) {
         return reduce_sum(broadcast(exp(v[0]), {8, 8}, {1}) *
                               matrix(8, [](auto i, auto j) { return (i * 3 + j) % 4 == 0 ? 1.0 : 0.0; }),
                           {1});
       }),
       {f64({8})},
       {},
       2},
      {"gather",
       one_result([](Values v) {
         return square(gather(v[0], index_array({3, 1, 1, 6}), 0));
       }),
       {f64({7})},
       {},
       1},
      {"gather_rows",
       one_result([](Values v) {
         return gather(v[0] * v[0], index_array({2, 0}), 0);
       }),
       {f64({3, 4})},
       {{1, 1}},
       1},
      {"scatter",
       one_result([](Values v) {
         return scatter_add(constant(0, DType::F64, {6}), index_array({5, 0, 5, 2}), sin(v[0]), 0);
       }),
       {f64({4})},
       {},
       2},
      {"selected",
       one_result([](Values v) {
         const Value first = less(iota(DType::I32, {6}, 0), constant(2, DType::I32));
         return select(first, reverse(v[0], {0}), v[0] * 2.0);
       }),
       {f64({6})},
       {},
       2},
      {"cumulative",
       one_result([](Values v) {
         const Value init[] = {like(v[0], 0)}, xs[] = {v[0]};
         return scan(
                    [](Values c, Values x) {
                      return std::pair{std::vector{c[0] + x[0]}, std::vector{sin(c[0] + x[0])}};
                    },
                    init, xs)
             .second[0];
       }),
       {f64({6})},
       {},
       6},
      {"reversed_scan",
       one_result([](Values v) {
         const Value init[] = {like(v[0], 1)}, xs[] = {v[0]};
         return scan(
                    [](Values c, Values x) {
                      return std::pair{std::vector{c[0] * x[0]}, std::vector{c[0] * x[0]}};
                    },
                    init, xs, {-1, true, ""})
             .second[0];
       }),
       {f64({6})},
       {},
       6},
      {"scan_without_carry",
       one_result([](Values v) {
         const Value xs[] = {v[0]};
         return scan(
                    [](Values, Values x) {
                      return std::pair{std::vector<Value>{}, std::vector{softmax(x[0], 0)}};
                    },
                    {}, xs)
             .second[0];
       }),
       {f64({5, 3})},
       {{0, 0}},
       3},
      {"heat",  // the band widens by one cell a step
       one_result([](Values v) {
         const Value init[] = {v[0]};
         return scan(
                    [](Values u, Values) {
                      return std::pair{std::vector{u[0] + 0.1 * laplace(u[0])}, std::vector<Value>{}};
                    },
                    init, {}, {3, false, ""})
             .first[0];
       }),
       {f64({20})},
       {},
       7},
      {"loop_index",  // the element that step t reads is known
       one_result([](Values v) {
         const Value init[] = {v[0]}, xs[] = {iota(DType::I32, {4}, 0)};
         return scan(
                    [](Values u, Values t) {
                      const Value start[] = {t[0]};
                      const Value here = dynamic_slice(u[0], start, {1});
                      return std::pair{std::vector{dynamic_update(u[0], here * here, start)}, std::vector<Value>{}};
                    },
                    init, xs)
             .first[0];
       }),
       {f64({6})},
       {},
       1},
      {"data_dependent_gather",
       one_result([](Values v) { return gather(v[0], cast(clip(v[1], 0, 3), DType::I32), 0) * v[0]; }),
       {f64({4}), f64({4})},
       {},
       4,
       false},
      {"while",
       one_result([](Values v) {
         const Value init[] = {v[0]};
         return while_loop([](Values u) { return less(sum(u[0]), like(u[0], 100)); },
                           [](Values u) { return std::vector{u[0] * 1.5 + 1.0}; }, init, 20)[0];
       }),
       {f64({6})},
       {{0, 0}},
       1},
      {"recurrent", recurrent, {f64({3, 4, 2}), f64({5, 3})}, {{0, 0}}, 8},
      {"arrow",  // a full row and a full column
       one_result([](Values v) {
         const Value first = narrow(v[0], 0, 0, 1), rest = narrow(v[0], 0, 1, 11);
         const Value parts[] = {reshape(sum(square(v[0])), {1}), rest * rest + broadcast_to(sin(first), rest.shape())};
         return concat(parts, 0);
       }),
       {f64({12})},
       {},
       3,
       true,
       JacobianMode::Mixed},
      {"bottleneck",
       one_result([](Values v) { return tanh(matmul(tanh(matmul(v[0], v[1])), v[2])); }),
       {f64({4, 30}), f64({30, 2}), f64({2, 25})},
       {{0, 0}},
       4},
      {"bottleneck_in_a_loop",
       one_result([](Values v) {
         const Value init[] = {matmul(sin(v[0]), v[1])};
         const Value code = scan(
                                [](Values c, Values) {
                                  return std::pair{std::vector{tanh(c[0] * c[0] + 0.1)}, std::vector<Value>{}};
                                },
                                init, {}, {3, false, ""})
                                .first[0];
         return transpose(matmul(code, v[2]), {1, 0});
       }),
       {f64({3, 20}), f64({20, 2}), f64({2, 22})},
       {{1, 0}},
       4},
      {"no_bottleneck",
       one_result([](Values v) { return matmul(tanh(matmul(v[0], v[1])), v[2]) + matmul(v[0], v[3]); }),
       {f64({4, 12}), f64({12, 2}), f64({2, 10}), f64({12, 10})},
       {{0, 0}},
       10},
      {"constant", one_result([](Values v) { return v[1] * 2.0; }), {f64({3}), f64({2})}, {}, 0},
      {"stopped", one_result([](Values v) { return stop_gradient(v[0]) * v[1]; }), {f64({3}), f64({3})}, {}, 0},
      {"scalar", one_result([](Values v) { return sin(v[0]); }), {f64({})}, {}, 1},
      {"empty", one_result([](Values v) { return v[0] * 2.0; }), {f64({0, 3})}, {}, 0},
      {"checkpointed", checkpoint(one_result([](Values v) { return tanh(v[0] * v[0]); })), {f64({4})}, {{0, 0}}, 1},
  };
}

TEST_P(JacobianStructures, AreExactAndEveryFormIsTheSameMatrix) {
  const JacobianCase& c = GetParam();
  const Array full = evaluate(jacfwd(c.fn), at_)[0];
  const Arrays forms = evaluated([](const Jacobian& j, Values) {
    return std::vector{j.dense(), j.sparse(), j.blocks(), j.values()};
  });
  SCOPED_TRACE(structure_->explain());
  expect_close({forms[0]}, {full}, 1e-12, "dense() and jacfwd");
  EXPECT_EQ(structure_->paired, c.paired);
  EXPECT_LE(structure_->forward_passes + structure_->reverse_passes, c.most_passes);
  EXPECT_EQ(forms[2].type(), structure_->blocks_type());
  EXPECT_EQ(forms[3].type(), structure_->values_type());

  // CSR: the elements in order, and everything else zero.
  const std::int64_t rows = structure_->output.shape.size(), columns = structure_->input.shape.size();
  const Array indptr = structure_->indptr(), column = structure_->column_indices(), row = structure_->row_indices();
  ASSERT_EQ(column.size(), forms[1].size());
  ASSERT_EQ(indptr.size(), rows + 1);
  Array from_sparse = Array::zeros(DType::F64, full.shape());
  for (std::int64_t r = 0; r < rows; ++r)
    for (auto k = static_cast<std::int64_t>(indptr.at(r)); k < static_cast<std::int64_t>(indptr.at(r + 1)); ++k) {
      EXPECT_EQ(row.at(k), r);
      if (k > static_cast<std::int64_t>(indptr.at(r))) EXPECT_LT(column.at(k - 1), column.at(k));
      from_sparse.set(r * columns + static_cast<std::int64_t>(column.at(k)), forms[1].at(k));
    }
  expect_close({from_sparse}, {full}, 1e-12, "sparse() and jacfwd");
  std::int64_t nonzero = 0;
  for (std::int64_t i = 0; i < full.size(); ++i) nonzero += full.at(i) != 0;
  const bool dense_blocks = structure_->row_start.empty();
  if (c.exact && !dense_blocks) {
    EXPECT_EQ(forms[1].size(), nonzero);
  }
}

TEST_P(JacobianStructures, Products) {
  std::mt19937_64 rng(2);
  const Array full = evaluate(jacfwd(GetParam().fn), at_)[0];
  const ValueType x = at_[0].type(), y = evaluate(GetParam().fn, at_)[0].type();
  const Array v = random_like(rng, x), u = random_like(rng, y);
  const Arrays products = evaluated(
      [](const Jacobian& j, Values in) {
        return std::vector{j.matvec(in[0]), j.rmatvec(in[1])};
      },
      {v, u});
  Array forward = Array::zeros(DType::F64, y.shape), back = Array::zeros(DType::F64, x.shape);
  for (std::int64_t r = 0; r < u.size(); ++r)
    for (std::int64_t k = 0; k < v.size(); ++k) {
      forward.set(r, forward.at(r) + full.at(r * v.size() + k) * v.at(k));
      back.set(k, back.at(k) + full.at(r * v.size() + k) * u.at(r));
    }
  expect_close(products, {forward, back}, 1e-12, "J v and J^T u");
}

TEST_P(JacobianStructures, EveryModeGivesTheSame) {
  const Array full = evaluate(jacfwd(GetParam().fn), at_)[0];
  if (GetParam().mode != JacobianMode::Auto) return;
  for (const JacobianMode mode : {JacobianMode::Forward, JacobianMode::Reverse, JacobianMode::Mixed})
    for (const bool sparsity : {true, false}) {
      JacobianOptions options;
      options.mode = mode;
      options.sparsity = sparsity;
      const Arrays dense = evaluated([](const Jacobian& j, Values) { return std::vector{j.dense()}; }, {}, options);
      expect_close(dense, {full}, 1e-12, std::string(name_of(mode)) + (sparsity ? ", sparse" : ", without sparsity"));
    }
}

TEST_P(JacobianStructures, CompiledAndBatched) {
  const JacobianCase& c = GetParam();
  const Function dense = [&](Values v) {
    const Jacobian j = jacobian(c.fn)(v);
    return std::vector{j.dense(), j.sparse(), j.rmatvec(j.matvec(v[0]))};
  };
  expect_close(jit(dense)(at_), evaluate(dense, at_), 1e-12, "compiled and the oracle");
  if (HasFatalFailure()) return;
  std::mt19937_64 rng(3);
  check_vmap(dense, at_, std::vector<int>(at_.size(), 0), 2, rng, c.name);
}

INSTANTIATE_TEST_SUITE_P(All, JacobianStructures, ::testing::ValuesIn(cases()),
                         [](const auto& info) { return info.param.name; });

// Second derivatives of a scalar.
struct HessianCase {
  std::string name;
  Function fn;
  Shape shape;
  std::int64_t passes;
  Pairs paired = {};
};
void PrintTo(const HessianCase& c, std::ostream* out) { *out << c.name; }

std::vector<HessianCase> hessian_cases() {
  const auto one = [](auto fn) { return Function([fn](Values v) { return std::vector<Value>{fn(v[0])}; }); };
  return {{"sum_of_elements", one([](Value x) { return sum(sin(x) * x); }), {3, 4}, 1, {{0, 0}, {1, 1}}},
          {"rosenbrock",
           one([](Value x) {
             const Value a = narrow(x, 0, 0, 9), b = narrow(x, 0, 1, 9);
             return sum(100.0 * square(b - a * a) + square(1.0 - a));
           }),
           {10},
           3},
          {"arrow", one([](Value x) { return sum(x * x * broadcast_to(narrow(x, 0, 0, 1), x.shape())); }), {10}, 2},
          {"dense", one([](Value x) { return square(sum(x * x)); }), {5}, 5},
          {"batch", one([](Value x) { return sum(square(reduce_sum(sin(x), {1}))); }), {6, 3}, 3, {{0, 0}}},
          {"grid",
           one([](Value x) {
             const Value right = narrow(x, 1, 1, 5) - narrow(x, 1, 0, 5),
                         down = narrow(x, 0, 1, 5) - narrow(x, 0, 0, 5);
             return sum(sqrt(1.0 + square(right))) + sum(sqrt(1.0 + square(down)));
           }),
           {6, 6},
           8},
          {"axes_that_change_places",  // block (i, j) is the transpose of block (j, i), neither is symmetric
           one([](Value x) {
             const Value scale = sin(iota(DType::F64, {2, 2, 4}, 2) + 3.0 * iota(DType::F64, {2, 2, 4}, 0) +
                                     7.0 * iota(DType::F64, {2, 2, 4}, 1));
             return sum(scale * narrow(x, 2, 0, 4) * narrow(transpose(x, {1, 0, 2}), 2, 1, 4));
           }),
           {2, 2, 5},
           3,
           {{0, 1}, {1, 0}}},
          {"a_square_and_its_transpose",
           one([](Value x) {
             return sum(x * transpose(x, {1, 0}));
           }),
           {4, 4},
           1,
           {{0, 1}, {1, 0}}}};
}

class HessianStructures : public ::testing::TestWithParam<HessianCase> {};

TEST_P(HessianStructures, AreTheDenseHessian) {
  const HessianCase& c = GetParam();
  std::mt19937_64 rng(4);
  const Arrays at{random_like(rng, {DType::F64, c.shape}, 0.2, 1.2)};
  const Array full = evaluate(hessian(c.fn), at)[0];
  std::shared_ptr<const JacobianStructure> structure;
  const Function all = [&](Values v) {
    const Jacobian h = sparse_hessian(c.fn)(v);
    structure = h.shared_structure();
    return std::vector{h.dense(), h.diagonal(), hessian_diagonal(c.fn)(v)[0]};
  };
  const Arrays forms = evaluate(all, at);
  SCOPED_TRACE(structure->explain());
  expect_close({forms[0]}, {full}, 1e-11, "sparse Hessian and hessian()");
  EXPECT_LE(structure->forward_passes, c.passes);
  EXPECT_EQ(structure->paired, c.paired);
  const std::int64_t n = at[0].size();
  for (std::int64_t i = 0; i < n; ++i) {
    EXPECT_NEAR(forms[1].at(i), full.at(i * (n + 1)), 1e-11);
    EXPECT_NEAR(forms[2].at(i), full.at(i * (n + 1)), 1e-11);
  }
  expect_close(jit(all)(at), forms, 1e-11, "compiled");
}

INSTANTIATE_TEST_SUITE_P(All, HessianStructures, ::testing::ValuesIn(hessian_cases()),
                         [](const auto& info) { return info.param.name; });

// A layer that normalises over the batch couples its rows in training, and does not afterwards.
// What the program around knows of a value that is taken from it.
TEST(JacobianOfCaptures, AreKnownIfThatIsSaid) {
  Array reversed(DType::I32, {5});
  for (std::int64_t i = 0; i < 5; ++i) reversed.set(i, 4 - static_cast<double>(i));
  for (const bool known : {false, true}) {
    std::int64_t stored = 0;
    const Function fn = [&](std::span<const Value> v) {
      JacobianOptions options;
      if (known) options.known_value = [&](Value captured) { return captured == v[1] ? reversed : Array(); };
      const auto of =
          jacobian([&](std::span<const Value> x) { return std::vector{square(gather(x[0], v[1], 0))}; }, options);
      const Jacobian j = of(v.first(1));
      stored = j.structure().num_stored();
      return std::vector{j.dense()};
    };
    const Array x = Array::from(std::vector<double>{1, 2, 3, 4, 5}, {5});
    const Array dense = jit(fn)({x, reversed})[0];
    EXPECT_EQ(stored, known ? 5 : 25);
    for (std::int64_t i = 0; i < 25; ++i) EXPECT_EQ(dense.at(i), i % 5 == 4 - i / 5 ? 2 * x.at(i % 5) : 0);
  }
}

TEST(JacobianStructureOfLayers, BatchNormInTrainingIsNotBlockDiagonal) {
  const nn::Sequential model(nn::Linear(3, 6), nn::BatchNorm(6), nn::Activation("tanh"), nn::Linear(6, 2));
  const Tree<Array> params = model.init(0, DType::F64), buffers = model.init_buffers(DType::F64);
  for (const bool training : {true, false}) {
    const Function fn = [&](Values v) {
      nn::Context context;
      context.training = training;
      context.buffers = buffers.map([](const Array& a) { return constant(a); });
      return std::vector{model.apply(params.map([](const Array& a) { return constant(a); }), v[0], context)};
    };
    std::mt19937_64 rng(5);
    const Arrays at{random_like(rng, f64({7, 3}))};
    std::shared_ptr<const JacobianStructure> structure;
    const Array dense = evaluate(
        [&](Values v) {
          const Jacobian j = jacobian(fn)(v);
          structure = j.shared_structure();
          return std::vector{j.dense()};
        },
        at)[0];
    EXPECT_EQ(structure->paired, training ? Pairs{} : (Pairs{{0, 0}})) << structure->explain();
    expect_close({dense}, {evaluate(jacfwd(fn), at)[0]}, 1e-12, "dense() and jacfwd");
    // Row 0 does depend on row 1, in training.
    EXPECT_EQ(dense.at(3) != 0, training);
  }
}

}  // namespace
}  // namespace hotloop::testing
