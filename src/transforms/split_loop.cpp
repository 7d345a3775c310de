// A loop of which some inputs are known becomes two: the known loop, which also saves residuals as ys, and the linear loop.
#include <algorithm>
#include <optional>

#include "core/index.h"
#include "hotloop/error.h"
#include "hotloop/ops.h"
#include "ops/rules/arguments.h"
#include "ops/rules/lane_axes.h"
#include "ops/rules/loop_rules.h"
#include "transforms/linear_part.h"
#include "transforms/split.h"

namespace hotloop::ir {
namespace {

bool contains(std::span<const Value> values, Value v) { return std::ranges::find(values, v) != values.end(); }

constexpr std::int64_t most_bytes = 32 << 20;  // of what "save_if_small" saves

class LoopSplitter {
 public:
  LoopSplitter(const Node& node, std::span<const Value> operands, const std::vector<bool>& known)
      : loop_(node),
        operands_(operands),
        nc_(loop_.num_carry()),
        nx_(loop_.num_xs()),
        nk_(loop_.num_consts()),
        known_(known.begin(), known.begin() + nc_ + nx_ + nk_),
        recomputes_(loop_.recomputes()) {
    HOTLOOP_CHECK(!loop_.has_trip() || known.back(), "the trip count of a loop depends on a tangent");
    // Known carries: the largest set that the body keeps known.
    for (bool changed = true; changed;) {
      changed = false;
      body_ = split(loop_.body(), known_);
      for (int i = 0; i < nc_; ++i)
        if (known_[at(i)] && body_.is_linear(output(i))) {
          known_[at(i)] = false;
          changed = true;
        }
    }
    find_invariants();
    masked_ = loop_.until() != nullptr && (loop_.num_lane_axes() > 0 || loop_.reverse());
    if (loop_.num_mask_axes() > 0) lanes_ = find_lane_axes(*body_.graph, loop_);
  }

  std::vector<Value> results() {
    for (int i = 0; i < nc_ + loop_.num_ys(); ++i)
      if (is_linear_output(i)) linear_outputs_.push_back(output(i));
    const LinearPart part{body_, linear_outputs_};
    reads_ = part.reads([this](Value v) { return source(v); });
    if (loop_.saves_if_small() && saved_bytes() > most_bytes) {
      recomputes_ = true;
      reads_ = part.reads([this](Value v) { return source(v); });
    }
    if (loop_.has_mask())
      for (const Value v : {input(nc_ + loop_.mask_t()), input(nc_ + nx_ + loop_.mask_bound())})
        if (!contains(reads_, v)) reads_.push_back(v);
    find_hoisted(part);
    run_known();
    run_linear();

    std::vector<Value> results;
    std::size_t next = 0, next_known = 0;
    const std::size_t num_linear_carry = linear_.carry.size();
    for (int i = 0; i < nc_; ++i)
      results.push_back(known_[at(i)] ? known_result_.carry[next_known++] : linear_.carry[next++]);
    HOTLOOP_CHECK(next == num_linear_carry, "carries of a split loop");
    next = next_known = 0;
    for (int i = 0; i < loop_.num_ys(); ++i)
      results.push_back(is_linear_output(nc_ + i) ? linear_.ys[next++] : known_result_.ys[next_known++]);
    results.push_back(known_result_.count);
    return results;
  }

 private:
  const Graph& graph() const { return *body_.graph; }
  Value input(int i) const { return graph().inputs()[at(i)]; }
  Value output(int i) const { return graph().outputs()[at(i)]; }
  bool is_linear_output(int i) const { return i < nc_ ? !known_[at(i)] : body_.is_linear(output(i)); }
  bool is_const(int i) const { return i >= nc_ + nx_; }
  bool is_invariant(Value v) const { return invariant_[static_cast<std::size_t>(v.node->id)]; }
  // Position among the inputs of the body, or -1.
  int input_index(Value v) const {
    const auto it = std::ranges::find(graph().inputs(), v);
    return it == graph().inputs().end() ? -1 : static_cast<int>(it - graph().inputs().begin());
  }

  // Known values that are the same in every iteration.
  void find_invariants() {
    invariant_.resize(graph().nodes().size());
    for (int i = 0; i < nc_ + nx_ + nk_; ++i)
      if (known_[at(i)])
        invariant_[static_cast<std::size_t>(input(i).node->id)] = is_const(i) || (i < nc_ && output(i) == input(i));
    for (const auto& node : graph().nodes()) {
      if (is(*node, OpKind::Input)) continue;
      const auto id = static_cast<std::size_t>(node->id);
      invariant_[id] =
          !body_.linear[id] && std::ranges::all_of(node->operands, [&](Value v) { return is_invariant(v); });
    }
  }

