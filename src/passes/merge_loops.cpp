// Loops that stand side by side and compute the same in part become one. Forward derivatives by several arguments, or a solution and its
// sensitivities asked for apart, are loops of which each carries the primal state along: the steps are then taken once.
//
// Which carries are the same is a greatest fixpoint: all that start from one value are taken to be equal, the bodies are written into
// one graph in which equal expressions are one node, and carries whose next values differ are told apart, until nothing changes. What
// is left is equal in every iteration, by induction. Loops with a predicate must end together, so theirs must be the same expression.
#include <algorithm>
#include <functional>
#include <map>
#include <set>
#include <string_view>
#include <tuple>
#include <utility>

#include "passes/equal_nodes.h"
#include "passes/horizontal.h"

namespace hotloop::passes {
namespace {

using ir::LoopView;
using ir::OpKind;

// Work that is worth a merger: beside it, arithmetic that both loops do is nothing.
bool is_dear(const Node& node) {
  switch (node.op->kind) {
    case OpKind::Dot:
    case OpKind::Loop: return true;
    case OpKind::Elementwise: return node.op->cost_per_element > 2;
    default: return false;
  }
}

// A hash of each dear node of a body. What two loops share has the same hash in both, so that most of those which share nothing are known without
// being written into one: carries that stay equal start from one value, and so do those that they become.
std::set<std::size_t> hashes_of_dear(const LoopView& loop) {
  const auto with = [](std::size_t h, std::size_t x) { return (h ^ x) * 0x9e3779b97f4a7c15u + (h >> 29); };
  const Graph& body = loop.body();
  const ir::ValueIndex index(body);
  std::vector<std::size_t> hashes(static_cast<std::size_t>(index.size()));
  const auto of = [&](Value v) -> std::size_t& { return hashes[static_cast<std::size_t>(index(v))]; };
  const auto hash_from = [&](Value start, std::size_t role) {
    return with(with(role, static_cast<std::size_t>(start.node->id)), static_cast<std::size_t>(start.index));
  };
  for (int i = 0; i < loop.num_carry(); ++i) of(loop.carry_in(i)) = hash_from(loop.carry(i), 1);
  for (int i = 0; i < loop.num_xs(); ++i) of(loop.xs_in(i)) = hash_from(loop.xs(i), 2);
  for (int i = 0; i < loop.num_consts(); ++i) of(loop.const_in(i)) = hash_from(loop.constant(i), 3);
  std::set<std::size_t> dear;
  const auto hash_body = [&] {
    dear.clear();
    for (const auto& node : body.nodes()) {
      if (node->op->kind == OpKind::Input) continue;
      std::size_t h = std::hash<const void*>{}(node->op), sum = 0;
      if (node->op->kind == OpKind::Constant) {
        const Array& value = node->attrs.get<Array>("value");
        h = with(h, std::hash<std::string_view>{}({static_cast<const char*>(value.raw()), value.bytes()}));
      }
      for (const Value& v : node->operands) {
        if (!node->op->commutative) h = with(h, of(v));
        sum += of(v);  // in any order
      }
      h = with(h, sum);
      for (int r = 0; r < static_cast<int>(node->types.size()); ++r)
        of(node->result(r)) = with(h, static_cast<std::size_t>(r));
      if (is_dear(*node)) dear.insert(h);
    }
  };
  hash_body();
  std::vector<std::size_t> next;
  for (int i = 0; i < loop.num_carry(); ++i) next.push_back(with(of(loop.carry_in(i)), of(loop.carry_out(i))));
  for (int i = 0; i < loop.num_carry(); ++i) of(loop.carry_in(i)) = next[static_cast<std::size_t>(i)];
  hash_body();
  return dear;
}

// Loops of which each runs as often as the others, for the same reason.
class LoopUnion {
 public:
  LoopUnion(const Node& first, std::set<std::size_t> dear) : dear_(std::move(dear)) { members_.push_back(&first); }

  const std::vector<const Node*>& members() const { return members_; }

  // Takes the loop in if it runs alike and shares work with those that are there. `dear`: its hashes_of_dear.
  bool add(const Node& node, const std::set<std::size_t>& dear, const Horizontal& merge) {
    if (std::ranges::none_of(dear, [&](std::size_t h) { return dear_.contains(h); })) return false;
    const LoopView first(*members_[0]), loop(node);
    if (!is_mergeable(loop) || loop.length() != first.length() || loop.reverse() != first.reverse() ||
        loop.trip() != first.trip() || (loop.until() == nullptr) != (first.until() == nullptr) ||
        loop.node().generation != first.node().generation ||
        loop.node().attrs.has("laned") != first.node().attrs.has("laned") ||
        loop.node().attrs.has("idles") != first.node().attrs.has("idles") || loop.recomputes() != first.recomputes() ||
        loop.saves_if_small() != first.saves_if_small())
      return false;
    members_.push_back(&node);
    if (merge.independent(members_) && build() && num_shared_ > 0 && ends_together()) {
      dear_.insert(dear.begin(), dear.end());
      return true;
    }
    members_.pop_back();
    return false;
  }

