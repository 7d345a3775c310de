// Dots that share an operand become one wide dot: x W_i, x W_f, x W_g, x W_o are slices of x [W_i W_f W_g W_o]. Done
// where laying the other operands side by side costs nothing: they are the same in every iteration (or bound), or computed
// elementwise (then each is written to its place). Values are laid side by side, rows are not: x W and dx W stay two dots, since [x dx] W would
// be one of twice the rows, and no tile of rows could be computed to its end. Whether it is done never depends on the number of rows: a sum that is started
// from its bias and one that gets it afterwards differ in the last bit, and a sample's result must not depend on its batch.
#include <algorithm>
#include <map>
#include <numeric>
#include <optional>
#include <set>
#include <tuple>
#include <vector>

#include "core/index.h"
#include "ir/axis_links.h"
#include "passes/dot_sides.h"
#include "passes/horizontal.h"

namespace hotloop::passes {
namespace {

using ir::OpKind;

enum class Origin { Elsewhere, Invariant, Computed };

struct Candidate {
  const Node* dot;
  int shared;  // which operand is shared, 0 or 1
  Value other() const { return dot->operands[static_cast<std::size_t>(1 - shared)]; }
};

Origin origin_of(Value v, const Level& level, const ir::ValueIndex& index) {
  if (level.invariant[static_cast<std::size_t>(index(v))]) return Origin::Invariant;
  if (v.node->op->kind == OpKind::Elementwise) return Origin::Computed;
  return Origin::Elsewhere;
}

// Which axes run together, within one graph: those that meet elementwise, and those that a dot contracts. Loops and calls are not looked into.
class AxisClasses {
 public:
  // batch_axes: for each input the axis of the batch, or -1; none where it is not known.
  AxisClasses(const Graph& graph, const std::vector<int>& batch_axes)
      : index_(graph), parent_(at(index_.size()) * at(Shape::max_rank)) {
    std::iota(parent_.begin(), parent_.end(), std::size_t{0});
    for (std::size_t i = 0; i < batch_axes.size(); ++i) {
      if (batch_axes[i] < 0) continue;
      const Value v = graph.inputs()[i];
      if (rows_.defined()) unite(v, batch_axes[i], rows_, rows_axis_);
      rows_ = v, rows_axis_ = batch_axes[i];
    }
    for (const auto& node : graph.nodes()) {
      if (node->op->kind == OpKind::Input || node->types.size() != 1 || !node->regions.empty()) continue;
      for (const ir::AxisLink& link : ir::axis_links(*node))
        if (link.use == ir::AxisUse::Same) unite(node->operands[at(link.operand)], link.axis, node->result(), link.to);
      if (node->op->kind != OpKind::Dot) continue;
      const Axes &lhs = node->attrs.integers("lhs_contract"), &rhs = node->attrs.integers("rhs_contract");
      for (std::size_t i = 0; i < lhs.size(); ++i)
        unite(node->operands[0], static_cast<int>(lhs[i]), node->operands[1], static_cast<int>(rhs[i]));
    }
    // The seed of a derivative is known: its products are of features alone, and tell nothing of what runs through the program.
    const std::vector<bool> known = known_nodes(graph);
    for (const auto& node : graph.nodes()) {
      if (node->op->kind != OpKind::Dot) continue;
      if (std::ranges::any_of(node->operands, [&](const Value& v) { return known[at(v.node->id)]; })) continue;
      std::set<std::size_t> seen;
      for (const Value& v : node->operands)
        for (int i = 0; i < v.rank(); ++i) seen.insert(of(v, i));
      for (const std::size_t c : seen) ++num_dots_[c];
    }
  }

  // Whether it is the axis of the batch, where that is known.
  bool is_rows(Value v, std::int64_t axis) {
    return rows_.defined() && of(v, static_cast<int>(axis)) == of(rows_, rows_axis_);
  }
  // How many dots have an axis that runs with this one.
  std::int64_t num_dots(Value v, std::int64_t axis) { return num_dots_[of(v, static_cast<int>(axis))]; }

