#include <algorithm>
#include <cmath>
#include <cstring>

#include "hotloop/data.h"
#include "hotloop/error.h"

namespace hotloop::data {
namespace {

// Samples of one part: window `last_rows[i] - length + 1 .. last_rows[i]` of the shared feature rows.
class WindowDataset : public Dataset {
 public:
  std::int64_t size() const override { return static_cast<std::int64_t>(target_rows.size()); }
  DType dtype() const override { return features.dtype(); }
  Shape input_shape() const override { return {length, features.shape()[1]}; }
  Shape target_shape() const override { return {1}; }

  void gather(std::span<const std::int64_t> samples, void* inputs, void* targets_out) const override {
    const std::size_t item = size_of(dtype());
    const std::size_t row_bytes = static_cast<std::size_t>(features.shape()[1]) * item;
    const std::size_t window_bytes = static_cast<std::size_t>(length) * row_bytes;
    for (std::size_t i = 0; i < samples.size(); ++i) {
      const std::int64_t target_row = target_rows[static_cast<std::size_t>(samples[i])];
      const auto first = static_cast<std::size_t>(target_row - horizon - length + 1);
      if (inputs != nullptr)
        std::memcpy(static_cast<std::byte*>(inputs) + i * window_bytes,
                    static_cast<const std::byte*>(features.raw()) + first * row_bytes, window_bytes);
      if (targets_out != nullptr)
        std::memcpy(static_cast<std::byte*>(targets_out) + i * item,
                    static_cast<const std::byte*>(targets.raw()) + static_cast<std::size_t>(target_row) * item, item);
    }
  }

