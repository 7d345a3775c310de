// The two operands of a dot, side 0 (lhs) and side 1 (rhs).
#pragma once

#include "core/index.h"
#include "ops/rules/arguments.h"
#include "passes/builder.h"

namespace hotloop::passes {

inline const char* contract_name(int side) { return side == 0 ? "lhs_contract" : "rhs_contract"; }
inline const char* batch_name(int side) { return side == 0 ? "lhs_batch" : "rhs_batch"; }

// The axes of an operand that are in the result, behind those of the batch.
inline Axes free_axes(const Node& dot, int side) {
  Axes used = dot.attrs.integers(contract_name(side));
  const Axes& batch = dot.attrs.integers(batch_name(side));
  used.insert(used.end(), batch.begin(), batch.end());
  return ir::other_axes(dot.operands[at(side)].rank(), used);
}

}  // namespace hotloop::passes
