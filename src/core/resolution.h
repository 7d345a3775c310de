#pragma once

#include <limits>

#include "hotloop/array.h"

namespace hotloop {

// The distance of 1 to the next number of a float dtype.
constexpr double resolution(DType dtype) {
  return dtype == DType::F64 ? std::numeric_limits<double>::epsilon() : std::numeric_limits<float>::epsilon();
}

}  // namespace hotloop
