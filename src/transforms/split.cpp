#include "transforms/split.h"

#include <algorithm>
#include <map>
#include <optional>
#include <tuple>

#include "hotloop/error.h"
#include "hotloop/ops.h"

namespace hotloop::ir {
namespace {

std::size_t id_of(Value v) { return static_cast<std::size_t>(v.node->id); }

std::vector<Value> results_of(Node& node) {
  std::vector<Value> results;
  for (int i = 0; i < static_cast<int>(node.types.size()); ++i) results.push_back(node.result(i));
  return results;
}

// Builds a split graph in the current graph.
class Splitter {
 public:
  explicit Splitter(Graph& to) : to_(to) {}

  void add_input(const ValueType& type, const std::string& name, bool known) {
    to_.add_input(type, name);
    linear_.push_back(!known);
  }

  std::vector<Value> copy(const Graph& from, std::span<const Value> inputs) {
    ValueMap map(from);
    for (std::size_t i = 0; i < inputs.size(); ++i) map.set(from.inputs()[i], inputs[i]);
    for (const auto& node : from.nodes()) {
      if (is(*node, OpKind::Input)) continue;
      std::vector<Value> operands;
      std::vector<bool> known;
      for (const Value& v : node->operands) {
        operands.push_back(map(v));
        known.push_back(!is_linear(operands.back()));
      }
      map.set_results(*node, add(*node, operands, known));
    }
    std::vector<Value> outputs;
    for (const Value& v : from.outputs()) outputs.push_back(map(v));
    return outputs;
  }

  std::vector<bool> take_linear() {
    catch_up();
    return std::move(linear_);
  }

 private:
  std::vector<Value> add(const Node& node, const std::vector<Value>& operands, const std::vector<bool>& known) {
    const bool mixed = std::ranges::find(known, false) != known.end();
    if (mixed && is(node, OpKind::Loop)) return split_loop(node, operands, known);
    if (mixed && is(node, OpKind::Call) && node.op->name != "linear_call")  // which is linear as a whole
      return node.attrs.flag("remat") ? split_call(node, operands, known) : copy(*node.regions[0], operands);
    return results_of(*copy_node(node, operands));
  }

  bool is_linear(Value v) {
    catch_up();
    return linear_[id_of(v)];
  }
  void catch_up() {
    const auto nodes = to_.nodes();
    for (std::size_t i = linear_.size(); i < nodes.size(); ++i)
      linear_.push_back(
          std::ranges::any_of(nodes[i]->operands, [&](const Value& v) -> bool { return linear_[id_of(v)]; }));
  }

