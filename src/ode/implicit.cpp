#include "ode/implicit.h"

#include <limits>

#include "core/resolution.h"
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

Value identity(std::int64_t n, DType dtype) {
  Array a = Array::zeros(dtype, {n, n});
  for (std::int64_t i = 0; i < n; ++i) a.set(i * n + i, 1);
  return constant(a);
}

NewtonTolerance newton_tolerance(const FlatField& field, const StepInput& step) {
  return [&field, &step](Value z) {
    const Value size = maximum(abs(stop_gradient(field.pack(step.y0))), abs(z));
    return field.pack(step.tolerance(field.unpack(size)));
  };
}

NewtonSolution newton(const FlatField& field, Value t, Value scale, Value known, Value guess, Value matrix,
                      const Factors& factors, const NewtonTolerance& tolerance) {
  constexpr int most_iterations = 10;
  constexpr double small = 1e-3;  // of the tolerance
  // Corrections do not become smaller than some roundings of z, nor, where the field cancels, than those of what is cancelled: the first is known,
  // the other shows when they stop shrinking.
  constexpr double roundings = 8, still_small = 0.1;
  const DType dtype = guess.dtype();
  const auto field_part = ir::trace_region(
      "increment", [&](std::span<const Value> v) { return std::vector<Value>{v[2] * field(v[1], v[0])}; },
      ir::types_of(std::vector<Value>{guess, t, scale}));
  const auto size = ir::trace_region(
      "tolerance", [&](std::span<const Value> v) { return std::vector<Value>{tolerance(v[0])}; },
      std::vector<ValueType>{guess.type()});
  std::vector<Value> operands = {t, scale, known, guess, stop_gradient(matrix), factors.lu, factors.rows};
  const std::size_t num_own = operands.size(), num_field = field_part.captures.size();
  operands.insert(operands.end(), field_part.captures.begin(), field_part.captures.end());
  for (const Value& capture : size.captures)
    operands.push_back(is_float(capture.dtype()) ? stop_gradient(capture) : capture);
  const auto types = ir::types_of(operands);
  const auto captures = [num_own, num_field](std::span<const Value> v, std::vector<Value> arguments, bool of_size) {
    const auto from = v.begin() + static_cast<std::ptrdiff_t>(num_own);
    const auto between = from + static_cast<std::ptrdiff_t>(num_field);
    arguments.insert(arguments.end(), of_size ? between : from, of_size ? v.end() : between);
    return arguments;
  };
  const auto increment_at = [captures, graph = field_part.graph](Value z, std::span<const Value> v) {
    return inline_graph(*graph, captures(v, {z, v[0], v[1]}, false))[0];
  };
  const auto body = trace(
      [&](std::span<const Value> v) {
        // Carried: z, the increment, the last correction in units of the tolerance, whether to go on. Both are corrected: the increment would come out of
        // a short step's z, and z out of a stiff step's increment, with the roundings of what is larger.
        const auto unsolved = [](std::span<const Value> c) { return c[3]; };
        const auto improve = [&](std::span<const Value> c) {
          const Value correction = solve_with(v[4], {v[5], v[6]}, c[1] - increment_at(c[0], v));
          const Value next = c[0] - correction, unit = inline_graph(*size.graph, captures(v, {next}, true))[0];
          const Value error = rms({correction / unit}, dtype);
          const Value rounding = (roundings * resolution(dtype)) * rms({next / unit}, dtype);
          const Value stalled = bit_and(greater_equal(error, c[2]), less(error, constant(still_small, dtype)));
          const Value solved = bit_or(less(error, maximum(constant(small, dtype), rounding)), stalled);
          const Value zero = sum(correction * 0.0), finite = equal(zero, zeros_like(zero));
          return std::vector<Value>{next, c[1] - correction, error, bit_and(finite, logical_not(solved))};
        };
        const Value infinity = constant(std::numeric_limits<double>::infinity(), dtype), start = v[2] + v[3];
        const auto loop =
            ir::bounded_while("ode.newton", unsolved, improve,
                              std::vector<Value>{start, v[3], infinity, constant(1, DType::Bool)}, most_iterations);
        const Value stopped = logical_not(loop.carry[3]), finite = less(loop.carry[2], infinity);
        const Value converged = bit_and(stopped, finite);
        // Iterates that diverge are no numbers to go on with, unless the first one says that the field has none.
        const Value undefined =
            bit_and(bit_and(stopped, logical_not(finite)), equal(loop.count, constant(1, DType::I32)));
        const Value kept = broadcast_to(bit_or(converged, undefined), guess.shape());
        return std::vector<Value>{select(kept, loop.carry[0], start), select(kept, loop.carry[1], v[3]), converged,
                                  loop.count};
      },
      types, "newton");
  const auto rule = [body, increment_at](std::span<const Value> v) {
    const auto primals = v.first(v.size() / 2), tangents = v.last(v.size() / 2);
    std::vector<Value> outputs = inline_graph(*body, primals);
    const Value z = outputs[0];
    const auto of_z = [&](std::span<const Value> in) { return std::vector<Value>{increment_at(in[0], primals)}; };
    const Value slope = jacfwd(of_z)(std::vector<Value>{z})[0];
    const auto of_rest = [&](std::span<const Value> in) { return std::vector<Value>{increment_at(z, in)}; };
    std::vector<Value> directions;
    for (std::size_t i = 0; i < primals.size(); ++i)
      directions.push_back(is_float(primals[i].dtype()) ? tangents[i] : Value{});
    const Value found = jvp(of_rest, primals, directions).second[0];
    // dz = dknown + slope dz + change.
    const Value change = found.defined() ? found : zeros_like(z);
    const Value dz = linalg::solve(identity(z.shape()[0], z.dtype()) - slope, tangents[2] + change);
    outputs.push_back(dz);
    outputs.push_back(matmul(slope, dz) + change);
    outputs.push_back(constant(0, DType::Bool));
    outputs.push_back(constant(0, DType::I32));
    return outputs;
  };
  const auto results = call_with_rule(body, operands, "newton", rule);
  return {results[0], results[1], results[2], results[3]};
}

}  // namespace hotloop::ode
