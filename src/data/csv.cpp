// Comma-separated values as a source of rows; numbers by fast_float, whatever the locale.
#include <fast_float/fast_float.h>
#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>
#include <set>

#include "core/utf8.h"
#include "data/columns.h"
#include "data/labels.h"
#include "data/number.h"
#include "data/records.h"
#include "data/separator.h"
#include "data/time.h"
#include "hotloop/error.h"
#include "io/reader.h"

namespace hotloop::data {
namespace {

constexpr std::int64_t block_rows = 4096;
constexpr std::size_t piece_bytes = std::size_t{1} << 20;

std::string show(std::string_view cell) { return cell.empty() ? "an empty cell" : shown(cell); }

struct Magic {
  std::string_view bytes, kind, remedy;
};
// By longest first, where one begins another.
const Magic magics[] = {
    {std::string_view("\xFF\xFE\0\0", 4), "UTF-32 text", "iconv -f UTF-32 -t UTF-8"},
    {std::string_view("\0\0\xFE\xFF", 4), "UTF-32 text", "iconv -f UTF-32 -t UTF-8"},
    {"\xFF\xFE", "UTF-16 text", "iconv -f UTF-16 -t UTF-8"},
    {"\xFE\xFF", "UTF-16 text", "iconv -f UTF-16 -t UTF-8"},
    {"\x1F\x8B", "a gzip file", "gunzip it first"},
    {"PK\x03\x04", "a zip archive or spreadsheet", "save the sheet as CSV in UTF-8"},
    {"PAR1", "a Parquet file", "hl.data.Samples of the Python package reads it"},
    {"ARROW1", "an Arrow file", "hl.data.Samples of the Python package takes Arrow tables"},
    {"\x93NUMPY", "a NumPy array", "name it .npy"},
    {"\x89HDF", "an HDF5 file", "save it as CSV or .npz"},
};

// Refuses what is no text, by its first bytes.
void check_text(std::string_view start, const std::string& name) {
  for (const Magic& magic : magics)
    if (start.starts_with(magic.bytes))
      throw UserError("csv", name + " must be text in UTF-8", std::string(magic.kind), std::string(magic.remedy));
  const std::string_view head = start.substr(0, 4096);
  const auto zeros = std::ranges::count(head, '\0');
  if (zeros == 0) return;
  const bool wide = static_cast<std::size_t>(zeros) * 4 > head.size();
  throw UserError("csv", name + " must be text in UTF-8", wide ? "UTF-16 text without a mark" : "zero bytes",
                  wide ? "iconv -f UTF-16LE -t UTF-8" : "look whether it is a table at all");
}

std::string shown_separator(char c) { return c == '\t' ? "\\t" : std::string(1, c); }

class CsvSource : public RowSource {
 public:
  CsvSource(Records::More more, const std::string& name, const CsvOptions& options)
      : options_(options), records_(std::move(more), name, options.separator) {
    check_text(records_.peek(), name);
    other_separator_ = other_separator(records_.peek(), options.separator);
    std::vector<std::string_view> cells;
    if (!records_.next(cells))
      throw UserError("csv", "a table needs a header line and at least one row", "an empty file, " + name);
    header_.assign(cells.begin(), cells.end());
    for (std::size_t i = 0; i < header_.size(); ++i) {
      if (!valid_utf8(header_[i]))
        throw UserError("csv", name + " must be text in UTF-8",
                        "a column named " + show(header_[i]) + " at " + records_.place(), "iconv -f LATIN1 -t UTF-8");
      const auto end = header_.begin() + static_cast<std::ptrdiff_t>(i);
      if (!header_[i].empty() && std::find(header_.begin(), end, header_[i]) != end)
        throw UserError("csv", "column names must differ", "'" + header_[i] + "' twice at " + records_.place());
    }
    missing_.insert(options.missing_values.begin(), options.missing_values.end());
  }

