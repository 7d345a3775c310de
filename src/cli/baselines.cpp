#include "cli/baselines.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "cli/report.h"
#include "core/utf8.h"
#include "data/number.h"
#include "hotloop/error.h"
#include "io/json.h"

namespace hotloop::cli {
namespace {

// What columns predict, [samples, horizon_steps * targets] in the targets' units.
std::vector<double> column_predictions(const Baseline& baseline, const data::Samples& samples) {
  const std::size_t num_targets = baseline.columns.size();
  std::vector<double> all;
  for (std::size_t k = 0; k < num_targets; ++k) {
    const std::vector<double> known = samples.known(samples.test(), baseline.columns[k]);
    all.resize(known.size() * num_targets);
    for (std::size_t i = 0; i < known.size(); ++i) all[i * num_targets + k] = known[i];
  }
  return all;
}

// In f64, beside targets as the table has them; several targets as standardised as the model's are.
double column_error(const Job& job, const data::Samples& samples, const std::vector<double>& predictions) {
  const std::vector<std::string>& targets = job.recipe.targets;
  const auto n = targets.size();
  std::vector<std::vector<double>> wanted;
  for (const std::string& target : targets) wanted.push_back(samples.kept(samples.test(), target));
  const std::span<const data::Standardization> scales = samples.preparation().target_scales();
  const auto seen = [&](double value, std::size_t k) {
    return n == 1 ? value : (value - scales[k].mean) / scales[k].std;
  };
  const auto accumulator = job.fit.metric.start();
  std::vector<double> predicted(n), truth(n);
  for (std::size_t i = 0; i < wanted[0].size(); ++i) {
    for (std::size_t k = 0; k < n; ++k) {
      predicted[k] = seen(predictions[i * n + k], k);
      truth[k] = seen(wanted[k][i], k);
    }
    accumulator->add(predicted, truth);
  }
  return accumulator->value();
}

TestResult test_columns(const Job& job, const Baseline& baseline, const data::Samples& samples) {
  const std::vector<double> predictions = column_predictions(baseline, samples);
  if (!std::ranges::all_of(predictions, [](double p) { return std::isfinite(p); })) {
    const bool several = baseline.columns.size() > 1;
    throw UserError("baseline",
                    std::string(several ? "the columns" : "the column") + " of '" + baseline.name +
                        "' must be defined on all test rows",
                    several ? "missing values" : "'" + baseline.columns[0] + "'",
                    "leave out the baseline '" + baseline.name + "', or name " + (several ? "columns" : "a column") +
                        " without missing values");
  }
  return {baseline.name, column_error(job, samples, predictions),
          output_errors(job, samples, [&](std::int64_t sample, std::span<double> out) {
            std::copy_n(predictions.begin() + sample * std::ssize(out), out.size(), out.begin());
          })};
}

// One number tells but two classes, and only where it is the index of one.
void check_classes(const Job& job, const Baseline& baseline, const data::Samples& samples) {
  if (job.recipe.task != data::Task::Classification) return;
  const std::span<const std::string> classes = samples.preparation().classes();
  const auto is_index = [&](std::size_t i) { return data::parse_number(classes[i]) == static_cast<double>(i); };
  if (classes.size() < 2 || (classes.size() == 2 && is_index(0) && is_index(1))) return;
  const std::string of = " of '" + job.recipe.targets[0] + "'";
  throw UserError("baseline", "a column can predict numbers, or two classes 0 and 1",
                  classes.size() > 2
                      ? std::to_string(classes.size()) + " classes" + of
                      : "classes '" + printable(classes[0]) + "' and '" + printable(classes[1]) + "'" + of,
                  "leave out the baseline '" + baseline.name + "'" +
                      (classes.size() > 2 ? "" : ", or a table with 0 and 1 in both columns"));
}

std::vector<const Baseline*> ridge_baselines(const Job& job) {
  std::vector<const Baseline*> ridges;
  for (const Baseline& baseline : job.baselines)
    if (baseline.kind == Baseline::Kind::Ridge) ridges.push_back(&baseline);
  return ridges;
}

}  // namespace

void check_baselines(const Job& job, const data::Samples& samples) {
  for (const Baseline& baseline : job.baselines) {
    if (baseline.kind != Baseline::Kind::Column) continue;
    check_classes(job, baseline, samples);
    // They need no model: what is wrong with one is said before the first step.
    if (samples.test().size() > 0 && !job.fit.metric.loss()) test_columns(job, baseline, samples);
  }
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
                    {"weights", ridges[i].weights},
                    {"intercepts", ridges[i].intercepts}});
  return json_text(json);
}

std::vector<train::Ridge> parse_ridges(const std::string& text, const std::string& source, const Job& job,
                                       std::int64_t num_weights) {
  std::vector<train::Ridge> ridges;
  std::string problem = "other baselines";
  try {
    for (const nlohmann::json& entry : io::parse_json<nlohmann::json>(text))
      ridges.push_back({entry.at("lambda").get<double>(), entry.at("validation_mae").get<double>(),
                        entry.at("weights").get<std::vector<double>>(),
                        // Of older runs: none.
                        entry.value("intercepts", std::vector<double>())});
  } catch (const nlohmann::json::exception& e) {
    problem = e.what();
    ridges.clear();
  }
  const std::size_t num_outputs = job.recipe.targets.size() * static_cast<std::size_t>(job.recipe.horizon_steps);
  const auto fits = [&](const train::Ridge& ridge) {
    return static_cast<std::int64_t>(ridge.weights.size()) == num_weights &&
           (ridge.intercepts.empty() || ridge.intercepts.size() == num_outputs);
  };
  if (ridges.size() != ridge_baselines(job).size() || !std::ranges::all_of(ridges, fits))
    throw UserError("run", source + " must hold the ridge regressions of the run's configuration", problem,
                    "train again, or remove the file: those baselines are then left out");
  return ridges;
}

std::vector<TestResult> test_baselines(const Job& job, const std::optional<std::vector<train::Ridge>>& ridges,
                                       const data::Samples& samples, std::vector<std::string>& left_out) {
  std::vector<TestResult> results;
  if (job.fit.metric.loss()) return results;  // they have no such outputs
  std::size_t next_ridge = 0;
  for (const Baseline& baseline : job.baselines) {
    if (baseline.kind == Baseline::Kind::Column) {
      try {
        results.push_back(test_columns(job, baseline, samples));
      } catch (const UserError& e) {
        left_out.emplace_back(e.what());
      }
      continue;
    }
    if (!ridges) continue;
    const std::vector<double> predicted = (*ridges)[next_ridge++].predict(samples.test());
    const Shape shape = {samples.test().size(), samples.test().target_shape().size()};
    const data::Standardization scale = samples.target_scale();
    const Array rows = Array::from(predicted, shape);
    results.push_back({baseline.name,
                       train::evaluate_metric(job.fit.metric, rows, samples.test(), scale.std, scale.mean),
                       output_errors(job, samples, standardized_rows(samples, rows))});
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

}  // namespace hotloop::cli
