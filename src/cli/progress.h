// How far a fit is: a bar that is redrawn on a terminal, one line an epoch elsewhere, of at most 80 columns or followed by others that are indented.
#pragma once

#include <chrono>
#include <cstdio>
#include <string>
#include <vector>

#include "cli/shown_metrics.h"
#include "hotloop/fit.h"

namespace hotloop::cli {

class ProgressBar {
 public:
  // The validation is shown as "mae 0.1712", and what else it was judged by behind that.
  ProgressBar(std::FILE* out, std::vector<ShownMetric> metrics);
  void update(const train::Progress& progress);
  // Ends the line of the bar, if one is there.
  void end_line();

 private:
  void draw(const train::Progress& progress);

  std::FILE* out_;
  bool on_terminal_;
  bool drawn_ = false;
  std::vector<ShownMetric> metrics_;
  std::string last_epoch_;
  std::chrono::steady_clock::time_point last_drawn_{};
};

// "12 s", "3 min 20 s", "1 h 05 min".
std::string duration_text(double seconds);

}  // namespace hotloop::cli
