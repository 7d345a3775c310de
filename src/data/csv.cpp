// Comma-separated values as a source of rows.
#include <algorithm>
#include <optional>
#include <set>

#include "core/utf8.h"
#include "data/cell_reader.h"
#include "data/columns.h"
#include "data/records.h"
#include "data/separator.h"
#include "hotloop/error.h"
#include "io/reader.h"

namespace hotloop::data {
namespace {

constexpr std::int64_t block_rows = 4096;
constexpr std::size_t piece_bytes = std::size_t{1} << 20;

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
  if (const std::size_t cr = start.find('\r'); cr < start.size() - 1 && start.find('\n') == start.npos)
    throw UserError("csv", name + " must have lines that end in LF or CR LF", "lines that end in CR alone",
                    "tr '\\r' '\\n' < " + name + " > lines.csv");
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
      : records_(std::move(more), name, options.separator), reader_("csv", options, false) {
    check_text(records_.peek(), name);
    other_separator_ = other_separator(records_.peek(), options.separator);
    std::vector<std::string_view> cells;
    if (!records_.next(cells))
      throw UserError("csv", "a table needs a header line and at least one row", "an empty file, " + name);
    header_.assign(cells.begin(), cells.end());
    if (header_.size() == 1) records_.take_empty_lines();
    std::set<std::string_view> names;
    for (std::size_t i = 0; i < header_.size(); ++i) {
      if (!valid_utf8(header_[i]))
        throw UserError("csv", name + " must be text in UTF-8",
                        "a column named " + shown(header_[i]) + " at " + records_.place(), "iconv -f LATIN1 -t UTF-8");
      if (!header_[i].empty() && !names.insert(header_[i]).second)
        throw UserError("csv", "column names must differ", "'" + header_[i] + "' twice at " + records_.place());
    }
  }

  std::string name() const override { return records_.name(); }
  std::vector<std::string> column_names() const override { return header_; }

  void select(const std::vector<ColumnRequest>& requests) override {
    const std::string received =
        "a header with " + std::to_string(header_.size()) + (header_.size() == 1 ? " column" : " columns");
    positions_ = positions_of(requests, header_, "csv", name(), received, separator_hint());
    reader_.start(requests);
  }

  bool next(RowBlock& block) override {
    block.first_row = num_rows_;
    block.lines.clear();
    block.columns.resize(positions_.size());
    for (std::vector<double>& column : block.columns) column.clear();
    std::vector<std::string_view> cells;
    const auto place = [&] { return " at " + records_.place(); };
    while (static_cast<std::int64_t>(block.lines.size()) < block_rows && records_.next(cells)) {
      if (cells.size() != header_.size())
        throw UserError("csv", "every row must have as many cells as the header, " + std::to_string(header_.size()),
                        std::to_string(cells.size()) + " at " + records_.place(), separator_hint().value_or(""));
      for (std::size_t i = 0; i < positions_.size(); ++i)
        block.columns[i].push_back(reader_.text(i, cells[positions_[i]], place));
      block.lines.push_back(records_.line());
    }
    block.num_rows = std::ssize(block.lines);
    num_rows_ += block.num_rows;
    if (num_rows_ == 0)
      throw UserError("csv", "a table needs a header line and at least one row",
                      "no row after the header of " + name());
    if (block.lines.empty()) reader_.finish();
    return !block.lines.empty();
  }

  std::span<const std::string> labels(std::size_t request) const override { return reader_.labels(request); }

 private:
  std::optional<std::string> separator_hint() const {
    if (!other_separator_) return std::nullopt;
    return "the file seems to use '" + shown_separator(*other_separator_) + "': separator = \"" +
           shown_separator(*other_separator_) + "\"";
  }

  Records records_;
  std::vector<std::string> header_;
  std::optional<char> other_separator_;
  CellReader reader_;
  std::vector<std::size_t> positions_;
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
