// How cells become what is requested of them, the same for every source.
#pragma once

#include <cmath>
#include <cstdint>
#include <limits>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "data/labels.h"
#include "hotloop/table.h"

namespace hotloop::data {

// A number as a label: a whole one without a point or an exponent, so that it is the text that an integer is.
std::string number_label(double value);
// A text as a label: a whole number with a point, or with an exponent and its sign, as the number is; all others, "007" say, as they stand.
std::string text_label(std::string_view text);

// Of the requests of one reading. `where` begins its errors; places are functions that say where a cell is, " at t.csv:12".
class CellReader {
 public:
  // has_empty_texts: an empty cell may be a text, as it may where a missing one is something else.
  CellReader(std::string where, const CsvOptions& options, bool has_empty_texts = true);

  void start(const std::vector<ColumnRequest>& requests);
  std::span<const std::string> labels(std::size_t request) const { return labels_[request].all(); }
  double label(std::size_t request, std::string_view text) { return labels_[request].index(text); }

  // A cell that is a text; NaN for a missing value.
  template <class Place> double text(std::size_t request, std::string_view cell, const Place& place) {
    const ColumnRequest& r = requests_[request];
    if (missing_.contains(cell)) {
      if (r.may_be_missing) return std::numeric_limits<double>::quiet_NaN();
      if (r.kind == ColumnKind::Text && (has_empty_texts_ || !cell.empty())) return label_of_text(request, cell);
      refuse_cell(r, cell, place());
    }
    std::optional<double> value;
    switch (r.kind) {
      case ColumnKind::Number: value = number_of(cell); break;
      case ColumnKind::Time:
        if (const std::optional<double> time = time_of(cell)) return *time;
        if (const std::optional<double> number = number_of(cell)) return time_of_number(request, *number, place);
        break;
      case ColumnKind::Text:
        if (is_utf8(cell)) value = label_of_text(request, cell);
        break;
    }
    if (!value) refuse_cell(r, cell, place());
    return *value;
  }

  // The time that a number stands for, in seconds. UserError for one that cannot be meant.
  template <class Place> double time_of_number(std::size_t request, double number, const Place& place) {
    const double seconds = number * options_.time_unit;
    if (!is_plausible(seconds)) refuse_time(requests_[request], number, place());
    DateRun& run = date_runs_[request];
    run.all = run.all && looks_like_date(number);
    ++run.count;
    run.last = number;
    // As many days as no month has: a counter that runs through such numbers leaves them before.
    if (run.all && run.count == 40) refuse_dates(requests_[request], number);
    return seconds;
  }

  // After the last row.
  void finish() const;

 private:
  struct DateRun {
    bool all = true;
    std::int64_t count = 0;
    double last = 0;
  };

  double label_of_text(std::size_t request, std::string_view cell);
  static std::optional<double> number_of(std::string_view cell);
  std::optional<double> time_of(std::string_view cell) const;
  static bool is_utf8(std::string_view cell);
  static bool is_plausible(double seconds);
  static bool looks_like_date(double number);
  std::string number_remedy(const ColumnRequest& r, std::string_view cell) const;
  [[noreturn]] void refuse_cell(const ColumnRequest& r, std::string_view cell, const std::string& place) const;
  [[noreturn]] void refuse_time(const ColumnRequest& r, double number, const std::string& place) const;
  [[noreturn]] void refuse_dates(const ColumnRequest& r, double number) const;

  std::string where_;
  CsvOptions options_;
  bool has_empty_texts_;
  std::set<std::string, std::less<>> missing_;
  std::vector<ColumnRequest> requests_;
  std::vector<Labels> labels_;
  std::vector<DateRun> date_runs_;
};

}  // namespace hotloop::data
