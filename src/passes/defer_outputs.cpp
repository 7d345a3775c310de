// What a step computes only to emit it, elementwise, is computed after the loop for all steps at once, from what the loop gives of them: along the
// steps a chain fills vectors that a step's few numbers leave nearly empty, and waits for nothing. (Where a step's numbers fill vectors, it
// stays: it would be read from memory again.)
//
// What is kept for it takes no more than what it replaces: ys that are there anyway, consts and what comes of xs are free.
#include <algorithm>
#include <utility>

#include "passes/all_steps.h"
#include "passes/loop_edit.h"

namespace hotloop::passes {
namespace {

using ir::OpKind;

class DeferOutputs {
 public:
  DeferOutputs(const Node& loop, ir::Rebuild& outer, Builder& builder)
      : loop_(loop),
        outer_(outer),
        builder_(builder),
        uses_(loop_.body()),
        invariant_(invariant_values(loop_.body(), loop_)),
        all_steps_(loop_, invariant_, outer_, builder_),
        edit_(loop_) {}

  bool run() {
    constexpr std::int64_t few_steps = 16;
    // A loop that may end early emits zeros where it did not run.
    if (loop_.until() || loop_.has_trip() || loop_.has_mask() || loop_.length() < few_steps) return false;
    find_from_xs();
    const auto count = static_cast<std::size_t>(loop_.num_ys());
    moved_.assign(loop_.body().nodes().size(), false);
    leaves_.assign(count, false);
    // Together they may share what is kept; else each that is worth it by itself.
    for (std::size_t y = 0; y < count; ++y) leaves_[y] = may_leave(loop_.y_out(static_cast<int>(y)));
    if (!is_worth_it()) {
      const std::vector<bool> candidates = leaves_;
      leaves_.assign(count, false);
      for (std::size_t y = 0; y < count; ++y) {
        leaves_[y] = candidates[y];
        if (candidates[y] && !is_worth_it()) leaves_[y] = false;
      }
    }
    if (!is_worth_it()) return false;
    rebuild();
    return true;
  }

 private:
  static std::size_t id(const Node& node) { return static_cast<std::size_t>(node.id); }
  static std::int64_t bytes_of(Value v) { return static_cast<std::int64_t>(v.type().bytes()); }

  // Whether the operation is one of each step alone, and so one of all steps.
  static bool is_of_each_step(const Node& node) {
    switch (node.op->kind) {
      case OpKind::Elementwise:
      case OpKind::Reshape:
      case OpKind::Transpose:
      case OpKind::Broadcast:
      case OpKind::Slice: return node.types.size() == 1;
      default: return false;
    }
  }

  bool may_leave(Value v) const {
    constexpr std::int64_t vector_bytes = 64;
    const std::int64_t lanes = vector_bytes / std::max<std::int64_t>(4, static_cast<std::int64_t>(size_of(v.dtype())));
    return is_of_each_step(*v.node) && !all_steps_.is_invariant(v) && 2 * v.shape().size() <= lanes;
  }

  // What a step computes from its xs alone is as well computed of all steps.
  void find_from_xs() {
    for (const auto& node : loop_.body().nodes()) {
      const auto is_from_xs = [&](Value v) { return all_steps_.is_found_outside(v) || from_xs_[id(*v.node)]; };
      from_xs_.push_back(loop_.xs_at(node->result()) >= 0 || (is_of_each_step(*node) && !node->operands.empty() &&
                                                              std::ranges::all_of(node->operands, is_from_xs)));
    }
  }

  // Marks what only the ys that leave are computed from; gives its cost for a step.
  double mark() {
    const Graph& body = loop_.body();
    moved_.assign(body.nodes().size(), false);
    kept_.clear();
    std::vector<bool> is_emitted(moved_), is_needed(moved_);  // by ys that leave; by what stays
    for (int i = 0; i < loop_.num_carry(); ++i) is_needed[id(*loop_.carry_out(i).node)] = true;
    for (int y = 0; y < loop_.num_ys(); ++y)
      (leaves_[static_cast<std::size_t>(y)] ? is_emitted : is_needed)[id(*loop_.y_out(y).node)] = true;
    double cost = 0;
    for (std::size_t i = body.nodes().size(); i-- > 0;) {
      Node& node = *body.nodes()[i];
      if (node.op->kind == OpKind::Input || node.types.empty() || all_steps_.is_invariant(node.result())) continue;
      const auto uses = uses_.of(node.result());
      const bool is_read = is_emitted[i] || !uses.empty();
      moved_[i] = is_read && !is_needed[i] && may_leave(node.result()) &&
                  std::ranges::all_of(uses, [&](const ir::Use& use) { return moved_[id(*use.node)]; });
      if (moved_[i]) cost += ir::estimate_flops(node);
    }
    const auto keep = [&](Value v) {
      const bool is_there =
          all_steps_.is_invariant(v) || moved_[id(*v.node)] || from_xs_[id(*v.node)] || y_that_stays(v) >= 0;
      if (!is_there && std::ranges::find(kept_, v) == kept_.end()) kept_.push_back(v);
    };
    for (int y = 0; y < loop_.num_ys(); ++y)
      if (leaves_[static_cast<std::size_t>(y)]) keep(loop_.y_out(y));
    for (std::size_t i = 0; i < moved_.size(); ++i)
      if (moved_[i]) std::ranges::for_each(body.nodes()[i]->operands, keep);
    return cost;
  }

