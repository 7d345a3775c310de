// Differential equations on flat states; hotloop/ode.py adds the trees and makes classes of the registries.
#include "hotloop/ode.h"

#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include "components.h"
#include "gil.h"
#include "hotloop/error.h"
#include "hotloop/ops.h"
#include "ode/registry.h"

namespace hotloop::python {
namespace {

// A time: a number known now, or a traced scalar. A traced Python number keeps its digits.
ode::Scalar scalar_of(nb::handle object, const std::string& name) {
  if (is_tracer(object)) {
    (void)to_value(object, name);  // alive
    const Tracer& t = nb::cast<const Tracer&>(object);
    return t.weak && t.value.dtype() != DType::F64 ? cast(t.value, DType::F64) : t.value;
  }
  const nb::object number = nb::steal(PyNumber_Float(object.ptr()));
  if (number.is_valid()) return nb::cast<double>(number);
  PyErr_Clear();
  throw UserError("ode.solve", name + " must be a number or a float scalar", nb::cast<std::string>(nb::repr(object)),
                  "take one element of an array, or reshape() it to ()");
}

// fn(t, [leaves of y], [leaves of args]) -> list
std::vector<Value> call(nb::handle fn, Value t, const Tree<Value>& y, const Tree<Value>& args) {
  const ScopeGuard scope;
  return to_values(fn(tracer(t), to_tracers(y.flatten()), to_tracers(args.flatten())), "ode.solve");
}

auto tree_function(nb::handle fn) {
  return [fn = shared(fn)](Value t, const Tree<Value>& y, const Tree<Value>& args) {
    return y.unflatten(call(fn.get(), t, y, args));
  };
}

ode::Event event_of(nb::handle event) {
  ode::Event result;
  result.function = [fn = shared(nb::object(event[0]))](Value t, const Tree<Value>& y, const Tree<Value>& args) {
    return call(fn.get(), t, y, args).at(0);
  };
  result.direction = nb::cast<int>(event[1]);
  result.terminal = nb::cast<bool>(event[2]);
  if (!nb::object(event[3]).is_none()) result.change = tree_function(nb::object(event[3]));
  return result;
}

struct SaveRequest {
  bool t0 = false, steps = false, t1 = false, dense = false;
};

ode::SaveAt saveat_of(const SaveRequest& request, nb::handle ts) {
  ode::SaveAt saveat;
  saveat.t0 = request.t0;
  saveat.steps = request.steps;
  saveat.t1 = request.t1;
  saveat.dense = request.dense;
  if (is_tracer(ts))
    saveat.ts_value = to_value(ts, "ts");
  else if (!ts.is_none())
    saveat.ts = nb::cast<std::vector<double>>(ts);
  return saveat;
}

nb::object optional_tracer(Value value) { return value.defined() ? tracer(value) : nb::none(); }

nb::dict parts_of(const ode::Solution& s) {
  nb::dict parts;
  parts["ts"] = optional_tracer(s.ts);
  parts["ys"] = s.ts.defined() ? nb::object(to_tracers(s.ys.flatten())) : nb::none();
  parts["t1"] = tracer(s.t1);
  parts["y1"] = to_tracers(s.y1.flatten());
  parts["result"] = tracer(s.result);
  nb::dict stats;
  stats["num_steps"] = tracer(s.stats.num_steps);
  stats["num_accepted"] = tracer(s.stats.num_accepted);
  stats["num_rejected"] = tracer(s.stats.num_rejected);
  stats["num_evaluations"] = tracer(s.stats.num_evaluations);
  stats["num_events"] = optional_tracer(s.stats.num_events);
  parts["stats"] = stats;
  parts["dense"] = nb::none();
  if (s.dense) {
    nb::list coefficients;
    for (const ode::Leaves& leaves : s.dense->coefficients) coefficients.append(to_tracers(leaves));
    parts["dense"] = nb::make_tuple(tracer(s.dense->starts), tracer(s.dense->ends), tracer(s.dense->lengths),
                                    coefficients, tracer(s.dense->direction.as(s.dense->ends.dtype())));
  }
  return parts;
}

nb::dict solve(nb::callable field, const ode::Solver& solver, nb::handle t0, nb::handle t1, const Structure& structure,
               nb::handle y0, nb::handle args, nb::handle dt0, const SaveRequest& save, nb::handle ts,
               const ode::Controller& controller, const ode::Adjoint& adjoint, nb::handle events,
               std::int64_t max_steps) {
  ode::Options options;
  options.args = numbered(to_values(args, "args"));
  if (!dt0.is_none()) options.dt0 = scalar_of(dt0, "dt0");
  options.saveat = saveat_of(save, ts);
  options.controller = controller;
  options.adjoint = adjoint;
  for (const nb::handle event : events) options.events.push_back(event_of(event));
  options.max_steps = max_steps;
  return parts_of(ode::solve(tree_function(std::move(field)), solver, scalar_of(t0, "t0"), scalar_of(t1, "t1"),
                             named_tree("ode.solve", structure, to_values(y0, "y0")), options));
}

// The leaves of the state at t, from the parts of an interpolant.
nb::list evaluate(nb::handle starts, nb::handle ends, nb::handle lengths, nb::handle coefficients, nb::handle direction,
                  nb::handle t) {
  ode::Solution::Dense dense;
  dense.starts = to_value(starts, "evaluate");
  dense.ends = to_value(ends, "evaluate");
  dense.lengths = to_value(lengths, "evaluate");
  for (const nb::handle leaves : coefficients) dense.coefficients.push_back(to_values(leaves, "evaluate"));
  dense.direction = to_value(direction, "evaluate");
  dense.like = numbered(dense.coefficients.at(0));
  ode::Solution solution;
  solution.dense = std::make_shared<const ode::Solution::Dense>(std::move(dense));
  return to_tracers(solution.evaluate(to_value(t, "evaluate")).flatten());
}

// A number, known or traced, or the leaves of a tree like the state.
ode::Tolerance tolerance_of(const Structure& structure, nb::handle tolerance, const std::string& name) {
  if (is_tracer(tolerance)) return to_value(tolerance, name);
  if (!PyList_Check(tolerance.ptr())) return nb::cast<double>(nb::float_(tolerance));
  std::vector<Array> leaves;
  for (const nb::handle leaf : tolerance) leaves.push_back(to_array(leaf, name));
  return named_tree("ode.solve", structure, leaves);
}

}  // namespace

void bind_ode(nb::module_& m) {
  nb::class_<ode::Solver>(m, "Solver")
      .def_prop_ro("order", [](const ode::Solver& s) { return s.rule().order(); })
      .def_prop_ro("error_order", [](const ode::Solver& s) { return s.rule().error_order(); })
      .def_prop_ro("is_implicit", [](const ode::Solver& s) { return s.rule().is_implicit(); });
  nb::class_<ode::Controller>(m, "Controller");
  nb::class_<ode::Adjoint>(m, "Adjoint");
  m.def("solver_definitions", [] { return definitions(ode::all_solvers()); });
  m.def("make_solver",
        [](const std::string& name, nb::dict settings) { return ode::make_solver(name, settings_of(settings)); });
  m.def("adjoint_definitions", [] { return definitions(ode::all_adjoints()); });
  m.def("make_adjoint",
        [](const std::string& name, nb::dict settings) { return ode::make_adjoint(name, settings_of(settings)); });

  nb::class_<ode::PIDOptions>(m, "PIDOptions")
      .def(nb::init<>())
      .def_rw("pcoeff", &ode::PIDOptions::pcoeff)
      .def_rw("icoeff", &ode::PIDOptions::icoeff)
      .def_rw("dcoeff", &ode::PIDOptions::dcoeff)
      .def_rw("dtmin", &ode::PIDOptions::dtmin, nb::arg().none())
      .def_rw("dtmax", &ode::PIDOptions::dtmax, nb::arg().none())
      .def_rw("force_dtmin", &ode::PIDOptions::force_dtmin)
      .def_rw("factormin", &ode::PIDOptions::factormin)
      .def_rw("factormax", &ode::PIDOptions::factormax)
      .def_rw("safety", &ode::PIDOptions::safety);
  m.def("make_pid",
        [](const Structure& structure, nb::handle rtol, nb::handle atol,
           const ode::PIDOptions& options) -> ode::Controller {
          return ode::PID(tolerance_of(structure, rtol, "rtol"), tolerance_of(structure, atol, "atol"), options);
        });
  m.def("make_constant_step", []() -> ode::Controller { return ode::ConstantStep(); });
  m.def("make_clip",
        [](const ode::Controller& inner, std::vector<double> step_ts, std::vector<double> jump_ts) -> ode::Controller {
          return ode::Clip(inner, std::move(step_ts), std::move(jump_ts));
        });

  nb::class_<SaveRequest>(m, "SaveRequest")
      .def("__init__", [](SaveRequest* self, bool t0, bool steps, bool t1, bool dense) {
        new (self) SaveRequest{t0, steps, t1, dense};
      });
  m.def("ode_solve", &solve, nb::arg("field"), nb::arg("solver"), nb::arg("t0"), nb::arg("t1"), nb::arg("structure"),
        nb::arg("y0"), nb::arg("args"), nb::arg("dt0").none(), nb::arg("save"), nb::arg("ts").none(),
        nb::arg("controller"), nb::arg("adjoint"), nb::arg("events"), nb::arg("max_steps"));
  m.def("ode_evaluate", &evaluate);
  m.def("ode_results", [] {
    using R = ode::Result;
    nb::dict codes;
    for (const auto& [name, code] : {std::pair("Success", R::Success),
                                     {"Event", R::Event},
                                     {"MaxSteps", R::MaxSteps},
                                     {"StepTooSmall", R::StepTooSmall},
                                     {"NonFinite", R::NonFinite},
                                     {"NewtonFailed", R::NewtonFailed}})
      codes[name] = static_cast<int>(code);
    return codes;
  });
  m.def("ode_describe", [](int result) { return ode::describe(static_cast<ode::Result>(result)); });
  m.def("ode_remedy", [](int result) { return ode::remedy(static_cast<ode::Result>(result)); });
  m.def("ode_check", [](nb::handle result) { ode::check(to_array(result, "result")); });
}

}  // namespace hotloop::python
