#include "cli/baselines.h"

#include <cmath>

#include "hotloop/error.h"

namespace hotloop::cli {
namespace {

double column_error(const Job& job, const Baseline& baseline, const data::Samples& samples) {
  if (job.recipe.targets.size() != 1)
    throw UserError("baseline", "a column can predict one target",
                    std::to_string(job.recipe.targets.size()) + " targets",
                    "leave out the baseline '" + baseline.name + "'");
  const std::vector<double> prediction = samples.kept(samples.test(), baseline.column);
  const std::vector<double> target = samples.kept(samples.test(), job.recipe.targets[0]);
  const auto accumulator = job.fit.metric.start();
  for (std::size_t i = 0; i < target.size(); ++i)
    accumulator->add(std::span(prediction).subspan(i, 1), std::span(target).subspan(i, 1));
  const double error = accumulator->value();
  if (!std::isfinite(error))
    throw UserError("baseline", "the column of '" + baseline.name + "' must be defined on all test rows",
                    "'" + baseline.column + "'",
                    "leave out the baseline '" + baseline.name + "', or name a column without missing values");
  return error;
}

}  // namespace

std::vector<TestResult> run_baselines(const Job& job, const data::Samples& samples) {
  std::vector<TestResult> results;
  for (const Baseline& baseline : job.baselines) {
    if (baseline.kind == Baseline::Kind::Column) {
      results.push_back({baseline.name, column_error(job, baseline, samples)});
      continue;
    }
    const train::Ridge ridge = train::fit_ridge(samples.train(), samples.validation(), baseline.lambdas);
    const std::vector<double> predicted = ridge.predict(samples.test());
    const data::Standardization scale = samples.target_scale();
    results.push_back(
        {baseline.name,
         train::evaluate_metric(job.fit.metric, Array::from(predicted, {static_cast<std::int64_t>(predicted.size())}),
                                samples.test(), scale.std, scale.mean)});
  }
  return results;
}

double metric_scale(const Job& job, const data::Samples& samples) {
  const double std = samples.target_scale().std;
  return std::pow(std, job.fit.metric.unit_power());
}

}  // namespace hotloop::cli
