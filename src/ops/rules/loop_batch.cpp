#include <map>
#include <memory>
#include <utility>

#include "core/index.h"
#include "hotloop/error.h"
#include "hotloop/ops.h"
#include "ir/interpreters.h"
#include "ir/rewrite.h"
#include "ops/rules/arguments.h"
#include "ops/rules/loop_rules.h"

namespace hotloop::ir {

void keep_idling(const Node& from, const LoopResult& to) {
  if (from.attrs.has("idles")) to.count.node->attrs.set("idles", true);
}

Value select_lanes(Value active, Value a, Value b) {
  std::vector<std::int64_t> axes;
  for (int i = 0; i < active.rank(); ++i) axes.push_back(i);
  return select(a.rank() == active.rank() ? active : broadcast(active, a.shape(), axes), a, b);
}

namespace {

// Of a loop: which of its values have the batch axis.
struct BatchedValues {
  std::vector<bool> carry, ys;
  bool lanes = false;
};

// What is known of the loops inside the one that is being batched. An outer loop asks again in each of its rounds, so that of loops in loops in loops
// the innermost would be asked as often as a power of their depth.
class KnownLoops {
 public:
  // What is found depends on no more than this.
  struct Key {
    std::shared_ptr<const Graph> body, until;  // held, so that no other graph gets their address
    std::int64_t size;
    std::vector<bool> carry, xs, consts;
    bool lanes, masked;
    auto operator<=>(const Key&) const = default;
  };

  KnownLoops() : outer_(current_) {
    if (outer_ == nullptr) current_ = this;
  }
  ~KnownLoops() { current_ = outer_; }
  KnownLoops(const KnownLoops&) = delete;
  KnownLoops& operator=(const KnownLoops&) = delete;

  // Of the outermost loop on this thread.
  static KnownLoops& here() { return *current_; }
  BatchedValues& operator[](const Key& key) { return found_[key]; }
  const BatchedValues* find(const Key& key) const {
    const auto it = found_.find(key);
    return it == found_.end() ? nullptr : &it->second;
  }

  // While a loop asks, by pushing the batch through its body into a graph that is thrown away.
  class Asking {
   public:
    explicit Asking(const Graph& scratch) : outer_(std::exchange(here().scratch_, &scratch)) {}
    ~Asking() { here().scratch_ = outer_; }
    Asking(const Asking&) = delete;
    Asking& operator=(const Asking&) = delete;

   private:
    const Graph* outer_;
  };
  bool is_thrown_away(const Graph& graph) const { return &graph == scratch_; }

 private:
  static thread_local KnownLoops* current_;
  KnownLoops* outer_;
  const Graph* scratch_ = nullptr;
  std::map<Key, BatchedValues> found_;
};

thread_local KnownLoops* KnownLoops::current_ = nullptr;

// A batched loop. A predicate that differs from element to element makes the batch axis a lane axis. So does a trip count
// that does: it joins the predicate, or in reverse, where lanes start late instead of ending early, masks the body.
class BatchedLoop {
 public:
  explicit BatchedLoop(const BatchContext& c) : c_(c), loop_(c.node) {}

