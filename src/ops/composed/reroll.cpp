#include "ops/composed/reroll.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <numeric>
#include <optional>
#include <set>
#include <span>
#include <utility>
#include <vector>

#include "hotloop/ops.h"
#include "ir/equality.h"
#include "ir/op_def.h"
#include "ir/rewrite.h"
#include "ops/composed/repeats.h"
#include "ops/rules/arguments.h"

namespace hotloop::ir {
namespace {

constexpr int fewest_elementwise = 256;  // nodes of steps that are one Map as straight code
constexpr int most_delay = 4;            // how many steps back a step may read

// A place in a step: node `offset`, result `index`.
struct Place {
  int offset, index;
  auto operator<=>(const Place&) const = default;
};

class Reroller {
 public:
  Reroller(const Graph& graph, const std::function<bool(std::int64_t)>& may_scan)
      : graph_(graph), may_scan_(may_scan), uses_(graph), position_(graph.nodes().size(), -1) {
    for (const auto& node : graph.nodes()) {
      if (is(*node, OpKind::Input)) continue;
      position_[static_cast<std::size_t>(node->id)] = static_cast<int>(list_.size());
      list_.push_back(node.get());
    }
  }

  std::shared_ptr<Graph> run() {
    if (list_.size() < static_cast<std::size_t>(fewest_steps)) return nullptr;
    constexpr std::size_t most_tries = 32;
    std::size_t tries = 0;
    for (const Run& candidate : find_repeats(list_)) {
      if (++tries > most_tries) break;
      for (const Run& run : narrowed(candidate))
        if (pays(run) && classify(run)) return rewritten(run);
    }
    return nullptr;
  }

 private:
  struct Operand {
    enum class Kind { Local, Carried, Same, Sequence } kind;
    Place place = {};              // of Local and Carried
    int delay = 0;                 // of Carried
    Value value = {};              // of Same
    std::vector<Value> each = {};  // of Sequence: one a step, outside of the run
    std::size_t slot = 0;          // among the loop's inputs of its kind
  };
  using Each = std::vector<Value>;

  int position(Value v) const { return position_[static_cast<std::size_t>(v.node->id)]; }
  const Node& at(const Run& run, int step, int offset) const {
    return *list_[static_cast<std::size_t>(run.start + step * run.period + offset)];
  }
  Value value(const Run& run, int step, Place p) const {
    return const_cast<Node&>(at(run, step, p.offset)).result(p.index);
  }

  // Of all steps.
  Each each_of(const Run& run, Place p) const {
    Each each;
    for (int step = 0; step < run.count; ++step) each.push_back(value(run, step, p));
    return each;
  }

  // Whether the node a period after the i-th may be the same one a step later, by its operands too: the same ones, those a period later, or what a
  // first step reads in place of a step before, and where both are slices or literals, whatever they are. So a second layer's steps with weights of
  // their own, or a second sequence from the same start, are not more of the first one's.
  bool may_follow(int i, int period) const {
    const Node &a = *list_[static_cast<std::size_t>(i)], &b = *list_[static_cast<std::size_t>(i + period)];
    if (!alike(a, b)) return false;
    for (std::size_t k = 0; k < a.operands.size(); ++k) {
      const Value x = a.operands[k], y = b.operands[k];
      const int p = position(y);
      const bool is_recent = p >= i + period - (most_delay + 1) * period && p >= 0;
      const auto may_advance = [](Value v) {
        return is(*v.node, OpKind::Slice) || is(*v.node, OpKind::Constant) || is(*v.node, OpKind::Reshape);
      };
      if (x != y && p != position(x) + period && !is_recent && !(may_advance(x) && may_advance(y))) return false;
    }
    return true;
  }

  // The parts of a candidate whose nodes may follow each other, each from several nodes on.
  std::vector<Run> narrowed(const Run& candidate) const {
    // Where nodes stop being alike a part ends.
    std::vector<Run> parts;
    int from = candidate.start;
    const int last = candidate.end() - candidate.period;
    const auto close = [&](int to) {  // nodes [from, to) are alike the ones a period later
      const int count = (to - from) / candidate.period + 1;
      if (to > from && count >= fewest_steps) append_starts(parts, {from, candidate.period, count}, to);
      from = to + 1;
    };
    for (int i = candidate.start; i < last; ++i)
      if (!may_follow(i, candidate.period)) close(i);
    if (from < last) close(last);
    return parts;
  }

