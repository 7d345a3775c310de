// Algebraic simplification. Rules on single nodes are in simplify_<family>.cpp; here is what needs to know the uses of
// a value: transposed dots, and sums of several terms.
#include <algorithm>
#include <map>
#include <optional>

#include "core/index.h"
#include "passes/builder.h"
#include "passes/dot_sides.h"
#include "passes/input_products.h"

namespace hotloop::passes {
namespace {

using ir::OpKind;
using ir::ScalarOp;

bool is_add(const Node& node) { return node.op->kind == OpKind::Elementwise && node.op->scalar == ScalarOp::Add; }

class Simplify {
 public:
  Simplify(const Graph& graph, const Level& level, const PassOptions& options)
      : graph_(graph), level_(level), uses_(graph), index_(graph), rebuild_(graph), builder_(rebuild_.to(), options) {}

  std::shared_ptr<const Graph> run() {
    for (const auto& node : graph_.nodes()) {
      if (node->op->kind == OpKind::Input) continue;
      if (node->types.size() != 1 || !node->regions.empty()) {
        rebuild_.copy(*node);
        continue;
      }
      builder_.set_generation(node->generation);
      Value v = without_elements(*node);
      if (!v.defined()) v = swapped_dot(*node);
      if (!v.defined()) v = sum_of_terms(*node);
      if (!v.defined()) v = sum_in_place(*node);
      if (v.defined())
        changed_ = true;
      else
        v = builder_.make(*node->op, rebuild_.operands(*node), node->attrs);
      rebuild_.map().set(node->result(), v);
    }
    return changed_ || builder_.num_rewrites() > 0 ? rebuild_.finish() : nullptr;
  }

 private:
  bool invariant(Value v) const { return level_.invariant[at(index_(v))]; }

  // What has no element is the same whatever it is computed from.
  Value without_elements(const Node& node) {
    // Nor does it matter what nothing is a sum of.
    const bool sums_nothing = (node.op->name == "reduce_sum" || node.op->kind == OpKind::Dot) &&
                              node.types[0].shape.size() != 0 && node.operands[0].shape().size() == 0;
    if (sums_nothing) return builder_.full(0, node.types[0]);
    if (node.types[0].shape.size() != 0 || node.op->kind == OpKind::Broadcast || node.op->kind == OpKind::Constant)
      return {};
    return builder_.full(0, node.types[0]);
  }

  // transpose(dot(a, b)) that only exchanges the two groups of free axes is dot(b, a), and transpose(slice(dot(a, b))) a slice of it, where all that is
  // read of the dot is of this form: the gradients of weights that lie side by side in one product.
  Value swapped_dot(const Node& node) {
    if (node.op->kind != OpKind::Transpose) return {};
    const Value x = node.operands[0];
    const Node* slice = x.node->op->kind == OpKind::Slice ? x.node : nullptr;
    const Value d = slice ? slice->operands[0] : x;
    if (d.node->op->kind != OpKind::Dot || !is_read_exchanged(d)) return {};
    Value& swapped = swapped_[d.node->id];
    if (!swapped.defined()) {
      const Attrs& a = d.node->attrs;
      swapped = builder_.dot(rebuild_(d.node->operands[1]), rebuild_(d.node->operands[0]), a.integers("rhs_contract"),
                             a.integers("lhs_contract"), a.integers("rhs_batch"), a.integers("lhs_batch"));
    }
    if (slice == nullptr) return swapped;
    Attrs part;
    for (const char* name : {"start", "stop", "step"}) {
      Axes moved;
      for (const std::int64_t axis : node.attrs.integers("permutation"))
        moved.push_back(slice->attrs.integers(name)[at(axis)]);
      part.set(name, std::move(moved));
    }
    return builder_.make(*slice->op, {swapped}, part);
  }