  // Of all iterations, for a batch that is mapped over later once for each sample.
  std::int64_t saved_bytes() const {
    std::int64_t bytes = 0;
    for (const Value& v : reads_)
      if (!is_invariant(v) && input_index(v) < nc_)
        bytes += loop_.length() * static_cast<std::int64_t>(v.type().bytes());
    return bytes;
  }

  // An invariant is passed as a const instead of being saved by every iteration. A loop with a predicate may run no
  // iteration, as the branches of a cond do, and so may one with a trip count, as their derivatives: nothing leaves it.
  bool hoists() const { return loop_.until() == nullptr && !loop_.has_trip(); }
  Source source(Value v) const {
    if (is(*v.node, OpKind::Input)) return Source::Given;
    if (is_cheap(*v.node)) return Source::Copy;
    if (is_invariant(v)) return hoists() ? Source::Given : Source::Copy;
    if (recomputes_) return Source::Copy;
    return loop_.num_lane_axes() == 0 || lanes_->all_lead(v) ? Source::Given : Source::Copy;
  }

  // Linear values that are the same in every iteration, made of linear consts alone (a transposed or sliced weight, say), are
  // computed before the loop too: their cotangents are then summed over the loop before the rest is transposed. Only
  // values no larger than what they are made of.
  void find_hoisted(const LinearPart& part) {
    std::vector<bool> fixed(graph().nodes().size());
    for (int i = nc_ + nx_; i < nc_ + nx_ + nk_; ++i)
      if (!known_[at(i)]) fixed[static_cast<std::size_t>(input(i).node->id)] = true;
    const auto is_fixed = [&](Value v) { return static_cast<bool>(fixed[static_cast<std::size_t>(v.node->id)]); };
    for (const auto& node : graph().nodes()) {
      if (is(*node, OpKind::Input) || node->operands.empty() || !std::ranges::all_of(node->operands, is_fixed))
        continue;
      std::int64_t size = 0;
      for (const Value& v : node->operands) size += v.shape().size();
      if (node->types[0].shape.size() <= size && node->regions.empty())
        fixed[static_cast<std::size_t>(node->id)] = true;
    }
    const auto leave = [&](Value v) {
      if (is_fixed(v) && !is(*v.node, OpKind::Input) && !contains(hoisted_linear_, v)) hoisted_linear_.push_back(v);
    };
    for (const auto& node : graph().nodes())
      if (!fixed[static_cast<std::size_t>(node->id)])
        for (const Value& v : node->operands) leave(v);
    for (const Value& v : part.outputs) leave(v);
  }

  void run_known() {
    LoopSpec spec;
    std::vector<ValueType> types, until_types;
    std::vector<int> inputs, until_inputs;
    for (int i = 0; i < nc_ + nx_ + nk_; ++i) {
      if (!known_[at(i)]) continue;
      inputs.push_back(i);
      types.push_back(input(i).type());
      (i < nc_ ? spec.carry : is_const(i) ? spec.consts : spec.xs).push_back(operands_[at(i)]);
      if (i < nc_ || is_const(i)) {
        until_inputs.push_back(is_const(i) ? i - nx_ : i);
        until_types.push_back(input(i).type());
      }
    }
    std::vector<Value> outputs;
    for (int i = 0; i < nc_ + loop_.num_ys(); ++i)
      if (!is_linear_output(i)) outputs.push_back(output(i));
    const std::size_t num_carry = spec.carry.size();
    for (const Value& v : reads_) {
      const int i = input_index(v);
      if (is_invariant(v) || i >= nc_) continue;
      // What is a y already is not saved twice.
      const auto y = std::find(outputs.begin() + static_cast<std::ptrdiff_t>(num_carry), outputs.end(), v);
      saved_.push_back(v);
      saved_at_.push_back(static_cast<int>(y - outputs.begin()) - static_cast<int>(num_carry));
      if (y == outputs.end()) outputs.push_back(v);
    }
    spec.body = trace(
        [&](std::span<const Value> v) {
          ValueMap map(graph());
          for (std::size_t k = 0; k < v.size(); ++k) map.set(input(inputs[k]), v[k]);
          return copy_needed(graph(), map, outputs);
        },
        types, loop_.body().name());
    if (loop_.until() != nullptr)
      spec.until = trace(
          [&](std::span<const Value> v) {
            ValueMap map(*loop_.until());
            for (std::size_t k = 0; k < v.size(); ++k) map.set(loop_.until()->inputs()[at(until_inputs[k])], v[k]);
            return copy_needed(*loop_.until(), map, loop_.until()->outputs());
          },
          until_types, loop_.until()->name());
    if (loop_.has_trip()) spec.trip = operands_.back();
    spec.length = loop_.length();
    spec.reverse = loop_.reverse();
    spec.residuals = recomputes_ ? "recompute" : "save";
    spec.generation = loop_.node().generation;
    if (loop_.node().attrs.has("laned"))
      for (int i : inputs) spec.laned.push_back(laned(i));
    if (loop_.has_mask())
      spec.mask = {std::count(known_.begin() + nc_, known_.begin() + nc_ + loop_.mask_t(), true),
                   std::count(known_.begin() + nc_ + nx_, known_.begin() + nc_ + nx_ + loop_.mask_bound(), true),
                   loop_.mask_starts_late()};
    known_result_ = loop(spec);
    keep_idling(loop_.node(), known_result_);
  }

