#include "cli/table_profile.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <set>
#include <span>

#include "data/number.h"
#include "data/time.h"

namespace hotloop::cli {
namespace {

constexpr double none = std::numeric_limits<double>::quiet_NaN();
constexpr std::array orders = {data::DateOrder::YearFirst, data::DateOrder::DayFirst, data::DateOrder::MonthFirst};

// A text of a column and what it can be read as.
struct Reading {
  std::int64_t cells = 0;
  std::optional<double> number;
  bool formatted = false;  // a number that is written in another way
  std::array<std::optional<double>, orders.size()> times;
};

std::vector<Reading> readings(std::span<const std::string> texts, const std::vector<double>& indices) {
  std::vector<Reading> all(texts.size());
  for (std::size_t i = 0; i < texts.size(); ++i) {
    all[i].number = data::parse_number(texts[i]);
    all[i].formatted = data::is_formatted_number(texts[i]);
    for (std::size_t o = 0; o < orders.size(); ++o) all[i].times[o] = data::parse_time(texts[i], orders[o]);
  }
  for (const double index : indices)
    if (!std::isnan(index)) ++all[static_cast<std::size_t>(index)].cells;
  return all;
}

template <class Predicate> std::int64_t cells(const std::vector<Reading>& texts, Predicate&& which) {
  std::int64_t count = 0;
  for (const Reading& r : texts)
    if (which(r)) count += r.cells;
  return count;
}

bool nearly_all(std::int64_t some, std::int64_t all) { return some > 0 && some * 10 >= all * 9; }

// Nearly all cells, or half of them with more different numbers than categories have.
bool looks_numeric(const std::vector<Reading>& texts, std::int64_t num_cells) {
  const auto is_number = [](const Reading& r) { return r.number || r.formatted; };
  const std::int64_t numbers = cells(texts, is_number);
  return nearly_all(numbers, num_cells) ||
         (numbers * 2 >= num_cells && std::ranges::count_if(texts, is_number) > most_categories);
}

// The order that reads the most cells as times.
std::size_t best_order(const std::vector<Reading>& texts, const std::optional<data::DateOrder>& given) {
  if (given) return static_cast<std::size_t>(*given);
  std::array<std::int64_t, orders.size()> counts{};
  for (std::size_t o = 0; o < orders.size(); ++o)
    counts[o] = cells(texts, [&](const Reading& r) { return r.times[o].has_value(); });
  return static_cast<std::size_t>(std::ranges::max_element(counts) - counts.begin());
}

// Whether days and months could be swapped in all of the dates, and some would be others.
bool is_ambiguous(const std::vector<Reading>& texts) {
  const auto day_first = [](const Reading& r) { return r.times[1]; };
  const auto month_first = [](const Reading& r) { return r.times[2]; };
  return std::ranges::all_of(
             texts, [&](const Reading& r) { return day_first(r).has_value() == month_first(r).has_value(); }) &&
         std::ranges::any_of(texts, [&](const Reading& r) { return day_first(r) != month_first(r); });
}

// The values of the texts, by row; what is none is an odd cell.
template <class ValueOf> void take_values(ColumnProfile& column, std::span<const std::string> texts,
                                          const std::vector<Reading>& all, ValueOf&& value_of) {
  std::vector<bool> seen(texts.size(), false);
  for (std::size_t row = 0; row < column.values.size(); ++row) {
    double& value = column.values[row];
    if (std::isnan(value)) continue;
    const auto text = static_cast<std::size_t>(value);
    value = value_of(all[text]).value_or(none);
    if (!std::isnan(value)) continue;
    ++column.num_odd;
    if (!seen[text]) column.odd_cells.push_back({row, texts[text]});
    seen[text] = true;
    if (all[text].formatted && !column.first_formatted) column.first_formatted = {row, texts[text]};
  }
}

// `column.values` are indices into the texts.
void decide(ColumnProfile& column, std::span<const std::string> texts, const ProfileOptions& options) {
  column.num_missing = std::ranges::count_if(column.values, [](double v) { return std::isnan(v); });
  column.num_cells = static_cast<std::int64_t>(column.values.size()) - column.num_missing;
  column.num_different = static_cast<std::int64_t>(texts.size());
  if (!texts.empty()) column.example = texts[0];
  column.texts.assign(texts.begin(), texts.end());
  if (std::ranges::find(options.texts, column.name) != options.texts.end()) return;
  const std::vector<Reading> all = readings(texts, column.values);
  if (looks_numeric(all, column.num_cells)) {
    column.kind = data::ColumnKind::Number;
    column.texts.clear();
    take_values(column, texts, all, [](const Reading& r) { return r.number; });
    return;
  }
  const std::size_t order = best_order(all, options.dates);
  const auto time = [&](const Reading& r) { return r.times[order]; };
  if (!nearly_all(cells(all, [&](const Reading& r) { return time(r).has_value(); }), column.num_cells)) return;
  column.kind = data::ColumnKind::Time;
  column.dates = orders[order];
  column.ambiguous_dates = !options.dates && is_ambiguous(all);
  take_values(column, texts, all, time);
  column.first_formatted.reset();
}

}  // namespace

bool ColumnProfile::varies() const {
  const auto first = std::ranges::find_if(values, [](double v) { return std::isfinite(v); });
  return std::any_of(first, values.end(), [&](double v) { return std::isfinite(v) && v != *first; });
}

std::string TableProfile::place(std::size_t row) const {
  return lines.empty() ? "row " + std::to_string(row) : "line " + std::to_string(lines[row]);
}

TableProfile profile_table(const std::string& path, const ProfileOptions& options) {
  const std::unique_ptr<data::RowSource> rows = data::open_file(path, options.csv);
  TableProfile table;
  std::vector<data::ColumnRequest> requests;
  for (const std::string& name : rows->column_names()) {
    if (name.empty()) continue;  // as a column of row numbers often is
    requests.push_back({name, data::ColumnKind::Text, true});
    table.columns.push_back({.name = name});
  }
  if (requests.empty()) return table;
  rows->select(requests);
  std::int64_t num_rows = 0;
  for (data::RowBlock block; num_rows < rows_looked_at && rows->next(block); num_rows += block.num_rows) {
    table.lines.insert(table.lines.end(), block.lines.begin(), block.lines.end());
    for (std::size_t c = 0; c < requests.size(); ++c)
      table.columns[c].values.insert(table.columns[c].values.end(), block.columns[c].begin(), block.columns[c].end());
  }
  for (std::size_t c = 0; c < requests.size(); ++c) decide(table.columns[c], rows->labels(c), options);
  return table;
}

}  // namespace hotloop::cli
