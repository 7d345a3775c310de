#include "hotloop/error.h"
#include "hotloop/ops.h"
#include "ir/interpreters.h"
#include "ir/rewrite.h"
#include "ops/rules/arguments.h"

namespace hotloop {
namespace ir {
namespace {

void require_rule(const Graph& rule, const std::vector<ValueType>& operands, const std::vector<ValueType>& results) {
  auto inputs = operands, outputs = results;
  inputs.insert(inputs.end(), operands.begin(), operands.end());
  outputs.insert(outputs.end(), results.begin(), results.end());
  if (rule.input_types() != inputs || rule.output_types() != outputs)
    throw UserError("call",
                    "a jvp rule takes (primals..., tangents...) = " + types_text(inputs) +
                        " and gives (outputs..., output tangents...) = " + types_text(outputs),
                    types_text(rule.input_types()) + " -> " + types_text(rule.output_types()));
}

std::vector<ValueType> infer_call(const InferContext& c) {
  if (c.regions.size() != 1)
    throw UserError("call", "a call has a body", std::to_string(c.regions.size()) + " regions");
  const std::vector<ValueType> operands(c.operands.begin(), c.operands.end());
  const Graph& body = *c.regions[0];
  if (body.input_types() != operands)
    throw UserError("call", "the operands must be what the body takes, " + types_text(body.input_types()),
                    types_text(operands));
  const auto results = body.output_types();
  if (c.attrs.has(jvp_rule_attr)) {
    const auto& rule = *c.attrs.get<std::shared_ptr<const LazyGraph>>(jvp_rule_attr);
    if (rule.is_traced()) require_rule(*rule.get(), operands, results);
  }
  return results;
}

// The rule of a node that has one: traced now, if nobody asked for it before.
std::shared_ptr<const Graph> rule_of(const Node& node) {
  if (!node.attrs.has(jvp_rule_attr)) return nullptr;
  const auto rule = node.attrs.get<std::shared_ptr<const LazyGraph>>(jvp_rule_attr)->get();
  require_rule(*rule, node.regions[0]->input_types(), node.types);
  return rule;
}

bool remat(const Node& node) { return node.attrs.flag("remat"); }
std::string name(const Node& node) { return node.attrs.get<std::string>("name"); }

// A call of `fn` on the defined ones of `operands`; results of fn that are undefined are undefined here too.
std::vector<Value> call_on(const Node& node, std::span<const Value> operands,
                           const std::function<std::vector<Value>(std::span<const Value>)>& fn) {
  std::vector<Value> defined;
  std::vector<ValueType> types;
  for (const Value& v : operands) {
    if (!v.defined()) continue;
    defined.push_back(v);
    types.push_back(v.type());
  }
  std::vector<bool> given;
  const auto body = trace(
      [&](std::span<const Value> inputs) {
        std::vector<Value> arguments(operands.size()), outputs;
        std::size_t next = 0;
        for (std::size_t i = 0; i < operands.size(); ++i)
          if (operands[i].defined()) arguments[i] = inputs[next++];
        for (const Value& v : fn(arguments)) {
          given.push_back(v.defined());
          if (v.defined()) outputs.push_back(v);
        }
        return outputs;
      },
      types, node.regions[0]->name());
  const auto results = hotloop::call(body, defined, name(node), nullptr, remat(node));
  std::vector<Value> spread;
  std::size_t next = 0;
  for (const bool is_given : given) spread.push_back(is_given ? results[next++] : Value{});
  return spread;
}

std::pair<std::vector<Value>, std::vector<Value>> jvp_call(const JvpContext& c) {
  const std::size_t n = c.primals.size(), num_results = c.node.types.size();
  std::vector<Value> operands(c.primals.begin(), c.primals.end());
  operands.insert(operands.end(), c.tangents.begin(), c.tangents.end());
  const std::shared_ptr<const Graph> rule = rule_of(c.node);
  const auto apply = [&](std::span<const Value> v) {
    std::vector<Value> outputs, tangents;
    if (rule) {
      std::vector<Value> arguments(v.begin(), v.end());
      for (std::size_t i = 0; i < n; ++i)
        if (!arguments[n + i].defined()) arguments[n + i] = zeros_of(arguments[i].type());
      outputs = inline_graph(*rule, arguments);
      for (std::size_t i = 0; i < num_results; ++i)
        if (!is_float(outputs[num_results + i].dtype())) outputs[num_results + i] = {};
      return outputs;
    }
    std::vector<Dual> duals;
    for (std::size_t i = 0; i < n; ++i) duals.push_back({v[i], v[n + i]});
    for (const Dual& d : push_forward(*c.node.regions[0], duals)) {
      outputs.push_back(d.primal);
      tangents.push_back(d.tangent);
    }
    outputs.insert(outputs.end(), tangents.begin(), tangents.end());
    return outputs;
  };
  const std::vector<Value> results = remat(c.node) ? call_on(c.node, operands, apply) : apply(operands);
  const auto middle = results.begin() + static_cast<std::ptrdiff_t>(num_results);
  return {{results.begin(), middle}, {middle, results.end()}};
}

std::vector<Value> transpose_call(const TransposeContext& c) {
  const std::size_t n = c.operands.size();
  std::vector<Value> operands(c.operands.begin(), c.operands.end());
  operands.insert(operands.end(), c.cotangents.begin(), c.cotangents.end());
  return call_on(c.node, operands,
                 [&](std::span<const Value> v) { return pull_back(*c.node.regions[0], v.first(n), v.subspan(n)); });
}

std::vector<Value> values_of(std::span<const Batched> batched) {
  std::vector<Value> values;
  for (const Batched& b : batched) values.push_back(b.value);
  return values;
}

std::vector<Batched> batch_call(const BatchContext& c) {
  const std::vector<Value> operands = values_of(c.operands);
  std::vector<ValueType> types;
  std::vector<bool> are_batched;
  for (const Batched& b : c.operands) {
    types.push_back(b.value.type());
    are_batched.push_back(b.batched);
  }
  const bool has_rule = c.node.attrs.has(jvp_rule_attr);
  // A rule, which takes as many tangents, must fit the body: with one, every result is batched.
  const auto map = [are_batched, has_rule, size = c.size](const Graph& graph, std::span<const Value> v) {
    std::vector<Batched> arguments;
    for (std::size_t i = 0; i < v.size(); ++i) arguments.push_back({v[i], are_batched[i % are_batched.size()]});
    std::vector<Batched> results = push_batch(graph, arguments, size);
    if (has_rule)
      for (Batched& b : results) b = {materialize_batch(b, size), true};
    return results;
  };
  const Graph& body = *c.node.regions[0];
  std::vector<Batched> outputs;
  const auto mapped =
      trace([&](std::span<const Value> v) { return values_of(outputs = map(body, v)); }, types, body.name());
  std::vector<Value> results;
  if (has_rule) {
    const auto rule = c.node.attrs.get<std::shared_ptr<const LazyGraph>>(jvp_rule_attr);
    const auto map_rule = [map, rule](std::span<const Value> v) { return values_of(map(*rule->get(), v)); };
    results = call_with_rule(mapped, operands, name(c.node), map_rule, remat(c.node));
  } else {
    results = hotloop::call(mapped, operands, name(c.node), nullptr, remat(c.node));
  }
  for (std::size_t i = 0; i < results.size(); ++i) outputs[i].value = results[i];
  return outputs;
}

std::vector<Sample> samples_call(Rng& rng, DType dtype) {
  const ValueType type{dtype, {3}};
  std::uniform_real_distribution<double> uniform(-1, 1);
  const auto random = [&] {
    Array a(dtype, {3});
    for (std::int64_t i = 0; i < 3; ++i) a.set(i, uniform(rng));
    return a;
  };
  const auto body = trace(
      [](std::span<const Value> v) {
        return std::vector<Value>{sin(v[0]) * v[1], exp(v[1])};
      },
      std::vector{type, type}, "body");
  const auto square =
      trace([](std::span<const Value> v) { return std::vector<Value>{v[0] * v[0]}; }, std::vector{type}, "body");
  const auto rule = trace(
      [](std::span<const Value> v) {
        return std::vector<Value>{v[0] * v[0], v[0] * v[1] * 2.0};
      },
      std::vector{type, type}, "jvp");
  const auto linear = trace(
      [](std::span<const Value> v) {
        return std::vector<Value>{v[0] * 2.0 - v[1], v[1] * 3.0};
      },
      std::vector{type, type}, "body");
  const std::string sample = "sample";
  return {
      {{random(), random()}, {{"name", sample}, {"remat", false}}, {body}},
      {{random(), random()}, {{"name", sample}, {"remat", true}}, {body}},
      {{random()},
       {{"name", sample}, {"remat", false}, {jvp_rule_attr, std::make_shared<const LazyGraph>(rule)}},
       {square}},
      {{random(), random()}, {{"name", sample}, {"remat", false}}, {linear}},
  };
}

}  // namespace

std::vector<OpDef> ops_call() {
  OpDef def;
  def.name = "call";
  def.summary = "a region with rules of its own";
  def.kind = OpKind::Call;
  def.infer = infer_call;
  def.eval = [](const EvalContext& c) { return c.call(*c.node.regions[0], c.operands); };
  def.jvp_with_primal = jvp_call;
  def.transpose = transpose_call;
  def.batch = batch_call;
  def.flops = [](const Node& node) {
    double flops = 0;
    for (const auto& n : node.regions[0]->nodes()) flops += estimate_flops(*n);
    return flops;
  };
  def.samples = samples_call;
  return {def};
}

}  // namespace ir

namespace {

std::vector<Value> append_call(std::shared_ptr<const Graph> body, std::span<const Value> operands,
                               const std::string& name, std::shared_ptr<const LazyGraph> rule, bool remat) {
  if (!body) throw UserError("call", "a call must have a body", "none");
  Attrs attrs = {{"name", name}, {"remat", remat}};
  if (rule) attrs.set(ir::jvp_rule_attr, std::move(rule));
  Node* node =
      current_graph().append(ir::op("call"), {operands.begin(), operands.end()}, std::move(attrs), {std::move(body)});
  std::vector<Value> results;
  for (int i = 0; i < static_cast<int>(node->types.size()); ++i) results.push_back(node->result(i));
  return results;
}

}  // namespace

std::vector<Value> call(std::shared_ptr<const Graph> body, std::span<const Value> operands, const std::string& name,
                        std::shared_ptr<const Graph> jvp_rule, bool remat) {
  auto rule = jvp_rule ? std::make_shared<const LazyGraph>(std::move(jvp_rule)) : nullptr;
  return append_call(std::move(body), operands, name, std::move(rule), remat);
}

std::vector<Value> call_with_rule(std::shared_ptr<const Graph> body, std::span<const Value> operands,
                                  const std::string& name, TracedFunction jvp_rule, bool remat) {
  std::vector<ValueType> types;
  for (int copy = 0; copy < 2; ++copy)
    for (const Value& v : operands) types.push_back(v.type());
  auto rule = std::make_shared<const LazyGraph>(std::move(jvp_rule), std::move(types), name + "_jvp");
  return append_call(std::move(body), operands, name, std::move(rule), remat);
}

}  // namespace hotloop
