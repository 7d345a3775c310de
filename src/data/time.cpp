#include "data/time.h"

#include <fast_float/fast_float.h>
#include <chrono>
#include <cmath>

#include "core/print_number.h"
#include "hotloop/error.h"

namespace hotloop::data {
namespace {

constexpr double day_s = 86400;

// Reads from the front of a text; each part fails once and for all.
class Reader {
 public:
  explicit Reader(std::string_view text) : rest_(text) {}

  int digits(std::size_t count) { return digits(count, count); }
  int digits(std::size_t least, std::size_t most) {
    int value = 0;
    std::size_t count = 0;
    for (; count < most && at_digit(); ++count, rest_.remove_prefix(1)) value = value * 10 + (rest_[0] - '0');
    return count < least ? fail() : value;
  }
  bool skip(char c) {
    if (!rest_.starts_with(c)) return false;
    rest_.remove_prefix(1);
    return true;
  }
  // The word, after a blank or not.
  bool skip_word(std::string_view word) {
    std::string_view rest = rest_;
    if (rest.starts_with(' ')) rest.remove_prefix(1);
    if (!rest.starts_with(word)) return false;
    rest_ = rest.substr(word.size());
    return true;
  }
  // One of the characters, which is given back.
  char expect_any(std::string_view characters) {
    const char c = next();
    if (characters.find(c) == std::string_view::npos || !skip(c)) fail();
    return c;
  }
  void expect(char c) {
    if (!skip(c)) fail();
  }
  double fraction() {
    double value = 0, unit = 0.1;
    if (!at_digit()) return fail();
    for (; at_digit(); rest_.remove_prefix(1), unit /= 10) value += unit * (rest_[0] - '0');
    return value;
  }
  int fail() {
    failed_ = true;
    return 0;
  }
  bool at_digit() const { return !rest_.empty() && rest_[0] >= '0' && rest_[0] <= '9'; }
  char next() const { return rest_.empty() ? '\0' : rest_[0]; }
  bool done() const { return rest_.empty() && !failed_; }
  bool failed() const { return failed_; }

