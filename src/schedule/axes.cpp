#include "schedule/axes.h"

#include <algorithm>

#include "hotloop/error.h"
#include "ir/op_def.h"
#include "schedule/reshape_groups.h"

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
}

int AxisAnalysis::base(Value v) const {
  const auto it = base_.find({v.node, v.index});
  HOTLOOP_CHECK(it != base_.end(), "axis analysis: unknown value");
  return it->second;
}

int AxisAnalysis::find(int x) const {
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

void AxisAnalysis::visit(const Graph& graph) {
  for (const auto& node : graph.nodes()) {
    for (int i = 0; i < static_cast<int>(node->types.size()); ++i) {
      base_[{node.get(), i}] = static_cast<int>(parent_.size());
      for (std::int64_t d : node->types[static_cast<std::size_t>(i)].shape.dims()) {
        parent_.push_back(static_cast<int>(parent_.size()));
        extents_.push_back(d);
      }
    }
    visit(*node);
  }
}

void AxisAnalysis::visit(const Node& node) {
  const Value out{const_cast<Node*>(&node), 0};
  const auto& in = node.operands;
  const auto all_axes = [&](Value a, Value b) {
    for (int i = 0; i < a.rank(); ++i) unite(a, i, b, i);
  };
  switch (node.op->kind) {
    case OpKind::Input:
    case OpKind::Constant:
    case OpKind::Iota:
    case OpKind::Extent: break;
    case OpKind::RandomBits:
      for (int i = 0; i < in[0].rank(); ++i) couple(node, in[0], i);  // every word comes from the whole key
      break;
    case OpKind::Elementwise:
    case OpKind::StopGradient:
      for (const Value& v : in) all_axes(v, out);
      break;
    case OpKind::Reshape:
      for (const ReshapeGroup& g : reshape_groups(in[0].shape(), out.shape())) {
        if (g.in.size() == 1 && g.out.size() == 1) {
          unite(in[0], g.in[0], out, g.out[0]);
          continue;
        }
        for (int a : g.in) couple(node, in[0], a);
        for (int a : g.out) couple(node, out, a);
      }
      for (const auto& [from, to] : matched_ones(in[0].shape(), out.shape())) unite(in[0], from, out, to);
      break;
    case OpKind::Transpose: {
      const auto& p = node.attrs.integers("permutation");
      for (int i = 0; i < out.rank(); ++i) unite(out, i, in[0], static_cast<int>(p[static_cast<std::size_t>(i)]));
      break;
    }
    case OpKind::Broadcast: {
      const auto& axes = node.attrs.integers("axes");
      for (int i = 0; i < in[0].rank(); ++i) unite(in[0], i, out, static_cast<int>(axes[static_cast<std::size_t>(i)]));
      break;
    }
    case OpKind::Slice:
    case OpKind::Pad:
    case OpKind::DynamicSlice:
    case OpKind::DynamicUpdate: {
      const Value x = in[0];
      for (int i = 0; i < out.rank(); ++i) {
        // A same-sized result of any of these is the identity along the axis (a dynamic start is clamped to 0).
        bool same = x.shape()[i] == out.shape()[i];
        if (node.op->kind == OpKind::DynamicUpdate) {
          same = in[1].shape()[i] == x.shape()[i];
          unite(x, i, out, i);
          if (same)
            unite(in[1], i, out, i);
          else
            couple(node, in[1], i);
        } else if (same) {
          unite(x, i, out, i);
        }
        if (!same) {
          couple(node, x, i);
          couple(node, out, i);
        }
      }
      // Lanes start elsewhere each.
      const bool runs = node.op->kind == OpKind::DynamicSlice || node.op->kind == OpKind::DynamicUpdate;
      for (std::size_t k = node.op->kind == OpKind::DynamicUpdate ? 2 : 1; runs && k < in.size(); ++k)
        for (int i = 0; i < in[k].rank(); ++i) unite(in[k], i, out, i);
      break;
    }
    case OpKind::Concat: {
      const int axis = static_cast<int>(node.attrs.integer("axis"));
      for (const Value& v : in)
        for (int i = 0; i < out.rank(); ++i)
          if (i != axis)
            unite(v, i, out, i);
          else
            couple(node, v, i);
      couple(node, out, axis);
      break;
    }
    case OpKind::Reverse: {
      const auto& axes = node.attrs.integers("axes");
      for (int i = 0; i < out.rank(); ++i) {
        unite(in[0], i, out, i);
        if (std::ranges::find(axes, i) != axes.end()) couple(node, out, i);
      }
      break;
    }
    case OpKind::Windows: {
      const int axis = static_cast<int>(node.attrs.integer("axis"));
      for (int i = 0; i < in[0].rank(); ++i)
        if (i != axis) unite(in[0], i, out, i < axis ? i : i + 1);
      couple(node, in[0], axis);
      couple(node, out, axis);
      couple(node, out, axis + 1);
      break;
    }
    case OpKind::Gather:
    case OpKind::ScatterAdd: {
      // gather: out[i..., rest] = x[index[i...], rest]; scatter_add: operands x, index, updates; out like x. Lanes lead in all of them.
      const bool scatter = node.op->kind == OpKind::ScatterAdd;
      const int axis = static_cast<int>(node.attrs.integer("axis")), lanes = ir::num_lane_axes(node.attrs);
      const Value x = in[0], index = in[1], long_one = scatter ? in[2] : out;
      for (int i = 0; i < x.rank(); ++i) {
        if (scatter) unite(x, i, out, i);
        if (i == axis)
          couple(node, x, i);
        else
          unite(x, i, long_one, i < axis ? i : i + index.rank() - lanes - 1);
      }
      for (int i = 0; i < lanes; ++i) unite(index, i, x, i);
      for (int i = lanes; i < index.rank(); ++i) {
        unite(index, i, long_one, axis + i - lanes);
        if (scatter) contracted_.insert({&node, base(index) + i});
      }
      break;
    }
    case OpKind::Reduce:
    case OpKind::ArgMax: {
      std::vector<std::int64_t> axes;
      if (node.op->kind == OpKind::ArgMax)
        axes = {node.attrs.integer("axis")};
      else
        axes = node.attrs.integers("axes");
      const bool is_sum = node.op->name == "reduce_sum";
      for (int i = 0, o = 0; i < in[0].rank(); ++i) {
        if (std::ranges::find(axes, i) == axes.end())
          unite(in[0], i, out, o++);
        else if (is_sum) {
          contracted_.insert({&node, base(in[0]) + i});
          if (out.shape().size() > 1) summed_to_arrays_.insert(base(in[0]) + i);
        } else
          couple(node, in[0], i);
      }
      break;
    }
    case OpKind::Dot: {
      const auto& lc = node.attrs.integers("lhs_contract");
      const auto& rc = node.attrs.integers("rhs_contract");
      const auto& lb = node.attrs.integers("lhs_batch");
      const auto& rb = node.attrs.integers("rhs_batch");
      int o = 0;
      for (std::size_t i = 0; i < lb.size(); ++i) {
        unite(in[0], static_cast<int>(lb[i]), out, o);
        unite(in[1], static_cast<int>(rb[i]), out, o++);
      }
      for (int side = 0; side < 2; ++side) {
        const auto& contract = side == 0 ? lc : rc;
        const auto& batch = side == 0 ? lb : rb;
        const Value v = in[static_cast<std::size_t>(side)];
        for (int i = 0; i < v.rank(); ++i)
          if (std::ranges::find(contract, i) == contract.end() && std::ranges::find(batch, i) == batch.end())
            unite(v, i, out, o++);
      }
      const auto free_points = [](Value v, const auto& contract, const auto& batch) {
        std::int64_t points = v.shape().size();
        for (const auto* axes : {&contract, &batch})
          for (const std::int64_t a : *axes) points /= std::max<std::int64_t>(v.shape()[static_cast<int>(a)], 1);
        return points;
      };
      const bool of_matrices = free_points(in[0], lc, lb) > 1 && free_points(in[1], rc, rb) > 1;
      for (std::size_t i = 0; i < lc.size(); ++i) {
        const int axis = base(in[0]) + static_cast<int>(lc[i]);
        unite(in[0], static_cast<int>(lc[i]), in[1], static_cast<int>(rc[i]));
        contracted_.insert({&node, axis});
        (of_matrices ? summed_products_ : summed_to_arrays_).insert(axis);
      }
      for (int i = 0; i < out.rank(); ++i) in_dots_.insert(base(out) + i);
      break;
    }
    case OpKind::Loop: {
      for (const auto& region : node.regions) visit(*region);
      const auto num_carry = static_cast<std::size_t>(node.attrs.integer("num_carry"));
      const auto num_xs = static_cast<std::size_t>(node.attrs.integer("num_xs"));
      const auto num_consts = static_cast<std::size_t>(node.attrs.integer("num_consts"));
      const Graph& body = *node.regions[0];
      for (std::size_t i = 0; i < num_carry; ++i) {
        all_axes(in[i], body.inputs()[i]);
        all_axes(body.inputs()[i], body.outputs()[i]);
        all_axes(in[i], {out.node, static_cast<int>(i)});
      }
      for (std::size_t i = 0; i < num_xs; ++i) {
        const Value x = in[num_carry + i], slice = body.inputs()[num_carry + i];
        for (int a = 0; a < slice.rank(); ++a) unite(x, a + 1, slice, a);
        couple(node, x, 0);
      }
      for (std::size_t i = 0; i < num_consts; ++i)
        all_axes(in[num_carry + num_xs + i], body.inputs()[num_carry + num_xs + i]);
      for (std::size_t i = num_carry; i < body.outputs().size(); ++i) {
        const Value y = body.outputs()[i], stacked{out.node, static_cast<int>(i)};
        for (int a = 0; a < y.rank(); ++a) unite(stacked, a + 1, y, a);
        couple(node, stacked, 0);
      }
      if (node.regions.size() > 1) {
        const Graph& until = *node.regions[1];
        for (std::size_t i = 0; i < num_carry; ++i) all_axes(in[i], until.inputs()[i]);
        for (std::size_t i = 0; i < num_consts; ++i)
          all_axes(in[num_carry + num_xs + i], until.inputs()[num_carry + i]);
        const Value predicate = until.outputs()[0];
        const Value count{out.node, static_cast<int>(node.types.size()) - 1};
        for (int a = 0; a < predicate.rank(); ++a) {
          lanes_.insert(base(predicate) + a);
          unite(predicate, a, count, a);
          for (std::size_t i = 0; i < num_carry; ++i) unite(predicate, a, in[i], a);
        }
      }
      break;
    }
    case OpKind::Call: throw InternalError(__FILE__, __LINE__, "a call reached the schedule");
  }
}

int AxisAnalysis::axis_class(Value v, int axis) const { return find(base(v) + axis); }

int AxisAnalysis::axis_in(Value v, int cls) const {
  for (int i = 0; i < v.rank(); ++i)
    if (axis_class(v, i) == cls) return i;
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

bool AxisAnalysis::couples(const Node& node, int cls) const {
  return any_node(node, [&](const Node& n) {
    for (auto it = coupled_.lower_bound({&n, -1}); it != coupled_.end() && it->first == &n; ++it)
      if (find(it->second) == cls) return true;
    // A value with the class on two axes (an outer product of the batch with itself) cannot be cut.
    for (int i = 0; i < static_cast<int>(n.types.size()); ++i) {
      const Value v{const_cast<Node*>(&n), i};
      int seen = 0;
      for (int a = 0; a < v.rank(); ++a) seen += axis_class(v, a) == cls;
      if (seen > 1) return true;
    }
    return false;
  });
}

bool AxisAnalysis::contracts(const Node& node, int cls) const {
  return any_node(node, [&](const Node& n) {
    for (auto it = contracted_.lower_bound({&n, -1}); it != contracted_.end() && it->first == &n; ++it)
      if (find(it->second) == cls) return true;
    return false;
  });
}

bool AxisAnalysis::touches(const Node& node, int cls) const {
  for (const Value& v : node.operands)
    if (axis_in(v, cls) >= 0) return true;
  for (int i = 0; i < static_cast<int>(node.types.size()); ++i)
    if (axis_in({const_cast<Node*>(&node), i}, cls) >= 0) return true;
  return false;
}

bool AxisAnalysis::holds(const std::set<int>& axes, int cls) const {
  return std::ranges::any_of(axes, [&](int axis) { return find(axis) == cls; });
}

// Nothing in a graph says which axis its author meant by the batch. The width of one sample's layer is summed over as well, and its
// sums must not be cut. What only batches have: sums of outer products (gradients of matrices), loops that end for each element
// by itself, and much work on many elements that meet in no dot, or in nothing but single numbers, such as a loss.
bool AxisAnalysis::sums_products(int cls) const { return holds(summed_products_, cls); }

bool AxisAnalysis::looks_like_batch(int cls, double work) const {
  constexpr double much_work = 1e5;
  if (sums_products(cls) || holds(lanes_, cls)) return true;
  return work >= much_work && (!holds(in_dots_, cls) || !holds(summed_to_arrays_, cls));
}

int AxisAnalysis::choose_tile_class(const Graph& graph) const {
  std::map<int, double> work, work_everywhere;  // the second: also where elements of the axis meet
  // Of arrays that have the axis; that have it as their last one; as their last one and a shorter one than the rest is long.
  std::map<int, double> numbers, numbers_as_last, numbers_as_short_last;
  double all_work = 0;
  const auto classes_of = [&](const Node& node) {
    std::set<int> classes;
    for (int i = 0; i < static_cast<int>(node.types.size()); ++i)
      for (int a = 0; a < node.types[static_cast<std::size_t>(i)].shape.rank(); ++a)
        classes.insert(axis_class({const_cast<Node*>(&node), i}, a));
    for (const Value& v : node.operands)
      for (int a = 0; a < v.rank(); ++a) classes.insert(axis_class(v, a));
    return classes;
  };
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
    std::erase_if(classes, [&](int cls) {
      return couples(*node, cls) || (node->op->kind == OpKind::Loop && contracts(*node, cls));
    });
    add_work(add_work, *node, classes, 1);
  }
  // Along an axis that nothing sums over or couples, and that every output or most of the work has, the program is a map: that is
  // the batch of an inference program, and taken however small it is. (A state that only counts the steps lacks it.) Another axis
  // in its place would make a row's sums depend on the number of rows.
  constexpr double most = 0.5;
  std::set<int> met;  // classes that some node couples or contracts
  for (const auto& node : graph.nodes())
    any_node(*node, [&](const Node& n) {
      for (const auto* axes : {&coupled_, &contracted_})
        for (auto it = axes->lower_bound({&n, -1}); it != axes->end() && it->first == &n; ++it)
          met.insert(find(it->second));
      for (int i = 0; i < static_cast<int>(n.types.size()); ++i) {
        std::set<int> seen;
        const Value v{const_cast<Node*>(&n), i};
        for (int a = 0; a < v.rank(); ++a)
          if (const int cls = axis_class(v, a); !seen.insert(cls).second) met.insert(cls);
      }
      return false;
    });
  const auto is_mapped = [&](int cls, double flops) {
    const auto& outputs = graph.outputs();
    return (flops > most * all_work || std::ranges::all_of(outputs, [&](Value v) { return axis_in(v, cls) >= 0; })) &&
           std::ranges::any_of(outputs, [&](Value v) { return axis_in(v, cls) >= 0; }) && !met.contains(cls);
  };
  // A last axis is no batch but a layer's width, where another axis, whose elements meet (the bodies of which all pairs are looked at), has more work, or where
  // most arrays have many more rows (those of values and derivatives in one product, say) than it is long.
  double most_work = 0;
  for (const auto& [cls, flops] : work_everywhere) most_work = std::max(most_work, flops);
  const auto is_width = [&](int cls, double flops) {
    return numbers_as_short_last[cls] > most * numbers[cls] ||
           (most_work > flops * 1.0001 && numbers_as_last[cls] > most * numbers[cls]);
  };
  int best = -1;
  double best_work = 0;
  bool best_is_mapped = false;
  for (const auto& [cls, flops] : work) {
    const bool mapped = is_mapped(cls, flops);
    if (mapped < best_is_mapped || (mapped == best_is_mapped && flops <= best_work * 1.0001)) continue;
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

}  // namespace hotloop