  std::int64_t laned(int i) const {
    return i < nc_ ? loop_.laned_carry(i) : is_const(i) ? loop_.laned_const(i - nc_ - nx_) : loop_.laned_xs(i - nc_);
  }

  void run_linear() {
    if (linear_outputs_.empty()) return;
    // Body inputs, in order: what each stands for in the split body; undefined for t and count.
    std::vector<Value> carry_of, xs_of, consts_of;
    LoopSpec spec;
    const auto add = [](std::vector<Value>& group, std::vector<Value>& of, Value operand, Value stands_for) {
      group.push_back(operand);
      of.push_back(stands_for);
    };
    for (int i = 0; i < nc_ + nx_ + nk_; ++i) {
      const Value in = input(i);
      if (known_[at(i)] && (!contains(reads_, in) || (i < nc_ && !is_invariant(in)))) continue;
      if (i < nc_ && !known_[at(i)])
        add(spec.carry, carry_of, operands_[at(i)], in);
      else if (i >= nc_ && !is_const(i))
        add(spec.xs, xs_of, operands_[at(i)], in);
      else
        add(spec.consts, consts_of, operands_[at(i)], in);
    }
    for (std::size_t k = 0; k < saved_.size(); ++k) add(spec.xs, xs_of, known_result_.ys[at(saved_at_[k])], saved_[k]);
    std::vector<Value> hoisted = hoisted_linear_;
    for (const Value& v : reads_)
      if (is_invariant(v) && input_index(v) < 0) hoisted.push_back(v);
    ValueMap outside(graph());
    for (int i = 0; i < nc_ + nx_ + nk_; ++i)
      if (is_const(i) || (known_[at(i)] && is_invariant(input(i)))) outside.set(input(i), operands_[at(i)]);
    const std::vector<Value> moved = copy_needed(graph(), outside, hoisted);
    for (std::size_t k = 0; k < hoisted.size(); ++k) add(spec.consts, consts_of, moved[k], hoisted[k]);
    const Value count = known_result_.count;
    if (masked_) {
      add(spec.xs, xs_of, iota(DType::I32, {loop_.length()}, 0), {});
      add(spec.consts, consts_of, first_or_last(count), {});
    }

    spec.length = loop_.length();
    spec.reverse = loop_.reverse();
    spec.residuals = recomputes_ ? "recompute" : "save";
    spec.generation = loop_.node().generation;
    if (loop_.until() == nullptr || loop_.reverse())
      spec.trip = loop_.has_trip() ? operands_.back() : Value{};
    else if (masked_)
      spec.trip = reduce_max(count, iota_axes(count.rank()));
    else
      spec.trip = count;

    std::vector<ValueType> types;
    for (const Value& v : spec.carry) types.push_back(v.type());
    for (const Value& v : spec.xs) types.push_back({v.dtype(), v.shape().without(0)});
    for (const Value& v : spec.consts) types.push_back(v.type());
    std::vector<Value> stands_for = carry_of;
    stands_for.insert(stands_for.end(), xs_of.begin(), xs_of.end());
    stands_for.insert(stands_for.end(), consts_of.begin(), consts_of.end());
    const auto position = [](const std::vector<Value>& of, Value v) { return std::ranges::find(of, v) - of.begin(); };
    if (masked_)
      spec.mask = {static_cast<std::int64_t>(xs_of.size()) - 1, static_cast<std::int64_t>(consts_of.size()) - 1,
                   loop_.reverse()};
    else if (loop_.has_mask())
      spec.mask = {position(xs_of, input(nc_ + loop_.mask_t())),
                   position(consts_of, input(nc_ + nx_ + loop_.mask_bound())), loop_.mask_starts_late()};
    if (!spec.mask.empty())
      for (std::size_t k = 0; k < stands_for.size(); ++k) {
        const bool is_bound = k + 1 == stands_for.size() && masked_;
        spec.laned.push_back(stands_for[k].defined() ? (lanes_ ? lanes_->leading(stands_for[k]) : 0)
                             : is_bound              ? (std::int64_t{1} << count.rank()) - 1
                                                     : 0);
      }
    spec.body = trace(
        [&](std::span<const Value> v) {
          ValueMap map(graph());
          const LinearPart part{body_, linear_outputs_, [this](Value v) { return is_invariant(v); },
                                lanes_ ? &*lanes_ : nullptr};
          if (!spec.mask.empty())
            return masked_step(part, map, stands_for, v, v[carry_of.size() + static_cast<std::size_t>(spec.mask[0])],
                               v[carry_of.size() + xs_of.size() + static_cast<std::size_t>(spec.mask[1])],
                               spec.mask[2] != 0);
          for (std::size_t k = 0; k < v.size(); ++k) map.set(stands_for[k], v[k]);
          return part.copy(map);
        },
        types, loop_.body().name());
    linear_ = loop(spec);
    if (!masked_) keep_idling(loop_.node(), linear_);
  }

