// The simple models a job names, computed on its data.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "cli/job.h"
#include "cli/test_result.h"

namespace hotloop::cli {

// UserError for a baseline that cannot predict the targets: a column as the classification of other classes than 0 and 1, as one number tells
// but two, or one that is not defined on all test rows.
void check_baselines(const Job& job, const data::Samples& samples);

// The job's ridge regressions, in its order, fitted to the training part.
std::vector<train::Ridge> fit_ridges(const Job& job, const data::Samples& samples);
// As JSON, and back; UserError that names `source` for text that is none or that does not fit the job and `num_weights`, inputs of a
// sample times its targets.
std::string print_ridges(const Job& job, std::span<const train::Ridge> ridges);
std::vector<train::Ridge> parse_ridges(const std::string& json, const std::string& source, const Job& job,
                                       std::int64_t num_weights);

// The metric of each baseline on the test part, in the target's unit. Nothing is fitted; without `ridges` those are left out. So is one that
// another table does not have on all rows, with the reason in `left_out`.
std::vector<TestResult> test_baselines(const Job& job, const std::optional<std::vector<train::Ridge>>& ridges,
                                       const data::Samples& samples, std::vector<std::string>& left_out);

// Of a classification judged by accuracy: the test part's where the commonest class of the training part is always predicted.
std::optional<TestResult> commonest_class(const Job& job, const data::Samples& samples);

}  // namespace hotloop::cli