  std::string name() const override { return records_.name(); }
  std::vector<std::string> column_names() const override { return header_; }

  void select(const std::vector<ColumnRequest>& requests) override {
    const std::string received =
        "a header with " + std::to_string(header_.size()) + (header_.size() == 1 ? " column" : " columns");
    for (const ColumnRequest& r : requests)
      positions_.push_back(position_of(r, header_, "csv", name(), received, separator_hint()));
    requests_ = requests;
    labels_.resize(requests.size());
  }

  bool next(RowBlock& block) override {
    block.first_row = num_rows_;
    block.lines.clear();
    block.columns.resize(requests_.size());
    for (std::vector<double>& column : block.columns) column.clear();
    std::vector<std::string_view> cells;
    while (static_cast<std::int64_t>(block.lines.size()) < block_rows && records_.next(cells)) {
      if (cells.size() != header_.size())
        throw UserError("csv", "every row must have as many cells as the header, " + std::to_string(header_.size()),
                        std::to_string(cells.size()) + " at " + records_.place(), separator_hint().value_or(""));
      for (std::size_t i = 0; i < requests_.size(); ++i) block.columns[i].push_back(read_cell(i, cells[positions_[i]]));
      block.lines.push_back(records_.line());
    }
    num_rows_ += static_cast<std::int64_t>(block.lines.size());
    if (num_rows_ == 0)
      throw UserError("csv", "a table needs a header line and at least one row",
                      "no row after the header of " + name());
    return !block.lines.empty();
  }

  std::span<const std::string> labels(std::size_t request) const override { return labels_[request].all(); }

 private:
  std::optional<std::string> separator_hint() const {
    if (!other_separator_) return std::nullopt;
    return "the file seems to use '" + shown_separator(*other_separator_) + "': separator = \"" +
           shown_separator(*other_separator_) + "\"";
  }

  double read_cell(std::size_t request, std::string_view cell) {
    const ColumnRequest& r = requests_[request];
    if (missing_.contains(cell)) {
      if (r.may_be_missing) return std::numeric_limits<double>::quiet_NaN();
      if (r.kind == ColumnKind::Text && !cell.empty()) return labels_[request].index(cell);
      refuse_cell(r, cell);
    }
    switch (r.kind) {
      case ColumnKind::Number:
        if (const std::optional<double> value = parse_number(cell)) return *value;
        break;
      case ColumnKind::Time:
        if (const std::optional<double> value = parse_time(cell, options_.dates)) return *value;
        if (const std::optional<double> value = parse_number(cell)) return *value * options_.time_unit;
        break;
      case ColumnKind::Text:
        if (valid_utf8(cell)) return labels_[request].index(cell);
        throw UserError("csv", "column '" + r.name + "' must be text in UTF-8", show(cell) + " at " + records_.place(),
                        "iconv -f LATIN1 -t UTF-8");
    }
    refuse_cell(r, cell);
  }

  // Letters that are not those of an infinity.
  static bool is_word(std::string_view cell) {
    double value = 0;
    return !cell.empty() && std::isalpha(static_cast<unsigned char>(cell.front())) != 0 &&
           fast_float::from_chars(cell.data(), cell.data() + cell.size(), value).ec == std::errc::invalid_argument;
  }

  static std::string time_remedy(std::string_view cell) {
    std::string formats;
    for (const DateOrder order : {DateOrder::DayFirst, DateOrder::MonthFirst})
      if (parse_time(cell, order))
        formats +=
            (formats.empty() ? "date_format = \"" : " or \"") + date_formats[static_cast<std::size_t>(order)] + "\"";
    return formats.empty() ? "ISO 8601 like 2014-01-31T18:30:00, or seconds since 1970" : formats;
  }

