// Times: ISO 8601 text to seconds since 1970, and where a time stands in its day, week and year.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "hotloop/data.h"
#include "hotloop/table.h"

namespace hotloop::data {

// Seconds since 1970-01-01T00:00:00Z of "YYYY-MM-DD" (or with slashes), with "Thh:mm[:ss[.fraction]]" (or a blank for the T) and
// "Z", "UTC", "+hh", "+hh:mm" or "+hhmm" if there is more; without an offset the time is taken as UTC. In the other orders also
// "DD/MM/YYYY" or "MM/DD/YYYY", with slashes, dots or dashes, days, months and hours of one digit, and "AM" or "PM". Nothing
// for any other text.
std::optional<double> parse_time(std::string_view text, DateOrder order = DateOrder::YearFirst);
// Names of the orders, by DateOrder.
inline const std::vector<std::string> date_formats = {"yyyy-mm-dd", "dd/mm/yyyy", "mm/dd/yyyy"};
// "2014-01-31T18:30:00Z", with as many digits of a fraction as it has, at most microseconds.
std::string print_time(double seconds);
// "30 min", "1 h", "15s", "7 d": seconds. Nothing for any other text.
std::optional<double> parse_duration(std::string_view text);
std::string print_duration(double seconds);
// Where a time stands in a cycle, in [0, 1). Not for Cycle::Of::Row.
double cycle_position(Cycle::Of cycle, double seconds);

}  // namespace hotloop::data
