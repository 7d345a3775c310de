// The simple models a job names, computed on its data.
#pragma once

#include <vector>

#include "cli/job.h"
#include "cli/run_folder.h"

namespace hotloop::cli {

// The metric of each baseline on the test part, in the target's unit.
std::vector<TestResult> run_baselines(const Job& job, const data::Table& table, const data::WindowedTable& windows);

// Factor from the metric of standardised values to that in the target's unit.
double metric_scale(const Job& job, const data::WindowedTable& windows);

}  // namespace hotloop::cli
