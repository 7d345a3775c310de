#include "cli/charts.h"

#include <gtest/gtest.h>

#include <cmath>
#include <regex>
#include <string>
#include <vector>

namespace hotloop::cli {
namespace {

// The numbers beside the lines of the y axis, whose texts end where the lines begin.
std::vector<double> labels_of(double low, double high) {
  const std::string svg = print_svg(
      {.title = "Loss", .x_label = "epoch", .y_label = "loss", .series = {{"", {1, 2}, {high, low}}}, .log_y = true});
  EXPECT_NE(svg.find("loss, logarithmic"), std::string::npos);
  const std::regex label("text-anchor=\"end\" class=\"hl-text\">([0-9.e+-]+)<");
  std::vector<double> labels;
  for (std::sregex_iterator match(svg.begin(), svg.end(), label), end; match != end; ++match)
    labels.push_back(std::stod((*match)[1]));
  return labels;
}

TEST(Charts, ALogarithmicAxisHasLinesAllOverItsRange) {
  EXPECT_EQ(labels_of(0.0139, 0.65), (std::vector<double>{0.02, 0.05, 0.1, 0.2, 0.5}));
  EXPECT_EQ(labels_of(1e-5, 1), (std::vector<double>{1e-5, 1e-4, 1e-3, 1e-2, 0.1, 1}));
  for (const double ratio : {1.5, 3.0, 8.0, 12.0, 30.0, 47.0, 100.0, 700.0, 5e3, 1e6})
    for (const double low : {0.011, 0.05, 1.0, 7.3}) {
      const std::vector<double> labels = labels_of(low, low * ratio);
      ASSERT_GE(labels.size(), 3u) << low << " to " << low * ratio;
      // No gap is more than two thirds of the axis.
      std::vector<double> at = labels;
      at.insert(at.begin(), low);
      at.push_back(low * ratio);
      for (std::size_t i = 1; i < at.size(); ++i)
        EXPECT_LT(std::log(at[i] / at[i - 1]), 2.0 / 3 * std::log(ratio)) << low << " to " << low * ratio;
    }
}

// What stands beside the lines of a linear y axis.
std::vector<std::string> texts_of(double low, double high) {
  const std::string svg = print_svg({.title = "Forecast", .series = {{"", {1, 2}, {high, low}}}});
  const std::regex label("text-anchor=\"end\" class=\"hl-text\">([^<]+)<");
  std::vector<std::string> texts;
  for (std::sregex_iterator match(svg.begin(), svg.end(), label), end; match != end; ++match)
    texts.push_back((*match)[1]);
  return texts;
}

TEST(Charts, NumbersOfAnAxisHaveOneUnitAndAllTheirDigits) {
  using Texts = std::vector<std::string>;
  EXPECT_EQ(texts_of(0, 50'000), (Texts{"0", "10000", "20000", "30000", "40000", "50000"}));
  EXPECT_EQ(texts_of(0, 500'000), (Texts{"0", "100k", "200k", "300k", "400k", "500k"}));
  EXPECT_EQ(texts_of(-1e6, 1.5e6), (Texts{"-1M", "-0.5M", "0", "0.5M", "1M", "1.5M"}));
  EXPECT_EQ(texts_of(0, 2.5e9), (Texts{"0", "0.5G", "1G", "1.5G", "2G", "2.5G"}));
  EXPECT_EQ(texts_of(0, 2.5e-5), (Texts{"0", "5e-06", "1e-05", "1.5e-05", "2e-05", "2.5e-05"}));
  EXPECT_EQ(texts_of(1e-14, 3e-14), (Texts{"1e-14", "1.5e-14", "2e-14", "2.5e-14", "3e-14"}));
}

// The name of the y axis stands at 14.
TEST(Charts, LongNumbersMoveTheAxis) {
  const auto axis_at = [](double low, double high) {
    const std::string svg = print_svg({.title = "Forecast", .series = {{"", {1, 2}, {high, low}}}});
    std::smatch match;
    EXPECT_TRUE(std::regex_search(svg, match, std::regex("<line x1=\"([0-9.]+)\" y1=\"252\"")));
    return std::stod(match[1]);
  };
  EXPECT_EQ(axis_at(0, 100), 64);
  EXPECT_GT(axis_at(101'300, 101'310), 64 + 10);
}

}  // namespace
}  // namespace hotloop::cli
