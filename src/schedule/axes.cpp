#include "schedule/axes.h"

#include <algorithm>
#include <map>

#include "core/index.h"
#include "hotloop/error.h"
#include "hotloop/fixed_rows.h"
#include "ir/axis_links.h"
#include "ir/rewrite.h"

namespace hotloop {

using ir::OpKind;

AxisAnalysis::AxisAnalysis(const Graph& graph, std::span<const int> batch_axes) {
  visit(graph);
  Value first;
  int first_axis = 0;
  for (std::size_t i = 0; i < batch_axes.size(); ++i) {
    const Value input = graph.inputs()[i];
    const int axis = batch_axes[i];
    if (axis < 0) continue;
    if (axis >= input.rank())
      throw UserError("compile", "a batch axis must be an axis of its input",
                      "axis " + std::to_string(axis) + " of input " + std::to_string(i) + ", " + input.type().str());
    if (!first.defined()) {
      first = input;
      first_axis = axis;
    }
    if (input.shape()[axis] != first.shape()[first_axis])
      throw UserError("compile", "all batch axes must have the same extent",
                      first.type().str() + " and " + input.type().str());
    unite(first, first_axis, input, axis);
  }
  settle(graph);
}

namespace {

void insert_those_of(const Node& node, const std::set<std::pair<const Node*, int>>& all, std::set<int>& classes) {
  for (auto it = all.lower_bound({&node, -1}); it != all.end() && it->first == &node; ++it) classes.insert(it->second);
}

}  // namespace

// Nothing is united any more, so that questions need not search.
void AxisAnalysis::settle(const Graph& graph) {
  for (std::size_t axis = 0; axis < parent_.size(); ++axis) parent_[axis] = find(static_cast<int>(axis));
  const auto cls = [&](int axis) { return parent_[at(axis)]; };
  for (std::set<NodeClass>* all : {&coupled_, &contracted_}) {
    std::set<NodeClass> settled;
    for (const auto& [node, axis] : *all) settled.insert({node, cls(axis)});
    *all = std::move(settled);
  }
  for (std::set<int>* all : {&lanes_, &summed_products_, &in_dots_, &summed_to_arrays_}) {
    std::set<int> settled;
    for (const int axis : *all) settled.insert(cls(axis));
    *all = std::move(settled);
  }
  for (const auto& node : graph.nodes()) settle(*node);
}

void AxisAnalysis::settle(const Node& node) {
  std::set<int> couples, contracts;
  insert_those_of(node, coupled_, couples);
  insert_those_of(node, contracted_, contracts);
  // What makes or reads a value with the class on two axes (an outer product of the batch with itself, A + A^T) cannot be cut.
  const auto insert_twice = [&](Value v) {
    const int first = base(v), rank = v.rank();
    for (int a = 1; a < rank; ++a)
      for (int b = 0; b < a; ++b)
        if (parent_[at(first + a)] == parent_[at(first + b)]) couples.insert(parent_[at(first + a)]);
  };
  for (int i = 0; i < static_cast<int>(node.types.size()); ++i) insert_twice({const_cast<Node*>(&node), i});
  std::ranges::for_each(node.operands, insert_twice);
  for (const auto& region : node.regions)
    for (const auto& inner : region->nodes()) {
      if (!first_.contains(inner.get())) continue;  // of a call, which is inlined before its axes matter
      settle(*inner);
      insert_those_of(*inner, couples_, couples);
      insert_those_of(*inner, contracts_, contracts);
    }
  for (const int cls : couples) couples_.insert({&node, cls});
  for (const int cls : contracts) contracts_.insert({&node, cls});
}

int AxisAnalysis::base(Value v) const {
  const auto it = first_.find(v.node);
  HOTLOOP_CHECK(it != first_.end(), "axis analysis: unknown value");
  return bases_[it->second + at(v.index)];
}

int AxisAnalysis::find(int x) {
  while (parent_[static_cast<std::size_t>(x)] != x) {
    int& p = parent_[static_cast<std::size_t>(x)];
    p = parent_[static_cast<std::size_t>(p)];
    x = p;
  }
  return x;
}

void AxisAnalysis::unite(Value a, int axis_a, Value b, int axis_b) {
  const int x = find(base(a) + axis_a), y = find(base(b) + axis_b);
  if (x != y) parent_[static_cast<std::size_t>(std::max(x, y))] = std::min(x, y);
}

void AxisAnalysis::unite_all(Value a, Value b, int shift) {
  for (int i = 0; i < a.rank(); ++i) unite(a, i, b, i + shift);
}

void AxisAnalysis::visit(const Graph& graph) {
  for (const auto& node : graph.nodes()) {
    first_.emplace(node.get(), bases_.size());
    for (const ValueType& type : node->types) {
      bases_.push_back(static_cast<int>(parent_.size()));
      for (std::int64_t d : type.shape.dims()) {
        parent_.push_back(static_cast<int>(parent_.size()));
        extents_.push_back(d);
      }
    }
    visit(*node);
  }
}

void AxisAnalysis::visit(const Node& node) {
  if (ir::is(node, OpKind::Loop)) return visit_loop(ir::LoopView(node));
  const Value out{const_cast<Node*>(&node), 0};
  const std::vector<ir::AxisLink> links = ir::axis_links(node);
  std::map<int, std::pair<Value, int>> summed;  // what is summed over by its number: one of the axes
  for (const ir::AxisLink& link : links) {
    const Value in = node.operands[at(link.operand)];
    if (link.use == ir::AxisUse::Summed) {
      contracted_.insert({&node, base(in) + link.axis});
      const auto& [other, axis] = summed.try_emplace(link.to, in, link.axis).first->second;
      unite(other, axis, in, link.axis);
      continue;
    }
    if (link.use != ir::AxisUse::Mixed) unite(in, link.axis, out, link.to);
    if (link.use == ir::AxisUse::Same) continue;
    if (link.axis >= 0) couple(node, in, link.axis);
    if (link.to >= 0) couple(node, out, link.to);
  }
  // What looks_like_batch() asks.
  const bool is_dot = ir::is(node, OpKind::Dot);
  std::int64_t own_points[2] = {1, 1};  // of axes that only one factor of a dot has
  for (const ir::AxisLink& link : links)
    if (is_dot && link.use == ir::AxisUse::Same && at(link.to) >= node.attrs.integers("lhs_batch").size())
      own_points[link.operand] *= out.shape()[link.to];
  for (int i = 0; is_dot && i < out.rank(); ++i) in_dots_.insert(base(out) + i);
  if (is_dot || (ir::is(node, OpKind::Reduce) && out.shape().size() > 1))
    for (const auto& [number, axis] : summed)
      (own_points[0] > 1 && own_points[1] > 1 ? summed_products_ : summed_to_arrays_)
          .insert(base(axis.first) + axis.second);
}

void AxisAnalysis::visit_loop(const ir::LoopView& loop) {
  for (const auto& region : loop.node().regions) visit(*region);
  for (int i = 0; i < loop.num_carry(); ++i) {
    unite_all(loop.carry(i), loop.carry_in(i));
    unite_all(loop.carry_in(i), loop.carry_out(i));
    unite_all(loop.carry(i), loop.carry_result(i));
  }
  for (int i = 0; i < loop.num_xs(); ++i) {
    unite_all(loop.xs_in(i), loop.xs(i), 1);
    couple(loop.node(), loop.xs(i), 0);
  }
  for (int i = 0; i < loop.num_consts(); ++i) unite_all(loop.constant(i), loop.const_in(i));
  for (int i = 0; i < loop.num_ys(); ++i) {
    unite_all(loop.y_out(i), loop.ys_result(i), 1);
    couple(loop.node(), loop.ys_result(i), 0);
  }
  if (!loop.until()) return;
  for (int i = 0; i < loop.num_carry(); ++i) unite_all(loop.carry(i), loop.until_carry_in(i));
  for (int i = 0; i < loop.num_consts(); ++i) unite_all(loop.constant(i), loop.until_const_in(i));
  const Value predicate = loop.until()->outputs()[0];
  unite_all(predicate, loop.count_result());
  for (int a = 0; a < predicate.rank(); ++a) {
    lanes_.insert(base(predicate) + a);
    for (int i = 0; i < loop.num_carry(); ++i) unite(predicate, a, loop.carry(i), a);
  }
}

int AxisAnalysis::axis_class(Value v, int axis) const { return parent_[at(base(v) + axis)]; }

int AxisAnalysis::axis_in(Value v, int cls) const {
  const int first = base(v), rank = v.rank();
  for (int i = 0; i < rank; ++i)
    if (parent_[at(first + i)] == cls) return i;
  return -1;
}

std::int64_t AxisAnalysis::extent(int cls) const { return extents_[static_cast<std::size_t>(cls)]; }

namespace {

template <class F> bool any_node(const Node& node, const F& f) {
  if (f(node)) return true;
  for (const auto& region : node.regions)
    for (const auto& inner : region->nodes())
      if (any_node(*inner, f)) return true;
  return false;
}

}  // namespace

bool AxisAnalysis::couples(const Node& node, int cls) const { return couples_.contains({&node, cls}); }

bool AxisAnalysis::contracts(const Node& node, int cls) const { return contracts_.contains({&node, cls}); }

bool AxisAnalysis::touches(const Node& node, int cls) const {
  for (const Value& v : node.operands)
    if (axis_in(v, cls) >= 0) return true;
  for (int i = 0; i < static_cast<int>(node.types.size()); ++i)
    if (axis_in({const_cast<Node*>(&node), i}, cls) >= 0) return true;
  return false;
}

std::set<int> AxisAnalysis::classes_of(const Node& node) const {
  std::set<int> classes;
  const auto add = [&](Value v) {
    const int first = base(v), rank = v.rank();
    for (int a = 0; a < rank; ++a) classes.insert(parent_[at(first + a)]);
  };
  for (int i = 0; i < static_cast<int>(node.types.size()); ++i) add({const_cast<Node*>(&node), i});
  for (const Value& v : node.operands) add(v);
  return classes;
}

std::set<int> AxisAnalysis::classes_met_by(const Node& node) const {
  std::set<int> met;
  insert_those_of(node, couples_, met);
  if (node.op->kind == OpKind::Loop) insert_those_of(node, contracts_, met);
  return met;
}

// Nothing in a graph says which axis its author meant by the batch. The width of one sample's layer is summed over as well, and its
// sums must not be cut. What only batches have: sums of outer products (gradients of matrices), loops that end for each element
// by itself, and much work on many elements that meet in no dot, or in nothing but single numbers, such as a loss.
bool AxisAnalysis::sums_products(int cls) const { return summed_products_.contains(cls); }

bool AxisAnalysis::looks_like_batch(int cls, double work) const {
  constexpr double much_work = 1e5;
  if (sums_products(cls) || lanes_.contains(cls)) return true;
  return work >= much_work && (!in_dots_.contains(cls) || !summed_to_arrays_.contains(cls));
}

int AxisAnalysis::choose_tile_class(const Graph& graph) const {
  std::map<int, double> work, work_everywhere;  // the second: also where elements of the axis meet
  // Of arrays that have the axis; that have it as their first one; as their last one; as their last one and a shorter one than the rest is long.
  std::map<int, double> numbers, numbers_as_first, numbers_as_last, numbers_as_short_last;
  double all_work = 0;
  // The work of a loop belongs to the axes that its own operations have, as often as it runs.
  const auto add_work = [&](auto&& self, const Node& node, const std::set<int>& classes, double times) -> void {
    if (!ir::is(node, OpKind::Loop)) {
      const double flops = times * ir::estimate_flops(node);
      const std::set<int> own = classes_of(node);
      for (int cls : own) {
        work_everywhere[cls] += flops;
        if (classes.contains(cls)) work[cls] += flops;
      }
      const Value v{const_cast<Node*>(&node), 0};
      const double size = times * static_cast<double>(v.shape().size());
      for (int a = 0; v.rank() > 1 && a < v.rank(); ++a) numbers[axis_class(v, a)] += size;
      if (v.rank() > 1) {
        const int last = axis_class(v, v.rank() - 1);
        const std::int64_t length = v.shape()[v.rank() - 1];
        numbers_as_first[axis_class(v, 0)] += size;
        numbers_as_last[last] += size;
        if (v.shape().size() > length * length) numbers_as_short_last[last] += size;
      }
      return;
    }
    for (const auto& region : node.regions)
      for (const auto& inner : region->nodes())
        self(self, *inner, classes, times * static_cast<double>(node.attrs.integer("length")));
  };
  for (const auto& node : graph.nodes()) {
    if (node->op->kind == OpKind::Input || node->op->kind == OpKind::Constant) continue;
    all_work += ir::estimate_flops(*node);
    std::set<int> classes = classes_of(*node);
    const std::set<int> met_there = classes_met_by(*node);
    std::erase_if(classes, [&](int cls) { return met_there.contains(cls); });
    add_work(add_work, *node, classes, 1);
  }
  // Along an axis that nothing sums over or couples, and that every output or most of the work has, the program is a map: that is
  // the batch of an inference program, and taken however small it is. (A state that only counts the steps lacks it.) Another axis
  // in its place would make a row's sums depend on the number of rows.
  constexpr double most = 0.5;
  std::set<int> met;  // classes that some node couples or contracts
  for (const auto& node : graph.nodes())
    any_node(*node, [&](const Node& n) {
      for (const auto* all : {&coupled_, &contracted_}) insert_those_of(n, *all, met);
      for (int i = 0; i < static_cast<int>(n.types.size()); ++i) {
        std::set<int> seen;
        const Value v{const_cast<Node*>(&n), i};
        for (int a = 0; a < v.rank(); ++a)
          if (const int cls = axis_class(v, a); !seen.insert(cls).second) met.insert(cls);
      }
      return false;
    });
  std::map<int, std::size_t> num_outputs;  // that have an axis of the class
  for (const Value& v : graph.outputs()) {
    std::set<int> classes;
    for (int a = 0; a < v.rank(); ++a) classes.insert(axis_class(v, a));
    for (const int cls : classes) ++num_outputs[cls];
  }
  const auto is_mapped = [&](int cls, double flops) {
    const auto found = num_outputs.find(cls);
    const std::size_t num = found == num_outputs.end() ? 0 : found->second;
    return num > 0 && (flops > most * all_work || num == graph.outputs().size()) && !met.contains(cls);
  };
  // A last axis is no batch but a layer's width, where another axis, whose elements meet (the bodies of which all pairs are looked at), has more work, or where
  // most arrays have many more rows (those of values and derivatives in one product, say) than it is long.
  double most_work = 0;
  for (const auto& [cls, flops] : work_everywhere) most_work = std::max(most_work, flops);
  const auto is_width = [&](int cls, double flops) {
    return numbers_as_short_last[cls] > most * numbers[cls] ||
           (most_work > flops * 1.0001 && numbers_as_last[cls] > most * numbers[cls]);
  };
  std::set<int> coupled;
  for (const auto& [node, cls] : coupled_) coupled.insert(cls);
  const auto is_first = [&](int cls) { return numbers_as_first[cls] > most * numbers[cls]; };
  int best = -1;
  double best_work = 0;
  bool best_is_mapped = false;
  for (const auto& [cls, flops] : work) {
    const bool mapped = is_mapped(cls, flops);
    if (mapped < best_is_mapped || (mapped == best_is_mapped && flops * 1.0001 < best_work)) continue;
    // Of axes with the same work, samples are the one that comes first in what is computed of them, and that nothing couples.
    const bool is_tie = best >= 0 && mapped == best_is_mapped && flops <= best_work * 1.0001;
    if (is_tie && (is_first(best) || !is_first(cls) || coupled.contains(cls))) continue;
    if (!mapped && (!looks_like_batch(cls, flops) || is_width(cls, flops))) continue;
    best = cls;
    best_work = flops;
    best_is_mapped = mapped;
  }
  // An axis of little work, as of what comes before a long loop, is no batch: cutting it gains nothing and changes sums.
  constexpr double least_share = 0.1;
  if (!best_is_mapped && best_work < least_share * all_work) return -1;
  // A batch of one is still the batch: tiling another axis in its place would change the order of summation along that one.
  return best >= 0 && extent(best) > 1 ? best : -1;
}

int batch_class(const Graph& graph, const AxisAnalysis& axes, std::span<const int> batch_axes) {
  for (std::size_t i = 0; i < batch_axes.size(); ++i)
    if (batch_axes[i] >= 0) return axes.axis_class(graph.inputs()[i], batch_axes[i]);
  return -1;
}

int variable_batch_class(const Graph& graph, const AxisAnalysis& axes, std::span<const int> batch_axes) {
  for (std::size_t i = 0; i < batch_axes.size(); ++i)
    if (batch_axes[i] > 0)
      throw UserError("compile", "with a variable number of rows the batch must be the first axis",
                      "axis " + std::to_string(batch_axes[i]) + " of input " + std::to_string(i),
                      "transpose inside the function");
  const int cls = batch_class(graph, axes, batch_axes);
  if (cls < 0) return cls;
  for (const auto& node : graph.nodes())
    if (axes.couples(*node, cls))
      throw NeedsFixedRows(
          "compile",
          "with a variable number of rows every operation must treat the rows of the batch alone or sum over them",
          "operation '" + node->op->name + "' of type " + node->types[0].str(), "compile for a fixed batch");
  for (const Value& v : graph.outputs())
    if (const int axis = axes.axis_in(v, cls); axis > 0)
      throw UserError("compile", "with a variable number of rows the batch must be the first axis of every output",
                      "axis " + std::to_string(axis) + " of an output of type " + v.type().str(),
                      "transpose inside the function");
  return cls;
}

}  // namespace hotloop
