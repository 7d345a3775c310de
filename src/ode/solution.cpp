#include <bit>
#include <cstdint>
#include <limits>

#include "hotloop/error.h"
#include "hotloop/ode.h"
#include "hotloop/ops.h"
#include "hotloop/transforms.h"
#include "ode/interpolant.h"

namespace hotloop::ode {

std::string describe(Result result) {
  switch (result) {
    case Result::Success: return "the solve reached t1";
    case Result::Event: return "an event ended the solve";
    case Result::MaxSteps: return "the maximum number of steps was taken before t1 was reached";
    case Result::StepTooSmall: return "the step size fell below what time can resolve, or below dtmin";
    case Result::NonFinite: return "the field or the state became infinite or NaN, or t0 or t1 is NaN";
    case Result::NewtonFailed: return "Newton's method did not solve the equations of an implicit step";
  }
  throw UserError("ode", "a result must be a code of ode::Result", std::to_string(static_cast<int>(result)));
}

std::string remedy(Result result) {
  switch (result) {
    case Result::Success:
    case Result::Event: return "";
    case Result::MaxSteps:
      return "larger max_steps, looser rtol and atol, or for a stiff problem an implicit solver such as Kvaerno5()";
    case Result::StepTooSmall:
      return "a problem that blows up or is discontinuous there needs Clip with jump_ts; a stiff one an implicit "
             "solver such as Kvaerno5(); tolerances below what the dtype can hold need f64";
    case Result::NonFinite:
      return "a smaller dt0 or an adaptive controller, and a look at where the field divides, takes roots or "
             "logarithms";
    case Result::NewtonFailed:
      return "a smaller dt0 or an adaptive controller, Rodas5P(), which solves linear equations alone, or f64";
  }
  return "";
}

void check(const Array& result) {
  for (std::int64_t i = 0; i < result.size(); ++i) {
    const auto r = static_cast<Result>(static_cast<std::int32_t>(result.at(i)));
    if (r == Result::Success || r == Result::Event) continue;
    std::int64_t alike = 0;
    for (std::int64_t k = 0; k < result.size(); ++k) alike += result.at(k) == result.at(i);
    const std::string of = result.size() == 1 ? ""
                                              : " (trajectory " + std::to_string(i) + ", " + std::to_string(alike) +
                                                    " of " + std::to_string(result.size()) + " ended so)";
    throw UserError("ode.solve", "the solve must reach t1", describe(r) + of, remedy(r));
  }
}

Tree<Value> Solution::evaluate(Value t) const {
  if (!dense)
    throw UserError("ode.evaluate", "the solve must have kept its interpolant", "another SaveAt",
                    "SaveAt::interpolation()");
  if (!is_float(t.dtype())) throw UserError("ode.evaluate", "times must be floats", t.type().str(), "cast()");
  if (t.rank() > 0) {
    const auto each = vmap([&](std::span<const Value> in) { return evaluate(in[0]).flatten(); }, {0});
    std::vector<Value> leaves = each(std::vector<Value>{reshape(t, {t.shape().size()})});
    for (Value& leaf : leaves) {
      std::vector<std::int64_t> extents;
      for (int i = 0; i < t.rank(); ++i) extents.push_back(t.shape()[i]);
      for (int i = 1; i < leaf.rank(); ++i) extents.push_back(leaf.shape()[i]);
      leaf = reshape(leaf, Shape(extents));
    }
    return dense->like.unflatten(leaves);
  }
  const DType dtype = dense->ends.dtype();
  const Value in_dtype = t.dtype() == dtype ? t : cast(t, dtype);
  const Value s = dense->direction.is_number() ? (dense->direction.number() > 0 ? in_dtype : -in_dtype)
                                               : dense->direction.as(dtype) * in_dtype;
  const Value infinite = like(s, std::numeric_limits<double>::infinity());
  // The first step that does not end before s, by bisection: so many do that their number has the bits found so far.
  const std::int64_t rows = dense->ends.shape()[0];
  const auto end_of = [&](Value step) { return gather(dense->ends, step, 0); };
  Value index = constant(0, DType::I32);
  for (std::int64_t bit = std::bit_floor(static_cast<std::uint64_t>(rows)); bit > 0; bit /= 2) {
    const Value more = index + bit, last = constant(static_cast<double>(rows), DType::I32);
    const Value before = bit_and(less_equal(more, last), less(end_of(minimum(more, last) - 1), s));
    index = select(before, more, index);
  }
  // Beyond the last step it is the last.
  index = minimum(index, constant(static_cast<double>(rows - 1), DType::I32));
  const Value taken = bit_or(less(end_of(index), infinite), equal(index, constant(0, DType::I32)));
  index = select(taken, index, index - 1);
  // Where no step was taken the length is infinite, and the constant term is y0.
  const Value length = gather(dense->lengths, index, 0), start = gather(dense->starts, index, 0);
  const Value any = less(length, infinite);
  const Value x = select(any, (s - select(any, start, s)) / select(any, length, like(s, 1)), like(s, 0));
  std::vector<Leaves> terms;
  for (const Leaves& coefficients : dense->coefficients) {
    terms.emplace_back();
    for (const Value& rows_of_leaf : coefficients) terms.back().push_back(gather(rows_of_leaf, index, 0));
  }
  const Leaves y0 = terms.front();
  terms.erase(terms.begin());
  return dense->like.unflatten(interpolate(y0, terms, x));
}

}  // namespace hotloop::ode
