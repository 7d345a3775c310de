#include "schedule/context.h"

#include <algorithm>
#include <utility>

#include "hotloop/error.h"
#include "ir/op_def.h"

namespace hotloop {

using kernel::Affine;
using kernel::Extent;
using kernel::Space;

namespace {

// Of a short row: of one axis, and in all, where there are few rows and where they fill vectors.
constexpr std::int64_t longest_short_axis = 16, most_numbers_a_row = 16, most_numbers_of_many = 100, many_rows = 16;

}  // namespace

kernel::Var LoweringContext::new_var(const std::string& name) { return program.new_var(name); }

int LoweringContext::new_buffer(const std::string& name, DType dtype, std::int64_t elements, Space space) {
  kernel::Buffer b;
  b.name = name;
  b.dtype = dtype;
  b.elements = elements;
  b.space = space;
  return program.add_buffer(std::move(b));
}

Value LoweringContext::resolve(Value v) const {
  const auto it = aliases_.find(key_of(v));
  return it == aliases_.end() ? v : it->second;
}

std::optional<Storage> LoweringContext::find(Value v) {
  v = resolve(v);
  if (const auto it = tile_storage_.find(key_of(v)); it != tile_storage_.end()) {
    Storage s = it->second;
    if (!first_of_part_.terms.empty()) move_rows(s, v, first_of_part_);
    return s;
  }
  if (const auto it = storage_.find(key_of(v)); it != storage_.end()) {
    Storage s = it->second;
    if (in_tile_) move_rows(s, v, first_row());
    return s;
  }
  if (ir::is(*v.node, ir::OpKind::Constant)) {
    const Array& data = v.node->attrs.get<Array>("value");
    const int buffer = new_buffer("constant", data.dtype(), data.size(), Space::Constant);
    program.buffers.back().data = data;
    storage_[key_of(v)] = row_major(buffer, data.shape());
    return find(v);
  }
  if (!is_strided_view(*v.node)) return std::nullopt;
  const Value operand = v.node->operands[0];
  auto source = find(operand);
  if (!source || !crosses_tiles(*v.node)) return source ? view_through(*v.node, *source) : std::nullopt;
  move_rows(*source, operand, first_row() * -1);
  auto view = view_through(*v.node, *source);
  if (view) move_rows(*view, v, first_row());
  return view;
}

void LoweringContext::move_rows(Storage& s, Value v, const Affine& first) const {
  for (int axis = 0; axis < v.rank(); ++axis)
    if (axes_.axis_class(v, axis) == tile_class)
      s.offset = s.offset + first * s.strides[static_cast<std::size_t>(axis)];
}

bool LoweringContext::is_bound(Value v) const {
  v = resolve(v);
  return tile_storage_.contains(key_of(v)) || storage_.contains(key_of(v));
}

void LoweringContext::bind(Value v, const Storage& storage) {
  (in_tile_ ? tile_storage_ : storage_)[key_of(v)] = storage;
}

const LoweringContext::LaidOut* LoweringContext::laid_out(Value v) const {
  const auto it = std::ranges::find(laid_out_, resolve(v), &LaidOut::matrix);
  return it == laid_out_.end() ? nullptr : &*it;
}

Storage LoweringContext::allocate(Value v, const std::string& name) {
  Shape shape = v.shape();
  const int axis = in_tile_ ? axes_.axis_in(v, tile_class) : -1;
  if (axis >= 0) shape[axis] = tile_rows_;
  const int buffer = new_buffer(name, v.dtype(), shape.size(), in_tile_ ? Space::Worker : Space::Shared);
  if (axis < 0 || !by_lanes_) return row_major(buffer, shape);
  int last = v.rank() - 1;
  while (last > 0 && (last == axis || shape[last] == 1)) --last;
  if (last == axis) return row_major(buffer, shape);
  Shape others = shape;
  others[axis] = 1;
  Storage place = row_major(buffer, others);
  for (std::int64_t& stride : place.strides) stride *= tile_rows_;
  place.strides[static_cast<std::size_t>(axis)] = 1;
  return place;
}

bool LoweringContext::has_few_numbers_a_row(Value v) const {
  const int axis = axes_.axis_in(v, tile_class);
  if (axis < 0 || v.shape()[axis] <= 1) return false;
  for (int i = 0; i < v.rank(); ++i)
    if (i != axis && v.shape()[i] > longest_short_axis) return false;
  const std::int64_t rows = v.shape()[axis];
  return v.shape().size() <= (rows < many_rows ? most_numbers_a_row : most_numbers_of_many) * rows;
}

bool LoweringContext::has_rows_innermost(Value v, const Storage& place) const {
  const int axis = axes_.axis_in(v, tile_class);
  return axis >= 0 && place.strides[static_cast<std::size_t>(axis)] == 1;
}

Extent LoweringContext::extent(Value v, int axis) const {
  const std::int64_t bound = v.shape()[axis];
  if (tile_class >= 0 && axes_.axis_class(v, axis) == tile_class) {
    if (in_tile_) return {tile_rows_, rows_};  // static where all tiles are full
    if (options_.variable_rows) return {bound, kernel::rows_var};
  }
  return {bound, -1};
}

std::int64_t LoweringContext::bytes_of(Value v) const {
  auto bytes = static_cast<std::int64_t>(size_of(v.dtype()));
  for (int axis = 0; axis < v.rank(); ++axis) bytes *= extent(v, axis).bound;
  return bytes;
}

Extent LoweringContext::total_rows(Value v, int axis) const {
  const bool is_batch = tile_class >= 0 && options_.variable_rows && axes_.axis_class(v, axis) == tile_class;
  return {v.shape()[axis], is_batch ? kernel::rows_var : -1};
}

Affine LoweringContext::global_index(Value v, int axis, const Affine& local) const {
  return in_tile_ && axes_.axis_class(v, axis) == tile_class ? local + first_row() : local;
}

Affine LoweringContext::local_index(Value v, int axis, const Affine& global) const {
  return in_tile_ && axes_.axis_class(v, axis) == tile_class ? global + first_row() * -1 : global;
}

bool LoweringContext::crosses_tiles(const Node& view) const { return in_tile_ && axes_.couples(view, tile_class); }

void LoweringContext::enter_tile(kernel::Var row0, kernel::Var rows, std::int64_t tile_rows, bool by_lanes,
                                 std::int64_t parts) {
  HOTLOOP_CHECK(!in_tile_, "tiles do not nest");
  HOTLOOP_CHECK(parts == 1 || !by_lanes, "rows in lanes have no parts");
  in_tile_ = true;
  by_lanes_ = by_lanes;
  row0_ = row0;
  rows_ = rows;
  tile_rows_ = whole_tile_rows_ = tile_rows;
  parts_ = parts;
}

kernel::Let LoweringContext::let_rows_of_part(kernel::Var rows, kernel::Var part) const {
  const std::int64_t most = rows_of_part();
  return {rows, {}, DType::I64, 0, most, Affine::of(rows_) + Affine::of(part, -most)};
}

void LoweringContext::enter_part(kernel::Var part, kernel::Var rows) {
  HOTLOOP_CHECK(parts_ > 1 && first_of_part_.terms.empty(), "a part is one of several of a tile");
  tile_rows_ = rows_of_part();
  whole_rows_ = std::exchange(rows_, rows);
  first_of_part_ = Affine::of(part, tile_rows_);
}

void LoweringContext::leave_part() {
  first_of_part_ = {};
  tile_rows_ = whole_tile_rows_;
  rows_ = whole_rows_;
}

void LoweringContext::leave_tile() {
  in_tile_ = by_lanes_ = false;
  parts_ = 1;
  tile_storage_.clear();
}

}  // namespace hotloop