  Array features, targets;  // [rows, features] and [rows], shared by the parts
  std::int64_t length = 1, horizon = 0;
  std::vector<std::int64_t> target_rows;
};

Standardization fit_scale(std::span<const double> values, std::span<const std::int64_t> rows) {
  double mean = 0, square = 0;
  for (const std::int64_t row : rows) mean += values[static_cast<std::size_t>(row)];
  mean /= static_cast<double>(rows.size());
  for (const std::int64_t row : rows) square += std::pow(values[static_cast<std::size_t>(row)] - mean, 2);
  const double std = std::sqrt(square / static_cast<double>(rows.size()));
  return {mean, std > 0 ? std : 1};
}

void check(const Table& table, const WindowOptions& options) {
  if (options.inputs.empty()) throw UserError("window", "at least one input column is needed");
  if (options.length < 1) throw UserError("window", "length must be positive", std::to_string(options.length));
  if (options.stride < 1) throw UserError("window", "stride must be positive", std::to_string(options.stride));
  if (options.horizon < 0) throw UserError("window", "horizon must not be negative", std::to_string(options.horizon));
  if (!is_float(options.dtype))
    throw UserError("window", "dtype must be f32 or f64", std::string(name_of(options.dtype)));
  const double train = options.train, validation = options.validation;
  if (!(train > 0) || !(validation >= 0) || !(train + validation <= 1))
    throw UserError("split", "train must be positive, validation not negative, and their sum at most 1",
                    "train " + std::to_string(train) + ", validation " + std::to_string(validation));
  if (options.length + options.horizon > table.num_rows())
    throw UserError("window", "the table must be at least as long as a window and its horizon",
                    std::to_string(table.num_rows()) + " rows for length " + std::to_string(options.length) +
                        " and horizon " + std::to_string(options.horizon));
}

}  // namespace

struct WindowedTable::State {
  WindowOptions options;
  std::vector<Standardization> input_scales;
  Standardization target_scale;
  WindowDataset train, validation, test;
};

WindowedTable::WindowedTable(const Table& table, WindowOptions options) {
  check(table, options);
  auto state = std::make_shared<State>();
  const std::int64_t num_rows = table.num_rows();
  const auto num_inputs = static_cast<std::int64_t>(options.inputs.size());
  std::vector<std::span<const double>> inputs;
  for (const std::string& name : options.inputs) inputs.push_back(table[name]);
  const std::span<const double> target = table[options.target];

  // A fraction like 0.7 of 17520 must not lose a row to rounding.
  const auto row_of = [&](double fraction) {
    return static_cast<std::int64_t>(std::floor(fraction * static_cast<double>(num_rows) + 1e-6));
  };
  const std::int64_t validation_start = row_of(options.train);
  const std::int64_t test_start = row_of(options.train + options.validation);
  std::vector<std::int64_t> training_rows;  // every row a training window may end at: what the scales are fitted on
  std::int64_t defined = 0;                 // length of the run of defined rows that ends here
  std::int64_t until_next = 0;
  for (std::int64_t row = 0; row + options.horizon < num_rows; ++row) {
    const bool ok = std::ranges::all_of(
        inputs, [&](std::span<const double> column) { return std::isfinite(column[static_cast<std::size_t>(row)]); });
    defined = ok ? defined + 1 : 0;
    const std::int64_t target_row = row + options.horizon;
    if (defined < options.length || !std::isfinite(target[static_cast<std::size_t>(target_row)])) continue;
    if (target_row < validation_start) training_rows.push_back(row);
    if (until_next-- > 0) continue;
    until_next = options.stride - 1;
    WindowDataset& part = target_row < validation_start ? state->train
                          : target_row < test_start     ? state->validation
                                                        : state->test;
    part.target_rows.push_back(target_row);
  }
  if (state->train.target_rows.empty())
    throw UserError("window", "the training part must hold at least one window",
                    "none: windows of " + std::to_string(options.length) + " defined rows within the first " +
                        std::to_string(validation_start) + " of " + std::to_string(num_rows) + " rows",
                    "shorter windows, shorter lags or a larger [split] train");

  if (options.standardize) {
    std::vector<std::int64_t> training_targets = training_rows;
    for (std::int64_t& row : training_targets) row += options.horizon;
    state->target_scale = fit_scale(target, training_targets);
  }
  Array features(options.dtype, {num_rows, num_inputs}), targets(options.dtype, {num_rows});
  for (std::int64_t i = 0; i < num_inputs; ++i) {
    const std::span<const double> column = inputs[static_cast<std::size_t>(i)];
    const Standardization scale = options.standardize ? fit_scale(column, training_rows) : Standardization{};
    state->input_scales.push_back(scale);
    for (std::int64_t row = 0; row < num_rows; ++row)
      features.set(row * num_inputs + i, (column[static_cast<std::size_t>(row)] - scale.mean) / scale.std);
  }
  for (std::int64_t row = 0; row < num_rows; ++row)
    targets.set(row, (target[static_cast<std::size_t>(row)] - state->target_scale.mean) / state->target_scale.std);
  for (WindowDataset* part : {&state->train, &state->validation, &state->test}) {
    part->features = features;
    part->targets = targets;
    part->length = options.length;
    part->horizon = options.horizon;
  }
  state->options = std::move(options);
  state_ = std::move(state);
}

const Dataset& WindowedTable::train() const { return state_->train; }
const Dataset& WindowedTable::validation() const { return state_->validation; }
const Dataset& WindowedTable::test() const { return state_->test; }
const WindowOptions& WindowedTable::options() const { return state_->options; }
const std::vector<Standardization>& WindowedTable::input_scales() const { return state_->input_scales; }
const Standardization& WindowedTable::target_scale() const { return state_->target_scale; }

std::span<const std::int64_t> WindowedTable::target_rows(const Dataset& part) const {
  for (const WindowDataset* own : {&state_->train, &state_->validation, &state_->test})
    if (own == &part) return own->target_rows;
  throw UserError("window", "the dataset must be a part of this table", "another dataset");
}

std::string WindowedTable::describe() const {
  return std::to_string(state_->train.size()) + " training, " + std::to_string(state_->validation.size()) +
         " validation and " + std::to_string(state_->test.size()) + " test windows of " +
         std::to_string(state_->options.length) + " rows by " + std::to_string(state_->options.inputs.size()) +
         " inputs";
}

}  // namespace hotloop::data
