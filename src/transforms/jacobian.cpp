// Jacobians with structure: plan, seeds, passes, elements.
#include <algorithm>
#include <numeric>

#include "hotloop/error.h"
#include "hotloop/jacobian.h"
#include "hotloop/ops.h"
#include "ir/region.h"
#include "ir/rewrite.h"
#include "ops/rules/arguments.h"
#include "transforms/argnums.h"
#include "transforms/derivative_region.h"
#include "transforms/directions.h"
#include "transforms/jacobian_plan.h"
#include "transforms/row_program.h"

namespace hotloop {
namespace {

using Axes = std::vector<std::int64_t>;

// Axes of a value: the paired ones in order, then the others.
Axes paired_first(const JacobianStructure& s, bool of_output) {
  Axes axes;
  for (const auto& [y, x] : s.paired) axes.push_back(of_output ? y : x);
  for (int i = 0; i < (of_output ? s.output : s.input).shape.rank(); ++i)
    if (std::ranges::find(axes, i) == axes.end()) axes.push_back(i);
  return axes;
}

// (colours, shape of x or y): 1 at the elements of each colour, the same for every block.
Value seeds(const JacobianStructure& s, bool of_output, const std::vector<std::int64_t>& colours,
            std::int64_t num_colours) {
  const ValueType& type = of_output ? s.output : s.input;
  const Shape shape = type.shape.with_inserted(0, num_colours);
  if (num_colours == 1 && std::ranges::all_of(colours, [](std::int64_t c) { return c == 0; }))
    return constant(1, type.dtype, shape);
  Shape others{num_colours};
  Axes axes{0};
  const Axes order = paired_first(s, of_output);
  for (std::size_t k = s.paired.size(); k < order.size(); ++k) {
    others.push_back(type.shape[static_cast<int>(order[k])]);
    axes.push_back(order[k] + 1);
  }
  return broadcast(reshape(ir::one_hot(colours, num_colours, type.dtype), others), shape, axes);
}

// (paired..., num_rows, num_columns) with the directions in the place of columns, or of rows.
Value as_blocks(const JacobianStructure& s, Value passes, bool forward) {
  const Axes order = paired_first(s, forward);
  Axes permutation;
  for (const std::int64_t axis : order) permutation.push_back(axis + 1);
  const auto directions = permutation.begin() + static_cast<std::ptrdiff_t>(forward ? order.size() : s.paired.size());
  permutation.insert(directions, 0);
  Shape shape;
  for (const auto& [y, x] : s.paired) shape.push_back(s.output.shape[y]);
  shape.push_back(forward ? s.num_rows : passes.shape()[0]);
  shape.push_back(forward ? passes.shape()[0] : s.num_columns);
  return reshape(transpose(passes, permutation), shape);
}

Function function_of(const std::shared_ptr<const Graph>& graph) {
  return [graph](std::span<const Value> v) { return inline_graph(*graph, v); };
}

// What is stored of (paired..., elements).
Value stored(Value all, const ir::JacobianPlan& plan) {
  const int last = all.rank() - 1;
  if (plan.places == ir::iota_axes(static_cast<int>(all.shape()[last]))) return all;
  Array places(DType::I32, {static_cast<std::int64_t>(plan.places.size())});
  std::ranges::copy(plan.places, places.data<std::int32_t>().begin());
  return gather(all, constant(places), last);
}

Value elements(const ir::JacobianPlan& plan, const Function& fn, std::span<const Value> inputs, int argnum);

// The blocks: those of one row, for all rows.
Value elements_by_row(const ir::RowJacobian& of, std::span<const Value> inputs, int argnum) {
  const ir::RowProgram& program = of.program;
  // Where the rows are in a block: behind the paired axes, among the axes of the output that are not paired.
  const Axes order = paired_first(*of.plan.structure, true);
  const auto axis = static_cast<int>(std::ranges::find(order, program.axis) - order.begin());
  std::vector<Value> arguments{inputs[static_cast<std::size_t>(argnum)]};
  for (const Value& leaf : inline_graph(*program.leaves, inputs)) arguments.push_back(leaf);
  std::vector<int> axes{-1};
  axes.insert(axes.end(), program.row_axes.begin(), program.row_axes.end());
  const Function one = [&](std::span<const Value> v) {
    std::vector<Value> row(v.begin(), v.end());
    for (std::size_t i = 0; i < row.size(); ++i)
      if (axes[i] >= 0) row[i] = expand_dims(row[i], axes[i]);
    const Value block = elements(of.plan, function_of(program.one), row, 0);
    return std::vector{reshape(block, block.shape().without(axis))};
  };
  const Value all = vmap(one, axes)(arguments)[0];
  Axes permutation;
  for (int i = 0; i < all.rank(); ++i) permutation.push_back(i < axis ? i + 1 : i == axis ? 0 : i);
  return transpose(all, permutation);
}

Value elements(const ir::JacobianPlan& plan, const Function& fn, std::span<const Value> inputs, int argnum) {
  const JacobianStructure& s = *plan.structure;
  const ValueType type = s.values_type();
  if (s.forward_passes + s.reverse_passes == 0) return ir::zeros_of(type);
  if (plan.rows) {
    const Value all = elements_by_row(*plan.rows, inputs, argnum);
    if (!s.sparse) return all;
    Shape flat;
    for (const auto& [y, x] : s.paired) flat.push_back(s.output.shape[y]);
    flat.push_back(s.num_rows * s.num_columns);
    return stored(reshape(all, flat), plan);
  }
  if (plan.cut) {
    std::vector<Value> with_v(inputs.begin(), inputs.end());
    with_v.push_back(inline_graph(*plan.cut->before, inputs)[0]);
    const Value first = elements(plan.cut->first, function_of(plan.cut->before), inputs, argnum);
    const Value second =
        elements(plan.cut->second, function_of(plan.cut->after), with_v, static_cast<int>(inputs.size()));
    const std::int64_t between = plan.cut->first.structure->num_rows;
    const int num_paired = static_cast<int>(s.paired.size());
    Shape left, right;
    for (const auto& [y, x] : s.paired) {
      left.push_back(s.output.shape[y]);
      right.push_back(s.output.shape[y]);
    }
    left.push_back(s.num_rows);
    left.push_back(between);
    right.push_back(between);
    right.push_back(s.num_columns);
    const Axes batch = ir::iota_axes(num_paired);
    const Value product = dot(reshape(second, left), cast(reshape(first, right), type.dtype),
                              {{num_paired + 1}, {num_paired}, batch, batch});
    return reshape(product, type.shape);
  }
  const auto k = static_cast<std::size_t>(argnum);
  std::vector<Value> found;
  if (s.forward_passes > 0) {
    std::vector<Value> tangents(inputs.size());
    tangents[k] = seeds(s, false, plan.column_colours, s.forward_passes);
    found.push_back(as_blocks(s, jvp_many(fn, inputs, tangents).second[0], true));
  }
  if (s.reverse_passes > 0) {
    const Function of_x = [&](std::span<const Value> x) {
      std::vector<Value> all(inputs.begin(), inputs.end());
      all[k] = x[0];
      return fn(all);
    };
    const Value cotangents[] = {seeds(s, true, plan.row_colours, s.reverse_passes)};
    // Cotangents of x have its dtype.
    const Value rows = vjp_many(of_x, inputs.subspan(k, 1)).second(cotangents)[0];
    found.push_back(as_blocks(s, cast(rows, type.dtype), false));
  }
  if (!s.sparse) return reshape(found[0], type.shape);
  const int last = static_cast<int>(s.paired.size());
  for (Value& v : found) {
    Shape flat;
    for (int i = 0; i < last; ++i) flat.push_back(v.shape()[i]);
    flat.push_back(v.shape()[last] * v.shape()[last + 1]);
    v = reshape(v, flat);
  }
  const Value all = found.size() == 1 ? found[0] : concat(found, last);
  return stored(all, plan);
}

JacobianFunction structured(const std::string& where, const Function& fn, const JacobianOptions& options,
                            bool symmetric) {
  return [=](std::span<const Value> inputs) {
    const int argnums[] = {options.argnum};
    ir::check_argnums(where, inputs, argnums);
    ir::Region region = ir::trace_for_derivative(
        where,
        [&](std::span<const Value> v) {
          const std::vector<Value> outputs = fn(v);
          if (options.output < 0 || options.output >= static_cast<int>(outputs.size()))
            throw UserError(where, "output must be a position of outputs, 0 to " + std::to_string(outputs.size() - 1),
                            std::to_string(options.output));
          const Value y = outputs[static_cast<std::size_t>(options.output)];
          ir::check_float_outputs(where, {&y, 1});
          if (y.rank() + v[static_cast<std::size_t>(options.argnum)].rank() > Shape::max_rank)
            throw UserError(
                where, "a Jacobian has at most " + std::to_string(Shape::max_rank) + " axes, y's and x's",
                y.type().str() + " with respect to " + v[static_cast<std::size_t>(options.argnum)].type().str(),
                "reshape() the input or the output");
          return std::vector{y};
        },
        ir::types_of(inputs));
    if (auto live = ir::eliminate_dead(*region.graph)) region.graph = std::move(live);
    std::vector<Array> known(inputs.size());
    for (const Value& v : region.captures) known.push_back(options.known_value ? options.known_value(v) : Array());
    const ir::JacobianPlan plan = ir::plan_jacobian(*region.graph, options.argnum, options, symmetric, known);
    ir::check_elements_fit(where, *plan.structure);
    std::vector<Value> arguments(inputs.begin(), inputs.end());
    arguments.insert(arguments.end(), region.captures.begin(), region.captures.end());
    const auto work = [&](std::span<const Value> v) {
      const Function one = [&](std::span<const Value> x) { return inline_graph(*region.graph, x); };
      return std::vector{elements(plan, one, v, options.argnum)};
    };
    return Jacobian(plan.structure, ir::without_dead_work(where, work, arguments)[0]);
  };
}

}  // namespace

JacobianFunction jacobian(const Function& fn, JacobianOptions options) {
  return structured("jacobian", fn, options, false);
}

JacobianFunction sparse_hessian(const Function& fn, JacobianOptions options) {
  const int argnum = options.argnum;
  const Function gradient = [fn, argnum, output = options.output](std::span<const Value> v) {
    const Function one = [&](std::span<const Value> x) {
      return std::vector{fn(x).at(static_cast<std::size_t>(output))};
    };
    return grad(one, {argnum})(v);
  };
  options.output = 0;
  return structured("hessian", gradient, options, true);
}

Function hessian_diagonal(const Function& fn, int argnum) {
  return [fn, argnum](std::span<const Value> v) {
    JacobianOptions options;
    options.argnum = argnum;
    return std::vector{sparse_hessian(fn, options)(v).diagonal()};
  };
}

}  // namespace hotloop
