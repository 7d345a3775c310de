// One row after another in, features out: filled, lagged, one-hot; the state between rows is kept for each series.
#pragma once

#include <functional>
#include <span>
#include <string>
#include <vector>

#include "data/preparation.h"

namespace hotloop::data {

class RowStream {
 public:
  using Place = std::function<std::string()>;  // of the row, for messages

  RowStream(const Preparation::State& state, const Columns& columns, std::vector<Feature> features);

  // The texts that a request's indices stand for; call it again when there are more.
  void set_labels(std::size_t request, std::span<const std::string> labels);
  // The next row: a value for each request. Writes its features, NaN where undefined. Returns how many rows, this one included,
  // have followed one another in its series without a gap. UserError for a time that is not after the one before and for
  // an unknown category.
  std::int64_t push(std::span<const double> row, std::span<double> features, const Place& place);

 private:
  // What one group's, or one sample's, rows leave behind.
  struct Series {
    double last_time = 0;
    std::int64_t run = 0, num_rows = 0;
    std::vector<double> last;     // value of each request, for forward fills
    std::vector<double> history;  // ring of the last rows' times and lagged columns
  };

  void check_time(double time, const Series& series, const Place& place) const;
  void fill(std::span<const double> row, Series& series);
  double feature(const Feature& feature, std::span<const double> row, const Series& series, const Place& place) const;
  double lagged(const Feature& feature, double time, const Series& series) const;
  double one_hot(const Feature& feature, const Place& place) const;
  void remember(double time, Series& series) const;
  double* slot(Series& series, std::int64_t row) const;
  const double* slot(const Series& series, std::int64_t row) const;

  const Preparation::State& state_;
  Columns columns_;
  std::vector<Feature> features_;
  std::vector<double> means_;                  // of each request, for Fill::Mean
  std::vector<int> history_columns_;           // requests that lags look back at
  std::vector<int> history_position_;          // of each request among them
  std::int64_t history_rows_ = 0;              // the longest lag
  std::vector<std::vector<int>> category_of_;  // [request][label]: index into its categories, -1: unknown
  std::vector<std::span<const std::string>> labels_;
  std::vector<Series> series_;
  std::vector<double> filled_;  // the row's values
};

}  // namespace hotloop::data
