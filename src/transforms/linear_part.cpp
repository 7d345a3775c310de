#include "transforms/linear_part.h"

#include <algorithm>
#include <limits>
#include <map>
#include <numeric>
#include <optional>
#include <tuple>

#include "core/index.h"
#include "hotloop/ops.h"
#include "ops/rules/arguments.h"
#include "ops/rules/loop_rules.h"

namespace hotloop::ir {
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

// Whether v is one for each lane of the batch.
bool is_of_all_lanes(const LinearPart& part, Value v) {
  return part.lanes != nullptr && part.lanes->all_lead(v) &&
         v.rank() == static_cast<int>(part.lanes->of(v).axes.size());
}

// The known condition by which a linear select decides so.
std::optional<Value> condition_of(const LinearPart& part, const Node& node) {
  if (!is(node, OpKind::Elementwise) || node.op->scalar != ScalarOp::Select) return std::nullopt;
  Value v = node.operands[0];
  if (part.split.is_linear(v)) return std::nullopt;
  while (is(*v.node, OpKind::Broadcast) || is(*v.node, OpKind::Reshape)) v = v.node->operands[0];
  return v.rank() == 0 || is_of_all_lanes(part, v) ? std::optional(v) : std::nullopt;
}

// A graph whose nodes are known or linear already.
Split flagged(std::shared_ptr<const Graph> graph, const std::vector<bool>& known_inputs) {
  Split result{std::move(graph), {}};
  std::size_t next_input = 0;
  for (const auto& node : result.graph->nodes())
    result.linear.push_back(is(*node, OpKind::Input) ? !known_inputs[next_input++]
                                                     : std::ranges::any_of(node->operands, [&](const Value& v) -> bool {
                                                         return result.linear[id_of(v)];
                                                       }));
  return result;
}

// Whether each input of the region of a linear node is known. The carries of a linear loop are linear.
std::vector<bool> known_inside(const Split& split, const Node& node) {
  const std::size_t num_carry = is(node, OpKind::Loop) ? at(LoopView(node).num_carry()) : 0;
  std::vector<bool> known;
  for (std::size_t i = 0; i < node.regions[0]->inputs().size(); ++i)
    known.push_back(i >= num_carry && !split.is_linear(node.operands[i]));
  return known;
}

// Where the lanes are in the inputs of a node's region; none where the steps of a loop are lanes.
std::optional<std::vector<Lanes>> lanes_inside(const LaneAxes& lanes, const Node& node) {
  std::vector<Lanes> inside;
  if (!is(node, OpKind::Loop)) {
    for (const Value& v : node.operands) inside.push_back(lanes.of(v));
    return inside;
  }
  const LoopView view(node);
  for (int i = 0; i < view.num_carry(); ++i) inside.push_back(lanes.of(view.carry_result(i)));  // of every iteration
  for (int i = 0; i < view.num_xs(); ++i) {
    Lanes of = lanes.of(view.xs(i));
    for (int& axis : of.axes) {
      if (axis == 0) return std::nullopt;
      if (axis > 0) --axis;
    }
    inside.push_back(of);
  }
  for (int i = 0; i < view.num_consts(); ++i) inside.push_back(lanes.of(view.constant(i)));
  return inside;
}

// Whether a linear node's region is of its operands, one after the other, and its results.
bool has_plain_region(const Node& node) {
  return is(node, OpKind::Loop) ? node.regions.size() == 1 : is_plain_call(node);
}

using Sides = std::vector<Side>;

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

constexpr std::size_t most_sides = 3;
std::vector<Sides> sides_inside(const LinearPart& part, const Node& node);

void add_side(Sides& sides, const Side& side) {
  if (sides.size() < most_sides && std::ranges::find(sides, side) == sides.end()) sides.push_back(side);
}

// By linear node, the sides of selects that everything made of it passes through: a step's interpolant that of the step's acceptance, its end that of
// an event besides.
std::vector<Sides> common_sides(const LinearPart& part, const std::vector<bool>& live) {
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
  for (const Value& v : part.outputs) use(v, part.used_where);
  for (auto it = split.graph->nodes().rbegin(); it != split.graph->nodes().rend(); ++it) {
    const Node& node = **it;
    if (!live[static_cast<std::size_t>(node.id)]) continue;
    const std::optional<Value> condition = condition_of(part, node);
    const std::vector<Sides> inside = sides_inside(part, node);
    for (std::size_t k = 0; k < node.operands.size(); ++k) {
      Sides passed = sides[static_cast<std::size_t>(node.id)];
      if (condition && k > 0) add_side(passed, {*condition, k == 1});
      if (k < inside.size())
        for (const Side& side : inside[k]) add_side(passed, side);
      use(node.operands[k], std::move(passed));
    }
  }
  return sides;
}

// The sides of selects in a node's region that each operand passes through there, where the node is given the condition.
std::vector<Sides> sides_inside(const LinearPart& part, const Node& node) {
  const auto is_condition = [&](Value v) { return v.dtype() == DType::Bool && !part.split.is_linear(v); };
  if (node.regions.empty() || !has_plain_region(node) || std::ranges::none_of(node.operands, is_condition)) return {};
  std::optional<LaneAxes> lanes;
  if (part.lanes)
    if (auto inputs = lanes_inside(*part.lanes, node)) lanes.emplace(*node.regions[0], *inputs);
  const Split inside = flagged(node.regions[0], known_inside(part.split, node));
  const std::span<const Value> inputs = inside.graph->inputs();
  const LinearPart inner{
      inside, {inside.graph->outputs().begin(), inside.graph->outputs().end()}, {}, lanes ? &*lanes : nullptr};
  const std::vector<Sides> found = common_sides(inner, live_linear(inside, inner.outputs));
  // What stays the same in every iteration, and what is read in each alone.
  const std::size_t num_carry = is(node, OpKind::Loop) ? at(LoopView(node).num_carry()) : 0,
                    num_varying = is(node, OpKind::Loop) ? num_carry + at(LoopView(node).num_xs()) : 0;
  std::vector<Sides> sides(inputs.size());
  for (std::size_t i = num_carry; i < inputs.size(); ++i) {
    const std::function<void(Value, bool)> add = [&](Value condition, bool holds) {
      while (is(*condition.node, OpKind::Broadcast) || is(*condition.node, OpKind::Reshape))
        condition = condition.node->operands[0];
      const Node& made_by = *condition.node;
      if (is(made_by, OpKind::Elementwise) && made_by.op->scalar == ScalarOp::Not)
        return add(made_by.operands[0], !holds);
      if (is(made_by, OpKind::Elementwise) && made_by.op->scalar == ScalarOp::And && holds) {
        add(made_by.operands[0], true);
        return add(made_by.operands[1], true);
      }
      const auto j = static_cast<std::size_t>(std::ranges::find(inputs, condition) - inputs.begin());
      if (j < num_varying || j >= inputs.size()) return;
      const Value outside = node.operands[j];
      if (outside.rank() > 0 && !is_of_all_lanes(part, outside)) return;
      add_side(sides[i], {outside, holds});
    };
    for (const Side& side : found[id_of(inputs[i])]) add(side.condition, side.holds);
  }
  return sides;
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

namespace {

// a where `condition` (bool, of rank 0 or one for each lane) holds, else b; a stands for v of the original graph.
Value chosen_by(Value condition, Value v, Value a, Value b, const LaneAxes* lanes) {
  if (condition.rank() > 0) return lanes->select_active(v, condition, a, b);
  return select(broadcast_to(condition, a.shape()), a, b);
}

Value numbers(Value like, double x) { return constant(x, like.dtype(), like.shape()); }

Value guarded_factor(const Guard& guard, Value v, Value copy, bool divides, const LaneAxes* lanes) {
  if (copy.dtype() == DType::Bool) return copy;
  const auto unless_active = [&](Value other) { return chosen_by(guard.active, v, copy, other, lanes); };
  if (!is_float(copy.dtype())) return unless_active(numbers(copy, 0));
  if (guard.all) return unless_active(numbers(copy, 1));
  Value usable = less(abs(copy), numbers(copy, std::numeric_limits<double>::infinity()));
  if (divides) usable = bit_and(usable, greater(abs(copy), numbers(copy, 0)));
  return unless_active(select(usable, copy, numbers(copy, divides ? 1 : 0)));
}

// Copies a linear node with a region, of which something is left out by selects, being on one side of them alone, or by the guard. Its operands may be what
// the region computes with, and go wrong at any number that stands for them: so the region is given the conditions, and guards its own factors.
class GuardedRegion {
 public:
  GuardedRegion(const LinearPart& part, const ValueMap& map, const Node& node, const Sides& sides,
                const std::optional<Guard>& guard)
      : part_(part),
        map_(map),
        node_(node),
        sides_(sides),
        guard_(guard),
        num_inputs_(node.regions[0]->inputs().size()) {
    for (const Side& side : sides) conditions_.push_back(map(side.condition));
    if (guard) conditions_.push_back(guard->active);
  }

  std::vector<Value> results() {
    if (has_plain_region(node_)) {
      std::optional<std::vector<Lanes>> lanes(std::in_place);
      if (part_.lanes) lanes = lanes_inside(*part_.lanes, node_);
      if (lanes && is(node_, OpKind::Call)) return call(std::move(*lanes));
      if (lanes)
        if (auto found = loop(LoopView(node_), std::move(*lanes))) return *found;
    }
    return masked();
  }

 private:
  // A region that has a transpose of its own is left as it is: the others' tangents are kept out of it, and what it makes of them.
  std::vector<Value> masked() const {
    const bool in_front = has_lanes_in_front();
    std::vector<Value> taking_part = conditions_;
    for (std::size_t k = 0; k < sides_.size(); ++k)
      if (!sides_[k].holds) taking_part[k] = logical_not(conditions_[k]);
    const auto only = [&](Value v, Value copy) {
      const Value zero = zeros_of(copy.type());
      for (const Value& condition : taking_part)
        copy = in_front && condition.rank() > 0 ? select_lanes(condition, copy, zero)
                                                : chosen_by(condition, v, copy, zero, part_.lanes);
      return copy;
    };
    std::vector<Value> operands;
    for (const Value& v : node_.operands) operands.push_back(part_.split.is_linear(v) ? only(v, map_(v)) : map_(v));
    Node* copied = copy_node(node_, operands);
    std::vector<Value> results;
    for (int i = 0; i < static_cast<int>(node_.types.size()); ++i)
      results.push_back(only({const_cast<Node*>(&node_), i}, copied->result(i)));
    return results;
  }

  // What a batch does to a linear_call: all that is linear has the lanes in front, what was broadcast to them too.
  bool has_lanes_in_front() const {
    if (!part_.lanes || !is(node_, OpKind::Call)) return false;
    const auto leads = [&](Value v) { return part_.lanes->all_lead(v); };
    bool any = std::ranges::any_of(node_.operands, leads);
    for (int i = 0; i < static_cast<int>(node_.types.size()); ++i) any = any || leads({const_cast<Node*>(&node_), i});
    return any;
  }

  std::vector<Value> call(std::vector<Lanes> lanes) const {
    std::vector<Value> operands = copies();
    operands.insert(operands.end(), conditions_.begin(), conditions_.end());
    return append(operands, node_.attrs, region(std::move(lanes)));
  }

  std::optional<std::vector<Value>> loop(const LoopView& view, std::vector<Lanes> lanes) const {
    const int nc = view.num_carry(), nx = view.num_xs(), nk = view.num_consts();
    Attrs attrs = node_.attrs;
    attrs.set("num_consts", static_cast<std::int64_t>(nk) + static_cast<std::int64_t>(conditions_.size()));
    if (attrs.has("laned")) {
      std::vector<std::int64_t> laned = attrs.integers("laned");
      for (const Value& condition : conditions_) {
        if (condition.rank() > 0 && !has_these_lanes(view)) return {};
        laned.push_back(condition.rank() > 0 ? (std::int64_t{1} << condition.rank()) - 1 : 0);
      }
      attrs.set("laned", laned);
    }
    std::vector<Value> operands = copies();
    operands.insert(operands.begin() + nc + nx + nk, conditions_.begin(), conditions_.end());
    return append(operands, attrs, region(std::move(lanes)));
  }

  // Whether the lanes of a loop that says which of its operands have them are those of the batch around.
  bool has_these_lanes(const LoopView& view) const {
    return view.has_mask() && is_of_all_lanes(part_, view.constant(view.mask_bound()));
  }

  std::vector<Value> copies() const {
    std::vector<Value> all;
    for (const Value& v : node_.operands) all.push_back(map_(v));
    return all;
  }
  std::vector<Value> append(const std::vector<Value>& operands, const Attrs& attrs,
                            std::shared_ptr<const Graph> region) const {
    return results_of(*current_graph().append(*node_.op, operands, attrs, {std::move(region)}, node_.generation));
  }

  std::shared_ptr<const Graph> region(std::vector<Lanes> lanes) const {
    std::vector<bool> known = known_inside(part_.split, node_);
    const Graph& original = *node_.regions[0];
    std::vector<ValueType> types = original.input_types();
    for (const Value& condition : conditions_) {
      types.push_back(condition.type());
      known.push_back(true);
      if (!part_.lanes) continue;
      Lanes of{std::vector<int>(lanes[0].axes.size(), -1), true};
      if (condition.rank() > 0) std::iota(of.axes.begin(), of.axes.end(), 0);
      lanes.push_back(of);
    }
    const Split inside = flagged(
        trace([&](std::span<const Value> v) { return inline_graph(original, v.first(num_inputs_)); }, types), known);
    const std::span<const Value> inputs = inside.graph->inputs();
    std::optional<LaneAxes> inner_lanes;
    if (part_.lanes) inner_lanes.emplace(*inside.graph, lanes);
    // What stays the same outside does so here, wherever it is moved.
    const auto stays = [&](Value v) {
      while (is(*v.node, OpKind::Broadcast) || is(*v.node, OpKind::Reshape) || is(*v.node, OpKind::Transpose))
        v = v.node->operands[0];
      const auto found = std::ranges::find(inputs, v);
      const auto i = static_cast<std::size_t>(found - inputs.begin());
      if (!part_.invariant || i >= num_inputs_ + sides_.size()) return false;
      return part_.invariant(i < num_inputs_ ? node_.operands[i] : sides_[i - num_inputs_].condition);
    };
    Sides used_where;
    for (const Side& side : sides_) used_where.push_back({inputs[num_inputs_ + used_where.size()], side.holds});
    const LinearPart part{inside,     {inside.graph->outputs().begin(), inside.graph->outputs().end()},
                          stays,      inner_lanes ? &*inner_lanes : nullptr,
                          used_where, 0};
    return trace(
        [&](std::span<const Value> v) {
          ValueMap map(*inside.graph);
          for (std::size_t i = 0; i < v.size(); ++i) map.set(inputs[i], v[i]);
          return part.copy(map, guard_ ? std::optional(Guard{v.back(), guard_->all}) : std::nullopt);
        },
        types, original.name());
  }

  const LinearPart& part_;
  const ValueMap& map_;
  const Node& node_;
  const Sides& sides_;
  const std::optional<Guard>& guard_;
  std::vector<Value> conditions_;  // of the sides and the guard, in the copy
  std::size_t num_inputs_;
};

}  // namespace

std::vector<Value> LinearPart::copy(ValueMap& map, const std::optional<Guard>& guard) const {
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
  for (const Side& side : used_where) add_known(side.condition);
  copy_needed(graph, map, known, generations);
  const std::vector<Sides> sides = common_sides(*this, live);
  ValueMap factors(graph), denominators(graph);
  const auto guarded = [&](Value v, bool divides) {
    if (!guard) return map(v);
    ValueMap& made = divides ? denominators : factors;
    if (!made.find(v).defined()) made.set(v, guarded_factor(*guard, v, map(v), divides, lanes));
    return made(v);
  };
  // What a select leaves out, as the steps that a solver rejects, has a cotangent of zero, and may be infinite: its factors are one there. Not large ones,
  // as the tape of a loop is, which would be copied.
  constexpr std::int64_t most_numbers = 4096;
  using SidesKey = std::vector<std::tuple<const Node*, int, bool>>;
  std::map<SidesKey, Side> joined;  // one condition for all of them, in the copy
  const auto join = [&](const Sides& passed) {
    SidesKey key;
    for (const Side& s : passed) key.emplace_back(s.condition.node, s.condition.index, s.holds);
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
  std::map<std::tuple<const Node*, int, bool, const Node*, int, bool>, Value> chosen;
  const auto one_elsewhere = [&](Value v, bool divides, Sides passed) {
    const bool stays = invariant && invariant(v);
    std::erase_if(passed, [&](const Side& s) {
      return (stays && !invariant(s.condition)) || (s.condition.rank() > 0 && !lanes->all_lead(v));
    });
    if (passed.empty()) return guarded(v, divides);
    const Side side = join(passed);
    Value& factor = chosen[{v.node, v.index, divides, side.condition.node, side.condition.index, side.holds}];
    if (factor.defined()) return factor;
    const Value one = numbers(v, 1), given = guarded(v, divides);
    factor =
        side.holds ? chosen_by(side.condition, v, given, one, lanes) : chosen_by(side.condition, v, one, given, lanes);
    return factor;
  };
  const auto set_results = [&](const Node& node, std::span<const Value> results) {
    for (std::size_t i = 0; i < results.size(); ++i) {
      const Value v{const_cast<Node*>(&node), static_cast<int>(i)};
      if (!map.find(v).defined()) map.set(v, results[i]);
    }
  };
  for (const auto& node : graph.nodes()) {
    if (!live[static_cast<std::size_t>(node->id)] || is(*node, OpKind::Input)) continue;
    const Sides& passed = sides[static_cast<std::size_t>(node->id)];
    if (!node->regions.empty() && (guard || !passed.empty())) {
      set_results(*node, GuardedRegion(*this, map, *node, passed, guard).results());
      continue;
    }
    std::vector<Value> operands;
    for (const Value& v : node->operands) {
      const bool is_factor = !split.is_linear(v) && !adds(*node), divides = node->op->scalar == ScalarOp::Div;
      if (!is_factor)
        operands.push_back(map(v));
      else if (!passed.empty() && is_float(v.dtype()) && v.shape().size() <= most_numbers)
        operands.push_back(one_elsewhere(v, divides, passed));
      else
        operands.push_back(guarded(v, divides));
    }
    set_results(*node, results_of(*copy_node(*node, operands)));
  }
  std::vector<Value> results;
  for (const Value& v : outputs) results.push_back(map(v));
  return results;
}

}  // namespace hotloop::ir
