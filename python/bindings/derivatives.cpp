// Derivatives along many directions and Jacobians with structure, on flat functions; hotloop/_derivatives.py adds the trees.
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <functional>

#include "hotloop/error.h"
#include "hotloop/jacobian.h"
#include "hotloop/ops.h"
#include "ops/rules/arguments.h"
#include "tracer.h"

namespace hotloop::python {
namespace {

// What nanobind holds: one structure, shared with the engine's Jacobians.
struct SharedStructure {
  std::shared_ptr<const JacobianStructure> of;
  const JacobianStructure* operator->() const { return of.get(); }
};

bool equals(const JacobianStructure& a, const JacobianStructure& b) {
  return a.output == b.output && a.input == b.input && a.paired == b.paired && a.num_rows == b.num_rows &&
         a.num_columns == b.num_columns && a.sparse == b.sparse && a.row_start == b.row_start &&
         a.columns == b.columns && a.symmetric == b.symmetric && a.mode == b.mode &&
         a.forward_passes == b.forward_passes && a.reverse_passes == b.reverse_passes && a.flops == b.flops &&
         a.dense_flops == b.dense_flops && a.note == b.note && a.max_bytes == b.max_bytes;
}

nb::tuple shape_of(const ValueType& type) {
  nb::list dims;
  for (const std::int64_t d : type.shape.dims()) dims.append(d);
  return nb::tuple(dims);
}

// A part of the Jacobian that these are the stored elements of, by the name of the member that gives it.
nb::object part(const std::string& name, const SharedStructure& structure, nb::handle values, nb::handle operand) {
  const Jacobian j(structure.of, to_value(values, "jacobian"));
  const ValueType &x = structure->input, &y = structure->output;
  const auto vector = [&](const ValueType& type) {
    const Value v = to_value(operand, "jacobian");
    return v.dtype() == type.dtype ? v : cast(v, type.dtype);
  };
  if (name == "blocks") return tracer(j.blocks());
  if (name == "sparse") return tracer(j.sparse());
  if (name == "dense") return tracer(j.dense());
  if (name == "diagonal") return tracer(j.diagonal());
  if (name == "matvec") return tracer(j.matvec(vector(x)));
  if (name == "rmatvec") return tracer(j.rmatvec(vector(y)));
  throw InternalError(__FILE__, __LINE__, "a Jacobian has no part " + name);
}

void bind_structure(nb::module_& m) {
  using S = SharedStructure;
  nb::class_<S>(
      m, "JacobianStructure",
      "What is known of a Jacobian dy/dx before there are numbers: where it may be other than zero, and how it is "
      "computed.")
      .def_prop_ro(
          "output_shape", [](const S& s) { return shape_of(s->output); }, "Shape of y.")
      .def_prop_ro(
          "input_shape", [](const S& s) { return shape_of(s->input); }, "Shape of x.")
      .def_prop_ro(
          "values_shape", [](const S& s) { return shape_of(s->values_type()); }, "Shape of the stored elements.")
      .def_prop_ro(
          "paired", [](const S& s) { return s->paired; },
          "Pairs (axis of y, axis of x) along which it is block-diagonal.")
      .def_prop_ro(
          "num_blocks", [](const S& s) { return s->num_blocks(); }, "Number of blocks.")
      .def_prop_ro(
          "num_rows", [](const S& s) { return s->num_rows; }, "Rows of a block.")
      .def_prop_ro(
          "num_columns", [](const S& s) { return s->num_columns; }, "Columns of a block.")
      .def_prop_ro(
          "is_sparse", [](const S& s) { return s->sparse; }, "Whether blocks have zeros that are not stored.")
      .def_prop_ro(
          "is_symmetric", [](const S& s) { return s->symmetric; }, "Whether it is a Hessian.")
      .def_prop_ro(
          "num_stored", [](const S& s) { return s->num_stored(); }, "Stored elements of all blocks.")
      .def_prop_ro(
          "mode", [](const S& s) { return std::string(name_of(s->mode)); },
          "How it is computed: \"forward\", \"reverse\" or \"mixed\".")
      .def_prop_ro(
          "forward_passes", [](const S& s) { return s->forward_passes; }, "Number of tangents.")
      .def_prop_ro(
          "reverse_passes", [](const S& s) { return s->reverse_passes; }, "Number of cotangents.")
      .def_prop_ro(
          "flops", [](const S& s) { return s->flops; }, "Flops of these passes, estimated.")
      .def_prop_ro(
          "dense_flops", [](const S& s) { return s->dense_flops; },
          "Flops of one pass an element of x or y, whichever is cheaper.")
      .def(
          "indptr", [](const S& s) { return to_python(s->indptr()); }, "CSR row pointers: int64 (y.size + 1,).")
      .def(
          "column_indices", [](const S& s) { return to_python(s->column_indices()); },
          "Column of each stored element, row by row: int64.")
      .def(
          "row_indices", [](const S& s) { return to_python(s->row_indices()); }, "Row of each stored element: int64.")
      .def(
          "explain", [](const S& s) { return s->explain(); }, "Structure, mode, passes and cost, as text.")
      .def(
          "__eq__",
          [](const S& a, nb::handle b) {
            return nb::isinstance<S>(b) &&
                   (a.of == nb::cast<const S&>(b).of || equals(*a.of, *nb::cast<const S&>(b).of));
          },
          nb::arg("other").none())
      .def("__hash__",
           [](const S& s) {
             return std::hash<std::string>{}(s->output.str() + s->input.str()) ^
                    static_cast<std::size_t>(s->num_stored() * 31 + s->forward_passes);
           })
      .def("__repr__", [](const S& s) {
        return "<structure of the Jacobian of " + s->output.str() + " with respect to " + s->input.str() + ">";
      });
}

}  // namespace

void bind_derivatives(nb::module_& m) {
  bind_structure(m);
  m.def("jacobian_modes", [] {
    nb::list names;
    for (const JacobianMode mode :
         {JacobianMode::Auto, JacobianMode::Forward, JacobianMode::Reverse, JacobianMode::Mixed})
      names.append(nb::str(std::string(name_of(mode)).c_str()));
    return names;
  });
  // (structure, stored elements) of d output / d argument; symmetric: of the output's gradient.
  m.def(
      "jacobian",
      [](nb::callable fn, nb::handle arguments, int argnum, int output, bool symmetric, const std::string& mode,
         bool sparsity, std::int64_t max_detection_steps, std::int64_t max_bytes) {
        JacobianOptions options;
        options.argnum = argnum;
        options.output = output;
        options.mode = jacobian_mode_from_name(mode);
        options.sparsity = sparsity;
        options.max_detection_steps = max_detection_steps;
        options.max_bytes = max_bytes;
        options.known_value = lifted_from;
        const Function function = traced_function(std::move(fn));
        const JacobianFunction of = symmetric ? sparse_hessian(function, options) : jacobian(function, options);
        const Jacobian j = of(to_values(arguments, "jacobian"));
        return nb::make_tuple(SharedStructure{j.shared_structure()}, tracer(j.values()));
      },
      nb::arg("fn"), nb::arg("arguments"), nb::arg("argnum"), nb::arg("output"), nb::arg("symmetric"), nb::arg("mode"),
      nb::arg("sparsity"), nb::arg("max_detection_steps"), nb::arg("max_bytes"));
  m.def("jacobian_defaults", [] {
    const JacobianOptions options;
    nb::dict defaults;
    defaults["mode"] = nb::str(std::string(name_of(options.mode)).c_str());
    defaults["sparsity"] = options.sparsity;
    defaults["max_detection_steps"] = options.max_detection_steps;
    defaults["max_bytes"] = options.max_bytes;
    return defaults;
  });
  m.def("jacobian_part", &part, nb::arg("name"), nb::arg("structure"), nb::arg("values"), nb::arg("operand").none());

  m.def("jvp_many", [](nb::callable fn, nb::handle primals, nb::handle tangents) {
    const auto [outputs, derivatives] =
        jvp_many(traced_function(std::move(fn)), to_values(primals, "jvp_many"), or_undefined(tangents, "jvp_many"));
    return nb::make_tuple(to_tracers(outputs), to_tracers(derivatives));
  });
  m.def("vjp_many", [](nb::callable fn, nb::handle primals) {
    auto [outputs, pullback] = vjp_many(traced_function(std::move(fn)), to_values(primals, "vjp_many"));
    return nb::make_tuple(to_tracers(outputs),
                          nb::cpp_function([pullback = std::move(pullback)](nb::handle cotangents) {
                            return to_tracers(pullback(or_undefined(cotangents, "vjp_many")));
                          }));
  });
  m.def("jacfwd", [](nb::callable fn, std::vector<int> argnums, nb::handle arguments) {
    return to_tracers(jacfwd(traced_function(std::move(fn)), std::move(argnums))(to_values(arguments, "jacfwd")));
  });
  m.def("jacrev", [](nb::callable fn, std::vector<int> argnums, nb::handle arguments) {
    return to_tracers(jacrev(traced_function(std::move(fn)), std::move(argnums))(to_values(arguments, "jacrev")));
  });
  m.def("hessian", [](nb::callable fn, std::vector<int> argnums, nb::handle arguments) {
    return to_tracers(hessian(traced_function(std::move(fn)), std::move(argnums))(to_values(arguments, "hessian")));
  });
  m.def("hessian_diagonal", [](nb::callable fn, int argnum, nb::handle arguments) {
    const auto values = to_values(arguments, "hessian_diagonal");
    return tracer(hessian_diagonal(traced_function(std::move(fn)), argnum)(values).at(0));
  });
  m.def("laplacian", [](nb::callable fn, int argnum, nb::handle arguments) {
    return tracer(laplacian(traced_function(std::move(fn)), argnum)(to_values(arguments, "laplacian")).at(0));
  });
  m.def("gauss_newton_vp", [](nb::callable model, nb::callable loss, nb::handle primals, nb::handle vectors) {
    return to_tracers(gauss_newton_vp(traced_function(std::move(model)), traced_function(std::move(loss)),
                                      to_values(primals, "gauss_newton_vp"), or_undefined(vectors, "gauss_newton_vp")));
  });
  m.def("fisher_vp", [](nb::callable fn, nb::handle primals, nb::handle vectors) {
    return to_tracers(
        fisher_vp(traced_function(std::move(fn)), to_values(primals, "fisher_vp"), or_undefined(vectors, "fisher_vp")));
  });
  m.def("rtrl", [](nb::callable step, int num_params, int num_states, nb::handle arguments) {
    return to_tracers(rtrl(traced_function(std::move(step)), num_params, num_states)(to_values(arguments, "rtrl")));
  });
}

}  // namespace hotloop::python
