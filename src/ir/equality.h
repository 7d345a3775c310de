// Whether two nodes are written the same way.
#pragma once

#include <cstdint>

#include "hotloop/graph.h"

namespace hotloop::ir {

// To the bit: arrays and numbers as their bytes.
bool same_attr(const Attr& a, const Attr& b);
bool same_attrs(const Attrs& a, const Attrs& b);
// The same text: regions of two traces of one function. Derivative rules in them, at any depth, count until derivatives are taken.
enum class Rules : std::uint8_t { Compared, Ignored };
bool same_regions(const Node& a, const Node& b, Rules rules);

}  // namespace hotloop::ir