  // A run may begin at each node of its first step. Where the least is carried from step to step is tried first; what a step is made of may also look like
  // what was before the first one.
  void append_starts(std::vector<Run>& runs, const Run& run,
                     int to) const {  // nodes [run.start, to) are alike those a period later
    const int middle = run.start + run.period * (run.count / 2);
    std::vector<std::int64_t> crossing(static_cast<std::size_t>(run.period) + 1);  // bytes alive before middle + i
    for (int p = middle - run.period; p < middle + run.period; ++p) {
      const Node& node = *list_[static_cast<std::size_t>(p)];
      for (int index = 0; index < static_cast<int>(node.types.size()); ++index) {
        int last_use = -1;
        for (const Use& use : uses_.of(const_cast<Node&>(node).result(index))) {
          const int q = position_[static_cast<std::size_t>(use.node->id)];
          if (q < p + 2 * run.period) last_use = std::max(last_use, q);
        }
        const ValueType& type = node.types[static_cast<std::size_t>(index)];
        const std::int64_t bytes = static_cast<std::int64_t>(type.bytes()) + 1;
        for (int q = std::max(p + 1, middle); q <= std::min(last_use, middle + run.period); ++q)
          crossing[static_cast<std::size_t>(q - middle)] += bytes;
      }
    }
    crossing.pop_back();
    std::vector<int> shifts(crossing.size());
    std::iota(shifts.begin(), shifts.end(), 0);
    std::ranges::stable_sort(shifts, {}, [&](int shift) { return crossing[static_cast<std::size_t>(shift)]; });
    constexpr std::size_t most_shifts = 8;
    for (std::size_t i = 0; i < std::min(most_shifts, shifts.size()); ++i) {
      const Run shifted{run.start + shifts[i], run.period, (to - run.start - shifts[i]) / run.period + 1};
      if (shifted.count >= fewest_steps) runs.push_back(shifted);
    }
  }

  // Elementwise steps become one Map, which is fine where they are few.
  bool pays(const Run& run) const {
    if (run.period * run.count >= fewest_elementwise) return true;
    for (int i = 0; i < run.period; ++i) {
      switch (at(run, 0, i).op->kind) {
        case OpKind::Elementwise:
        case OpKind::Constant:
        case OpKind::Iota:
        case OpKind::Reshape:
        case OpKind::Transpose:
        case OpKind::Broadcast:
        case OpKind::Slice:
        case OpKind::Pad:
        case OpKind::Concat:
        case OpKind::Reverse:
        case OpKind::Windows:
        case OpKind::Extent:
        case OpKind::StopGradient: break;
        default: return true;
      }
    }
    return false;
  }

  // Fills what is kept of the run (operands_ and what follows); false if its steps do not depend on each other as those of a loop do.
  bool classify(const Run& run) {
    operands_.assign(static_cast<std::size_t>(run.period), {});
    is_sequence_.assign(static_cast<std::size_t>(run.period), false);
    first_.clear();
    delays_.clear();
    for (int offset = 0; offset < run.period; ++offset) {
      const Node& last = at(run, run.count - 1, offset);
      const bool may_advance = is(last, OpKind::Constant) || is(last, OpKind::Slice) || reshapes_sequence(run, offset);
      if (may_advance) {
        const Each each = each_of(run, {offset, 0});
        if (is(last, OpKind::Reshape) || !all_equal(each)) {
          if (!advances(each, run)) return false;
          is_sequence_[static_cast<std::size_t>(offset)] = true;
          continue;
        }
      }
      for (std::size_t i = 0; i < last.operands.size(); ++i) {
        auto operand = classify_operand(run, offset, i);
        if (!operand) return false;
        operands_[static_cast<std::size_t>(offset)].push_back(std::move(*operand));
      }
    }
    // Each carried place has a start for every step that it reaches back.
    for (const auto& [place, delay] : delays_)
      for (int d = 1; d <= delay; ++d)
        if (!first_.contains({place, d})) return false;
    return true;
  }

  // Whether a node of a step reshapes what that step takes of a sequence: done before the loop, of all at once.
  bool reshapes_sequence(const Run& run, int offset) const {
    const Node& last = at(run, run.count - 1, offset);
    if (!is(last, OpKind::Reshape)) return false;
    const int p = position(last.operands[0]) - run.start - (run.count - 1) * run.period;
    return p >= 0 && is_sequence_[static_cast<std::size_t>(p)];
  }

