// Products with second derivatives, and derivatives sample by sample.
#include <algorithm>

#include "hotloop/error.h"
#include "hotloop/jacobian.h"
#include "hotloop/ops.h"
#include "ir/region.h"
#include "ops/rules/arguments.h"
#include "transforms/argnums.h"
#include "transforms/directions.h"

namespace hotloop {
namespace {

void check_vectors(const std::string& where, std::span<const Value> primals, std::span<const Value> vectors) {
  bool fits = primals.size() == vectors.size(), any = false;
  for (std::size_t i = 0; fits && i < vectors.size(); ++i) {
    if (!vectors[i].defined()) continue;
    any = true;
    fits = vectors[i].type() == primals[i].type() && is_float(vectors[i].dtype());
  }
  if (fits && any) return;
  std::vector<Value> defined;
  for (const Value& v : vectors)
    if (v.defined()) defined.push_back(v);
  throw UserError(where,
                  "there must be one vector for each primal, of its type, at least one of them defined (undefined = "
                  "zero, and for integers)",
                  "primals " + ir::types_text(primals) + "; vectors " + ir::types_text(defined));
}

std::vector<int> float_positions(std::span<const Value> values) {
  std::vector<int> positions;
  for (std::size_t i = 0; i < values.size(); ++i)
    if (is_float(values[i].dtype())) positions.push_back(static_cast<int>(i));
  return positions;
}

// `values` of the float positions, with undefined ones between.
std::vector<Value> spread(std::span<const Value> values, std::span<const int> positions, std::size_t size) {
  std::vector<Value> all(size);
  for (std::size_t k = 0; k < positions.size(); ++k) all[static_cast<std::size_t>(positions[k])] = values[k];
  return all;
}

}  // namespace

std::vector<Value> hvp(const Function& fn, std::span<const Value> primals, std::span<const Value> vectors) {
  check_vectors("hvp", primals, vectors);
  const std::vector<int> floats = float_positions(primals);
  auto [gradients, products] = jvp(grad(fn, floats), primals, vectors);
  for (std::size_t k = 0; k < products.size(); ++k) products[k] = ir::or_zeros(products[k], gradients[k].type());
  return spread(products, floats, primals.size());
}

std::vector<Value> gauss_newton_vp(const Function& model, const Function& loss, std::span<const Value> primals,
                                   std::span<const Value> vectors) {
  check_vectors("gauss_newton_vp", primals, vectors);
  // The product J v goes forward with the model, J^T backward through it; both share the primal work once equal values are
  // merged.
  const auto tangents = jvp(model, primals, vectors).second;
  const auto [outputs, pullback] = vjp(model, primals);
  std::vector<Value> cotangents(outputs.size());
  if (std::ranges::any_of(tangents, [](const Value& v) { return v.defined(); }))
    cotangents = hvp(loss, outputs, tangents);
  std::vector<Value> products = pullback(cotangents);
  for (std::size_t i = 0; i < products.size(); ++i)
    if (!is_float(primals[i].dtype())) products[i] = {};
  return products;
}

std::vector<Value> fisher_vp(const Function& fn, std::span<const Value> primals, std::span<const Value> vectors) {
  check_vectors("fisher_vp", primals, vectors);
  const auto [forward_outputs, tangents] = jvp(fn, primals, vectors);
  if (forward_outputs.empty() || forward_outputs[0].rank() != 1 || !is_float(forward_outputs[0].dtype()))
    throw UserError("fisher_vp", "the first output must be the losses of the samples, f32 or f64 with one axis",
                    ir::types_text(forward_outputs), "leave the mean over the batch out of the function");
  const auto [outputs, pullback] = vjp(fn, primals);
  std::vector<Value> cotangents(outputs.size());
  if (tangents[0].defined()) cotangents[0] = tangents[0] / broadcast_to(extent(tangents[0], 0), tangents[0].shape());
  std::vector<Value> products = pullback(cotangents);
  for (std::size_t i = 0; i < products.size(); ++i)
    if (!is_float(primals[i].dtype())) products[i] = {};
  return products;
}

Function per_sample_grad(const Function& fn, std::vector<int> argnums, std::vector<int> in_axes) {
  return vmap(grad(fn, std::move(argnums)), std::move(in_axes));
}

Function laplacian(const Function& fn, int argnum) {
  return [fn, argnum](std::span<const Value> inputs) {
    const std::vector<int> argnums{argnum};
    ir::check_argnums("laplacian", inputs, argnums);
    const Value x = inputs[static_cast<std::size_t>(argnum)];
    std::vector<Value> tangents(inputs.size());
    tangents[static_cast<std::size_t>(argnum)] = ir::unit_tangents(x.type());
    const Value rows = jvp_many(grad(fn, argnums), inputs, tangents).second[0];
    const std::int64_t n = x.shape().size();
    // The diagonal of the Hessian, summed: the unit tangents select it.
    return std::vector<Value>{sum(reshape(rows, {n, n}) * reshape(tangents[static_cast<std::size_t>(argnum)], {n, n}))};
  };
}

Function rtrl(const Function& step, int num_params, int num_states) {
  return [step, num_params, num_states](std::span<const Value> v) {
    const auto np = static_cast<std::size_t>(num_params), ns = static_cast<std::size_t>(num_states);
    if (v.size() < np + 2 * ns)
      throw UserError("rtrl", "the inputs must be parameters, states, one sensitivity a state, and the rest of step's",
                      std::to_string(v.size()) + " inputs for " + std::to_string(np) + " parameters and " +
                          std::to_string(ns) + " states");
    std::vector<Value> primals(v.begin(), v.begin() + static_cast<std::ptrdiff_t>(np + ns));
    primals.insert(primals.end(), v.begin() + static_cast<std::ptrdiff_t>(np + 2 * ns), v.end());
    std::int64_t size = 0;
    for (std::size_t i = 0; i < np; ++i) size += v[i].shape().size();
    std::vector<Value> tangents(primals.size());
    std::int64_t first = 0;
    for (std::size_t i = 0; i < np; ++i) {
      const ValueType& type = v[i].type();
      if (!is_float(type.dtype))
        throw UserError("rtrl", "parameters must be f32 or f64, as derivatives are", type.str(),
                        "integers among the rest of step's inputs");
      std::vector<std::int64_t> places = ir::iota_axes(static_cast<int>(type.shape.size()));
      for (std::int64_t& p : places) p += first;
      first += type.shape.size();
      tangents[i] = reshape(ir::one_hot(places, size, type.dtype), type.shape.with_inserted(0, size));
    }
    for (std::size_t i = 0; i < ns; ++i) {
      const ValueType& state = v[np + i].type();
      const Value given = v[np + ns + i];
      if (given.dtype() != state.dtype || given.shape() != state.shape.with_inserted(0, size))
        throw UserError("rtrl",
                        "a sensitivity must have the " + std::to_string(size) + " parameters before its state's axes",
                        given.type().str() + " for the state " + state.str());
      if (is_float(state.dtype)) tangents[np + i] = given;
    }
    auto [outputs, rows] = jvp_many(step, primals, tangents);
    if (outputs.size() != ns + 1 || outputs[ns].rank() != 0)
      throw UserError("rtrl", "step must give the new states and one scalar loss", ir::types_text(outputs));
    std::vector<Value> result = outputs;
    // An integer, as a counter of steps, has no derivative: what was given for it is handed on.
    for (std::size_t i = 0; i < ns; ++i) result.push_back(is_float(outputs[i].dtype()) ? rows[i] : v[np + ns + i]);
    first = 0;
    for (std::size_t i = 0; i < np; ++i) {
      const Shape& shape = v[i].shape();
      result.push_back(reshape(narrow(rows[ns], 0, first, shape.size()), shape));
      first += shape.size();
    }
    return result;
  };
}

}  // namespace hotloop
