// Chooses what crosses from a forward loop to the backward loops that read its ys. The values saved are a minimum cut
// of the forward body between what is dear to compute again (dots, reductions, transcendental functions, carries) and
// what the backward loops need: fewest bytes a step, with only cheap elementwise arithmetic and changes of index done
// again. The loop's own xs and consts, and ys that are kept for another reason, cost nothing.
#include <algorithm>
#include <map>

#include "hotloop/error.h"
#include "passes/builder.h"
#include "passes/loop_edit.h"
#include "passes/min_cut.h"

namespace hotloop::passes {
namespace {

using ir::OpKind;

constexpr double max_cost = 2;  // OpDef::cost_per_element of what is done again; a division counts 10

bool is_cheap(const Node& node) {
  switch (node.op->kind) {
    case OpKind::Elementwise: return node.op->cost_per_element <= max_cost;
    case OpKind::Constant:
    case OpKind::Iota:
    case OpKind::Reshape:
    case OpKind::Transpose:
    case OpKind::Broadcast:
    case OpKind::Slice:
    case OpKind::Pad:
    case OpKind::Concat:
    case OpKind::Reverse:
    case OpKind::StopGradient: return true;
    default: return false;
  }
}

std::int64_t bytes_of(Value v) { return static_cast<std::int64_t>(v.type().bytes()); }

// One forward loop, with the loops that read its ys step by step.
class Crossing {
 public:
  Crossing(const Node& forward, const ir::Uses& uses) : loop_(forward), index_(loop_.body()) {
    if (loop_.num_lane_axes() > 0) return;  // what a finished lane would compute again is not what it saved
    for (int y = 0; y < loop_.num_ys(); ++y) {
      const Value ys = loop_.ys_result(y);
      bool elsewhere = uses.is_output(ys);
      for (const ir::Use& use : uses.of(ys)) {
        const bool as_xs = reads_by_step(*use.node, use.operand);
        if (as_xs && std::ranges::find(backward_, use.node) == backward_.end()) backward_.push_back(use.node);
        elsewhere = elsewhere || !as_xs;
      }
      kept_.push_back(elsewhere);
    }
    if (!backward_.empty()) choose();
  }

  bool applies() const { return applies_; }
  const Node& forward() const { return loop_.node(); }
  const std::vector<const Node*>& backward() const { return backward_; }

  // Appends the forward loop with the chosen ys.
  void rebuild_forward(ir::Rebuild& outer) {
    LoopEdit edit(loop_);
    edit.keep_carry(outer);
    edit.keep_xs(outer);
    edit.keep_consts(outer);
    edit.begin();
    edit.copy_rest();
    std::vector<Value> outputs;
    for (int i = 0; i < loop_.num_carry(); ++i) outputs.push_back(edit.map()(loop_.carry_out(i)));
    std::vector<int> kept;
    for (int y = 0; y < loop_.num_ys(); ++y) {
      if (!kept_[static_cast<std::size_t>(y)]) continue;
      kept.push_back(y);
      outputs.push_back(edit.map()(loop_.y_out(y)));
    }
    for (const Value& v : saved_) outputs.push_back(edit.map()(v));
    Node* made = edit.finish(outer, std::move(outputs));
    int next = loop_.num_carry();
    for (int i = 0; i < loop_.num_carry(); ++i) outer.map().set(loop_.carry_result(i), made->result(i));
    for (int y : kept) {
      outer.map().set(loop_.ys_result(y), made->result(next));
      source_[index_(loop_.y_out(y))] = made->result(next++);
    }
    for (const Value& v : saved_) source_[index_(v)] = made->result(next++);
    outer.map().set(loop_.count_result(), made->result(next));
    for (int i = 0; i < loop_.num_xs(); ++i) source_.try_emplace(index_(loop_.xs_in(i)), outer(loop_.xs(i)));
  }