  // Whether literals are the same in all steps; of slices, whether they are of the same places.
  static bool all_equal(const Each& each) {
    return std::ranges::all_of(each, [&](Value v) { return same_attrs(v.node->attrs, each[0].node->attrs); });
  }

  std::optional<Operand> classify_operand(const Run& run, int offset, std::size_t i) {
    const auto of = [&](int step) { return at(run, step, offset).operands[i]; };
    const Value last = of(run.count - 1);
    const int p = position(last);
    if (p < run.start) {
      Each each;
      for (int step = 0; step < run.count; ++step) each.push_back(of(step));
      if (std::ranges::all_of(each, [&](Value v) { return v == last; }))
        return Operand{.kind = Operand::Kind::Same, .value = last};
      if (std::ranges::any_of(each, [&](Value v) { return position(v) >= run.start; }) || !advances(each, run))
        return std::nullopt;
      return Operand{.kind = Operand::Kind::Sequence, .each = std::move(each)};
    }
    const Place place{(p - run.start) % run.period, last.index};
    const int delay = run.count - 1 - (p - run.start) / run.period;
    if (delay > most_delay) return std::nullopt;
    for (int step = 0; step < run.count; ++step) {
      const Value v = of(step);
      if (step >= delay) {
        if (v != value(run, step - delay, place)) return std::nullopt;
        continue;
      }
      if (position(v) >= run.start) return std::nullopt;
      const auto [it, is_new] = first_.try_emplace({place, delay - step}, v);
      if (!is_new && it->second != v) return std::nullopt;
    }
    if (delay == 0) return Operand{.kind = Operand::Kind::Local, .place = place};
    int& most = delays_[place];
    most = std::max(most, delay);
    return Operand{.kind = Operand::Kind::Carried, .place = place, .delay = delay};
  }

  // ---- sequences: literals, and slices of one value that advance along one axis ----

  struct Advance {
    Value source;
    int axis = -1;
    std::int64_t first = 0, by = 0, width = 0;  // where the slice of step 0 begins, how far the next one is
  };
  std::optional<Advance> advance_of(const Each& slices, const Run& run) const {
    Advance a;
    const Node& first = *slices[0].node;
    a.source = first.operands[0];
    if (position(a.source) >= run.start || first.types[0].shape.size() == 0)
      return std::nullopt;  // no elements: no windows
    const auto &start = first.attrs.integers("start"), &next = slices[1].node->attrs.integers("start");
    for (std::size_t i = 0; i < start.size(); ++i) {
      if (start[i] == next[i]) continue;
      if (a.axis >= 0) return std::nullopt;
      a.axis = static_cast<int>(i);
      a.first = start[i];
      a.by = next[i] - start[i];
    }
    if (a.axis < 0 || first.attrs.integers("step")[static_cast<std::size_t>(a.axis)] != 1) return std::nullopt;
    a.width = first.types[0].shape[a.axis];
    if (may_scan_ && !may_scan_(a.source.shape()[a.axis])) return std::nullopt;
    for (std::size_t step = 0; step < slices.size(); ++step) {
      const Node& slice = *slices[step].node;
      std::vector<std::int64_t> expected = start;
      expected[static_cast<std::size_t>(a.axis)] += static_cast<std::int64_t>(step) * a.by;
      if (slice.operands[0] != a.source || slice.types != first.types || slice.attrs.integers("start") != expected ||
          slice.attrs.integers("step") != first.attrs.integers("step"))
        return std::nullopt;
    }
    return a;
  }

  bool advances(const Each& each, const Run& run) const {
    const Node& first = *each[0].node;
    if (std::ranges::any_of(each, [&](Value v) { return v.node->op != first.op || v.type() != each[0].type(); }))
      return false;
    if (is(first, OpKind::Constant)) return true;
    if (is(first, OpKind::Slice)) return advance_of(each, run).has_value();
    return is(first, OpKind::Reshape) && advances(under(each), run);
  }
  static Each under(const Each& each) {
    Each inner;
    for (const Value v : each) inner.push_back(v.node->operands[0]);
    return inner;
  }

