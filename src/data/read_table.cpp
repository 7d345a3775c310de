#include <algorithm>
#include <cmath>
#include <map>

#include "core/print_number.h"
#include "core/utf8.h"
#include "data/samples.h"
#include "data/time.h"
#include "hotloop/error.h"

namespace hotloop::data {

std::string RawTable::place(std::int64_t row, double line) const {
  return has_lines ? name + ":" + std::to_string(static_cast<std::int64_t>(line))
                   : "row " + std::to_string(row) + " of " + name;
}

RawTable read_table(RowSource& source, const Columns& columns, const std::shared_ptr<MemoryBudget>& budget,
                    bool whole_series) {
  source.select(columns.requests);
  const std::size_t width = columns.requests.size();
  RawTable table;
  table.name = source.name();
  table.rows = std::make_unique<RowStore>((width + 1) * sizeof(double), budget);
  std::vector<double> rows;
  std::int64_t last_series = -1;
  for (RowBlock block; source.next(block);) {
    const auto count = static_cast<std::size_t>(block.num_rows);
    rows.assign(count * (width + 1), 0);
    table.has_lines = !block.lines.empty();
    for (std::size_t i = 0; i < count; ++i) {
      for (std::size_t c = 0; c < width; ++c) rows[i * (width + 1) + c] = block.columns[c][i];
      if (table.has_lines) rows[i * (width + 1) + width] = static_cast<double>(block.lines[i]);
      const auto id = columns.series() < 0
                          ? 0
                          : static_cast<std::int64_t>(block.columns[static_cast<std::size_t>(columns.series())][i]);
      const auto index = static_cast<std::size_t>(id);
      if (index >= table.series_rows.size()) table.series_rows.resize(index + 1);
      if (id != last_series && table.series_rows[index] > 0) {
        if (whole_series) {
          const std::string& label = source.labels(static_cast<std::size_t>(columns.series()))[index];
          throw UserError(
              "data", "the rows of a sample must stand together",
              "sample '" + printable(label) + "' again at " + source.place(block, static_cast<std::int64_t>(i)),
              "sort the table by sample");
        }
        table.alternating = true;
      }
      last_series = id;
      ++table.series_rows[index];
    }
    table.rows->append(static_cast<std::int64_t>(count), rows.data());
  }
  for (std::size_t c = 0; c < width; ++c) {
    const std::span<const std::string> labels =
        columns.requests[c].kind == ColumnKind::Text ? source.labels(c) : std::span<const std::string>();
    table.labels.emplace_back(labels.begin(), labels.end());
  }
  return table;
}

double find_time_step(const Recipe& recipe, const RawTable& table, const Columns& columns) {
  if (columns.time < 0 || recipe.time_step == "any") return 0;
  if (recipe.time_step != "auto") return parse_duration(recipe.time_step).value();
  // Irregular tables have as many differences as rows; the common one shows early.
  constexpr std::size_t most_differences = 100000;
  const std::size_t width = columns.requests.size() + 1;
  std::map<double, std::int64_t> counts;
  std::vector<double> last(table.series_rows.size(), std::nan(""));
  for_each_block(*table.rows, [&](std::int64_t, std::int64_t count, const double* rows) {
    for (std::size_t i = 0; i < static_cast<std::size_t>(count); ++i) {
      const double* row = rows + i * width;
      const std::size_t series = columns.series() < 0 ? 0 : static_cast<std::size_t>(row[columns.series()]);
      const double difference = row[columns.time] - std::exchange(last[series], row[columns.time]);
      if (difference > 0 && (counts.size() < most_differences || counts.contains(difference))) ++counts[difference];
    }
  });
  double step = 0;
  std::int64_t most = 0;
  for (const auto& [difference, count] : counts)
    if (count > most) {
      step = difference;
      most = count;
    }
  return step;
}

}  // namespace hotloop::data
