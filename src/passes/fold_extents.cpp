// extent(x, axis) becomes a literal unless the axis may hold a variable number of rows. Which axes do is found from
// the batch axes of the inputs: an axis is fixed, holds the rows, or is new (made by a broadcast, iota or literal), and
// a new axis is what the axis it meets elementwise is; one that meets nothing is taken for rows when its extent is.
#include <algorithm>
#include <optional>

#include "core/index.h"
#include "ir/axis_links.h"
#include "passes/pass.h"

namespace hotloop::passes {
namespace {

enum class Axis : std::uint8_t { New, Fixed, Rows };
using Axes = std::vector<Axis>;

Axis joined(Axis a, Axis b) { return std::max(a, b); }
Axes joined(Axes a, const Axes& b) {
  for (std::size_t i = 0; i < a.size() && i < b.size(); ++i) a[i] = joined(a[i], b[i]);
  return a;
}

class Analysis {
 public:
  // The axes of every value of the graph, by ValueIndex.
  std::vector<Axes> graph(const Graph& g, const std::vector<Axes>& inputs) {
    const ir::ValueIndex index(g);
    std::vector<Axes> axes(static_cast<std::size_t>(index.size()));
    const auto of = [&](Value v) -> Axes& { return axes[static_cast<std::size_t>(index(v))]; };
    for (std::size_t i = 0; i < inputs.size(); ++i) of(g.inputs()[i]) = inputs[i];
    for (const auto& node : g.nodes()) {
      if (node->op->kind == ir::OpKind::Input) continue;
      std::vector<Axes> operands;
      for (const Value& v : node->operands) operands.push_back(of(v));
      const std::vector<Axes> results = rule(*node, operands);
      for (std::size_t i = 0; i < results.size(); ++i) of(node->result(static_cast<int>(i))) = results[i];
    }
    return axes;
  }

  std::vector<Axes> loop_inputs(const ir::LoopView& loop, const std::vector<Axes>& operands) {
    std::vector<Axes> inputs(operands.begin(), operands.begin() + loop.num_carry() + loop.num_xs() + loop.num_consts());
    for (int i = 0; i < loop.num_xs(); ++i) {
      Axes& xs = inputs[static_cast<std::size_t>(loop.num_carry() + i)];
      if (!xs.empty()) xs.erase(xs.begin());
    }
    for (bool grew = true; grew;) {
      grew = false;
      const std::vector<Axes> out = outputs(loop.body(), inputs);
      for (int i = 0; i < loop.num_carry(); ++i) {
        Axes& carry = inputs[static_cast<std::size_t>(i)];
        const Axes next = joined(carry, out[static_cast<std::size_t>(i)]);
        grew = grew || next != carry;
        carry = next;
      }
    }
    return inputs;
  }

 private:
  std::vector<Axes> outputs(const Graph& g, const std::vector<Axes>& inputs) {
    const std::vector<Axes> axes = graph(g, inputs);
    const ir::ValueIndex index(g);
    std::vector<Axes> result;
    for (const Value& v : g.outputs()) result.push_back(axes[static_cast<std::size_t>(index(v))]);
    return result;
  }

  std::vector<Axes> rule(const Node& node, const std::vector<Axes>& in) {
    const auto new_axes = [&](std::size_t i) { return Axes(at(node.types[i].shape.rank()), Axis::New); };
    if (ir::is(node, ir::OpKind::Call)) return outputs(*node.regions[0], in);
    if (ir::is(node, ir::OpKind::Loop)) {
      const ir::LoopView loop(node);
      const std::vector<Axes> out = outputs(loop.body(), loop_inputs(loop, in));
      std::vector<Axes> results;
      for (int i = 0; i < loop.num_carry(); ++i) results.push_back(joined(in[at(i)], out[at(i)]));
      for (int i = 0; i < loop.num_ys(); ++i) {
        Axes ys = out[at(loop.num_carry() + i)];
        ys.insert(ys.begin(), Axis::Fixed);
        results.push_back(ys);
      }
      results.push_back(new_axes(node.types.size() - 1));
      return results;
    }
    Axes result = new_axes(0);
    for (const ir::AxisLink& link : ir::axis_links(node))
      if (link.axis >= 0 && link.to >= 0 && link.to < node.types[0].shape.rank())
        result[at(link.to)] = joined(result[at(link.to)], in[at(link.operand)][at(link.axis)]);
    return {result};
  }
};

class Folder {
 public:
  explicit Folder(const PassOptions& options) : options_(options) {}

  std::shared_ptr<const Graph> graph(const Graph& g, const std::vector<Axes>& inputs) {
    const std::vector<Axes> axes = options_.variable_rows ? analysis_.graph(g, inputs) : std::vector<Axes>{};
    const ir::ValueIndex index(g);
    const auto of = [&](Value v) { return options_.variable_rows ? axes[static_cast<std::size_t>(index(v))] : Axes{}; };
    ir::Rebuild rebuild(g);
    bool changed = false;
    for (const auto& node : g.nodes()) {
      if (node->op->kind == ir::OpKind::Input) continue;
      if (node->op->kind == ir::OpKind::Extent && folds(*node, of(node->operands[0]))) {
        const auto extent = node->operands[0].shape()[static_cast<int>(node->attrs.integer("axis"))];
        const Array value = Array::full(node->types[0].dtype, Shape{}, static_cast<double>(extent));
        rebuild.map().set(node->result(), rebuild.to().append(ir::op("constant"), {}, {{"value", value}})->result());
        changed = true;
        continue;
      }
      auto regions = node->regions;
      for (std::size_t i = 0; i < regions.size(); ++i) {
        std::vector<Axes> in;
        for (const Value& v : node->operands) in.push_back(of(v));
        if (options_.variable_rows && node->op->kind == ir::OpKind::Loop) {
          const ir::LoopView loop(*node);
          in = analysis_.loop_inputs(loop, in);
          if (i == 1) in.erase(in.begin() + loop.num_carry(), in.begin() + loop.num_carry() + loop.num_xs());
        } else {
          in.resize(regions[i]->inputs().size());
        }
        if (auto result = graph(*regions[i], in)) {
          regions[i] = result;
          changed = true;
        }
      }
      rebuild.copy(*node, std::move(regions));
    }
    return changed ? rebuild.finish() : nullptr;
  }

 private:
  bool folds(const Node& node, const Axes& axes) const {
    if (!options_.variable_rows) return true;
    const auto axis = static_cast<std::size_t>(node.attrs.integer("axis"));
    if (axes[axis] == Axis::New) return !options_.may_vary(node.operands[0].shape()[static_cast<int>(axis)]);
    return axes[axis] == Axis::Fixed;
  }

  const PassOptions& options_;
  Analysis analysis_;
};

std::vector<Axes> input_axes(const Graph& graph, const PassOptions& options) {
  std::vector<Axes> inputs;
  for (std::size_t i = 0; i < graph.inputs().size(); ++i) {
    Axes axes(static_cast<std::size_t>(graph.inputs()[i].rank()), Axis::Fixed);
    if (i < options.batch_axes.size() && options.batch_axes[i] >= 0)
      axes[static_cast<std::size_t>(options.batch_axes[i])] = Axis::Rows;
    inputs.push_back(std::move(axes));
  }
  return inputs;
}

}  // namespace

Pass fold_extents() {
  return {"fold_extents", "extents that no call can change become literals", true,
          [](const Graph& graph, const PassOptions& options) {
            return Folder(options).graph(graph, input_axes(graph, options));
          }};
}

}  // namespace hotloop::passes
