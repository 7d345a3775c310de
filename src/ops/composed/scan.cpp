// scan, while_loop, cond and checkpoint: front-ends of `loop` and `call` that trace their bodies.
#include <algorithm>

#include "hotloop/error.h"
#include "hotloop/ops.h"
#include "ir/region.h"
#include "ops/composed/bounded_while.h"
#include "ops/rules/arguments.h"

namespace hotloop {
namespace {

using ir::Region;
using ir::trace_region;
using ir::types_of;

void check_carry(const std::string& where, std::span<const Value> init, std::span<const ValueType> next) {
  const auto types = types_of(init);
  if (!std::ranges::equal(types, next))
    throw UserError(where, "the body must give a carry of the types of the initial one, " + ir::types_text(types),
                    ir::types_text(next), "cast or reshape the initial value or the result of the body");
}

// `region` with inputs `declared`, then `consts`, of which its captures are some.
std::shared_ptr<Graph> with_consts(const Region& region, std::span<const ValueType> declared,
                                   std::span<const Value> consts) {
  auto types = std::vector<ValueType>(declared.begin(), declared.end());
  for (const Value& v : consts) types.push_back(v.type());
  return trace(
      [&](std::span<const Value> inputs) {
        std::vector<Value> arguments(inputs.begin(), inputs.begin() + static_cast<std::ptrdiff_t>(declared.size()));
        for (const Value& v : region.captures) {
          const auto position = std::ranges::find(consts, v) - consts.begin();
          arguments.push_back(inputs[declared.size() + static_cast<std::size_t>(position)]);
        }
        return inline_graph(*region.graph, arguments);
      },
      types, region.graph->name());
}

std::vector<Value> unite(std::span<const Value> a, std::span<const Value> b) {
  std::vector<Value> all(a.begin(), a.end());
  for (const Value& v : b)
    if (std::ranges::find(all, v) == all.end()) all.push_back(v);
  return all;
}

Value scalar_predicate(const std::string& where, Value v) {
  if (!v.defined() || v.dtype() != DType::Bool || v.rank() != 0)
    throw UserError(where, "the condition must be bool[]", v.defined() ? v.type().str() : "an undefined value",
                    "a comparison; of several, all() or any(), in C++ reduce_min() or reduce_max() over the axes");
  return v;
}

}  // namespace

LoopResult ir::bounded_while(const std::string& where, const Predicate& cond, const CarryBody& body,
                             std::span<const Value> init, std::int64_t max_steps, const std::string& residuals) {
  if (max_steps < 0) throw UserError(where, "max_steps must not be negative", std::to_string(max_steps));
  ir::require_defined(where, init);
  const auto types = types_of(init);
  const Region step = trace_region("body", body, types);
  check_carry(where, init, step.graph->output_types());
  const Region until = trace_region(
      "until", [&](std::span<const Value> v) { return std::vector{logical_not(scalar_predicate(where, cond(v)))}; },
      types);
  LoopSpec spec;
  spec.carry.assign(init.begin(), init.end());
  spec.consts = unite(step.captures, until.captures);
  spec.length = max_steps;
  spec.residuals = residuals;
  spec.body = with_consts(step, types, spec.consts);
  spec.until = with_consts(until, types, spec.consts);
  return loop(spec);
}

std::pair<std::vector<Value>, std::vector<Value>> scan(const ScanBody& body, std::span<const Value> init,
                                                       std::span<const Value> xs, const ScanOptions& options) {
  ir::require_defined("scan", init);
  ir::require_defined("scan", xs);
  std::int64_t length = options.length;
  std::vector<ValueType> types = types_of(init);
  for (const Value& x : xs) {
    if (x.rank() == 0)
      throw UserError("scan", "xs must have an axis to scan along", x.type().str(),
                      "use it in the body as it is, or carry it");
    if (length < 0) length = x.shape()[0];
    if (x.shape()[0] != length)
      throw UserError("scan", "xs must agree in the extent of axis 0 and with the length " + std::to_string(length),
                      ir::types_text(types_of(xs)));
    types.push_back({x.dtype(), x.shape().without(0)});
  }
  if (length < 0)
    throw UserError("scan", "without xs the length must be given", "no xs and no length",
                    "length = the number of steps");

  const Region region = trace_region(
      "scan",
      [&](std::span<const Value> v) {
        auto [carry, ys] = body(v.first(init.size()), v.subspan(init.size()));
        ir::require_defined("scan", carry);
        check_carry("scan", init, types_of(carry));
        carry.insert(carry.end(), ys.begin(), ys.end());
        return carry;
      },
      types);
  LoopSpec spec;
  spec.carry.assign(init.begin(), init.end());
  spec.xs.assign(xs.begin(), xs.end());
  spec.consts = region.captures;
  spec.length = length;
  spec.reverse = options.reverse;
  spec.residuals = options.residuals;
  spec.body = region.graph;
  LoopResult result = loop(spec);
  return {std::move(result.carry), std::move(result.ys)};
}

std::vector<Value> while_loop(const Predicate& cond, const CarryBody& body, std::span<const Value> init,
                              std::int64_t max_steps) {
  return ir::bounded_while("while_loop", cond, body, init, max_steps).carry;
}

std::vector<Value> cond(Value predicate, const CarryBody& if_true, const CarryBody& if_false,
                        std::span<const Value> operands) {
  scalar_predicate("cond", predicate);
  ir::require_defined("cond", operands);
  const auto types = types_of(operands);
  const Region branches[] = {trace_region("if_true", if_true, types), trace_region("if_false", if_false, types)};
  const auto results = branches[0].graph->output_types();
  if (branches[1].graph->output_types() != results)
    throw UserError("cond", "both branches must give the same types",
                    ir::types_text(results) + " and " + ir::types_text(branches[1].graph->output_types()),
                    "cast() or reshape() what one of them gives");
  std::vector<Value> chosen;
  for (const ValueType& t : results) chosen.push_back(broadcast(constant(0, t.dtype), t.shape, {}));
  // Each branch is a loop of length 1 whose carry is the result; the one not chosen runs no iteration and passes it on.
  for (int i = 0; i < 2; ++i) {
    LoopSpec spec;
    spec.carry = chosen;
    spec.consts.assign(operands.begin(), operands.end());
    spec.consts.insert(spec.consts.end(), branches[i].captures.begin(), branches[i].captures.end());
    spec.consts.push_back(predicate);
    spec.length = 1;
    auto region_types = results;
    for (const Value& v : spec.consts) region_types.push_back(v.type());
    const std::size_t num_results = results.size();
    spec.body = trace(
        [&](std::span<const Value> v) {
          return inline_graph(*branches[i].graph, v.subspan(num_results, v.size() - num_results - 1));
        },
        region_types, branches[i].graph->name());
    spec.until =
        trace([&](std::span<const Value> v) { return std::vector<Value>{i == 0 ? logical_not(v.back()) : v.back()}; },
              region_types, "until");
    chosen = loop(spec).carry;
  }
  return chosen;
}

TracedFunction checkpoint(const TracedFunction& fn) {
  return [fn](std::span<const Value> inputs) {
    const Region region = trace_region("checkpoint", fn, types_of(inputs));
    std::vector<Value> arguments(inputs.begin(), inputs.end());
    arguments.insert(arguments.end(), region.captures.begin(), region.captures.end());
    return call(region.graph, arguments, "checkpoint", nullptr, true);
  };
}

}  // namespace hotloop
