// Minimisation on flat parameters; hotloop/_minimize.py adds the trees.
#include "hotloop/minimize.h"

#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include "components.h"
#include "hotloop/error.h"
#include "minimizers/registry.h"

namespace hotloop::python {
namespace {

// fn([leaves of params]) -> list
std::vector<Value> call(const nb::callable& fn, const Tree<Value>& params, const std::string& where) {
  const ScopeGuard scope;
  return to_values(fn(to_tracers(params.flatten())), where);
}

// (leaves, value, gradient_norm, iterations, evaluations, status)
nb::tuple parts_of(const Minimum& m) {
  return nb::make_tuple(to_tracers(m.params.flatten()), tracer(m.value), tracer(m.gradient_norm), tracer(m.iterations),
                        tracer(m.evaluations), tracer(m.status));
}

nb::tuple run_minimize(nb::callable fn, nb::handle params, const std::string& method, nb::dict settings,
                       std::int64_t max_iterations, std::int64_t max_evaluations, double gradient_tolerance,
                       double value_tolerance) {
  const auto value = [&](const Tree<Value>& p) { return call(fn, p, "minimize").at(0); };
  return parts_of(minimize(value, numbered(to_values(params, "params")),
                           minimizers::make_descent(method, settings_of(settings)),
                           {max_iterations, max_evaluations, gradient_tolerance, value_tolerance}));
}

nb::tuple run_least_squares(nb::callable fn, nb::handle params, const std::string& method, nb::dict settings,
                            std::int64_t max_iterations, std::int64_t max_evaluations, double gradient_tolerance,
                            double value_tolerance, double step_tolerance) {
  const auto residuals = [&](const Tree<Value>& p) { return numbered(call(fn, p, "least_squares")); };
  return parts_of(least_squares(
      residuals, numbered(to_values(params, "params")), minimizers::make_least_squares(method, settings_of(settings)),
      {max_iterations, max_evaluations, gradient_tolerance, value_tolerance, step_tolerance}));
}

}  // namespace

void bind_minimize(nb::module_& m) {
  m.def("minimize", &run_minimize);
  m.def("least_squares", &run_least_squares);
  m.def("descent_definitions", [] { return definitions(minimizers::all_descents()); });
  m.def("least_squares_definitions", [] { return definitions(minimizers::all_least_squares()); });
  m.def("minimum_statuses", [] {
    using S = minimizers::Status;
    nb::dict codes;
    for (const auto& [name, code] : {std::pair("Gradient", S::Gradient),
                                     {"Value", S::Value},
                                     {"Step", S::Step},
                                     {"MaxIterations", S::MaxIterations},
                                     {"MaxEvaluations", S::MaxEvaluations},
                                     {"Stalled", S::Stalled},
                                     {"NonFinite", S::NonFinite}})
      codes[name] = static_cast<int>(code);
    return codes;
  });
  m.def("minimum_describe", [](int status) { return minimizers::describe(static_cast<minimizers::Status>(status)); });
  m.def("minimum_remedy", [](int status) { return minimizers::remedy(static_cast<minimizers::Status>(status)); });
}

}  // namespace hotloop::python
