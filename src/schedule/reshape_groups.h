// A reshape as groups of axes: within a group the products of the extents agree.
#pragma once

#include <vector>

#include "hotloop/array.h"

namespace hotloop {

struct ReshapeGroup {
  std::vector<int> in, out;  // axes; extent-1 axes appear in no group
};
std::vector<ReshapeGroup> reshape_groups(const Shape& in, const Shape& out);

}  // namespace hotloop
