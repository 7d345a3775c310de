#include "cli/baselines.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "hotloop/error.h"

namespace hotloop::cli {
namespace {

double column_error(const Job& job, const Baseline& baseline, const data::Samples& samples) {
  if (job.recipe.targets.size() != 1)
    throw UserError("baseline", "a column can predict one target",
                    std::to_string(job.recipe.targets.size()) + " targets",
                    "leave out the baseline '" + baseline.name + "'");
  const std::vector<double> prediction = samples.known(samples.test(), baseline.column);
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

std::vector<const Baseline*> ridge_baselines(const Job& job) {
  std::vector<const Baseline*> ridges;
  for (const Baseline& baseline : job.baselines)
    if (baseline.kind == Baseline::Kind::Ridge) ridges.push_back(&baseline);
  return ridges;
}

}  // namespace

void check_baselines(const Job& job, const data::Samples& samples) {
  if (job.recipe.task != data::Task::Classification || samples.preparation().classes().size() <= 2) return;
  for (const Baseline& baseline : job.baselines)
    if (baseline.kind == Baseline::Kind::Column)
      throw UserError(
          "baseline", "a column can predict numbers, or two classes 0 and 1",
          std::to_string(samples.preparation().classes().size()) + " classes of '" + job.recipe.targets[0] + "'",
          "leave out the baseline '" + baseline.name + "'");
}

std::vector<train::Ridge> fit_ridges(const Job& job, const data::Samples& samples) {
  std::vector<train::Ridge> ridges;
  for (const Baseline* baseline : ridge_baselines(job))
    ridges.push_back(train::fit_ridge(samples.train(), samples.validation(), baseline->lambdas));
  return ridges;
}

std::string print_ridges(const Job& job, std::span<const train::Ridge> ridges) {
  const std::vector<const Baseline*> baselines = ridge_baselines(job);
  nlohmann::ordered_json json = nlohmann::ordered_json::array();
  for (std::size_t i = 0; i < ridges.size(); ++i)
    json.push_back({{"name", baselines[i]->name},
                    {"type", "ridge"},
                    {"lambda", ridges[i].lambda},
                    {"validation_mae", ridges[i].validation_mae},
                    {"weights", ridges[i].weights}});
  return json.dump(2) + "\n";
}

std::vector<train::Ridge> parse_ridges(const std::string& text, const std::string& source, const Job& job,
                                       std::int64_t num_weights) {
  std::vector<train::Ridge> ridges;
  std::string problem = "other baselines";
  try {
    for (const nlohmann::json& entry : nlohmann::json::parse(text))
      ridges.push_back({entry.at("lambda").get<double>(), entry.at("validation_mae").get<double>(),
                        entry.at("weights").get<std::vector<double>>()});
  } catch (const nlohmann::json::exception& e) {
    problem = e.what();
    ridges.clear();
  }
  const auto fits = [&](const train::Ridge& ridge) {
    return static_cast<std::int64_t>(ridge.weights.size()) == num_weights;
  };
  if (ridges.size() != ridge_baselines(job).size() || !std::ranges::all_of(ridges, fits))
    throw UserError("run", source + " must hold the ridge regressions of the run's configuration", problem,
                    "train again, or remove the file: those baselines are then left out");
  return ridges;
}

std::vector<TestResult> test_baselines(const Job& job, const std::optional<std::vector<train::Ridge>>& ridges,
                                       const data::Samples& samples) {
  std::vector<TestResult> results;
  std::size_t next_ridge = 0;
  for (const Baseline& baseline : job.baselines) {
    if (baseline.kind == Baseline::Kind::Column) {
      results.push_back({baseline.name, column_error(job, baseline, samples)});
      continue;
    }
    if (!ridges) continue;
    const std::vector<double> predicted = (*ridges)[next_ridge++].predict(samples.test());
    const Shape shape = {samples.test().size(), samples.test().target_shape().size()};
    const data::Standardization scale = samples.target_scale();
    results.push_back({baseline.name, train::evaluate_metric(job.fit.metric, Array::from(predicted, shape),
                                                             samples.test(), scale.std, scale.mean)});
  }
  return results;
}

std::optional<TestResult> commonest_class(const Job& job, const data::Samples& samples) {
  if (job.recipe.task != data::Task::Classification || job.fit.metric.name() != "accuracy") return std::nullopt;
  const std::size_t num_classes = samples.preparation().classes().size();
  std::vector<std::int64_t> counts(num_classes);
  const data::Dataset& training = samples.train();
  Array target(training.target_dtype(), training.target_shape());
  for (std::int64_t i = 0; i < training.size(); ++i) {
    training.gather(std::span(&i, 1), {.targets = target.raw()});
    for (std::int64_t k = 0; k < target.size(); ++k) ++counts[static_cast<std::size_t>(target.at(k))];
  }
  const auto commonest = static_cast<std::size_t>(std::ranges::max_element(counts) - counts.begin());
  const data::Dataset& test = samples.test();
  const Shape targets = test.target_shape().with_inserted(0, test.size());
  std::vector<float> scores(static_cast<std::size_t>(targets.size()) * num_classes);
  for (std::size_t i = commonest; i < scores.size(); i += num_classes) scores[i] = 1;
  const Array predicted =
      Array::from(scores, targets.with_inserted(targets.rank(), static_cast<std::int64_t>(num_classes)));
  return TestResult{"the commonest class", train::evaluate_metric(job.fit.metric, predicted, test)};
}

double metric_scale(const Job& job, const data::Samples& samples) {
  const double std = samples.target_scale().std;
  return std::pow(std, job.fit.metric.unit_power());
}

}  // namespace hotloop::cli
