#include "transforms/derivative_region.h"

#include <utility>

#include "ir/rewrite.h"
#include "ops/composed/reroll.h"

namespace hotloop::ir {

Region trace_for_derivative(const std::string& name, const TracedFunction& fn, std::span<const ValueType> types) {
  Region region = trace_region(name, fn, types);
  if (auto rolled = reroll(*region.graph)) region.graph = std::move(rolled);
  return region;
}

std::vector<Value> without_dead_work(const std::string& name, const TracedFunction& fn, std::span<const Value> inputs) {
  const Region region = trace_region(name, fn, types_of(inputs));
  std::vector<Value> arguments(inputs.begin(), inputs.end());
  arguments.insert(arguments.end(), region.captures.begin(), region.captures.end());
  const auto live = eliminate_dead(*region.graph);
  return inline_graph(live ? *live : *region.graph, arguments);
}

}  // namespace hotloop::ir
