// Inverse trigonometric functions, in radians, of f32 or f64: within 3 ulp (in f32, of all floats, asin 2.37, acos 1.14, atan 2.15), the same bits on
// every backend and target.
#pragma once

#include "hotloop/graph.h"

namespace hotloop {

// Angle of the point (x, y) in [-pi, pi], of operands that broadcast. The signs of zeros count, infinities are directions, and NaN
// stays NaN, as in C. Derivative (x dy - y dx) / (x^2 + y^2): NaN at the origin.
Value atan2(Value y, Value x);
Value atan(Value x);  // in [-pi/2, pi/2]
Value asin(Value x);  // in [-pi/2, pi/2]; NaN beyond [-1, 1], where the derivative becomes infinite
Value acos(Value x);  // in [0, pi]; likewise

}  // namespace hotloop
