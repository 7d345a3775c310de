#include "ops/rules/affine_places.h"

#include <algorithm>
#include <cmath>

#include "ir/op_def.h"

namespace hotloop::ir {
namespace {

std::size_t at(int axis) { return static_cast<std::size_t>(axis); }

using Places = std::optional<AffinePlaces>;

constexpr int most_nodes = 200;                 // that are looked at: what is read at many places is looked at as often
constexpr std::int64_t most_numbers = 1 << 20;  // of a constant that is looked through
// Of numbers: all dtypes hold them, and products of two, or of one and an extent, do not overflow before they are refused.
constexpr std::int64_t farthest = std::int64_t{1} << 30;

Places find(Value v, int& nodes_left);

bool is_uniform(const AffinePlaces& p) {
  return std::ranges::all_of(p.strides, [](std::int64_t s) { return s == 0; });
}

// What does not move the axes that are longer than one.
Places of_reshape(const Node& node, int& nodes_left) {
  const Places from = find(node.operands[0], nodes_left);
  if (!from) return {};
  const Shape &before = node.operands[0].shape(), &after = node.types[0].shape;
  AffinePlaces p{from->offset, std::vector<std::int64_t>(at(after.rank()))};
  int axis = 0;
  for (int i = 0; i < after.rank(); ++i) {
    if (after[i] == 1) continue;
    while (axis < before.rank() && before[axis] == 1) ++axis;
    if (axis == before.rank() || before[axis] != after[i]) return {};
    p.strides[at(i)] = from->strides[at(axis++)];
  }
  return p;
}

Places combined(const AffinePlaces& a, const AffinePlaces& b, std::int64_t sign) {
  AffinePlaces p = a;
  p.offset += sign * b.offset;
  for (std::size_t i = 0; i < p.strides.size(); ++i) p.strides[i] += sign * b.strides[i];
  return p;
}

Places times(const AffinePlaces& a, std::int64_t factor) {
  AffinePlaces p = a;
  p.offset *= factor;
  for (std::int64_t& s : p.strides) s *= factor;
  return p;
}

// Whether a comparison holds everywhere, or nowhere; nothing where neither is known.
std::optional<bool> truth(Value v, int& nodes_left) {
  const Node& node = *v.node;
  if (is(node, OpKind::Broadcast) || is(node, OpKind::Reshape)) return truth(node.operands[0], nodes_left);
  if (!is(node, OpKind::Elementwise) || node.operands.size() != 2 || !is_integer(node.operands[0].dtype())) return {};
  const Places a = find(node.operands[0], nodes_left), b = find(node.operands[1], nodes_left);
  if (!a || !b) return {};
  const Shape& shape = v.shape();
  const AffinePlaces difference = *combined(*a, *b, -1);
  const std::int64_t low = lowest(difference, shape), high = highest(difference, shape);
  const auto known = [](bool always, bool never) {
    return always ? std::optional(true) : never ? std::optional(false) : std::nullopt;
  };
  switch (node.op->scalar) {
    case ScalarOp::Lt: return known(high < 0, low >= 0);
    case ScalarOp::Le: return known(high <= 0, low > 0);
    case ScalarOp::Gt: return known(low > 0, high <= 0);
    case ScalarOp::Ge: return known(low >= 0, high < 0);
    default: return {};
  }
}

Places of_elementwise(const Node& node, int& nodes_left) {
  const auto operand = [&](int i) { return find(node.operands[at(i)], nodes_left); };
  if (node.op->scalar == ScalarOp::Select) {
    const std::optional<bool> first = truth(node.operands[0], nodes_left);
    return first ? operand(*first ? 1 : 2) : std::nullopt;
  }
  if (node.op->scalar == ScalarOp::Cast) return is_integer(node.operands[0].dtype()) ? operand(0) : std::nullopt;
  if (node.operands.size() != 2) return {};
  const Places a = operand(0), b = a ? operand(1) : std::nullopt;
  if (!a || !b) return {};
  switch (node.op->scalar) {
    case ScalarOp::Add: return combined(*a, *b, 1);
    case ScalarOp::Sub: return combined(*a, *b, -1);
    case ScalarOp::Mul:
      if (is_uniform(*b)) return times(*a, b->offset);
      return is_uniform(*a) ? times(*b, a->offset) : Places();
    case ScalarOp::Min:
    case ScalarOp::Max: {
      const AffinePlaces difference = *combined(*a, *b, -1);
      const bool is_min = node.op->scalar == ScalarOp::Min;
      if (highest(difference, node.types[0].shape) <= 0) return is_min ? a : b;
      if (lowest(difference, node.types[0].shape) >= 0) return is_min ? b : a;
      return {};
    }
    default: return {};
  }
}

Places by_kind(Value v, int& nodes_left) {
  const Node& node = *v.node;
  const int rank = v.rank();
  switch (node.op->kind) {
    case OpKind::Constant: {
      const Array& data = node.attrs.get<Array>("value");
      return data.size() <= most_numbers ? affine_places(data) : std::nullopt;
    }
    case OpKind::Iota: {
      AffinePlaces p{0, std::vector<std::int64_t>(at(rank))};
      const int axis = static_cast<int>(node.attrs.integer("axis"));
      if (v.shape()[axis] > 1) p.strides[at(axis)] = 1;
      return p;
    }
    case OpKind::Broadcast: {
      const Places from = find(node.operands[0], nodes_left);
      if (!from) return {};
      AffinePlaces p{from->offset, std::vector<std::int64_t>(at(rank))};
      const auto& axes = node.attrs.integers("axes");
      for (std::size_t i = 0; i < axes.size(); ++i) p.strides[static_cast<std::size_t>(axes[i])] = from->strides[i];
      return p;
    }
    case OpKind::Transpose: {
      const Places from = find(node.operands[0], nodes_left);
      if (!from) return {};
      AffinePlaces p{from->offset, {}};
      for (const std::int64_t axis : node.attrs.integers("permutation"))
        p.strides.push_back(from->strides[static_cast<std::size_t>(axis)]);
      return p;
    }
    case OpKind::Reshape: return of_reshape(node, nodes_left);
    case OpKind::Slice: {
      Places p = find(node.operands[0], nodes_left);
      if (!p) return {};
      const auto &start = node.attrs.integers("start"), &step = node.attrs.integers("step");
      for (std::size_t i = 0; i < start.size(); ++i) {
        p->offset += p->strides[i] * start[i];
        p->strides[i] = v.shape()[static_cast<int>(i)] > 1 ? p->strides[i] * step[i] : 0;
      }
      return p;
    }
    case OpKind::Reverse: {
      Places p = find(node.operands[0], nodes_left);
      if (!p) return {};
      for (const std::int64_t axis : node.attrs.integers("axes")) {
        std::int64_t& stride = p->strides[static_cast<std::size_t>(axis)];
        p->offset += stride * (v.shape()[static_cast<int>(axis)] - 1);
        stride = -stride;
      }
      return p;
    }
    case OpKind::Elementwise: return of_elementwise(node, nodes_left);
    default: return {};
  }
}

Places find(Value v, int& nodes_left) {
  if (nodes_left-- <= 0 || !is_integer(v.dtype()) || v.shape().size() == 0) return {};
  const Places p = by_kind(v, nodes_left);
  const std::int64_t least = v.dtype() == DType::U32 ? 0 : -farthest;
  return p && lowest(*p, v.shape()) >= least && highest(*p, v.shape()) <= farthest ? p : std::nullopt;
}

}  // namespace

std::optional<AffinePlaces> affine_places(const Array& data) {
  if (!is_integer(data.dtype()) || data.size() == 0) return {};
  const Shape& shape = data.shape();
  for (std::int64_t i = 0; i < data.size(); ++i)
    if (std::abs(data.at(i)) > static_cast<double>(farthest)) return {};
  const auto number = [&](std::int64_t i) { return static_cast<std::int64_t>(data.at(i)); };
  AffinePlaces p{number(0), std::vector<std::int64_t>(at(shape.rank()))};
  std::int64_t elements = 1;
  for (int axis = shape.rank() - 1; axis >= 0; --axis) {
    if (shape[axis] > 1) p.strides[at(axis)] = number(elements) - p.offset;
    elements *= shape[axis];
  }
  for (std::int64_t i = 0; i < data.size(); ++i) {
    std::int64_t rest = i, wanted = p.offset;
    for (int axis = shape.rank() - 1; axis >= 0; --axis) {
      wanted += rest % shape[axis] * p.strides[at(axis)];
      rest /= shape[axis];
    }
    if (number(i) != wanted) return {};
  }
  return p;
}

std::optional<AffinePlaces> affine_places(Value v) {
  int nodes_left = most_nodes;
  return find(v, nodes_left);
}

std::int64_t lowest(const AffinePlaces& places, const Shape& shape) {
  std::int64_t low = places.offset;
  for (int axis = 0; axis < shape.rank(); ++axis)
    low += std::min<std::int64_t>(places.strides[at(axis)], 0) * (shape[axis] - 1);
  return low;
}

std::int64_t highest(const AffinePlaces& places, const Shape& shape) {
  std::int64_t high = places.offset;
  for (int axis = 0; axis < shape.rank(); ++axis)
    high += std::max<std::int64_t>(places.strides[at(axis)], 0) * (shape[axis] - 1);
  return high;
}

}  // namespace hotloop::ir
