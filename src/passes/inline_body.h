// A region's body written where its node stood: what a call and a loop of one iteration become.
#pragma once

#include <algorithm>

#include "ir/rewrite.h"

namespace hotloop::passes {

// Appends the nodes of `body`, whose inputs `map` holds already, to the graph under reconstruction, and maps their results. A copy
// of a recomputed `node` stays apart from the first computation.
inline void inline_body(const Graph& body, const Node& node, ir::ValueMap& map, ir::Rebuild& rebuild) {
  for (const auto& inner : body.nodes()) {
    if (inner->op->kind == ir::OpKind::Input) continue;
    std::vector<Value> operands;
    for (const Value& v : inner->operands) operands.push_back(map(v));
    Node* copied = rebuild.to().append(*inner->op, std::move(operands), inner->attrs, inner->regions,
                                       std::max(inner->generation, node.generation));
    for (int i = 0; i < static_cast<int>(inner->types.size()); ++i) map.set(inner->result(i), copied->result(i));
  }
}

}  // namespace hotloop::passes
