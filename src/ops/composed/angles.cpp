// atan2 and the inverses of sin, cos and tan. Coefficients: scripts/fit_math.py.
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

bool is_f32(Value x) { return x.dtype() == DType::F32; }

Value filled(Value x, double number) { return constant(number, x.dtype(), x.shape()); }

// Whether x has a sign, a zero as well.
Value is_negative(Value x) {
  const Value bits = bitcast(x, is_f32(x) ? DType::I32 : DType::I64);
  return less(bits, like(bits, 0));
}

// atan(u) for |u| <= tan(pi / 8).
Value small_atan(Value u) {
  const Value z = u * u;
  const Value g =
      is_f32(u) ? horner(z, {-0x1.55554ap-2, 0x1.9991e8p-3, -0x1.23ba44p-3, 0x1.b22f08p-4, -0x1.f31f26p-5})
                : horner(z, {-0x1.555555555553dp-2, 0x1.99999999958f7p-3, -0x1.24924922b1729p-3, 0x1.c71c70e7c4bc4p-4,
                             -0x1.745cf90f34b71p-4, 0x1.3b111cb11d4f8p-4, -0x1.10ebe1294ff3dp-4, 0x1.df119cecace2cp-5,
                             -0x1.9cdd1f4953b68p-5, 0x1.37efc96e67db8p-5, -0x1.25a2fba65d9f3p-6});
  return u + u * z * g;
}

// eighths pi / 4 + v: pi / 4 in two parts, so few bits in the first that up to four of it are exact. Differences, whose order is kept: the terms of
// a sum may be put into another one.
Value turned(Value eighths, Value v) {
  const double high = is_f32(v) ? 0x1.921fbp-1 : 0x1.921fb54442d18p-1;
  const double rounded_off = is_f32(v) ? 0x1.5110b4p-23 : 0x1.1a62633145c07p-55;
  return eighths * high - (eighths * -rounded_off - v);
}

// With the smaller of |x| and |y| over the larger one, u, the angle is a multiple of pi / 4 plus or minus atan(u), or, where u is above
// tan(pi / 8), plus or minus atan((u - 1) / (u + 1)).
Value angle(Value y, Value x) {
  const bool f32 = y.dtype() == DType::F32;
  const Value zero = filled(y, 0), one = filled(y, 1);
  const Value across = abs(x), up = abs(y);
  const Value large = maximum(across, up), low = minimum(across, up);
  // Half of it where a sum of two would overflow.
  const double most = f32 ? std::numeric_limits<float>::max() : std::numeric_limits<double>::max();
  const Value scale = select(greater(large, filled(y, most / 2)), filled(y, 0.5), one);
  const Value a = low * scale, b = large * scale;
  const Value same = equal(a, b), origin = equal(b, zero);  // two infinities are one direction
  const Value steep = bit_and(bit_or(greater(a, b * 0.41421356237309503), same), logical_not(origin));
  const Value rest = select(same, zero, select(steep, a - b, a));
  const Value u = rest / select(same, one, select(steep, a + b, b));
  const Value v = small_atan(u);
  // The first octant, then beyond its diagonal, then left of the y axis.
  Value eighths = select(steep, one, zero), turn = one;
  const Value above = greater(up, across), left = is_negative(x);
  eighths = select(above, 2.0 - eighths, eighths);
  turn = select(above, -turn, turn);
  eighths = select(left, 4.0 - eighths, eighths);
  turn = select(left, -turn, turn);
  const Value result = turned(eighths, turn * v);
  return select(is_negative(y), -result, result);
}

// With its derivative, which calls the function again; beyond `order` the formula itself is differentiated.
Value angle_call(Value y, Value x, int order) {
  if (order == 0) return angle(y, x);
  const std::vector<ValueType> types = {y.type(), x.type()};
  const auto body = trace([](std::span<const Value> v) { return std::vector{angle(v[0], v[1])}; }, types, "atan2");
  const auto rule = [order](std::span<const Value> v) {
    // Over the larger of both, whose square may not be a number: nothing depends on what they are divided by.
    const Value large = stop_gradient(maximum(abs(v[0]), abs(v[1])));
    const Value infinite = filled(large, std::numeric_limits<double>::infinity());
    const Value usable = bit_and(greater(large, filled(large, 0)), less(large, infinite));
    const Value size = select(usable, large, filled(large, 1)), y = v[0] / size, x = v[1] / size;
    const Value radius = (y * y + x * x) * size;
    return std::vector{angle_call(v[0], v[1], order - 1), v[2] * (x / radius) - v[3] * (y / radius)};
  };
  const Value operands[] = {y, x};
  return call_with_rule(body, operands, "atan2", rule)[0];
}

