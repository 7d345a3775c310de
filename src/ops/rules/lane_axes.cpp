#include "ops/rules/lane_axes.h"

#include <algorithm>

#include "core/index.h"
#include "hotloop/error.h"
#include "hotloop/ops.h"
#include "ir/axis_links.h"

namespace hotloop::ir {
namespace {

// Applies the analysis to a graph; the table is by ValueIndex.
class Analysis {
 public:
  Analysis(const Graph& graph, const std::vector<Lanes>& inputs, int num_lanes)
      : graph_(graph), index_(graph), num_lanes_(num_lanes), table_(at(index_.size()), none()) {
    for (std::size_t i = 0; i < inputs.size(); ++i) set(graph.inputs()[i], inputs[i]);
    for (const auto& node : graph.nodes())
      if (!is(*node, OpKind::Input)) visit(*node);
  }
  std::vector<Lanes> take() { return std::move(table_); }
  std::vector<Lanes> outputs() const {
    std::vector<Lanes> all;
    for (const Value& v : graph_.outputs()) all.push_back(of(v));
    return all;
  }

 private:
  const Lanes& of(Value v) const { return table_[at(index_(v))]; }
  void set(Value v, Lanes lanes) { table_[at(index_(v))] = std::move(lanes); }
  Lanes none() const { return {std::vector<int>(at(num_lanes_), -1), true}; }
  Lanes unknown() const { return {std::vector<int>(at(num_lanes_), -1), false}; }

  // Of a value made of two, whose axes correspond.
  Lanes unite(const Lanes& a, const Lanes& b) const {
    if (!a.known || !b.known) return unknown();
    Lanes both = a;
    for (std::size_t k = 0; k < both.axes.size(); ++k) {
      if (b.axes[k] < 0) continue;
      if (both.axes[k] >= 0 && both.axes[k] != b.axes[k]) return unknown();
      both.axes[k] = b.axes[k];
    }
    return both;
  }
  // Axis a of the operand becomes axis move(a) of the result; a negative one says that it does not survive.
  template <class F> Lanes moved(const Lanes& lanes, F move) const {
    if (!lanes.known) return lanes;
    Lanes result = lanes;
    for (int& axis : result.axes) {
      if (axis < 0) continue;
      axis = move(axis);
      if (axis < 0) return unknown();
    }
    return result;
  }
  void visit(const Node& node) {
    if (is(node, OpKind::Loop)) return loop(LoopView(node));
    if (is(node, OpKind::Call)) {
      std::vector<Lanes> inputs;
      for (const Value& v : node.operands) inputs.push_back(of(v));
      const auto results = Analysis(*node.regions[0], inputs, num_lanes_).outputs();
      for (std::size_t i = 0; i < results.size(); ++i) set({const_cast<Node*>(&node), static_cast<int>(i)}, results[i]);
      return;
    }
    set({const_cast<Node*>(&node), 0}, result(node));
  }

  Lanes result(const Node& node) const {
    Lanes all = none();
    if (is(node, OpKind::Extent)) return all;  // reads no element
    const std::vector<AxisLink> links = axis_links(node);
    for (std::size_t k = 0; k < node.operands.size(); ++k)
      all = unite(all,
                  moved(of(node.operands[k]), [&](int axis) { return result_axis(links, static_cast<int>(k), axis); }));
    for (const AxisLink& link : links)  // values of lanes that say in which lane something goes
      if (link.axis < 0 && std::ranges::find(all.axes, link.to) != all.axes.end()) return unknown();
    return all;
  }

