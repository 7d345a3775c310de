// Dense Jacobians, Hessians and products with them: forward, reverse and differences agree, through layers, loops and cells.
#include <algorithm>
#include <cmath>

#include "derivative_checks.h"
#include "hotloop/jacobian.h"
#include "hotloop/jit.h"
#include "property/cells.h"

namespace hotloop::testing {
namespace {

using Values = std::span<const Value>;

ValueType f64(std::initializer_list<std::int64_t> shape) { return {DType::F64, Shape(shape)}; }

struct Case {
  std::string name;
  Function fn;
  std::vector<ValueType> inputs;
};
void PrintTo(const Case& c, std::ostream* out) { *out << c.name; }

Arrays random_inputs(const Case& c, std::uint64_t seed) {
  std::mt19937_64 rng(seed);
  Arrays at;
  for (const ValueType& t : c.inputs) at.push_back(random_like(rng, t));
  return at;
}

// The last h and every h.
std::vector<Value> lstm(Values v) {
  const std::vector<Value> all = cells::run_lstm(v);
  return {all[0], all[2]};
}
std::vector<Value> gru(Values v) {
  const std::vector<Value> all = cells::run_gru(v);
  return {all[0], all[1]};
}

std::vector<Value> until_large(Values v) {
  const Value growth = v[1], init[] = {v[0] * 0.1 + 0.5};
  return while_loop([](Values c) { return less(reduce_max(c[0], {0}), like(c[0], 6)); },
                    [&](Values c) { return std::vector<Value>{c[0] * (1.3 + 0.1 * sin(growth)) + 0.1}; }, init, 12);
}

std::vector<Case> cases() {
  return {
      {"mlp",
       [](Values v) { return std::vector{matmul(tanh(matmul(v[0], v[1]) + v[2]), v[3])}; },
       {f64({4, 3}), f64({3, 5}), f64({5}), f64({5, 2})}},
      {"vector",
       [](Values v) {
         return std::vector{matmul(v[1], v[0]), sum(v[0] * v[0])};
       },
       {f64({4}), f64({3, 4})}},
      {"scalar", [](Values v) { return std::vector{sin(v[0]) * v[1]}; }, {f64({}), f64({})}},
      {"mixing",
       [](Values v) {
         return std::vector{softmax(v[0] * v[1], 1), transpose(exp(v[0] * 0.3), {1, 0})};
       },
       {f64({3, 4}), f64({3, 4})}},
      {"lstm", lstm, {f64({3, 2, 2}), f64({2, 3}), f64({2, 3}), f64({5, 12}), f64({12})}},
      {"gru", gru, {f64({3, 2, 2}), f64({2, 3}), f64({2, 9}), f64({3, 9})}},
      {"while", until_large, {f64({3}), f64({3})}},
      {"empty",
       [](Values v) {
         return std::vector{sum(v[0]) * v[1], v[0] * 2.0};
       },
       {f64({0}), f64({2})}},
      {"unused", [](Values v) { return std::vector{v[1] * 2.0}; }, {f64({2}), f64({3})}},
  };
}

class DenseJacobian : public ::testing::TestWithParam<Case> {};

std::vector<int> all_argnums(const Case& c) {
  std::vector<int> all;
  for (int i = 0; i < static_cast<int>(c.inputs.size()); ++i) all.push_back(i);
  return all;
}

// Column by column by central differences of fourth order, good to about 1e-11.
Arrays by_differences(const Case& c, const Arrays& at) {
  const Arrays y = evaluate(c.fn, at);
  std::vector<Array> result;
  for (const Array& out : y)
    for (const Array& x : at) {
      Shape shape = out.shape();
      for (const std::int64_t d : x.shape().dims()) shape.push_back(d);
      result.push_back(Array::zeros(DType::F64, shape));
    }
  const auto graph = trace(c.fn, c.inputs);
  const double step = 1e-3;
  for (std::size_t i = 0; i < at.size(); ++i)
    for (std::int64_t column = 0; column < at[i].size(); ++column) {
      Arrays direction;
      for (const Array& a : at) direction.push_back(Array::zeros(DType::F64, a.shape()));
      direction[i].set(column, 1);
      const auto moved = [&](double by) { return ir::evaluate(*graph, shifted(at, direction, by * step)); };
      const Arrays p1 = moved(1), m1 = moved(-1), p2 = moved(2), m2 = moved(-2), p3 = moved(3), m3 = moved(-3);
      for (std::size_t k = 0; k < y.size(); ++k)
        for (std::int64_t row = 0; row < y[k].size(); ++row) {
          const double d = (45 * (p1[k].at(row) - m1[k].at(row)) - 9 * (p2[k].at(row) - m2[k].at(row)) +
                            (p3[k].at(row) - m3[k].at(row))) /
                           (60 * step);
          result[k * at.size() + i].set(row * at[i].size() + column, d);
        }
    }
  return result;
}

TEST_P(DenseJacobian, ForwardReverseAndDifferencesAgree) {
  const Case& c = GetParam();
  const Arrays at = random_inputs(c, 1);
  const std::vector<int> argnums = all_argnums(c);
  const Arrays forward = evaluate(jacfwd(c.fn, argnums), at), reverse = evaluate(jacrev(c.fn, argnums), at);
  expect_close(forward, reverse, 1e-12, "jacfwd and jacrev");
  expect_close(forward, by_differences(c, at), 1e-10, "jacfwd and differences");
}

TEST_P(DenseJacobian, CompiledAndBatched) {
  const Case& c = GetParam();
  const Arrays at = random_inputs(c, 2);
  const std::vector<int> argnums = all_argnums(c);
  for (const Function& fn : {jacfwd(c.fn, argnums), jacrev(c.fn, argnums)}) {
    expect_close(jit(fn)(at), evaluate(fn, at), 1e-12, "compiled and the oracle");
    if (HasFatalFailure()) return;
    std::mt19937_64 rng(3);
    check_vmap(fn, at, std::vector<int>(at.size(), 0), 2, rng, c.name);
    if (HasFatalFailure()) return;
  }
}

TEST_P(DenseJacobian, HessianAndItsProducts) {
  const Case& c = GetParam();
  const Arrays at = random_inputs(c, 4);
  const std::vector<int> argnums = all_argnums(c);
  const Function loss = scalar_of(c.fn), gradient = grad(loss, argnums);
  const Arrays dense = evaluate(hessian(loss, argnums), at);
  expect_close(dense, evaluate(jacrev(gradient, argnums), at), 1e-11, "hessian, reverse over reverse");
  std::mt19937_64 rng(5);
  const Arrays v = directions(rng, at);
  const std::size_t n = at.size();
  const Arrays product = evaluate([&](Values in) { return hvp(loss, in.first(n), in.subspan(n)); }, joined(at, v));
  for (std::size_t i = 0; i < n; ++i)
    for (std::int64_t row = 0; row < at[i].size(); ++row) {
      double expected = 0;
      for (std::size_t j = 0; j < n; ++j)
        for (std::int64_t k = 0; k < at[j].size(); ++k)
          expected += dense[i * n + j].at(row * at[j].size() + k) * v[j].at(k);
      EXPECT_NEAR(product[i].at(row), expected, 1e-10 * (1 + std::abs(expected)));
    }
  const Arrays trace_of = evaluate(laplacian(loss), at);
  double expected = 0;
  for (std::int64_t k = 0; k < at[0].size(); ++k) expected += dense[0].at(k * at[0].size() + k);
  EXPECT_NEAR(trace_of[0].at(0), expected, 1e-10 * (1 + std::abs(expected)));
}

INSTANTIATE_TEST_SUITE_P(All, DenseJacobian, ::testing::ValuesIn(cases()),
                         [](const auto& info) { return info.param.name; });

// y = W3 tanh(W2 tanh(W1 x)): dy/dx = W3 diag(1 - h2^2) W2 diag(1 - h1^2) W1.
TEST(DenseJacobianOfMlp, IsTheChainOfDiagonals) {
  const Function mlp = [](Values v) { return std::vector{matmul(v[3], tanh(matmul(v[2], tanh(matmul(v[1], v[0])))))}; };
  const std::vector<ValueType> types{f64({3}), f64({7, 3}), f64({6, 7}), f64({4, 6})};
  const Arrays at = random_inputs({"mlp", mlp, types}, 6);
  const Arrays closed = evaluate(
      [](Values v) {
        const Value h1 = tanh(matmul(v[1], v[0])), h2 = tanh(matmul(v[2], h1));
        const auto scaled = [](Value h, Value w) { return broadcast(1.0 - h * h, w.shape(), {0}) * w; };
        return std::vector{matmul(v[3], scaled(h2, matmul(v[2], scaled(h1, v[1]))))};
      },
      at);
  expect_close(evaluate(jacfwd(mlp), at), closed, 1e-13, "jacfwd and the closed form");
  expect_close(evaluate(jacrev(mlp), at), closed, 1e-13, "jacrev and the closed form");
}

// A least-squares model of which everything is known.
struct Regression {
  Arrays at;  // w[3], x[5, 3], t[5]
  Function residuals = [](Values v) { return std::vector{matmul(v[1], v[0]) - v[2]}; };
  Function losses = [](Values v) {
    const Value e = matmul(v[1], v[0]) - v[2];
    return std::vector{0.5 * e * e};
  };
  Regression() { at = random_inputs({"regression", {}, {f64({3}), f64({5, 3}), f64({5})}}, 7); }
};

TEST(Curvature, GaussNewtonOfALinearModelIsItsHessian) {
  const Regression r;
  std::mt19937_64 rng(8);
  const Array v = random_like(rng, r.at[0].type());
  const Function mean_square = [](Values e) { return std::vector{0.5 * sum(e[0] * e[0])}; };
  const auto product = [&](bool gauss_newton) {
    return evaluate(
        [&](Values in) {
          const Value vectors[] = {in[3], Value{}, Value{}};
          if (gauss_newton) return std::vector{gauss_newton_vp(r.residuals, mean_square, in.first(3), vectors)[0]};
          return std::vector{hvp([&](Values p) { return mean_square(r.residuals(p)); }, in.first(3), vectors)[0]};
        },
        joined(r.at, {v}));
  };
  expect_close(product(true), product(false), 1e-12, "Gauss-Newton and the Hessian");
}

TEST(Curvature, FisherIsTheMeanOfOuterProductsOfPerSampleGradients) {
  const Regression r;
  std::mt19937_64 rng(9);
  const Array v = random_like(rng, r.at[0].type());
  const Arrays product = evaluate(
      [&](Values in) {
        const Value vectors[] = {in[3], Value{}, Value{}};
        return std::vector{fisher_vp(r.losses, in.first(3), vectors)[0]};
      },
      joined(r.at, {v}));
  const Function one = [](Values p) {
    const Value e = sum(p[1] * p[0]) - p[2];
    return std::vector{0.5 * e * e};
  };
  const Arrays rows = evaluate(per_sample_grad(one, {0}, {-1, 0, 0}), r.at);
  ASSERT_EQ(rows[0].shape(), (Shape{5, 3}));
  for (std::int64_t i = 0; i < 3; ++i) {
    double expected = 0;
    for (std::int64_t s = 0; s < 5; ++s) {
      double along = 0;
      for (std::int64_t j = 0; j < 3; ++j) along += rows[0].at(s * 3 + j) * v.at(j);
      expected += rows[0].at(s * 3 + i) * along / 5;
    }
    EXPECT_NEAR(product[0].at(i), expected, 1e-12);
  }
}

TEST(Curvature, LaplacianOfAHarmonicFunctionIsZero) {
  // exp(x) sin(y), batched over points; and of |x|^2 it is twice the dimension.
  const Function harmonic = [](Values v) { return std::vector{exp(take(v[0], 0, 0)) * sin(take(v[0], 0, 1))}; };
  const Function square = [](Values v) { return std::vector{sum(v[0] * v[0])}; };
  std::mt19937_64 rng(10);
  const Arrays points{random_like(rng, f64({6, 2}))};
  const Array zero = evaluate(vmap(laplacian(harmonic), {0}), points)[0];
  const Array four = evaluate(vmap(laplacian(square), {0}), points)[0];
  for (std::int64_t i = 0; i < 6; ++i) {
    EXPECT_NEAR(zero.at(i), 0, 1e-13);
    EXPECT_NEAR(four.at(i), 4, 1e-13);
  }
}

TEST(Rtrl, GradientsOfEveryStepAreThoseOfBackpropagationThroughTime) {
  // h' = tanh(U h + W x), loss = |h' - x|^2; at every step the gradient of that step's loss.
  const Function step = [](Values v) {
    const Value h = tanh(matmul(v[0], v[2]) + matmul(v[1], v[3])), e = h - v[3];
    return std::vector{h, sum(e * e)};
  };
  std::mt19937_64 rng(11);
  const Array u = random_like(rng, f64({3, 3})), w = random_like(rng, f64({3, 3})), xs = random_like(rng, f64({6, 3}));
  const Arrays online = evaluate(
      [&](Values v) {
        const Value init[] = {constant(0, DType::F64, {3}), constant(0, DType::F64, {18, 3})}, rows[] = {v[2]};
        return scan(
                   [&](Values carry, Values x) {
                     const Value in[] = {v[0], v[1], carry[0], carry[1], x[0]};
                     const auto out = rtrl(step, 2, 1)(in);
                     return std::pair{std::vector<Value>{out[0], out[2]}, std::vector<Value>{out[1], out[3], out[4]}};
                   },
                   init, rows)
            .second;
      },
      {u, w, xs});
  for (std::int64_t t = 1; t <= 6; ++t) {
    const Function last_loss = [&](Values v) {
      const Value init[] = {constant(0, DType::F64, {3}), constant(0, DType::F64)}, rows[] = {narrow(v[2], 0, 0, t)};
      const auto carry = scan(
                             [&](Values c, Values x) {
                               const Value in[] = {v[0], v[1], c[0], x[0]};
                               return std::pair{step(in), std::vector<Value>{}};
                             },
                             init, rows)
                             .first;
      return std::vector{carry[1]};
    };
    const Arrays expected = evaluate(value_and_grad(last_loss, {0, 1}), {u, w, xs});
    EXPECT_NEAR(online[0].at(t - 1), expected[0].at(0), 1e-13);
    for (std::int64_t i = 0; i < 9; ++i) {
      EXPECT_NEAR(online[1].at((t - 1) * 9 + i), expected[1].at(i), 1e-12) << "dU at step " << t;
      EXPECT_NEAR(online[2].at((t - 1) * 9 + i), expected[2].at(i), 1e-12) << "dW at step " << t;
    }
  }
}

// WGAN-GP (Gulrajani et al. 2017) with a recurrent critic: the gradient of a penalty on the gradient with respect to the input.
TEST(DoubleBackward, ThroughARecurrentCritic) {
  const std::vector<ValueType> types{f64({3, 2, 2}), f64({2, 3}), f64({2, 3}), f64({5, 12}), f64({12})};
  const Function critic = [](Values v) { return std::vector{sum(lstm(v)[0])}; };
  const Function penalty = [&](Values v) {
    const Value g = grad(critic, {0})(v)[0];
    const Value norm = sqrt(reduce_sum(g * g, {0, 2}) + 1e-12);
    return std::vector{mean(square(norm - 1.0))};
  };
  std::mt19937_64 rng(12);
  const Arrays at = random_inputs({"critic", critic, types}, 13);
  check_jvp(grad(penalty, {3, 4}), at, rng, "gradient of the gradient penalty");
  expect_close(jit(grad(penalty, {3, 4}))(at), evaluate(grad(penalty, {3, 4}), at), 1e-12, "compiled");
}

TEST(ManyDirections, AreTheDirectionsOneByOne) {
  std::mt19937_64 rng(14);
  const Case c = cases()[4];
  const Arrays at = random_inputs(c, 15);
  std::vector<ValueType> stacked;
  for (const ValueType& t : c.inputs) stacked.push_back({t.dtype, t.shape.with_inserted(0, 3)});
  Arrays tangents;
  for (const ValueType& t : stacked) tangents.push_back(random_like(rng, t));
  const std::size_t n = at.size();
  const Arrays many =
      evaluate([&](Values v) { return jvp_many(c.fn, v.first(n), v.subspan(n)).second; }, joined(at, tangents));
  const Arrays looped = evaluate(vmap(jvp_of(c.fn),
                                      [&] {
                                        std::vector<int> axes(2 * n, -1);
                                        std::fill(axes.begin() + static_cast<std::ptrdiff_t>(n), axes.end(), 0);
                                        return axes;
                                      }()),
                                 joined(at, tangents));
  expect_close(many, looped, 1e-13, "jvp_many");
  // The pullback of many cotangents is adjoint to it.
  Arrays cotangents;
  for (const Array& a : many) cotangents.push_back(random_like(rng, a.type()));
  const Arrays back =
      evaluate([&](Values v) { return vjp_many(c.fn, v.first(n)).second(v.subspan(n)); }, joined(at, cotangents));
  EXPECT_NEAR(inner(many, cotangents), inner(back, tangents), 1e-10);
}

}  // namespace
}  // namespace hotloop::testing
