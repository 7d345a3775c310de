// Sums with products among their terms, in the order in which a Dot adds them up, which is that of the graph from here on: from the first term,
// one after the other. In a loop what is known before it comes first: what is the same in every iteration, as one bias, and products with the inputs of
// its steps; then other products, then the rest. So batch_inputs can compute the beginning of a sum for all steps at once, and to the bit it is the sum
// that one step alone gives: that is a loop of one iteration, whose sums are put in order before it is inlined. A sum of which nothing is known
// begins with its first term that is no product, where a Dot's accumulators can start. Sums without a product keep the order in which they were written.
#include <algorithm>

#include "passes/builder.h"
#include "passes/input_products.h"

namespace hotloop::passes {
namespace {

using ir::OpKind;

bool is_add(const Node& node) { return node.op->kind == OpKind::Elementwise && node.op->scalar == ir::ScalarOp::Add; }

class OrderSums {
 public:
  OrderSums(const Graph& graph, const Level& level, const PassOptions& options)
      : graph_(graph), level_(level), uses_(graph), index_(graph), rebuild_(graph), builder_(rebuild_.to(), options) {
    if (level.loop != nullptr) inputs_.emplace(ir::LoopView(*level.loop), level.invariant);
  }

  std::shared_ptr<const Graph> run() {
    if (std::ranges::none_of(graph_.nodes(), [](const auto& node) { return node->op->kind == OpKind::Dot; }) &&
        !inputs_)
      return nullptr;
    bool changed = false;
    for (const auto& node : graph_.nodes()) {
      if (node->op->kind == OpKind::Input) continue;
      builder_.set_generation(node->generation);
      if (const Value v = in_order(*node); v.defined()) {
        rebuild_.map().set(node->result(), v);
        changed = true;
      } else {
        rebuild_.copy(*node);
      }
    }
    return changed ? rebuild_.finish() : nullptr;
  }

 private:
  bool invariant(Value v) const { return level_.invariant[static_cast<std::size_t>(index_(v))]; }

  // The leaves of the tree of additions below `node`, in order. A sum that is the same in every iteration is a leaf.
  void collect(const Node& node, std::vector<Value>& leaves, bool& is_chain) const {
    for (std::size_t i = 0; i < 2; ++i) {
      const Value v = node.operands[i];
      if (is_add(*v.node) && uses_.count(v) == 1 && !invariant(v) && v.node->generation == node.generation &&
          !keeps_grouping(*v.node)) {
        if (i == 1) is_chain = false;
        collect(*v.node, leaves, is_chain);
      } else {
        leaves.push_back(v);
      }
    }
  }

  enum Rank { Fixed, Known, Product, Rest };
  Rank rank_of(Value v) const {
    if (invariant(v)) return Fixed;
    if (inputs_ && inputs_->is_part(v)) return Known;
    return is_product(v) ? Product : Rest;
  }

  Value in_order(const Node& node) {
    if (!is_add(node) || keeps_grouping(node)) return {};
    const Value result = const_cast<Node&>(node).result();
    if (invariant(result)) return {};
    // Only the root of a tree of additions is looked at.
    const auto users = uses_.of(result);
    if (uses_.count(result) == 1 && users.size() == 1 && is_add(*users[0].node) && !keeps_grouping(*users[0].node) &&
        users[0].node->generation == node.generation)
      return {};
    std::vector<Value> leaves;
    bool is_chain = true;
    collect(node, leaves, is_chain);
    const auto has = [&](Rank rank) {
      return std::ranges::any_of(leaves, [&](Value v) { return rank_of(v) == rank; });
    };
    if (!has(Known) && !has(Product)) return {};
    const auto written = leaves;
    std::ranges::stable_sort(leaves, {}, [&](Value v) { return rank_of(v); });
    if (!has(Fixed) && !has(Known)) {
      auto first = std::ranges::find_if(leaves, [&](Value v) { return rank_of(v) == Rest; });
      if (first == leaves.end())
        first = std::ranges::find_if_not(leaves, [](Value v) { return is_kind(v, OpKind::Dot); });
      if (first != leaves.end()) std::rotate(leaves.begin(), first, first + 1);
    }
    const auto num_fixed = std::ranges::count_if(leaves, [&](Value v) { return rank_of(v) == Fixed; });
    if (is_chain && num_fixed <= 1 && leaves == written) return {};
    Value total, bias;
    const auto add_to = [&](Value& sum, Value v) { sum = sum.defined() ? builder_.add(sum, v) : v; };
    for (std::size_t i = 0; i < leaves.size(); ++i) {
      const bool is_fixed = rank_of(leaves[i]) == Fixed;
      add_to(is_fixed ? bias : total, rebuild_(leaves[i]));
      if (is_fixed && (i + 1 == leaves.size() || rank_of(leaves[i + 1]) != Fixed)) add_to(total, bias);
    }
    return total;
  }

  const Graph& graph_;
  const Level& level_;
  ir::Uses uses_;
  ir::ValueIndex index_;
  std::optional<InputProducts> inputs_;
  ir::Rebuild rebuild_;
  Builder builder_;
};

}  // namespace

Pass order_sums() {
  return {"order_sums", "sums with products begin with what is known first", true,
          [](const Graph& graph, const PassOptions& options) {
            return rewrite_levels(
                graph, [&](const Graph& g, const Level& level) { return OrderSums(g, level, options).run(); });
          }};
}

}  // namespace hotloop::passes
