// What a Jacobian with structure gives: all of it, its blocks, its elements, products.
#include <algorithm>
#include <numeric>

#include "core/memory.h"
#include "hotloop/error.h"
#include "hotloop/jacobian.h"
#include "hotloop/ops.h"
#include "ops/rules/arguments.h"
#include "ops/rules/walk.h"
#include "transforms/jacobian_plan.h"

namespace hotloop {
namespace {

using Axes = std::vector<std::int64_t>;

Array index_constant(const Axes& values) {
  Array a(DType::I32, {static_cast<std::int64_t>(values.size())});
  std::ranges::copy(values, a.data<std::int32_t>().begin());
  return a;
}

std::string size_text(const ValueType& type) {
  return type.str() + ", " +
         bytes_text(static_cast<double>(type.shape.size()) * static_cast<double>(size_of(type.dtype)));
}

Axes inverse(const Axes& permutation) {
  Axes result(permutation.size());
  for (std::size_t i = 0; i < permutation.size(); ++i)
    result[static_cast<std::size_t>(permutation[i])] = static_cast<std::int64_t>(i);
  return result;
}

// The diagonal where a pair is of different axes of y and x: only elements with one index along both are in a block, in its own row and column.
Value diagonal_of_moved(const JacobianStructure& s, Value values) {
  const Shape& shape = s.input.shape;
  const std::int64_t per_block = s.sparse ? static_cast<std::int64_t>(s.columns.size()) : s.num_rows * s.num_columns;
  Axes places, elements;
  std::int64_t element = -1;
  ir::for_each_index(shape, [&](const ir::Index& index) {
    ++element;
    std::int64_t block = 0, row = 0, column = 0;
    std::vector<bool> rows_paired(index.size()), columns_paired(index.size());
    for (const auto& [y, x] : s.paired) {
      const auto of_y = static_cast<std::size_t>(y), of_x = static_cast<std::size_t>(x);
      if (index[of_y] != index[of_x]) return;
      block = block * shape[y] + index[of_y];
      rows_paired[of_y] = columns_paired[of_x] = true;
    }
    for (std::size_t i = 0; i < index.size(); ++i) {
      if (!rows_paired[i]) row = row * shape[static_cast<int>(i)] + index[i];
      if (!columns_paired[i]) column = column * shape[static_cast<int>(i)] + index[i];
    }
    std::int64_t place = row * s.num_columns + column;
    if (s.sparse) {
      const auto begin = s.columns.begin() + s.row_start[static_cast<std::size_t>(row)],
                 end = s.columns.begin() + s.row_start[static_cast<std::size_t>(row) + 1];
      const auto found = std::lower_bound(begin, end, column);
      if (found == end || *found != column) return;
      place = found - s.columns.begin();
    }
    places.push_back(block * per_block + place);
    elements.push_back(element);
  });
  Value found = constant(0, values.dtype(), {shape.size()});
  if (!places.empty()) {
    const Value picked = gather(reshape(values, {values.shape().size()}), constant(index_constant(places)), 0);
    found = scatter_add(found, constant(index_constant(elements)), picked, 0);
  }
  return reshape(found, shape);
}

}  // namespace

Jacobian::Jacobian(std::shared_ptr<const JacobianStructure> structure, Value values)
    : structure_(std::move(structure)), values_(values) {
  if (!values_.defined() || values_.type() != structure_->values_type())
    throw UserError("jacobian", "the values must have the type of the structure, " + structure_->values_type().str(),
                    values_.defined() ? values_.type().str() : "an undefined value");
}

Value Jacobian::block_matrices() const {
  const JacobianStructure& s = *structure_;
  Shape shape;
  for (const auto& [y, x] : s.paired) shape.push_back(s.output.shape[y]);
  if (!s.sparse) {
    shape.push_back(s.num_rows);
    shape.push_back(s.num_columns);
    return reshape(values_, shape);
  }
  // Zeros, and the stored elements at their places.
  const int last = shape.rank();
  Axes places;
  for (std::int64_t r = 0; r < s.num_rows; ++r)
    for (std::int64_t k = s.row_start[static_cast<std::size_t>(r)]; k < s.row_start[static_cast<std::size_t>(r) + 1];
         ++k)
      places.push_back(r * s.num_columns + s.columns[static_cast<std::size_t>(k)]);
  Shape flat = shape;
  flat.push_back(s.num_rows * s.num_columns);
  Value matrices = constant(0, values_.dtype(), flat);
  if (!places.empty()) matrices = scatter_add(matrices, constant(index_constant(places)), values_, last);
  shape.push_back(s.num_rows);
  shape.push_back(s.num_columns);
  return reshape(matrices, shape);
}

Value Jacobian::blocks() const {
  ir::check_fits(*structure_, structure_->blocks_type(), "blocks()");
  return reshape(block_matrices(), structure_->blocks_type().shape);
}

Value Jacobian::sparse() const {
  const Axes order = ir::stored_order(*structure_);
  const Value flat = reshape(values_, {values_.shape().size()});
  if (order.empty() || std::ranges::is_sorted(order)) return flat;
  return gather(flat, constant(index_constant(order)), 0);
}

Value Jacobian::dense() const {
  const JacobianStructure& s = *structure_;
  const ValueType type = s.dense_type();
  ir::check_fits(s, type, "dense()");
  const Value all = blocks();
  if (s.paired.empty()) return reshape(all, type.shape);
  // Axes of the blocks to where they are in the whole: a paired axis to y's, the others to their own.
  const int y_rank = s.output.shape.rank();
  Axes target;
  for (const auto& [y, x] : s.paired) target.push_back(y);
  for (int i = 0; i < type.shape.rank(); ++i)
    if (std::ranges::none_of(s.paired, [&](const auto& p) { return p.first == i || p.second == i - y_rank; }))
      target.push_back(i);
  Axes order = ir::iota_axes(static_cast<int>(target.size()));
  std::ranges::sort(order, {}, [&](std::int64_t i) { return target[static_cast<std::size_t>(i)]; });
  std::ranges::sort(target);
  const Value spread = broadcast(transpose(all, order), type.shape, target);
  Value on_diagonal;
  for (const auto& [y, x] : s.paired) {
    const Value same = equal(iota(DType::I32, type.shape, y), iota(DType::I32, type.shape, y_rank + x));
    on_diagonal = on_diagonal.defined() ? bit_and(on_diagonal, same) : same;
  }
  return select(on_diagonal, spread, ir::zeros_of(type));
}

Value Jacobian::diagonal() const {
  const JacobianStructure& s = *structure_;
  if (s.output.shape != s.input.shape)
    throw UserError("jacobian", "a diagonal needs an output of the input's shape",
                    s.output.str() + " with respect to " + s.input.str());
  const bool same_axes = std::ranges::all_of(s.paired, [](const auto& p) { return p.first == p.second; });
  if (!same_axes) return diagonal_of_moved(s, values_);
  Shape shape;
  Axes to_input;  // axes of the input, in the order of the blocks'
  for (const auto& [y, x] : s.paired) {
    shape.push_back(s.input.shape[x]);
    to_input.push_back(x);
  }
  const int last = shape.rank();
  for (int i = 0; i < s.input.shape.rank(); ++i)
    if (std::ranges::find(to_input, i) == to_input.end()) to_input.push_back(i);
  shape.push_back(s.num_rows);
  Value stored = reshape(values_, [&] {
    Shape flat = shape.without(last);
    flat.push_back(s.sparse ? static_cast<std::int64_t>(s.columns.size()) : s.num_rows * s.num_columns);
    return flat;
  }());
  Axes places, rows;
  for (std::int64_t r = 0; r < s.num_rows; ++r) {
    if (!s.sparse) {
      places.push_back(r * (s.num_columns + 1));
      rows.push_back(r);
      continue;
    }
    for (std::int64_t k = s.row_start[static_cast<std::size_t>(r)]; k < s.row_start[static_cast<std::size_t>(r) + 1];
         ++k)
      if (s.columns[static_cast<std::size_t>(k)] == r) {
        places.push_back(k);
        rows.push_back(r);
      }
  }
  Value found = constant(0, values_.dtype(), shape);
  if (!places.empty()) {
    const Value picked = gather(stored, constant(index_constant(places)), last);
    found = static_cast<std::int64_t>(places.size()) == s.num_rows
                ? picked
                : scatter_add(found, constant(index_constant(rows)), picked, last);
  }
  Shape in_order;
  for (const std::int64_t i : to_input) in_order.push_back(s.input.shape[static_cast<int>(i)]);
  return transpose(reshape(found, in_order), inverse(to_input));
}

Value Jacobian::product(Value v, bool transposed) const {
  const JacobianStructure& s = *structure_;
  const ValueType &from = transposed ? s.output : s.input, &to = transposed ? s.input : s.output;
  if (!v.defined() || v.type() != from)
    throw UserError("jacobian", std::string(transposed ? "rmatvec" : "matvec") + " takes a value of type " + from.str(),
                    v.defined() ? v.type().str() : "an undefined value");
  // Paired axes first, then the others as one.
  const auto axes_of = [&](const ValueType& type, bool is_output) {
    Axes axes;
    for (const auto& [y, x] : s.paired) axes.push_back(is_output ? y : x);
    for (int i = 0; i < type.shape.rank(); ++i)
      if (std::ranges::find(axes, i) == axes.end()) axes.push_back(i);
    return axes;
  };
  const int num_paired = static_cast<int>(s.paired.size());
  Shape blocks;
  for (const auto& [y, x] : s.paired) blocks.push_back(s.output.shape[y]);
  const auto with = [&](std::int64_t n) {
    Shape shape = blocks;
    shape.push_back(n);
    return shape;
  };
  const Value vectors = reshape(transpose(cast(v, values_.dtype()), axes_of(from, transposed)),
                                with(transposed ? s.num_rows : s.num_columns));
  Value result;
  if (s.sparse) {
    Axes rows;
    for (std::int64_t r = 0; r < s.num_rows; ++r)
      rows.insert(rows.end(),
                  static_cast<std::size_t>(s.row_start[static_cast<std::size_t>(r) + 1] -
                                           s.row_start[static_cast<std::size_t>(r)]),
                  r);
    const Axes &take_at = transposed ? rows : s.columns, &add_at = transposed ? s.columns : rows;
    result = constant(0, values_.dtype(), with(transposed ? s.num_columns : s.num_rows));
    if (!rows.empty()) {
      const Value products = values_ * gather(vectors, constant(index_constant(take_at)), num_paired);
      result = scatter_add(result, constant(index_constant(add_at)), products, num_paired);
    }
  } else {
    const Axes batch = ir::iota_axes(num_paired);
    result = dot(block_matrices(), vectors, {{transposed ? num_paired : num_paired + 1}, {num_paired}, batch, batch});
  }
  const Axes order = axes_of(to, !transposed);
  Shape shape;
  for (const std::int64_t i : order) shape.push_back(to.shape[static_cast<int>(i)]);
  return cast(transpose(reshape(result, shape), inverse(order)), to.dtype);
}

Value Jacobian::matvec(Value tangent) const { return product(tangent, false); }
Value Jacobian::rmatvec(Value cotangent) const { return product(cotangent, true); }

namespace ir {

void check_fits(const JacobianStructure& s, const ValueType& wanted, const std::string& what) {
  double bytes = static_cast<double>(size_of(wanted.dtype));
  for (const std::int64_t d : wanted.shape.dims()) bytes *= static_cast<double>(d);
  const std::int64_t limit = s.max_bytes > 0 ? s.max_bytes : physical_memory_bytes();
  if (bytes <= static_cast<double>(limit)) return;
  std::string remedy;
  if (what == "dense()" && !s.paired.empty()) remedy = "blocks() (" + size_text(s.blocks_type()) + "), ";
  if (s.sparse) remedy += "sparse() (" + size_text(s.values_type()) + "), ";
  throw UserError("jacobian", what + " must fit into " + bytes_text(static_cast<double>(limit)) + " of memory",
                  size_text(wanted), remedy + "matvec() and rmatvec(), or a part of the output at a time");
}

void check_elements_fit(const std::string& where, const JacobianStructure& s) {
  const ValueType type = s.values_type();
  double bytes = static_cast<double>(size_of(type.dtype));
  for (const std::int64_t d : type.shape.dims()) bytes *= static_cast<double>(d);
  const std::int64_t limit = s.max_bytes > 0 ? s.max_bytes : physical_memory_bytes();
  if (bytes <= static_cast<double>(limit)) return;
  const std::string products = s.symmetric ? "hvp()" : "jvp() and vjp()";
  throw UserError(where, "its stored elements must fit into " + bytes_text(static_cast<double>(limit)) + " of memory",
                  size_text(type) + ", of " + s.output.str() + " with respect to " + s.input.str(),
                  products + ", which give products with it, or a part of the output at a time");
}

}  // namespace ir
}  // namespace hotloop
