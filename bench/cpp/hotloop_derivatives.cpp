// Jacobians of perceptrons; Hessian-vector products, per-sample gradients and forward mode of an LSTM.
#include <memory>
#include <string>
#include <vector>

#include "hotloop/hotloop.h"
#include "hotloop_kinds.h"

namespace hotloop::bench {
namespace {

using Values = std::span<const Value>;

// tanh layers and a linear one: x, w0, b0, w1, b1, ...
std::vector<Value> mlp(Values v) {
  Value h = v[0];
  for (std::size_t k = 1; k + 1 < v.size(); k += 2) {
    h = matmul(h, v[k]) + v[k + 1];
    if (k + 2 < v.size()) h = tanh(h);
  }
  return {h};
}

// All outputs (T, B, H) of an LSTM on x (T, B, I), from zero states.
Value lstm(Value x, Value wx, Value wh, Value b) {
  const std::int64_t hidden = wh.shape()[0];
  const Value zero = constant(0, DType::F32, {x.shape()[1], hidden});
  const Value init[] = {zero, zero}, xs[] = {x};
  return scan(
             [&](Values carry, Values x_t) {
               const Value gates = matmul(x_t[0], wx) + matmul(carry[0], wh) + b;
               const auto gate = [&](std::int64_t k) { return narrow(gates, 1, k * hidden, hidden); };
               const Value c = sigmoid(gate(1)) * carry[1] + sigmoid(gate(0)) * tanh(gate(2));
               const Value h = sigmoid(gate(3)) * tanh(c);
               return std::pair{std::vector<Value>{h, c}, std::vector<Value>{h}};
             },
             init, xs)
      .second[0];
}

// Mean squared error of a linear head on the last output: wx, wh, b, wo, bo, x, y.
std::vector<Value> loss(Values v) {
  const Value last = take(lstm(v[5], v[0], v[1], v[2]), 0, -1);
  return {mean(square(matmul(last, v[3]) + v[4] - v[6]))};
}

// The program on the inputs of these names; its outputs are called `results`.
Prepared prepare(const TracedFunction& fn, const Arrays& inputs, const std::vector<std::string>& names,
                 const std::vector<std::string>& results, int threads) {
  struct Now {
    Executable run;
    std::vector<Array> in, out;
  };
  std::vector<Array> in;
  std::vector<ValueType> types;
  for (const std::string& name : names) {
    in.push_back(inputs.at(name));
    types.push_back(in.back().type());
  }
  CompileOptions options;
  options.threads = threads;
  const auto now = std::make_shared<Now>(Now{compile(trace(fn, types), options), in, {}});
  now->out.resize(now->run.output_types().size());
  const auto call = [now] { now->run.run(now->in, now->out); };
  call();
  Arrays given;
  for (std::size_t i = 0; i < results.size(); ++i) given[results[i]] = now->out[i].clone();
  return {call, given};
}

}  // namespace

Prepared jacobian(const Sizes& sizes, const Arrays& inputs, int threads) {
  std::vector<std::string> names = {"x"};
  for (int k = 0; inputs.contains("w" + std::to_string(k)); ++k) {
    names.push_back("w" + std::to_string(k));
    names.push_back("b" + std::to_string(k));
  }
  const bool dense = sizes["dense"] != 0;
  const auto fn = [dense](Values v) {
    const Jacobian j = hotloop::jacobian(mlp)(v);
    return std::vector<Value>{dense ? j.dense() : j.blocks()};
  };
  return prepare(fn, inputs, names, {"jacobian"}, threads);
}

Prepared lstm_derivative(const Sizes& sizes, const Arrays& inputs, int threads) {
  const std::vector<std::string> params = {"wx", "wh", "b", "wo", "bo"};
  const std::string& what = sizes.text("what");
  std::vector<std::string> names = params;
  names.insert(names.end(), {"x", "y"});
  if (what == "hvp") {
    for (const std::string& p : params) names.push_back("v_" + p);
    const auto fn = [](Values v) {
      std::vector<Value> vectors(v.begin() + 7, v.end());
      vectors.resize(7);
      std::vector<Value> products = hvp(loss, v.first(7), vectors);
      products.resize(5);
      return products;
    };
    return prepare(fn, inputs, names, params, threads);
  }
  if (what == "hvp_x") {
    names.push_back("v_x");
    const auto fn = [](Values v) {
      const Function of_x = [&](Values x) {
        std::vector<Value> all(v.begin(), v.begin() + 7);
        all[5] = x[0];
        return loss(all);
      };
      return hvp(of_x, v.subspan(5, 1), v.subspan(7, 1));
    };
    return prepare(fn, inputs, names, {"x"}, threads);
  }
  if (what == "per_sample" || what == "per_sample_x") {
    const auto one = [](Values v) {
      std::vector<Value> row(v.begin(), v.end());
      row[5] = expand_dims(v[5], 1);
      row[6] = expand_dims(v[6], 0);
      return loss(row);
    };
    const std::vector<int> axes = {-1, -1, -1, -1, -1, 1, 0};
    if (what == "per_sample")
      return prepare(per_sample_grad(one, {0, 1, 2, 3, 4}, axes), inputs, names, params, threads);
    // Rows first, as vmap gives them; the task's arrays are time-major.
    const auto by_x = [one, axes](Values v) {
      return std::vector{transpose(per_sample_grad(one, {5}, axes)(v)[0], {1, 0, 2})};
    };
    return prepare(by_x, inputs, names, {"x"}, threads);
  }
  names.push_back("v_x");
  const auto fn = [](Values v) {
    const Function outputs = [&](Values in) { return std::vector{lstm(in[0], v[0], v[1], v[2])}; };
    const auto [primal, tangent] = jvp(outputs, v.subspan(5, 1), v.subspan(7, 1));
    return std::vector{primal[0], tangent[0]};
  };
  return prepare(fn, inputs, names, {"outputs", "tangents"}, threads);
}

}  // namespace hotloop::bench
