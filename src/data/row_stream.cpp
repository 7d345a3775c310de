#include "data/row_stream.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numbers>

#include "core/nearest.h"
#include "core/utf8.h"
#include "data/labels.h"
#include "data/time.h"
#include "hotloop/error.h"

namespace hotloop::data {
namespace {

constexpr double undefined = std::numeric_limits<double>::quiet_NaN();
// Of the time step: times that were rounded still follow one another.
constexpr double time_tolerance = 0.01;

double wave(double position, const Feature& feature) {
  const double angle = 2 * std::numbers::pi * feature.harmonic * position;
  return feature.cosine ? std::cos(angle) : std::sin(angle);
}

}  // namespace

RowStream::RowStream(const Preparation::State& state, const Columns& columns, std::vector<Feature> features)
    : state_(state), columns_(columns), features_(std::move(features)) {
  const std::size_t n = columns_.requests.size();
  means_.assign(n, undefined);
  for (std::size_t i = 0; i < n; ++i)
    if (const auto it = state.means.find(columns_.requests[i].name);
        it != state.means.end() && columns_.requests[i].kind == ColumnKind::Number)
      means_[i] = it->second;
  history_position_.assign(n, -1);
  for (const Feature& f : features_) {
    if (f.kind != Feature::Kind::Lag) continue;
    history_rows_ = std::max(history_rows_, f.steps);
    const auto column = static_cast<std::size_t>(f.column);
    if (history_position_[column] >= 0) continue;
    history_position_[column] = static_cast<int>(history_columns_.size());
    history_columns_.push_back(f.column);
  }
  category_of_.resize(n);
  labels_.resize(n);
  filled_.resize(n);
}

void RowStream::set_labels(std::size_t request, std::span<const std::string> labels) {
  labels_[request] = labels;
  const auto it = state_.categories.find(columns_.requests[request].name);
  if (it != state_.categories.end()) find_labels(labels, it->second, category_of_[request]);
}

std::int64_t RowStream::push(std::span<const double> row, std::span<double> features, const Place& place) {
  const int series_column = columns_.series();
  const std::size_t id = series_column < 0 ? 0 : static_cast<std::size_t>(row[static_cast<std::size_t>(series_column)]);
  if (id >= series_.size()) series_.resize(id + 1);
  Series& series = series_[id];
  double time = undefined;
  if (columns_.time >= 0) {
    time = row[static_cast<std::size_t>(columns_.time)];
    if (series.num_rows > 0) check_time(time, series, place);
    const double difference = time - series.last_time;
    const double step = state_.time_step;
    if (series.num_rows > 0 && step > 0 && std::abs(difference - step) > time_tolerance * step) {
      series.run = 0;
      series.last.clear();
    }
    series.last_time = time;
  }
  ++series.run;
  fill(row, series);
  for (std::size_t i = 0; i < features_.size(); ++i) features[i] = feature(features_[i], row, series, place);
  remember(time, series);
  ++series.num_rows;
  return series.run;
}

void RowStream::check_time(double time, const Series& series, const Place& place) const {
  if (time > series.last_time) return;
  const std::string column = "'" + state_.recipe.time + "'";
  if (time == series.last_time)
    throw UserError(
        "data", "times " + column + " must increase from row to row" + (columns_.series() >= 0 ? " of a group" : ""),
        print_time(time) + " a second time at " + place(),
        columns_.series() >= 0 ? "keep one row of each time and group"
                               : "keep one row of each time, or name the column that tells them apart: "
                                 "group = \"<column>\"");
  throw UserError("data",
                  "times " + column + " must increase from row to row" + (columns_.series() >= 0 ? " of a group" : ""),
                  print_time(time) + " after " + print_time(series.last_time) + " at " + place(),
                  columns_.series() >= 0
                      ? "sort the table by time"
                      : "sort the table by time, or name the column that tells series apart: group = \"<column>\"");
}

void RowStream::fill(std::span<const double> row, Series& series) {
  if (series.last.empty()) series.last.assign(row.size(), undefined);
  for (std::size_t i = 0; i < row.size(); ++i) {
    double value = row[i];
    if (std::isnan(value)) {
      if (columns_.fills[i] == Fill::Forward) value = series.last[i];
      if (columns_.fills[i] == Fill::Mean) value = means_[i];
    } else {
      series.last[i] = value;
    }
    filled_[i] = value;
  }
}

double RowStream::feature(const Feature& f, std::span<const double> row, const Series& series,
                          const Place& place) const {
  switch (f.kind) {
    case Feature::Kind::Column: return filled_[static_cast<std::size_t>(f.column)];
    case Feature::Kind::Lag: return lagged(f, series.last_time, series);
    case Feature::Kind::OneHot: return one_hot(f, place);
    case Feature::Kind::Indicator: return std::isnan(row[static_cast<std::size_t>(f.column)]) ? 1 : 0;
    case Feature::Kind::Cycle: break;
  }
  const Cycle& cycle = state_.recipe.cycles[static_cast<std::size_t>(f.cycle)];
  if (cycle.of != Cycle::Of::Row) return wave(cycle_position(cycle.of, series.last_time), f);
  const Periodic& p = cycle.rows;
  double position = std::fmod(static_cast<double>(series.num_rows / p.step) + p.phase, p.period);
  if (position < 0) position += p.period;
  // As periodic() computes it, to the bit.
  const double angle = 2 * std::numbers::pi * f.harmonic * position / p.period;
  return f.cosine ? std::cos(angle) : std::sin(angle);
}

const double* RowStream::slot(const Series& series, std::int64_t row) const {
  return series.history.data() + static_cast<std::size_t>(row % history_rows_) * (history_columns_.size() + 1);
}
double* RowStream::slot(Series& series, std::int64_t row) const {
  return const_cast<double*>(slot(std::as_const(series), row));
}

double RowStream::lagged(const Feature& f, double time, const Series& series) const {
  const auto position = static_cast<std::size_t>(history_position_[static_cast<std::size_t>(f.column)]) + 1;
  const double step = state_.time_step;
  const std::int64_t oldest = std::max<std::int64_t>(0, series.num_rows - history_rows_);
  if (columns_.time < 0 || !(step > 0)) {
    const std::int64_t row = series.num_rows - f.steps;
    return row < oldest ? undefined : slot(series, row)[position];
  }
  // The first remembered row that is not before the time looked for: rows are sorted by time.
  const double wanted = time - static_cast<double>(f.steps) * step, tolerance = time_tolerance * step;
  std::int64_t low = oldest, high = series.num_rows;
  while (low < high) {
    const std::int64_t middle = low + (high - low) / 2;
    if (slot(series, middle)[0] < wanted - tolerance)
      low = middle + 1;
    else
      high = middle;
  }
  if (low >= series.num_rows || slot(series, low)[0] > wanted + tolerance) return undefined;
  return slot(series, low)[position];
}

double RowStream::one_hot(const Feature& f, const Place& place) const {
  const auto column = static_cast<std::size_t>(f.column);
  const double code = filled_[column];
  if (std::isnan(code)) return columns_.fills[column] == Fill::Mean ? 0 : undefined;
  const int category = category_of_[column][static_cast<std::size_t>(code)];
  if (category < 0) {
    const std::string& name = columns_.requests[column].name;
    const OneHot& rule = *std::ranges::find(state_.recipe.one_hots, name, &OneHot::column);
    if (rule.unknown_as_zeros) return 0;
    const std::string& label = labels_[column][static_cast<std::size_t>(code)];
    throw UserError("data", "every category of column '" + name + "' must be one of the training rows",
                    "'" + printable(label) + "' at " + place(),
                    nearest_hint(label, state_.categories.at(name)) + ", or unknown = \"zeros\"");
  }
  return category == f.category ? 1 : 0;
}

void RowStream::remember(double time, Series& series) const {
  if (history_rows_ == 0) return;
  const std::size_t width = history_columns_.size() + 1;
  // The ring grows with the series: many short ones must not take the longest lag's memory each.
  const auto needed = static_cast<std::size_t>(std::min(series.num_rows + 1, history_rows_)) * width;
  if (series.history.size() < needed) series.history.resize(needed);
  double* to = slot(series, series.num_rows);
  to[0] = time;
  for (std::size_t i = 0; i < history_columns_.size(); ++i)
    to[i + 1] = filled_[static_cast<std::size_t>(history_columns_[i])];
}

}  // namespace hotloop::data