  Graph& to_;
  std::vector<bool> linear_;
};

}  // namespace

Split split(const Graph& graph, const std::vector<bool>& known_inputs) {
  Split result{std::make_shared<Graph>(graph.name()), {}};
  TraceScope scope(*result.graph);
  Splitter splitter(*result.graph);
  for (std::size_t i = 0; i < known_inputs.size(); ++i)
    splitter.add_input(graph.inputs()[i].type(), graph.input_name(static_cast<int>(i)), known_inputs[i]);
  result.graph->set_outputs(splitter.copy(graph, result.graph->inputs()));
  result.linear = splitter.take_linear();
  return result;
}

bool is_cheap(const Node& node) {
  switch (node.op->kind) {
    case OpKind::Constant:
    case OpKind::Iota:
    case OpKind::Extent:
    case OpKind::Broadcast:
    case OpKind::Reshape:
    case OpKind::Transpose:
    case OpKind::Concat: return true;
    default: return false;
  }
}

std::vector<Value> copy_needed(const Graph& from, ValueMap& map, std::span<const Value> values, int generation_bump) {
  std::vector<bool> needed(from.nodes().size());
  const auto need = [&](Value v) {
    if (!map.find(v).defined()) needed[id_of(v)] = true;
  };
  for (const Value& v : values) need(v);
  for (auto it = from.nodes().rbegin(); it != from.nodes().rend(); ++it)
    if (needed[static_cast<std::size_t>((*it)->id)])
      for (const Value& v : (*it)->operands) need(v);
  for (const auto& node : from.nodes()) {
    if (!needed[static_cast<std::size_t>(node->id)]) continue;
    HOTLOOP_CHECK(!is(*node, OpKind::Input), "an input is needed but not given");
    std::vector<Value> operands;
    for (const Value& v : node->operands) operands.push_back(map(v));
    Node* copied = copy_node(*node, operands, is_cheap(*node) ? 0 : generation_bump);
    for (int i = 0; i < static_cast<int>(node->types.size()); ++i)
      if (!map.find(node->result(i)).defined()) map.set(node->result(i), copied->result(i));
  }
  std::vector<Value> copies;
  for (const Value& v : values) copies.push_back(map(v));
  return copies;
}

namespace {

// Whether a linear node takes its float operands as they are, without a product: a known one among them is a zero tangent.
bool adds(const Node& node) {
  switch (node.op->kind) {
    case OpKind::Elementwise:
      return node.op->scalar == ScalarOp::Add || node.op->scalar == ScalarOp::Sub ||
             node.op->scalar == ScalarOp::Select;
    case OpKind::Pad:
    case OpKind::Concat:
    case OpKind::ScatterAdd:
    case OpKind::DynamicUpdate: return true;
    default: return false;
  }
}

// The side of a select that decides on all elements at once, or on those of a lane.
struct Side {
  Value condition;  // bool, of rank 0 or one for each lane of the batch
  bool holds = true;
  bool operator==(const Side&) const = default;
};

// The known condition by which a linear select decides so.
std::optional<Value> condition_of(const LinearPart& part, const Node& node) {
  if (!is(node, OpKind::Elementwise) || node.op->scalar != ScalarOp::Select) return std::nullopt;
  Value v = node.operands[0];
  if (part.split.is_linear(v)) return std::nullopt;
  while (is(*v.node, OpKind::Broadcast) || is(*v.node, OpKind::Reshape)) v = v.node->operands[0];
  if (v.rank() == 0) return v;
  if (part.lanes == nullptr || !part.lanes->all_lead(v)) return std::nullopt;
  return v.rank() == static_cast<int>(part.lanes->of(v).axes.size()) ? std::optional(v) : std::nullopt;
}

using Sides = std::vector<Side>;

// By linear node, the sides of selects that everything made of it passes through: a step's interpolant that of the step's acceptance, its end that of
// an event besides.
std::vector<Sides> common_sides(const LinearPart& part, const std::vector<bool>& live) {
  constexpr std::size_t most_sides = 3;
  const Split& split = part.split;
  std::vector<Sides> sides(live.size());
  std::vector<bool> used(live.size());
  const auto use = [&](Value v, Sides passed) {
    if (!split.is_linear(v)) return;
    std::erase_if(passed, [&](const Side& s) { return s.condition.rank() > 0 && !part.lanes->all_lead(v); });
    Sides& all = sides[id_of(v)];
    if (!used[id_of(v)])
      all = std::move(passed);
    else
      std::erase_if(all, [&](const Side& s) { return std::ranges::find(passed, s) == passed.end(); });
    used[id_of(v)] = true;
  };
  for (const Value& v : part.outputs) use(v, {});
  for (auto it = split.graph->nodes().rbegin(); it != split.graph->nodes().rend(); ++it) {
    const Node& node = **it;
    if (!live[static_cast<std::size_t>(node.id)]) continue;
    const std::optional<Value> condition = condition_of(part, node);
    for (std::size_t k = 0; k < node.operands.size(); ++k) {
      Sides passed = sides[static_cast<std::size_t>(node.id)];
      if (condition && k > 0 && passed.size() < most_sides) {
        const Side own{*condition, k == 1};
        if (std::ranges::find(passed, own) == passed.end()) passed.push_back(own);
      }
      use(node.operands[k], std::move(passed));
    }
  }
  return sides;
}

// The linear nodes that `outputs` need.
std::vector<bool> live_linear(const Split& split, std::span<const Value> outputs) {
  std::vector<bool> live(split.linear.size());
  for (const Value& v : outputs)
    if (split.is_linear(v)) live[id_of(v)] = true;
  for (auto it = split.graph->nodes().rbegin(); it != split.graph->nodes().rend(); ++it)
    if (live[static_cast<std::size_t>((*it)->id)])
      for (const Value& v : (*it)->operands)
        if (split.is_linear(v)) live[id_of(v)] = true;
  return live;
}

}  // namespace

std::vector<Value> LinearPart::reads(const std::function<Source(Value)>& source) const {
  const std::vector<bool> live = live_linear(split, outputs);
  std::vector<Value> found, visited;
  const std::function<void(Value)> read = [&](Value v) {
    if (split.is_linear(v) || std::ranges::find(visited, v) != visited.end()) return;
    visited.push_back(v);
    if (source(v) == Source::Given) {
      found.push_back(v);
      return;
    }
    for (const Value& operand : v.node->operands) read(operand);
  };
  for (const auto& node : split.graph->nodes()) {
    if (!live[static_cast<std::size_t>(node->id)]) continue;
    for (const Value& v : node->operands) read(v);
    if (const auto condition = condition_of(*this, *node)) read(*condition);
  }
  for (const Value& v : outputs) read(v);
  return found;
}

std::vector<Value> LinearPart::copy(ValueMap& map, const Guard& guard) const {
  const Graph& graph = *split.graph;
  const std::vector<bool> live = live_linear(split, outputs);
  std::vector<Value> known;
  const auto add_known = [&](Value v) {
    if (!split.is_linear(v) && std::ranges::find(known, v) == known.end()) known.push_back(v);
  };
  for (const auto& node : graph.nodes())
    if (live[static_cast<std::size_t>(node->id)])
      for (const Value& v : node->operands) add_known(v);
  for (const Value& v : outputs) add_known(v);
  for (const auto& node : graph.nodes())
    if (live[static_cast<std::size_t>(node->id)])
      if (const auto condition = condition_of(*this, *node)) add_known(*condition);
  copy_needed(graph, map, known, 1);
  const std::vector<Sides> sides = common_sides(*this, live);
  ValueMap factors(graph), denominators(graph);
  const auto guarded = [&](Value v, bool divides) {
    if (!guard) return map(v);
    ValueMap& made = divides ? denominators : factors;
    if (!made.find(v).defined()) made.set(v, guard(v, map(v), divides));
    return made(v);
  };
  // What a select leaves out, as the steps that a solver rejects, has a cotangent of zero, and may be infinite: its factors are one there. Not large ones,
  // as the tape of a loop is, which would be copied.
  constexpr std::int64_t most_numbers = 4096;
  using SidesKey = std::vector<std::tuple<const Node*, int, bool>>;
  std::map<SidesKey, Side> joined;  // one condition for all of them, in the copy
  const auto join = [&](const Sides& passed, const SidesKey& key) {
    if (const auto it = joined.find(key); it != joined.end()) return it->second;
    Side all{map(passed[0].condition), passed[0].holds};
    for (const Side& side : std::span(passed).subspan(1)) {
      const auto of = [](const Value& c, bool holds) { return holds ? c : logical_not(c); };
      Value a = of(all.condition, all.holds), b = of(map(side.condition), side.holds);
      if (a.rank() == 0) a = broadcast_to(a, b.shape());
      if (b.rank() == 0) b = broadcast_to(b, a.shape());
      all = {bit_and(a, b), true};
    }
    return joined.emplace(key, all).first->second;
  };
  std::map<std::tuple<const Node*, int, bool, SidesKey>, Value> chosen;
  const auto one_elsewhere = [&](Value v, bool divides, Sides passed) {
    std::erase_if(passed, [&](const Side& s) { return s.condition.rank() > 0 && !lanes->all_lead(v); });
    if (passed.empty()) return guarded(v, divides);
    SidesKey key;
    for (const Side& s : passed) key.emplace_back(s.condition.node, s.condition.index, s.holds);
    Value& factor = chosen[{v.node, v.index, divides, key}];
    if (factor.defined()) return factor;
    const Side side = join(passed, key);
    const Value one = constant(1, v.dtype(), v.shape()), given = guarded(v, divides), holds = side.condition;
    const auto chosen_by = [&](Value a, Value b) {
      return holds.rank() == 0 ? select(broadcast_to(holds, v.shape()), a, b) : lanes->select_active(v, holds, a, b);
    };
    factor = side.holds ? chosen_by(given, one) : chosen_by(one, given);
    return factor;
  };
  for (const auto& node : graph.nodes()) {
    if (!live[static_cast<std::size_t>(node->id)] || is(*node, OpKind::Input)) continue;
    const Sides& passed = sides[static_cast<std::size_t>(node->id)];
    std::vector<Value> operands;
    for (const Value& v : node->operands) {
      const bool is_factor = !split.is_linear(v) && !adds(*node), divides = node->op->scalar == ScalarOp::Div;
      if (!is_factor)
        operands.push_back(map(v));
      else if (!passed.empty() && is_float(v.dtype()) && v.shape().size() <= most_numbers && !(finite && finite(v)))
        operands.push_back(one_elsewhere(v, divides, passed));
      else
        operands.push_back(guarded(v, divides));
    }
    Node* copied = copy_node(*node, operands);
    for (int i = 0; i < static_cast<int>(node->types.size()); ++i)
      if (!map.find(node->result(i)).defined()) map.set(node->result(i), copied->result(i));
  }
  std::vector<Value> results;
  for (const Value& v : outputs) results.push_back(map(v));
  return results;
}

std::vector<Value> split_call(const Node& node, std::span<const Value> operands, const std::vector<bool>& known) {
  const Split body = split(*node.regions[0], known);
  const Graph& graph = *body.graph;
  const std::string& name = node.attrs.get<std::string>("name");
  // A call of `fn` on the operands flagged in `wanted`.
  const auto call_part = [&](const std::vector<bool>& wanted, bool remat, const auto& fn) {
    std::vector<Value> given;
    std::vector<ValueType> types;
    for (std::size_t i = 0; i < operands.size(); ++i)
      if (wanted[i]) {
        given.push_back(operands[i]);
        types.push_back(operands[i].type());
      }
    const auto region = trace(
        [&](std::span<const Value> inputs) {
          ValueMap map(graph);
          std::size_t next = 0;
          for (std::size_t i = 0; i < operands.size(); ++i)
            if (wanted[i]) map.set(graph.inputs()[i], inputs[next++]);
          return fn(map);
        },
        types, node.regions[0]->name());
    return call(region, given, name, nullptr, remat);
  };

  std::vector<Value> known_outputs, linear_outputs;
  for (const Value& v : graph.outputs()) (body.is_linear(v) ? linear_outputs : known_outputs).push_back(v);
  std::vector<Value> known_results, linear_results;
  if (!known_outputs.empty())
    known_results = call_part(known, true, [&](ValueMap& map) { return copy_needed(graph, map, known_outputs); });
  if (!linear_outputs.empty()) {
    const LinearPart part{body, linear_outputs};
    std::vector<bool> wanted(operands.size());
    const auto reads = part.reads([](Value v) { return is(*v.node, OpKind::Input) ? Source::Given : Source::Copy; });
    for (std::size_t i = 0; i < operands.size(); ++i)
      wanted[i] = !known[i] || std::ranges::find(reads, graph.inputs()[i]) != reads.end();
    linear_results = call_part(wanted, true, [&](ValueMap& map) { return part.copy(map); });
  }
  std::vector<Value> results;
  std::size_t next_known = 0, next_linear = 0;
  for (const Value& v : graph.outputs())
    results.push_back(body.is_linear(v) ? linear_results[next_linear++] : known_results[next_known++]);
  return results;
}

}  // namespace hotloop::ir