  // A lane is active at t < count or, in reverse, at t >= trip - count; this is the bound.
  Value first_or_last(Value count) const {
    if (!loop_.reverse()) return count;
    const Value trip = loop_.has_trip() ? operands_.back() : constant(static_cast<double>(loop_.length()), DType::I32);
    return trip - count;
  }

  // One iteration in which only active lanes take part. Nothing that the body computes for the others may reach a
  // derivative, not even as zero times NaN. Where the loop had a predicate, known factors are one, linear inputs zero, and
  // results not taken. Where the body selects by itself, its results for the others are cotangents that must come out as they
  // are: of the factors only those that are not finite are replaced.
  std::vector<Value> masked_step(const LinearPart& part, ValueMap& map, std::span<const Value> stands_for,
                                 std::span<const Value> v, Value t, Value bound, bool starts_late) const {
    const Value now = broadcast_to(t, bound.shape());
    const Value active = starts_late ? greater_equal(now, bound) : less(now, bound);
    const auto where_active = [&](Value original, Value a, Value b) {
      return lanes_ ? lanes_->select_active(original, active, a, b) : select(broadcast_to(active, a.shape()), a, b);
    };
    for (std::size_t k = 0; k < v.size(); ++k) {
      if (!stands_for[k].defined()) continue;
      const bool guarded = masked_ && body_.is_linear(stands_for[k]);
      map.set(stands_for[k], guarded ? where_active(stands_for[k], v[k], zeros_of(v[k].type())) : v[k]);
    }
    std::vector<Value> outputs = part.copy(map, Guard{active, masked_});
    if (!masked_) return outputs;
    const auto num_carry = static_cast<std::size_t>(std::count(known_.begin(), known_.begin() + nc_, false));
    for (std::size_t k = 0; k < outputs.size(); ++k)
      outputs[k] = select_lanes(active, outputs[k], k < num_carry ? v[k] : zeros_of(outputs[k].type()));
    return outputs;
  }

  LoopView loop_;
  std::span<const Value> operands_;
  int nc_, nx_, nk_;
  std::vector<bool> known_;
  Split body_;
  bool masked_ = false, recomputes_ = false;
  std::optional<LaneAxes> lanes_;
  std::vector<bool> invariant_;
  std::vector<Value> linear_outputs_, reads_, saved_, hoisted_linear_;
  std::vector<int> saved_at_;  // index of the y of the known loop
  LoopResult known_result_, linear_;
};

}  // namespace

std::vector<Value> split_loop(const Node& node, std::span<const Value> operands, const std::vector<bool>& known) {
  return LoopSplitter(node, operands, known).results();
}

}  // namespace hotloop::ir
