// What merging dots leaves behind, merged as well:
//   slices of one value, each plus a term of its own  -> the whole plus the terms side by side, then sliced
//   sums over the parts of a concat                   -> slices of the sum over the concat
//   dz_i W_i^T + dz_f W_f^T + ...                     -> [dz_i dz_f ...] [W_i W_f ...]^T
#include <algorithm>
#include <map>
#include <tuple>

#include "ops/rules/arguments.h"
#include "passes/horizontal.h"

namespace hotloop::passes {
namespace {

using ir::OpKind;
using ir::ScalarOp;

Value result_of(const Node* node) { return const_cast<Node*>(node)->result(); }
bool is_add(const Node& node) { return node.op->kind == OpKind::Elementwise && node.op->scalar == ScalarOp::Add; }

class MergeSums {
 public:
  MergeSums(const Graph& graph, const Level& level)
      : graph_(graph), level_(level), index_(graph), uses_(graph), merge_(graph) {}

  std::shared_ptr<const Graph> run(const PassOptions& options) {
    for (const auto& node : graph_.nodes()) {
      for (int i = 0; i < static_cast<int>(node->types.size()); ++i) lift_sum(node->result(i));
      if (node->op->kind == OpKind::Concat) merge_reductions(*node);
      if (is_add(*node)) merge_contractions(*node);
    }
    return merge_.run(options);
  }

 private:
  bool invariant(Value v) const { return level_.invariant[static_cast<std::size_t>(index_(v))]; }

  struct Piece {
    const Node *slice, *add;
    int operand;  // where the slice stands in the addition
    Value term;
    std::int64_t start, stop;
  };

  // The slices that cut `whole` along one axis, each used once, by an addition; empty if it is not so.
  std::vector<Piece> pieces_of(Value whole, int& axis) const {
    std::vector<Piece> pieces;
    axis = -1;
    if (uses_.is_output(whole) || uses_.count(whole) < 2) return {};
    for (const ir::Use& use : uses_.of(whole)) {
      if (use.node->op->kind != OpKind::Slice) return {};
      const auto cut = sliced_axis(*use.node);
      const Value slice = result_of(use.node);
      if (!cut || (axis >= 0 && *cut != axis) || uses_.count(slice) != 1 || uses_.is_output(slice)) return {};
      axis = *cut;
      const ir::Use add = uses_.of(slice)[0];
      if (!is_add(*add.node) || merge_.is_taken(*add.node) || add.node->generation != use.node->generation) return {};
      const auto k = static_cast<std::size_t>(axis);
      pieces.push_back({use.node, add.node, add.operand, add.node->operands[static_cast<std::size_t>(1 - add.operand)],
                        use.node->attrs.integers("start")[k], use.node->attrs.integers("stop")[k]});
    }
    std::ranges::sort(pieces, {}, &Piece::start);
    std::int64_t end = 0;
    for (const Piece& p : pieces) {
      if (p.start != end) return {};
      end = p.stop;
    }
    return end == whole.shape()[axis] ? pieces : std::vector<Piece>{};
  }

  void lift_sum(Value whole) {
    int axis = 0;
    const std::vector<Piece> pieces = pieces_of(whole, axis);
    if (pieces.size() < 2 || invariant(whole)) return;
    // A sum keeps its order: the terms of a sum of dots are added up one after the other.
    const int operand = pieces[0].operand;
    if (std::ranges::any_of(pieces, [&](const Piece& p) { return p.operand != operand; })) return;
    // The other terms: the same slices of another value, or the same in every iteration.
    Value other;
    bool fixed = true;
    for (const Piece& p : pieces) fixed = fixed && invariant(p.term);
    if (!fixed) {
      for (const Piece& p : pieces) {
        if (!is_kind(p.term, OpKind::Slice) || sliced_axis(*p.term.node) != axis) return;
        const auto k = static_cast<std::size_t>(axis);
        if (p.term.node->attrs.integers("start")[k] != p.start || p.term.node->attrs.integers("stop")[k] != p.stop)
          return;
        const Value source = p.term.node->operands[0];
        if ((other.defined() && source != other) || source.type() != whole.type()) return;
        other = source;
      }
    }
    std::vector<const Node*> members;
    for (const Piece& p : pieces)
      if (std::ranges::find(members, p.add) == members.end()) members.push_back(p.add);
    if (members.size() != pieces.size()) return;  // two pieces of the whole are added to each other
    std::vector<Value> needs = {whole};
    if (other.defined()) needs.push_back(other);
    if (!merge_.independent(members, needs)) return;
    merge_.accept({members, needs, [=](ir::Rebuild& rebuild, Builder& builder) {
                     builder.set_generation(pieces[0].add->generation);
                     std::vector<Value> terms;
                     for (const Piece& p : pieces) terms.push_back(rebuild(p.term));
                     const Value first = rebuild(whole);
                     const Value second = other.defined() ? rebuild(other) : builder.concat(terms, axis);
                     const Value sum = operand == 0 ? builder.add(first, second) : builder.add(second, first);
                     for (const Piece& p : pieces)
                       rebuild.map().set(result_of(p.add), builder.narrow(sum, axis, p.start, p.stop));
                   }});
  }

