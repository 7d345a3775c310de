// Differential equations: a neural one trained in one call, an ensemble, a gradient.
#include <memory>
#include <string>
#include <vector>

#include "hotloop/hotloop.h"
#include "hotloop_kinds.h"

namespace hotloop::bench {
namespace {

using Values = std::span<const Value>;

const std::vector<std::string> weights = {"w0", "b0", "w1", "b1"};

// w1 tanh(w0 x + b0) + b1.
Value net(const Tree<Value>& p, Value x) { return matmul(p["w1"], tanh(matmul(p["w0"], x) + p["b0"])) + p["b1"]; }

Tree<Value> net_field(Value, const Tree<Value>& y, const Tree<Value>& args) { return Tree<Value>(net(args, y.leaf())); }

// The weights, then these inputs, as arguments of a program.
std::vector<Array> arguments_of(const Arrays& inputs, const std::vector<std::string>& others) {
  std::vector<Array> arguments;
  for (const std::string& name : weights) arguments.push_back(inputs.at(name));
  for (const std::string& name : others) arguments.push_back(inputs.at(name));
  return arguments;
}

Tree<Value> weights_of(Values v) {
  Tree<Value> tree;
  for (std::size_t i = 0; i < weights.size(); ++i) tree.set(weights[i], v[i]);
  return tree;
}

std::shared_ptr<Executable> compiled(const TracedFunction& fn, const std::vector<Array>& arguments, int threads) {
  std::vector<ValueType> types;
  for (const Array& a : arguments) types.push_back(a.type());
  CompileOptions options;
  options.threads = threads;
  return std::make_shared<Executable>(compile(trace(fn, types), options));
}

std::vector<double> even_times(double end, int count) {
  std::vector<double> ts;
  for (int i = 0; i < count; ++i) ts.push_back(end * i / (count - 1));
  ts.back() = end;
  return ts;
}

// Squared differences of a solution from `data` at as many even times up to `end`, added up; both tolerances as given.
Value misfit(const ode::Field& field, const Tree<Value>& args, Value y0, Value data, double end, double rtol,
             double atol) {
  ode::Options options;
  options.saveat = ode::SaveAt::times(even_times(end, static_cast<int>(data.shape()[0])));
  options.dt0 = 0.01;
  options.controller = ode::PID(rtol, atol);
  options.args = args;
  return sum(square(ode::solve(field, ode::Tsit5(), 0, end, y0, options).ys.leaf() - data));
}

}  // namespace

Prepared ode_training(const Sizes& sizes, const Arrays& inputs, int threads) {
  std::vector<Array> arguments = arguments_of(inputs, {"y0", "data"});
  const std::int64_t iterations = sizes["iterations"];
  Tree<Array> params;
  for (std::size_t i = 0; i < weights.size(); ++i) params.set(weights[i], arguments[i]);
  const optim::Adam adam(0.01);
  const Tree<Array> state = adam.init(params);
  const auto fn = [=](Values in) {
    const auto loss = [&](Values p) {
      return std::vector<Value>{misfit(net_field, weights_of(p), in[4], in[5], 1, 1e-3, 1e-6)};
    };
    std::vector<Value> carry(in.begin(), in.begin() + 4);
    for (const Array& leaf : state.flatten()) carry.push_back(constant(leaf));
    const auto step = [&](Values c, Values) {
      const std::vector<Value> out = value_and_grad(loss, {0, 1, 2, 3})(c.first(4));
      const auto [new_params, new_state] = adam.update(params.unflatten(Values(out).subspan(1)),
                                                       state.unflatten(c.subspan(4)), params.unflatten(c.first(4)));
      std::vector<Value> next = new_params.flatten();
      for (const Value& v : new_state.flatten()) next.push_back(v);
      return std::pair(next, std::vector<Value>{out[0]});
    };
    const auto [end, losses] = scan(step, carry, {}, {.length = iterations});
    return std::vector<Value>{narrow(losses[0], 0, 0, 50), losses[0], end[0], end[1], end[2], end[3]};
  };
  const auto run = compiled(fn, arguments, threads);
  const auto out = std::make_shared<std::vector<Array>>(run->output_types().size());
  const auto call = [=] { run->run(arguments, *out); };
  call();
  char note[80];
  std::snprintf(note, sizeof note, "last loss %.1f", (*out)[1].at(iterations - 1));
  return {call, {{"losses", (*out)[0].clone()}}, 1, note};
}

Prepared ode_ensemble(const Sizes&, const Arrays& inputs, int threads) {
  const auto one = [](Values in) {
    ode::Options options;
    options.args = Tree<Value>(in[0]);
    options.dt0 = 0.01;
    options.controller = ode::PID(1e-6, 1e-6);
    const ode::Field field = [](Value, const Tree<Value>& y, const Tree<Value>& rho) {
      const Value a = take(y.leaf(), 0, 0), b = take(y.leaf(), 0, 1), c = take(y.leaf(), 0, 2);
      const Value parts[] = {10 * (b - a), a * (rho.leaf() - c) - b, a * b - 8.0 / 3 * c};
      return Tree<Value>(stack(parts, 0));
    };
    const Tree<Value> y0(constant(Array::from(std::vector<float>{1, 0, 0}, {3})));
    return std::vector<Value>{ode::solve(field, ode::Tsit5(), 0, 1, y0, options).y1.leaf()};
  };
  const std::vector<Array> arguments = {inputs.at("rho")};
  const auto run = compiled(vmap(one, {0}), arguments, threads);
  const auto out = std::make_shared<std::vector<Array>>(1);
  const auto call = [=] { run->run(arguments, *out); };
  call();
  return {call, {{"y1", (*out)[0].clone()}}};
}

Prepared ode_gradient(const Sizes&, const Arrays& inputs, int threads) {
  const std::vector<Array> arguments = arguments_of(inputs, {"y0", "data"});
  const auto fn = [](Values in) {
    const auto loss = [&](Values p) {
      const ode::Field field = [](Value, const Tree<Value>& y, const Tree<Value>& args) {
        return Tree<Value>(net(args, y.leaf() * y.leaf() * y.leaf()));
      };
      return std::vector<Value>{misfit(field, weights_of(p), in[4], in[5], 1.5, 1e-6, 1e-6)};
    };
    return value_and_grad(loss, {0, 1, 2, 3})(in.first(4));
  };
  const auto run = compiled(fn, arguments, threads);
  const auto out = std::make_shared<std::vector<Array>>(5);
  const auto call = [=] { run->run(arguments, *out); };
  call();
  Arrays results = {{"loss", (*out)[0].clone()}};
  for (std::size_t i = 0; i < weights.size(); ++i) results[weights[i]] = (*out)[i + 1].clone();
  return {call, results};
}

Prepared ode_sensitivity(const Sizes&, const Arrays& inputs, int threads) {
  const std::vector<Array> arguments = arguments_of(inputs, {"y0"});
  const auto fn = [](Values in) {
    const auto solve = [&](Values p) {
      ode::Options options;
      options.controller = ode::PID(1e-4, 1e-4);
      options.args = weights_of(p);
      return std::vector<Value>{ode::solve(net_field, ode::Tsit5(), 0, 1, in[4], options).y1.leaf()};
    };
    std::vector<Value> out = solve(in.first(4));
    for (const Value& v : jacfwd(solve, {0, 1, 2, 3})(in.first(4))) out.push_back(v);
    return out;
  };
  const auto run = compiled(fn, arguments, threads);
  const auto out = std::make_shared<std::vector<Array>>(5);
  const auto call = [=] { run->run(arguments, *out); };
  call();
  Arrays results = {{"y1", (*out)[0].clone()}};
  for (std::size_t i = 0; i < weights.size(); ++i) results[weights[i]] = (*out)[i + 1].clone();
  return {call, results, 1, "jacfwd of the solution"};
}

}  // namespace hotloop::bench
