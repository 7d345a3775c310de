#include "transforms/directions.h"

#include <algorithm>
#include <functional>

#include "hotloop/error.h"
#include "hotloop/jacobian.h"
#include "hotloop/ops.h"
#include "ir/interpreters.h"
#include "ir/region.h"
#include "ops/rules/arguments.h"
#include "ops/rules/batching.h"

namespace hotloop {
namespace ir {

namespace {

// (num_rows, n): one where the index of the row is what `columns` (num_rows, n) holds.
Value where_row_is(Value columns, DType dtype) {
  return cast(equal(iota(DType::I32, columns.shape(), 0), columns), dtype);
}

}  // namespace

Value one_hot(std::span<const std::int64_t> places, std::int64_t num_rows, DType dtype) {
  const auto num_columns = static_cast<std::int64_t>(places.size());
  bool in_order = true;
  for (std::size_t i = 0; i < places.size(); ++i) in_order = in_order && places[i] == static_cast<std::int64_t>(i);
  if (in_order) return where_row_is(iota(DType::I32, {num_rows, num_columns}, 1), dtype);
  Array rows(DType::I32, {num_columns});
  std::ranges::copy(places, rows.data<std::int32_t>().begin());
  return where_row_is(broadcast(constant(rows), {num_rows, num_columns}, {1}), dtype);
}

Value unit_tangents(const ValueType& type) {
  const std::int64_t n = type.shape.size();
  std::vector<int> long_axes;
  for (int i = 0; i < type.shape.rank(); ++i)
    if (type.shape[i] > 1) long_axes.push_back(i);
  if (long_axes.size() == 2) {
    // Of a matrix: one where both the row's and the column's number are those of the direction, so that a dot sees both factors.
    const Shape all = type.shape.with_inserted(0, n);
    const auto factor = [&](int axis, const std::function<std::int64_t(std::int64_t)>& number) {
      const std::int64_t extent = type.shape[axis];
      Array numbers(DType::I32, {n});
      for (std::int64_t d = 0; d < n; ++d)
        numbers.data<std::int32_t>()[static_cast<std::size_t>(d)] = static_cast<std::int32_t>(number(d));
      const Value hot = equal(iota(DType::I32, {n, extent}, 1), broadcast(constant(numbers), {n, extent}, {0}));
      return broadcast(cast(hot, type.dtype), all, {0, axis + 1});
    };
    const std::int64_t columns = type.shape[long_axes[1]];
    return factor(long_axes[0], [&](std::int64_t d) { return d / columns; }) *
           factor(long_axes[1], [&](std::int64_t d) { return d % columns; });
  }
  return reshape(where_row_is(iota(DType::I32, {n, n}, 1), type.dtype), type.shape.with_inserted(0, n));
}

Value front_to_back(Value x) { return front_to_axis(x, x.rank() - 1); }

}  // namespace ir

namespace {

// The number of directions in stacked tangents or cotangents; UserError unless all agree and fit what they belong to.
std::int64_t check_stacked(const std::string& where, const std::string& what, std::span<const Value> given,
                           std::span<const ValueType> types) {
  std::int64_t size = -1;
  bool fits = given.size() == types.size();
  for (std::size_t i = 0; fits && i < given.size(); ++i) {
    if (!given[i].defined()) continue;
    const Shape& shape = given[i].shape();
    fits = given[i].dtype() == types[i].dtype && is_float(types[i].dtype) && shape.rank() > 0 &&
           shape.without(0) == types[i].shape && (size < 0 || shape[0] == size);
    if (shape.rank() > 0) size = shape[0];
  }
  if (fits && size >= 0) return size;
  std::vector<Value> defined;
  for (const Value& v : given)
    if (v.defined()) defined.push_back(v);
  throw UserError(where,
                  what + " must have one leading axis of directions before the types " +
                      ir::types_text(std::vector<ValueType>(types.begin(), types.end())),
                  ir::types_text(defined), "leave those of integers undefined");
}

}  // namespace

std::pair<std::vector<Value>, std::vector<Value>> jvp_many(const Function& fn, std::span<const Value> primals,
                                                           std::span<const Value> tangents) {
  const std::vector<ValueType> types = ir::types_of(primals);
  const std::int64_t size = check_stacked("jvp_many", "the tangents", tangents, types);
  const ir::Region region = ir::trace_region("jvp_many", fn, types);

  // The jvp of one direction as a graph: inputs (primals, captures, tangents), outputs (outputs, tangents that are not zero).
  std::vector<ValueType> all = region.graph->input_types();
  std::vector<ir::Batched> arguments;
  for (const Value& v : primals) arguments.push_back({v, false});
  for (const Value& v : region.captures) arguments.push_back({v, false});
  for (std::size_t i = 0; i < tangents.size(); ++i) {
    if (!tangents[i].defined()) continue;
    all.push_back(types[i]);
    arguments.push_back({tangents[i], true});
  }
  std::vector<bool> active;
  const auto one = trace(
      [&](std::span<const Value> inputs) {
        std::vector<ir::Dual> duals;
        std::size_t next = primals.size() + region.captures.size();
        for (std::size_t i = 0; i < region.graph->inputs().size(); ++i)
          duals.push_back({inputs[i], i < tangents.size() && tangents[i].defined() ? inputs[next++] : Value{}});
        std::vector<Value> outputs, output_tangents;
        for (const ir::Dual& d : ir::push_forward(*region.graph, duals)) {
          outputs.push_back(d.primal);
          active.push_back(d.tangent.defined());
          if (d.tangent.defined()) output_tangents.push_back(d.tangent);
        }
        outputs.insert(outputs.end(), output_tangents.begin(), output_tangents.end());
        return outputs;
      },
      all, "jvp");

  const std::vector<ir::Batched> given = ir::push_batch(*one, arguments, size);
  std::pair<std::vector<Value>, std::vector<Value>> result;
  std::vector<Value> values;
  const auto by_itself = [&](std::size_t i) {
    if (values.empty()) {
      std::vector<Value> all_primals(primals.begin(), primals.end());
      all_primals.insert(all_primals.end(), region.captures.begin(), region.captures.end());
      values = inline_graph(*region.graph, all_primals);
    }
    return values[i];
  };
  std::size_t next = active.size();
  for (std::size_t i = 0; i < active.size(); ++i) {
    const ValueType type = region.graph->outputs()[i].type();
    // A primal output leaves the batching as it went in, but through a loop whose lanes the tangents share. Of no direction there is
    // none to take it from.
    result.first.push_back(!given[i].batched ? given[i].value : size > 0 ? take(given[i].value, 0, 0) : by_itself(i));
    if (active[i])
      result.second.push_back(ir::materialize_batch(given[next++], size));
    else if (is_float(type.dtype))
      result.second.push_back(ir::zeros_of({type.dtype, type.shape.with_inserted(0, size)}));
    else
      result.second.emplace_back();
  }
  return result;
}

std::pair<std::vector<Value>, Function> vjp_many(const Function& fn, std::span<const Value> primals) {
  auto [outputs, pullback] = vjp(fn, primals);
  const std::vector<ValueType> types = ir::types_of(outputs);
  return {outputs, [types, pullback = std::move(pullback)](std::span<const Value> cotangents) {
            check_stacked("vjp_many", "the cotangents", cotangents, types);
            std::vector<Value> defined;
            for (const Value& v : cotangents)
              if (v.defined()) defined.push_back(v);
            const Function one = [&](std::span<const Value> given) {
              std::vector<Value> all;
              std::size_t next = 0;
              for (const Value& v : cotangents) all.push_back(v.defined() ? given[next++] : Value{});
              return pullback(all);
            };
            return vmap(one, std::vector<int>(defined.size(), 0))(defined);
          }};
}

}  // namespace hotloop
