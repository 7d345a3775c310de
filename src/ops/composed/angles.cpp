// atan2 and what follows from it. Coefficients: scripts/fit_math.py.
#include "hotloop/angles.h"

#include <initializer_list>
#include <iterator>
#include <limits>

#include "hotloop/error.h"
#include "hotloop/ops.h"
#include "ops/rules/arguments.h"

namespace hotloop {
namespace {

Value horner(Value z, std::initializer_list<double> coefficients) {
  auto c = std::rbegin(coefficients);
  Value total = like(z, *c);
  while (++c != std::rend(coefficients)) total = total * z + *c;
  return total;
}

// With the smaller of |x| and |y| over the larger one, u, the angle is a multiple of pi / 4 plus or minus atan(u), or, where u is above
// tan(pi / 8), plus or minus atan((u - 1) / (u + 1)).
Value angle(Value y, Value x) {
  const bool f32 = y.dtype() == DType::F32;
  const auto number = [&](double c) { return broadcast_to(like(y, c), y.shape()); };
  const Value zero = number(0), one = number(1);
  // 1 / x tells the zeros apart.
  const auto negative = [&](Value v) { return bit_or(less(v, zero), bit_and(equal(v, zero), less(one / v, zero))); };
  const Value across = abs(x), up = abs(y);
  const Value large = maximum(across, up), low = minimum(across, up);
  // Half of it where a sum of two would overflow.
  const double most = f32 ? std::numeric_limits<float>::max() : std::numeric_limits<double>::max();
  const Value scale = select(greater(large, number(most / 2)), number(0.5), one);
  const Value a = low * scale, b = large * scale;
  const Value same = equal(a, b), origin = equal(b, zero);  // two infinities are one direction
  const Value steep = bit_and(bit_or(greater(a, b * 0.41421356237309503), same), logical_not(origin));
  const Value rest = select(same, zero, select(steep, a - b, a));
  const Value u = rest / select(same, one, select(steep, a + b, b));
  const Value z = u * u;
  const Value g =
      f32 ? horner(z, {-0x1.55554ap-2, 0x1.9991e8p-3, -0x1.23ba44p-3, 0x1.b22f08p-4, -0x1.f31f26p-5})
          : horner(z, {-0x1.555555555553dp-2, 0x1.99999999958f7p-3, -0x1.24924922b1729p-3, 0x1.c71c70e7c4bc4p-4,
                       -0x1.745cf90f34b71p-4, 0x1.3b111cb11d4f8p-4, -0x1.10ebe1294ff3dp-4, 0x1.df119cecace2cp-5,
                       -0x1.9cdd1f4953b68p-5, 0x1.37efc96e67db8p-5, -0x1.25a2fba65d9f3p-6});
  const Value v = u + u * z * g;
  // The first octant, then beyond its diagonal, then left of the y axis.
  Value quarters = select(steep, one, zero), turn = one;
  const Value above = greater(up, across), left = negative(x);
  quarters = select(above, 2.0 - quarters, quarters);
  turn = select(above, -turn, turn);
  quarters = select(left, 4.0 - quarters, quarters);
  turn = select(left, -turn, turn);
  // pi / 4 in two parts, so few bits in the first that up to four of it are exact. Differences, whose order is kept: the terms of a
  // sum may be put into another one.
  const double high = f32 ? 0x1.921fbp-1 : 0x1.921fb54442d18p-1;
  const double rounded_off = f32 ? 0x1.5110b4p-23 : 0x1.1a62633145c07p-55;
  const Value result = quarters * high - (quarters * -rounded_off - turn * v);
  return select(negative(y), -result, result);
}

// With its derivative, which calls the function again; beyond `order` the formula itself is differentiated.
Value angle_call(Value y, Value x, int order) {
  if (order == 0) return angle(y, x);
  const std::vector<ValueType> types = {y.type(), x.type()};
  const auto body = trace([](std::span<const Value> v) { return std::vector{angle(v[0], v[1])}; }, types, "atan2");
  const auto rule = [order](std::span<const Value> v) {
    const Value radius = v[0] * v[0] + v[1] * v[1];
    return std::vector{angle_call(v[0], v[1], order - 1), v[2] * (v[1] / radius) - v[3] * (v[0] / radius)};
  };
  const Value operands[] = {y, x};
  return call_with_rule(body, operands, "atan2", rule)[0];
}

}  // namespace

Value atan2(Value y, Value x) {
  const Value given[] = {y, x};
  ir::require_defined("atan2", given);
  if (y.dtype() != x.dtype() || !is_float(y.dtype()))
    throw UserError("atan2", "operands must be f32 or f64, of one dtype", ir::types_text(given), "cast()");
  const auto both = ir::broadcast_together("atan2", given);
  return angle_call(both[0], both[1], 3);
}

// The angle of a right triangle with sides that are known: no cancellation near the ends of the domain.
Value atan(Value x) { return atan2(x, like(x, 1)); }
Value asin(Value x) { return atan2(x, sqrt((1.0 - x) * (1.0 + x))); }
Value acos(Value x) { return atan2(sqrt((1.0 - x) * (1.0 + x)), x); }

}  // namespace hotloop
