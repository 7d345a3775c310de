#include <algorithm>
#include <cstdlib>
#include <optional>
#include <vector>

#include "hotloop/error.h"
#include "hotloop/ops.h"
#include "ops/rules/affine_places.h"
#include "ops/rules/arguments.h"
#include "ops/rules/batching.h"
#include "ops/rules/lanes.h"
#include "ops/rules/movement.h"
#include "ops/rules/sampling.h"
#include "ops/rules/walk.h"

namespace hotloop {
namespace {

// x at places that are all there and count evenly along at most two axes: a slice, or its windows, reversed and repeated.
Value view_at(Value x, const ir::AffinePlaces& places, const Shape& indices, int axis) {
  const std::int64_t first = ir::lowest(places, indices), last = ir::highest(places, indices);
  std::vector<int> moving;
  std::vector<std::int64_t> steps, backwards;
  for (int i = 0; i < indices.rank(); ++i) {
    const std::int64_t stride = places.strides[static_cast<std::size_t>(i)];
    if (stride == 0) continue;
    if (stride < 0) backwards.push_back(axis + static_cast<int>(moving.size()));
    moving.push_back(i);
    steps.push_back(std::abs(stride));
  }
  std::vector<std::int64_t> start(static_cast<std::size_t>(x.rank()), 0), stop = x.shape().vec(), step(start.size(), 1);
  const auto along = static_cast<std::size_t>(axis);
  start[along] = first;
  stop[along] = last + 1;
  if (moving.size() == 1) step[along] = steps[0];
  Value v = slice(x, start, stop, step);
  if (moving.empty()) v = reshape(v, v.shape().without(axis));
  if (moving.size() == 2) v = windows(v, axis, indices[moving[1]], steps[0], steps[1]);
  if (!backwards.empty()) v = reverse(v, backwards);
  if (static_cast<int>(moving.size()) == indices.rank()) return v;
  Shape shape = x.shape().without(axis);
  std::vector<std::int64_t> kept;
  for (int i = 0; i < axis; ++i) kept.push_back(i);
  for (const int i : moving) kept.push_back(axis + i);
  for (int i = axis; i < shape.rank(); ++i) kept.push_back(i + indices.rank());
  for (int i = 0; i < indices.rank(); ++i) shape = shape.with_inserted(axis + i, indices[i]);
  return broadcast(v, shape, kept);
}

// Nothing where the places are not known to be there, or no view shows them.
std::optional<Value> known_view(Value x, Value indices, int axis) {
  const std::optional<ir::AffinePlaces> places = ir::affine_places(indices);
  if (!places || ir::lowest(*places, indices.shape()) < 0 || ir::highest(*places, indices.shape()) >= x.shape()[axis] ||
      std::ranges::count_if(places->strides, [](std::int64_t s) { return s != 0; }) > 2)
    return {};
  return view_at(x, *places, indices.shape(), axis);
}

// A list of places that is known, limited to the axis; else empty.
std::vector<std::int64_t> known_list(Value indices, std::int64_t extent) {
  if (!ir::is(*indices.node, ir::OpKind::Constant) || indices.rank() != 1) return {};
  const Array& data = indices.node->attrs.get<Array>("value");
  std::vector<std::int64_t> list;
  for (std::int64_t i = 0; i < data.size(); ++i)
    list.push_back(std::clamp<std::int64_t>(static_cast<std::int64_t>(data.at(i)), 0, extent - 1));
  return list;
}

// x at a known list of places that is a few rising runs, as a rotation is: slices side by side, whose numbers are read as vectors, on the way back too.
// Of rows of a few numbers vectors are read either way; an axis much longer than the list would be passed over for each run on the way back.
std::optional<Value> known_runs(Value x, Value indices, int axis) {
  constexpr std::size_t most_runs = 4;
  constexpr std::int64_t few = 16;
  const std::int64_t extent = x.shape()[axis];
  const std::vector<std::int64_t> list = known_list(indices, extent);
  if (extent <= few || extent > 2 * static_cast<std::int64_t>(list.size())) return {};
  struct Run {
    std::int64_t first, last, step;
  };
  std::vector<Run> runs;
  for (const std::int64_t place : list) {
    Run* run = runs.empty() ? nullptr : &runs.back();
    const bool is_second = run != nullptr && run->first == run->last;
    if (run != nullptr && place > run->last && (is_second || place - run->last == run->step)) {
      run->step = place - run->last;
      run->last = place;
      continue;
    }
    if (runs.size() == most_runs) return {};
    runs.push_back({place, place, 1});
  }
  std::vector<Value> pieces;
  for (const Run& run : runs) {
    std::vector<std::int64_t> start(static_cast<std::size_t>(x.rank()), 0), stop = x.shape().vec(),
                                                                            step(start.size(), 1);
    const auto along = static_cast<std::size_t>(axis);
    start[along] = run.first;
    stop[along] = run.last + 1;
    step[along] = run.step;
    pieces.push_back(slice(x, start, stop, step));
  }
  return concat(pieces, axis);
}

}  // namespace

Value gather(Value x, Value indices, int axis, int lanes) {
  const Value both[] = {x, indices};
  ir::require_defined("gather", both);
  const std::int64_t along = ir::checked_axis("gather", axis, x.type());
  if (lanes == 0)
    for (const auto& known : {known_view, known_runs})
      if (const std::optional<Value> parts = known(x, indices, static_cast<int>(along))) return *parts;
  Attrs attrs = {{"axis", along}};
  if (lanes > 0) attrs.set("lanes", static_cast<std::int64_t>(lanes));
  return ir::append_op("gather", {x, indices}, attrs);
}

namespace ir {
namespace {

int axis_of(const Node& node) { return static_cast<int>(node.attrs.integer("axis")); }

std::vector<ValueType> infer(const InferContext& c) {
  const ValueType &x = c.operands[0], &indices = c.operands[1];
  const int axis = static_cast<int>(checked_axis("gather", c.attrs.integer("axis"), x));
  if (!is_integer(indices.dtype))
    throw UserError("gather", "indices must be integers", types_text(c.operands), "cast(indices, DType::I32)");
  if (x.shape[axis] == 0 && indices.shape.size() > 0)
    throw UserError("gather", "the axis must have an element to take", types_text(c.operands));
  return {{x.dtype, gathered_shape("gather", c, axis)}};
}

std::vector<Array> eval(const EvalContext& c) {
  const Array &x = c.operands[0], &indices = c.operands[1];
  const int axis = axis_of(c.node), lanes = num_lane_axes(c.node.attrs), inner = indices.shape().rank() - lanes;
  const auto strides = strides_of(x.shape()), index_strides = strides_of(indices.shape());
  return {rearranged(x, c.node.types[0].shape, [&](const Index& index) {
    Index at(index.begin(), index.begin() + lanes);
    at.insert(at.end(), index.begin() + axis, index.begin() + axis + inner);
    const auto wanted = index_at(indices, flat_index(at, index_strides));
    Index source = index;
    source.erase(source.begin() + axis, source.begin() + axis + inner);
    source.insert(source.begin() + axis, std::clamp<std::int64_t>(wanted, 0, x.shape()[axis] - 1));
    return flat_index(source, strides);
  })};
}

std::vector<AxisLink> axes(const Node& node) {
  const int axis = axis_of(node), lanes = num_lane_axes(node.attrs), inner = node.operands[1].rank() - lanes;
  std::vector<AxisLink> links;
  for (int i = 0; i < node.operands[0].rank(); ++i)
    links.push_back(i == axis ? AxisLink{0, i, -1, AxisUse::Mixed} : AxisLink{0, i, i < axis ? i : i + inner - 1});
  for (int i = 0; i < lanes + inner; ++i) links.push_back({1, i, i < lanes ? i : axis + i - lanes});
  return links;
}

// What each place of the axis is given by a known list that takes none twice; nothing where it does, or leaves most of the axis out.
std::optional<Value> returned(Value ct, Value indices, const ValueType& x, int axis) {
  const std::int64_t extent = x.shape[axis];
  const std::vector<std::int64_t> list = known_list(indices, extent);
  if (list.empty() || extent > 2 * static_cast<std::int64_t>(list.size())) return {};
  Array from = Array::full(DType::I32, Shape{extent}, 0), is_taken = Array::full(DType::Bool, Shape{extent}, 0);
  for (std::size_t i = 0; i < list.size(); ++i) {
    if (is_taken.at(list[i]) != 0) return {};
    from.set(list[i], static_cast<double>(i));
    is_taken.set(list[i], 1);
  }
  const Value all = gather(ct, constant(from), axis);
  if (static_cast<std::int64_t>(list.size()) == extent) return all;
  return select(broadcast(constant(is_taken), x.shape, {axis}), all, zeros_of(x));
}

std::vector<Value> transpose_rule(const TransposeContext& c) {
  HOTLOOP_CHECK(c.operands[1].defined(), "gather is not linear in its indices");
  const Value ct = c.cotangents[0];
  if (!ct.defined() || c.operands[0].defined()) return {{}, {}};
  const ValueType& x = c.node.operands[0].type();
  const int axis = axis_of(c.node);
  if (num_lane_axes(c.node.attrs) == 0)
    if (const std::optional<Value> all = returned(ct, c.operands[1], x, axis)) return {*all, {}};
  // gather clamps where scatter_add would drop.
  return {
      scatter_add(zeros_of(x), clamped_indices(c.operands[1], x.shape[axis]), ct, axis, num_lane_axes(c.node.attrs)),
      {}};
}

std::vector<Batched> batch(const BatchContext& c) {
  const auto [x, x_batched] = c.operands[0];
  const auto [indices, indices_batched] = c.operands[1];
  const int axis = axis_of(c.node), lanes = num_lane_axes(c.node.attrs);
  if (lanes == 0 && !indices_batched) return {{gather(x, indices, axis + 1), true}};
  if (lanes == 0 && !x_batched) return {{axis_to_front(gather(x, indices, axis), axis), true}};
  return {{gather(with_batch(c.operands[0], c.size), with_batch(c.operands[1], c.size), axis + 1, lanes + 1), true}};
}

}  // namespace

std::vector<OpDef> ops_gather() {
  OpDef def =
      movement_op("gather", "elements of x at indices along an axis (NumPy take); indices are clamped into range",
                  OpKind::Gather, 2);
  def.infer = infer;
  def.eval = eval;
  def.axes = axes;
  def.jvp = [](const JvpContext& c) {
    return std::vector<Value>{c.tangents[0].defined()
                                  ? gather(c.tangents[0], c.primals[1], axis_of(c.node), num_lane_axes(c.node.attrs))
                                  : Value{}};
  };
  def.transpose = transpose_rule;
  def.batch = batch;
  def.samples = [](Rng& rng, DType dtype) {
    const auto sample = [&](DType d, const Shape& x, const Shape& indices, std::int64_t axis, DType index_dtype) {
      // Some of them out of range.
      const double low = index_dtype == DType::U32 ? 0 : -1;
      const auto high = static_cast<double>(x[static_cast<int>(axis)]);
      return Sample{
          {random_array(rng, d, x), random_array(rng, index_dtype, indices, low, high)}, {{"axis", axis}}, {}};
    };
    const auto in_lanes = [&](std::int64_t lanes, const Shape& x, const Shape& indices, std::int64_t axis) {
      Sample s = sample(dtype, x, indices, axis, DType::I32);
      s.attrs.set("lanes", lanes);
      return s;
    };
    return std::vector<Sample>{sample(dtype, {5}, {}, 0, DType::I32),
                               sample(dtype, {5}, {7}, 0, DType::I32),
                               sample(dtype, {1}, {3}, 0, DType::U32),
                               sample(dtype, {3, 5}, {4}, 1, DType::I64),
                               sample(dtype, {3, 5}, {2, 3}, 0, DType::I32),
                               sample(dtype, {2, 3, 5}, {2, 1}, 1, DType::I32),
                               sample(DType::I32, {4}, {3}, 0, DType::I32),
                               in_lanes(1, {3, 5}, {3, 2}, 1),
                               in_lanes(1, {2, 3, 4}, {2}, 2),
                               in_lanes(2, {2, 3, 4, 2}, {2, 3, 5}, 2)};
  };
  return {def};
}

}  // namespace ir
}  // namespace hotloop
