#include <algorithm>

#include "core/memory.h"
#include "hotloop/error.h"
#include "hotloop/jacobian.h"
#include "hotloop/ops.h"
#include "ops/rules/arguments.h"
#include "transforms/argnums.h"
#include "transforms/derivative_region.h"
#include "transforms/directions.h"

namespace hotloop {
namespace {

// y.shape + x.shape; UserError if that has too many axes, or exceeds the machine's memory.
Shape dense_shape(const std::string& where, const ValueType& y, const ValueType& x) {
  const std::string both = y.str() + " with respect to " + x.str();
  if (y.shape.rank() + x.shape.rank() > Shape::max_rank)
    throw UserError(where, "a Jacobian has at most " + std::to_string(Shape::max_rank) + " axes, y's and x's", both,
                    "reshape() the input or the output");
  Shape result = y.shape;
  double bytes = static_cast<double>(size_of(y.dtype));
  for (const std::int64_t d : x.shape.dims()) result.push_back(d);
  for (const std::int64_t d : result.dims()) bytes *= static_cast<double>(d);
  if (bytes > static_cast<double>(physical_memory_bytes()))
    throw UserError(where, "the dense array must fit into memory", both + ", " + bytes_text(bytes),
                    where == "hessian"
                        ? "sparse_hessian(), which leaves zeros out, or products: hvp"
                        : "jacobian(), whose blocks() and sparse() leave zeros out, or products: jvp, vjp, hvp");
  return result;
}

}  // namespace

namespace {

Function forward(const std::string& where, const Function& fn, const std::vector<int>& argnums) {
  return [where, fn, argnums](std::span<const Value> inputs) {
    ir::check_argnums(where, inputs, argnums);
    return ir::without_dead_work(
        where,
        [&](std::span<const Value> v) {
          std::vector<std::vector<Value>> by_argnum;
          std::size_t num_outputs = 0;
          for (const int i : argnums) {
            const ValueType& x = v[static_cast<std::size_t>(i)].type();
            std::vector<Value> tangents(v.size());
            tangents[static_cast<std::size_t>(i)] = ir::unit_tangents(x);
            const auto [outputs, rows] = jvp_many(fn, v, tangents);
            ir::check_float_outputs(where, outputs);
            num_outputs = outputs.size();
            by_argnum.emplace_back();
            for (std::size_t k = 0; k < num_outputs; ++k)
              by_argnum.back().push_back(reshape(ir::front_to_back(rows[k]), dense_shape(where, outputs[k].type(), x)));
          }
          std::vector<Value> result;
          for (std::size_t k = 0; k < num_outputs; ++k)
            for (const auto& columns : by_argnum) result.push_back(columns[k]);
          return result;
        },
        inputs);
  };
}

}  // namespace

Function jacfwd(const Function& fn, std::vector<int> argnums) { return forward("jacfwd", fn, argnums); }

Function jacrev(const Function& fn, std::vector<int> argnums) {
  return [fn, argnums](std::span<const Value> inputs) {
    ir::check_argnums("jacrev", inputs, argnums);
    return ir::without_dead_work(
        "jacrev",
        [&](std::span<const Value> v) {
          // Inputs that are not asked for are constants, not a part of the pullback.
          std::vector<Value> asked;
          for (const int i : argnums) asked.push_back(v[static_cast<std::size_t>(i)]);
          const Function of_asked = [&](std::span<const Value> x) {
            std::vector<Value> all(v.begin(), v.end());
            for (std::size_t k = 0; k < argnums.size(); ++k) all[static_cast<std::size_t>(argnums[k])] = x[k];
            return fn(all);
          };
          const auto [outputs, pullback] = vjp_many(of_asked, asked);
          ir::check_float_outputs("jacrev", outputs);
          std::vector<Value> result;
          for (std::size_t k = 0; k < outputs.size(); ++k) {
            std::vector<Value> cotangents(outputs.size());
            cotangents[k] = ir::unit_tangents(outputs[k].type());
            const std::vector<Value> columns = pullback(cotangents);
            for (std::size_t i = 0; i < asked.size(); ++i)
              result.push_back(reshape(columns[i], dense_shape("jacrev", outputs[k].type(), asked[i].type())));
          }
          return result;
        },
        inputs);
  };
}

Function hessian(const Function& fn, std::vector<int> argnums) {
  return forward("hessian", grad(fn, argnums), argnums);
}

}  // namespace hotloop
