// What the first rows of a table tell about its columns.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "hotloop/table.h"

namespace hotloop::cli {

constexpr std::int64_t rows_looked_at = 10'000;
constexpr std::int64_t most_categories = 20;  // of a column that is an input

struct Cell {
  std::size_t row = 0;
  std::string text = {};
};

struct ColumnProfile {
  std::string name;
  // Numbers or times where (nearly) all cells are; the others, odd cells, are then NaN as missing ones are.
  data::ColumnKind kind = data::ColumnKind::Text;
  std::vector<double> values = {};  // by row: a number, seconds, or the index of a text
  std::int64_t num_cells = 0, num_missing = 0, num_odd = 0;
  std::int64_t num_different = 0;       // texts
  std::vector<Cell> odd_cells = {};     // of each odd text the first
  std::vector<std::string> texts = {};  // of a column that is not of numbers: the different ones
  // Of the odd cells of numbers: a number with separators of thousands and the like.
  std::optional<Cell> first_formatted = {};
  std::string example = {};  // the first text that is not missing
  data::DateOrder dates = data::DateOrder::YearFirst;
  bool ambiguous_dates = false;

  bool varies() const;
};

struct TableProfile {
  std::vector<ColumnProfile> columns;  // those with a name
  std::vector<std::int64_t> lines;     // of the rows; empty if the table has none
  std::string place(std::size_t row) const;
};

struct ProfileOptions {
  data::CsvOptions csv = {};
  std::optional<data::DateOrder> dates = {};  // none: whichever reads all dates
  std::vector<std::string> texts = {};        // columns that are of texts whatever they hold
};
TableProfile profile_table(const std::string& path, const ProfileOptions& options);

}  // namespace hotloop::cli
