// Arrays that hold one number everywhere, and products with them.
#pragma once

#include <algorithm>
#include <optional>

#include "ir/op_def.h"

namespace hotloop::ir {

// The one number a float, integer or bool value holds everywhere, seen through broadcasts and reshapes. None for an i64 that a double rounds: it
// would be taken for its neighbours.
inline std::optional<double> uniform_value(Value v) {
  while (is(*v.node, OpKind::Broadcast) || is(*v.node, OpKind::Reshape)) v = v.node->operands[0];
  if (!is(*v.node, OpKind::Constant)) return std::nullopt;
  const Array& array = v.node->attrs.get<Array>("value");
  if (array.size() != 1) return std::nullopt;
  constexpr std::int64_t exact = std::int64_t{1} << 53;
  if (array.dtype() == DType::I64 && (array.data<std::int64_t>()[0] > exact || array.data<std::int64_t>()[0] < -exact))
    return std::nullopt;
  return array.at(0);
}

// A dot with the zeros that a sequence has for a state before its first step. It depends on its other factor alone, and yet is no constant of the
// program to be computed with bound weights: it has its place in a sum of products, the one that the state has in a stream, and the bits of the sum
// depend on it.
inline bool is_zero_product(const Node& node) {
  return is(node, OpKind::Dot) && std::ranges::any_of(node.operands, [](Value v) { return uniform_value(v) == 0.0; });
}

}  // namespace hotloop::ir
