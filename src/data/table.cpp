#include <algorithm>

#include "core/nearest.h"
#include "hotloop/data.h"
#include "hotloop/error.h"

namespace hotloop::data {

void Table::add(const std::string& name, std::vector<double> values) {
  if (has(name)) throw UserError("table", "column names must differ", "a second column '" + name + "'");
  const auto length = static_cast<std::int64_t>(values.size());
  if (!columns_.empty() && length != num_rows_)
    throw UserError(
        "table", "columns must be equally long",
        "'" + name + "' with " + std::to_string(length) + " rows for a table of " + std::to_string(num_rows_));
  num_rows_ = length;
  columns_.emplace_back(name, std::move(values));
}

bool Table::has(std::string_view name) const {
  return std::ranges::any_of(columns_, [&](const auto& c) { return c.first == name; });
}

std::span<const double> Table::operator[](std::string_view name) const {
  for (const auto& [column, values] : columns_)
    if (column == name) return values;
  throw UserError("table", "the column must be there", "'" + std::string(name) + "'", nearest_hint(name, names()));
}

std::vector<std::string> Table::names() const {
  std::vector<std::string> all;
  for (const auto& column : columns_) all.push_back(column.first);
  return all;
}

}  // namespace hotloop::data