  bool is_worth_it() {
    constexpr double least_flops = 8;  // fewer hide behind what a step waits for
    if (mark() < least_flops) return false;
    std::int64_t kept = 0, replaced = 0;
    for (const Value& v : kept_) kept += bytes_of(v);
    std::vector<Value> seen;
    for (int y = 0; y < loop_.num_ys(); ++y) {
      const Value v = loop_.y_out(y);
      if (!leaves_[static_cast<std::size_t>(y)] || std::ranges::find(seen, v) != seen.end()) continue;
      seen.push_back(v);
      replaced += bytes_of(v);
    }
    const bool all_outside = std::ranges::all_of(loop_.body().nodes(), [&](const auto& node) {
      return !moved_[id(*node)] || std::ranges::all_of(node->operands, [&](Value v) {
        return !all_steps_.is_invariant(v) || all_steps_.is_found_outside(v);
      });
    });
    return kept <= replaced && all_outside;
  }

  int y_that_stays(Value v) const {
    for (int y = 0; y < loop_.num_ys(); ++y)
      if (!leaves_[static_cast<std::size_t>(y)] && loop_.y_out(y) == v) return y;
    return -1;
  }

  void rebuild() {
    edit_.keep_carry(outer_);
    edit_.keep_xs(outer_);
    edit_.keep_consts(outer_);
    edit_.begin();
    for (const auto& node : loop_.body().nodes())
      if (node->op->kind != OpKind::Input && !moved_[id(*node)]) edit_.copy(*node);
    std::vector<Value> outputs;
    for (int i = 0; i < loop_.num_carry(); ++i) outputs.push_back(edit_.map()(loop_.carry_out(i)));
    std::vector<int> position(static_cast<std::size_t>(loop_.num_ys()));  // of the ys that stay
    for (int y = 0; y < loop_.num_ys(); ++y) {
      if (leaves_[static_cast<std::size_t>(y)]) continue;
      position[static_cast<std::size_t>(y)] = static_cast<int>(outputs.size());
      outputs.push_back(edit_.map()(loop_.y_out(y)));
    }
    const int first_kept = static_cast<int>(outputs.size());
    for (const Value& v : kept_) outputs.push_back(edit_.map()(v));
    Node* made = edit_.finish(outer_, std::move(outputs));

    for (std::size_t i = 0; i < kept_.size(); ++i)
      all_steps_.set(kept_[i], made->result(first_kept + static_cast<int>(i)));
    for (int y = 0; y < loop_.num_ys(); ++y)
      if (!leaves_[static_cast<std::size_t>(y)])
        all_steps_.set(loop_.y_out(y), made->result(position[static_cast<std::size_t>(y)]));
    for (int i = 0; i < loop_.num_carry(); ++i) outer_.map().set(loop_.carry_result(i), made->result(i));
    for (int y = 0; y < loop_.num_ys(); ++y) outer_.map().set(loop_.ys_result(y), over_all_steps(loop_.y_out(y)));
    outer_.map().set(loop_.count_result(), made->result(static_cast<int>(made->types.size()) - 1));
  }

  // A value of all steps, time first.
  Value over_all_steps(Value v) {
    return all_steps_(v, [&](const Node& node) {
      std::vector<Value> operands;
      for (const Value& o : node.operands) operands.push_back(over_all_steps(o));
      return of_all_steps(builder_, node, std::move(operands), loop_.length());
    });
  }

  ir::LoopView loop_;
  ir::Rebuild& outer_;
  Builder& builder_;
  ir::Uses uses_;
  std::vector<bool> invariant_;
  AllSteps all_steps_;
  LoopEdit edit_;
  std::vector<bool> from_xs_;  // by node
  std::vector<bool> leaves_;   // by y
  std::vector<bool> moved_;    // by node
  std::vector<Value> kept_;    // body values that become ys
};

std::shared_ptr<const Graph> defer_level(const Graph& graph, const PassOptions& options) {
  return rewrite_loops(graph, [&](const Node& loop, ir::Rebuild& outer) {
    Builder builder(outer.to(), options);
    return DeferOutputs(loop, outer, builder).run();
  });
}

}  // namespace

Pass defer_outputs() {
  return {"defer_outputs",
          "what steps of few numbers compute only to emit it is computed after the loop, for all steps at once", true,
          [](const Graph& graph, const PassOptions& options) {
            return rewrite_levels(graph, [&](const Graph& g, const Level&) { return defer_level(g, options); });
          }};
}

}  // namespace hotloop::passes
