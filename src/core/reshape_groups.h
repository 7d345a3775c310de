// A reshape as groups of axes: within a group the products of the extents agree.
#pragma once

#include <utility>
#include <vector>

#include "hotloop/array.h"

namespace hotloop {

struct ReshapeGroup {
  std::vector<int> in, out;  // axes; extent-1 axes appear in no group
};
std::vector<ReshapeGroup> reshape_groups(const Shape& in, const Shape& out);

// Axes of extent 1 that stand in the same place, (in, out): between two groups the first is the first, and so on. A batch of one
// is such an axis, and stays the batch when axes are added behind it.
std::vector<std::pair<int, int>> matched_ones(const Shape& in, const Shape& out);

}  // namespace hotloop
