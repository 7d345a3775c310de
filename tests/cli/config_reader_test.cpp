// Which setting a component's message is about.
#include "cli/config_reader.h"

#include <gtest/gtest.h>

namespace hotloop::cli {
namespace {

TEST(ConfigReader, FindsTheKeyThatAMessageNames) {
  ConfigFile file = ConfigFile::parse("[a]\ntype = \"x\"\nrate = 1\nlong_rate = 2\nlast = 3\n", "a.toml");
  const Section section = file.section("a", "");
  const auto key = [&](const std::string& requirement) {
    return section.key_named_by(UserError("x", requirement, "rate"));
  };
  EXPECT_EQ(key("the rate must be positive"), "rate");
  EXPECT_EQ(key("at its fastest, the last must be positive"), "last");
  EXPECT_EQ(key("short_rate must be above rate"), "rate");
  EXPECT_EQ(key("short_rate must be positive"), "");
  EXPECT_EQ(key("the long rate must be positive"), "long_rate");
  EXPECT_EQ(key("rate must be below long_rate"), "long_rate");
  EXPECT_EQ(key("moderate"), "");
  EXPECT_EQ(key("numbers of this type must be positive"), "");
}

}  // namespace
}  // namespace hotloop::cli