  // Appends a backward loop that recomputes what is no longer saved.
  void rebuild_backward(const Node& node, ir::Rebuild& outer) {
    const ir::LoopView back(node);
    LoopEdit edit(back);
    edit.keep_carry(outer);
    std::vector<std::pair<Value, Value>> needed;  // xs of the backward body, value of the forward body
    for (int i = 0; i < back.num_xs(); ++i) {
      const Value xs = back.xs(i);
      const int y = xs.node == &loop_.node() ? xs.index - loop_.num_carry() : -1;
      if (y >= 0 && !kept_[static_cast<std::size_t>(y)])
        needed.emplace_back(back.xs_in(i), loop_.y_out(y));
      else
        edit.add_xs(outer(xs), back.xs_in(i));
    }
    // Walk from the needed values to sources, in the order of the forward body.
    std::vector<bool> visit(static_cast<std::size_t>(index_.size()));
    for (const auto& [in, v] : needed) visit[static_cast<std::size_t>(index_(v))] = true;
    std::map<int, int> xs_position, const_position;
    std::vector<const Node*> recomputed;
    for (std::size_t k = loop_.body().nodes().size(); k-- > 0;) {
      const Node& n = *loop_.body().nodes()[k];
      bool recompute = false;
      for (int r = 0; r < static_cast<int>(n.types.size()); ++r) {
        const int v = index_({const_cast<Node*>(&n), r});
        if (!visit[static_cast<std::size_t>(v)]) continue;
        if (source_.contains(v))
          xs_position[v] = edit.add_xs(source_.at(v));
        else if (n.op->kind == OpKind::Input)
          const_position[v] = -1;
        else
          recompute = true;
      }
      if (!recompute) continue;
      HOTLOOP_CHECK(is_cheap(n), "the cut leaves " + n.op->name + " to be recomputed");
      recomputed.push_back(&n);
      for (const Value& v : n.operands) visit[static_cast<std::size_t>(index_(v))] = true;
    }
    edit.keep_consts(outer);
    for (int i = 0; i < loop_.num_consts(); ++i) {
      const auto it = const_position.find(index_(loop_.const_in(i)));
      if (it != const_position.end()) it->second = edit.add_const(outer(loop_.constant(i)));
    }
    edit.begin();
    ir::ValueMap map(loop_.body());
    for (const auto& n : loop_.body().nodes()) {
      for (int r = 0; r < static_cast<int>(n->types.size()); ++r) {
        const int v = index_(n->result(r));
        if (const auto x = xs_position.find(v); x != xs_position.end()) map.set(n->result(r), edit.xs_in(x->second));
        if (const auto c = const_position.find(v); c != const_position.end())
          map.set(n->result(r), edit.const_in(c->second));
      }
    }
    for (auto it = recomputed.rbegin(); it != recomputed.rend(); ++it) {
      std::vector<Value> operands;
      for (const Value& v : (*it)->operands) operands.push_back(map(v));
      Node* copied =
          edit.body().append(*(*it)->op, std::move(operands), (*it)->attrs, (*it)->regions, (*it)->generation + 1);
      map.set(const_cast<Node*>(*it)->result(), copied->result());
    }
    for (const auto& [in, v] : needed) edit.map().set(in, map(v));
    edit.copy_rest();
    std::vector<Value> outputs;
    for (const Value& v : back.body().outputs()) outputs.push_back(edit.map()(v));
    Node* made = edit.finish(outer, std::move(outputs));
    for (int i = 0; i < static_cast<int>(made->types.size()); ++i)
      outer.map().set({const_cast<Node*>(&node), i}, made->result(i));
  }

 private:
  bool reads_by_step(const Node& node, int operand) const {
    if (node.op->kind != OpKind::Loop) return false;
    const ir::LoopView back(node);
    const Value trip = loop_.until() ? loop_.count_result() : loop_.trip();  // of the iterations that ran
    return operand >= back.num_carry() && operand < back.num_carry() + back.num_xs() && !back.until() &&
           back.length() == loop_.length() && back.trip() == trip;
  }

