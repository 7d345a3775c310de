// Ops of the registry by name: every elementwise op through two functions, every other one through append.
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <array>
#include <map>

#include "hotloop/angles.h"
#include "hotloop/error.h"
#include "hotloop/linalg.h"
#include "hotloop/ops.h"
#include "hotloop/sorting.h"
#include "ir/op_def.h"
#include "nn/activations.h"
#include "ops/composed/log_softmax.h"
#include "ops/rules/arguments.h"
#include "tracer.h"

namespace hotloop::python {
namespace {

// Whether the op refuses integers, which are then cast to f32, as the array API standard's elementwise functions do.
bool wants_floats(const ir::OpDef& op) {
  static std::map<const ir::OpDef*, bool> known;  // under the GIL
  const auto it = known.find(&op);
  if (it != known.end()) return it->second;
  const std::vector<ValueType> types(static_cast<std::size_t>(op.num_operands), ValueType{DType::I32, {}});
  bool floats = false;
  try {
    (void)op.infer({types, {}, {}, op.name});
  } catch (const UserError&) {
    floats = true;
  }
  return known[&op] = floats;
}

// The result of an op of traced Python numbers alone is such a number: it keeps its digits until it meets an array.
nb::object number(Value result, std::span<const nb::handle> operands) {
  const bool is_integer = result.dtype() == DType::I64;
  return tracer(result, result.dtype() == DType::F64 || is_integer, is_integer && any_is_wide(operands));
}

nb::object unary(const std::string& name, nb::handle x) {
  const ir::OpDef& op = ir::op(name);
  const nb::handle alone[] = {x};
  if (const auto numbers = traced_numbers(name, alone, wants_floats(op)))
    return number(ir::append_op(name, {(*numbers)[0]}), alone);
  const nb::handle operands[] = {x};
  return tracer(ir::append_op(name, promote(name, operands, wants_floats(op))));
}

nb::object binary(const std::string& name, nb::handle a, nb::handle b, bool floats) {
  const ir::OpDef& op = ir::op(name);
  const nb::handle operands[] = {a, b};
  if (const auto numbers = traced_numbers(name, operands, floats || wants_floats(op)))
    return number(ir::append_op(name, *numbers), operands);
  const auto values = ir::broadcast_together(name, promote(name, operands, floats || wants_floats(op)));
  return tracer(ir::append_op(name, values));
}

Attr attr_of(nb::handle value) {
  if (PyBool_Check(value.ptr())) return nb::cast<bool>(value);
  if (PyLong_Check(value.ptr())) return nb::cast<std::int64_t>(value);
  if (PyFloat_Check(value.ptr())) return nb::cast<double>(value);
  if (PyUnicode_Check(value.ptr())) return nb::cast<std::string>(value);
  if (PyTuple_Check(value.ptr()) || PyList_Check(value.ptr())) return nb::cast<std::vector<std::int64_t>>(value);
  return dtype_of_python(value);
}

// Any op without regions; one result as itself, several as a list.
nb::object append(const std::string& name, nb::handle operands, nb::dict attributes) {
  Attrs attrs;
  for (const auto& [key, value] : attributes) attrs.set(nb::cast<std::string>(key), attr_of(value));
  Node* node = current_graph().append(ir::op(name), to_values(operands, name), std::move(attrs));
  if (node->types.size() == 1) return tracer(node->result());
  std::vector<Value> results;
  for (int i = 0; i < static_cast<int>(node->types.size()); ++i) results.push_back(node->result(i));
  return to_tracers(results);
}

nb::list definitions() {
  nb::list all;
  for (const ir::OpDef& op : ir::all_ops())
    all.append(nb::make_tuple(op.name, op.summary, op.kind == ir::OpKind::Elementwise, op.num_operands));
  return all;
}

Shape shape_of(nb::handle dims) { return Shape(nb::cast<std::vector<std::int64_t>>(dims)); }

}  // namespace

void bind_ops(nb::module_& m) {
  m.def("op_definitions", &definitions, "(name, summary, elementwise, number of operands) of every primitive.");
  m.def("unary", &unary, nb::arg("op"), nb::arg("x").none());
  m.def("binary", &binary, nb::arg("op"), nb::arg("a").none(), nb::arg("b").none(), nb::arg("floats") = false);
  m.def("append", &append);
  m.def("constant", [](const Array& array) { return tracer(constant(live_array(array))); });
  m.def("full", [](nb::handle value, nb::handle dtype, nb::handle shape) {
    return tracer(broadcast_to(to_value_in(value, dtype_of_python(dtype), "full", true), shape_of(shape)));
  });
  m.def("iota", [](nb::handle dtype, nb::handle shape, int axis) {
    return tracer(iota(dtype_of_python(dtype), shape_of(shape), axis));
  });
  m.def(
      "cast", [](nb::handle x, nb::handle dtype) { return tracer(to_value_in(x, dtype_of_python(dtype), "astype")); },
      nb::arg("x").none(), nb::arg("dtype").none());
  // For what is to stand in an array of that dtype: a Python number must fit.
  m.def(
      "fitted",
      [](const std::string& where, nb::handle x, nb::handle dtype) {
        return tracer(to_value_in(x, dtype_of_python(dtype), where, true));
      },
      nb::arg("where"), nb::arg("x").none(), nb::arg("dtype").none());
  m.def("reshape",
        [](nb::handle x, nb::handle shape) { return tracer(reshape(to_value(x, "reshape"), shape_of(shape))); });
  m.def("broadcast_to", [](nb::handle x, nb::handle shape) {
    return tracer(broadcast_to(to_value(x, "broadcast_to"), shape_of(shape)));
  });
  m.def("broadcast_arrays", [](const std::string& where, nb::handle operands) {
    return to_tracers(ir::broadcast_together(where, to_values(operands, where)));
  });
  m.def(
      "matmul",
      [](nb::handle a, nb::handle b) {
        const nb::handle operands[] = {a, b};
        const auto values = promote("matmul", operands);
        return tracer(matmul(values[0], values[1]));
      },
      nb::arg("a").none(), nb::arg("b").none());
  m.def("dot", [](nb::handle a, nb::handle b, std::vector<std::int64_t> lhs_contract,
                  std::vector<std::int64_t> rhs_contract, std::vector<std::int64_t> lhs_batch,
                  std::vector<std::int64_t> rhs_batch) {
    const nb::handle operands[] = {a, b};
    const auto values = promote("dot", operands);
    return tracer(dot(values[0], values[1],
                      {std::move(lhs_contract), std::move(rhs_contract), std::move(lhs_batch), std::move(rhs_batch)}));
  });
  m.def("concat", [](nb::handle parts, int axis) { return tracer(concat(to_values(parts, "concat"), axis)); });
  m.def("mean", [](nb::handle x, const std::vector<std::int64_t>& axes) {
    const nb::handle operands[] = {x};
    return tracer(mean(promote("mean", operands, true)[0], axes));
  });
  m.def("dynamic_slice", [](nb::handle x, nb::handle starts, const std::vector<std::int64_t>& sizes) {
    return tracer(dynamic_slice(to_value(x, "dynamic_slice"), to_values(starts, "dynamic_slice"), sizes));
  });
  m.def("dynamic_update", [](nb::handle x, nb::handle update, nb::handle starts) {
    return tracer(dynamic_update(to_value(x, "dynamic_update"), to_value(update, "dynamic_update"),
                                 to_values(starts, "dynamic_update")));
  });
  m.def("correlate", [](nb::handle x, nb::handle w) {
    return tracer(correlate(to_value(x, "correlate"), to_value(w, "correlate")));
  });
  m.def("random_bits",
        [](nb::handle key, nb::handle shape) { return tracer(random_bits(to_value(key, "random"), shape_of(shape))); });
  // The functions of the engine that are compositions of one operand.
  using Composition = Value (*)(Value);
  static constexpr std::array<std::pair<const char*, Composition>, 13> compositions = {{{"relu", relu},
                                                                                        {"softplus", softplus},
                                                                                        {"gelu", gelu},
                                                                                        {"square", square},
                                                                                        {"lgamma", lgamma},
                                                                                        {"digamma", digamma},
                                                                                        {"erfc", erfc},
                                                                                        {"ndtr", ndtr},
                                                                                        {"log_ndtr", log_ndtr},
                                                                                        {"ndtri", ndtri},
                                                                                        {"atan", atan},
                                                                                        {"asin", asin},
                                                                                        {"acos", acos}}};
  for (const auto& [name, fn] : compositions)
    m.def((std::string("composed_") + name).c_str(),
          [name = std::string(name), fn = fn](nb::handle x) {
            const nb::handle operands[] = {x};
            return tracer(fn(promote(name, operands, name != "square" && name != "relu")[0]));
          },
          nb::arg("x").none());
  // Those that layers have by name; `parameter` is the number that some have.
  m.def(
      "activation",
      [](nb::handle x, const std::string& name, std::optional<double> parameter) {
        const nb::handle operands[] = {x};
        return tracer(nn::activation_function(name, parameter)(promote(name, operands, true)[0]));
      },
      nb::arg("x").none(), nb::arg("name"), nb::arg("parameter") = nb::none());
  m.def("softmax", [](nb::handle x, int axis) {
    const nb::handle operands[] = {x};
    return tracer(softmax(promote("softmax", operands, true)[0], axis));
  });
  m.def(
      "atan2",
      [](nb::handle y, nb::handle x) {
        const nb::handle operands[] = {y, x};
        const auto values = ir::broadcast_together("atan2", promote("atan2", operands, true));
        return tracer(atan2(values[0], values[1]));
      },
      nb::arg("y").none(), nb::arg("x").none());
  m.def("sort",
        [](nb::handle x, int axis, bool descending) { return tracer(sort(to_value(x, "sort"), axis, descending)); });
  m.def("gather", [](nb::handle x, nb::handle index, int axis) {
    return tracer(gather(to_value(x, "take"), to_value(index, "take"), axis));
  });
  m.def("argsort", [](nb::handle x, int axis, bool descending) {
    return tracer(argsort(to_value(x, "argsort"), axis, descending));
  });
  m.def("top_k", [](nb::handle x, std::int64_t k, int axis) {
    const auto [values, indices] = top_k(to_value(x, "top_k"), k, axis);
    return nb::make_tuple(tracer(values), tracer(indices));
  });
  m.def(
      "quantile",
      [](nb::handle x, nb::handle q, int axis) {
        const nb::handle operands[] = {x, q};
        const auto both = promote("quantile", operands, true);
        return tracer(quantile(both[0], both[1], axis));
      },
      nb::arg("x").none(), nb::arg("q").none(), nb::arg("axis"));
  m.def(
      "searchsorted",
      [](nb::handle sorted, nb::handle values, bool right) {
        const nb::handle operands[] = {sorted, values};
        const auto both = promote("searchsorted", operands);
        return tracer(searchsorted(both[0], both[1], right));
      },
      nb::arg("sorted").none(), nb::arg("values").none(), nb::arg("right"));
  m.def("slogdet", [](nb::handle a) {
    const auto [sign, logarithm] = linalg::slogdet(to_value(a, "slogdet"));
    const Value parts[] = {sign, logarithm};
    return to_tracers(parts);
  });
  m.def("solve_triangular", [](nb::handle a, nb::handle b, bool upper) {
    return tracer(linalg::solve_triangular(to_value(a, "solve_triangular"), to_value(b, "solve_triangular"), upper));
  });
  m.def("solve",
        [](nb::handle a, nb::handle b) { return tracer(linalg::solve(to_value(a, "solve"), to_value(b, "solve"))); });
  m.def("det", [](nb::handle a) { return tracer(linalg::det(to_value(a, "det"))); });
  m.def("cholesky", [](nb::handle a) { return tracer(linalg::cholesky(to_value(a, "cholesky"))); });
  m.def("logsumexp", [](nb::handle x, int axis) {
    const nb::handle operands[] = {x};
    return tracer(logsumexp(promote("logsumexp", operands, true)[0], axis));
  });
  m.def("log_softmax", [](nb::handle x, int axis) { return tracer(log_softmax(to_value(x, "log_softmax"), axis)); });
}

}  // namespace hotloop::python
