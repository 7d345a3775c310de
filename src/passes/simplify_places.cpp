// Rules on tables of which parts are replaced or added to, as x.at[i].set, x.at[i].add and the derivatives of reading by computed places make
// them: where a loop carries a table, only what is touched should be.
#include <algorithm>
#include <span>

#include "passes/builder.h"

namespace hotloop::passes {
namespace {

using ir::OpKind;
using ir::ScalarOp;

std::span<const Value> places_written(Value update) { return std::span(update.node->operands).subspan(2); }
std::span<const Value> places_read(Value slice) { return std::span(slice.node->operands).subspan(1); }

// update(x, 0, at) + update(0, u, at) is update(x, u, at): the derivative of x.at[at].add().
Value put_back(Builder& b, Value x, Value y) {
  if (!is_kind(x, OpKind::DynamicUpdate) || !is_kind(y, OpKind::DynamicUpdate)) return {};
  if (!std::ranges::equal(places_written(x), places_written(y)) || operand(x, 1).type() != operand(y, 1).type())
    return {};
  for (const auto& [kept, other] : {std::pair(x, y), std::pair(y, x)}) {
    if (!is_number(operand(kept, 1), 0) || !is_number(operand(other), 0)) continue;
    std::vector<Value> operands = other.node->operands;
    operands[0] = operand(kept);
    return b.make(*other.node->op, std::move(operands), other.node->attrs);
  }
  return {};
}

}  // namespace

Value simplify_places(Builder& b, const ir::OpDef& op, const std::vector<Value>& operands, const Attrs&) {
  if (op.kind == OpKind::Elementwise && op.scalar == ScalarOp::Add) return put_back(b, operands[0], operands[1]);
  if (op.kind == OpKind::DynamicUpdate) {
    // What is there, written once more.
    const Value x = operands[0], u = operands[1];
    if (is_kind(u, OpKind::DynamicSlice) && operand(u) == x &&
        std::ranges::equal(places_read(u), std::span(operands).subspan(2)))
      return x;
  }
  return {};
}

Value add_where_it_lies(Builder& b, Value x, Value part) {
  if (is_kind(part, OpKind::ScatterAdd) && is_number(operand(part), 0) &&
      operand(part, 2).shape().size() <= x.shape().size()) {
    std::vector<Value> operands = part.node->operands;
    operands[0] = x;
    return b.make(*part.node->op, std::move(operands), part.node->attrs);
  }
  if (is_kind(part, OpKind::DynamicUpdate) && is_number(operand(part), 0)) {
    std::vector<Value> operands = part.node->operands, read = {x};
    read.insert(read.end(), operands.begin() + 2, operands.end());
    const Value there = b.make("dynamic_slice", std::move(read), {{"sizes", operands[1].shape().vec()}});
    operands[0] = x;
    operands[1] = b.add(there, operands[1]);
    return b.make(*part.node->op, std::move(operands), part.node->attrs);
  }
  return {};
}

}  // namespace hotloop::passes
