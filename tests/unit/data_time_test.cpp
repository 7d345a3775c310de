// Times as text, durations, cycles.
#include "data/time.h"

#include <gtest/gtest.h>

#include <chrono>
#include <random>

namespace hotloop::data {
namespace {

TEST(Time, Iso8601) {
  EXPECT_EQ(parse_time("1970-01-01"), 0);
  EXPECT_EQ(parse_time("2000-02-29T12:00"), 951825600);
  EXPECT_EQ(parse_time("2000-02-29 12:00:00"), 951825600);
  EXPECT_EQ(parse_time("2000-02-29T12:00:00.250Z"), 951825600.25);
  EXPECT_EQ(parse_time("2000-02-29T14:30+02:30"), 951825600);
  EXPECT_EQ(parse_time("2000-02-29T04:00-0800"), 951825600);
  EXPECT_EQ(parse_time("2000-02-29T13+01"), std::nullopt);
  EXPECT_EQ(parse_time("2000-02-29T13:00+01"), 951825600);
  EXPECT_EQ(parse_time("2000-02-28T24:00"), parse_time("2000-02-29"));
  for (const char* text : {"", "2000", "2000-1-1", "2000-13-01", "1900-02-29", "2000-01-01T", "2000-01-01T24:01",
                           "2000-01-01T12:60", "2000-01-01T12:00:61", "2000-01-01T12:00:00.", "2000-01-01T12:00+",
                           "2000-01-01 ", "20000101", "2000-01-01T12:00ZZ", "2000-01-01T12:00+24:00"})
    EXPECT_EQ(parse_time(text), std::nullopt) << text;
}

TEST(Time, OffsetsAsWordsAndDatesWithSlashes) {
  for (const char* text : {"2000-02-29 12:00:00 UTC", "2000-02-29 12:00:00 Z", "2000-02-29T12:00UTC",
                           "2000-02-29 12:00 GMT", "2000-02-29 13:00:00 +0100", "2000/02/29 12:00"})
    EXPECT_EQ(parse_time(text), 951825600) << text;
  for (const char* text : {"2000-02-29 12:00 CET", "2000-02-29 UTC", "2000/02-29", "2000-02-29 12:00 PM", "29/02/2000"})
    EXPECT_EQ(parse_time(text), std::nullopt) << text;
}

TEST(Time, OtherOrdersOfDates) {
  for (const char* text :
       {"29/02/2000 12:00", "29.2.2000 12:00:00", "29-02-2000T12:00Z", "29/2/2000 12:00 PM", "2000-02-29 12:00"})
    EXPECT_EQ(parse_time(text, DateOrder::DayFirst), 951825600) << text;
  for (const char* text : {"02/29/2000 12:00", "2/29/2000 12:00:00 pm", "2/29/2000 13:00+01:00"})
    EXPECT_EQ(parse_time(text, DateOrder::MonthFirst), 951825600) << text;
  EXPECT_EQ(parse_time("1/2/2024 12:30 AM", DateOrder::DayFirst), parse_time("2024-02-01T00:30"));
  EXPECT_EQ(parse_time("1/2/2024 1:30 PM", DateOrder::MonthFirst), parse_time("2024-01-02T13:30"));
  for (const char* text :
       {"29/02/00", "29/02.2000", "30/02/2000", "29/13/2000", "29/02/2000 13:00 PM", "29 02 2000", "/02/2000"})
    EXPECT_EQ(parse_time(text, DateOrder::DayFirst), std::nullopt) << text;
}

TEST(Time, PrintedTimesReadBack) {
  std::mt19937_64 rng(1);
  for (int i = 0; i < 1000; ++i) {
    const double seconds = static_cast<double>(static_cast<std::int64_t>(rng() % 40'000'000'000'000)) / 1e4 - 1e9;
    const std::string text = print_time(seconds);
    ASSERT_TRUE(parse_time(text).has_value()) << text;
    EXPECT_NEAR(*parse_time(text), seconds, 1e-6) << text;
  }
  EXPECT_EQ(print_time(951825600.25), "2000-02-29T12:00:00.25Z");
}

TEST(Time, Durations) {
  EXPECT_EQ(parse_duration("30 min"), 1800);
  EXPECT_EQ(parse_duration("1h"), 3600);
  EXPECT_EQ(parse_duration("0.5 d"), 43200);
  for (const char* text : {"", "h", "-1 h", "1", "1 week", "inf h", "1 h x"})
    EXPECT_EQ(parse_duration(text), std::nullopt);
  EXPECT_EQ(print_duration(1800), "30 min");
  EXPECT_EQ(print_duration(90), "90 s");
  EXPECT_EQ(print_duration(86400), "1 d");
}

// Against the calendar of <chrono>.
TEST(Time, CyclesOfEveryDayOfACentury) {
  using namespace std::chrono;
  for (sys_days day = 1950y / January / 1; day < sys_days(2050y / January / 1); day += days(1)) {
    const double seconds = static_cast<double>(day.time_since_epoch().count()) * 86400 + 6 * 3600;
    EXPECT_EQ(cycle_position(Cycle::Of::HourOfDay, seconds), 0.25);
    EXPECT_EQ(cycle_position(Cycle::Of::DayOfWeek, seconds), (weekday(day).iso_encoding() - 1) / 7.0);
    const year_month_day date(day);
    const double days_in = static_cast<double>((day - sys_days(date.year() / January / 1)).count()) + 0.25;
    EXPECT_DOUBLE_EQ(cycle_position(Cycle::Of::DayOfYear, seconds), days_in / (date.year().is_leap() ? 366 : 365));
  }
}

}  // namespace
}  // namespace hotloop::data
