// dot(x_t, W) in a loop, x_t an element of xs and W the same in every iteration, becomes one dot over all steps before
// the loop, when the contraction is long enough that the wide dot earns what storing its result costs.
#include <algorithm>
#include <numeric>

#include "ops/rules/arguments.h"
#include "passes/builder.h"
#include "passes/loop_edit.h"

namespace hotloop::passes {
namespace {

using ir::OpKind;

constexpr std::int64_t min_contraction = 64;

class BatchInputs {
 public:
  BatchInputs(const Node& loop, ir::Rebuild& outer, Builder& builder)
      : loop_(loop),
        outer_(outer),
        builder_(builder),
        index_(loop_.body()),
        invariant_(invariant_values(loop_.body(), loop_)),
        edit_(loop_) {}

  bool run() {
    // A loop that may end early would compute steps nobody needs.
    if (loop_.until() || loop_.has_trip()) return false;
    for (const auto& node : loop_.body().nodes())
      if (const int side = input_side(*node); side >= 0) dots_.emplace_back(node.get(), side);
    if (dots_.empty()) return false;
    edit_.keep_carry(outer_);
    edit_.keep_xs(outer_);
    std::vector<int> positions;
    for (const auto& [dot, side] : dots_) positions.push_back(edit_.add_xs(over_all_steps(*dot, side)));
    edit_.keep_consts(outer_);
    edit_.begin();
    for (std::size_t i = 0; i < dots_.size(); ++i)
      edit_.map().set(const_cast<Node*>(dots_[i].first)->result(), edit_.xs_in(positions[i]));
    edit_.copy_rest();
    std::vector<Value> outputs;
    for (const Value& v : loop_.body().outputs()) outputs.push_back(edit_.map()(v));
    Node* made = edit_.finish(outer_, std::move(outputs));
    for (int i = 0; i < static_cast<int>(made->types.size()); ++i)
      outer_.map().set({const_cast<Node*>(&loop_.node()), i}, made->result(i));
    return true;
  }

 private:
  // The operand that comes from xs, or -1.
  int input_side(const Node& node) const {
    if (node.op->kind != OpKind::Dot || !node.attrs.integers("lhs_batch").empty()) return -1;
    std::int64_t extent = 1;
    for (std::int64_t axis : node.attrs.integers("lhs_contract"))
      extent *= node.operands[0].shape()[static_cast<int>(axis)];
    if (extent < min_contraction) return -1;
    for (int side = 0; side < 2; ++side)
      if (xs_of(node.operands[static_cast<std::size_t>(side)]) &&
          outside(node.operands[static_cast<std::size_t>(1 - side)], false))
        return side;
    return -1;
  }

  Value xs_of(Value v) const {
    for (int i = 0; i < loop_.num_xs(); ++i)
      if (loop_.xs_in(i) == v) return loop_.xs(i);
    return {};
  }

  // What an invariant body value is outside: a const, seen through changes of index. With `emit`, the value of the new
  // outer graph; else just whether there is one.
  Value outside(Value v, bool emit) const {
    if (!invariant_[static_cast<std::size_t>(index_(v))]) return {};
    for (int i = 0; i < loop_.num_consts(); ++i)
      if (loop_.const_in(i) == v) return emit ? outer_(loop_.constant(i)) : loop_.constant(i);
    const Node& node = *v.node;
    if (node.op->kind != OpKind::Reshape && node.op->kind != OpKind::Transpose && node.op->kind != OpKind::Slice &&
        node.op->kind != OpKind::Broadcast)
      return {};
    const Value source = outside(node.operands[0], emit);
    return emit && source ? builder_.make(*node.op, {source}, node.attrs) : source;
  }

  Value over_all_steps(const Node& dot, int side) const {
    const Value xs = outer_(xs_of(dot.operands[static_cast<std::size_t>(side)]));
    const Value weight = outside(dot.operands[static_cast<std::size_t>(1 - side)], true);
    Axes contract = dot.attrs.integers(side == 0 ? "lhs_contract" : "rhs_contract");
    const Axes& other = dot.attrs.integers(side == 0 ? "rhs_contract" : "lhs_contract");
    for (std::int64_t& axis : contract) ++axis;
    if (side == 0) return builder_.dot(xs, weight, contract, other);
    // [weight free..., time, x free...]: time to the front.
    const Value wide = builder_.dot(weight, xs, other, contract);
    const auto time = weight.rank() - static_cast<int>(other.size());
    Axes permutation(static_cast<std::size_t>(wide.rank()));
    std::iota(permutation.begin(), permutation.end(), 0);
    std::rotate(permutation.begin(), permutation.begin() + time, permutation.begin() + time + 1);
    return builder_.transpose(wide, permutation);
  }

  ir::LoopView loop_;
  ir::Rebuild& outer_;
  Builder& builder_;
  ir::ValueIndex index_;
  std::vector<bool> invariant_;
  LoopEdit edit_;
  std::vector<std::pair<const Node*, int>> dots_;
};

std::shared_ptr<const Graph> batch_level(const Graph& graph, const PassOptions& options) {
  ir::Rebuild rebuild(graph);
  Builder builder(rebuild.to(), options);
  bool changed = false;
  for (const auto& node : graph.nodes()) {
    if (node->op->kind == OpKind::Input) continue;
    if (node->op->kind == OpKind::Loop && BatchInputs(*node, rebuild, builder).run())
      changed = true;
    else
      rebuild.copy(*node);
  }
  return changed ? rebuild.finish() : nullptr;
}

}  // namespace

Pass batch_inputs() {
  return {"batch_inputs", "input projections leave loops as one dot over all steps", true,
          [](const Graph& graph, const PassOptions& options) {
            return rewrite_levels(graph, [&](const Graph& g, const Level&) { return batch_level(g, options); });
          }};
}

}  // namespace hotloop::passes
