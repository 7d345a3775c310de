// What sums are accumulated in by their definitions: wide enough that the definition's own rounding does not show.
#pragma once

#include <type_traits>

namespace hotloop::ir {

template <class T> using Accumulator =
    std::conditional_t<std::is_same_v<T, float>, double, std::conditional_t<std::is_same_v<T, double>, long double, T>>;

}  // namespace hotloop::ir
