#include "ops/rules/movement.h"

namespace hotloop::ir {

OpDef movement_op(const std::string& name, const std::string& summary, OpKind kind, int num_operands) {
  OpDef def;
  def.name = name;
  def.summary = summary;
  def.kind = kind;
  def.num_operands = num_operands;
  def.cost_per_element = 0;
  def.jvp = apply_to_tangent;
  return def;
}

std::vector<Value> apply_to_tangent(const JvpContext& c) {
  if (!c.tangents[0].defined()) return {{}};
  return {current_graph().append(*c.node.op, {c.tangents[0]}, c.node.attrs)->result()};
}

}  // namespace hotloop::ir
