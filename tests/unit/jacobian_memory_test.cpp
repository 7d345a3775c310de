// Derivatives take little memory besides what they return.
#include <gtest/gtest.h>

#include "hotloop/hotloop.h"
#include "perceptron_jacobians.h"

namespace hotloop {
namespace {

// At most twice what is returned and 64 MB, by the memory plan: arena and one worker.
struct MemoryCase {
  std::string name;
  Function fn;  // gives the derivatives
  std::vector<ValueType> types;
};
void PrintTo(const MemoryCase& c, std::ostream* out) { *out << c.name; }

std::vector<Value> last_of_lstm(Values v) {  // x (B, T, I), weight_ih, weight_hh, bias_ih, bias_hh
  const nn::LSTM layer(v[0].shape()[2], v[2].shape()[1]);
  const Tree<Value> params = Tree<Value>::from_names(
      {{"weight_ih_l0", v[1]}, {"weight_hh_l0", v[2]}, {"bias_ih_l0", v[3]}, {"bias_hh_l0", v[4]}});
  nn::Context context;
  return {take(layer.apply(params, v[0], context), 1, -1)};
}

std::vector<MemoryCase> memory_cases() {
  enum Form { Blocks, Dense, Sparse };
  const auto form_of = [](const Function& fn, Form form) {
    return Function([fn, form](Values v) {
      const Jacobian j = jacobian(fn)(v);
      return std::vector{form == Blocks ? j.blocks() : form == Dense ? j.dense() : j.sparse()};
    });
  };
  const auto net_case = [&](const std::string& name, Net net, std::int64_t batch, Form form) {
    net.batch = batch;
    return MemoryCase{name, form_of([net](Values v) { return apply(net, v); }, form), types_of(net)};
  };
  const auto f32 = [](Shape shape) { return ValueType{DType::F32, shape}; };
  const auto lstm_types = [&](std::int64_t batch, std::int64_t steps, std::int64_t inputs, std::int64_t hidden) {
    return std::vector{f32({batch, steps, inputs}), f32({4 * hidden, inputs}), f32({4 * hidden, hidden}),
                       f32({4 * hidden}), f32({4 * hidden})};
  };
  const Function stencil = [](Values v) {  // a band of three in each row of a batch
    const Value u = v[0], zero = like(u, 0);
    const std::int64_t n = u.shape()[1];
    return std::vector{u * u + pad(narrow(u, 1, 1, n - 1), zero, {0, 0}, {0, 1}) +
                       pad(narrow(u, 1, 0, n - 1), zero, {0, 1}, {0, 0})};
  };
  // theta (P) of 8-46-46-1, x (N, 8)
  const Function loss = [](Values v) {
    Value h = v[1];
    std::int64_t at = 0;
    const std::int64_t widths[] = {8, 46, 46, 1};
    for (int l = 0; l < 3; ++l) {
      h = matmul(h, reshape(narrow(v[0], 0, at, widths[l] * widths[l + 1]), {widths[l], widths[l + 1]}));
      at += widths[l] * widths[l + 1];
      if (l < 2) h = tanh(h);
    }
    return std::vector{mean(square(h))};
  };
  const Function chain = [](Values v) {  // tridiagonal Hessian, a row of a batch each
    const std::int64_t n = v[0].shape()[1];
    return std::vector{sum(square(sin(narrow(v[0], 1, 1, n - 1)) - square(narrow(v[0], 1, 0, n - 1))))};
  };
  const Function last_sum = [](Values v) {
    std::vector<Value> row(v.begin(), v.end());
    row[0] = expand_dims(v[0], 0);
    return std::vector{sum(square(last_of_lstm(row)[0]))};
  };
  // Members of an ensemble on shared data: theta (E, P), x (N, 8), y (N).
  const Function residuals = vmap(
      [](Values v) {
        const Value h = tanh(matmul(v[1], reshape(narrow(v[0], 0, 0, 128), {8, 16})));
        return std::vector{reshape(matmul(h, reshape(narrow(v[0], 0, 128, 16), {16, 1})), {v[1].shape()[0]}) - v[2]};
      },
      {0, -1, -1});
  // Along v, by the inputs x (B, T, I).
  const Function product = [](Values v) {
    const Function of_x = [&](Values x) {
      std::vector<Value> all(v.begin(), v.begin() + 5);
      all[0] = x[0];
      return std::vector{sum(square(last_of_lstm(all)[0]))};
    };
    return hvp(of_x, v.first(1), v.subspan(5, 1));
  };
  std::vector<ValueType> product_types = lstm_types(2000, 60, 12, 48);
  product_types.push_back(product_types[0]);
  const Net seed{"seed", {1, 20, 20, 400}, tanh};
  return {
      net_case("blocks_of_100", seed, 100, Blocks),
      net_case("blocks_of_100000", seed, 100000, Blocks),
      net_case("dense_of_100", seed, 100, Dense),
      net_case("dense_of_1000", seed, 1000, Dense),
      net_case("reverse", {"", {8, 16, 16, 3}, tanh}, 50000, Blocks),
      net_case("autoencoder", {"", {200, 10, 200}, tanh}, 1000, Blocks),
      {"sparse_stencils", form_of(stencil, Sparse), {f32({20000, 64})}},
      {"blocks_of_stencils", form_of(stencil, Blocks), {f32({5000, 64})}},
      {"lstm", form_of(last_of_lstm, Blocks), lstm_types(64, 30, 4, 16)},
      {"lstm_per_sample", per_sample_grad(last_sum, {1, 2, 3, 4}, {0, -1, -1, -1, -1}), lstm_types(1000, 60, 12, 48)},
      {"lstm_hvp", product, product_types},
      {"residuals_of_an_ensemble", form_of(residuals, Blocks), {f32({32, 144}), f32({5000, 8}), f32({5000})}},
      {"hessian", hessian(loss), {f32({2530}), f32({5000, 8})}},
      {"sparse_hessian", [=](Values v) { return std::vector{sparse_hessian(chain)(v).sparse()}; }, {f32({20000, 32})}},
      {"hessian_diagonal", hessian_diagonal(chain), {f32({200000, 32})}},
  };
}

class JacobianMemory : public ::testing::TestWithParam<MemoryCase> {};

TEST_P(JacobianMemory, IsAtMostTwiceTheResultAnd64Megabytes) {
  const auto graph = trace(GetParam().fn, GetParam().types);
  const kernel::Program program = program_of(*graph);
  std::int64_t returned = 0;
  for (const ValueType& type : graph->output_types())
    returned += type.shape.size() * static_cast<std::int64_t>(size_of(type.dtype));
  EXPECT_LE(program.shared_bytes + program.worker_bytes, returned + 64'000'000)
      << "returned: " << returned << "\n"
      << kernel::print(program).substr(0, 3000);
}

INSTANTIATE_TEST_SUITE_P(All, JacobianMemory, ::testing::ValuesIn(memory_cases()),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace hotloop
