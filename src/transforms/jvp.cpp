#include <algorithm>

#include "hotloop/error.h"
#include "hotloop/transforms.h"
#include "ir/interpreters.h"
#include "ir/region.h"
#include "ops/rules/arguments.h"

namespace hotloop {

std::pair<std::vector<Value>, std::vector<Value>> jvp(const Function& fn, std::span<const Value> primals,
                                                      std::span<const Value> tangents) {
  if (primals.size() != tangents.size())
    throw UserError("jvp", "there must be one tangent (undefined for zero) for each primal",
                    std::to_string(primals.size()) + " primals, " + std::to_string(tangents.size()) + " tangents");
  std::vector<ir::Dual> duals;
  for (std::size_t i = 0; i < primals.size(); ++i) {
    if (tangents[i].defined() && (tangents[i].type() != primals[i].type() || !is_float(primals[i].dtype())))
      throw UserError("jvp", "a tangent must have the type of its primal, which must be f32 or f64",
                      "primal " + primals[i].type().str() + ", tangent " + tangents[i].type().str(),
                      "leave the tangents of integers undefined");
    duals.push_back({primals[i], tangents[i]});
  }
  const ir::Region region = ir::trace_region("jvp", fn, ir::types_of(primals));
  for (const Value& v : region.captures) duals.push_back({v, {}});
  std::pair<std::vector<Value>, std::vector<Value>> result;
  for (const ir::Dual& d : ir::push_forward(*region.graph, duals)) {
    result.first.push_back(d.primal);
    result.second.push_back(d.tangent);
  }
  return result;
}

std::shared_ptr<Graph> jvp_graph(const Graph& graph, const std::vector<bool>& wanted) {
  HOTLOOP_CHECK(wanted.size() == graph.inputs().size(), "jvp_graph: one flag an input");
  std::vector<ValueType> types = graph.input_types();
  for (std::size_t i = 0; i < wanted.size(); ++i)
    if (wanted[i]) types.push_back(graph.inputs()[i].type());
  return trace(
      [&](std::span<const Value> inputs) {
        std::vector<ir::Dual> duals;
        std::size_t next = wanted.size();
        for (std::size_t i = 0; i < wanted.size(); ++i)
          duals.push_back({inputs[i], wanted[i] ? inputs[next++] : Value{}});
        std::vector<Value> outputs, tangents;
        for (const ir::Dual& d : ir::push_forward(graph, duals)) {
          outputs.push_back(d.primal);
          if (is_float(d.primal.dtype())) tangents.push_back(ir::or_zeros(d.tangent, d.primal.type()));
        }
        outputs.insert(outputs.end(), tangents.begin(), tangents.end());
        return outputs;
      },
      types, graph.name());
}

}  // namespace hotloop
