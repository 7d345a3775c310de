// extent(x, axis) becomes a literal unless the axis may hold a variable number of rows. Which axes do is found from
// the batch axes of the inputs: an axis is fixed, holds the rows, or is new (made by a broadcast, iota or literal), and
// a new axis is what the axis it meets elementwise is; one that meets nothing is taken for rows when its extent is.
#include <algorithm>
#include <optional>

#include "hotloop/error.h"
#include "ops/rules/arguments.h"
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
Axis any_of(const Axes& axes) {
  Axis result = Axis::New;
  for (Axis a : axes) result = joined(result, a);
  return result;
}

// Groups of axes with equal products on both sides: a row axis makes its whole group one.
Axes reshaped(const Axes& axes, const Shape& from, const Shape& to) {
  Axes result(static_cast<std::size_t>(to.rank()), Axis::New);
  int i = 0, k = 0;
  while (i < from.rank() || k < to.rank()) {
    const int i0 = i, k0 = k;
    std::int64_t left = 1, right = 1;
    do {
      if (i < from.rank() && (left <= right || k >= to.rank()))
        left *= from[i++];
      else
        right *= to[k++];
    } while (left != right && (i < from.rank() || k < to.rank()));
    const Axis kind = any_of(Axes(axes.begin() + i0, axes.begin() + i));
    std::fill(result.begin() + k0, result.begin() + k, kind);
  }
  return result;
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

  static Axes taken(const Axes& x, const std::vector<std::int64_t>& which) {
    Axes result;
    for (std::int64_t axis : which) result.push_back(x[static_cast<std::size_t>(axis)]);
    return result;
  }

  std::vector<Axes> rule(const Node& node, const std::vector<Axes>& in) {
    using ir::OpKind;
    const Attrs& a = node.attrs;
    const auto rank = [&](int i) { return node.types[static_cast<std::size_t>(i)].shape.rank(); };
    switch (node.op->kind) {
      case OpKind::Elementwise: {
        Axes result(static_cast<std::size_t>(rank(0)), Axis::New);
        for (const Axes& x : in) result = joined(result, x);
        return {result};
      }
      case OpKind::StopGradient:
      case OpKind::Slice:
      case OpKind::Pad:
      case OpKind::Reverse:
      case OpKind::DynamicSlice: return {in[0]};
      case OpKind::DynamicUpdate: return {joined(in[0], in[1])};
      case OpKind::Concat: {
        Axes result = in[0];
        for (const Axes& x : in) result = joined(result, x);
        return {result};
      }
      case OpKind::Reshape: return {reshaped(in[0], node.operands[0].shape(), node.types[0].shape)};
      case OpKind::Transpose: return {taken(in[0], a.integers("permutation"))};
      case OpKind::Broadcast: {
        Axes result(static_cast<std::size_t>(rank(0)), Axis::New);
        const auto& axes = a.integers("axes");
        for (std::size_t i = 0; i < axes.size(); ++i) result[static_cast<std::size_t>(axes[i])] = in[0][i];
        return {result};
      }
      case OpKind::Constant:
      case OpKind::Iota:
      case OpKind::RandomBits:
      case OpKind::Extent: return {Axes(static_cast<std::size_t>(rank(0)), Axis::New)};
      case OpKind::Reduce: return {taken(in[0], ir::other_axes(node.operands[0].rank(), a.integers("axes")))};
      case OpKind::ArgMax: {
        const std::int64_t axis[] = {a.integer("axis")};
        return {taken(in[0], ir::other_axes(node.operands[0].rank(), axis))};
      }
      case OpKind::Dot: {
        const auto free = [&](int side, const char* contract, const char* batch) {
          std::vector<std::int64_t> used = a.integers(contract);
          used.insert(used.end(), a.integers(batch).begin(), a.integers(batch).end());
          return taken(in[static_cast<std::size_t>(side)],
                       ir::other_axes(node.operands[static_cast<std::size_t>(side)].rank(), used));
        };
        Axes result = joined(taken(in[0], a.integers("lhs_batch")), taken(in[1], a.integers("rhs_batch")));
        const Axes left = free(0, "lhs_contract", "lhs_batch"), right = free(1, "rhs_contract", "rhs_batch");
        result.insert(result.end(), left.begin(), left.end());
        result.insert(result.end(), right.begin(), right.end());
        return {result};
      }
      case OpKind::Loop: {
        const ir::LoopView loop(node);
        const std::vector<Axes> out = outputs(loop.body(), loop_inputs(loop, in));
        std::vector<Axes> results;
        for (int i = 0; i < loop.num_carry(); ++i)
          results.push_back(joined(in[static_cast<std::size_t>(i)], out[static_cast<std::size_t>(i)]));
        for (int i = 0; i < loop.num_ys(); ++i) {
          Axes ys = out[static_cast<std::size_t>(loop.num_carry() + i)];
          ys.insert(ys.begin(), Axis::Fixed);
          results.push_back(ys);
        }
        results.emplace_back(static_cast<std::size_t>(rank(static_cast<int>(node.types.size()) - 1)), Axis::New);
        return results;
      }
      case OpKind::Call: return outputs(*node.regions[0], in);
      case OpKind::Gather: {  // x[:axis] + indices[lanes:] + x[axis + 1:]
        const auto axis = static_cast<std::ptrdiff_t>(a.integer("axis"));
        const int lanes = ir::num_lane_axes(a);
        Axes result = in[0];
        result.erase(result.begin() + axis);
        result.insert(result.begin() + axis, in[1].begin() + lanes, in[1].end());
        return {joined(result, Axes(in[1].begin(), in[1].begin() + lanes))};
      }
      case OpKind::ScatterAdd: {  // updates as the result of that gather, which the table meets elsewhere
        const auto axis = static_cast<std::ptrdiff_t>(a.integer("axis"));
        const auto indices = static_cast<std::ptrdiff_t>(in[1].size()) - ir::num_lane_axes(a);
        Axes as_table = in[2];
        as_table.erase(as_table.begin() + axis, as_table.begin() + axis + indices);
        as_table.insert(as_table.begin() + axis, Axis::New);
        return {joined(in[0], as_table)};
      }
      case OpKind::Windows: {  // an axis becomes (position, place in the window)
        Axes result = in[0];
        result.insert(result.begin() + static_cast<std::ptrdiff_t>(a.integer("axis")) + 1, Axis::Fixed);
        return {result};
      }
      case OpKind::Input: break;
    }
    throw InternalError(__FILE__, __LINE__, "fold_extents has no rule for '" + node.op->name + "'");
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
