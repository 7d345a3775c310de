// Rules on changes of index: compositions become one, and what undoes itself goes.
#include <algorithm>
#include <cstring>

#include "core/index.h"
#include "ir/equality.h"
#include "passes/builder.h"
#include "passes/lookups.h"

namespace hotloop::passes {
namespace {

using ir::OpKind;

Value constant(Builder& b, const Attrs& attrs) {
  const Array& value = attrs.get<Array>("value");
  if (value.size() < 2) return {};
  const std::size_t width = size_of(value.dtype());
  const char* bytes = static_cast<const char*>(value.raw());
  for (std::int64_t i = 1; i < value.size(); ++i)
    if (std::memcmp(bytes, bytes + at(i) * width, width) != 0) return {};
  Array one(value.dtype(), Shape{});
  std::memcpy(one.raw(), bytes, width);
  return b.broadcast(b.make("constant", {}, {{"value", one}}), value.shape(), {});
}

// What is looked up, reshaped, if only the axes of the places change.
Value reshaped_places(Builder& b, const Lookup& lookup, const Shape& from, const Shape& to) {
  const int behind = lookup.table.rank() - lookup.axis - 1, num_places_axes = to.rank() - lookup.axis - behind;
  if (num_places_axes < 1) return {};
  for (int i = 0; i < lookup.axis; ++i)
    if (from[i] != to[i]) return {};
  for (int i = 1; i <= behind; ++i)
    if (from[from.rank() - i] != to[to.rank() - i]) return {};
  Shape places;
  for (int i = 0; i < num_places_axes; ++i) places.push_back(to[lookup.axis + i]);
  if (places.size() != lookup.places.shape().size()) return {};
  return look_up(b, lookup.table, b.reshape(lookup.places, places), lookup.axis);
}

Value reshape(Builder& b, Value x, const Shape& shape) {
  if (x.shape() == shape) return x;
  if (is_kind(x, OpKind::Reshape)) return b.reshape(operand(x), shape);
  if (is_kind(x, OpKind::Broadcast) && operand(x).rank() == 0) return b.broadcast(operand(x), shape, {});
  const std::optional<Lookup> lookup = lookup_of(x);
  return lookup ? reshaped_places(b, *lookup, x.shape(), shape) : Value{};
}

Value transpose(Builder& b, Value x, const Axes& permutation) {
  if (std::ranges::is_sorted(permutation)) return x;
  if (is_kind(x, OpKind::Transpose)) {
    const Axes& inner = x.node->attrs.integers("permutation");
    Axes composed;
    for (std::int64_t p : permutation) composed.push_back(inner[at(p)]);
    return b.transpose(operand(x), composed);
  }
  if (is_kind(x, OpKind::Broadcast)) {
    // The axes of the repeated value move; their order must stay increasing.
    Axes position(permutation.size());
    Shape shape;
    for (std::size_t i = 0; i < permutation.size(); ++i) {
      position[at(permutation[i])] = static_cast<std::int64_t>(i);
      shape.push_back(x.shape()[static_cast<int>(permutation[i])]);
    }
    Axes axes;
    for (std::int64_t axis : x.node->attrs.integers("axes")) axes.push_back(position[at(axis)]);
    if (std::ranges::is_sorted(axes)) return b.broadcast(operand(x), shape, axes);
  }
  // What is looked up in another order of places.
  if (const std::optional<Lookup> lookup = lookup_of(x)) {
    Axes places;
    bool is_of_places = true;
    for (std::size_t i = 0; i < permutation.size(); ++i) {
      const bool is_place = lookup->is_place(static_cast<std::int64_t>(i));
      is_of_places = is_of_places &&
                     (is_place ? lookup->is_place(permutation[i]) : permutation[i] == static_cast<std::int64_t>(i));
      if (is_place) places.push_back(permutation[i] - lookup->axis);
    }
    if (is_of_places) return look_up(b, lookup->table, b.transpose(lookup->places, places), lookup->axis);
  }
  // Moving only axes of extent 1 does not move an element.
  Axes moved;
  for (std::int64_t p : permutation)
    if (x.shape()[static_cast<int>(p)] != 1) moved.push_back(p);
  if (!std::ranges::is_sorted(moved)) return {};
  Shape shape;
  for (std::int64_t p : permutation) shape.push_back(x.shape()[static_cast<int>(p)]);
  return b.reshape(x, shape);
}

Value broadcast(Builder& b, Value x, const Shape& shape, const Axes& axes) {
  if (x.shape() == shape) return x;
  if (is_kind(x, OpKind::Broadcast)) {
    Axes composed;
    for (std::int64_t axis : x.node->attrs.integers("axes")) composed.push_back(axes[at(axis)]);
    return b.broadcast(operand(x), shape, composed);
  }
  if (is_kind(x, OpKind::Reshape)) {
    // A reshape that only adds or drops axes of extent 1 is part of the broadcast.
    const Value inner = operand(x);
    Axes composed;
    int k = 0;
    for (int i = 0; i < inner.rank(); ++i) {
      if (inner.shape()[i] == 1) return {};
      while (k < x.rank() && x.shape()[k] == 1) ++k;
      if (k == x.rank() || x.shape()[k] != inner.shape()[i]) return {};
      composed.push_back(axes[at(k++)]);
    }
    for (; k < x.rank(); ++k)
      if (x.shape()[k] != 1) return {};
    return b.broadcast(inner, shape, composed);
  }
  return {};
}

struct Window {
  Axes start, stop, step;
};

Value slice_of_concat(Builder& b, Value x, const Window& w) {
  const auto axis = at(x.node->attrs.integer("axis"));
  if (w.step[axis] != 1) return {};
  std::vector<Value> parts;
  std::int64_t offset = 0;
  for (const Value& part : x.node->operands) {
    const std::int64_t extent = part.shape()[static_cast<int>(axis)];
    const std::int64_t from = std::max(w.start[axis] - offset, std::int64_t{0});
    const std::int64_t to = std::min(w.stop[axis] - offset, extent);
    offset += extent;
    if (from >= to) continue;
    Window inner = w;
    inner.start[axis] = from;
    inner.stop[axis] = to;
    parts.push_back(b.slice(part, inner.start, inner.stop, inner.step));
  }
  if (parts.empty()) return {};
  return b.concat(std::move(parts), static_cast<int>(axis));
}

Value slice_of_pad(Builder& b, Value x, const Window& w, const Shape& shape) {
  const auto axis = padded_axis(*x.node);
  if (!axis) return {};
  const auto k = at(*axis);
  const std::int64_t low = x.node->attrs.integers("low")[k], extent = operand(x).shape()[*axis];
  if (w.stop[k] <= low || w.start[k] >= low + extent) return b.broadcast(operand(x, 1), shape, {});
  if (w.start[k] < low || w.stop[k] > low + extent) return {};
  Window inner = w;
  inner.start[k] -= low;
  inner.stop[k] -= low;
  return b.slice(operand(x), inner.start, inner.stop, inner.step);
}

Value slice(Builder& b, Value x, const Window& w) {
  Shape shape;
  for (int i = 0; i < x.rank(); ++i)
    shape.push_back((w.stop[at(i)] - w.start[at(i)] + w.step[at(i)] - 1) / w.step[at(i)]);
  if (shape == x.shape()) return x;
  switch (x.node->op->kind) {
    case OpKind::Slice: {
      const Node& inner = *x.node;
      Window composed = w;
      for (int i = 0; i < x.rank(); ++i) {
        const auto k = at(i);
        const std::int64_t start = inner.attrs.integers("start")[k], step = inner.attrs.integers("step")[k];
        composed.start[k] = start + w.start[k] * step;
        composed.step[k] = step * w.step[k];
        composed.stop[k] =
            shape[i] == 0 ? composed.start[k] : composed.start[k] + (shape[i] - 1) * composed.step[k] + 1;
      }
      return b.slice(operand(x), composed.start, composed.stop, composed.step);
    }
    case OpKind::Concat: return slice_of_concat(b, x, w);
    case OpKind::Pad: return slice_of_pad(b, x, w, shape);
    case OpKind::Broadcast: {
      const Axes& axes = x.node->attrs.integers("axes");
      Window inner;
      for (std::int64_t axis : axes) {
        inner.start.push_back(w.start[at(axis)]);
        inner.stop.push_back(w.stop[at(axis)]);
        inner.step.push_back(w.step[at(axis)]);
      }
      return b.broadcast(b.slice(operand(x), inner.start, inner.stop, inner.step), shape, axes);
    }
    default: return {};
  }
}

Value pad(Builder&, const std::vector<Value>& operands, const Attrs& attrs) {
  for (const char* name : {"low", "high", "interior"})
    for (std::int64_t n : attrs.integers(name))
      if (n != 0) return {};
  return operands[0];
}

// concat(..., x[a:b], x[b:c], ...) -> concat(..., x[a:c], ...)
bool join_slices(Builder& b, std::vector<Value>& parts, int axis) {
  for (std::size_t i = 0; i + 1 < parts.size(); ++i) {
    const Value l = parts[i], r = parts[i + 1];
    if (!is_kind(l, OpKind::Slice) || !is_kind(r, OpKind::Slice) || operand(l) != operand(r)) continue;
    Window w{l.node->attrs.integers("start"), l.node->attrs.integers("stop"), l.node->attrs.integers("step")};
    Window other{r.node->attrs.integers("start"), r.node->attrs.integers("stop"), r.node->attrs.integers("step")};
    const auto k = at(axis);
    if (w.stop[k] != other.start[k] || w.step[k] != 1) continue;
    w.stop[k] = other.stop[k];
    other.start[k] = w.start[k];
    if (w.start != other.start || w.stop != other.stop || w.step != other.step) continue;
    parts[i] = b.slice(operand(l), w.start, w.stop, w.step);
    parts.erase(parts.begin() + static_cast<std::ptrdiff_t>(i) + 1);
    return true;
  }
  return false;
}

// Whether both are literals of the same bits: -0 is another number than 0, and NaN is itself.
bool same_literal(Value a, Value b) {
  return is_kind(a, OpKind::Constant) && is_kind(b, OpKind::Constant) && ir::same_attrs(a.node->attrs, b.node->attrs);
}

Value concat(Builder& b, const std::vector<Value>& operands, const Attrs& attrs) {
  const int axis = static_cast<int>(attrs.integer("axis"));
  if (operands.size() == 1) return operands[0];
  std::vector<Value> parts;
  for (const Value& v : operands) {
    if (v.shape()[axis] == 0) continue;
    if (is_kind(v, OpKind::Concat) && v.node->attrs.integer("axis") == axis)
      parts.insert(parts.end(), v.node->operands.begin(), v.node->operands.end());
    else
      parts.push_back(v);
  }
  if (parts.empty()) return operands[0];
  if (join_slices(b, parts, axis) || parts.size() != operands.size()) return b.concat(parts, axis);
  // Parts repeated alike: repeat their concatenation instead.
  const auto repeated = [&](Value v) { return is_kind(v, OpKind::Broadcast); };
  if (!std::ranges::all_of(parts, repeated)) return {};
  const Axes& axes = parts[0].node->attrs.integers("axes");
  const auto same = [&](Value v) { return v.node->attrs.integers("axes") == axes; };
  if (!std::ranges::all_of(parts, same)) return {};
  const auto inner_axis = std::ranges::find(axes, axis);
  Shape shape = parts[0].shape();
  shape[axis] = 0;
  std::vector<Value> inner;
  for (const Value& v : parts) {
    shape[axis] += v.shape()[axis];
    inner.push_back(operand(v));
  }
  if (inner_axis == axes.end()) {
    // Repeats of one value along the concatenated axis are a longer repeat.
    const auto equal = [&](Value v) { return v == inner[0] || same_literal(v, inner[0]); };
    return std::ranges::all_of(inner, equal) ? b.broadcast(inner[0], shape, axes) : Value{};
  }
  return b.broadcast(b.concat(inner, static_cast<int>(inner_axis - axes.begin())), shape, axes);
}

Value reverse(Builder& b, Value x, const Axes& axes) {
  if (std::ranges::all_of(axes, [&](std::int64_t axis) { return x.shape()[static_cast<int>(axis)] == 1; })) return x;
  if (!is_kind(x, OpKind::Reverse)) return {};
  Axes both;
  std::ranges::set_symmetric_difference(axes, x.node->attrs.integers("axes"), std::back_inserter(both));
  return both.empty() ? operand(x) : b.make("reverse", {operand(x)}, {{"axes", both}});
}

}  // namespace

Value simplify_movement(Builder& b, const ir::OpDef& op, const std::vector<Value>& operands, const Attrs& attrs) {
  switch (op.kind) {
    case OpKind::Constant: return constant(b, attrs);
    case OpKind::Reshape: return reshape(b, operands[0], Shape(attrs.integers("shape")));
    case OpKind::Transpose: return transpose(b, operands[0], attrs.integers("permutation"));
    case OpKind::Broadcast: return broadcast(b, operands[0], Shape(attrs.integers("shape")), attrs.integers("axes"));
    case OpKind::Slice:
      return slice(b, operands[0], {attrs.integers("start"), attrs.integers("stop"), attrs.integers("step")});
    case OpKind::Pad: return pad(b, operands, attrs);
    case OpKind::Concat: return concat(b, operands, attrs);
    case OpKind::Reverse: return reverse(b, operands[0], attrs.integers("axes"));
    default: return {};
  }
}

}  // namespace hotloop::passes
