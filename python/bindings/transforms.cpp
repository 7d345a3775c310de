// jvp, vjp, vmap and the rest on flat functions; hotloop/_transforms.py adds the trees.
#include "hotloop/transforms.h"

#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <optional>

#include "gil.h"
#include "hotloop/error.h"
#include "hotloop/ops.h"
#include "ir/dependence.h"
#include "ir/interpreters.h"
#include "ir/region.h"
#include "ops/composed/linear_call.h"
#include "ops/rules/arguments.h"
#include "tracer.h"

namespace hotloop::python {
namespace {

// A function of values that transforms gave, as a Python callable of lists.
nb::object callable(Function fn) {
  return nb::cpp_function(
      [fn = std::move(fn)](nb::handle arguments) { return to_tracers(fn(to_values(arguments, "transform"))); });
}

// A call of `fn` on `operands` whose derivative is `rule` (primals..., tangents...) -> (outputs..., output tangents...), traced where a derivative is taken.
// Both may use values of the surroundings; those are operands with a tangent that the rule ignores. What the rule uses is found by tracing it once as
// `rule_at_first`, in which calls of the same function have no rule; without one it is known to the call around this one, which is only looked at.
std::vector<Value> call_with_jvp(const TracedFunction& fn, const std::optional<TracedFunction>& rule_at_first,
                                 const TracedFunction& rule, std::vector<Value> operands, const std::string& name) {
  const auto types = ir::types_of(operands);
  const UsesOfSurroundings uses;
  const ir::Region body = ir::trace_region(name, fn, types);
  auto rule_types = types;
  rule_types.insert(rule_types.end(), types.begin(), types.end());
  std::vector<Value> captures = body.captures;
  if (rule_at_first) {
    const ir::Region jvp = ir::trace_region(name + "_jvp", *rule_at_first, rule_types);
    for (const Value& v : jvp.captures)
      if (std::ranges::find(captures, v) == captures.end()) captures.push_back(v);
  }
  const auto surroundings = std::make_shared<const Surroundings>(uses.among(captures));
  const std::size_t n = operands.size(), total = n + captures.size();
  operands.insert(operands.end(), captures.begin(), captures.end());
  const auto all_types = ir::types_of(operands);
  const auto body_graph = trace(
      [&](std::span<const Value> v) {
        std::vector<Value> arguments(v.begin(), v.begin() + static_cast<std::ptrdiff_t>(n + body.captures.size()));
        return inline_graph(*body.graph, arguments);
      },
      all_types, name);
  const auto with_captures = [n, total, surroundings, rule](std::span<const Value> v) {
    const GilAcquired lock;
    const InPlaceOfSurroundings in_place(*surroundings, v.subspan(n, total - n));
    std::vector<Value> arguments(v.begin(), v.begin() + static_cast<std::ptrdiff_t>(n));
    arguments.insert(arguments.end(), v.begin() + static_cast<std::ptrdiff_t>(total),
                     v.begin() + static_cast<std::ptrdiff_t>(total + n));
    return rule(arguments);
  };
  return call_with_rule(body_graph, operands, name, with_captures);
}

// The graph of what `region` computes with its captures first.
std::shared_ptr<const Graph> captures_first(const ir::Region& region, const std::vector<ValueType>& types) {
  auto inputs = ir::types_of(region.captures);
  const std::size_t k = inputs.size();
  inputs.insert(inputs.end(), types.begin(), types.end());
  return trace(
      [&](std::span<const Value> v) {
        std::vector<Value> arguments(v.begin() + static_cast<std::ptrdiff_t>(k), v.end());
        arguments.insert(arguments.end(), v.begin(), v.begin() + static_cast<std::ptrdiff_t>(k));
        return inline_graph(*region.graph, arguments);
      },
      inputs, region.graph->name());
}

// (captures..., arguments of the transposed map...) -> its results; none where the map's derivative depends on where it is taken,
// or it has none in reverse mode.
std::shared_ptr<const Graph> transposed(const Graph& map, std::size_t num_captures) {
  const auto types = map.input_types(), results = map.output_types();
  const std::size_t n = types.size() - num_captures;
  std::vector<ValueType> all(types.begin() + static_cast<std::ptrdiff_t>(num_captures), types.end());
  all.insert(all.end(), types.begin(), types.begin() + static_cast<std::ptrdiff_t>(num_captures));
  all.insert(all.end(), results.begin(), results.end());
  std::shared_ptr<const Graph> graph;
  try {
    graph = trace(
        [&](std::span<const Value> v) {
          const auto captured = v.subspan(n, num_captures);
          const auto closed = [&](std::span<const Value> point) {
            std::vector<Value> inputs(captured.begin(), captured.end());
            inputs.insert(inputs.end(), point.begin(), point.end());
            return inline_graph(map, inputs);
          };
          return vjp(closed, v.first(n)).second(v.subspan(n + num_captures));
        },
        all, map.name());
  } catch (const UserError&) {
    return nullptr;
  }
  std::vector<bool> point(all.size());
  std::fill_n(point.begin(), n, true);
  const auto depends = ir::depending_outputs(*graph, point);
  if (std::ranges::any_of(depends, [](bool d) { return d; })) return nullptr;
  std::vector<ValueType> inputs(types.begin(), types.begin() + static_cast<std::ptrdiff_t>(num_captures));
  inputs.insert(inputs.end(), results.begin(), results.end());
  return trace(
      [&](std::span<const Value> v) {
        std::vector<Value> arguments;
        for (std::size_t i = 0; i < n; ++i) arguments.push_back(ir::zeros_of(types[num_captures + i]));
        arguments.insert(arguments.end(), v.begin(), v.end());
        return inline_graph(*graph, arguments);
      },
      inputs, map.name());
}

// The transpose of `fn` (cotangents of these types -> values), which should be linear, applied to `arguments`. Where fn is not linear
// it has a reverse mode alone.
std::vector<Value> transpose_linear(const TracedFunction& fn, const std::vector<ValueType>& types,
                                    const std::vector<Value>& arguments, const std::string& name) {
  const ir::Region region = ir::trace_region(name, fn, types);
  const auto results = region.graph->output_types();
  if (results != ir::types_of(arguments))
    throw UserError(
        name,
        "the backward function must give a cotangent of each argument, " + ir::types_text(ir::types_of(arguments)),
        ir::types_text(results), "zeros of its type for an argument that has none; cast() or reshape() the others");
  const auto map = captures_first(region, types);
  std::vector<Value> operands = region.captures;
  operands.insert(operands.end(), arguments.begin(), arguments.end());
  const std::size_t k = region.captures.size();
  if (const auto graph = transposed(*map, k)) return ir::linear_call(graph, map, operands, k);
  return ir::reverse_call(map, operands, k);
}

}  // namespace

void bind_transforms(nb::module_& m) {
  m.def("value_and_grad", [](nb::callable fn, std::vector<int> argnums, nb::handle arguments) {
    return to_tracers(value_and_grad(traced_function(std::move(fn)), std::move(argnums))(to_values(arguments, "grad")));
  });
  m.def("jvp", [](nb::callable fn, nb::handle primals, nb::handle tangents) {
    const auto p = to_values(primals, "jvp"), t = or_undefined(tangents, "jvp");
    auto [outputs, output_tangents] = jvp(traced_function(std::move(fn)), p, t);
    for (std::size_t i = 0; i < outputs.size(); ++i)
      if (is_float(outputs[i].dtype())) output_tangents[i] = ir::or_zeros(output_tangents[i], outputs[i].type());
    return nb::make_tuple(to_tracers(outputs), to_tracers(output_tangents));
  });
  m.def("vjp", [](nb::callable fn, nb::handle primals) {
    auto [outputs, pullback] = vjp(traced_function(std::move(fn)), to_values(primals, "vjp"));
    return nb::make_tuple(to_tracers(outputs), callable(std::move(pullback)));
  });
  m.def("linearize", [](nb::callable fn, nb::handle primals) {
    auto [outputs, map] = linearize(traced_function(std::move(fn)), to_values(primals, "linearize"));
    return nb::make_tuple(to_tracers(outputs), callable(std::move(map)));
  });
  m.def("vmap", [](nb::callable fn, std::vector<int> in_axes, nb::handle arguments) {
    return to_tracers(vmap(traced_function(std::move(fn)), std::move(in_axes))(to_values(arguments, "vmap")));
  });
  m.def("checkpoint", [](nb::callable fn, nb::handle arguments) {
    return to_tracers(checkpoint(traced_function(std::move(fn)))(to_values(arguments, "checkpoint")));
  });
  m.def("call_with_jvp", [](nb::callable fn, std::optional<nb::callable> rule_at_first, nb::callable rule,
                            nb::handle operands, const std::string& name) {
    std::optional<TracedFunction> look;
    if (rule_at_first) look = traced_function(std::move(*rule_at_first));
    return to_tracers(call_with_jvp(traced_function(std::move(fn)), look, traced_function(std::move(rule)),
                                    to_values(operands, name), name));
  });
  m.def("transpose_linear", [](nb::callable fn, nb::handle like, nb::handle arguments, const std::string& name) {
    return to_tracers(transpose_linear(traced_function(std::move(fn)), ir::types_of(to_values(like, name)),
                                       to_values(arguments, name), name));
  });
}

}  // namespace hotloop::python