  void loop(const LoopView& loop) {
    std::vector<Lanes> inputs;
    for (int i = 0; i < loop.num_carry(); ++i) inputs.push_back(of(loop.carry(i)));
    for (int i = 0; i < loop.num_xs(); ++i) inputs.push_back(moved(of(loop.xs(i)), [](int a) { return a - 1; }));
    for (int i = 0; i < loop.num_consts(); ++i) inputs.push_back(of(loop.constant(i)));
    std::vector<Lanes> outputs;
    for (bool changed = true; changed;) {
      changed = false;
      outputs = Analysis(loop.body(), inputs, num_lanes_).outputs();
      for (int i = 0; i < loop.num_carry(); ++i) {
        const Lanes both = unite(inputs[at(i)], outputs[at(i)]);
        if (both == inputs[at(i)]) continue;
        inputs[at(i)] = both;
        changed = true;
      }
    }
    for (int i = 0; i < loop.num_carry(); ++i) set(loop.carry_result(i), inputs[at(i)]);
    for (int i = 0; i < loop.num_ys(); ++i)
      set(loop.ys_result(i), moved(outputs[at(loop.num_carry() + i)], [](int a) { return a + 1; }));
    Lanes count = none();
    if (loop.until() != nullptr) {
      std::vector<Lanes> arguments(inputs.begin(), inputs.begin() + loop.num_carry());
      arguments.insert(arguments.end(), inputs.end() - loop.num_consts(), inputs.end());
      count = Analysis(*loop.until(), arguments, num_lanes_).outputs()[0];
    }
    set(loop.count_result(), count);
  }

  const Graph& graph_;
  ValueIndex index_;
  int num_lanes_;
  std::vector<Lanes> table_;
};

}  // namespace

bool Lanes::any() const {
  return std::ranges::any_of(axes, [](int a) { return a >= 0; });
}

LaneAxes::LaneAxes(const Graph& graph, std::vector<Lanes> inputs)
    : index_(graph),
      table_(Analysis(graph, inputs, inputs.empty() ? 0 : static_cast<int>(inputs[0].axes.size())).take()) {}

std::int64_t LaneAxes::leading(Value v) const {
  const Lanes& lanes = of(v);
  std::int64_t mask = 0;
  int position = 0;
  for (int k = 0; k < static_cast<int>(lanes.axes.size()); ++k) {
    if (lanes.axes[at(k)] < 0) continue;
    if (lanes.axes[at(k)] != position++) return 0;
    mask |= std::int64_t{1} << k;
  }
  return lanes.known ? mask : 0;
}

bool LaneAxes::all_lead(Value v) const { return leading(v) == (std::int64_t{1} << of(v).axes.size()) - 1; }

Value LaneAxes::select_active(Value v, Value active, Value a, Value b) const {
  const Lanes& lanes = of(v);
  if (!lanes.known || !lanes.any()) return a;
  std::vector<std::int64_t> missing, order;
  std::vector<std::pair<int, int>> present;  // position in v, axis of the reduced `active`
  for (int k = 0; k < static_cast<int>(lanes.axes.size()); ++k) {
    if (lanes.axes[at(k)] < 0)
      missing.push_back(k);
    else
      present.emplace_back(lanes.axes[at(k)], static_cast<int>(present.size()));
  }
  if (!missing.empty()) {  // shared by several lanes: wanted while one of them is active
    const Value flags = reduce_max(cast(active, DType::I32), missing);
    active = greater(flags, zeros_like(flags));
  }
  std::ranges::sort(present);
  std::vector<std::int64_t> positions;
  for (const auto& [position, axis] : present) {
    positions.push_back(position);
    order.push_back(axis);
  }
  if (!std::ranges::is_sorted(order)) active = transpose(active, order);
  if (active.shape() != a.shape()) active = broadcast(active, a.shape(), positions);
  return select(active, a, b);
}

LaneAxes find_lane_axes(const Graph& body, const LoopView& loop) {
  const int num_lanes = loop.num_mask_axes();
  std::vector<Lanes> inputs;
  const auto add = [&](std::int64_t mask) {
    Lanes lanes{std::vector<int>(at(num_lanes), -1), true};
    int position = 0;
    for (int k = 0; k < num_lanes; ++k)
      if (mask >> k & 1) lanes.axes[at(k)] = position++;
    inputs.push_back(lanes);
  };
  for (int i = 0; i < loop.num_carry(); ++i) add(loop.laned_carry(i));
  for (int i = 0; i < loop.num_xs(); ++i) add(loop.laned_xs(i));
  for (int i = 0; i < loop.num_consts(); ++i) add(loop.laned_const(i));
  return LaneAxes(body, inputs);
}

}  // namespace hotloop::ir