  // Whether a dot is read by transposes alone that exchange its two groups of free axes, or by slices that only such transposes read.
  bool is_read_exchanged(Value dot) const {
    const auto exchanges = [&](const Node& node) {
      if (node.op->kind != OpKind::Transpose) return false;
      const int num_batch = static_cast<int>(dot.node->attrs.integers("lhs_batch").size());
      const int num_lhs = static_cast<int>(free_axes(*dot.node, 0).size()), num_rhs = dot.rank() - num_batch - num_lhs;
      const Axes& permutation = node.attrs.integers("permutation");
      for (int i = 0; i < dot.rank(); ++i) {
        const int expected = i < num_batch ? i : i < num_batch + num_rhs ? i + num_lhs : i - num_rhs;
        if (permutation[at(i)] != expected) return false;
      }
      return true;
    };
    if (uses_.is_output(dot)) return false;
    return std::ranges::all_of(uses_.of(dot), [&](const ir::Use& use) {
      if (use.node->op->kind != OpKind::Slice) return exchanges(*use.node);
      const Value part = const_cast<Node*>(use.node)->result();
      return !uses_.is_output(part) &&
             std::ranges::all_of(uses_.of(part), [&](const ir::Use& of_part) { return exchanges(*of_part.node); });
    });
  }

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

  Value sum_of_terms(const Node& node) {
    if (!is_add(node) || keeps_grouping(node)) return {};
    const Value result = const_cast<Node&>(node).result();
    // Only the root of a tree of additions is looked at.
    const auto users = uses_.of(result);
    if (uses_.count(result) == 1 && users.size() == 1 && is_add(*users[0].node) && !keeps_grouping(*users[0].node) &&
        users[0].node->generation == node.generation && !invariant(result))
      return {};
    std::vector<Value> leaves, terms;
    bool is_chain = true;
    collect(node, leaves, is_chain);
    // Without a product among its terms a sum keeps the order in which it was written: it is what evaluate() gives, to the bit.
    const bool has_product =
        std::ranges::any_of(leaves, [](Value v) { return is_kind(without_views(v), OpKind::Dot); });
    for (const Value& v : leaves) terms.push_back(rebuild_(v));
    return merge_pads(terms, !has_product, is_chain) ? sum(terms) : Value{};
  }

  // In a loop, where the table may be a carry. What goes back where it was taken from is no change at all, and is looked for first.
  Value sum_in_place(const Node& node) {
    if (level_.loop == nullptr || !is_add(node)) return {};
    const std::vector<Value> operands = rebuild_.operands(node);
    Value v = simplify_places(builder_, *node.op, operands, node.attrs);
    for (std::size_t part = 2; part-- > 0 && !v.defined();)
      if (uses_.count(node.operands[part]) == 1) v = add_where_it_lies(builder_, operands[1 - part], operands[part]);
    return v;
  }

  Value sum(const std::vector<Value>& terms) {
    Value total = terms[0];
    for (std::size_t i = 1; i < terms.size(); ++i) total = builder_.add(total, terms[i]);
    return total;
  }

  // Pads by zeros whose contents lie side by side are one pad of a concat: what the derivative of slices is. Of a sum whose order is the
  // written one, at every place the same numbers are added in the same order as before.
  bool merge_pads(std::vector<Value>& terms, bool in_order, bool is_chain) {
    if (in_order && !is_chain && greatest_depth(terms) > 2) return false;
    bool merged = false;
    for (std::size_t i = 0; i < terms.size(); ++i) {
      for (std::size_t k = 0; k < terms.size(); ++k) {
        if (i == k) continue;
        if (!can_join(terms[i], terms[k])) continue;
        const auto place = in_order && is_chain ? place_of_joined(terms, std::min(i, k), std::max(i, k)) : i;
        if (!place) continue;
        terms[*place] = joined_pads(terms[i], terms[k]);
        terms.erase(terms.begin() + static_cast<std::ptrdiff_t>(i + k - *place));
        i = *place < i + k - *place ? *place : *place - 1;
        k = static_cast<std::size_t>(-1);
        merged = true;
        if (terms[i].node->op->kind != OpKind::Pad) break;
      }
    }
    return merged;
  }