  // The elements of all steps along a new axis 0, in the graph that is built (the current one).
  Value stacked(const Each& each, const Run& run, const ValueMap& map) const {
    const auto count = static_cast<std::int64_t>(each.size());
    const Node& first = *each[0].node;
    const Shape shape = each[0].shape().with_inserted(0, count);
    if (is(first, OpKind::Constant)) {
      Array all(each[0].dtype(), shape);
      auto* to = static_cast<std::byte*>(all.raw());
      for (const Value v : each) {
        const Array& literal = v.node->attrs.get<Array>("value");
        std::memcpy(to, literal.raw(), literal.bytes());
        to += literal.bytes();
      }
      return constant(all);
    }
    if (is(first, OpKind::Reshape)) return reshape(stacked(under(each), run, map), shape);
    const Advance a = *advance_of(each, run);
    const auto axis = static_cast<std::size_t>(a.axis);
    std::vector<std::int64_t> start = first.attrs.integers("start"), stop = first.attrs.integers("stop"),
                              step = first.attrs.integers("step");
    const std::int64_t low = a.by > 0 ? a.first : a.first + (count - 1) * a.by;
    start[axis] = low;
    stop[axis] = low + (count - 1) * std::abs(a.by) + a.width;
    if (a.width == 1) step[axis] = std::abs(a.by);
    Value part = slice(map(a.source), start, stop, step);
    if (a.width == 1) {
      part = reshape(part, part.shape().with_inserted(a.axis + 1, 1));
    } else if (a.width == std::abs(a.by)) {
      Shape apart = part.shape();
      apart[a.axis] = a.width;
      part = reshape(part, apart.with_inserted(a.axis, count));
    } else {
      part = windows(part, a.axis, a.width, std::abs(a.by));
    }
    part = move_axis(part, a.axis, 0);
    return a.by > 0 ? part : reverse(part, {0});
  }

  // ---- the graph with the loop ----

  // Operands of concats after the run that are one value of every step, in order, seen through reshapes.
  struct Gathered {
    Place place;
    bool backwards = false;
    std::size_t from = 0;  // the operand that belongs to the first of them
  };
  std::optional<std::pair<Place, int>> step_of(Value v, const Run& run) const {
    const int p = position(v);
    if (p < run.start || p >= run.end()) return std::nullopt;
    return std::pair(Place{(p - run.start) % run.period, v.index}, (p - run.start) / run.period);
  }
  std::vector<Gathered> gathered(const Node& concat, const Run& run) const {
    std::vector<Gathered> found;
    const std::vector<Value>& parts = concat.operands;
    const auto count = static_cast<std::size_t>(run.count);
    const auto inner = [&](std::size_t i) {
      const Value v = parts[i];
      return is(*v.node, OpKind::Reshape) && position(v) >= run.end() ? v.node->operands[0] : v;
    };
    for (std::size_t i = 0; i + count <= parts.size();) {
      const auto first = step_of(inner(i), run);
      bool all = first && (first->second == 0 || first->second == run.count - 1);
      const bool backwards = all && first->second != 0;
      for (std::size_t k = 0; all && k < count; ++k) {
        const auto at = step_of(inner(i + k), run);
        all = at && at->first == first->first && parts[i + k].type() == parts[i].type() &&
              at->second == static_cast<int>(backwards ? count - 1 - k : k);
      }
      if (all) found.push_back({first->first, backwards, i});
      i += all ? count : 1;
    }
    return found;
  }

  // What is read outside of the loop: of all steps (ys) or of the last one alone (a carry).
  struct Outside {
    std::map<const Node*, std::vector<Gathered>> concats;
    std::set<const Node*> absorbed;  // reshapes that only gathered parts of concats read
    std::set<Place> emitted, final;
    std::set<std::pair<Place, int>> single;  // values of single steps, not the last
  };
  Outside outside_of(const Run& run) const {
    Outside outside;
    const auto reads = [&](Value v) {
      const auto at = step_of(v, run);
      if (!at) return;
      if (at->second == run.count - 1) {
        outside.final.insert(at->first);
      } else {
        outside.emitted.insert(at->first);
        outside.single.insert(*at);
      }
    };
    const std::span<const Node* const> after = std::span(list_).subspan(static_cast<std::size_t>(run.end()));
    const auto count = static_cast<std::size_t>(run.count);
    for (const Node* node : after) {
      if (!is(*node, OpKind::Concat)) continue;
      auto parts = gathered(*node, run);
      for (const Gathered& g : parts) {
        outside.emitted.insert(g.place);
        for (const Value v : std::span(node->operands).subspan(g.from, count))
          if (position(v) >= run.end() && uses_.count(v) == 1) outside.absorbed.insert(v.node);
      }
      if (!parts.empty()) outside.concats.emplace(node, std::move(parts));
    }
    const auto is_gathered = [&](const Node* concat, std::size_t operand) {
      const auto it = outside.concats.find(concat);
      return it != outside.concats.end() && std::ranges::any_of(it->second, [&](const Gathered& g) {
               return operand >= g.from && operand < g.from + count;
             });
    };
    for (const Node* node : after) {
      if (outside.absorbed.contains(node)) continue;
      for (std::size_t i = 0; i < node->operands.size(); ++i)
        if (!is_gathered(node, i)) reads(node->operands[i]);
    }
    for (const Value v : graph_.outputs()) reads(v);
    return outside;
  }

