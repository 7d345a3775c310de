// Text for people: tables of results and of where the time went, in 80 columns.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "cli/baselines.h"
#include "cli/job.h"
#include "hotloop/jit.h"

namespace hotloop::cli {

std::string grouped(std::int64_t number);  // 17,520
// With so many decimals; with as many significant digits where these would say little (0.00002) or too much (123456.7891).
std::string score_text(double value, int decimals = 4);
// Lines of at most 80 columns, broken at blanks, each after the first indented; the first begins in that column too.
std::string wrapped(const std::string& text, std::size_t indent);
std::string describe_model(const Job& job, const Tree<Array>& params);
// Results side by side, the best first column wide enough for all names.
std::string results_table(const std::string& heading, std::span<const TestResult> results);
std::string times_table(const train::FitTimes& times);
// One line for each program that ran, from the records of some launches.
std::string kernels_table(std::span<const KernelRecord> records);

}  // namespace hotloop::cli