 private:
  // By id, which nodes depend on no input.
  static std::vector<bool> known_nodes(const Graph& graph) {
    std::vector<bool> known(graph.nodes().size());
    for (const auto& node : graph.nodes())
      known[at(node->id)] = node->op->kind != OpKind::Input &&
                            std::ranges::all_of(node->operands, [&](const Value& v) { return known[at(v.node->id)]; });
    return known;
  }
  std::size_t of(Value v, int axis) {
    std::size_t i = at(index_(v)) * at(Shape::max_rank) + at(axis);
    while (parent_[i] != i) i = parent_[i] = parent_[parent_[i]];
    return i;
  }
  void unite(Value a, int axis_a, Value b, int axis_b) { parent_[of(a, axis_a)] = of(b, axis_b); }

  ir::ValueIndex index_;
  std::vector<std::size_t> parent_;
  std::map<std::size_t, std::int64_t> num_dots_;  // by class
  Value rows_;
  int rows_axis_ = 0;
};

using Key = std::tuple<int, int, int, Origin, int, Axes, Axes, Axes, Axes, Axes>;

class MergeDots {
 public:
  MergeDots(const Graph& graph, const Level& level, const std::vector<int>& batch_axes)
      : graph_(graph), level_(level), index_(graph), uses_(graph), merge_(graph) {
    if (level.loop == nullptr && batch_axes.size() == graph.inputs().size()) batch_axes_ = batch_axes;
  }

  std::shared_ptr<const Graph> run(const PassOptions& options) {
    std::map<Key, std::vector<Candidate>> buckets;
    std::vector<const Key*> order;
    for (const auto& node : graph_.nodes()) {
      if (node->op->kind != OpKind::Dot) continue;
      for (int shared = 0; shared < 2; ++shared) {
        const Candidate c{node.get(), shared};
        if (const auto key = key_of(c)) {
          const auto [it, is_new] = buckets.try_emplace(*key);
          if (is_new) order.push_back(&it->first);
          it->second.push_back(c);
        }
      }
    }
    std::ranges::stable_sort(order, std::greater<>{}, [&](const Key* k) { return buckets.at(*k).size(); });
    for (const Key* key : order) merge(buckets.at(*key));
    return merge_.run(options);
  }

 private:
  std::optional<Key> key_of(const Candidate& c) {
    const Node& dot = *c.dot;
    const Origin origin = origin_of(c.other(), level_, index_);
    const Axes free = free_axes(dot, 1 - c.shared);
    if (origin == Origin::Elsewhere || free.empty()) return std::nullopt;
    const Value shared = dot.operands[static_cast<std::size_t>(c.shared)];
    if (origin == Origin::Computed && !sums_over_rows(c, shared, free.back())) return std::nullopt;
    Axes shape = c.other().shape().vec();
    shape[static_cast<std::size_t>(free.back())] = -1;
    return Key{shared.node->id,
               shared.index,
               c.shared,
               origin,
               dot.generation,
               dot.attrs.integers("lhs_contract"),
               dot.attrs.integers("rhs_contract"),
               dot.attrs.integers("lhs_batch"),
               dot.attrs.integers("rhs_batch"),
               shape};
  }

  // Whether x^T dz is of this form, or dz W^T: does the dot sum over the rows that a whole program has, or would they be laid side by side?
  bool sums_over_rows(const Candidate& c, Value shared, std::int64_t free) {
    const bool is_invariant = level_.invariant[static_cast<std::size_t>(index_(shared))];
    if (level_.loop != nullptr || is_invariant) return !is_invariant;
    const Axes& contract = c.dot->attrs.integers(contract_name(1 - c.shared));
    if (contract.empty()) return false;
    if (!classes_) classes_.emplace(graph_, batch_axes_);
    if (classes_->is_rows(c.other(), free)) return false;
    // Rows run through a program from its first product to its last, features from one to the next.
    const std::int64_t across = classes_->num_dots(c.other(), free);
    std::int64_t over = 0;
    for (const std::int64_t axis : contract) over = std::max(over, classes_->num_dots(c.other(), axis));
    return over > across || (over == across && shared.node->op->kind == OpKind::Elementwise);
  }

