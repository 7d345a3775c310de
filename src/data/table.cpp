#include "hotloop/table.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <unordered_map>

#include "core/nearest.h"
#include "core/print_number.h"
#include "data/cell_reader.h"
#include "data/columns.h"
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
  positions_.emplace(column.name, columns_.size());
  columns_.push_back(std::move(column));
}

void Table::add(const std::string& name, std::vector<double> values) {
  add(Column{name, ColumnKind::Number, std::move(values), {}});
}

void Table::add(const std::string& name, std::vector<double> values, std::vector<std::string> texts) {
  if (texts.size() != values.size())
    throw UserError("table", "numbers and their texts must be equally many",
                    std::to_string(values.size()) + " and " + std::to_string(texts.size()) + " of '" + name + "'");
  add(Column{.name = name, .values = std::move(values), .texts = std::move(texts)});
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

bool Table::has(std::string_view name) const { return positions_.contains(name); }

const Table::Column& Table::column(std::string_view name) const {
  if (const auto it = positions_.find(name); it != positions_.end()) return columns_[it->second];
  throw UserError("table", "the column must be there", "'" + std::string(name) + "'", nearest_hint(name, names()));
}

std::span<const double> Table::operator[](std::string_view name) const { return column(name).values; }
ColumnKind Table::kind(std::string_view name) const { return column(name).kind; }
std::span<const std::string> Table::labels(std::string_view name) const { return column(name).labels; }

std::span<const std::string> Table::texts(std::string_view name) const { return column(name).texts; }

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
  TableSource(const Table& table, std::string name, const CsvOptions& options)
      : table_(table), name_(std::move(name)), reader_("table", options) {}
  std::string name() const override { return name_; }
  std::vector<std::string> column_names() const override { return table_.names(); }

  void select(const std::vector<ColumnRequest>& requests) override {
    const std::vector<std::string> names = table_.names();
    positions_of(requests, names, "table", name_, std::to_string(names.size()) + " other columns");
    requests_ = requests;
    reader_.start(requests);
    for (const ColumnRequest& r : requests) {
      const ColumnKind kind = table_.kind(r.name);
      // A number can stand for a time or for its own text, a text for a time.
      if (kind != r.kind &&
          !(kind == ColumnKind::Number || (kind == ColumnKind::Time && r.kind == ColumnKind::Number) ||
            (kind == ColumnKind::Text && r.kind == ColumnKind::Time)))
        throw UserError("table", "column '" + r.name + "' must be " + (r.kind == ColumnKind::Text ? "text" : "numbers"),
                        kind == ColumnKind::Text ? "texts" : "times",
                        kind == ColumnKind::Text && r.kind == ColumnKind::Number ? "a one-hot column" : "");
    }
  }

  bool next(RowBlock& block) override {
    constexpr std::int64_t block_rows = 4096;
    if (at_ >= table_.num_rows()) {
      reader_.finish();
      return false;
    }
    const std::int64_t count = std::min(block_rows, table_.num_rows() - at_);
    block.first_row = at_;
    block.num_rows = count;
    block.lines.clear();
    block.columns.assign(requests_.size(), {});
    for (std::size_t c = 0; c < requests_.size(); ++c) read_column(c, count, block);
    at_ += count;
    return true;
  }

  std::span<const std::string> labels(std::size_t request) const override { return reader_.labels(request); }

 private:
  void read_column(std::size_t c, std::int64_t count, RowBlock& block) {
    const ColumnRequest& r = requests_[c];
    const std::span<const double> values =
        table_[r.name].subspan(static_cast<std::size_t>(at_), static_cast<std::size_t>(count));
    std::vector<double>& out = block.columns[c];
    out.assign(values.begin(), values.end());
    const ColumnKind kind = table_.kind(r.name);
    const std::span<const std::string> labels = table_.labels(r.name), texts = table_.texts(r.name);
    for (std::size_t i = 0; i < out.size(); ++i) {
      const std::int64_t row = at_ + static_cast<std::int64_t>(i);
      const auto place = [&] { return " in row " + std::to_string(row); };
      if ((std::isnan(out[i]) && !r.may_be_missing) || std::isinf(out[i]))
        throw UserError("table", "every value of column '" + r.name + "' must be finite",
                        print_number(out[i]) + place(),
                        "mend the value, or missing = \"drop\", \"forward\" or \"mean\"");
      if (std::isnan(out[i]) || kind == ColumnKind::Time) continue;
      if (kind == ColumnKind::Text)
        out[i] = reader_.text(c, labels[static_cast<std::size_t>(out[i])], place);
      else if (r.kind == ColumnKind::Time)
        out[i] = reader_.time_of_number(c, out[i], place);
      else if (r.kind == ColumnKind::Text)
        out[i] = reader_.label(c, texts.empty() ? number_label(out[i]) : texts[static_cast<std::size_t>(row)]);
    }
  }

  const Table& table_;
  std::string name_;
  std::vector<ColumnRequest> requests_;
  CellReader reader_;
  std::int64_t at_ = 0;
};

}  // namespace

std::unique_ptr<RowSource> open_table(const Table& table, const std::string& name, const CsvOptions& options) {
  return std::make_unique<TableSource>(table, name, options);
}

}  // namespace hotloop::data
