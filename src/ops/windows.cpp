#include <algorithm>

#include "core/convert.h"
#include "hotloop/error.h"
#include "hotloop/ops.h"
#include "ops/rules/arguments.h"
#include "ops/rules/batching.h"
#include "ops/rules/movement.h"
#include "ops/rules/sampling.h"
#include "ops/rules/walk.h"

namespace hotloop {

Value windows(Value x, int axis, std::int64_t size, std::int64_t stride, std::int64_t dilation) {
  ir::require_defined("windows", {&x, 1});
  return ir::append_op("windows", {x},
                       {{"axis", ir::checked_axis("windows", axis, x.type())},
                        {"size", size},
                        {"stride", stride},
                        {"dilation", dilation}});
}

namespace ir {
namespace {

struct Windows {
  int axis;
  std::int64_t size, stride, dilation;
  explicit Windows(const Attrs& a)
      : axis(static_cast<int>(a.integer("axis"))),
        size(a.integer("size")),
        stride(a.integer("stride")),
        dilation(a.integer("dilation")) {}
  std::int64_t reach() const { return (size - 1) * dilation + 1; }
};

std::vector<ValueType> infer(const InferContext& c) {
  const ValueType& x = c.operands[0];
  const Windows w(c.attrs);
  checked_axis("windows", w.axis, x);
  const std::string received = "size " + std::to_string(w.size) + ", stride " + std::to_string(w.stride) +
                               ", dilation " + std::to_string(w.dilation) + " on axis " + std::to_string(w.axis) +
                               " of " + x.str();
  if (w.size <= 0 || w.stride <= 0 || w.dilation <= 0)
    throw UserError("windows", "size, stride and dilation must be positive", received);
  if (w.reach() > x.shape[w.axis])
    throw UserError("windows", "a window must fit into the axis: (size - 1) * dilation + 1 elements", received,
                    "pad()");
  Shape shape = x.shape.with_inserted(w.axis + 1, w.size);
  shape[w.axis] = (x.shape[w.axis] - w.reach()) / w.stride + 1;
  return {{x.dtype, shape}};
}

std::vector<Array> eval(const EvalContext& c) {
  const Windows w(c.node.attrs);
  const auto strides = strides_of(c.operands[0].shape());
  const auto a = static_cast<std::size_t>(w.axis);
  return {rearranged(c.operands[0], c.node.types[0].shape, [&](Index index) {
    index[a] = index[a] * w.stride + index[a + 1] * w.dilation;
    index.erase(index.begin() + w.axis + 1);
    return flat_index(index, strides);
  })};
}

// Each element gets the sum of the cotangents of the places it was read at.
Value overlap_add(Value ct, const TransposeContext& c) {
  const Windows w(c.node.attrs);
  const ValueType& x = c.node.operands[0].type();
  const std::int64_t count = ct.shape()[w.axis], extent = x.shape[w.axis];
  constexpr std::int64_t max_terms = 16;
  if (std::min(count, w.size) > max_terms) {
    const DType dtype = holds(DType::I32, extent) ? DType::I32 : DType::I64;
    const Shape all{count, w.size};
    const auto times = [&](Value v, std::int64_t n) { return n == 1 ? v : v * static_cast<double>(n); };
    const Value places = times(iota(dtype, all, 0), w.stride) + times(iota(dtype, all, 1), w.dilation);
    return scatter_add(zeros_of(x), places, ct, w.axis);
  }
  // The sum of a few padded pieces: the k-th elements of all windows, or the windows, whichever are fewer.
  const bool by_element = w.size <= count;
  std::vector<std::int64_t> low(static_cast<std::size_t>(x.shape.rank()), 0), high = low, interior = low;
  const auto a = static_cast<std::size_t>(w.axis);
  Value total;
  for (std::int64_t k = 0; k < (by_element ? w.size : count); ++k) {
    const Value piece = take(ct, by_element ? w.axis + 1 : w.axis, k);
    low[a] = k * (by_element ? w.dilation : w.stride);
    interior[a] = (by_element ? w.stride : w.dilation) - 1;
    high[a] = extent - low[a] - ((piece.shape()[w.axis] - 1) * (interior[a] + 1) + 1);
    total = add_or_either(total, pad(piece, like(ct, 0), low, high, interior));
  }
  return total;
}

}  // namespace

std::vector<OpDef> ops_windows() {
  OpDef def = movement_op("windows", "an axis seen through strided windows: it becomes (window, place in the window)",
                          OpKind::Windows);
  def.infer = infer;
  def.eval = eval;
  def.axes = [](const Node& node) {
    const int axis = Windows(node.attrs).axis;
    std::vector<AxisLink> links{{0, axis, axis, AxisUse::Mixed}, {0, axis, axis + 1, AxisUse::Mixed}};
    for (int i = 0; i < node.operands[0].rank(); ++i)
      if (i != axis) links.push_back({0, i, i < axis ? i : i + 1});
    return links;
  };
  def.transpose = transpose_of_one(overlap_add);
  def.batch = batch_of_one([](Value x, const BatchContext& c) {
    const Windows w(c.node.attrs);
    return windows(x, w.axis + 1, w.size, w.stride, w.dilation);
  });
  def.samples = [](Rng& rng, DType dtype) {
    const auto sample = [&](DType d, const Shape& shape, std::int64_t axis, std::int64_t size, std::int64_t stride,
                            std::int64_t dilation) {
      return Sample{{random_array(rng, d, shape)},
                    {{"axis", axis}, {"size", size}, {"stride", stride}, {"dilation", dilation}},
                    {}};
    };
    return std::vector<Sample>{sample(dtype, {1}, 0, 1, 1, 1),     sample(dtype, {7}, 0, 3, 1, 1),
                               sample(dtype, {9}, 0, 2, 3, 4),     sample(dtype, {3, 11}, 1, 5, 2, 2),
                               sample(dtype, {9, 2}, 0, 4, 5, 1),  sample(dtype, {40}, 0, 18, 1, 1),
                               sample(DType::I32, {5}, 0, 2, 1, 1)};
  };
  return {def};
}

}  // namespace ir
}  // namespace hotloop