// atan of one number: of (a - 1) / (a + 1) beyond tan(pi / 8), of -1 / a beyond tan(3 pi / 8).
Value one_atan(Value x) {
  const Value zero = filled(x, 0), one = filled(x, 1), size = abs(x);
  const Value steep = greater(size, filled(x, 0.41421356237309503)),
              above = greater(size, filled(x, 2.4142135623730951));
  const Value part = select(above, -one, select(steep, size - 1.0, size));
  const Value whole = select(above, size, select(steep, size + 1.0, one));
  const Value result = turned(select(above, filled(x, 2), select(steep, one, zero)), small_atan(part / whole));
  return select(is_negative(x), -result, result);
}

// asin(s) for s in [0, 1/2], of which z is the square.
Value small_asin(Value s, Value z) {
  const Value g =
      is_f32(s) ? horner(z, {0x1.5555c8p-3, 0x1.330206p-4, 0x1.747b72p-5, 0x1.8c415ap-6, 0x1.5959aap-5})
                : horner(z, {0x1.5555555555390p-3, 0x1.333333336e7c2p-4, 0x1.6db6db427d0d8p-5, 0x1.f1c72c382c836p-6,
                             0x1.6e89f45217ec9p-6, 0x1.1c6be0a789f1ep-6, 0x1.c6fdd44cafaabp-7, 0x1.8ec28821bfbd0p-7,
                             0x1.abd3210c26517p-8, 0x1.3ff23027023bbp-6, -0x1.09cf6aec44749p-6, 0x1.056c2fb7f79aap-5});
  return s + s * z * g;
}

// Of |x| up to 1/2 the angle itself, beyond it half of what is left to a right one: its sine is the root of (1 - |x|) / 2.
struct Arc {
  Value is_far, angle;
};
Arc arc(Value x) {
  const Value size = abs(x), is_far = greater(size, filled(x, 0.5));
  const Value z = select(is_far, (1.0 - size) * 0.5, x * x);
  return {is_far, small_asin(select(is_far, sqrt(z), size), z)};
}

Value one_asin(Value x) {
  const auto [is_far, angle] = arc(x);
  const Value eighths = select(is_far, filled(x, 2), filled(x, 0));
  const Value result = turned(eighths, select(is_far, angle * -2.0, angle));
  return select(is_negative(x), -result, result);
}

Value one_acos(Value x) {
  const auto [is_far, angle] = arc(x);
  const Value left = is_negative(x), two = filled(x, 2);
  const Value eighths = select(is_far, select(left, filled(x, 4), filled(x, 0)), two);
  const Value turn = select(is_far, angle * 2.0, -angle);
  return turned(eighths, select(left, -turn, turn));
}

// f with its derivative, which calls f again; beyond `order` the formula itself is differentiated.
using Unary = Value (*)(Value);
Value with_slope(const char* name, Unary f, Unary slope, Value x, int order = 3) {
  ir::require_defined(name, {&x, 1});
  if (!is_float(x.dtype())) throw UserError(name, "the operand must be f32 or f64", x.type().str(), "cast()");
  if (order == 0) return f(x);
  const std::vector<ValueType> types = {x.type()};
  const auto body = trace([f](std::span<const Value> v) { return std::vector{f(v[0])}; }, types, name);
  const auto rule = [=](std::span<const Value> v) {
    return std::vector{with_slope(name, f, slope, v[0], order - 1), v[1] * slope(v[0])};
  };
  const Value operands[] = {x};
  return call_with_rule(body, operands, name, rule)[0];
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

Value atan(Value x) {
  return with_slope(
      "atan", one_atan, [](Value v) { return 1.0 / (1.0 + v * v); }, x);
}
Value asin(Value x) {
  return with_slope(
      "asin", one_asin, [](Value v) { return 1.0 / sqrt((1.0 - v) * (1.0 + v)); }, x);
}
Value acos(Value x) {
  return with_slope(
      "acos", one_acos, [](Value v) { return -1.0 / sqrt((1.0 - v) * (1.0 + v)); }, x);
}

}  // namespace hotloop
