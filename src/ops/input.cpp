#include "hotloop/error.h"
#include "ir/op_def.h"

namespace hotloop::ir {

std::vector<OpDef> ops_input() {
  OpDef def;
  def.name = "input";
  def.summary = "an argument of the graph";
  def.kind = OpKind::Input;
  def.num_operands = 0;
  def.cost_per_element = 0;
  def.infer = [](const InferContext& c) {
    return std::vector<ValueType>{{c.attrs.get<DType>("dtype"), Shape(c.attrs.integers("shape"))}};
  };
  def.eval = [](const EvalContext&) -> std::vector<Array> {
    throw InternalError(__FILE__, __LINE__, "an input has no value of its own");
  };
  return {def};
}

}  // namespace hotloop::ir
