// Products with the zeros that a sequence has for a state before its first step.
#pragma once

#include <algorithm>

#include "ir/op_def.h"

namespace hotloop::ir {

// A dot of which a factor is a broadcast zero. It depends on its other factor alone, and yet is no constant of the program to be computed with bound
// weights: it has its place in a sum of products, the one that the state has in a stream, and the bits of the sum depend on it.
inline bool is_zero_product(const Node& node) {
  const auto is_zero = [](Value v) {
    while (is(*v.node, OpKind::Broadcast) || is(*v.node, OpKind::Reshape)) v = v.node->operands[0];
    if (!is(*v.node, OpKind::Constant)) return false;
    const Array& array = v.node->attrs.get<Array>("value");
    return array.size() == 1 && array.at(0) == 0;
  };
  return is(node, OpKind::Dot) && std::ranges::any_of(node.operands, is_zero);
}

}  // namespace hotloop::ir
