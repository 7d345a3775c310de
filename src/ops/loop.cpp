#include "core/convert.h"
#include "core/index.h"
#include "hotloop/error.h"
#include "hotloop/ops.h"
#include "ir/rewrite.h"
#include "ops/rules/arguments.h"
#include "ops/rules/loop_rules.h"
#include "ops/rules/sampling.h"

#include <algorithm>
#include <cstring>

namespace hotloop {
namespace ir {
namespace {

bool leads(const Shape& lanes, const Shape& shape) {
  return lanes.rank() <= shape.rank() && std::ranges::equal(lanes.dims(), shape.dims().first(at(lanes.rank())));
}

// Asked for only where something does not fit: a loop's types are inferred by every pass that rebuilds it, and texts of them take longer.
[[noreturn]] void refuse(const std::string& requirement, const std::string& received, const std::string& remedy = "") {
  throw UserError("loop", requirement, received, remedy);
}

// The types that body or until take: `names` of what they stand for, in order, for messages.
void check_inputs(const std::string& region, const Graph& graph, const std::vector<ValueType>& wanted) {
  const auto types = graph.input_types();
  if (types != wanted) refuse(region + " must take " + types_text(wanted), types_text(types));
}

std::vector<ValueType> infer_loop(const InferContext& c) {
  const auto num_carry = at(c.attrs.integer("num_carry")), num_xs = at(c.attrs.integer("num_xs")),
             num_consts = at(c.attrs.integer("num_consts"));
  const std::int64_t length = c.attrs.integer("length");
  const bool has_trip = c.attrs.flag("has_trip");
  const std::string& residuals = c.attrs.get<std::string>("residuals");
  if (length < 0) refuse("the length must not be negative", std::to_string(length));
  if (!holds(DType::I32, length))
    refuse("the length must be at most 2^31 - 1, since iterations are counted in i32", std::to_string(length));
  if (!residuals.empty() && residuals != "save" && residuals != "recompute" && residuals != "save_if_small")
    refuse("residuals must be \"save\", \"recompute\", \"save_if_small\" or \"\" (the default)",
           "\"" + residuals + "\"");
  if (c.regions.empty() || c.regions.size() > 2)
    refuse("a loop has a body and may have an until", std::to_string(c.regions.size()) + " regions");
  const std::size_t num_operands = num_carry + num_xs + num_consts + (has_trip ? 1 : 0);
  if (c.operands.size() != num_operands)
    refuse("operands are carry, xs, consts and the trip count, " + std::to_string(num_operands) + " here",
           std::to_string(c.operands.size()));

  const auto carry = c.operands.first(num_carry);
  const auto xs = c.operands.subspan(num_carry, num_xs);
  const auto consts = c.operands.subspan(num_carry + num_xs, num_consts);
  // Where lanes idle after their own trip counts, these may be given: the loop runs as often as the largest says.
  if (has_trip && c.operands.back() != ValueType{DType::I32, {}} &&
      !(c.attrs.has("idles") && c.operands.back().dtype == DType::I32))
    refuse("the trip count must be i32[]", c.operands.back().str());
  std::vector<ValueType> body_inputs(carry.begin(), carry.end()), until_inputs = body_inputs;
  for (std::size_t i = 0; i < num_xs; ++i) {
    if (xs[i].shape.rank() == 0 || xs[i].shape[0] != length)
      refuse("xs are scanned along axis 0, whose extent must be the length " + std::to_string(length),
             "xs[" + std::to_string(i) + "] = " + xs[i].str());
    body_inputs.push_back({xs[i].dtype, xs[i].shape.without(0)});
  }
  body_inputs.insert(body_inputs.end(), consts.begin(), consts.end());
  until_inputs.insert(until_inputs.end(), consts.begin(), consts.end());

  const Graph& body = *c.regions[0];
  check_inputs("the body", body, body_inputs);
  const auto outputs = body.output_types();
  if (outputs.size() < num_carry)
    refuse("the body must give the next value of each of the " + std::to_string(num_carry) + " carries, then ys",
           types_text(outputs));
  for (std::size_t i = 0; i < num_carry; ++i)
    if (outputs[i] != carry[i])
      refuse("a carry must keep its type from one iteration to the next",
             "carry " + std::to_string(i) + " is " + carry[i].str() + " and becomes " + outputs[i].str(),
             "cast or reshape the initial value or the result of the body");

  Shape lanes;
  if (c.regions.size() == 2) {
    const Graph& until = *c.regions[1];
    check_inputs("the until predicate", until, until_inputs);
    const auto predicate = until.output_types();
    if (predicate.size() != 1 || predicate[0].dtype != DType::Bool)
      refuse("the until predicate must give one bool value", types_text(predicate));
    lanes = predicate[0].shape;
    for (std::size_t i = 0; i < outputs.size(); ++i)
      if (!leads(lanes, outputs[i].shape))
        refuse("with a predicate per lane, carries and ys must have its axes " + lanes.str() + " in front",
               (i < num_carry ? "carry " + std::to_string(i) : "y " + std::to_string(i - num_carry)) + " = " +
                   outputs[i].str());
  }
  std::vector<ValueType> results(outputs.begin(), outputs.begin() + static_cast<std::ptrdiff_t>(num_carry));
  for (std::size_t i = num_carry; i < outputs.size(); ++i)
    results.push_back({outputs[i].dtype, outputs[i].shape.with_inserted(0, length)});
  results.push_back({DType::I32, lanes});
  return results;
}

// One step of x along axis 0, as an array of its own.
Array row(const Array& x, std::int64_t t) {
  Array out(x.dtype(), x.shape().without(0));
  if (out.bytes()) std::memcpy(out.raw(), static_cast<const char*>(x.raw()) + at(t) * out.bytes(), out.bytes());
  return out;
}

// Copies the parts of `from` whose lane is active, onto `to` at an offset in bytes.
void copy_lanes(const Array& from, const std::vector<bool>& active, void* to) {
  if (from.bytes() == 0) return;
  const std::size_t bytes = from.bytes() / active.size();
  for (std::size_t l = 0; l < active.size(); ++l)
    if (active[l])
      std::memcpy(static_cast<char*>(to) + l * bytes, static_cast<const char*>(from.raw()) + l * bytes, bytes);
}

std::vector<Array> eval_loop(const EvalContext& c) {
  const LoopView loop(c.node);
  const auto num_carry = at(loop.num_carry()), num_xs = at(loop.num_xs());
  const auto xs = c.operands.subspan(num_carry, num_xs);
  const auto consts = c.operands.subspan(num_carry + num_xs, at(loop.num_consts()));
  std::vector<Array> results;
  for (const Array& a : c.operands.first(num_carry)) results.push_back(a);
  for (std::size_t i = num_carry; i < c.node.types.size(); ++i)
    results.push_back(Array::zeros(c.node.types[i].dtype, c.node.types[i].shape));
  const auto count = results.back().data<std::int32_t>();
  std::int64_t trip = loop.length();
  if (loop.has_trip()) {
    const auto trips = c.operands.back().data<std::int32_t>();
    trip = std::clamp<std::int64_t>(*std::ranges::max_element(trips), 0, loop.length());
  }

  std::vector<bool> active(count.size(), true);
  std::vector<Array> arguments;
  for (std::int64_t k = 0; k < trip; ++k) {
    const std::int64_t t = loop.reverse() ? trip - 1 - k : k;
    const std::span<const Array> carry(results.data(), num_carry);
    if (loop.until() != nullptr) {
      arguments.assign(carry.begin(), carry.end());
      arguments.insert(arguments.end(), consts.begin(), consts.end());
      const Array done = c.call(*loop.until(), arguments)[0];
      for (std::size_t l = 0; l < active.size(); ++l)
        if (done.at(static_cast<std::int64_t>(l)) != 0) active[l] = false;
      if (std::ranges::find(active, true) == active.end()) break;
    }
    arguments.assign(carry.begin(), carry.end());
    for (const Array& x : xs) arguments.push_back(row(x, t));
    arguments.insert(arguments.end(), consts.begin(), consts.end());
    const std::vector<Array> out = c.call(loop.body(), arguments);
    for (std::size_t i = 0; i < out.size(); ++i) {
      if (i < num_carry) {
        // A copy, since results of the body may be carries themselves.
        Array next = results[i].clone();
        copy_lanes(out[i], active, next.raw());
        results[i] = next;
      } else {
        copy_lanes(out[i], active, static_cast<char*>(results[i].raw()) + at(t) * out[i].bytes());
      }
    }
    for (std::size_t l = 0; l < active.size(); ++l) count[l] += active[l];
  }
  return results;
}

double flops_loop(const Node& node) {
  const LoopView loop(node);
  double flops = 0;
  for (const auto& region : node.regions)
    for (const auto& n : region->nodes()) flops += estimate_flops(*n);
  return flops * static_cast<double>(loop.length());
}

// A graph of `fn` on inputs of the given types, for samples.
std::shared_ptr<const Graph> region(const TracedFunction& fn, const std::vector<ValueType>& types) {
  return trace(fn, types, "body");
}

Attrs attrs_of(std::int64_t num_carry, std::int64_t num_xs, std::int64_t num_consts, std::int64_t length, bool reverse,
               bool has_trip, const std::string& residuals) {
  return {{"num_carry", num_carry}, {"num_xs", num_xs},     {"num_consts", num_consts}, {"length", length},
          {"reverse", reverse},     {"has_trip", has_trip}, {"residuals", residuals}};
}

std::vector<Sample> samples_loop(Rng& rng, DType dtype) {
  const ValueType state{dtype, {2, 3}}, weight{dtype, {3, 3}}, scalar{dtype, {}}, lanes{dtype, {4}};
  const auto uniform = [&](const ValueType& t) { return random_array(rng, t.dtype, t.shape, -1, 1); };
  const auto scan_body = region(
      [](std::span<const Value> v) {
        const Value h = tanh(v[1] + matmul(v[0], v[2]));
        return std::vector<Value>{h, h * h};
      },
      {state, state, weight});
  const auto while_body = region(
      [](std::span<const Value> v) {
        return std::vector<Value>{v[0] * v[1] + sin(v[0]) * 0.1, v[0] * v[1]};
      },
      {scalar, scalar});
  const auto while_until = region(
      [](std::span<const Value> v) { return std::vector<Value>{greater(v[0], like(v[0], 4))}; }, {scalar, scalar});
  const auto lane_body = region(
      [](std::span<const Value> v) {
        return std::vector<Value>{v[0] * v[1] + sin(v[0]) * 0.1, v[0] * v[1]};
      },
      {lanes, lanes});
  const auto lane_until = region(
      [](std::span<const Value> v) {
        return std::vector<Value>{greater(v[0], broadcast_to(like(v[0], 4), v[0].shape()))};
      },
      {lanes, lanes});
  // Linear in the carry and in xs together, and in the carry given a weight: for the transpose rule.
  const auto linear_body = region(
      [](std::span<const Value> v) {
        return std::vector<Value>{v[0] * 0.5 + v[1], v[0] - v[1]};
      },
      {state, state});
  const auto power_body = region(
      [](std::span<const Value> v) {
        return std::vector<Value>{matmul(v[0], v[1]), v[0]};
      },
      {state, weight});
  const Array xs = random_array(rng, dtype, {4, 2, 3}, -1, 1);
  // Starts and growth are apart from values that would end a loop within a finite difference.
  const Array start = random_array(rng, dtype, {}, 0.9, 1.1), growth = random_array(rng, dtype, {}, 1.9, 2.0);
  Array starts(dtype, {4});
  const double first[] = {1.0, 0.3, 5.0, 2.2};
  for (int i = 0; i < 4; ++i) starts.set(i, first[i]);
  const Array growths = random_array(rng, dtype, {4}, 1.9, 2.0);
  return {
      {{uniform(state), xs, uniform(weight)}, attrs_of(1, 1, 1, 4, false, false, ""), {scan_body}},
      {{uniform(state), xs, uniform(weight), Array::scalar<std::int32_t>(3)},
       attrs_of(1, 1, 1, 4, true, true, "recompute"),
       {scan_body}},
      {{start, growth}, attrs_of(1, 0, 1, 6, false, false, ""), {while_body, while_until}},
      {{start, growth}, attrs_of(1, 0, 1, 6, false, false, "save"), {while_body, while_until}},
      {{starts, growths}, attrs_of(1, 0, 1, 6, false, false, ""), {lane_body, lane_until}},
      {{uniform(state), xs}, attrs_of(1, 1, 0, 4, true, false, ""), {linear_body}},
      {{uniform(state), uniform(weight)}, attrs_of(1, 0, 1, 3, false, false, ""), {power_body}},
  };
}

}  // namespace

std::vector<OpDef> ops_loop() {
  OpDef def;
  def.name = "loop";
  def.summary = "the one control-flow primitive: scan, bounded while, conditional";
  def.kind = OpKind::Loop;
  def.infer = infer_loop;
  def.eval = eval_loop;
  def.jvp_with_primal = jvp_loop;
  def.transpose = transpose_loop;
  def.batch = batch_loop;
  def.flops = flops_loop;
  def.samples = samples_loop;
  return {def};
}

}  // namespace ir

LoopResult loop(const LoopSpec& spec) {
  if (!spec.body) throw UserError("loop", "a loop must have a body", "none");
  Attrs attrs = {{"num_carry", static_cast<std::int64_t>(spec.carry.size())},
                 {"num_xs", static_cast<std::int64_t>(spec.xs.size())},
                 {"num_consts", static_cast<std::int64_t>(spec.consts.size())},
                 {"length", spec.length},
                 {"reverse", spec.reverse},
                 {"has_trip", spec.trip.defined()},
                 {"residuals", spec.residuals}};
  if (!spec.laned.empty()) attrs.set("laned", spec.laned);
  if (!spec.mask.empty()) attrs.set("mask", spec.mask);
  // Iterations beyond a lane's bound change nothing of it, and the trip count is the largest bound.
  const bool idles = !spec.mask.empty() && spec.mask[2] == 0 && spec.trip.defined() &&
                     spec.trip.node->op->name == "reduce_max" && spec.trip.rank() == 0 &&
                     spec.trip.node->operands[0] == spec.consts[static_cast<std::size_t>(spec.mask[1])];
  if (idles) attrs.set("idles", true);
  std::vector<Value> operands = spec.carry;
  operands.insert(operands.end(), spec.xs.begin(), spec.xs.end());
  operands.insert(operands.end(), spec.consts.begin(), spec.consts.end());
  if (spec.trip.defined()) operands.push_back(spec.trip);
  std::vector<std::shared_ptr<const Graph>> regions{spec.body};
  if (spec.until) regions.push_back(spec.until);
  Node* node = current_graph().append(ir::op("loop"), operands, attrs, regions, spec.generation);

  const int num_results = static_cast<int>(node->types.size()), num_carry = static_cast<int>(spec.carry.size());
  LoopResult result;
  for (int i = 0; i < num_carry; ++i) result.carry.push_back(node->result(i));
  for (int i = num_carry; i + 1 < num_results; ++i) result.ys.push_back(node->result(i));
  result.count = node->result(num_results - 1);
  return result;
}

}  // namespace hotloop
