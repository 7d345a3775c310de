#include "cli/baselines.h"

#include <cmath>

#include "hotloop/error.h"

namespace hotloop::cli {
namespace {

double column_error(const Job& job, const Baseline& baseline, const data::Table& table,
                    const data::WindowedTable& windows) {
  const auto prediction = table[baseline.column], target = table[job.window.target];
  double sum = 0;
  const auto rows = windows.target_rows(windows.test());
  for (const std::int64_t row : rows) {
    const auto i = static_cast<std::size_t>(row);
    sum += job.fit.metric.error(prediction[i], target[i]);
  }
  const double error = sum / static_cast<double>(rows.size());
  if (!std::isfinite(error))
    throw UserError("baseline", "the column of '" + baseline.name + "' must be defined on all test rows",
                    "'" + baseline.column + "'");
  return error;
}

}  // namespace

std::vector<TestResult> run_baselines(const Job& job, const data::Table& table, const data::WindowedTable& windows) {
  std::vector<TestResult> results;
  for (const Baseline& baseline : job.baselines) {
    if (baseline.kind == Baseline::Kind::Column) {
      results.push_back({baseline.name, column_error(job, baseline, table, windows)});
      continue;
    }
    const train::Ridge ridge = train::fit_ridge(windows.train(), windows.validation(), baseline.lambdas);
    const std::vector<double> predicted = ridge.predict(windows.test());
    const auto& scale = windows.target_scale();
    results.push_back(
        {baseline.name,
         train::evaluate_metric(job.fit.metric, Array::from(predicted, {static_cast<std::int64_t>(predicted.size())}),
                                windows.test(), scale.std, scale.mean)});
  }
  return results;
}

double metric_scale(const Job& job, const data::WindowedTable& windows) {
  const double std = windows.target_scale().std;
  return job.fit.metric.name == "mse" ? std * std : std;
}

}  // namespace hotloop::cli
