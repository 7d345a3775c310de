#include "transforms/pattern.h"

#include <algorithm>
#include <numeric>

#include "core/index.h"

namespace hotloop::ir {
namespace {

// The smallest colour that is not marked with `stamp`.
std::int64_t smallest_free(std::vector<std::int64_t>& marks, std::int64_t stamp) {
  std::int64_t colour = 0;
  while (colour < static_cast<std::int64_t>(marks.size()) && marks[at(colour)] == stamp) ++colour;
  if (colour == static_cast<std::int64_t>(marks.size())) marks.push_back(-1);
  return colour;
}

}  // namespace

void Pattern::add_row(const std::vector<int>& row) {
  columns.insert(columns.end(), row.begin(), row.end());
  row_start.push_back(nnz());
  ++num_rows;
}

bool Pattern::has(std::int64_t row, std::int64_t column) const {
  return std::binary_search(columns.begin() + row_begin(row), columns.begin() + row_end(row), column);
}

Pattern Pattern::transposed() const {
  Pattern t;
  t.num_rows = num_columns;
  t.num_columns = num_rows;
  t.row_start.assign(at(num_columns) + 1, 0);
  for (const std::int64_t c : columns) ++t.row_start[at(c) + 1];
  std::partial_sum(t.row_start.begin(), t.row_start.end(), t.row_start.begin());
  t.columns.resize(columns.size());
  std::vector<std::int64_t> next = t.row_start;
  for (std::int64_t r = 0; r < num_rows; ++r)
    for (std::int64_t k = row_begin(r); k < row_end(r); ++k) t.columns[at(next[at(columns[at(k)])]++)] = r;
  return t;
}

Pattern Pattern::united(const Pattern& other) const {
  Pattern both;
  both.num_columns = num_columns;
  for (std::int64_t r = 0; r < num_rows; ++r) {
    std::vector<int> row;
    std::set_union(columns.begin() + row_begin(r), columns.begin() + row_end(r),
                   other.columns.begin() + other.row_begin(r), other.columns.begin() + other.row_end(r),
                   std::back_inserter(row));
    both.add_row(row);
  }
  return both;
}

Colouring colour_columns(const Pattern& pattern, const std::vector<bool>& ignored) {
  const Pattern by_column = pattern.transposed();
  const auto skip = [&](std::int64_t row) { return !ignored.empty() && ignored[at(row)]; };
  std::vector<std::int64_t> weight(at(pattern.num_columns), 0), order(at(pattern.num_columns));
  for (std::int64_t c = 0; c < pattern.num_columns; ++c)
    for (std::int64_t k = by_column.row_begin(c); k < by_column.row_end(c); ++k) {
      const std::int64_t row = by_column.columns[at(k)];
      if (!skip(row)) weight[at(c)] += pattern.row_end(row) - pattern.row_begin(row) - 1;
    }
  std::iota(order.begin(), order.end(), 0);
  std::ranges::stable_sort(order, std::greater<>{}, [&](std::int64_t c) { return weight[at(c)]; });

  Colouring result{std::vector<std::int64_t>(at(pattern.num_columns), -1), 0};
  std::vector<std::int64_t> marks;
  for (const std::int64_t c : order) {
    for (std::int64_t k = by_column.row_begin(c); k < by_column.row_end(c); ++k) {
      const std::int64_t row = by_column.columns[at(k)];
      if (skip(row)) continue;
      for (std::int64_t j = pattern.row_begin(row); j < pattern.row_end(row); ++j) {
        const std::int64_t colour = result.colours[at(pattern.columns[at(j)])];
        if (colour >= 0) marks[at(colour)] = c;
      }
    }
    result.colours[at(c)] = smallest_free(marks, c);
  }
  result.num_colours = static_cast<std::int64_t>(marks.size());
  return result;
}

Colouring colour_star(const Pattern& symmetric) {
  const std::int64_t n = symmetric.num_rows;
  Colouring result{std::vector<std::int64_t>(at(n), -1), 0};
  const auto colour = [&](std::int64_t v) { return result.colours[at(v)]; };
  const auto neighbours = [&](std::int64_t v, auto&& visit) {
    for (std::int64_t k = symmetric.row_begin(v); k < symmetric.row_end(v); ++k)
      if (symmetric.columns[at(k)] != v) visit(symmetric.columns[at(k)]);
  };
  std::vector<std::int64_t> order(at(n));
  std::iota(order.begin(), order.end(), 0);
  std::ranges::stable_sort(order, std::greater<>{},
                           [&](std::int64_t v) { return symmetric.row_end(v) - symmetric.row_begin(v); });
  // How many neighbours of a vertex have each colour, up to the last that any has.
  std::vector<std::vector<std::int32_t>> counts(at(n));
  const auto has_another = [&](std::int64_t v, std::int64_t of) { return counts[at(v)][at(of)] > 1; };
  std::vector<std::int64_t> marks;
  for (const std::int64_t v : order) {
    neighbours(v, [&](std::int64_t w) {
      const std::int64_t between = colour(w);
      if (between >= 0) marks[at(between)] = v;
      const bool closes_here = between < 0 || has_another(v, between);
      neighbours(w, [&](std::int64_t x) {
        if (x == v || colour(x) < 0) return;
        // v - w - x with v and x of one colour: allowed only if that cannot become a path of four with two colours, by another
        // neighbour of w's colour at either end.
        if (closes_here || has_another(x, between)) marks[at(colour(x))] = v;
      });
    });
    const std::int64_t own = smallest_free(marks, v);
    result.colours[at(v)] = own;
    neighbours(v, [&](std::int64_t w) {
      if (static_cast<std::int64_t>(counts[at(w)].size()) <= own) counts[at(w)].resize(at(own) + 1);
      ++counts[at(w)][at(own)];
    });
  }
  result.num_colours = static_cast<std::int64_t>(marks.size());
  return result;
}

bool star_reads_column(const Pattern& symmetric, const Colouring& colouring, std::int64_t row, std::int64_t column) {
  for (std::int64_t k = symmetric.row_begin(row); k < symmetric.row_end(row); ++k) {
    const std::int64_t other = symmetric.columns[at(k)];
    if (other != column && colouring.colours[at(other)] == colouring.colours[at(column)]) return false;
  }
  return true;
}

}  // namespace hotloop::ir
