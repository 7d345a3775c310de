#include "data/cell_reader.h"

#include <fast_float/fast_float.h>
#include <cctype>
#include <charconv>
#include <chrono>
#include <utility>

#include "core/print_number.h"
#include "core/utf8.h"
#include "data/number.h"
#include "data/time.h"
#include "hotloop/error.h"

namespace hotloop::data {
namespace {

std::string show(std::string_view cell) { return cell.empty() ? "an empty cell" : shown(cell); }

// Letters that are not those of an infinity.
bool is_word(std::string_view cell) {
  double value = 0;
  return !cell.empty() && std::isalpha(static_cast<unsigned char>(cell.front())) != 0 &&
         fast_float::from_chars(cell.data(), cell.data() + cell.size(), value).ec == std::errc::invalid_argument;
}

std::string time_remedy(std::string_view cell) {
  std::string formats;
  for (const DateOrder order : {DateOrder::DayFirst, DateOrder::MonthFirst})
    if (parse_time(cell, order))
      formats +=
          (formats.empty() ? "date_format = \"" : " or \"") + date_formats[static_cast<std::size_t>(order)] + "\"";
  return formats.empty() ? "ISO 8601 like 2014-01-31T18:30:00, or seconds since 1970" : formats;
}

// None for a text that is a label as it stands.
std::optional<std::string> whole_number_label(std::string_view text) {
  if (text.find('.') == text.npos && text.find("e+") == text.npos && text.find("E+") == text.npos) return std::nullopt;
  const std::optional<double> value = parse_number(text);
  // Doubles beyond may have lost digits.
  if (!value || *value != std::floor(*value) || !(std::abs(*value) < 0x1p53)) return std::nullopt;
  return number_label(*value);
}

}  // namespace

std::string number_label(double value) {
  if (value != std::floor(value) || !(std::abs(value) < 0x1p64)) return print_number(value);
  char buffer[40];
  // -0 is 0.
  char* const end = std::to_chars(buffer, buffer + sizeof buffer, value + 0.0, std::chars_format::fixed).ptr;
  return {buffer, end};
}

std::string text_label(std::string_view text) { return whole_number_label(text).value_or(std::string(text)); }

CellReader::CellReader(std::string where, const CsvOptions& options, bool has_empty_texts)
    : where_(std::move(where)),
      options_(options),
      has_empty_texts_(has_empty_texts),
      missing_(options.missing_values.begin(), options.missing_values.end()) {}

void CellReader::start(const std::vector<ColumnRequest>& requests) {
  requests_ = requests;
  labels_.resize(requests.size());
  date_runs_.resize(requests.size());
}

void CellReader::finish() const {
  for (std::size_t i = 0; i < requests_.size(); ++i)
    if (date_runs_[i].all && date_runs_[i].count > 1) refuse_dates(requests_[i], date_runs_[i].last);
}

double CellReader::label_of_text(std::size_t request, std::string_view cell) {
  const std::optional<std::string> whole = whole_number_label(cell);
  return label(request, whole ? std::string_view(*whole) : cell);
}

std::optional<double> CellReader::number_of(std::string_view cell) { return parse_number(cell); }
std::optional<double> CellReader::time_of(std::string_view cell) const { return parse_time(cell, options_.dates); }
bool CellReader::is_utf8(std::string_view cell) { return valid_utf8(cell); }

// Of the years 0 to 9999.
bool CellReader::is_plausible(double seconds) { return seconds >= -62167219200.0 && seconds < 253402300800.0; }

bool CellReader::looks_like_date(double number) {
  if (!(number >= 19000101 && number <= 21001231) || number != std::floor(number)) return false;
  const auto digits = static_cast<int>(number);
  return std::chrono::year_month_day(std::chrono::year(digits / 10000),
                                     std::chrono::month(static_cast<unsigned>(digits / 100 % 100)),
                                     std::chrono::day(static_cast<unsigned>(digits % 100)))
      .ok();
}

std::string CellReader::number_remedy(const ColumnRequest& r, std::string_view cell) const {
  const std::string mend = "mend the cell or remove the row";
  const std::string fill = "missing = \"drop\", \"forward\" or \"mean\"";
  const std::string other = r.is_target ? "" : ", or leave the column out";
  if (missing_.contains(cell)) return mend + other + ", or " + fill;
  if (is_formatted_number(cell)) return "write it like 1005.50: a decimal point, and no separators or units";
  // A quote after a blank does not open a quoted cell.
  if (cell.size() > 2 && cell.front() == '"' && cell.back() == '"')
    return "no blank before the quote, or no quotes around a number";
  std::string remedy = "add " + show(cell) + " to missing_values if it stands for a missing value";
  if (!r.may_be_missing) remedy += ", with " + fill;
  remedy += ", or " + mend + other;
  if (is_word(cell))
    remedy += r.is_target ? ", or task = \"classification\" for classes" : ", or one_hot for a column of words";
  return remedy;
}

void CellReader::refuse_cell(const ColumnRequest& r, std::string_view cell, const std::string& place) const {
  if (r.kind == ColumnKind::Time)
    throw UserError(where_, "every cell of column '" + r.name + "' must be a time", show(cell) + place,
                    time_remedy(cell));
  if (r.kind == ColumnKind::Text && !valid_utf8(cell))
    throw UserError(where_, "column '" + r.name + "' must be text in UTF-8", show(cell) + place,
                    "iconv -f LATIN1 -t UTF-8");
  if (r.kind == ColumnKind::Text)
    throw UserError(where_, "every cell of column '" + r.name + "' must hold a text", show(cell) + place,
                    "mend the cell or remove the row");
  throw UserError(where_, "every cell of column '" + r.name + "' must be a finite number", show(cell) + place,
                  number_remedy(r, cell));
}

void CellReader::refuse_time(const ColumnRequest& r, double number, const std::string& place) const {
  std::string remedy;
  for (const auto& [name, seconds] : {std::pair{"s", 1.0}, {"ms", 1e-3}, {"us", 1e-6}, {"ns", 1e-9}})
    if (remedy.empty() && is_plausible(number * seconds)) remedy = std::string("time_unit = \"") + name + "\"";
  throw UserError(
      where_, "every time of column '" + r.name + "' must lie in the years 0 to 9999",
      number_label(number) + place + ", which is " + print_digits(number * options_.time_unit, 6) + " s since 1970",
      remedy);
}

void CellReader::refuse_dates(const ColumnRequest& r, double number) const {
  const std::string digits = number_label(number);
  throw UserError(where_, "times of column '" + r.name + "' that are numbers must be a time since 1970",
                  "dates without separators, " + digits + " say",
                  digits.substr(0, 4) + "-" + digits.substr(4, 2) + "-" + digits.substr(6) +
                      ", as pandas.to_datetime(column, format=\"%Y%m%d\") writes them");
}

}  // namespace hotloop::data
