#include "ir/region.h"

#include "hotloop/error.h"

namespace hotloop::ir {

Region trace_region(const std::string& name, const TracedFunction& fn, std::span<const ValueType> types) {
  const auto graph = std::make_shared<Graph>(name);
  {
    TraceScope scope(*graph, is_tracing());
    std::vector<Value> inputs;
    for (const ValueType& t : types) inputs.push_back(graph->add_input(t));
    std::vector<Value> outputs = fn(inputs);
    for (Value& v : outputs) {
      if (!v.defined()) throw UserError(name, "the function must give values", "an undefined value");
      v = graph->capture(v);
    }
    graph->set_outputs(outputs);
  }
  return {graph, graph->captures()};
}

std::vector<ValueType> types_of(std::span<const Value> values) {
  std::vector<ValueType> types;
  for (const Value& v : values) types.push_back(v.type());
  return types;
}

}  // namespace hotloop::ir