  std::vector<Batched> results() {
    const int nc = loop_.num_carry(), nx = loop_.num_xs(), nk = loop_.num_consts();
    for (int i = 0; i < nc; ++i) carry_.push_back(c_.operands[at(i)].batched);
    for (int i = 0; i < nx; ++i) xs_.push_back(c_.operands[at(nc + i)].batched);
    for (int i = 0; i < nk; ++i) consts_.push_back(c_.operands[at(nc + nx + i)].batched);
    const bool trip_batched = loop_.has_trip() && c_.operands.back().batched;
    // The mask of a masked loop always has all lanes.
    if (loop_.has_mask()) consts_[at(loop_.mask_bound())] = true;
    masked_ = trip_batched && loop_.reverse();
    counted_ = trip_batched && !loop_.reverse();
    if (masked_ && loop_.until() != nullptr)
      throw UserError("vmap", "a reversed loop with a predicate must have the same trip count for every element",
                      "a loop with until, reverse and a batched trip count",
                      "reverse the inputs instead and leave reverse out");
    lanes_ = counted_ || loop_.num_lane_axes() > 0;
    const KnownLoops scope;
    find_batched();
    if (KnownLoops::here().is_thrown_away(current_graph())) return zeros();

    LoopSpec spec;
    for (int i = 0; i < nc; ++i) spec.carry.push_back(operand(i, carry_[at(i)]));
    if (counted_) spec.carry.push_back(zeros_of({DType::I32, counter_shape()}));
    for (int i = 0; i < nx; ++i) {
      const Value x = c_.operands[at(nc + i)].value;
      spec.xs.push_back(xs_[at(i)] ? move_axis(x, 0, 1) : x);
    }
    for (int i = 0; i < nk; ++i) spec.consts.push_back(operand(nc + nx + i, consts_[at(i)]));
    if (masked_) spec.xs.push_back(iota(DType::I32, {loop_.length()}, 0));
    if (trip_batched) spec.consts.push_back(c_.operands.back().value);
    if (loop_.has_trip())
      spec.trip = trip_batched ? reduce_max(c_.operands.back().value, {0}) : c_.operands.back().value;
    spec.length = loop_.length();
    spec.reverse = loop_.reverse();
    spec.residuals = loop_.saves_if_small() ? "save_if_small" : loop_.recomputes() ? "recompute" : "save";
    spec.generation = c_.node.generation;
    spec.body = trace([&](std::span<const Value> v) { return body(v); }, types(spec, true), loop_.body().name());
    if (loop_.until() != nullptr || counted_)
      spec.until =
          trace([&](std::span<const Value> v) { return std::vector<Value>{until(v)}; }, types(spec, false), "until");
    if (loop_.has_mask())
      spec.mask = c_.node.attrs.integers("mask");
    else if (masked_)
      spec.mask = {nx, nk, 0};
    if (lanes_ || !spec.mask.empty()) {
      for (int i = 0; i < nc; ++i) spec.laned.push_back(loop_.laned_carry(i) << 1 | carry_[at(i)]);
      if (counted_) spec.laned.push_back((std::int64_t{1} << counter_shape().rank()) - 1);
      for (int i = 0; i < nx; ++i) spec.laned.push_back(loop_.laned_xs(i) << 1 | xs_[at(i)]);
      if (masked_) spec.laned.push_back(0);
      for (int i = 0; i < nk; ++i) spec.laned.push_back(loop_.laned_const(i) << 1 | consts_[at(i)]);
      if (trip_batched) spec.laned.push_back(1);
    }
    const LoopResult result = hotloop::loop(spec);

    std::vector<Batched> results;
    for (int i = 0; i < nc; ++i) results.push_back({result.carry[at(i)], carry_[at(i)]});
    for (int i = 0; i < loop_.num_ys(); ++i) {
      const Value y = result.ys[at(i)];
      results.push_back({ys_[at(i)] ? move_axis(y, 1, 0) : y, static_cast<bool>(ys_[at(i)])});
    }
    if (masked_) {
      const Value trip = c_.operands.back().value;
      const Value length = constant(static_cast<double>(loop_.length()), DType::I32);
      results.push_back({minimum(maximum(trip, zeros_like(trip)), broadcast_to(length, trip.shape())), true});
    } else {
      results.push_back({result.count, lanes_});
    }
    return results;
  }

 private:
  Value operand(int i, bool batched) const {
    const Batched& b = c_.operands[at(i)];
    return batched ? materialize_batch(b, c_.size) : b.value;
  }
  Shape counter_shape() const { return loop_.lanes().with_inserted(0, c_.size); }

  std::vector<Batched> arguments(std::span<const Value> carry, std::span<const Value> xs,
                                 std::span<const Value> consts) const {
    std::vector<Batched> all;
    for (int i = 0; i < loop_.num_carry(); ++i) all.push_back({carry[at(i)], carry_[at(i)]});
    for (std::size_t i = 0; i < xs.size(); ++i) all.push_back({xs[i], xs_[i]});
    for (int i = 0; i < loop_.num_consts(); ++i) all.push_back({consts[at(i)], consts_[at(i)]});
    return all;
  }

  // What is thrown away need only have the types of the results.
  std::vector<Batched> zeros() const {
    std::vector<bool> batched = carry_;
    batched.insert(batched.end(), ys_.begin(), ys_.end());
    batched.push_back(masked_ || lanes_);
    std::vector<Batched> values;
    for (std::size_t i = 0; i < batched.size(); ++i) {
      ValueType type = c_.node.types[i];
      if (batched[i]) type.shape = type.shape.with_inserted(0, c_.size);
      values.push_back({zeros_of(type), batched[i]});
    }
    return values;
  }

