#pragma once

#include <set>
#include <tuple>

#include "hotloop/graph.h"

namespace hotloop {

// What a walk from a value to what it is computed from has met already, in which way (at the same point, for which reader). Values meet again on many ways,
// twice as many with each node that reads one twice: no walk follows them all.
template <class... How> class Visited {
 public:
  bool is_first(Value v, How... how) { return seen_.emplace(v.node, v.index, how...).second; }

 private:
  std::set<std::tuple<const Node*, int, How...>> seen_;
};

}  // namespace hotloop