  std::string number_remedy(const ColumnRequest& r, std::string_view cell) const {
    const std::string mend = "mend the cell or remove the row";
    const std::string fill = "missing = \"drop\", \"forward\" or \"mean\"";
    const std::string other = r.is_target ? "" : ", or leave the column out";
    if (missing_.contains(cell)) return mend + other + ", or " + fill;
    if (is_formatted_number(cell)) return "write it like 1005.50: a decimal point, and no separators or units";
    std::string remedy = "add " + show(cell) + " to missing_values if it stands for a missing value";
    if (!r.may_be_missing) remedy += ", with " + fill;
    remedy += ", or " + mend + other;
    if (is_word(cell))
      remedy += r.is_target ? ", or task = \"classification\" for classes" : ", or one_hot for a column of words";
    return remedy;
  }

  [[noreturn]] void refuse_cell(const ColumnRequest& r, std::string_view cell) const {
    const std::string place = " at " + records_.place();
    if (r.kind == ColumnKind::Time)
      throw UserError("csv", "every cell of column '" + r.name + "' must be a time", show(cell) + place,
                      time_remedy(cell));
    if (r.kind == ColumnKind::Text)
      throw UserError("csv", "every cell of column '" + r.name + "' must hold a text", show(cell) + place,
                      "mend the cell or remove the row");
    throw UserError("csv", "every cell of column '" + r.name + "' must be a finite number", show(cell) + place,
                    number_remedy(r, cell));
  }

  CsvOptions options_;
  Records records_;
  std::vector<std::string> header_;
  std::optional<char> other_separator_;
  std::set<std::string, std::less<>> missing_;
  std::vector<ColumnRequest> requests_;
  std::vector<std::size_t> positions_;
  std::vector<Labels> labels_;
  std::int64_t num_rows_ = 0;
};

Table read_numbers(RowSource& source, const std::vector<std::string>& columns) {
  const std::vector<std::string> wanted = columns.empty() ? source.column_names() : columns;
  std::vector<ColumnRequest> requests;
  for (const std::string& name : wanted) requests.push_back({name});
  source.select(requests);
  std::vector<std::vector<double>> values(wanted.size());
  for (RowBlock block; source.next(block);)
    for (std::size_t c = 0; c < wanted.size(); ++c)
      values[c].insert(values[c].end(), block.columns[c].begin(), block.columns[c].end());
  Table table;
  for (std::size_t c = 0; c < wanted.size(); ++c) table.add(wanted[c], std::move(values[c]));
  return table;
}

}  // namespace

std::unique_ptr<RowSource> open_csv(const std::filesystem::path& path, const CsvOptions& options) {
  auto file = std::make_shared<io::FileReader>(path, "csv");
  const auto more = [file](std::string& buffer) {
    const std::size_t before = buffer.size();
    buffer.resize(before + piece_bytes);
    buffer.resize(before + file->read(buffer.data() + before, piece_bytes));
    return buffer.size() > before;
  };
  return std::make_unique<CsvSource>(more, path.string(), options);
}

std::unique_ptr<RowSource> open_csv_text(std::string text, const std::string& name, const CsvOptions& options) {
  // Shared: the function is copied, the text is not.
  const auto own = std::make_shared<const std::string>(std::move(text));
  const auto more = [own, at = std::size_t{0}](std::string& buffer) mutable {
    const std::string_view piece = std::string_view(*own).substr(at, piece_bytes);
    buffer += piece;
    at += piece.size();
    return !piece.empty();
  };
  return std::make_unique<CsvSource>(more, name, options);
}

Table parse_csv(std::string_view text, const std::string& source, const std::vector<std::string>& columns,
                char separator) {
  CsvOptions options;
  options.separator = separator;
  return read_numbers(*open_csv_text(std::string(text), source, options), columns);
}

Table read_csv(const std::filesystem::path& path, const std::vector<std::string>& columns, char separator) {
  CsvOptions options;
  options.separator = separator;
  return read_numbers(*open_csv(path, options), columns);
}

}  // namespace hotloop::data
