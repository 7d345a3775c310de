#include "data/records.h"

#include "hotloop/error.h"

namespace hotloop::data {
namespace {

std::string_view trim(std::string_view s, char separator) {
  const auto blank = [&](char c) { return c == ' ' || (c == '\t' && separator != '\t'); };
  while (!s.empty() && blank(s.front())) s.remove_prefix(1);
  while (!s.empty() && blank(s.back())) s.remove_suffix(1);
  return s;
}

}  // namespace

Records::Records(More more, std::string name, char separator)
    : more_(std::move(more)), name_(std::move(name)), separator_(separator) {
  while (buffer_.size() < 3 && !ended_) read_more();
  if (buffer_.starts_with("\xEF\xBB\xBF")) at_ = start_ = 3;
}

std::string_view Records::peek() { return std::string_view(buffer_).substr(start_); }

void Records::read_more() {
  if (buffer_.size() - start_ > max_record_bytes)
    throw UserError("csv", "a row must be shorter than " + std::to_string(max_record_bytes >> 20) + " MB",
                    "a longer one that begins at " + name_ + ":" + std::to_string(line_),
                    "look for a quote that is not closed, or for a file that is no table");
  // What was given out is dropped; views into the buffer are renewed, since the record is scanned again.
  buffer_.erase(0, start_);
  at_ -= start_;
  start_ = 0;
  ended_ = !more_(buffer_);
}

bool Records::next(std::vector<std::string_view>& cells) {
  const std::int64_t lines_before = lines_read_;
  start_ = at_;
  for (;;) {
    cells.clear();
    unquoted_.clear();
    at_ = start_;
    lines_read_ = lines_before;
    const Found found = scan(cells);
    if (found != Found::Partial) return found == Found::Record;
    read_more();
  }
}

// LF, CR LF, or a CR that ends the text.
bool Records::line_ends(std::size_t i) const {
  if (buffer_[i] == '\n') return true;
  return buffer_[i] == '\r' && (i + 1 >= buffer_.size() || buffer_[i + 1] == '\n');
}

Records::Found Records::scan(std::vector<std::string_view>& cells) {
  const auto skip_line_end = [&] {
    if (buffer_[at_] == '\r') ++at_;
    if (at_ < buffer_.size() && buffer_[at_] == '\n') ++at_;
    ++lines_read_;
  };
  // A CR as the last character of the piece: whether a LF follows is not known yet.
  const auto cut = [&] { return !ended_ && at_ + 1 >= buffer_.size() && at_ < buffer_.size() && buffer_[at_] == '\r'; };
  for (;;) {
    if (undecided(at_) || cut()) return Found::Partial;
    if (at_ >= buffer_.size()) return Found::End;
    // Of a table of one column it is an empty cell.
    if (!line_ends(at_) || empty_lines_) break;
    skip_line_end();
  }
  line_ = lines_read_ + 1;
  for (;;) {
    if (undecided(at_)) return Found::Partial;
    const bool whole = at_ < buffer_.size() && buffer_[at_] == '"' ? scan_quoted(cells) : scan_cell(cells);
    if (!whole || cut()) return Found::Partial;
    if (at_ >= buffer_.size()) return Found::Record;
    if (buffer_[at_] != separator_) break;
    ++at_;
  }
  skip_line_end();
  return Found::Record;
}

bool Records::scan_cell(std::vector<std::string_view>& cells) {
  const std::size_t first = at_;
  while (at_ < buffer_.size() && buffer_[at_] != separator_ && !line_ends(at_)) ++at_;
  if (undecided(at_)) return false;
  cells.push_back(trim(std::string_view(buffer_).substr(first, at_ - first), separator_));
  return true;
}

bool Records::scan_quoted(std::vector<std::string_view>& cells) {
  const std::size_t first = ++at_;
  bool doubled = false;
  for (;; ++at_) {
    if (undecided(at_)) return false;
    if (at_ >= buffer_.size())
      throw UserError("csv", "a quoted cell must end with a quote",
                      "the end of the file in a cell opened at " + place(),
                      "close it, or write \"\" for a quote within a cell");
    if (buffer_[at_] == '"') {
      if (undecided(at_ + 1)) return false;
      if (at_ + 1 >= buffer_.size() || buffer_[at_ + 1] != '"') break;
      doubled = true;
      ++at_;
    } else if (buffer_[at_] == '\n') {
      ++lines_read_;
    }
  }
  std::string_view cell = std::string_view(buffer_).substr(first, at_ - first);
  if (doubled) {
    std::string& plain = unquoted_.emplace_back();
    for (std::size_t i = 0; i < cell.size(); ++i) {
      plain += cell[i];
      if (cell[i] == '"') ++i;
    }
    cell = plain;
  }
  cells.push_back(cell);
  ++at_;
  if (undecided(at_)) return false;
  if (at_ < buffer_.size() && buffer_[at_] != separator_ && !line_ends(at_))
    throw UserError("csv", "a closing quote must end the cell", "more text after it at " + place(),
                    "write \"\" for a quote within the cell");
  return true;
}

}  // namespace hotloop::data
