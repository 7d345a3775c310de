// What all movement ops share: no arithmetic, a derivative that is the op itself applied to the tangent.
#pragma once

#include <string>

#include "hotloop/error.h"
#include "ir/op_def.h"

namespace hotloop::ir {

// A movement op without infer, eval, transpose and batch.
OpDef movement_op(const std::string& name, const std::string& summary, OpKind kind, int num_operands = 1);

// jvp of an op of one operand that is linear: the same node on the tangent.
std::vector<Value> apply_to_tangent(const JvpContext& c);

// transpose rule from a function of the cotangent and the context; zero stays zero.
template <class F> auto transpose_of_one(F f) {
  return [f](const TransposeContext& c) {
    return std::vector<Value>{c.cotangents[0].defined() ? f(c.cotangents[0], c) : Value{}};
  };
}

// batch rule of an op of one operand, from a function of the batched value and the context.
template <class F> auto batch_of_one(F f) {
  return [f](const BatchContext& c) { return std::vector<Batched>{{f(c.operands[0].value, c), true}}; };
}

}  // namespace hotloop::ir