  void merge_reductions(const Node& concat) {
    const std::int64_t axis = concat.attrs.integer("axis");
    for (const ir::Use& use : uses_.of(concat.operands[0])) {
      const Node& first = *use.node;
      if (first.op->name != "reduce_sum" || merge_.is_taken(first)) continue;
      const Axes axes = first.attrs.integers("axes");
      if (std::ranges::find(axes, axis) != axes.end()) continue;
      std::vector<const Node*> members;
      for (const Value& part : concat.operands) {
        for (const ir::Use& u : uses_.of(part)) {
          if (u.node->op != first.op || u.node->attrs.integers("axes") != axes || merge_.is_taken(*u.node) ||
              std::ranges::find(members, u.node) != members.end())
            continue;
          members.push_back(u.node);
          break;
        }
      }
      const std::vector<Value> needs = {result_of(&concat)};
      if (members.size() != concat.operands.size() || !merge_.independent(members, needs)) continue;
      const int out_axis =
          static_cast<int>(axis - std::ranges::count_if(axes, [&](std::int64_t a) { return a < axis; }));
      merge_.accept({members, needs, [=](ir::Rebuild& rebuild, Builder& builder) {
                       builder.set_generation(members[0]->generation);
                       const Value sum = builder.reduce_sum(rebuild(needs[0]), axes);
                       std::int64_t start = 0;
                       for (const Node* m : members) {
                         const std::int64_t stop = start + m->operands[0].shape()[static_cast<int>(axis)];
                         rebuild.map().set(result_of(m), builder.narrow(sum, out_axis, start, stop));
                         start = stop;
                       }
                     }});
      return;
    }
  }

  void collect(const Node& node, std::vector<Value>& leaves) const {
    for (const Value& v : node.operands) {
      if (is_add(*v.node) && uses_.count(v) == 1 && v.node->generation == node.generation && !keeps_grouping(*v.node))
        collect(*v.node, leaves);
      else
        leaves.push_back(v);
    }
  }

  // The operand of a dot computed elementwise, if the other one is the same in every iteration; else -1.
  int computed_side(const Node& dot) const {
    for (int side = 0; side < 2; ++side)
      if (dot.operands[static_cast<std::size_t>(side)].node->op->kind == OpKind::Elementwise &&
          !invariant(dot.operands[static_cast<std::size_t>(side)]) &&
          invariant(dot.operands[static_cast<std::size_t>(1 - side)]))
        return side;
    return -1;
  }

  void merge_contractions(const Node& root) {
    const Value result = result_of(&root);
    if (merge_.is_taken(root) || keeps_grouping(root)) return;
    if (uses_.count(result) == 1 && !uses_.is_output(result) && is_add(*uses_.of(result)[0].node) &&
        !keeps_grouping(*uses_.of(result)[0].node))
      return;
    std::vector<Value> leaves;
    collect(root, leaves);
    using Key = std::tuple<int, Axes, Axes, Axes, Axes, Axes, Axes>;
    std::map<Key, std::vector<const Node*>> buckets;
    for (const Value& v : leaves) {
      const Node& dot = *v.node;
      if (dot.op->kind != OpKind::Dot || uses_.count(v) != 1) continue;
      const int side = computed_side(dot);
      const Axes &lc = dot.attrs.integers("lhs_contract"), &rc = dot.attrs.integers("rhs_contract");
      if (side < 0 || lc.size() != 1) continue;
      Axes lhs = dot.operands[0].shape().vec(), rhs = dot.operands[1].shape().vec();
      lhs[static_cast<std::size_t>(lc[0])] = rhs[static_cast<std::size_t>(rc[0])] = -1;
      buckets[{side, lc, rc, dot.attrs.integers("lhs_batch"), dot.attrs.integers("rhs_batch"), lhs, rhs}].push_back(
          &dot);
    }
    for (auto& [key, dots] : buckets) {
      if (dots.size() < 2) continue;
      const auto side = static_cast<std::size_t>(std::get<0>(key));
      std::ranges::stable_sort(
          dots, {}, [&](const Node* d) { return place_of_partner(d->operands[side], level_, index_, uses_); });
      std::vector<Value> rest;
      for (const Value& v : leaves)
        if (std::ranges::find(dots, v.node) == dots.end()) rest.push_back(v);
      std::vector<Value> needs = leaves;
      if (!merge_.independent({&root}, needs)) return;
      merge_.accept(
          {{&root}, needs, [rest, result, dots = dots](ir::Rebuild& rebuild, Builder& builder) {
             const Node& first = *dots[0];
             builder.set_generation(first.generation);
             std::vector<Value> lhs, rhs;
             for (const Node* d : dots) {
               lhs.push_back(rebuild(d->operands[0]));
               rhs.push_back(rebuild(d->operands[1]));
             }
             const auto axis = [&](const char* name) { return static_cast<int>(first.attrs.integers(name)[0]); };
             Value sum = builder.make(
                 *first.op, {builder.concat(lhs, axis("lhs_contract")), builder.concat(rhs, axis("rhs_contract"))},
                 first.attrs);
             for (const Value& v : rest) sum = builder.add(sum, rebuild(v));
             rebuild.map().set(result, sum);
           }});
      return;
    }
  }

  const Graph& graph_;
  const Level& level_;
  ir::ValueIndex index_;
  ir::Uses uses_;
  Horizontal merge_;
};

}  // namespace

Pass merge_sums() {
  return {"merge_sums", "sums and reductions of the parts of one value become one", true,
          [](const Graph& graph, const PassOptions& options) {
            return rewrite_levels(
                graph, [&](const Graph& g, const Level& level) { return MergeSums(g, level).run(options); },
                options.bound);
          }};
}

}  // namespace hotloop::passes
