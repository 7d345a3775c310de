#include "transforms/row_program.h"

#include <algorithm>
#include <map>

#include "core/index.h"
#include "ir/axis_links.h"
#include "ir/resize.h"
#include "ir/rewrite.h"
#include "transforms/axis_flow.h"
#include "transforms/split.h"

namespace hotloop::ir {
namespace {

struct NotAlone {};  // rows meet

// Finds the axis of every value that runs with the rows, from one of them: what a node gives has rows where its operands have, and the
// other way round, until nothing is added.
class RowAxes {
 public:
  explicit RowAxes(std::int64_t rows) : rows_(rows) {}

  void mark(Value v, int axis) {
    if (axis < 0 || axis >= v.rank() || v.shape()[axis] != rows_) throw NotAlone{};
    const auto [it, fresh] = axes_.try_emplace({v.node, v.index}, axis);
    if (it->second != axis) throw NotAlone{};
    changed_ = changed_ || fresh;
  }
  int of(Value v) const {
    const auto it = axes_.find({v.node, v.index});
    return it == axes_.end() ? -1 : it->second;
  }
  void close(const Graph& graph) {
    // Against the order of the nodes first, as the mark of an output spreads, then along it: a sweep in one direction alone would
    // take a mark of the other one back by one node.
    backward_ = true;
    do {
      changed_ = false;
      sweep(graph);
      backward_ = !backward_;
    } while (changed_);
  }

  // The graph with one row in the place of all.
  std::shared_ptr<Graph> of_one_row(const Graph& graph) const {
    return resized(graph, [this](Value v) {
      Shape shape = v.shape();
      if (of(v) >= 0) shape[of(v)] = 1;
      return shape;
    });
  }

 private:
  void sweep(const Graph& graph) {
    const std::size_t size = graph.nodes().size();
    for (std::size_t i = 0; i < size; ++i) {
      const Node& node = *graph.nodes()[backward_ ? size - 1 - i : i];
      if (is(node, OpKind::Input)) continue;
      if (is(node, OpKind::Loop))
        loop(LoopView(node));
      else if (is(node, OpKind::Call))
        call(node);
      else
        through(node);
    }
  }

  // Axis i of the one is axis i + shift of the other.
  void link(Value a, Value b, int shift = 0) {
    if (of(b) >= 0) mark(a, of(b) - shift);
    if (of(a) >= 0) mark(b, of(a) + shift);
  }

  void through(const Node& node) {
    const auto result = [&](int i) { return Value{const_cast<Node*>(&node), i}; };
    if (node.types.size() != 1) {
      bool any = std::ranges::any_of(node.operands, [&](Value v) { return of(v) >= 0; });
      for (int i = 0; i < static_cast<int>(node.types.size()); ++i) any = any || of(result(i)) >= 0;
      if (any) throw NotAlone{};
      return;
    }
    if (is(node, OpKind::Extent)) {
      // How many rows there are, one does not know; how long another axis is, it does.
      if (of(node.operands[0]) == node.attrs.integer("axis")) throw NotAlone{};
      return;
    }
    const std::vector<AxisLink> links = axis_links(node);
    for (std::size_t k = 0; k < node.operands.size(); ++k)
      if (const int axis = of(node.operands[k]); axis >= 0)
        mark(result(0), result_axis(links, static_cast<int>(k), axis));
    const int axis = of(result(0));
    if (axis < 0) return;
    // A row is made of that row of what has rows, or is a repeat; the number of a row is not what one row makes.
    bool is_made = is(node, OpKind::Broadcast) || (is(node, OpKind::Iota) && node.attrs.integer("axis") != axis);
    for (const AxisLink& link : links) {
      if (link.to != axis) continue;
      if (link.use != AxisUse::Same) throw NotAlone{};
      mark(node.operands[at(link.operand)], link.axis);
      is_made = true;
    }
    if (!is_made) throw NotAlone{};
  }

