// Rebuilding graphs: what transforms and passes share. Graphs are never edited in place; a new one is built node by
// node with a map from old values to new.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "hotloop/graph.h"
#include "ir/op_def.h"

namespace hotloop::ir {

// Dense numbers for the values of one graph.
class ValueIndex {
 public:
  explicit ValueIndex(const Graph& graph);
  int size() const { return first_.back(); }
  int operator()(Value v) const { return first_[static_cast<std::size_t>(v.node->id)] + v.index; }

 private:
  std::vector<int> first_;
};

// Values of `from` -> values of another graph (or undefined).
class ValueMap {
 public:
  explicit ValueMap(const Graph& from) : index_(from), to_(static_cast<std::size_t>(index_.size())) {}
  void set(Value from, Value to) { to_[static_cast<std::size_t>(index_(from))] = to; }
  void set_results(const Node& from, std::span<const Value> to);
  Value find(Value from) const { return to_[static_cast<std::size_t>(index_(from))]; }  // undefined if not set
  Value operator()(Value from) const;                                                   // InternalError if not set

 private:
  ValueIndex index_;
  std::vector<Value> to_;
};

// Who uses each value of a graph.
struct Use {
  const Node* node;
  int operand;
};
class Uses {
 public:
  explicit Uses(const Graph& graph);
  std::span<const Use> of(Value v) const;
  bool is_output(Value v) const { return output_[static_cast<std::size_t>(index_(v))]; }
  // Number of uses, the graph's outputs included.
  int count(Value v) const { return static_cast<int>(of(v).size()) + (is_output(v) ? 1 : 0); }

 private:
  ValueIndex index_;
  std::vector<int> first_;
  std::vector<Use> uses_;
  std::vector<bool> output_;
};

// A graph under reconstruction. It starts with copies of the inputs of `from`, already mapped.
class Rebuild {
 public:
  explicit Rebuild(const Graph& from);

  const Graph& from() const { return from_; }
  Graph& to() { return *to_; }
  ValueMap& map() { return map_; }
  Value operator()(Value old) const { return map_(old); }
  std::vector<Value> operands(const Node& node) const;

  // Copies a node and maps its results; `regions` replace the node's own.
  Node* copy(const Node& node) { return copy(node, node.regions); }
  Node* copy(const Node& node, std::vector<std::shared_ptr<const Graph>> regions);
  // The new graph, its outputs being the mapped outputs.
  std::shared_ptr<Graph> finish();

 private:
  const Graph& from_;
  std::shared_ptr<Graph> to_;
  ValueMap map_;
};

// The parts of a loop node by name.
class LoopView {
 public:
  explicit LoopView(const Node& loop);

  const Node& node() const { return *node_; }
  const Graph& body() const { return *node_->regions[0]; }
  const Graph* until() const { return node_->regions.size() > 1 ? node_->regions[1].get() : nullptr; }
  int num_carry() const { return num_carry_; }
  int num_xs() const { return num_xs_; }
  int num_consts() const { return num_consts_; }
  int num_ys() const { return static_cast<int>(node_->types.size()) - num_carry_ - 1; }
  std::int64_t length() const { return length_; }
  bool has_trip() const { return has_trip_; }
  bool reverse() const { return reverse_; }
  // Whether backward saves values of the body, or only each iteration's carry and recomputes; or saves them if they are few.
  bool recomputes() const;
  bool saves_if_small() const { return node_->attrs.get<std::string>("residuals") == "save_if_small"; }
  // Rank of the lanes: 0 without a per-lane `until`.
  int num_lane_axes() const { return until() ? until()->outputs()[0].rank() : 0; }
  Shape lanes() const { return until() ? until()->outputs()[0].shape() : Shape{}; }
  // Which lane axes an operand has in front (xs after the time axis): bit k stands for lane axis k. vmap records them in the
  // attribute "laned" (carry, xs, consts); without it nothing but the carry of a loop with until is known to have lanes.
  std::int64_t laned_carry(int i) const;
  std::int64_t laned_xs(int i) const { return laned(num_carry_ + i); }
  std::int64_t laned_const(int i) const { return laned(num_carry_ + num_xs_ + i); }
  // A loop made by a transform whose body selects, per lane, between taking part in an iteration and staying as it is: lanes are
  // active at t < bound (or t >= bound). The attribute "mask" tells which of xs is t and which const is the bound.
  bool has_mask() const { return node_->attrs.has("mask"); }
  int mask_t() const { return static_cast<int>(node_->attrs.integers("mask")[0]); }
  int mask_bound() const { return static_cast<int>(node_->attrs.integers("mask")[1]); }
  bool mask_starts_late() const { return node_->attrs.integers("mask")[2] != 0; }
  // Number of lane axes of the predicate or of the mask.
  int num_mask_axes() const { return has_mask() ? constant(mask_bound()).rank() : num_lane_axes(); }

  Value carry(int i) const { return operand(i); }
  Value xs(int i) const { return operand(num_carry_ + i); }
  Value constant(int i) const { return operand(num_carry_ + num_xs_ + i); }
  Value trip() const { return has_trip_ ? node_->operands.back() : Value{}; }

  Value carry_in(int i) const { return body_input(i); }
  Value xs_in(int i) const { return body_input(num_carry_ + i); }
  Value const_in(int i) const { return body_input(num_carry_ + num_xs_ + i); }
  // The place of a body value among the elements of xs, or -1.
  int xs_at(Value v) const {
    for (int i = 0; i < num_xs_; ++i)
      if (xs_in(i) == v) return i;
    return -1;
  }
  Value carry_out(int i) const { return body().outputs()[static_cast<std::size_t>(i)]; }
  Value y_out(int i) const { return body().outputs()[static_cast<std::size_t>(num_carry_ + i)]; }
  Value until_carry_in(int i) const { return until()->inputs()[static_cast<std::size_t>(i)]; }
  Value until_const_in(int i) const { return until()->inputs()[static_cast<std::size_t>(num_carry_ + i)]; }

  Value carry_result(int i) const { return {const_cast<Node*>(node_), i}; }
  Value ys_result(int i) const { return {const_cast<Node*>(node_), num_carry_ + i}; }
  Value count_result() const { return {const_cast<Node*>(node_), static_cast<int>(node_->types.size()) - 1}; }

 private:
  Value operand(int i) const { return node_->operands[static_cast<std::size_t>(i)]; }
  Value body_input(int i) const { return body().inputs()[static_cast<std::size_t>(i)]; }
  std::int64_t laned(int i) const;

  const Node* node_;
  int num_carry_, num_xs_, num_consts_;
  std::int64_t length_;
  bool has_trip_, reverse_;
};

// What a loop node is made of, to append a changed one. `like` gives length, reverse and the other attributes.
struct LoopDraft {
  explicit LoopDraft(const LoopView& like) : like(like) {}
  LoopView like;
  std::vector<Value> carry, xs, consts;
  Value trip;
  std::shared_ptr<const Graph> body, until;
  std::vector<std::int64_t> laned, mask;  // see LoopView; empty: none
  Node* append(Graph& to) const;
};

// `graph` without what no output needs: nodes, and carries, xs, consts and ys of loops (a carry that only feeds
// itself is not needed). Inputs and outputs stay. Null if there is nothing to remove.
std::shared_ptr<Graph> eliminate_dead(const Graph& graph);

// Appends a copy of `node`, which is of any graph, to the current graph.
Node* copy_node(const Node& node, std::vector<Value> operands, int generation_bump = 0);
std::vector<Value> results_of(Node& node);

// Nodes of the graph and of all its regions.
int count_nodes(const Graph& graph);

}  // namespace hotloop::ir
