#include "minimizers/implicit.h"

#include <cmath>

#include "hotloop/jacobian.h"
#include "hotloop/linalg.h"
#include "hotloop/ops.h"
#include "hotloop/transforms.h"
#include "ops/composed/bounded_while.h"
#include "ops/composed/linear_call.h"

namespace hotloop::minimizers {
namespace {

// Up to so many parameters the Hessian is made and factorised; beyond it is multiplied with, in conjugate gradients.
constexpr std::int64_t most_dense = 512;

// x with H x = b, to a part of 1e3 resolutions of b, for a positive definite H: Hestenes and Stiefel 1952.
Value conjugate_gradients(const std::function<Value(Value)>& times_h, Value b) {
  const Value bound = matmul(b, b) * (b.dtype() == DType::F64 ? 1e-26 : 1e-9);
  const auto unsolved = [&](std::span<const Value> v) { return greater(v[3], bound); };
  const auto improve = [&](std::span<const Value> v) {
    const Value hp = times_h(v[2]), step = v[3] / matmul(v[2], hp);
    const Value x = v[0] + step * v[2], r = v[1] - step * hp, rr = matmul(r, r);
    return std::vector<Value>{x, r, r + rr / v[3] * v[2], rr};
  };
  return ir::bounded_while("minimize", unsolved, improve, std::vector<Value>{zeros_like(b), b, b, matmul(b, b)},
                           4 * b.shape()[0])
      .carry[0];
}

// Owns what it uses: rules are traced when a derivative is taken.
class ImplicitRule {
 public:
  ImplicitRule(const Flat& flat, std::shared_ptr<const Graph> objective, const Tree<Value>& like)
      : flat_(flat), objective_(std::move(objective)), num_leaves_(like.num_leaves()) {}

  // The value at x, and its gradient there. rest: the captures.
  Value value(Value x, std::span<const Value> rest) const {
    std::vector<Value> arguments = flat_.unpack(x).flatten();
    arguments.insert(arguments.end(), rest.begin(), rest.end());
    return inline_graph(*objective_, arguments)[0];
  }
  Value gradient(Value x, std::span<const Value> rest) const {
    const auto of_x = [&](std::span<const Value> in) { return std::vector<Value>{value(in[0], rest)}; };
    return value_and_grad(of_x, {0})(std::vector<Value>{x})[1];
  }

  // The tangent of x where the gradient's, at x, is `change`.
  Value answer(Value x, std::span<const Value> rest, Value change) const {
    if (flat_.size() <= most_dense) {
      const auto of_x = [&](std::span<const Value> in) { return std::vector<Value>{gradient(in[0], rest)}; };
      const Value hessian = jacfwd(of_x)(std::vector<Value>{x})[0];
      return -linalg::solve(hessian, change);
    }
    std::vector<Value> operands = {x};
    operands.insert(operands.end(), rest.begin(), rest.end());
    operands.push_back(change);
    const auto types = ir::types_of(operands);
    const auto iterations = trace(
        [&](std::span<const Value> v) {
          const auto times = [&](Value p) { return times_hessian(v.first(v.size() - 1), p); };
          return std::vector<Value>{conjugate_gradients(times, v.back())};
        },
        types, "minimum_tangent");
    return -solve_system(iterations, operands);
  }

  // Outputs of the minimisation and their tangents.
  std::vector<Value> operator()(std::span<const Value> primals, std::span<const Value> tangents,
                                std::vector<Value> outputs) const {
    const Value x = outputs[0];
    const auto rest = primals.subspan(num_leaves_);
    std::vector<Value> directions;
    for (std::size_t i = 0; i < rest.size(); ++i)
      directions.push_back(is_float(rest[i].dtype()) ? tangents[num_leaves_ + i] : Value{});
    const auto along = [&](const TracedFunction& fn) { return jvp(fn, rest, directions).second[0]; };
    const Value change = along([&](std::span<const Value> v) { return std::vector<Value>{gradient(x, v)}; });
    const Value slope = along([&](std::span<const Value> v) { return std::vector<Value>{value(x, v)}; });
    const std::size_t num_outputs = outputs.size();
    for (std::size_t i = 0; i < num_outputs; ++i) {
      const Value output = outputs[i];
      Value tangent = zeros_like(output);
      if (i == 0 && change.defined()) tangent = answer(x, rest, change);
      if (i == 1 && slope.defined()) tangent = cast(slope, output.dtype());
      outputs.push_back(tangent);
    }
    return outputs;
  }

 private:
  // H p, at = {x, rest...}.
  Value times_hessian(std::span<const Value> at, Value p) const {
    const auto of_x = [&](std::span<const Value> in) { return std::vector<Value>{gradient(in[0], at.subspan(1))}; };
    const Value product = jvp(of_x, at.first(1), std::vector<Value>{p}).second[0];
    return product.defined() ? product : zeros_like(p);
  }
  // u = H^-1 b at operands = {x, rest..., b} by those iterations, whose derivative is that of the system: du = H^-1 (db - dH u).
  Value solve_system(const std::shared_ptr<const Graph>& iterations, std::span<const Value> operands) const {
    const std::size_t n = operands.size() - 1;
    const auto rule = [self = *this, iterations, n](std::span<const Value> v) {
      const auto at = v.first(n);
      const Value u = self.solve_system(iterations, v.first(n + 1));
      std::vector<Value> directions;
      for (std::size_t i = 0; i < n; ++i) directions.push_back(is_float(at[i].dtype()) ? v[n + 1 + i] : Value{});
      const auto product = [&](std::span<const Value> in) { return std::vector<Value>{self.times_hessian(in, u)}; };
      const Value moved = jvp(product, at, directions).second[0];
      std::vector<Value> again(at.begin(), at.end());
      again.push_back(moved.defined() ? v[2 * n + 1] - moved : v[2 * n + 1]);
      return std::vector<Value>{u, self.solve_system(iterations, again)};
    };
    const auto solve =
        trace([&](std::span<const Value> v) { return call_with_rule(iterations, v, "minimum_tangent", rule); },
              ir::types_of(operands), "minimum_tangent");
    return symmetric_call(solve, operands);
  }
  // A call linear in its last operand, with a matrix that is its own transpose.
  static Value symmetric_call(const std::shared_ptr<const Graph>& body, std::span<const Value> operands) {
    return ir::linear_call(body, body, operands, operands.size() - 1)[0];
  }

  Flat flat_;
  std::shared_ptr<const Graph> objective_;
  std::size_t num_leaves_;
};

// `search` with a derivative, whose search has one in turn: of any order, since rules are traced where they are asked for.
std::vector<Value> call_search(const std::string& name, const std::shared_ptr<const Graph>& search,
                               std::span<const Value> operands, const std::shared_ptr<const ImplicitRule>& rule) {
  const auto jvp_rule = [=](std::span<const Value> v) {
    const auto primals = v.first(v.size() / 2), tangents = v.last(v.size() / 2);
    return (*rule)(primals, tangents, call_search(name, search, primals, rule));
  };
  return call_with_rule(search, operands, name, jvp_rule);
}

}  // namespace

std::vector<Value> differentiable_minimum(const std::string& name, const Flat& flat, const ir::Region& objective,
                                          const Tree<Value>& params, const TracedFunction& body) {
  std::vector<Value> operands = params.flatten();
  operands.insert(operands.end(), objective.captures.begin(), objective.captures.end());
  const auto search = trace(body, ir::types_of(operands), name);
  return call_search(name, search, operands, std::make_shared<const ImplicitRule>(flat, objective.graph, params));
}

}  // namespace hotloop::minimizers