  // The loop, appended to the graph that is built. Numbers its carries in carry_of_.
  LoopResult append_loop(const Run& run, const Outside& outside, const ValueMap& map) {
    LoopSpec spec;
    spec.length = run.count;
    // Carries: of each place its value one step ago, two steps ago, ...; a place whose last value alone is read starts from zeros.
    carry_of_.clear();
    for (const auto& [place, delay] : delays_)
      for (int d = 1; d <= std::max(delay, 1); ++d) {
        carry_of_[{place, d}] = spec.carry.size();
        spec.carry.push_back(delay > 0 ? map(first_.at({place, d})) : zeros_of(value(run, 0, place).type()));
      }
    std::vector<std::size_t> xs_of(static_cast<std::size_t>(run.period));  // of the nodes that are xs themselves
    std::map<std::pair<int, int>, std::size_t> const_of;                   // (node id, result)
    const auto add_xs = [&](const Each& each) {
      spec.xs.push_back(stacked(each, run, map));
      return spec.xs.size() - 1;
    };
    for (std::size_t offset = 0; offset < operands_.size(); ++offset) {
      if (is_sequence_[offset]) xs_of[offset] = add_xs(each_of(run, {static_cast<int>(offset), 0}));
      for (Operand& o : operands_[offset]) {
        if (o.kind == Operand::Kind::Carried) o.slot = carry_of_.at({o.place, o.delay});
        if (o.kind == Operand::Kind::Sequence) o.slot = add_xs(o.each);
        if (o.kind != Operand::Kind::Same) continue;
        const auto [it, is_new] = const_of.try_emplace({o.value.node->id, o.value.index}, spec.consts.size());
        if (is_new) spec.consts.push_back(map(o.value));
        o.slot = it->second;
      }
    }
    std::vector<ValueType> types;
    for (const Value v : spec.carry) types.push_back(v.type());
    for (const Value v : spec.xs) types.push_back({v.dtype(), v.shape().without(0)});
    for (const Value v : spec.consts) types.push_back(v.type());
    const std::size_t num_carry = spec.carry.size(), num_xs = spec.xs.size();
    const auto step = [&](std::span<const Value> inputs) {
      std::map<Place, Value> made;
      const auto operand = [&](const Operand& o) {
        switch (o.kind) {
          case Operand::Kind::Carried: return inputs[o.slot];
          case Operand::Kind::Sequence: return inputs[num_carry + o.slot];
          case Operand::Kind::Same: return inputs[num_carry + num_xs + o.slot];
          case Operand::Kind::Local: break;
        }
        return made.at(o.place);
      };
      for (int offset = 0; offset < run.period; ++offset) {
        const auto i = static_cast<std::size_t>(offset);
        if (is_sequence_[i]) {
          made[{offset, 0}] = inputs[num_carry + xs_of[i]];
          continue;
        }
        std::vector<Value> mapped;
        for (const Operand& o : operands_[i]) mapped.push_back(operand(o));
        Node* node = copy_node(at(run, 0, offset), std::move(mapped));
        for (int index = 0; index < static_cast<int>(node->types.size()); ++index)
          made[{offset, index}] = node->result(index);
      }
      std::vector<Value> outputs;
      for (const auto& [place, delay] : delays_)
        for (int d = 1; d <= std::max(delay, 1); ++d)
          outputs.push_back(d == 1 ? made.at(place) : inputs[carry_of_.at({place, d - 1})]);
      for (const Place place : outside.emitted) outputs.push_back(made.at(place));
      return outputs;
    };
    spec.body = trace(step, types, "body");
    return loop(spec);
  }

