// Axis analysis: which axes of which values are the same axis, and what the program does along it.
//
// Every axis of every value, in all regions, belongs to a class; ops put the axes that run together into one class. Along
// a class a program is independent, unless an op contracts it (a sum: partial sums that meet in a reduction)
// or couples it (anything else that mixes elements). The schedule cuts one class into tiles.
#pragma once

#include <cstddef>
#include <set>
#include <span>
#include <unordered_map>
#include <utility>
#include <vector>

#include "hotloop/graph.h"

namespace hotloop {

namespace ir {
class LoopView;
}

class AxisAnalysis {
 public:
  // batch_axes: for each input the axis of the batch, or -1; these are one axis, even of inputs that never meet.
  explicit AxisAnalysis(const Graph& graph, std::span<const int> batch_axes = {});

  int axis_class(Value v, int axis) const;  // a number; equal for axes that run together
  int axis_in(Value v, int cls) const;      // the axis of v that belongs to the class, or -1
  std::int64_t extent(int cls) const;
  // True if the node, its regions included, mixes elements along the class in another way than by a sum.
  bool couples(const Node& node, int cls) const;
  bool contracts(const Node& node, int cls) const;  // sums over the class, regions included
  bool touches(const Node& node, int cls) const;    // some operand or result has the axis
  bool sums_products(int cls) const;                // of vectors, as the gradient of a matrix is one over a batch
  // The class with most work along it whose every node can be tiled; -1 if there is none worth it. A class that is summed over
  // must look like a batch (docs/decisions/0007): tiles change the order of these sums, which of one sample is fixed.
  int choose_tile_class(const Graph& graph) const;

 private:
  using NodeClass = std::pair<const Node*, int>;
  int base(Value v) const;
  int find(int x);
  void unite(Value a, int axis_a, Value b, int axis_b);
  void unite_all(Value a, Value b, int shift = 0);  // axis i of the one is axis i + shift of the other
  void visit(const Graph& graph);
  void visit(const Node& node);
  void visit_loop(const ir::LoopView& loop);
  void couple(const Node& node, Value v, int axis) { coupled_.insert({&node, base(v) + axis}); }
  void settle(const Graph& graph);  // once all axes are united
  void settle(const Node& node);
  std::set<int> classes_of(const Node& node) const;      // of its operands and results
  std::set<int> classes_met_by(const Node& node) const;  // that couples() holds for, or, of a loop, contracts()
  bool looks_like_batch(int cls, double work) const;

  std::unordered_map<const Node*, std::size_t> first_;  // of its results, in bases_
  std::vector<int> bases_;                              // the first axis of each value
  std::vector<int> parent_;                             // of each axis; once settled, its class
  std::vector<std::int64_t> extents_;
  std::set<NodeClass> coupled_, contracted_;  // with axes, once settled with classes
  std::set<NodeClass> couples_, contracts_;   // what couples() and contracts() hold for
  // What says whether an axis that is summed over is a batch (axes, then classes).
  std::set<int> lanes_;             // of a loop that ends for each by itself
  std::set<int> summed_products_;   // a sum of outer products: the gradient of a matrix
  std::set<int> in_dots_;           // of the result of a dot
  std::set<int> summed_to_arrays_;  // another sum that is of vectors and matrices, or leaves more than one number
};

// The class of the batch axes; -1 if no input has one.
int batch_class(const Graph& graph, const AxisAnalysis& axes, std::span<const int> batch_axes);
// The same, of a graph whose number of rows may vary. UserError unless the batch is the first axis of inputs and outputs,
// NeedsFixedRows unless every node treats its rows alone or sums over them.
int variable_batch_class(const Graph& graph, const AxisAnalysis& axes, std::span<const int> batch_axes);

}  // namespace hotloop