  static bool is_mergeable(const LoopView& loop) { return !loop.has_mask(); }

  void emit(ir::Rebuild& outer) {
    build();
    const LoopView first(*members_[0]);
    ir::LoopDraft draft(first);
    const bool laned = first.node().attrs.has("laned");
    for (const Input& c : carry_) draft.carry.push_back(outer(c.start));
    for (const Input& x : xs_) draft.xs.push_back(outer(x.start));
    for (const Input& k : consts_) draft.consts.push_back(outer(k.start));
    if (laned)
      for (const auto* list : {&carry_, &xs_, &consts_})
        for (const Input& in : *list) draft.laned.push_back(in.laned);
    if (first.has_trip()) draft.trip = outer(first.trip());
    std::vector<Value> outputs = next_;
    for (std::size_t m = 0; m < members_.size(); ++m) {
      const LoopView loop(*members_[m]);
      for (int y = 0; y < loop.num_ys(); ++y) outputs.push_back(maps_[m](loop.y_out(y)));
    }
    body_->set_outputs(std::move(outputs));
    draft.body = body_;
    if (first.until()) draft.until = until();
    Node* made = draft.append(outer.to());
    auto y_at = static_cast<int>(carry_.size());
    for (std::size_t m = 0; m < members_.size(); ++m) {
      const LoopView loop(*members_[m]);
      for (int i = 0; i < loop.num_carry(); ++i)
        outer.map().set(loop.carry_result(i), made->result(class_[m][static_cast<std::size_t>(i)]));
      for (int y = 0; y < loop.num_ys(); ++y) outer.map().set(loop.ys_result(y), made->result(y_at++));
    }
    for (const Node* m : members_)
      outer.map().set(LoopView(*m).count_result(), made->result(static_cast<int>(made->types.size()) - 1));
  }

 private:
  struct Input {
    Value start;  // outside
    std::int64_t laned;
  };

  static int place_in(std::vector<Input>& list, Value start, std::int64_t laned) {
    const auto it = std::ranges::find_if(list, [&](const Input& i) { return i.start == start && i.laned == laned; });
    if (it != list.end()) return static_cast<int>(it - list.begin());
    list.push_back({start, laned});
    return static_cast<int>(list.size()) - 1;
  }

  // The bodies as one graph. False if some value is at a place that another needs (never, for loops that the verifier passed).
  bool build() {
    class_.assign(members_.size(), {});
    carry_.clear();
    for (std::size_t m = 0; m < members_.size(); ++m) {
      const LoopView loop(*members_[m]);
      for (int i = 0; i < loop.num_carry(); ++i)
        class_[m].push_back(place_in(carry_, loop.carry(i), loop.laned_carry(i)));
    }
    while (true) {
      write_bodies();
      // Told apart: what was one class and has another next value.
      std::map<std::tuple<int, int, int>, int> classes;
      std::vector<Input> carry;
      std::vector<Value> next;
      std::vector<std::vector<int>> refined(members_.size());
      for (std::size_t m = 0; m < members_.size(); ++m) {
        const LoopView loop(*members_[m]);
        for (int i = 0; i < loop.num_carry(); ++i) {
          const int before = class_[m][static_cast<std::size_t>(i)];
          const Value v = maps_[m](loop.carry_out(i));
          const auto [it, is_new] = classes.try_emplace({before, v.node->id, v.index}, static_cast<int>(carry.size()));
          if (is_new) {
            carry.push_back(carry_[static_cast<std::size_t>(before)]);
            next.push_back(v);
          }
          refined[m].push_back(it->second);
        }
      }
      const bool is_stable = carry.size() == carry_.size();
      if (is_stable) {
        next_ = std::move(next);
        return refined == class_;  // classes are numbered in the order in which members have them
      }
      carry_ = std::move(carry);
      class_ = std::move(refined);
    }
  }

  void write_bodies() {
    xs_.clear();
    consts_.clear();
    std::vector<std::vector<int>> xs_at(members_.size()), const_at(members_.size());
    for (std::size_t m = 0; m < members_.size(); ++m) {
      const LoopView loop(*members_[m]);
      for (int i = 0; i < loop.num_xs(); ++i) xs_at[m].push_back(place_in(xs_, loop.xs(i), loop.laned_xs(i)));
      for (int i = 0; i < loop.num_consts(); ++i)
        const_at[m].push_back(place_in(consts_, loop.constant(i), loop.laned_const(i)));
    }
    body_ = std::make_shared<Graph>(LoopView(*members_[0]).body().name());
    std::vector<Value> carry_in, xs_in, const_in;
    for (const Input& c : carry_) carry_in.push_back(body_->add_input(c.start.type()));
    for (const Input& x : xs_) xs_in.push_back(body_->add_input({x.start.dtype(), x.start.shape().without(0)}));
    for (const Input& k : consts_) const_in.push_back(body_->add_input(k.start.type()));
    maps_.clear();
    EqualNodes table;
    for (std::size_t m = 0; m < members_.size(); ++m) {
      const LoopView loop(*members_[m]);
      ir::ValueMap& map = maps_.emplace_back(loop.body());
      const auto at = [](const std::vector<Value>& in, const std::vector<int>& place, int i) {
        return in[static_cast<std::size_t>(place[static_cast<std::size_t>(i)])];
      };
      for (int i = 0; i < loop.num_carry(); ++i) map.set(loop.carry_in(i), at(carry_in, class_[m], i));
      for (int i = 0; i < loop.num_xs(); ++i) map.set(loop.xs_in(i), at(xs_in, xs_at[m], i));
      for (int i = 0; i < loop.num_consts(); ++i) map.set(loop.const_in(i), at(const_in, const_at[m], i));
      num_shared_ = copy_nodes(loop.body(), map, *body_, table);
    }
    const_at_ = std::move(const_at);
  }

