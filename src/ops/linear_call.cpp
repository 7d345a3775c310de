#include "ops/composed/linear_call.h"

#include <limits>
#include <ranges>

#include "hotloop/error.h"
#include "hotloop/ops.h"
#include "ir/interpreters.h"
#include "ir/rewrite.h"
#include "ops/rules/arguments.h"

namespace hotloop::ir {
namespace {

std::size_t num_residuals(const Node& node) { return static_cast<std::size_t>(node.attrs.integer("num_residuals")); }

std::vector<ValueType> infer_linear_call(const InferContext& c) {
  const auto k = static_cast<std::size_t>(c.attrs.integer("num_residuals"));
  if (c.regions.size() != 2 || k > c.operands.size())
    throw UserError("linear_call", "there must be a body, its transpose, and the residuals among the operands",
                    std::to_string(c.regions.size()) + " regions, " + std::to_string(c.operands.size()) + " operands");
  const std::vector<ValueType> operands(c.operands.begin(), c.operands.end());
  const auto results = c.regions[0]->output_types();
  if (c.regions[0]->input_types() != operands)
    throw UserError("linear_call",
                    "the operands must be what the body takes, " + types_text(c.regions[0]->input_types()),
                    types_text(operands));
  std::vector<ValueType> inputs(operands.begin(), operands.begin() + static_cast<std::ptrdiff_t>(k));
  inputs.insert(inputs.end(), results.begin(), results.end());
  const std::vector<ValueType> linear(operands.begin() + static_cast<std::ptrdiff_t>(k), operands.end());
  const Graph& transpose = *c.regions[1];
  if (transpose.input_types() != inputs || transpose.output_types() != linear)
    throw UserError("linear_call",
                    "the transpose takes (residuals..., cotangents of the results...) = " + types_text(inputs) +
                        " and gives cotangents of the linear operands, " + types_text(linear),
                    types_text(transpose.input_types()) + " -> " + types_text(transpose.output_types()));
  for (const auto& types : {linear, results})
    for (const ValueType& type : types)
      if (!is_float(type.dtype)) throw UserError("linear_call", "what is linear must be floats", types_text(types));
  return results;
}

std::vector<Value> call_again(const Node& node, std::span<const Value> operands) {
  Node* copy = current_graph().append(*node.op, {operands.begin(), operands.end()}, node.attrs, node.regions);
  std::vector<Value> results;
  for (int i = 0; i < static_cast<int>(copy->types.size()); ++i) results.push_back(copy->result(i));
  return results;
}

// Linear in the tangents alone it stays what it is; where a residual varies too, its body is differentiated.
std::pair<std::vector<Value>, std::vector<Value>> jvp_linear_call(const JvpContext& c) {
  const std::size_t k = num_residuals(c.node), n = c.primals.size();
  const auto again = [&](std::span<const Value> operands) { return call_again(c.node, operands); };
  bool moves = false;
  for (std::size_t i = 0; i < k; ++i) moves = moves || c.tangents[i].defined();
  if (!moves) {
    std::vector<Value> operands(c.primals.begin(), c.primals.begin() + static_cast<std::ptrdiff_t>(k));
    for (std::size_t i = k; i < n; ++i) operands.push_back(or_zeros(c.tangents[i], c.primals[i].type()));
    return {again(c.primals), again(operands)};
  }
  if (is_reverse_only(c.node)) refuse_forward_mode(c.node);
  std::vector<Dual> duals;
  for (std::size_t i = 0; i < n; ++i) duals.push_back({c.primals[i], c.tangents[i]});
  std::vector<Value> results = again(c.primals), tangents;
  for (const Dual& d : push_forward(*c.node.regions[0], duals)) tangents.push_back(d.tangent);
  return {results, tangents};
}

std::vector<Value> transpose_linear_call(const TransposeContext& c) {
  const std::size_t k = num_residuals(c.node), n = c.operands.size();
  std::vector<Value> result(n);
  bool any = false;
  for (const Value& v : c.cotangents) any = any || v.defined();
  if (!any) return result;
  std::vector<Value> operands(c.operands.begin(), c.operands.begin() + static_cast<std::ptrdiff_t>(k));
  for (std::size_t i = 0; i < c.cotangents.size(); ++i) operands.push_back(or_zeros(c.cotangents[i], c.node.types[i]));
  // What need not be linear is from here on what it computes.
  const auto given = is_reverse_only(c.node) ? inline_graph(*c.node.regions[1], operands)
                                             : linear_call(c.node.regions[1], c.node.regions[0], operands, k);
  // A linear operand that is known is a zero that was written out.
  for (std::size_t i = k; i < n; ++i)
    if (!c.operands[i].defined()) result[i] = given[i - k];
  return result;
}

// Residuals stay as they are; everything linear is batched, as the transpose must fit the body.
std::vector<Batched> batch_linear_call(const BatchContext& c) {
  const std::size_t k = num_residuals(c.node), n = c.operands.size();
  std::vector<Value> operands;
  std::vector<ValueType> residual_types, types, cotangent_types;
  for (std::size_t i = 0; i < n; ++i) {
    operands.push_back(i < k ? c.operands[i].value : materialize_batch(c.operands[i], c.size));
    types.push_back(operands[i].type());
    if (i < k) cotangent_types.push_back(types[i]);
  }
  for (const ValueType& type : c.node.types)
    cotangent_types.push_back({type.dtype, type.shape.with_inserted(0, c.size)});
  const auto map = [&](const Graph& graph, const std::vector<ValueType>& inputs) {
    return trace(
        [&](std::span<const Value> v) {
          std::vector<Batched> arguments;
          for (std::size_t i = 0; i < v.size(); ++i) arguments.push_back({v[i], i >= k || c.operands[i].batched});
          std::vector<Value> outputs;
          for (const Batched& b : push_batch(graph, arguments, c.size)) outputs.push_back(materialize_batch(b, c.size));
          return outputs;
        },
        inputs, graph.name());
  };
  const auto transpose = map(*c.node.regions[1], cotangent_types);
  std::vector<Batched> outputs;
  for (const Value& v : is_reverse_only(c.node) ? reverse_call(transpose, operands, k)
                                                : linear_call(map(*c.node.regions[0], types), transpose, operands, k))
    outputs.push_back({v, true});
  return outputs;
}

std::vector<Sample> samples_linear_call(Rng& rng, DType dtype) {
  const ValueType type{dtype, {3}}, scalar{dtype, {}};
  std::uniform_real_distribution<double> uniform(-1, 1);
  const auto random = [&](const Shape& shape) {
    Array a(dtype, shape);
    for (std::int64_t i = 0; i < a.size(); ++i) a.set(i, uniform(rng));
    return a;
  };
  const auto body = trace(
      [](std::span<const Value> v) {
        return std::vector<Value>{sin(v[0]) * v[1] + 2.0 * v[2], sum(v[1] * exp(v[0]))};
      },
      std::vector{type, type, type}, "body");
  const auto transposed = trace(
      [](std::span<const Value> v) {
        return std::vector<Value>{sin(v[0]) * v[1] + v[2] * exp(v[0]), 2.0 * v[1]};
      },
      std::vector{type, type, scalar}, "transpose");
  const auto scaling = trace([](std::span<const Value> v) { return std::vector<Value>{sin(v[0]) * v[1]}; },
                             std::vector{type, type}, "body");
  const Attrs one = {{"num_residuals", std::int64_t{1}}};
  return {{{random({3}), random({3}), random({3})}, one, {body, transposed}},
          {{random({3}), random({3})}, one, {scaling, scaling}}};
}

}  // namespace

std::vector<OpDef> ops_linear_call() {
  OpDef def;
  def.name = "linear_call";
  def.summary = "a linear region with a transpose of its own";
  def.kind = OpKind::Call;
  def.infer = infer_linear_call;
  def.eval = [](const EvalContext& c) { return c.call(*c.node.regions[0], c.operands); };
  def.jvp_with_primal = jvp_linear_call;
  def.transpose = transpose_linear_call;
  def.batch = batch_linear_call;
  def.flops = [](const Node& node) {
    double flops = 0;
    for (const auto& n : node.regions[0]->nodes()) flops += estimate_flops(*n);
    return flops;
  };
  def.samples = samples_linear_call;
  return {def};
}

std::vector<Value> linear_call(std::shared_ptr<const Graph> body, std::shared_ptr<const Graph> transpose,
                               std::span<const Value> operands, std::size_t num_residuals) {
  Node* node = current_graph().append(op("linear_call"), {operands.begin(), operands.end()},
                                      {{"num_residuals", static_cast<std::int64_t>(num_residuals)}},
                                      {std::move(body), std::move(transpose)});
  std::vector<Value> results;
  for (int i = 0; i < static_cast<int>(node->types.size()); ++i) results.push_back(node->result(i));
  return results;
}

bool is_reverse_only(const Node& node) { return node.attrs.flag("reverse_only"); }

const Node* find_reverse_call(const Graph& graph) {
  for (const auto& node : graph.nodes()) {
    if (is_reverse_only(*node)) return node.get();
    for (const auto& region : node->regions)
      if (const Node* found = find_reverse_call(*region)) return found;
  }
  return nullptr;
}

void refuse_forward_mode(const Node& node) {
  throw UserError(node.regions[1]->name(), "forward mode wants a backward function that is linear in the cotangent",
                  "one whose derivative depends on it", "grad or vjp, or custom_jvp");
}

std::vector<Value> reverse_call(std::shared_ptr<const Graph> transpose, std::span<const Value> operands,
                                std::size_t num_residuals) {
  std::vector<ValueType> types;
  for (const Value& v : operands) types.push_back(v.type());
  // Each result depends on all that is linear, as far as anyone asks, and is no number.
  const auto body = trace(
      [&](std::span<const Value> v) {
        std::vector<Value> results;
        for (const Value& like : transpose->inputs() | std::views::drop(num_residuals)) {
          Value all = constant(std::numeric_limits<double>::quiet_NaN(), like.dtype());
          for (const Value& x : v.subspan(num_residuals)) all = all + cast(sum(x), like.dtype());
          results.push_back(broadcast_to(all, like.shape()));
        }
        return results;
      },
      types, transpose->name());
  Node* node =
      current_graph().append(op("linear_call"), {operands.begin(), operands.end()},
                             {{"num_residuals", static_cast<std::int64_t>(num_residuals)}, {"reverse_only", true}},
                             {body, std::move(transpose)});
  std::vector<Value> results;
  for (int i = 0; i < static_cast<int>(node->types.size()); ++i) results.push_back(node->result(i));
  return results;
}

std::vector<Value> custom_vjp(const std::string& name, const TracedFunction& fn, const Pullback& pullback,
                              std::span<const Value> primals) {
  const std::size_t n = primals.size();
  std::vector<ValueType> types;
  for (const Value& v : primals) types.push_back(v.type());
  const auto body = trace(fn, types, name);
  const std::vector<ValueType> results = body->output_types();
  const auto float_types = [](const std::vector<ValueType>& all) {
    std::vector<ValueType> floats;
    for (const ValueType& type : all)
      if (is_float(type.dtype)) floats.push_back(type);
    return floats;
  };
  // What both directions know: primals and outputs.
  std::vector<ValueType> known = types;
  known.insert(known.end(), results.begin(), results.end());
  const auto with = [&](const std::vector<ValueType>& linear) {
    std::vector<ValueType> all = known;
    all.insert(all.end(), linear.begin(), linear.end());
    return all;
  };
  const std::size_t k = known.size();
  const auto forward = trace(
      [&](std::span<const Value> v) {
        std::vector<Dual> duals;
        std::size_t next = k;
        for (std::size_t i = 0; i < n; ++i) duals.push_back({v[i], is_float(types[i].dtype) ? v[next++] : Value{}});
        const std::vector<Dual> pushed = push_forward(*body, duals);
        std::vector<Value> tangents;
        for (std::size_t i = 0; i < results.size(); ++i)
          if (is_float(results[i].dtype)) tangents.push_back(or_zeros(pushed[i].tangent, results[i]));
        return tangents;
      },
      with(float_types(types)), name + "_jvp");
  const auto backward = trace(
      [&](std::span<const Value> v) {
        std::vector<Value> cotangents;
        std::size_t next = k;
        for (const ValueType& type : results) cotangents.push_back(is_float(type.dtype) ? v[next++] : Value{});
        const std::vector<Value> given = pullback(v.first(n), v.subspan(n, results.size()), cotangents);
        HOTLOOP_CHECK(given.size() == n, "a pullback gives a cotangent for each primal");
        std::vector<Value> out;
        for (std::size_t i = 0; i < n; ++i)
          if (is_float(types[i].dtype)) out.push_back(or_zeros(given[i], types[i]));
        return out;
      },
      with(float_types(results)), name + "_vjp");
  const auto rule = [=](std::span<const Value> v) {
    std::vector<Value> outputs = inline_graph(*body, v.first(n));
    std::vector<Value> operands(v.begin(), v.begin() + static_cast<std::ptrdiff_t>(n));
    operands.insert(operands.end(), outputs.begin(), outputs.end());
    for (std::size_t i = 0; i < n; ++i)
      if (is_float(types[i].dtype)) operands.push_back(v[n + i]);
    const std::vector<Value> tangents = linear_call(forward, backward, operands, k);
    std::size_t next = 0;
    for (const ValueType& type : results) outputs.push_back(is_float(type.dtype) ? tangents[next++] : zeros_of(type));
    return outputs;
  };
  return call_with_rule(body, primals, name, rule);
}

}  // namespace hotloop::ir
