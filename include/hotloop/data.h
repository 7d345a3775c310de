// Tables of numbers, derived columns, windows over them, and datasets that fit() draws batches from.
//
//   Table table = data::read_csv("data/elecdemand.csv", {"Demand", "Temperature"});
//   table.add("demand_week", data::lag(table["Demand"], 336));
//   data::WindowedTable windows(table, {.inputs = {"Temperature", "demand_week"}, .target = "Demand", .length = 48});
//   auto run = fit(model, windows.train(), windows.validation(), ...);
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "hotloop/array.h"

namespace hotloop::data {

// Named columns of doubles, all equally long, in a fixed order. Undefined values are NaN; files never bring any in.
class Table {
 public:
  // UserError if the name is taken, or the length is not that of the columns already there.
  void add(const std::string& name, std::vector<double> values);
  bool has(std::string_view name) const;
  // UserError with the nearest name if there is no such column.
  std::span<const double> operator[](std::string_view name) const;
  std::int64_t num_rows() const { return num_rows_; }
  std::vector<std::string> names() const;

 private:
  std::vector<std::pair<std::string, std::vector<double>>> columns_;
  std::int64_t num_rows_ = 0;
};

// Reads comma-separated values with a header line (RFC 4180: quotes, CRLF; a byte-order mark is skipped). Only `columns`
// are read as numbers, all when empty. Throws UserError naming file, line and column for a missing column, a row with
// too many or too few cells, and a cell that is no finite number.
Table read_csv(const std::filesystem::path& path, const std::vector<std::string>& columns = {}, char separator = ',');
// The same from memory; `source` stands for the file's name in messages.
Table parse_csv(std::string_view text, const std::string& source, const std::vector<std::string>& columns = {},
                char separator = ',');

// values[row - steps]; the first `steps` rows are undefined (NaN). steps > 0.
std::vector<double> lag(std::span<const double> values, std::int64_t steps);

// Sines and cosines of a cyclic position: position(row) = (floor(row / step) + phase) mod period.
// The hour of day of a table of half-hours has step 2, period 24; the day of week step 48, period 7, phase the weekday
// of the first row.
struct Periodic {
  double period = 1;      // > 0, in units of `step` rows
  std::int64_t step = 1;  // rows over which the position stands still, > 0
  double phase = 0;       // position of row 0
  int harmonics = 1;      // >= 1
};
// "<name>_sin1", "<name>_cos1", "<name>_sin2", ...: sin and cos of 2 pi k position / period for k = 1..harmonics.
std::vector<std::pair<std::string, std::vector<double>>> periodic(const std::string& name, std::int64_t num_rows,
                                                                  const Periodic& spec);

// What fit() draws batches from: samples of one input and one target array each, all of one shape and dtype.
class Dataset {
 public:
  virtual ~Dataset() = default;
  virtual std::int64_t size() const = 0;   // number of samples
  virtual DType dtype() const = 0;         // of inputs and targets
  virtual Shape input_shape() const = 0;   // of one sample
  virtual Shape target_shape() const = 0;  // of one sample
  // Copies the given samples, one after another, into inputs [n, input_shape...] and targets [n, target_shape...].
  // Either pointer may be null. Must be safe to call from several threads.
  virtual void gather(std::span<const std::int64_t> samples, void* inputs, void* targets) const = 0;
};

// Samples along axis 0 of two arrays of the same dtype.
class ArrayDataset : public Dataset {
 public:
  ArrayDataset(Array inputs, Array targets);
  std::int64_t size() const override { return inputs_.shape()[0]; }
  DType dtype() const override { return inputs_.dtype(); }
  Shape input_shape() const override { return inputs_.shape().without(0); }
  Shape target_shape() const override { return targets_.shape().without(0); }
  void gather(std::span<const std::int64_t> samples, void* inputs, void* targets) const override;

 private:
  Array inputs_, targets_;
};

struct WindowOptions {
  std::vector<std::string> inputs;  // columns, in the order of the features
  std::string target;               // column
  std::int64_t length = 1;          // rows in a window
  std::int64_t stride = 1;          // rows from one window to the next
  std::int64_t horizon = 0;         // the target stands this many rows after the window's last row
  // Split by time: the first `train` of the table's rows, then `validation`; the rest is the test part. A window
  // belongs to the part its target row is in.
  double train = 0.7, validation = 0.15;
  bool standardize = true;  // inputs and target to mean 0 and standard deviation 1 over the training rows
  DType dtype = DType::F32;
};

// z = (value - mean) / std, with std the population's. A constant column has std 1.
struct Standardization {
  double mean = 0, std = 1;
};

// Windows over a table. Windows that contain an undefined value, in an input or in the target, are left out.
class WindowedTable {
 public:
  WindowedTable(const Table& table, WindowOptions options);

  // Samples: inputs [length, features], target [1].
  const Dataset& train() const;
  const Dataset& validation() const;
  const Dataset& test() const;
  // The table's row of each sample's target.
  std::span<const std::int64_t> target_rows(const Dataset& part) const;

  const WindowOptions& options() const;
  const std::vector<Standardization>& input_scales() const;  // one an input column
  const Standardization& target_scale() const;
  std::string describe() const;  // number of samples in each part

  struct State;

 private:
  std::shared_ptr<const State> state_;
};

}  // namespace hotloop::data
