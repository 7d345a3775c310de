// Numbers as texts, and texts that are numbers for people.
#include "data/number.h"

#include <gtest/gtest.h>

namespace hotloop::data {
namespace {

TEST(DataNumber, OnlyFiniteOnesWithADecimalPoint) {
  EXPECT_EQ(parse_number(" +1.5e3\t"), 1500);
  for (const char* text : {"", " ", "inf", "nan", "1,5", "0x10", "1 000", "5%", "$5", "1e999", "12:30"})
    EXPECT_EQ(parse_number(text), std::nullopt) << text;
}

TEST(DataNumber, WrittenInAnotherWay) {
  for (const char* text : {"$5.50", "-$5", "5,5", "1,005.50", "1.005,50", "1'005'000", "12 345,6",
                           "12\xC2\xA0"
                           "345",
                           "5 %", "7\xE2\x82\xAC", "EUR 1,000"})
    EXPECT_TRUE(is_formatted_number(text)) << text;
  for (const char* text : {"", "-", "$", "5.5", "closed", "31.12.2024", "12-01-2024", "10:30", "1,2,3", "555-1234",
                           "A12", "12A", "(none)5"})
    EXPECT_FALSE(is_formatted_number(text)) << text;
}

}  // namespace
}  // namespace hotloop::data
