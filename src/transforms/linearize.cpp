// Reverse mode: linearize (jvp, then split into known and linear) and transpose.
#include <algorithm>

#include "hotloop/error.h"
#include "hotloop/ops.h"
#include "hotloop/transforms.h"
#include "ir/interpreters.h"
#include "ir/region.h"
#include "ops/rules/arguments.h"
#include "transforms/argnums.h"
#include "transforms/derivative_region.h"
#include "transforms/final_carries.h"
#include "transforms/linear_part.h"
#include "transforms/split.h"

namespace hotloop {
namespace {

// fn at a point: its outputs, and the graph of its derivative there. That graph takes the tangents of the active primals, then
// the residuals, values of the trace in which the point is.
struct Linearized {
  std::vector<Value> outputs;
  std::vector<Value> residuals;
  std::vector<bool> active;         // of each primal: has a tangent
  std::vector<bool> output_active;  // of each output: its tangent is an output of `linear`
  std::vector<ValueType> primal_types;
  std::shared_ptr<Graph> linear;
};

Linearized linearize_at(const Function& fn, std::span<const Value> primals, const std::vector<bool>& wanted) {
  Linearized result;
  result.primal_types = ir::types_of(primals);
  ir::Region region = ir::trace_for_derivative("linearize", fn, result.primal_types);
  if (auto graph = ir::use_final_carries(*region.graph)) region.graph = std::move(graph);
  const std::size_t num_inputs = region.graph->inputs().size();

  // The jvp: inputs (primals, captures, tangents), outputs (outputs, tangents that are not zero).
  std::vector<ValueType> types = region.graph->input_types();
  for (std::size_t i = 0; i < primals.size(); ++i) {
    result.active.push_back(wanted[i] && is_float(primals[i].dtype()));
    if (result.active[i]) types.push_back(primals[i].type());
  }
  const auto jvp = trace(
      [&](std::span<const Value> inputs) {
        std::vector<ir::Dual> duals;
        std::size_t next = num_inputs;
        for (std::size_t i = 0; i < num_inputs; ++i)
          duals.push_back({inputs[i], i < result.active.size() && result.active[i] ? inputs[next++] : Value{}});
        std::vector<Value> outputs, tangents;
        for (const ir::Dual& d : ir::push_forward(*region.graph, duals)) {
          outputs.push_back(d.primal);
          result.output_active.push_back(d.tangent.defined());
          if (d.tangent.defined()) tangents.push_back(d.tangent);
        }
        outputs.insert(outputs.end(), tangents.begin(), tangents.end());
        return outputs;
      },
      types, "jvp");

  std::vector<bool> known(types.size());
  std::fill_n(known.begin(), num_inputs, true);
  const ir::Split split = ir::split(*jvp, known);
  const Graph& graph = *split.graph;
  const std::size_t num_outputs = result.output_active.size();
  const std::vector<Value> known_outputs(graph.outputs().begin(),
                                         graph.outputs().begin() + static_cast<std::ptrdiff_t>(num_outputs));
  const ir::LinearPart part{
      split, {graph.outputs().begin() + static_cast<std::ptrdiff_t>(num_outputs), graph.outputs().end()}};
  const auto reads = part.reads([](Value v) {
    return v.node->operands.empty() && !ir::is(*v.node, ir::OpKind::Input) ? ir::Source::Copy : ir::Source::Given;
  });

  ir::ValueMap map(graph);
  for (std::size_t i = 0; i < num_inputs; ++i)
    map.set(graph.inputs()[i], i < primals.size() ? primals[i] : region.captures[i - primals.size()]);
  std::vector<Value> known_values = known_outputs;
  known_values.insert(known_values.end(), reads.begin(), reads.end());
  const std::vector<Value> computed = ir::copy_needed(graph, map, known_values);
  result.outputs.assign(computed.begin(), computed.begin() + static_cast<std::ptrdiff_t>(num_outputs));
  result.residuals.assign(computed.begin() + static_cast<std::ptrdiff_t>(num_outputs), computed.end());

  const std::size_t num_tangents = types.size() - num_inputs;
  std::vector<ValueType> linear_types(types.begin() + static_cast<std::ptrdiff_t>(num_inputs), types.end());
  for (const Value& v : reads) linear_types.push_back(v.type());
  result.linear = trace(
      [&](std::span<const Value> inputs) {
        ir::ValueMap linear_map(graph);
        for (std::size_t i = 0; i < num_tangents; ++i) linear_map.set(graph.inputs()[num_inputs + i], inputs[i]);
        for (std::size_t i = 0; i < reads.size(); ++i) linear_map.set(reads[i], inputs[num_tangents + i]);
        return part.copy(linear_map);
      },
      linear_types, "linear");
  return result;
}

// Cotangents of the primals from those of the outputs; undefined where there is none.
std::vector<Value> transpose_at(const Linearized& at, std::span<const Value> cotangents) {
  std::vector<Value> active_cotangents;
  for (std::size_t i = 0; i < cotangents.size(); ++i)
    if (at.output_active[i]) active_cotangents.push_back(cotangents[i]);
  const std::size_t num_tangents = at.linear->inputs().size() - at.residuals.size();
  std::vector<Value> inputs(num_tangents);
  Graph& here = current_graph();
  for (const Value& v : at.residuals) inputs.push_back(here.capture(v));
  const auto given = ir::pull_back(*at.linear, inputs, active_cotangents);
  std::vector<Value> result;
  std::size_t next = 0;
  for (const bool active : at.active) result.push_back(active ? given[next++] : Value{});
  return result;
}

void check_like(const std::string& where, const std::string& what, std::span<const Value> given,
                const std::vector<ValueType>& types) {
  bool fits = given.size() == types.size();
  for (std::size_t i = 0; fits && i < given.size(); ++i) fits = !given[i].defined() || given[i].type() == types[i];
  if (fits) return;
  std::vector<Value> defined;
  for (const Value& v : given)
    if (v.defined()) defined.push_back(v);
  throw UserError(where, what + " must have the types " + ir::types_text(types), ir::types_text(defined));
}

}  // namespace

std::pair<std::vector<Value>, Function> vjp(const Function& fn, std::span<const Value> primals) {
  const auto at =
      std::make_shared<const Linearized>(linearize_at(fn, primals, std::vector<bool>(primals.size(), true)));
  return {at->outputs, [at](std::span<const Value> cotangents) {
            check_like("vjp", "the cotangents", cotangents, ir::types_of(at->outputs));
            std::vector<Value> result = transpose_at(*at, cotangents);
            for (std::size_t i = 0; i < result.size(); ++i) result[i] = ir::or_zeros(result[i], at->primal_types[i]);
            return result;
          }};
}

std::pair<std::vector<Value>, Function> linearize(const Function& fn, std::span<const Value> primals) {
  const auto at =
      std::make_shared<const Linearized>(linearize_at(fn, primals, std::vector<bool>(primals.size(), true)));
  return {at->outputs, [at](std::span<const Value> tangents) {
            check_like("linearize", "the tangents", tangents, at->primal_types);
            std::vector<Value> arguments;
            for (std::size_t i = 0; i < tangents.size(); ++i)
              if (at->active[i]) arguments.push_back(ir::or_zeros(tangents[i], at->primal_types[i]));
            arguments.insert(arguments.end(), at->residuals.begin(), at->residuals.end());
            const std::vector<Value> given = inline_graph(*at->linear, arguments);
            std::vector<Value> result;
            std::size_t next = 0;
            for (std::size_t i = 0; i < at->outputs.size(); ++i)
              result.push_back(at->output_active[i] ? given[next++] : ir::zeros_of(at->outputs[i].type()));
            return result;
          }};
}

Function value_and_grad(const Function& fn, std::vector<int> argnums) {
  return [fn, argnums](std::span<const Value> inputs) {
    ir::check_argnums("grad", inputs, argnums);
    return ir::without_dead_work(
        "grad",
        [&](std::span<const Value> v) {
          const Linearized at = linearize_at(fn, v, ir::argnum_flags(v.size(), argnums));
          if (at.outputs.empty() || at.outputs[0].rank() != 0 || !is_float(at.outputs[0].dtype()))
            throw UserError("grad", "the first output of the function must be an f32 or f64 scalar",
                            ir::types_text(at.outputs), "reduce it, as in mean(loss)");
          std::vector<Value> cotangents(at.outputs.size());
          cotangents[0] = constant(1, at.outputs[0].dtype());
          const auto given = transpose_at(at, cotangents);
          std::vector<Value> outputs = at.outputs;
          for (const int i : argnums) {
            const auto k = static_cast<std::size_t>(i);
            outputs.push_back(ir::or_zeros(given[k], v[k].type()));
          }
          return outputs;
        },
        inputs);
  };
}

Function grad(const Function& fn, std::vector<int> argnums) {
  return [fn, argnums](std::span<const Value> inputs) {
    return ir::without_dead_work(
        "grad",
        [&](std::span<const Value> v) {
          std::vector<Value> all = value_and_grad(fn, argnums)(v);
          all.erase(all.begin(), all.end() - static_cast<std::ptrdiff_t>(argnums.size()));
          return all;
        },
        inputs);
  };
}

}  // namespace hotloop
