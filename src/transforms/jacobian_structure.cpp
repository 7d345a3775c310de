#include <algorithm>
#include <cstdio>
#include <sstream>

#include "core/index.h"
#include "core/memory.h"
#include "core/nearest.h"
#include "hotloop/error.h"
#include "hotloop/jacobian.h"
#include "transforms/jacobian_plan.h"

namespace hotloop {
namespace {

constexpr std::string_view mode_names[] = {"auto", "forward", "reverse", "mixed"};

Shape paired_shape(const JacobianStructure& s) {
  Shape shape;
  for (const auto& [y, x] : s.paired) shape.push_back(s.output.shape[y]);
  return shape;
}

// Axes of y (or of x) that are not paired.
std::vector<int> other_axes(const JacobianStructure& s, bool of_output) {
  std::vector<int> axes;
  for (int i = 0; i < (of_output ? s.output : s.input).shape.rank(); ++i)
    if (std::ranges::none_of(s.paired, [&](const auto& p) { return (of_output ? p.first : p.second) == i; }))
      axes.push_back(i);
  return axes;
}

std::string number_text(double x) {
  char text[32];
  std::snprintf(text, sizeof text, x < 1e6 ? "%.0f" : "%.3g", x);
  return text;
}

// "label      text", in lines of at most 80 columns.
std::string in_lines(const std::string& label, const std::string& text) {
  constexpr std::size_t indent = 11, width = 80;
  std::string lines, line = label.empty() ? "" : label + std::string(indent - label.size(), ' ');
  std::istringstream words(text);
  bool first = true;
  for (std::string word; words >> word;) {
    if (!first && line.size() + 1 + word.size() > width) {
      lines += line + "\n";
      line = std::string(indent, ' ') + word;
    } else {
      line += (first ? "" : " ") + word;
    }
    first = false;
  }
  return lines + line + "\n";
}

std::string bytes_of(const ValueType& type) {
  return bytes_text(static_cast<double>(type.shape.size()) * static_cast<double>(size_of(type.dtype)));
}

// Calls f(row, column, position in values()) for every stored element, row by row of the whole matrix, columns ascending.
template <class F> void for_each_stored(const JacobianStructure& s, F&& f) {
  const std::vector<int> y_others = other_axes(s, true), x_others = other_axes(s, false);
  std::vector<std::int64_t> x_strides(at(s.input.shape.rank()), 1);
  for (int i = s.input.shape.rank() - 2; i >= 0; --i) x_strides[at(i)] = x_strides[at(i + 1)] * s.input.shape[i + 1];
  const std::int64_t stored = s.sparse ? static_cast<std::int64_t>(s.columns.size()) : s.num_rows * s.num_columns;
  struct Element {
    std::int64_t column, position;
  };
  std::vector<Element> row_elements;
  for (std::int64_t row = 0; row < s.output.shape.size(); ++row) {
    std::vector<std::int64_t> index(at(s.output.shape.rank()));
    std::int64_t rest = row;
    for (int i = s.output.shape.rank() - 1; i >= 0; --i) {
      index[at(i)] = rest % s.output.shape[i];
      rest /= s.output.shape[i];
    }
    std::int64_t block = 0, block_row = 0, first_column = 0;
    for (const auto& [y, x] : s.paired) {
      block = block * s.output.shape[y] + index[at(y)];
      first_column += index[at(y)] * x_strides[at(x)];
    }
    for (const int y : y_others) block_row = block_row * s.output.shape[y] + index[at(y)];
    const auto column_of = [&](std::int64_t block_column) {
      std::int64_t column = first_column, left = block_column;
      for (std::size_t k = x_others.size(); k-- > 0;) {
        const std::int64_t extent = s.input.shape[x_others[k]];
        column += left % extent * x_strides[at(x_others[k])];
        left /= extent;
      }
      return column;
    };
    row_elements.clear();
    if (s.sparse)
      for (std::int64_t k = s.row_start[at(block_row)]; k < s.row_start[at(block_row + 1)]; ++k)
        row_elements.push_back({column_of(s.columns[at(k)]), block * stored + k});
    else
      for (std::int64_t c = 0; c < s.num_columns; ++c)
        row_elements.push_back({column_of(c), block * stored + block_row * s.num_columns + c});
    std::ranges::sort(row_elements, {}, &Element::column);
    for (const Element& e : row_elements) f(row, e.column, e.position);
  }
}

template <class F> Array index_array(std::int64_t size, F&& fill) {
  Array indices(DType::I64, {size});
  fill(indices.data<std::int64_t>());
  return indices;
}

}  // namespace

std::string_view name_of(JacobianMode mode) { return mode_names[static_cast<std::size_t>(mode)]; }

JacobianMode jacobian_mode_from_name(std::string_view name) {
  std::vector<std::string> names;
  for (std::size_t i = 0; i < std::size(mode_names); ++i) {
    if (mode_names[i] == name) return static_cast<JacobianMode>(i);
    names.emplace_back(mode_names[i]);
  }
  throw UserError("jacobian", "the mode must be auto, forward, reverse or mixed", std::string(name),
                  nearest_hint(std::string(name), names));
}

std::int64_t JacobianStructure::num_blocks() const { return paired_shape(*this).size(); }

std::int64_t JacobianStructure::num_stored() const {
  return num_blocks() * (sparse ? static_cast<std::int64_t>(columns.size()) : num_rows * num_columns);
}

ValueType JacobianStructure::values_type() const {
  if (!sparse) return blocks_type();
  Shape shape = paired_shape(*this);
  shape.push_back(static_cast<std::int64_t>(columns.size()));
  return {output.dtype, shape};
}

ValueType JacobianStructure::blocks_type() const {
  Shape shape = paired_shape(*this);
  for (const int i : other_axes(*this, true)) shape.push_back(output.shape[i]);
  for (const int i : other_axes(*this, false)) shape.push_back(input.shape[i]);
  return {output.dtype, shape};
}

ValueType JacobianStructure::dense_type() const {
  Shape shape = output.shape;
  for (const std::int64_t d : input.shape.dims()) shape.push_back(d);
  return {output.dtype, shape};
}

Array JacobianStructure::indptr() const {
  return index_array(output.shape.size() + 1, [&](std::span<std::int64_t> to) {
    std::ranges::fill(to, 0);
    for_each_stored(*this, [&](std::int64_t row, std::int64_t, std::int64_t) { ++to[at(row + 1)]; });
    for (std::size_t i = 1; i < to.size(); ++i) to[i] += to[i - 1];
  });
}

Array JacobianStructure::column_indices() const {
  return index_array(num_stored(), [&](std::span<std::int64_t> to) {
    std::size_t next = 0;
    for_each_stored(*this, [&](std::int64_t, std::int64_t column, std::int64_t) { to[next++] = column; });
  });
}

Array JacobianStructure::row_indices() const {
  return index_array(num_stored(), [&](std::span<std::int64_t> to) {
    std::size_t next = 0;
    for_each_stored(*this, [&](std::int64_t row, std::int64_t, std::int64_t) { to[next++] = row; });
  });
}

std::string JacobianStructure::explain() const {
  std::ostringstream structure, passes, cost, dense;
  if (paired.empty())
    structure << "one block of ";
  else
    structure << "block-diagonal: " << num_blocks() << (num_blocks() == 1 ? " block of " : " blocks of ");
  structure << num_rows << " x " << num_columns;
  if (sparse) structure << ", " << columns.size() << " elements each that may differ from zero";
  for (const auto& [y, x] : paired)
    structure << "; axis " << y << " of the output goes with axis " << x << " of the input";
  if (!note.empty()) structure << "; " << note;
  passes << name_of(mode) << ": " << forward_passes << " forward and " << reverse_passes << " reverse passes";
  cost << number_text(flops) << " flops, " << bytes_of(values_type()) << " stored";
  dense << std::min(output.shape.size(), input.shape.size()) << " passes, " << number_text(dense_flops) << " flops, "
        << bytes_of(dense_type());
  const std::string of = (symmetric ? "Hessian" : "Jacobian") + std::string(" of ") + output.str();
  return in_lines("", of + " with respect to " + input.str()) + in_lines("structure", structure.str()) +
         in_lines("mode", passes.str()) + in_lines("cost", cost.str()) + in_lines("dense", dense.str());
}

std::vector<std::int64_t> ir::stored_order(const JacobianStructure& s) {
  std::vector<std::int64_t> order;
  for_each_stored(s, [&](std::int64_t, std::int64_t, std::int64_t position) { order.push_back(position); });
  return order;
}

}  // namespace hotloop
