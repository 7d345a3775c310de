// Storage: where a value lies in memory, as an affine map from its indices to elements of a buffer.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "hotloop/graph.h"
#include "schedule/kernel_ir.h"

namespace hotloop {

struct Storage {
  int buffer = -1;
  kernel::Affine offset;
  std::vector<std::int64_t> strides;  // elements, one an axis

  bool operator==(const Storage&) const = default;
};

Storage row_major(int buffer, const Shape& shape);

// Storage of the result of a movement op whose operand lies at `source`; nothing if it is no strided view of it.
std::optional<Storage> view_through(const Node& node, const Storage& source);
// The other way round: where the operand of a transpose or reshape lies when its result is to lie at `place`; nothing if that is no
// strided place.
std::optional<Storage> operand_place(const Node& node, const Storage& place);
// Movement ops for which view_through can succeed.
bool is_strided_view(const Node& node);

}  // namespace hotloop