  void merge(std::vector<Candidate> candidates) {
    std::vector<const Node*> members;
    std::vector<Candidate> group;
    // In one order everywhere, so that every dot over the same parts finds the same concat.
    if (origin_of(candidates[0].other(), level_, index_) == Origin::Computed)
      std::ranges::stable_sort(candidates, {},
                               [&](const Candidate& c) { return place_of_partner(c.other(), level_, index_, uses_); });
    std::erase_if(candidates, [&](const Candidate& c) { return merge_.is_taken(*c.dot); });
    if (candidates.size() < 2) return;
    std::vector<const Node*> dots;
    for (const Candidate& c : candidates) dots.push_back(c.dot);
    Horizontal::Growing growing(merge_, dots);
    const std::set<std::int64_t> widths = widths_side_by_side(candidates);
    for (const Candidate& c : candidates) {
      if (!widths.contains(width_of(c)) || !growing.add(c.dot)) continue;
      members.push_back(c.dot);
      group.push_back(c);
    }
    if (group.size() >= 2)
      merge_.accept({members, {}, [group](ir::Rebuild& rebuild, Builder& builder) { emit(group, rebuild, builder); }});
    std::erase_if(candidates, [&](const Candidate& c) { return std::ranges::find(members, c.dot) != members.end(); });
    if (!members.empty() && candidates.size() >= 2) merge(std::move(candidates));
  }

  static std::int64_t width_of(const Candidate& c) {
    return c.other().shape()[static_cast<int>(free_axes(*c.dot, 1 - c.shared).back())];
  }
  // Of the first candidate and of others that fit beside. Those of one width, as the gates of a cell, belong together. Columns fill vectors of 64
  // bytes, on every target, since what is merged must not depend on it: a few more beside whole vectors would add one that is mostly
  // empty, and no row after the first would begin where one does.
  static std::set<std::int64_t> widths_side_by_side(const std::vector<Candidate>& candidates) {
    const auto lanes = static_cast<std::int64_t>(64 / size_of(candidates[0].dot->types[0].dtype));
    const auto vectors = [&](std::int64_t n) { return divided_up(n, lanes); };
    std::set<std::int64_t> fitting, seen;
    std::int64_t columns = 0;
    for (const Candidate& c : candidates) {
      const std::int64_t width = width_of(c);
      if (!seen.insert(width).second) continue;
      const std::int64_t more =
          width * std::ranges::count_if(candidates, [&](const Candidate& o) { return width_of(o) == width; });
      const std::int64_t rest = std::max(columns % lanes, more % lanes);
      const bool stay_whole = rest == 0, mostly_full = rest > lanes / 2;
      const bool is_row = c.shared != 0;  // rows are laid side by side, not columns
      if (columns > 0 && !is_row && !stay_whole && !mostly_full &&
          vectors(columns + more) >= vectors(columns) + vectors(more))
        continue;
      fitting.insert(width);
      columns += more;
    }
    return fitting;
  }

  static void emit(const std::vector<Candidate>& group, ir::Rebuild& rebuild, Builder& builder) {
    const Node& first = *group[0].dot;
    const int shared = group[0].shared;
    const Axes free = free_axes(first, 1 - shared);
    const int concat_axis = static_cast<int>(free.back());
    const int num_batch = static_cast<int>(first.attrs.integers("lhs_batch").size());
    const int before = shared == 0 ? static_cast<int>(free_axes(first, 0).size()) : 0;
    const int out_axis = num_batch + before + static_cast<int>(free.size()) - 1;
    std::vector<Value> parts;
    for (const Candidate& c : group) parts.push_back(rebuild(c.other()));
    builder.set_generation(first.generation);
    const Value wide_other = builder.concat(parts, concat_axis);
    const Value common = rebuild(first.operands[static_cast<std::size_t>(shared)]);
    const Value wide =
        builder.make(*first.op, {shared == 0 ? common : wide_other, shared == 0 ? wide_other : common}, first.attrs);
    std::int64_t start = 0;
    for (const Candidate& c : group) {
      const std::int64_t stop = start + c.other().shape()[concat_axis];
      rebuild.map().set(const_cast<Node*>(c.dot)->result(), builder.narrow(wide, out_axis, start, stop));
      start = stop;
    }
  }

  const Graph& graph_;
  const Level& level_;
  std::vector<int> batch_axes_;
  ir::ValueIndex index_;
  ir::Uses uses_;
  std::optional<AxisClasses> classes_;
  Horizontal merge_;
};

}  // namespace

Pass merge_dots() {
  return {
      "merge_dots", "dots that share an operand become one wide dot", true,
      [](const Graph& graph, const PassOptions& options) {
        return rewrite_levels(
            graph,
            [&](const Graph& g, const Level& level) { return MergeDots(g, level, options.batch_axes).run(options); },
            options.bound);
      }};
}

}  // namespace hotloop::passes
