#include "ir/result_axis.h"

#include <algorithm>
#include <cstdint>
#include <vector>

#include "ir/op_def.h"

namespace hotloop::ir {
namespace {

bool contains(const std::vector<std::int64_t>& axes, int axis) { return std::ranges::find(axes, axis) != axes.end(); }

// Axes of `shape` before `axis` that are not in `gone`.
int kept_before(int axis, const std::vector<std::int64_t>& gone) {
  int kept = 0;
  for (int i = 0; i < axis; ++i) kept += !contains(gone, i);
  return kept;
}

}  // namespace

int result_axis(const Node& node, int k, int axis) {
  constexpr int mixed = -1;
  const Shape& in = node.operands[static_cast<std::size_t>(k)].shape();
  const Shape& out = node.types[0].shape;
  const auto at = [&](const char* name, int i) { return node.attrs.integers(name)[static_cast<std::size_t>(i)]; };
  switch (node.op->kind) {
    case OpKind::Elementwise:
    case OpKind::StopGradient: return axis;
    case OpKind::Reshape: {
      // The axis survives where as many elements lie before it as did.
      std::int64_t before = 1, out_before = 1;
      for (int i = 0; i < axis; ++i) before *= in[i];
      for (int i = 0; i < out.rank(); out_before *= out[i++])
        if (out_before == before && out[i] == in[axis]) return i;
      return mixed;
    }
    case OpKind::Transpose: {
      const auto& p = node.attrs.integers("permutation");
      return static_cast<int>(std::ranges::find(p, axis) - p.begin());
    }
    case OpKind::Broadcast: return static_cast<int>(at("axes", axis));
    case OpKind::Slice:
    case OpKind::DynamicSlice: return in[axis] == out[axis] ? axis : mixed;
    case OpKind::Pad: return k == 0 && in[axis] == out[axis] ? axis : mixed;
    case OpKind::DynamicUpdate: return in[axis] == out[axis] ? axis : mixed;
    case OpKind::Concat: return axis == node.attrs.integer("axis") ? mixed : axis;
    case OpKind::Reverse: return contains(node.attrs.integers("axes"), axis) ? mixed : axis;
    case OpKind::Windows: {
      const auto split = node.attrs.integer("axis");
      return axis == split ? mixed : axis < split ? axis : axis + 1;
    }
    case OpKind::Gather: {
      const int taken = static_cast<int>(node.attrs.integer("axis")), lanes = num_lane_axes(node.attrs);
      if (k == 1) return axis < lanes ? axis : taken + axis - lanes;
      return axis == taken ? mixed : axis < taken ? axis : axis + node.operands[1].rank() - lanes - 1;
    }
    case OpKind::ScatterAdd: {
      if (k == 0) return axis;
      const int lanes = num_lane_axes(node.attrs);
      if (k == 1) return axis < lanes ? axis : mixed;
      const int first = static_cast<int>(node.attrs.integer("axis")), last = first + node.operands[1].rank() - lanes;
      return axis < first ? axis : axis < last ? mixed : axis - (last - first) + 1;
    }
    case OpKind::Reduce: {
      const auto& gone = node.attrs.integers("axes");
      return contains(gone, axis) ? mixed : kept_before(axis, gone);
    }
    case OpKind::Dot: {
      const auto& batch = node.attrs.integers(k == 0 ? "lhs_batch" : "rhs_batch");
      const auto& contract = node.attrs.integers(k == 0 ? "lhs_contract" : "rhs_contract");
      if (contains(contract, axis)) return mixed;
      if (contains(batch, axis)) return static_cast<int>(std::ranges::find(batch, axis) - batch.begin());
      std::vector<std::int64_t> used = batch;
      used.insert(used.end(), contract.begin(), contract.end());
      const int num_batch = static_cast<int>(batch.size());
      if (k == 0) return num_batch + kept_before(axis, used);
      const int lhs_free = node.operands[0].rank() - num_batch - static_cast<int>(contract.size());
      return num_batch + lhs_free + kept_before(axis, used);
    }
    default: return mixed;
  }
}

}  // namespace hotloop::ir
