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

}  // namespace
}  // namespace hotloop::cli
