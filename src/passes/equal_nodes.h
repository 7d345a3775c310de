// Finding the node that computes the same: one op with the same operands, attributes and regions. Generations keep recomputed nodes
// apart from the first computation.
#pragma once

#include <unordered_map>
#include <vector>

#include "passes/pass.h"

namespace hotloop::passes {

class EqualNodes {
 public:
  // An earlier node equal to `node` on these operands, or null.
  const Node* find(const Node& node, const std::vector<Value>& operands) const;
  void insert(const Node& node) { nodes_.emplace(hash(node, node.operands), &node); }

 private:
  static std::size_t hash(const Node& node, const std::vector<Value>& operands);

  std::unordered_multimap<std::size_t, const Node*> nodes_;
};

}  // namespace hotloop::passes
