// A splitter for comma-separated values; numbers by fast_float, whatever the locale.
#include <fast_float/fast_float.h>
#include <algorithm>
#include <cmath>

#include "core/nearest.h"
#include "hotloop/data.h"
#include "hotloop/error.h"
#include "io/files.h"

namespace hotloop::data {
namespace {

std::string_view trim(std::string_view s) {
  const auto blank = [](char c) { return c == ' ' || c == '\t'; };
  while (!s.empty() && blank(s.front())) s.remove_prefix(1);
  while (!s.empty() && blank(s.back())) s.remove_suffix(1);
  return s;
}

// Cells of one record after another. A cell is a view of the text, or of `unquoted_` where quotes were doubled.
class Records {
 public:
  Records(std::string_view text, std::string source, char separator)
      : text_(text), source_(std::move(source)), separator_(separator) {
    if (text_.starts_with("\xEF\xBB\xBF")) text_.remove_prefix(3);
  }

  // False at the end of the text. Lines without any character are skipped.
  bool next(std::vector<std::string_view>& cells) {
    cells.clear();
    unquoted_.clear();
    while (at_ < text_.size() && end_of_line(at_)) skip_line_end();
    if (at_ >= text_.size()) return false;
    line_ = next_line_;
    for (;;) {
      cells.push_back(next_cell());
      if (at_ >= text_.size()) return true;
      if (text_[at_] != separator_) break;
      ++at_;
    }
    skip_line_end();
    return true;
  }

  std::string place() const { return source_ + ":" + std::to_string(line_); }

 private:
  bool end_of_line(std::size_t i) const {
    return text_[i] == '\n' || (text_[i] == '\r' && (i + 1 == text_.size() || text_[i + 1] == '\n'));
  }
  void skip_line_end() {
    if (text_[at_] == '\r') ++at_;
    if (at_ < text_.size() && text_[at_] == '\n') ++at_;
    ++next_line_;
  }

  std::string_view next_cell() {
    if (at_ < text_.size() && text_[at_] == '"') return quoted_cell();
    const std::size_t start = at_;
    while (at_ < text_.size() && text_[at_] != separator_ && !end_of_line(at_)) ++at_;
    return trim(text_.substr(start, at_ - start));
  }

  std::string_view quoted_cell() {
    std::string cell;
    for (++at_;; ++at_) {
      if (at_ >= text_.size())
        throw UserError("csv", "a quoted cell must end with a quote",
                        "the end of the file in a cell opened at " + place());
      if (text_[at_] == '"') {
        if (at_ + 1 < text_.size() && text_[at_ + 1] == '"')
          ++at_;
        else
          break;
      }
      if (text_[at_] == '\n') ++next_line_;
      cell += text_[at_];
    }
    ++at_;
    if (at_ < text_.size() && text_[at_] != separator_ && !end_of_line(at_))
      throw UserError("csv", "a closing quote must end the cell", "more text after it at " + place());
    unquoted_.push_back(std::make_unique<std::string>(std::move(cell)));
    return *unquoted_.back();
  }

  std::string_view text_;
  std::string source_;
  char separator_;
  std::size_t at_ = 0, line_ = 1, next_line_ = 1;
  std::vector<std::unique_ptr<std::string>> unquoted_;
};

double parse_number(std::string_view cell, const std::string& column, const Records& records) {
  std::string_view digits = trim(cell);
  if (digits.starts_with('+')) digits.remove_prefix(1);
  double value = 0;
  const auto [end, error] = fast_float::from_chars(digits.data(), digits.data() + digits.size(), value);
  if (error != std::errc{} || end != digits.data() + digits.size() || !std::isfinite(value)) {
    std::string shown(cell.substr(0, 40));
    if (cell.size() > 40) shown += "...";
    throw UserError("csv", "every cell of column '" + column + "' must be a finite number",
                    (cell.empty() ? "an empty cell" : "'" + shown + "'") + " at " + records.place(),
                    "mend the cell or remove the row, or leave the column out");
  }
  return value;
}

}  // namespace

Table parse_csv(std::string_view text, const std::string& source, const std::vector<std::string>& columns,
                char separator) {
  Records records(text, source, separator);
  std::vector<std::string_view> cells;
  if (!records.next(cells))
    throw UserError("csv", "a table needs a header line and at least one row", "an empty file, " + source);
  std::vector<std::string> header(cells.begin(), cells.end());
  for (std::size_t i = 0; i < header.size(); ++i)
    if (!header[i].empty() && std::find(header.begin(), header.begin() + static_cast<std::ptrdiff_t>(i), header[i]) !=
                                  header.begin() + static_cast<std::ptrdiff_t>(i))
      throw UserError("csv", "column names must differ", "'" + header[i] + "' twice at " + records.place());

  const std::vector<std::string>& wanted = columns.empty() ? header : columns;
  std::vector<std::size_t> positions;
  for (const std::string& name : wanted) {
    const auto found = std::ranges::find(header, name);
    if (found == header.end() || name.empty())
      throw UserError("csv", source + " must have the column '" + name + "'",
                      "a header with " + std::to_string(header.size()) + " columns", nearest_hint(name, header));
    positions.push_back(static_cast<std::size_t>(found - header.begin()));
  }

  std::vector<std::vector<double>> values(wanted.size());
  while (records.next(cells)) {
    if (cells.size() != header.size())
      throw UserError("csv", "every row must have as many cells as the header, " + std::to_string(header.size()),
                      std::to_string(cells.size()) + " at " + records.place());
    for (std::size_t i = 0; i < wanted.size(); ++i)
      values[i].push_back(parse_number(cells[positions[i]], wanted[i], records));
  }
  if (values.empty() || values[0].empty())
    throw UserError("csv", "a table needs a header line and at least one row", "no row after the header of " + source);
  Table table;
  for (std::size_t i = 0; i < wanted.size(); ++i) table.add(wanted[i], std::move(values[i]));
  return table;
}

Table read_csv(const std::filesystem::path& path, const std::vector<std::string>& columns, char separator) {
  return parse_csv(io::read_file(path, "csv"), path.string(), columns, separator);
}

}  // namespace hotloop::data
