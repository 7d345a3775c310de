#include <limits>

#include "core/index.h"
#include "hotloop/error.h"
#include "hotloop/ops.h"
#include "ir/interpreters.h"
#include "ir/rewrite.h"
#include "ops/rules/arguments.h"
#include "ops/rules/lane_axes.h"
#include "ops/rules/loop_rules.h"

namespace hotloop::ir {
namespace {

// The loop that runs a linear loop backwards. Its carries are the cotangents of the carries, then a sum for each linear const;
// its xs are the xs that are known, then cotangents of ys; its ys are cotangents of the linear xs.
class Transposed {
 public:
  explicit Transposed(const TransposeContext& c) : c_(c), loop_(c.node) {}

  std::vector<Value> cotangents() {
    check_bounded();
    find_linear_carries();
    std::vector<Value> final_carry(c_.cotangents.begin(), c_.cotangents.begin() + loop_.num_carry());
    for (int i = 0; i < loop_.num_carry(); ++i) active_carry_.push_back(final_carry[at(i)].defined());
    active_consts_.resize(at(loop_.num_consts()));
    active_xs_.resize(at(loop_.num_xs()));
    std::shared_ptr<Graph> body;
    do {
      changed_ = false;
      body = trace([&](std::span<const Value> inputs) { return step(inputs); }, input_types(), loop_.body().name());
    } while (changed_);

    LoopSpec spec;
    for (int i = 0; i < loop_.num_carry(); ++i)
      if (active_carry_[at(i)])
        spec.carry.push_back(final_carry[at(i)].defined() ? final_carry[at(i)] : zeros_of(loop_.carry(i).type()));
    for (int i = 0; i < loop_.num_consts(); ++i)
      if (active_consts_[at(i)]) spec.carry.push_back(zeros_of(loop_.constant(i).type()));
    for (int i = 0; i < loop_.num_xs(); ++i)
      if (xs(i).defined()) spec.xs.push_back(xs(i));
    for (int i = 0; i < loop_.num_ys(); ++i)
      if (ys_cotangent(i).defined()) spec.xs.push_back(ys_cotangent(i));
    for (int i = 0; i < loop_.num_consts(); ++i)
      if (const_value(i).defined()) spec.consts.push_back(const_value(i));
    if (loop_.has_trip()) spec.trip = c_.operands.back();
    spec.length = loop_.length();
    spec.reverse = !loop_.reverse();
    spec.residuals = c_.node.attrs.get<std::string>("residuals");
    spec.body = body;
    if (loop_.has_mask()) describe_lanes(spec);
    const LoopResult result = hotloop::loop(spec);
    keep_idling(c_.node, result);

    std::vector<Value> cotangents;
    std::size_t next = 0;
    for (int i = 0; i < loop_.num_carry(); ++i) {
      const Value v = active_carry_[at(i)] ? result.carry[next++] : Value{};
      cotangents.push_back(c_.operands[at(i)].defined() ? Value{} : v);
    }
    std::size_t next_y = 0;
    for (int i = 0; i < loop_.num_xs(); ++i) cotangents.push_back(active_xs_[at(i)] ? result.ys[next_y++] : Value{});
    for (int i = 0; i < loop_.num_consts(); ++i)
      cotangents.push_back(active_consts_[at(i)] ? result.carry[next++] : Value{});
    if (loop_.has_trip()) cotangents.push_back({});
    return cotangents;
  }

 private:
  Value xs(int i) const { return c_.operands[at(loop_.num_carry() + i)]; }
  Value const_value(int i) const { return c_.operands[at(loop_.num_carry() + loop_.num_xs() + i)]; }
  Value ys_cotangent(int i) const { return c_.cotangents[at(loop_.num_carry() + i)]; }

  // What the way back reads of each iteration is kept for as many as the loop may run.
  void check_bounded() const {
    if (loop_.length() < std::numeric_limits<std::int32_t>::max()) return;
    for (int i = 0; i < loop_.num_xs(); ++i)
      if (xs(i).defined() && !is(*xs(i).node, OpKind::Iota))
        throw UserError(
            "while_loop", "reverse mode needs a bound on the steps, since it keeps numbers of each",
            "no bound, and " + ValueType{xs(i).dtype(), xs(i).shape().without(0)}.str() + " to keep of each step",
            "max_steps, or forward mode (jvp)");
  }

  void describe_lanes(LoopSpec& spec) const {
    const LaneAxes lanes = find_lane_axes(loop_.body(), loop_);
    const auto known_before = [](int end, const auto& value) {
      std::int64_t n = 0;
      for (int i = 0; i < end; ++i) n += value(i).defined();
      return n;
    };
    spec.mask = {known_before(loop_.mask_t(), [this](int i) { return xs(i); }),
                 known_before(loop_.mask_bound(), [this](int i) { return const_value(i); }), loop_.mask_starts_late()};
    for (int i = 0; i < loop_.num_carry(); ++i)
      if (active_carry_[at(i)]) spec.laned.push_back(loop_.laned_carry(i));
    for (int i = 0; i < loop_.num_consts(); ++i)
      if (active_consts_[at(i)]) spec.laned.push_back(loop_.laned_const(i));
    for (int i = 0; i < loop_.num_xs(); ++i)
      if (xs(i).defined()) spec.laned.push_back(loop_.laned_xs(i));
    for (int i = 0; i < loop_.num_ys(); ++i)
      if (ys_cotangent(i).defined()) spec.laned.push_back(lanes.leading(loop_.y_out(i)));
    for (int i = 0; i < loop_.num_consts(); ++i)
      if (const_value(i).defined()) spec.laned.push_back(loop_.laned_const(i));
  }

