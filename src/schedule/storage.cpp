#include "schedule/storage.h"

#include <algorithm>

#include "core/reshape_groups.h"
#include "ir/op_def.h"

namespace hotloop {

using ir::OpKind;
using kernel::Affine;

Storage row_major(int buffer, const Shape& shape) {
  Storage s{buffer, 0, std::vector<std::int64_t>(static_cast<std::size_t>(shape.rank()))};
  std::int64_t stride = 1;
  for (int i = shape.rank() - 1; i >= 0; --i) {
    s.strides[static_cast<std::size_t>(i)] = stride;
    stride *= shape[i];
  }
  return s;
}

bool is_strided_view(const Node& node) {
  switch (node.op->kind) {
    case OpKind::Reshape:
    case OpKind::Transpose:
    case OpKind::Broadcast:
    case OpKind::Slice:
    case OpKind::Reverse:
    case OpKind::Windows:
    case OpKind::StopGradient: return true;
    default: return false;
  }
}

std::optional<Storage> view_through(const Node& node, const Storage& source) {
  const Shape& in = node.operands[0].shape();
  const Shape& out = node.types[0].shape;
  const auto at = [](const std::vector<std::int64_t>& v, int i) { return v[static_cast<std::size_t>(i)]; };
  Storage s = source;
  s.strides.assign(static_cast<std::size_t>(out.rank()), 0);
  const auto stride = [&](int axis) -> std::int64_t& { return s.strides[static_cast<std::size_t>(axis)]; };
  switch (node.op->kind) {
    case OpKind::StopGradient: return source;
    case OpKind::Transpose: {
      const auto& p = node.attrs.integers("permutation");
      for (int i = 0; i < out.rank(); ++i) stride(i) = source.strides[static_cast<std::size_t>(at(p, i))];
      return s;
    }
    case OpKind::Broadcast: {
      const auto& axes = node.attrs.integers("axes");
      for (int i = 0; i < in.rank(); ++i) stride(static_cast<int>(at(axes, i))) = at(source.strides, i);
      return s;
    }
    case OpKind::Slice: {
      const auto& start = node.attrs.integers("start");
      const auto& step = node.attrs.integers("step");
      for (int i = 0; i < out.rank(); ++i) {
        const std::int64_t by = step.empty() ? 1 : at(step, i);
        s.offset.constant += at(start, i) * at(source.strides, i);
        stride(i) = at(source.strides, i) * by;
      }
      return s;
    }
    case OpKind::Reverse: {
      s.strides = source.strides;
      for (std::int64_t axis : node.attrs.integers("axes")) {
        const int i = static_cast<int>(axis);
        s.offset.constant += (in[i] - 1) * at(source.strides, i);
        stride(i) = -at(source.strides, i);
      }
      return s;
    }
    case OpKind::Windows: {
      const int axis = static_cast<int>(node.attrs.integer("axis"));
      for (int i = 0; i < in.rank(); ++i)
        if (i != axis) stride(i < axis ? i : i + 1) = at(source.strides, i);
      stride(axis) = at(source.strides, axis) * node.attrs.integer("stride");
      stride(axis + 1) = at(source.strides, axis) * node.attrs.integer("dilation");
      return s;
    }
    case OpKind::Reshape:
      for (const ReshapeGroup& g : reshape_groups(in, out)) {
        // Axes of a group must form one contiguous run; then any split of it is a view.
        for (std::size_t i = 0; i + 1 < g.in.size(); ++i)
          if (at(source.strides, g.in[i]) != at(source.strides, g.in[i + 1]) * in[g.in[i + 1]]) return std::nullopt;
        std::int64_t run = at(source.strides, g.in.back());
        for (std::size_t i = g.out.size(); i-- > 0;) {
          stride(g.out[i]) = run;
          run *= out[g.out[i]];
        }
      }
      return s;
    default: return std::nullopt;
  }
}

std::optional<Storage> operand_place(const Node& node, const Storage& place) {
  const Shape &in = node.operands[0].shape(), &out = node.types[0].shape;
  const auto stride_of = [&](int axis) { return place.strides[static_cast<std::size_t>(axis)]; };
  Storage s = place;
  s.strides.assign(static_cast<std::size_t>(in.rank()), 0);
  if (node.op->kind == OpKind::Transpose) {
    const auto& p = node.attrs.integers("permutation");
    for (int i = 0; i < out.rank(); ++i)
      s.strides[static_cast<std::size_t>(p[static_cast<std::size_t>(i)])] = stride_of(i);
    return s;
  }
  if (node.op->kind != OpKind::Reshape) return std::nullopt;
  for (const ReshapeGroup& g : reshape_groups(in, out)) {
    // Axes of the result must be one run of memory; an axis of extent 1 is a part of any.
    std::int64_t run = -1, next = -1;
    for (std::size_t i = g.out.size(); i-- > 0;) {
      if (out[g.out[i]] == 1) continue;
      if (run < 0) run = next = stride_of(g.out[i]);
      if (stride_of(g.out[i]) != next) return std::nullopt;
      next *= out[g.out[i]];
    }
    if (run < 0) run = 1;
    for (std::size_t i = g.in.size(); i-- > 0;) {
      s.strides[static_cast<std::size_t>(g.in[i])] = run;
      run *= in[g.in[i]];
    }
  }
  return s;
}

}  // namespace hotloop
