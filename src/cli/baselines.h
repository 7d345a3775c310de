// The simple models a job names, computed on its data.
#pragma once

#include <vector>

#include "cli/job.h"

namespace hotloop::cli {

struct TestResult {
  std::string name;
  double value = 0;  // the metric on the test part, in the target's unit (squared for mse)
};

// The metric of each baseline on the test part, in the target's unit.
std::vector<TestResult> run_baselines(const Job& job, const data::Samples& samples);

// Factor from the metric of standardised values to that in the target's unit.
double metric_scale(const Job& job, const data::Samples& samples);

}  // namespace hotloop::cli