  // A carry that starts from a constant (a zero) is linear all the same if the body makes it so.
  void find_linear_carries() {
    HOTLOOP_CHECK(loop_.until() == nullptr, "transposing a loop with until");
    HOTLOOP_CHECK(!loop_.has_trip() || c_.operands.back().defined(), "the trip count of a linear loop is linear");
    std::vector<bool> linear;
    for (int i = 0; i < loop_.num_carry() + loop_.num_xs() + loop_.num_consts(); ++i)
      linear.push_back(!c_.operands[at(i)].defined());
    for (bool changed = true; changed;) {
      changed = false;
      const auto outputs = dependent_outputs(loop_.body(), linear);
      for (int i = 0; i < loop_.num_carry(); ++i)
        if (outputs[at(i)] && !linear[at(i)]) linear[at(i)] = changed = true;
    }
    for (int i = 0; i < loop_.num_carry(); ++i)
      HOTLOOP_CHECK(linear[at(i)], "a linear loop carries a value that is not linear");
  }

  std::vector<ValueType> input_types() const {
    std::vector<ValueType> types;
    for (int i = 0; i < loop_.num_carry(); ++i)
      if (active_carry_[at(i)]) types.push_back(loop_.carry(i).type());
    for (int i = 0; i < loop_.num_consts(); ++i)
      if (active_consts_[at(i)]) types.push_back(loop_.constant(i).type());
    for (int i = 0; i < loop_.num_xs(); ++i)
      if (xs(i).defined()) types.push_back({xs(i).dtype(), xs(i).shape().without(0)});
    for (int i = 0; i < loop_.num_ys(); ++i)
      if (ys_cotangent(i).defined()) types.push_back({ys_cotangent(i).dtype(), ys_cotangent(i).shape().without(0)});
    for (int i = 0; i < loop_.num_consts(); ++i)
      if (const_value(i).defined()) types.push_back(const_value(i).type());
    return types;
  }

  std::vector<Value> step(std::span<const Value> inputs) {
    std::size_t next = 0;
    std::vector<Value> cotangents, seeds(at(loop_.num_carry() + loop_.num_xs() + loop_.num_consts())),
        operands(seeds.size());
    for (int i = 0; i < loop_.num_carry(); ++i) cotangents.push_back(active_carry_[at(i)] ? inputs[next++] : Value{});
    const std::size_t consts = at(loop_.num_carry() + loop_.num_xs());
    // Sums are seeds, so that a step adds its products to them one by one: sum' = sum + product.
    for (int i = 0; i < loop_.num_consts(); ++i)
      if (active_consts_[at(i)]) seeds[consts + at(i)] = inputs[next++];
    for (int i = 0; i < loop_.num_xs(); ++i)
      if (xs(i).defined()) operands[at(loop_.num_carry() + i)] = inputs[next++];
    for (int i = 0; i < loop_.num_ys(); ++i) cotangents.push_back(ys_cotangent(i).defined() ? inputs[next++] : Value{});
    for (int i = 0; i < loop_.num_consts(); ++i)
      if (const_value(i).defined()) operands[consts + at(i)] = inputs[next++];

    const std::vector<Value> given = pull_back(loop_.body(), operands, cotangents, seeds);
    std::vector<Value> outputs;
    const auto keep = [&](std::vector<bool>& active, int i, Value v, const ValueType& type) {
      if (v.defined() && !active[at(i)]) active[at(i)] = changed_ = true;
      if (active[at(i)]) outputs.push_back(v.defined() ? v : zeros_of(type));
    };
    for (int i = 0; i < loop_.num_carry(); ++i) keep(active_carry_, i, given[at(i)], loop_.carry(i).type());
    for (int i = 0; i < loop_.num_consts(); ++i)
      keep(active_consts_, i, given[consts + at(i)], loop_.constant(i).type());
    for (int i = 0; i < loop_.num_xs(); ++i) {
      const ValueType& type = loop_.xs(i).type();
      keep(active_xs_, i, given[at(loop_.num_carry() + i)], {type.dtype, type.shape.without(0)});
    }
    return outputs;
  }

  const TransposeContext& c_;
  LoopView loop_;
  std::vector<bool> active_carry_, active_consts_, active_xs_;
  bool changed_ = false;
};

}  // namespace

std::vector<Value> transpose_loop(const TransposeContext& c) { return Transposed(c).cotangents(); }

}  // namespace hotloop::ir