 private:
  std::string_view rest_;
  bool failed_ = false;
};

// Seconds east of UTC; 0 where nothing is said.
double read_offset(Reader& in) {
  for (const char* utc : {"Z", "UTC", "GMT"})
    if (in.skip_word(utc)) return 0;
  const double sign = in.skip_word("+") ? 1 : in.skip_word("-") ? -1 : 0;
  if (sign == 0) return 0;
  const int hours = in.digits(2);
  int minutes = 0;
  if (in.skip(':') || in.at_digit()) minutes = in.digits(2);
  if (hours > 23 || minutes > 59) in.fail();
  return sign * (hours * 3600 + minutes * 60);
}

// The hour of the day of an hour before "AM" or "PM".
int read_half(Reader& in, int hour) {
  const bool morning = in.skip_word("AM") || in.skip_word("am");
  const bool evening = !morning && (in.skip_word("PM") || in.skip_word("pm"));
  if (!morning && !evening) return hour;
  if (hour < 1 || hour > 12) in.fail();
  return hour % 12 + (evening ? 12 : 0);
}

// Seconds of the day after the "T", the offset subtracted.
double read_clock(Reader& in, bool iso) {
  int hour = in.digits(iso ? 2 : 1, 2);
  in.expect(':');
  const int minute = in.digits(2);
  double second = 0;
  if (in.skip(':')) {
    second = in.digits(2);
    if (in.skip('.')) second += in.fraction();
  }
  if (!iso) hour = read_half(in, hour);
  if (hour > 24 || minute > 59 || second >= 61 || (hour == 24 && (minute > 0 || second > 0))) in.fail();
  return hour * 3600 + minute * 60 + second - read_offset(in);
}

std::chrono::year_month_day read_date(Reader& in, DateOrder order) {
  const bool year_first = order == DateOrder::YearFirst;
  const int first = year_first ? in.digits(4) : in.digits(1, 2);
  const char separator = in.expect_any(year_first ? "-/" : "/.-");
  const int second = year_first ? in.digits(2) : in.digits(1, 2);
  in.expect(separator);
  const int third = in.digits(year_first ? 2 : 4);
  const int year = year_first ? first : third;
  const int month = order == DateOrder::MonthFirst ? first : second;
  const int day = year_first ? third : order == DateOrder::DayFirst ? first : second;
  return {std::chrono::year(year), std::chrono::month(static_cast<unsigned>(month)),
          std::chrono::day(static_cast<unsigned>(day))};
}

std::optional<double> parse_in_order(std::string_view text, DateOrder order) {
  Reader in(text);
  const std::chrono::year_month_day date = read_date(in, order);
  if (in.failed() || !date.ok()) return std::nullopt;
  double seconds = static_cast<double>(std::chrono::sys_days(date).time_since_epoch().count()) * day_s;
  if (in.skip('T') || in.skip(' ')) seconds += read_clock(in, order == DateOrder::YearFirst);
  return in.done() ? std::optional(seconds) : std::nullopt;
}

double floor_mod(double value, double period) { return value - period * std::floor(value / period); }

struct Unit {
  std::string_view name;
  double seconds;
};
constexpr Unit units[] = {{"s", 1}, {"min", 60}, {"h", 3600}, {"d", day_s}};

}  // namespace

std::optional<double> parse_time(std::string_view text, DateOrder order) {
  const std::optional<double> time = parse_in_order(text, DateOrder::YearFirst);
  return time || order == DateOrder::YearFirst ? time : parse_in_order(text, order);
}

std::string print_time(double seconds) {
  // Years that chrono can hold; anything else is shown as what it is.
  if (!(std::abs(seconds) < 9e11)) return print_number(seconds) + " s";
  double whole = std::floor(seconds), micros = std::round((seconds - whole) * 1e6);
  if (micros >= 1e6) {
    whole += 1;
    micros = 0;
  }
  const double days = std::floor(whole / day_s);
  const std::chrono::year_month_day date{std::chrono::sys_days(std::chrono::days(static_cast<int>(days)))};
  const int second = static_cast<int>(whole - days * day_s);
  char text[64];
  std::snprintf(text, sizeof text, "%04d-%02u-%02uT%02d:%02d:%02d", static_cast<int>(date.year()),
                static_cast<unsigned>(date.month()), static_cast<unsigned>(date.day()), second / 3600, second / 60 % 60,
                second % 60);
  std::string out = text;
  if (micros > 0) {
    std::snprintf(text, sizeof text, ".%06d", static_cast<int>(micros));
    out += text;
    while (out.back() == '0') out.pop_back();
  }
  return out + "Z";
}

std::optional<double> parse_duration(std::string_view text) {
  double value = 0;
  const auto [end, error] = fast_float::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc{} || !(value > 0) || !std::isfinite(value)) return std::nullopt;
  text.remove_prefix(static_cast<std::size_t>(end - text.data()));
  while (text.starts_with(' ')) text.remove_prefix(1);
  for (const Unit& unit : units)
    if (text == unit.name) return value * unit.seconds;
  return std::nullopt;
}

std::string print_duration(double seconds) {
  const Unit* best = &units[0];
  for (const Unit& unit : units)
    if (std::abs(seconds) >= unit.seconds && std::fmod(seconds, unit.seconds) == 0) best = &unit;
  return print_number(seconds / best->seconds) + " " + std::string(best->name);
}

double cycle_position(Cycle::Of cycle, double seconds) {
  // 1970-01-01 was a Thursday, day 3 of a week that begins on Monday.
  const double week_s = floor_mod(seconds + 3 * day_s, 7 * day_s);
  switch (cycle) {
    case Cycle::Of::HourOfDay: return floor_mod(seconds, day_s) / day_s;
    case Cycle::Of::DayOfWeek: return std::floor(week_s / day_s) / 7;
    case Cycle::Of::HourOfWeek: return week_s / (7 * day_s);
    case Cycle::Of::DayOfYear: break;
    case Cycle::Of::Row: HOTLOOP_CHECK(false, "rows have no time");
  }
  if (!(std::abs(seconds) < 9e11)) return 0;
  using namespace std::chrono;
  const int days_since_1970 = static_cast<int>(std::floor(seconds / day_s));
  const year y = year_month_day(sys_days(days(days_since_1970))).year();
  const auto start = [](year of) {
    return static_cast<double>(sys_days(year_month_day(of, January, day(1))).time_since_epoch().count()) * day_s;
  };
  return (seconds - start(y)) / (start(y + years(1)) - start(y));
}

}  // namespace hotloop::data