  void choose() {
    const Graph& body = loop_.body();
    const int num_values = index_.size();
    const int source = 2 * num_values, sink = source + 1;
    const auto in = [](int v) { return 2 * v; };
    const auto out = [](int v) { return 2 * v + 1; };
    std::vector<bool> is_free(static_cast<std::size_t>(num_values)), is_needed(is_free);
    for (int i = 0; i < loop_.num_xs(); ++i) is_free[static_cast<std::size_t>(index_(loop_.xs_in(i)))] = true;
    for (int i = 0; i < loop_.num_consts(); ++i) is_free[static_cast<std::size_t>(index_(loop_.const_in(i)))] = true;
    for (int y = 0; y < loop_.num_ys(); ++y)
      if (kept_[static_cast<std::size_t>(y)]) is_free[static_cast<std::size_t>(index_(loop_.y_out(y)))] = true;
    std::int64_t saved_now = 0;
    for (int y = 0; y < loop_.num_ys(); ++y) {
      const auto v = static_cast<std::size_t>(index_(loop_.y_out(y)));
      if (kept_[static_cast<std::size_t>(y)] || is_needed[v]) continue;
      is_needed[v] = true;
      if (!is_free[v]) saved_now += weight(loop_.y_out(y));
    }
    MinCut cut(2 * num_values + 2);
    for (const auto& node : body.nodes()) {
      for (int r = 0; r < static_cast<int>(node->types.size()); ++r) {
        const int v = index_(node->result(r));
        if (is_free[static_cast<std::size_t>(v)]) continue;
        cut.add_edge(in(v), out(v), weight(node->result(r)));
        if (is_needed[static_cast<std::size_t>(v)]) cut.add_edge(out(v), sink, MinCut::unlimited);
        if (!is_cheap(*node) || node->op->kind == OpKind::Input) {
          cut.add_edge(source, in(v), MinCut::unlimited);
        } else {
          for (const Value& operand : node->operands)
            if (!is_free[static_cast<std::size_t>(index_(operand))])
              cut.add_edge(out(index_(operand)), in(v), MinCut::unlimited);
        }
      }
    }
    const std::int64_t best = cut.solve(source, sink);
    if (best >= saved_now) return;
    for (const auto& node : body.nodes()) {
      for (int r = 0; r < static_cast<int>(node->types.size()); ++r) {
        const int v = index_(node->result(r));
        if (!is_free[static_cast<std::size_t>(v)] && !cut.reaches_sink(in(v)) && cut.reaches_sink(out(v)))
          saved_.push_back(node->result(r));
      }
    }
    applies_ = true;
  }

  // Bytes first, then fewer values.
  static std::int64_t weight(Value v) { return 64 * bytes_of(v) + 1; }

  ir::LoopView loop_;
  ir::ValueIndex index_;
  std::vector<const Node*> backward_;
  std::vector<bool> kept_;       // by y: read by something else as well
  std::vector<Value> saved_;     // body values that become ys in place of the others
  std::map<int, Value> source_;  // body value -> all its steps, in the new graph
  bool applies_ = false;
};

std::shared_ptr<const Graph> remat_level(const Graph& graph, const Level&) {
  const auto is_loop = [](const auto& node) { return node->op->kind == OpKind::Loop; };
  if (std::ranges::count_if(graph.nodes(), is_loop) < 2) return nullptr;
  const ir::Uses uses(graph);
  // A loop takes part in one crossing at a time; further ones are found in the next round.
  std::vector<Crossing> crossings;
  std::vector<const Node*> taken;
  for (const auto& node : graph.nodes()) {
    if (!is_loop(node) || std::ranges::find(taken, node.get()) != taken.end()) continue;
    Crossing crossing(*node, uses);
    const auto is_taken = [&](const Node* b) { return std::ranges::find(taken, b) != taken.end(); };
    if (!crossing.applies() || std::ranges::any_of(crossing.backward(), is_taken)) continue;
    taken.push_back(node.get());
    taken.insert(taken.end(), crossing.backward().begin(), crossing.backward().end());
    crossings.push_back(std::move(crossing));
  }
  if (crossings.empty()) return nullptr;
  ir::Rebuild rebuild(graph);
  for (const auto& node : graph.nodes()) {
    if (node->op->kind == OpKind::Input) continue;
    bool done = false;
    for (Crossing& c : crossings) {
      if (&c.forward() == node.get()) {
        c.rebuild_forward(rebuild);
        done = true;
      } else if (std::ranges::find(c.backward(), node.get()) != c.backward().end()) {
        c.rebuild_backward(*node, rebuild);
        done = true;
      }
    }
    if (!done) rebuild.copy(*node);
  }
  return rebuild.finish();
}

}  // namespace

Pass remat() {
  return {"remat", "saves for backward loops what costs fewest bytes, and recomputes the cheap rest", true,
          [](const Graph& graph, const PassOptions&) { return rewrite_levels(graph, remat_level); }};
}

}  // namespace hotloop::passes
