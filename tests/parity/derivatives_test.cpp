// Derivatives of random networks and recurrent cells are those that JAX computes (scripts/record_derivatives.py).
#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>

#include "hotloop/jacobian.h"
#include "hotloop/jit.h"
#include "hotloop/ops.h"
#include "test_dir.h"

namespace hotloop {
namespace {

using Json = nlohmann::ordered_json;
using Values = std::span<const Value>;

const Json& recorded() {
  static const Json document = Json::parse(std::ifstream(testing::test_dir() + "/parity/data/jax_derivatives.json"));
  return document.at("cases");
}

Array array_of(const Json& json) {
  return Array::from(json.at("data").get<std::vector<double>>(),
                     Shape(json.at("shape").get<std::vector<std::int64_t>>()));
}

Value activation(const std::string& name, Value x) {
  if (name == "tanh") return tanh(x);
  if (name == "sigmoid") return sigmoid(x);
  if (name == "softplus") return softplus(x);
  if (name == "sin") return sin(x);
  if (name == "gelu") return gelu(x);
  if (name == "softmax") return softmax(x, 1);
  if (name == "exp") return exp(x);
  return square(x);
}

// x (B, T, I) over time; step(states, x_t) -> states.
Value last_state(Value x, std::int64_t hidden, std::size_t num_states,
                 const std::function<std::vector<Value>(Values, Value)>& step) {
  const Value zero = constant(0, x.dtype(), {x.shape()[0], hidden});
  const std::vector<Value> init(num_states, zero);
  const Value xs[] = {transpose(x, {1, 0, 2})};
  return scan(
             [&](Values s, Values x_t) {
               return std::pair{step(s, x_t[0]), std::vector<Value>{}};
             },
             init, xs)
      .first[0];
}

std::vector<Value> run(const Json& json, Values v) {
  const std::string kind = json.at("kind");
  if (kind == "mlp") {
    Value x = v[0];
    std::size_t k = 1;
    for (const auto& name : json.at("activations")) {
      x = activation(name, matmul(x, v[k]) + v[k + 1]);
      k += 2;
    }
    return {matmul(x, v[k])};
  }
  const std::int64_t hidden = v[2].shape()[0];
  const auto part = [&](Value all, std::int64_t k) { return narrow(all, 1, k * hidden, hidden); };
  if (kind == "lstm")
    return {last_state(v[0], hidden, 2, [&](Values s, Value x) {
      const Value gates = matmul(x, v[1]) + matmul(s[0], v[2]) + v[3];
      const Value c = sigmoid(part(gates, 1)) * s[1] + sigmoid(part(gates, 0)) * tanh(part(gates, 2));
      return std::vector{sigmoid(part(gates, 3)) * tanh(c), c};
    })};
  return {last_state(v[0], hidden, 1, [&](Values s, Value x) {
    const Value from_x = matmul(x, v[1]), from_h = matmul(s[0], v[2]);
    const Value r = sigmoid(part(from_x, 0) + part(from_h, 0)), z = sigmoid(part(from_x, 1) + part(from_h, 1));
    return std::vector{(1.0 - z) * tanh(part(from_x, 2) + r * part(from_h, 2)) + z * s[0]};
  })};
}

class JaxDerivatives : public ::testing::TestWithParam<std::size_t> {};

void expect_same(const Array& got, const Array& wanted, const std::string& what) {
  ASSERT_EQ(got.shape(), wanted.shape()) << what;
  for (std::int64_t i = 0; i < got.size(); ++i)
    ASSERT_NEAR(got.at(i), wanted.at(i), 1e-10 * (1 + std::abs(wanted.at(i)))) << what << ", element " << i;
}

TEST_P(JaxDerivatives, AreOurs) {
  const Json& json = recorded().at(GetParam());
  std::vector<Array> inputs{array_of(json.at("x"))};
  for (const Json& p : json.at("params")) inputs.push_back(array_of(p));
  const std::size_t n = inputs.size();
  for (const Json& v : json.at("vector")) inputs.push_back(array_of(v));

  const Function fn = [&](Values v) { return run(json, v); };
  const Function loss = [&](Values v) { return std::vector{sum(sin(run(json, v)[0]))}; };
  std::vector<int> params, shared(n, -1);
  for (std::size_t i = 1; i < n; ++i) params.push_back(static_cast<int>(i));
  shared[0] = 0;
  // Products and gradients of the parameters come after x's derivatives, in the order of the parameters.
  const Function all = [&](Values in) {
    const Values v = in.first(n);
    std::vector<Value> vectors{Value{}};
    vectors.insert(vectors.end(), in.begin() + static_cast<std::ptrdiff_t>(n), in.end());
    std::vector<Value> outputs{jacfwd(fn)(v)[0],
                               jacrev(fn)(v)[0],
                               jacobian(fn)(v).dense(),
                               hessian(loss)(v)[0],
                               sparse_hessian(loss)(v).dense(),
                               laplacian(loss)(v)[0]};
    const std::vector<Value> products = hvp(loss, v, vectors);
    outputs.insert(outputs.end(), products.begin() + 1, products.end());
    const Function of_row = [&](Values one) {
      std::vector<Value> with_batch(one.begin(), one.end());
      with_batch[0] = expand_dims(one[0], 0);
      return loss(with_batch);
    };
    for (const Value& g : per_sample_grad(of_row, params, shared)(v)) outputs.push_back(g);
    return outputs;
  };
  const std::vector<Array> got = jit(all)(inputs);
  for (const std::size_t i : {0, 1, 2}) expect_same(got[i], array_of(json.at("jacobian")), "Jacobian");
  for (const std::size_t i : {3, 4}) expect_same(got[i], array_of(json.at("hessian")), "Hessian");
  expect_same(got[5], array_of(json.at("laplacian")), "Laplacian");
  for (std::size_t k = 0; k + 1 < n; ++k) {
    expect_same(got[6 + k], array_of(json.at("hvp").at(k)), "Hessian-vector product");
    expect_same(got[6 + n - 1 + k], array_of(json.at("per_sample_grad").at(k)), "per-sample gradient");
  }
}

INSTANTIATE_TEST_SUITE_P(All, JaxDerivatives, ::testing::Range(std::size_t{0}, recorded().size()),
                         [](const auto& info) {
                           return recorded().at(info.param).at("name").template get<std::string>();
                         });

}  // namespace
}  // namespace hotloop
