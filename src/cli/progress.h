// How far a fit is: a bar that is redrawn on a terminal, one line an epoch elsewhere.
#pragma once

#include <chrono>
#include <string>

#include "hotloop/fit.h"

namespace hotloop::cli {

class ProgressBar {
 public:
  // The validation metric is shown as `scale` times its value, as "`metric` 0.1712".
  ProgressBar(bool on_terminal, std::string metric, double scale);
  void update(const train::Progress& progress);

 private:
  void draw(const train::Progress& progress);

  bool on_terminal_;
  std::string metric_;
  double scale_;
  std::string last_epoch_;
  double best_;
  std::chrono::steady_clock::time_point last_drawn_{};
};

// "12 s", "3 min 20 s", "1 h 05 min".
std::string duration_text(double seconds);

}  // namespace hotloop::cli
