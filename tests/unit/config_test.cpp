#include "core/config.h"

#include <gtest/gtest.h>

#include "hotloop/error.h"

namespace hotloop {
namespace {

const std::vector<Parameter> parameters = {{"hidden", std::int64_t{0}, "number of hidden units", true},
                                           {"epsilon", 1e-5, "added to the variance"},
                                           {"bias", true, "whether there is a bias"},
                                           {"reset", "after", "where the reset gate acts", false, {"after", "before"}}};

std::string message(const std::map<std::string, Setting>& settings) {
  try {
    Config("gru", parameters, settings);
  } catch (const UserError& e) {
    return e.what();
  }
  return "no error";
}

TEST(Config, DefaultsFillWhatIsNotGiven) {
  const Config config("gru", parameters, {{"hidden", std::int64_t{32}}});
  EXPECT_EQ(config.integer("hidden"), 32);
  EXPECT_EQ(config.number("epsilon"), 1e-5);
  EXPECT_TRUE(config.flag("bias"));
  EXPECT_EQ(config.text("reset"), "after");
}

TEST(Config, AnIntegerIsANumber) {
  const Config config("gru", parameters, {{"hidden", std::int64_t{32}}, {"epsilon", std::int64_t{1}}});
  EXPECT_EQ(config.number("epsilon"), 1.0);
}

TEST(Config, MistakesAreNamed) {
  EXPECT_EQ(message({}),
            "[gru] 'hidden' (number of hidden units) must be given. Received: no value. "
            "Try: hidden = 8, or any other whole number without quotes.");
  EXPECT_EQ(message({{"hiden", std::int64_t{3}}}),
            "[gru] every setting must be one that 'gru' has. Received: 'hiden'. Try: did you mean 'hidden'?");
  EXPECT_EQ(message({{"hidden", 3.5}}),
            "[gru] 'hidden' (number of hidden units) must be an integer. Received: 3.5. "
            "Try: hidden = 8, or any other whole number without quotes.");
  EXPECT_EQ(message({{"hidden", std::int64_t{3}}, {"reset", "befor"}}),
            "[gru] 'reset' (where the reset gate acts) must be one of its choices. Received: \"befor\". Try: did you "
            "mean 'before'?");
}

TEST(Config, RemediesAreValues) {
  const auto remedy = [](const std::string& name, const Setting& setting) {
    std::map<std::string, Setting> settings = {{name, setting}};
    settings.try_emplace("hidden", std::int64_t{8});
    const std::string text = message(settings);
    return text.substr(text.find(" Try: ") + 6);
  };
  EXPECT_EQ(remedy("epsilon", "0,01"), "epsilon = 0.01.");
  EXPECT_EQ(remedy("epsilon", "small"), "epsilon = 1e-05, the default.");
  EXPECT_EQ(remedy("hidden", "32"), "hidden = 32.");
  EXPECT_EQ(remedy("bias", "yes"), "bias = true, the default.");
  EXPECT_EQ(remedy("reset", true), "one of after, before.");
}

}  // namespace
}  // namespace hotloop
