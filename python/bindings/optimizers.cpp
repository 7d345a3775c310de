// Optimisers, schedules and wrappers of the registries; hotloop/optim.py makes classes of them.
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <algorithm>

#include "components.h"
#include "hotloop/ops.h"
#include "hotloop/optim.h"
#include "optim/registry.h"

namespace hotloop::python {
namespace {

// (params, state), params in the structure they came in.
nb::tuple update(const optim::Optimizer& optimizer, nb::handle grads, nb::handle state, nb::handle params) {
  const auto [leaves, structure] = flatten(params);
  std::vector<Value> p, g;
  for (const nb::object& leaf : leaves) p.push_back(to_value(leaf, "params"));
  for (const nb::object& leaf : flatten_like(structure, grads, "grads")) g.push_back(to_value(leaf, "grads"));
  const auto [next, next_state] = optimizer.update(named_tree("grads", structure, g), value_tree(state, "state"),
                                                   named_tree("params", structure, p));
  std::vector<nb::object> next_leaves;
  for (const Value& v : next.flatten()) next_leaves.push_back(tracer(v));
  return nb::make_tuple(unflatten(structure, next_leaves), to_dicts(next_state));
}

}  // namespace

void bind_optimizers(nb::module_& m) {
  nb::class_<optim::ScheduleFactor>(m, "ScheduleFactor");
  nb::class_<optim::Schedule>(m, "Schedule");
  nb::class_<optim::Optimizer>(m, "Optimizer")
      .def("init",
           [](const optim::Optimizer& o, nb::handle params) {
             const bool traced = std::ranges::any_of(flatten(params).first, [](const auto& p) { return is_tracer(p); });
             return traced ? to_dicts(o.traced_init(value_tree(params, "params")))
                           : to_dicts(o.init(array_tree(params, "params")));
           })
      .def("evaluated",
           [](const optim::Optimizer& o, nb::handle params, nb::handle state) {
             const auto [leaves, structure] = flatten(params);
             const auto is_traced = [](nb::handle tree) {
               return std::ranges::any_of(flatten(tree).first, [](const auto& leaf) { return is_tracer(leaf); });
             };
             std::vector<nb::object> next;
             if (is_traced(params) || is_traced(state)) {
               const Tree<Value> found = o.traced_evaluated(value_tree(params, "params"), value_tree(state, "state"));
               for (const Value& v : found.flatten()) next.push_back(tracer(v));
               return unflatten(structure, next);
             }
             for (const Array& a : o.evaluated(array_tree(params, "params"), array_tree(state, "state")).flatten())
               next.push_back(to_python(a));
             return unflatten(structure, next);
           })
      .def("update", &update);
  m.def("optimizer_definitions", [] { return definitions(optim::all_optimizers()); });
  m.def("schedule_definitions", [] { return definitions(optim::all_schedules()); });
  m.def("wrapper_definitions", [] { return definitions(optim::all_wrappers()); });
  m.def("make_factor", [](const std::string& name, nb::dict settings) {
    return optim::make_schedule({name, settings_of(settings)});
  });
  m.def("make_schedule", [](double learning_rate, std::vector<optim::ScheduleFactor> factors) {
    return optim::Schedule(learning_rate, std::move(factors));
  });
  m.def("schedule_at", [](const optim::Schedule& schedule, nb::handle step) {
    const auto start = schedule.init().map([](const Array& a) { return constant(a); });
    return tracer(schedule.at(cast(to_value(step, "step"), DType::I32), start, DType::F64));
  });
  m.def("make_optimizer", [](const std::string& name, nb::dict settings, const optim::Schedule& learning_rate) {
    const optim::OptimizerDef& def = optim::optimizer_def(name);
    return def.make(config_of(def, settings), learning_rate);
  });
  m.def("make_wrapper", [](const std::string& name, nb::dict settings, const optim::Optimizer& inner) {
    const optim::WrapperDef& def = optim::wrapper_def(name);
    return def.make(config_of(def, settings), inner);
  });
}

}  // namespace hotloop::python