  // Which carries and ys have the batch axis, and whether the predicate has: the least such set.
  void find_batched() {
    KnownLoops& known = KnownLoops::here();
    const auto& regions = c_.node.regions;
    const KnownLoops::Key key{
        regions[0], regions.size() > 1 ? regions[1] : nullptr, c_.size, carry_, xs_, consts_, lanes_, masked_};
    if (const BatchedValues* found = known.find(key)) {
      carry_ = found->carry;
      ys_ = found->ys;
      lanes_ = found->lanes;
      return;
    }
    for (bool changed = true; changed;) {
      changed = false;
      if (lanes_ || masked_) carry_.assign(carry_.size(), true);
      std::vector<ValueType> types;
      const auto add_type = [&](const ValueType& type, bool batched) {
        types.push_back(batched ? ValueType{type.dtype, type.shape.with_inserted(0, c_.size)} : type);
      };
      const auto inputs = loop_.body().input_types();
      const std::size_t nc = at(loop_.num_carry()), nx = at(loop_.num_xs()), nk = at(loop_.num_consts());
      for (std::size_t i = 0; i < nc; ++i) add_type(inputs[i], carry_[i]);
      for (std::size_t i = 0; i < nx; ++i) add_type(inputs[nc + i], xs_[i]);
      for (std::size_t i = 0; i < nk; ++i) add_type(inputs[nc + nx + i], consts_[i]);
      Graph scratch("batch");
      TraceScope scope(scratch);
      const KnownLoops::Asking asking(scratch);
      std::vector<Value> v;
      for (const ValueType& t : types) v.push_back(scratch.add_input(t));
      const std::span<const Value> all(v);
      const auto carry = all.first(nc), consts = all.subspan(nc + nx);
      const auto outputs = push_batch(loop_.body(), arguments(carry, all.subspan(nc, nx), consts), c_.size);
      const bool predicate_batched =
          loop_.until() != nullptr && push_batch(*loop_.until(), arguments(carry, {}, consts), c_.size)[0].batched;
      for (std::size_t i = 0; i < nc; ++i)
        if (outputs[i].batched && !carry_[i]) carry_[i] = changed = true;
      if (predicate_batched && !lanes_) lanes_ = changed = true;
      ys_.clear();
      for (std::size_t i = nc; i < outputs.size(); ++i) ys_.push_back(lanes_ || masked_ || outputs[i].batched);
    }
    known[key] = {carry_, ys_, lanes_};
  }

  static std::vector<ValueType> types(const LoopSpec& spec, bool with_xs) {
    std::vector<ValueType> types;
    for (const Value& v : spec.carry) types.push_back(v.type());
    if (with_xs)
      for (const Value& v : spec.xs) types.push_back({v.dtype(), v.shape().without(0)});
    for (const Value& v : spec.consts) types.push_back(v.type());
    return types;
  }

  // Inputs: carry..., [counter], xs..., [t if masked], consts..., [trip if batched].
  std::vector<Value> body(std::span<const Value> v) const {
    const std::size_t nc = at(loop_.num_carry()), nx = at(loop_.num_xs()), start = nc + counted_;
    const auto results = push_batch(
        loop_.body(), arguments(v.first(nc), v.subspan(start, nx), v.subspan(start + nx + masked_)), c_.size);
    Value active;
    if (masked_) active = less(broadcast_to(v[start + nx], {c_.size}), v.back());
    std::vector<Value> outputs;
    for (std::size_t i = 0; i < results.size(); ++i) {
      const bool batched = i < nc ? carry_[i] : ys_[i - nc];
      Value result = batched ? materialize_batch(results[i], c_.size) : results[i].value;
      if (masked_) result = select_lanes(active, result, i < nc ? v[i] : zeros_of(result.type()));
      outputs.push_back(result);
      if (counted_ && i + 1 == nc) outputs.push_back(v[nc] + 1);
    }
    if (counted_ && nc == 0) outputs.insert(outputs.begin(), v[0] + 1);
    return outputs;
  }

  // Inputs: carry..., [counter], consts..., [trip if batched].
  Value until(std::span<const Value> v) const {
    const std::size_t nc = at(loop_.num_carry());
    Value done;
    if (loop_.until() != nullptr) {
      const auto result = push_batch(*loop_.until(), arguments(v.first(nc), {}, v.subspan(nc + counted_)), c_.size)[0];
      done = lanes_ ? materialize_batch(result, c_.size) : result.value;
    }
    if (!counted_) return done;
    const Value ended = greater_equal(v[nc], broadcast(v.back(), counter_shape(), {0}));
    return done.defined() ? bit_or(done, ended) : ended;
  }

  const BatchContext& c_;
  LoopView loop_;
  std::vector<bool> carry_, xs_, consts_, ys_;
  bool lanes_ = false, masked_ = false, counted_ = false;
};

}  // namespace

std::vector<Batched> batch_loop(const BatchContext& c) { return BatchedLoop(c).results(); }

}  // namespace hotloop::ir