  void loop(const LoopView& view) {
    const auto across = [&] {
      for (int i = 0; i < view.num_carry(); ++i) {
        link(view.carry_out(i), view.carry_result(i));
        link(view.carry_in(i), view.carry_out(i));
        link(view.carry(i), view.carry_in(i));
      }
      for (int i = 0; i < view.num_xs(); ++i) link(view.xs_in(i), view.xs(i), 1);
      for (int i = 0; i < view.num_ys(); ++i) link(view.y_out(i), view.ys_result(i), 1);
      for (int i = 0; i < view.num_consts(); ++i) link(view.constant(i), view.const_in(i));
    };
    across();
    sweep(view.body());
    across();  // in this sweep already: there may be many loops one behind the other
    if (!view.until() && !view.has_mask()) return;
    // Rows that end by themselves, or together.
    for (const Value& v : view.node().operands)
      if (of(v) >= 0) throw NotAlone{};
  }

  void call(const Node& node) {
    if (!is_plain_call(node)) {
      for (const Value& v : node.operands)
        if (of(v) >= 0) throw NotAlone{};
      for (int i = 0; i < static_cast<int>(node.types.size()); ++i)
        if (of({const_cast<Node*>(&node), i}) >= 0) throw NotAlone{};
      return;
    }
    const Graph& inner = *node.regions[0];
    const auto across = [&] {
      for (std::size_t i = 0; i < inner.inputs().size(); ++i) link(node.operands[i], inner.inputs()[i]);
      for (std::size_t i = 0; i < inner.outputs().size(); ++i)
        link(inner.outputs()[i], {const_cast<Node*>(&node), static_cast<int>(i)});
    };
    across();
    sweep(inner);
    across();
  }

  std::int64_t rows_;
  std::map<std::pair<const Node*, int>, int> axes_;
  bool changed_ = false, backward_ = true;
};

}  // namespace

std::optional<RowProgram> row_program(const Graph& graph, int input, int axis) {
  const Value x = graph.inputs()[static_cast<std::size_t>(input)], y = graph.outputs()[0];
  std::vector<bool> depends(graph.nodes().size());
  const auto depends_on_x = [&](Value v) { return depends[static_cast<std::size_t>(v.node->id)]; };
  depends[static_cast<std::size_t>(x.node->id)] = true;
  for (const auto& node : graph.nodes())
    if (std::ranges::any_of(node->operands, depends_on_x)) depends[static_cast<std::size_t>(node->id)] = true;
  if (!depends_on_x(y)) return std::nullopt;
  std::vector<Value> leaves;
  for (const auto& node : graph.nodes())
    if (depends[static_cast<std::size_t>(node->id)])
      for (const Value& v : node->operands)
        if (!depends_on_x(v) && std::ranges::find(leaves, v) == leaves.end()) leaves.push_back(v);

  RowProgram program;
  program.axis = axis;
  program.rows = y.shape()[axis];
  program.leaves = trace(
      [&](std::span<const Value> in) {
        ValueMap map(graph);
        for (std::size_t i = 0; i < in.size(); ++i) map.set(graph.inputs()[i], in[i]);
        return copy_needed(graph, map, leaves);
      },
      graph.input_types());
  std::vector<ValueType> types{x.type()};
  for (const Value& v : leaves) types.push_back(v.type());
  const auto rest = trace(
      [&](std::span<const Value> in) {
        ValueMap map(graph);
        map.set(x, in[0]);
        for (std::size_t i = 0; i < leaves.size(); ++i) map.set(leaves[i], in[i + 1]);
        return copy_needed(graph, map, {&y, 1});
      },
      types);
  try {
    RowAxes axes(program.rows);
    axes.mark(rest->outputs()[0], axis);
    axes.close(*rest);
    if (axes.of(rest->inputs()[0]) >= 0) return std::nullopt;
    bool any = false;
    for (std::size_t i = 0; i < leaves.size(); ++i) {
      program.row_axes.push_back(axes.of(rest->inputs()[i + 1]));
      any = any || program.row_axes.back() >= 0;
    }
    if (!any) return std::nullopt;
    program.one = axes.of_one_row(*rest);
  } catch (const NotAlone&) {
    return std::nullopt;
  }
  return program;
}

}  // namespace hotloop::ir
