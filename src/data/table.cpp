#include "hotloop/table.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <unordered_map>

#include "core/nearest.h"
#include "core/print_number.h"
#include "data/labels.h"
#include "hotloop/error.h"

namespace hotloop::data {

void Table::add(Column column) {
  if (has(column.name)) throw UserError("table", "column names must differ", "a second column '" + column.name + "'");
  const auto length = static_cast<std::int64_t>(column.values.size());
  if (!columns_.empty() && length != num_rows_)
    throw UserError(
        "table", "columns must be equally long",
        "'" + column.name + "' with " + std::to_string(length) + " rows for a table of " + std::to_string(num_rows_));
  num_rows_ = length;
  columns_.push_back(std::move(column));
}

void Table::add(const std::string& name, std::vector<double> values) {
  add(Column{name, ColumnKind::Number, std::move(values), {}});
}

void Table::add_times(const std::string& name, std::vector<double> seconds) {
  add(Column{name, ColumnKind::Time, std::move(seconds), {}});
}

void Table::add_texts(const std::string& name, std::span<const std::string> texts) {
  Labels labels;
  std::vector<double> values;
  values.reserve(texts.size());
  for (const std::string& text : texts) values.push_back(labels.index(text));
  add(Column{name, ColumnKind::Text, std::move(values), {labels.all().begin(), labels.all().end()}});
}

bool Table::has(std::string_view name) const {
  return std::ranges::any_of(columns_, [&](const Column& c) { return c.name == name; });
}

const Table::Column& Table::column(std::string_view name) const {
  for (const Column& column : columns_)
    if (column.name == name) return column;
  throw UserError("table", "the column must be there", "'" + std::string(name) + "'", nearest_hint(name, names()));
}

std::span<const double> Table::operator[](std::string_view name) const { return column(name).values; }
ColumnKind Table::kind(std::string_view name) const { return column(name).kind; }
std::span<const std::string> Table::labels(std::string_view name) const { return column(name).labels; }

std::vector<std::string> Table::names() const {
  std::vector<std::string> all;
  for (const Column& column : columns_) all.push_back(column.name);
  return all;
}

std::string RowSource::place(const RowBlock& block, std::int64_t i) const {
  if (!block.lines.empty()) return name() + ":" + std::to_string(block.lines[static_cast<std::size_t>(i)]);
  return "row " + std::to_string(block.first_row + i) + " of " + name();
}

namespace {

class TableSource : public RowSource {
 public:
  TableSource(const Table& table, std::string name) : table_(table), name_(std::move(name)) {}
  std::string name() const override { return name_; }
  std::vector<std::string> column_names() const override { return table_.names(); }

  void select(const std::vector<ColumnRequest>& requests) override {
    requests_ = requests;
    labels_.resize(requests.size());
    for (const ColumnRequest& r : requests) {
      const ColumnKind kind = table_.kind(r.name);
      // A number can stand for a time in seconds or for its own text; a text for neither.
      if (kind != r.kind && !(kind == ColumnKind::Number || (kind == ColumnKind::Time && r.kind == ColumnKind::Number)))
        throw UserError("table", "column '" + r.name + "' must be " + (r.kind == ColumnKind::Text ? "text" : "numbers"),
                        kind == ColumnKind::Text ? "texts" : "times",
                        kind == ColumnKind::Text && r.kind == ColumnKind::Number ? "a one-hot column" : "");
    }
  }

  bool next(RowBlock& block) override {
    constexpr std::int64_t block_rows = 4096;
    if (at_ >= table_.num_rows()) return false;
    const std::int64_t count = std::min(block_rows, table_.num_rows() - at_);
    block.first_row = at_;
    block.lines.clear();
    block.columns.assign(requests_.size(), {});
    for (std::size_t c = 0; c < requests_.size(); ++c) read_column(c, count, block);
    at_ += count;
    return true;
  }

  std::span<const std::string> labels(std::size_t request) const override {
    const ColumnRequest& r = requests_[request];
    return table_.kind(r.name) == ColumnKind::Text ? table_.labels(r.name) : labels_[request].all();
  }

 private:
  void read_column(std::size_t c, std::int64_t count, RowBlock& block) {
    const ColumnRequest& r = requests_[c];
    const std::span<const double> values =
        table_[r.name].subspan(static_cast<std::size_t>(at_), static_cast<std::size_t>(count));
    std::vector<double>& out = block.columns[c];
    out.assign(values.begin(), values.end());
    const bool as_text = r.kind == ColumnKind::Text && table_.kind(r.name) != ColumnKind::Text;
    for (std::size_t i = 0; i < out.size(); ++i) {
      if ((std::isnan(out[i]) && !r.may_be_missing) || std::isinf(out[i]))
        throw UserError("table", "every value of column '" + r.name + "' must be finite",
                        print_number(out[i]) + " in row " + std::to_string(at_ + static_cast<std::int64_t>(i)),
                        "mend the value, or missing = \"drop\", \"forward\" or \"mean\"");
      if (as_text && !std::isnan(out[i])) out[i] = labels_[c].index(print_number(out[i]));
    }
  }

  const Table& table_;
  std::string name_;
  std::vector<ColumnRequest> requests_;
  std::vector<Labels> labels_;
  std::int64_t at_ = 0;
};

}  // namespace

std::unique_ptr<RowSource> open_table(const Table& table, const std::string& name) {
  return std::make_unique<TableSource>(table, name);
}

}  // namespace hotloop::data