  // A concat of values of all steps: of their stack, and of what else it has.
  Value joined(const Node& concat_node, const std::vector<Gathered>& parts_of_steps, const Run& run,
               const std::map<Place, Value>& ys, const Rebuild& rebuild) const {
    const int axis = static_cast<int>(concat_node.attrs.integer("axis"));
    std::vector<Value> parts;
    for (std::size_t i = 0; i < concat_node.operands.size();) {
      const auto g = std::ranges::find(parts_of_steps, i, &Gathered::from);
      if (g == parts_of_steps.end()) {
        parts.push_back(rebuild(concat_node.operands[i++]));
        continue;
      }
      const Shape part = concat_node.operands[i].shape();
      Value all = reshape(ys.at(g->place), part.with_inserted(0, run.count));
      if (g->backwards) all = reverse(all, {0});
      Shape shape = part;
      shape[axis] *= run.count;
      parts.push_back(reshape(move_axis(all, 0, axis), shape));
      i += static_cast<std::size_t>(run.count);
    }
    return concat(parts, axis);
  }

  std::shared_ptr<Graph> rewritten(const Run& run) {
    const Outside outside = outside_of(run);
    for (const Place place : outside.final)
      if (!delays_.contains(place) && !outside.emitted.contains(place)) delays_[place] = 0;
    Rebuild rebuild(graph_);
    TraceScope scope(rebuild.to());
    for (int p = 0; p < run.start; ++p) rebuild.copy(*list_[static_cast<std::size_t>(p)]);
    const LoopResult result = append_loop(run, outside, rebuild.map());
    std::map<Place, Value> ys;
    for (const Place place : outside.emitted) ys[place] = result.ys[ys.size()];
    // The last of values that are read one by one is read like the others, whose steps may be a loop's too.
    std::set<Place> one_by_one;
    for (const auto& [place, step] : outside.single) one_by_one.insert(place);
    for (const Place place : outside.final)
      rebuild.map().set(value(run, run.count - 1, place), delays_.contains(place) && !one_by_one.contains(place)
                                                              ? result.carry[carry_of_.at({place, 1})]
                                                              : take(ys.at(place), 0, run.count - 1));
    for (const auto& [place, step] : outside.single)
      rebuild.map().set(value(run, step, place), take(ys.at(place), 0, step));
    for (std::size_t p = static_cast<std::size_t>(run.end()); p < list_.size(); ++p) {
      const Node& node = *list_[p];
      if (outside.absorbed.contains(&node)) continue;
      const auto it = outside.concats.find(&node);
      if (it == outside.concats.end())
        rebuild.copy(node);
      else
        rebuild.map().set(const_cast<Node&>(node).result(), joined(node, it->second, run, ys, rebuild));
    }
    return rebuild.finish();
  }

  const Graph& graph_;
  const std::function<bool(std::int64_t)>& may_scan_;
  Uses uses_;
  std::vector<int> position_;      // of each node in list_, -1 for inputs
  std::vector<const Node*> list_;  // nodes that are not inputs
  // Of the run that is looked at.
  std::vector<std::vector<Operand>> operands_;    // of the nodes of a step
  std::vector<bool> is_sequence_;                 // nodes of a step that are xs themselves
  std::map<std::pair<Place, int>, Value> first_;  // what is read so many steps before the first one
  std::map<Place, int> delays_;                   // carried places: how many steps back they are read
  std::map<std::pair<Place, int>, std::size_t> carry_of_;
};

}  // namespace

std::shared_ptr<Graph> reroll(const Graph& graph, const std::function<bool(std::int64_t)>& may_scan) {
  if (graph.nodes().size() < static_cast<std::size_t>(fewest_steps)) return nullptr;
  std::shared_ptr<Graph> now;
  const auto roll_all = [&] {
    constexpr int most_loops = 16;
    for (int i = 0; i < most_loops; ++i) {
      auto next = Reroller(now ? *now : graph, may_scan).run();
      if (!next) break;
      now = std::move(next);
    }
  };
  // As it was written first: of two equal steps one may compute what nobody reads. Then without that, which may be what makes steps different.
  roll_all();
  const bool is_rolled = now != nullptr;
  if (const auto pruned = eliminate_dead(is_rolled ? *now : graph)) {
    now = pruned;
    roll_all();
    if (now == pruned) return is_rolled ? now : nullptr;
    if (auto clean = eliminate_dead(*now)) now = std::move(clean);
  }
  return now;
}

}  // namespace hotloop::ir
