#include "schedule/replaced_parts.h"

#include <algorithm>
#include <span>

#include "ir/op_def.h"

namespace hotloop {

using ir::OpKind;
using ir::ScalarOp;

std::optional<KeptPart> kept_part(const Node& update) {
  const Node& choice = *update.operands[1].node;
  if (choice.op->scalar != ScalarOp::Select) return std::nullopt;
  const Node& old = *choice.operands[1].node;
  const bool is_old = ir::is(old, OpKind::DynamicSlice) && old.operands[0] == update.operands[0] &&
                      std::ranges::equal(std::span(old.operands).subspan(1), std::span(update.operands).subspan(2));
  if (!is_old) return std::nullopt;
  return KeptPart{choice.operands[0], choice.operands[2]};
}

std::optional<std::size_t> replaced_operand(Value v) {
  if (ir::is(*v.node, OpKind::DynamicUpdate)) return 0;
  if (ir::is(*v.node, OpKind::Loop) && v.index < v.node->attrs.integer("num_carry"))
    return static_cast<std::size_t>(v.index);
  return std::nullopt;
}

std::vector<Value> operands_read(const Node& node) {
  std::vector<Value> operands = node.operands;
  if (!ir::is(node, OpKind::DynamicUpdate)) return operands;
  if (const auto kept = kept_part(node)) {
    operands[1] = kept->otherwise;
    operands.push_back(kept->mask);
  }
  return operands;
}

}  // namespace hotloop