  // Gives how many dear nodes were there already.
  static int copy_nodes(const Graph& from, ir::ValueMap& map, Graph& to, EqualNodes& table) {
    int num_dear = 0;
    for (const auto& node : from.nodes()) {
      if (node->op->kind == OpKind::Input) continue;
      std::vector<Value> operands;
      for (const Value& v : node->operands) operands.push_back(map(v));
      const Node* made = table.find(*node, operands);
      if (made == nullptr) {
        made = to.append(*node->op, std::move(operands), node->attrs, node->regions, node->generation);
        table.insert(*made);
      } else if (is_dear(*node)) {
        ++num_dear;
      }
      for (int r = 0; r < static_cast<int>(node->types.size()); ++r)
        map.set(node->result(r), {const_cast<Node*>(made), r});
    }
    return num_dear;
  }

  // The predicates as one graph; its outputs are theirs, in order.
  std::shared_ptr<Graph> predicates() const {
    auto graph = std::make_shared<Graph>(LoopView(*members_[0]).until()->name());
    std::vector<Value> carry_in, const_in, outputs;
    for (const Input& c : carry_) carry_in.push_back(graph->add_input(c.start.type()));
    for (const Input& k : consts_) const_in.push_back(graph->add_input(k.start.type()));
    EqualNodes table;
    for (std::size_t m = 0; m < members_.size(); ++m) {
      const LoopView loop(*members_[m]);
      ir::ValueMap map(*loop.until());
      for (int i = 0; i < loop.num_carry(); ++i)
        map.set(loop.until_carry_in(i), carry_in[static_cast<std::size_t>(class_[m][static_cast<std::size_t>(i)])]);
      for (int i = 0; i < loop.num_consts(); ++i)
        map.set(loop.until_const_in(i), const_in[static_cast<std::size_t>(const_at_[m][static_cast<std::size_t>(i)])]);
      copy_nodes(*loop.until(), map, *graph, table);
      outputs.push_back(map(loop.until()->outputs()[0]));
    }
    graph->set_outputs(std::move(outputs));
    return graph;
  }

  bool ends_together() const {
    if (LoopView(*members_[0]).until() == nullptr) return true;
    const auto graph = predicates();
    return std::ranges::all_of(graph->outputs(), [&](Value v) { return v == graph->outputs()[0]; });
  }

  std::shared_ptr<const Graph> until() const {
    const auto graph = predicates();
    graph->set_outputs({graph->outputs()[0]});
    return graph;
  }

  std::vector<const Node*> members_;
  std::set<std::size_t> dear_;              // hashes_of_dear of all members
  std::vector<std::vector<int>> class_;     // by member and carry: which of carry_
  std::vector<std::vector<int>> const_at_;  // by member and const: which of consts_
  std::vector<Input> carry_, xs_, consts_;
  std::vector<Value> next_;  // by class
  std::shared_ptr<Graph> body_;
  std::vector<ir::ValueMap> maps_;
  int num_shared_ = 0;  // dear nodes of the last member that others have too
};

std::shared_ptr<const Graph> merge_level(const Graph& graph, const PassOptions& options) {
  std::vector<const Node*> loops;
  for (const auto& node : graph.nodes())
    if (node->op->kind == OpKind::Loop && LoopUnion::is_mergeable(LoopView(*node))) loops.push_back(node.get());
  if (loops.size() < 2) return nullptr;
  std::vector<std::set<std::size_t>> dear;
  for (const Node* loop : loops) dear.push_back(hashes_of_dear(LoopView(*loop)));
  Horizontal merge(graph);
  for (std::size_t i = 0; i < loops.size(); ++i) {
    if (merge.is_taken(*loops[i])) continue;
    auto merged = std::make_shared<LoopUnion>(*loops[i], dear[i]);
    for (std::size_t k = i + 1; k < loops.size(); ++k)
      if (!merge.is_taken(*loops[k])) merged->add(*loops[k], dear[k], merge);
    if (merged->members().size() > 1)
      merge.accept({merged->members(), {}, [merged](ir::Rebuild& rebuild, Builder&) { merged->emit(rebuild); }});
  }
  return merge.run(options);
}

}  // namespace

Pass merge_loops() {
  return {"merge_loops", "loops side by side that share work become one", true,
          [](const Graph& graph, const PassOptions& options) {
            return rewrite_levels(graph, [&](const Graph& g, const Level&) { return merge_level(g, options); });
          }};
}

}  // namespace hotloop::passes
