// What a cast does to a number: the one definition, of Array::cast, of the op and of literals alike.
#pragma once

#include <cmath>
#include <concepts>
#include <cstdint>
#include <limits>
#include <type_traits>

#include "hotloop/array.h"

namespace hotloop {

// x in another of the types that store dtypes (visit_dtype); uint8_t is bool. To bool is x != 0, so NaN is true. Integers wrap. Float to
// integer truncates and saturates; NaN gives 0. (C++ leaves what does not fit undefined.)
template <class To, class From> To converted(From x) {
  if constexpr (std::is_same_v<To, std::uint8_t>) {
    return static_cast<To>(x != From{});
  } else if constexpr (std::is_floating_point_v<From> && std::is_integral_v<To>) {
    if (std::isnan(x)) return 0;
    constexpr To lowest = std::numeric_limits<To>::lowest(), highest = std::numeric_limits<To>::max();
    const From t = std::trunc(x);
    // The bounds as floats: lowest is exact, highest may round up to the first value that does not fit.
    if (t <= static_cast<From>(lowest)) return lowest;
    if (t >= static_cast<From>(highest)) return highest;
    return static_cast<To>(t);
  } else {
    return static_cast<To>(x);
  }
}

// Whether `dtype`, of numbers, has the integer n: floats are taken to have all.
template <std::signed_integral N> bool holds(DType dtype, N n) {
  return is_float(dtype) || visit_dtype(dtype, [n]<class T>(T) { return static_cast<N>(static_cast<T>(n)) == n; });
}

// Whether `dtype` has this very number; floats round to it, infinities and NaN are theirs alone.
inline bool holds(DType dtype, double x) {
  // 2^63 alone is not told by the way back, to the nearest double.
  return is_float(dtype) ||
         (x < 0x1p63 && visit_dtype(dtype, [x]<class T>(T) { return static_cast<double>(converted<T>(x)) == x; }));
}

// Of converted<T>(x), whatever x is: where Array::full() and constant() refuse a number that the dtype does not hold.
Array filled(DType dtype, const Shape& shape, double x);

}  // namespace hotloop
