#include "ode/implicit.h"

#include "hotloop/error.h"
#include "hotloop/jacobian.h"
#include "hotloop/linalg.h"
#include "hotloop/ops.h"
#include "hotloop/transforms.h"
#include "ir/region.h"
#include "ode/norm.h"
#include "ops/composed/bounded_while.h"

namespace hotloop::ode {

FlatField::FlatField(const VectorField& field, const Leaves& like) : field_(field), like_(like) {
  for (const Value& leaf : like) {
    if (leaf.dtype() != like[0].dtype())
      throw UserError("ode.solve", "an implicit solver needs a state of one dtype",
                      like[0].type().str() + " and " + leaf.type().str(), "cast() the leaves, or an explicit solver");
    size_ += leaf.shape().size();
  }
}

Value FlatField::pack(const Leaves& leaves) const {
  std::vector<Value> parts;
  for (const Value& leaf : leaves) parts.push_back(reshape(leaf, {leaf.shape().size()}));
  return parts.size() == 1 ? parts[0] : concat(parts, 0);
}

Leaves FlatField::unpack(Value flat) const {
  Leaves leaves;
  std::int64_t start = 0;
  for (const Value& leaf : like_) {
    leaves.push_back(reshape(narrow(flat, 0, start, leaf.shape().size()), leaf.shape()));
    start += leaf.shape().size();
  }
  return leaves;
}

Value FlatField::operator()(Value t, Value y) const { return pack(field_(t, unpack(y))); }

Value FlatField::jacobian(Value t, Value y) const {
  const auto of_y = [&](std::span<const Value> in) { return std::vector<Value>{(*this)(t, in[0])}; };
  return jacfwd(of_y)(std::vector<Value>{y})[0];
}

Value FlatField::time_derivative(Value t, Value y) const {
  const auto of_t = [&](std::span<const Value> in) { return std::vector<Value>{(*this)(in[0], y)}; };
  const Value tangent = jvp(of_t, std::vector<Value>{t}, std::vector<Value>{ones_like(t)}).second[0];
  return tangent.defined() ? tangent : zeros_like(y);
}

NewtonSolution newton(const FlatField& field, Value t, Value scale, Value known, Value guess, Value matrix,
                      const Factors& factors, Value tolerance) {
  constexpr int most_iterations = 10;
  constexpr double small = 1e-3;  // of the tolerance
  const auto residual = ir::trace_region(
      "residual", [&](std::span<const Value> v) { return std::vector<Value>{v[0] - v[3] - v[2] * field(v[1], v[0])}; },
      ir::types_of(std::vector<Value>{guess, t, scale, known}));
  std::vector<Value> operands = {
      t, scale, known, guess, stop_gradient(matrix), factors.lu, factors.rows, stop_gradient(tolerance)};
  const std::size_t num_own = operands.size();
  operands.insert(operands.end(), residual.captures.begin(), residual.captures.end());
  const auto types = ir::types_of(operands);
  const auto residual_at = [num_own, graph = residual.graph](Value z, std::span<const Value> v) {
    std::vector<Value> arguments = {z, v[0], v[1], v[2]};
    arguments.insert(arguments.end(), v.begin() + static_cast<std::ptrdiff_t>(num_own), v.end());
    return inline_graph(*graph, arguments)[0];
  };
  const DType dtype = guess.dtype();
  const auto body = trace(
      [&](std::span<const Value> v) {
        const auto unsolved = [&](std::span<const Value> c) { return greater_equal(c[1], constant(small, dtype)); };
        const auto improve = [&](std::span<const Value> c) {
          const Value correction = solve_with(v[4], {v[5], v[6]}, residual_at(c[0], v));
          return std::vector<Value>{c[0] - correction, rms({correction / v[7]}, dtype)};
        };
        const auto loop = ir::bounded_while("ode.newton", unsolved, improve,
                                            std::vector<Value>{v[3], constant(1, dtype)}, most_iterations);
        return std::vector<Value>{loop.carry[0], less(loop.carry[1], constant(small, dtype)), loop.count};
      },
      types, "newton");
  const auto rule = [body, residual_at](std::span<const Value> v) {
    const auto primals = v.first(v.size() / 2), tangents = v.last(v.size() / 2);
    std::vector<Value> outputs = inline_graph(*body, primals);
    const Value z = outputs[0];
    const auto of_z = [&](std::span<const Value> in) { return std::vector<Value>{residual_at(in[0], primals)}; };
    const Value exact = jacfwd(of_z)(std::vector<Value>{z})[0];
    const auto of_rest = [&](std::span<const Value> in) { return std::vector<Value>{residual_at(z, in)}; };
    std::vector<Value> directions;
    for (std::size_t i = 0; i < primals.size(); ++i)
      directions.push_back(is_float(primals[i].dtype()) ? tangents[i] : Value{});
    const Value change = jvp(of_rest, primals, directions).second[0];
    outputs.push_back(-linalg::solve(exact, change.defined() ? change : zeros_like(z)));
    outputs.push_back(constant(0, DType::Bool));
    outputs.push_back(constant(0, DType::I32));
    return outputs;
  };
  const auto results = call_with_rule(body, operands, "newton", rule);
  return {results[0], results[1], results[2]};
}

}  // namespace hotloop::ode