  // Where a term may differ from zero: from..to along an axis; everywhere without one.
  struct Extent {
    std::optional<int> axis;
    std::int64_t from = 0, to = 0;
    bool meets(const Extent& other) const {
      return !axis || axis != other.axis || (from < other.to && other.from < to);
    }
  };
  static Extent extent_of(Value v) {
    const auto axis = is_kind(v, OpKind::Pad) ? padded_axis(*v.node) : std::nullopt;
    if (!axis) return {};
    const std::int64_t low = v.node->attrs.integers("low")[at(*axis)];
    return {axis, low, low + v.node->operands[0].shape()[*axis]};
  }

  // At no place are more terms than that added up. Two may be added in any order.
  static std::int64_t greatest_depth(const std::vector<Value>& terms) {
    std::map<int, std::map<std::int64_t, std::int64_t>> changes;  // by axis: how many more at this place than before
    std::int64_t depth = 0;
    for (const Value& v : terms) {
      const Extent e = extent_of(v);
      if (!e.axis) {
        ++depth;
        continue;
      }
      ++changes[*e.axis][e.from];
      --changes[*e.axis][e.to];
    }
    for (const auto& [axis, along] : changes) {
      std::int64_t here = 0, most = 0;
      for (const auto& [place, change] : along) most = std::max(most, here += change);
      depth += most;
    }
    return depth;
  }

  // Of ((t0 + t1) + ...): which of the two terms may stand for both, if one may.
  static std::optional<std::size_t> place_of_joined(const std::vector<Value>& terms, std::size_t first,
                                                    std::size_t last) {
    const Extent f = extent_of(terms[first]), l = extent_of(terms[last]);
    // How many of the terms from `begin` up to the last meet it, without the first one.
    const auto meeting = [&](const Extent& e, std::size_t begin) {
      std::int64_t count = 0;
      for (std::size_t j = begin; j < last; ++j) count += j != first && extent_of(terms[j]).meets(e);
      return count;
    };
    if (f.meets(l)) return meeting(l, 0) == 0 ? std::optional(first) : std::nullopt;
    // A term moves past those that are zero where it is not; or the sum of two is turned round.
    if (meeting(l, first) == 0 || meeting(l, 0) == 1) return first;
    if (meeting(f, first) == 0 || meeting(f, 0) == 1) return last;
    return std::nullopt;
  }

  // Whether two pads have their contents at the same places, or b's right after a's. Asked before anything is built: what nobody uses would count as a
  // change, and the passes would run once more.
  static bool lie_alike(Value a, Value b) {
    return a.node->attrs.integers("low") == b.node->attrs.integers("low") &&
           a.node->operands[0].shape() == b.node->operands[0].shape();
  }
  static bool can_join(Value a, Value b) {
    if (!is_kind(a, OpKind::Pad) || !is_kind(b, OpKind::Pad)) return false;
    const auto axis = padded_axis(*a.node);
    if (!axis || padded_axis(*b.node) != axis) return false;
    return lie_alike(a, b) || extent_of(b).from == extent_of(a).to;
  }

  Value joined_pads(Value a, Value b) {
    const int axis = *padded_axis(*a.node);
    const Value x = a.node->operands[0], y = b.node->operands[0];
    const bool alike = lie_alike(a, b);
    const Value inside = alike ? builder_.add(x, y) : builder_.concat({x, y}, axis);
    return builder_.make(*a.node->op, {inside, a.node->operands[1]},
                         {{"low", a.node->attrs.integers("low")},
                          {"high", (alike ? a : b).node->attrs.integers("high")},
                          {"interior", zeros(a.rank())}});
  }

  const Graph& graph_;
  const Level& level_;
  ir::Uses uses_;
  ir::ValueIndex index_;
  ir::Rebuild rebuild_;
  Builder builder_;
  std::map<int, Value> swapped_;  // by a dot's id: the dot with its factors exchanged
  bool changed_ = false;
};

}  // namespace

Pass simplify() {
  return {"simplify", "algebra: what undoes itself goes, sums of pads become concats", true,
          [](const Graph& graph, const PassOptions& options) {
            return rewrite_levels(
                graph, [&](const Graph& g, const Level& level) { return Simplify(g, level, options).run(); });
          }};
}

}  // namespace hotloop::passes
