// Sparsity patterns and their colouring.
#pragma once

#include <cstdint>
#include <vector>

namespace hotloop::ir {

// Which elements of a matrix may differ from zero, row by row, columns ascending (CSR without values).
struct Pattern {
  std::int64_t num_rows = 0, num_columns = 0;
  std::vector<std::int64_t> row_start{0};
  std::vector<std::int64_t> columns;

  std::int64_t nnz() const { return static_cast<std::int64_t>(columns.size()); }
  void add_row(const std::vector<int>& row);
  std::int64_t row_begin(std::int64_t row) const { return row_start[static_cast<std::size_t>(row)]; }
  std::int64_t row_end(std::int64_t row) const { return row_start[static_cast<std::size_t>(row) + 1]; }
  bool has(std::int64_t row, std::int64_t column) const;
  Pattern transposed() const;
  Pattern united(const Pattern& other) const;  // of the same shape
};

// A colour for each column (or vertex), from 0.
struct Colouring {
  std::vector<std::int64_t> colours;
  std::int64_t num_colours = 0;
};

// Columns of one colour share no row, so that one tangent gives all of them (Curtis, Powell and Reid 1974). Greedy, columns
// with most neighbours first. Rows flagged in `ignored` may be shared.
Colouring colour_columns(const Pattern& pattern, const std::vector<bool>& ignored = {});

// For a symmetric pattern: no path of four vertices has two colours, so that every element can be read off a product with the
// columns of one colour, in one of its two places (star colouring: Gebremedhin, Manne and Pothen 2005).
Colouring colour_star(const Pattern& symmetric);
// Whether element (row, column) is read in its own place; else in that of (column, row).
bool star_reads_column(const Pattern& symmetric, const Colouring& colouring, std::int64_t row, std::int64_t column);

}  // namespace hotloop::ir
