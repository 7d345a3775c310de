// Whether two nodes are written the same way.
#pragma once

#include "hotloop/graph.h"

namespace hotloop::ir {

// To the bit: arrays and numbers as their bytes.
bool same_attr(const Attr& a, const Attr& b);
bool same_attrs(const Attrs& a, const Attrs& b);
// The same text: regions of two traces of one function.
bool same_regions(const Node& a, const Node& b);

}  // namespace hotloop::ir
