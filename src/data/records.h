// Records of comma-separated values, from a text of any length in bounded memory.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

namespace hotloop::data {

// RFC 4180 with three liberties: blanks around unquoted cells are dropped, lines without any character are skipped, and lines
// may end in LF alone. A cell is a view that lives until the next call of next().
class Records {
 public:
  // `more` appends the next piece of the text to a buffer and is false at its end; `name` stands for the text in messages.
  using More = std::function<bool(std::string& buffer)>;
  Records(More more, std::string name, char separator);

  // False at the end of the text. UserError for quotes that do not close or stand amid a cell, and for a record longer
  // than max_record_bytes.
  bool next(std::vector<std::string_view>& cells);
  std::int64_t line() const { return line_; }  // of the record's first character, from 1
  std::string place() const { return name_ + ":" + std::to_string(line_); }
  const std::string& name() const { return name_; }
  // The text that has been read and not yet been given out: at the start, its first piece.
  std::string_view peek();

  // Of a table of one column: a line without any character is a record of one empty cell from now on.
  void take_empty_lines() { empty_lines_ = true; }

  static constexpr std::size_t max_record_bytes = std::size_t{1} << 26;

 private:
  enum class Found { Record, End, Partial };
  Found scan(std::vector<std::string_view>& cells);
  bool scan_cell(std::vector<std::string_view>& cells);
  bool scan_quoted(std::vector<std::string_view>& cells);
  bool line_ends(std::size_t i) const;
  bool undecided(std::size_t i) const { return i >= buffer_.size() && !ended_; }
  void read_more();

  More more_;
  std::string name_;
  char separator_;
  std::string buffer_;
  bool ended_ = false, empty_lines_ = false;
  std::size_t at_ = 0;                      // where the scan stands
  std::size_t start_ = 0;                   // of the record
  std::int64_t line_ = 1, lines_read_ = 0;  // lines_read_: ends of lines before at_
  std::deque<std::string> unquoted_;        // cells with doubled quotes
};

}  // namespace hotloop::data
