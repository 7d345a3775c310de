#include "cli/evaluation.h"

#include <fmt/format.h>
#include <algorithm>
#include <cmath>
#include <functional>
#include <iterator>
#include <map>

#include "cli/report.h"
#include "hotloop/error.h"
#include "train/each_target.h"
#include "train/metrics.h"
#include "train/output_statistics.h"

namespace hotloop::cli {
namespace {

using train::for_each_target;

constexpr std::size_t chart_points = 336, most_dots = 1000;

Confusion count_classes(const Array& predictions, const data::Dataset& samples, std::span<const std::string> names,
                        double threshold) {
  std::map<std::pair<std::int64_t, std::int64_t>, std::int64_t> seen;
  std::int64_t largest = std::max<std::int64_t>(1, static_cast<std::int64_t>(names.size()) - 1);
  for_each_target(predictions, samples, [&](std::span<const double> predicted, std::span<const double> wanted, double) {
    const metrics::Classes classes = metrics::classes_of("confusion", predicted, wanted, threshold);
    ++seen[{classes.wanted, classes.predicted}];
    largest = std::max({largest, classes.predicted, classes.wanted, static_cast<std::int64_t>(predicted.size()) - 1});
    return true;
  });
  Confusion confusion{.num_classes = largest + 1};
  for (const auto& [classes, count] : seen) confusion.counts.push_back({classes.first, classes.second, count});
  for (std::int64_t c = 0; c < confusion.num_classes; ++c)
    confusion.names.push_back(c < static_cast<std::int64_t>(names.size()) ? names[static_cast<std::size_t>(c)]
                                                                          : std::to_string(c));
  return confusion;
}

// The first number of each target, truth and forecast.
struct Lines {
  ChartSeries truth, forecast;
};
Lines first_numbers(const Array& predictions, const data::Dataset& samples, const data::Standardization& scale,
                    const std::string& name, std::size_t most = chart_points) {
  Lines lines{{.name = "truth"}, {.name = name}};
  for_each_target(predictions, samples, [&](std::span<const double> predicted, std::span<const double> wanted, double) {
    const auto x = static_cast<double>(lines.truth.xs.size());
    lines.truth.xs.push_back(x);
    lines.truth.ys.push_back(wanted[0] * scale.std + scale.mean);
    lines.forecast.xs.push_back(x);
    lines.forecast.ys.push_back(predicted[0] * scale.std + scale.mean);
    return lines.truth.xs.size() < most;
  });
  return lines;
}

// Statistics that are quantiles, the lowest level first.
std::vector<std::size_t> quantiles_of(const losses::Distribution& distribution) {
  std::vector<std::size_t> quantiles;
  for (std::size_t i = 0; i < distribution.statistics.size(); ++i)
    if (!std::isnan(distribution.statistics[i].level)) quantiles.push_back(i);
  std::ranges::sort(quantiles, {}, [&](std::size_t i) { return distribution.statistics[i].level; });
  return quantiles;
}

// Whether test samples follow one another: a line from one to the next then says something.
bool in_order(const data::Recipe& recipe) {
  return !recipe.time.empty() ||
         (recipe.sample.empty() && recipe.split.by != data::Split::By::Random && recipe.length > 1);
}

// Of samples in no order: a dot for each.
Chart dots_chart(const Array& predictions, const data::Samples& samples, const std::string& target) {
  const data::Standardization& scale = samples.preparation().target_scales()[0];
  const Lines lines = first_numbers(predictions, samples.test(), scale, "forecast", most_dots);
  const auto [low, high] = std::ranges::minmax(lines.truth.ys);
  const ChartSeries exact{.name = "where it would be right", .xs = {low, high}, .ys = {low, high}},
      dots{.name = "test samples", .xs = lines.truth.ys, .ys = lines.forecast.ys, .points = true};
  return {.title = "Forecast against truth, first test samples",
          .x_label = target,
          .y_label = target + ", forecast",
          .series = {dots, exact},
          .whole_x = false};
}

// With what lies between the lowest and the highest quantile that the outputs say.
Chart forecast_chart(const losses::Distribution* distribution, const std::vector<Array>& statistics, std::size_t point,
                     const data::Samples& samples, const std::string& target) {
  const data::Standardization& scale = samples.preparation().target_scales()[0];
  const Lines lines = first_numbers(statistics[point], samples.test(), scale, "forecast");
  Chart chart{.title = "Forecast against truth, first test samples",
              .x_label = "test sample",
              .y_label = target,
              .series = {lines.truth, lines.forecast}};
  if (distribution == nullptr) return chart;
  const std::vector<std::size_t> quantiles = quantiles_of(*distribution);
  if (quantiles.size() < 2) return chart;
  const auto quantile = [&](std::size_t i) {
    return first_numbers(statistics[i], samples.test(), scale, distribution->statistics[i].name).forecast;
  };
  const ChartSeries low = quantile(quantiles.front()), high = quantile(quantiles.back());
  chart.band = {.name = low.name + " to " + high.name, .xs = low.xs, .low = low.ys, .high = high.ys};
  return chart;
}

std::optional<Calibration> calibrate(const losses::Distribution& distribution, const std::vector<Array>& statistics,
                                     const data::Dataset& samples) {
  Calibration calibration;
  for (const std::size_t i : quantiles_of(distribution)) {
    std::int64_t below = 0, count = 0;
    for_each_target(statistics[i], samples,
                    [&](std::span<const double> quantile, std::span<const double> wanted, double) {
                      for (std::size_t k = 0; k < wanted.size(); ++k) below += wanted[k] <= quantile[k];
                      count += std::ssize(wanted);
                      return true;
                    });
    calibration.num_targets = count;
    calibration.quantiles.push_back({distribution.statistics[i].name, distribution.statistics[i].level,
                                     static_cast<double>(below) / static_cast<double>(count)});
  }
  if (calibration.quantiles.empty()) return std::nullopt;
  return calibration;
}

// Targets and predictions of a sample are [step 0's targets, step 1's, ...].
Chart phase_chart(const Array& predictions, const data::Samples& samples, const std::vector<std::string>& targets) {
  const data::Dataset& test = samples.test();
  const std::int64_t first = 0;
  Array wanted(test.target_dtype(), test.target_shape().with_inserted(0, 1));
  test.gather(std::span(&first, 1), {.targets = wanted.raw()});
  const auto way = [&](const std::string& name, const Array& rows) {
    const Array values = samples.preparation().unscale(rows);
    const auto n = static_cast<std::int64_t>(targets.size());
    ChartSeries series{.name = name};
    for (std::int64_t i = 0; i < wanted.size(); i += n) {
      series.xs.push_back(values.at(i));
      series.ys.push_back(values.at(i + n - 1));
    }
    return series;
  };
  return {.title = "Phase space, first test sample",
          .x_label = targets.front(),
          .y_label = targets.back(),
          .series = {way("truth", wanted), way("forecast", predictions)},
          .whole_x = false};
}

}  // namespace

std::int64_t Confusion::total() const {
  std::int64_t sum = 0;
  for (const Count& c : counts) sum += c.count;
  return sum;
}

double Confusion::accuracy() const {
  std::int64_t right = 0;
  for (const Count& c : counts)
    if (c.wanted == c.predicted) right += c.count;
  return static_cast<double>(right) / static_cast<double>(std::max<std::int64_t>(1, total()));
}

std::vector<std::vector<std::int64_t>> Confusion::table() const {
  const auto n = static_cast<std::size_t>(num_classes);
  std::vector rows(n, std::vector<std::int64_t>(n));
  for (const Count& c : counts)
    rows[static_cast<std::size_t>(c.wanted)][static_cast<std::size_t>(c.predicted)] = c.count;
  return rows;
}

std::vector<Confusion::Count> Confusion::largest(std::size_t most) const {
  std::vector<Count> wrong;
  std::ranges::copy_if(counts, std::back_inserter(wrong), [](const Count& c) { return c.wanted != c.predicted; });
  std::ranges::stable_sort(wrong, std::greater(), &Count::count);
  wrong.resize(std::min(most, wrong.size()));
  return wrong;
}

Evaluation evaluate(const Job& job, const data::Samples& samples, const nn::Layer& model, const Tree<Array>& params,
                    const Tree<Array>& buffers, const std::optional<std::vector<train::Ridge>>& ridges,
                    const std::string& name, bool own_table) {
  const data::Dataset& test = samples.test();
  if (test.size() == 0)
    throw UserError("split", "the test part must hold samples", samples.describe(),
                    "[split] train and validation whose sum is below 1");
  const Array outputs = train::predict(model, params, test, job.fit.batch_size, job.fit.compile, buffers);
  train::OutputStatistics reader(job.fit.loss);
  const losses::Distribution* distribution = job.fit.loss.distribution();
  const std::vector<Array> statistics = reader.all(outputs);
  const Array& predicted = statistics[reader.point_index()];
  Evaluation out;
  const bool classes = is_integer(test.target_dtype());
  const auto judged = [&](const metrics::Metric& metric) {
    const data::Standardization scale = metric.loss() ? data::Standardization{} : samples.target_scale();
    return train::evaluate_metric(metric, metric.loss() ? outputs : predicted, test, scale.std, scale.mean);
  };
  out.results = {{name, judged(job.fit.metric)}};
  for (const metrics::Metric& metric : job.fit.further_metrics) out.further.emplace_back(metric.name(), judged(metric));
  if (predicted.shape().rank() == 2 && predicted.shape()[1] == test.target_shape().size())
    out.results[0].by_output = output_errors(job, samples, standardized_rows(samples, predicted));
  for (TestResult& baseline : test_baselines(job, ridges, samples, out.left_out))
    out.results.push_back(std::move(baseline));
  if (own_table)
    if (const std::optional<TestResult> commonest = commonest_class(job, samples)) out.results.push_back(*commonest);
  if (classes)
    out.confusion = count_classes(predicted, test, samples.preparation().classes(), job.fit.loss.threshold());
  else if (predicted.shape().rank() == 2 && job.recipe.targets.size() > 1 && job.recipe.horizon_steps > 1)
    out.phase = phase_chart(predicted, samples, job.recipe.targets);
  if (distribution != nullptr) out.calibration = calibrate(*distribution, statistics, test);
  if (!classes)
    out.forecast = in_order(job.recipe)
                       ? forecast_chart(distribution, statistics, reader.point_index(), samples, job.recipe.targets[0])
                       : dots_chart(predicted, samples, job.recipe.targets[0]);
  return out;
}

std::string result_heading(const Job& job, const data::Samples& samples, const Evaluation& evaluation,
                           const std::string& table) {
  const std::string unit = evaluation.confusion || job.fit.metric.loss() ? "" : unit_of(job);
  return fmt::format("{} on the {} {}{}{}{}", job.fit.metric.name(), grouped(samples.test().size()),
                     table.empty() ? "test " : "",
                     !job.recipe.sample.empty()   ? "series"
                     : samples.test().size() == 1 ? "window"
                                                  : "windows",
                     table.empty() ? "" : " of " + table, unit.empty() ? "" : ", " + unit);
}

void add_test(const Job& job, const Evaluation& evaluation, nlohmann::ordered_json& metrics) {
  metrics[job.fit.metric.name()]["test"] = evaluation.results[0].value;
  for (const auto& [name, value] : evaluation.further) metrics[name]["test"] = value;
}

std::string further_text(const Evaluation& evaluation) {
  std::string out;
  for (const auto& [name, value] : evaluation.further)
    out += (out.empty() ? "" : ", ") + name + " " + score_text(value);
  return out.empty() ? "" : out + " of this model";
}

std::string calibration_table(const Calibration& calibration) {
  std::string out = fmt::format("Targets below the forecast's quantiles, of {}\n", grouped(calibration.num_targets));
  for (const Calibration::Quantile& q : calibration.quantiles)
    out += fmt::format("  {:<6}{:>6.1f} %, of {:g} % that should be\n", q.name, 100 * q.share, 100 * q.level);
  return out;
}

nlohmann::ordered_json calibration_json(const Calibration& calibration) {
  nlohmann::ordered_json quantiles = nlohmann::ordered_json::array();
  for (const Calibration::Quantile& q : calibration.quantiles)
    quantiles.push_back({{"quantile", q.name}, {"level", q.level}, {"share", q.share}});
  return quantiles;
}

nlohmann::ordered_json confusion_json(const Confusion& confusion) {
  nlohmann::ordered_json json = {{"classes", confusion.names}, {"accuracy", confusion.accuracy()}};
  if (confusion.fits_a_table()) {
    json["counts"] = confusion.table();
    return json;
  }
  json["cells"] = nlohmann::ordered_json::array();
  for (const Confusion::Count& c : confusion.counts) json["cells"].push_back({c.wanted, c.predicted, c.count});
  return json;
}

namespace {

// What is confused most.
std::string largest_confusions(const Confusion& confusion) {
  constexpr std::size_t most = 8, width = 24;
  const auto line = [&](const std::string& count, const std::string& wanted, const std::string& predicted) {
    const std::string name = shortened(wanted, width);
    return fmt::format("  {:>8}  {}  {}\n", count, padded(name, width), shortened(predicted, width));
  };
  std::string out = line("", "wanted", "predicted");
  for (const Confusion::Count& c : confusion.largest(most))
    out += line(grouped(c.count), confusion.names[static_cast<std::size_t>(c.wanted)],
                confusion.names[static_cast<std::size_t>(c.predicted)]);
  return out + fmt::format("  (the largest confusions of {} classes: metrics.json has them all)\n",
                           grouped(confusion.num_classes));
}

}  // namespace

std::string confusion_table(const Confusion& confusion) {
  std::string out = fmt::format("Accuracy {:.4f}: {} of {} right\n", confusion.accuracy(),
                                grouped(std::llround(confusion.accuracy() * static_cast<double>(confusion.total()))),
                                grouped(confusion.total()));
  if (!confusion.fits_a_table()) return out + largest_confusions(confusion);
  std::size_t width = 5;
  for (const std::string& name : confusion.names)
    width = std::max(width, std::min<std::size_t>(num_columns(name) + 1, 9));
  const std::size_t shown = std::min(confusion.names.size(), (80 - 12) / width);
  out += fmt::format("  {:<10}", "wanted");
  for (std::size_t c = 0; c < shown; ++c) out += padded(shortened(confusion.names[c], width - 1, ""), width, true);
  out += "  <- predicted\n";
  const std::vector<std::vector<std::int64_t>> table = confusion.table();
  for (std::size_t w = 0; w < shown; ++w) {
    out += "  " + padded(shortened(confusion.names[w], 9, ""), 10);
    for (std::size_t p = 0; p < shown; ++p) out += fmt::format("{:>{}}", table[w][p], width);
    out += "\n";
  }
  if (shown < confusion.names.size())
    out += fmt::format("  ({} more classes: metrics.json has them all)\n", confusion.names.size() - shown);
  return out;
}

}  // namespace hotloop::cli
