// From the rows of a table to datasets: missing values, derived columns, windows, splits, standardisation.
//
//   data::Recipe recipe{.inputs = {"Temperature", "yesterday"}, .targets = {"Demand"}, .length = 48};
//   recipe.lags = {{"yesterday", "Demand", 48}};
//   data::Samples samples(*data::open_csv("data/elecdemand.csv"), recipe);
//   auto run = fit(model, samples.train(), samples.validation(), ...);
//   samples.preparation().apply(*data::open_csv("new.csv"), ...);      // the same to new rows
//
// Everything that is fitted (means, scales, categories, classes) is fitted on training rows alone.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "hotloop/array.h"
#include "hotloop/dataset.h"
#include "hotloop/table.h"

namespace hotloop::data {

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

// ---- what to do with a table ----------------------------------------------------------------------------------------

// A column as it was `steps` rows earlier. With a time column: at the time `steps` time steps earlier, undefined if there
// is no such row. Within a group.
struct Lag {
  std::string name = {}, column = {};
  std::int64_t steps = 1;
};

// Sines and cosines named <name>_sin1, <name>_cos1, ... of where a row stands in a cycle.
struct Cycle {
  // Of the row's number in its group by `rows`, or of its time: (UTC) the time of day; the day of the week, in whole days
  // from Monday; the time since Monday 0:00; the time since the year began, in years.
  enum class Of { Row, HourOfDay, DayOfWeek, HourOfWeek, DayOfYear };
  std::string name = {};
  Of of = Of::Row;
  Periodic rows = {};  // of Of::Row
  int harmonics = 1;   // of the others
};

// A column of texts as an input: one column "<column>=<category>", 0 or 1, for each category of the training rows, in order of
// the alphabet.
struct OneHot {
  std::string column = {};
  bool unknown_as_zeros = false;  // a category that no training row has: all zeros; else an error
};

// What happens to a missing value of an input. A missing target is never made up: its sample is left out (or refused).
enum class Fill {
  Refuse,   // an error that names the place
  Drop,     // windows that hold it are left out
  Forward,  // the last value before it, within the group and not across a time gap; Drop if there is none
  Mean,     // the mean of the training rows; for OneHot, all zeros
};
struct MissingRule {
  std::vector<std::string> columns = {};
  Fill fill = Fill::Refuse;
  bool indicator = false;  // a column <column>_missing, 0 or 1, after each of them in the inputs
};

struct Split {
  // Time: the first rows (all groups up to one point in time where there is a time column; else of each group), then the next.
  // Group: whole groups. Random: each window by itself. Column: as a column of the table says, "train", "validation" or
  // "test"; where none says "validation", that fraction of the training part is drawn at random.
  // None: every window is in all three parts, for fitting what there is, as one trajectory; what is then measured is the fit.
  // A window belongs to the part its targets are in; one whose targets lie in two parts is left out.
  enum class By { Time, Group, Random, Column, None };
  By by = By::Time;
  double train = 0.7, validation = 0.15;  // fractions of the rows, groups or samples; the rest is the test part
  std::uint64_t seed = 0;                 // of what is drawn at random
  std::vector<std::string> validation_groups = {},
                           test_groups = {};  // By::Group: these, and the others train; none: drawn
  std::string column = {};                    // of By::Column
};

enum class Task {
  Regression,      // targets are numbers, standardised
  Classification,  // one target, a text or a number: an index into the sorted classes of the training rows
};

struct Recipe {
  // Columns of the table, lags, cycles and one-hot columns, in the order of the features. "x*" stands for all columns whose names
  // begin with x and that have no other part to play.
  std::vector<std::string> inputs = {};
  std::vector<std::string> targets = {};
  std::string time = {};   // column of times, increasing within a group; none: rows follow one another
  std::string group = {};  // column of texts: rows of different groups never share a window or a lag
  // Column of texts: rows with the same one are one sample, a series as long as it is; length, stride and horizon are not used.
  std::string sample = {};
  std::string weight = {};  // column of numbers >= 0: of a sample in the training loss, at its (last) target row
  // Between neighbouring rows: "auto" (the most common difference), "any" (differences do not matter), or a number with a unit,
  // "30 min", of s, min, h, d. Any other difference is a gap, which no window crosses.
  std::string time_step = "auto";

  Fill missing = Fill::Refuse;
  bool indicator = false;
  std::vector<MissingRule> missing_rules = {};  // instead of the two above
  std::vector<Lag> lags = {};
  std::vector<Cycle> cycles = {};
  std::vector<OneHot> one_hots = {};

  std::int64_t length = 1;         // rows in a window
  std::int64_t stride = 1;         // rows from one window to the next
  std::int64_t horizon = 0;        // the first target stands this many rows after the window's last row
  std::int64_t horizon_steps = 1;  // targets at so many rows one after another: [step 0's targets, step 1's, ...]
  Split split = {};
  Task task = Task::Regression;
  bool balance_classes = false;  // weights that give every class the same share of the training loss
  bool standardize = true;  // inputs (but 0-1 columns) and targets to mean 0 and deviation 1 over the training rows
  bool standardize_targets = true;  // with `standardize`; false: targets stay as they are, counts say
  DType dtype = DType::F32;
  std::vector<std::string> kept =
      {};  // columns and lags, defined at the targets' rows of every window: Samples::kept()
};

// Shape of one sample's inputs where it does not depend on the table: not with categories, "x*" or series.
std::optional<Shape> fixed_input_shape(const Recipe& recipe);
// Shape and dtype of one sample's targets.
ValueType target_type_of(const Recipe& recipe);

// ---- what was fitted ------------------------------------------------------------------------------------------------

// z = (value - mean) / std, with std the population's. A column that does not vary is refused; derived 0-1 columns
// and harmonics may be constant, with std 1.
struct Standardization {
  double mean = 0, std = 1;
};

// Samples made from new rows, in order of the rows that complete them.
struct PreparedBlock {
  Array inputs;                     // [n, input shape...]
  Array lengths;                    // i32[n], of series
  std::vector<std::int64_t> rows;   // [n]: of the source, from 0, the last row of each sample
  std::vector<double> times;        // [n], if the recipe has a time: of that row, in seconds since 1970
  std::vector<std::string> groups;  // [n], if it has a group or a sample: its name
};

// What became of a source's rows.
struct Applied {
  std::int64_t num_rows = 0, num_samples = 0;
  // Rows with an input that is not defined: missing, or a lag that looks back before the first row or into a gap. Windows with one of
  // them, and series, give no sample.
  std::int64_t num_undefined = 0;
  std::string last_undefined = {};  // "'price' at line 302 of new.csv", if there are any
};

// A recipe with all that was fitted: applies to new rows what was done to the training rows.
class Preparation {
 public:
  // As JSON, and back; UserError for text that is none or does not fit together.
  std::string json() const;
  static Preparation parse(std::string_view json, const std::string& source);

  const Recipe& recipe() const;
  std::vector<std::string> input_names() const;  // one a feature
  std::span<const Standardization> input_scales() const;
  std::span<const Standardization> target_scales() const;
  std::span<const std::string> classes() const;  // of a classification
  Shape input_shape() const;                     // of one sample; a series' longest for series
  double time_step() const;                      // seconds; 0 if it does not matter
  // Standardised predictions [n, horizon_steps * targets] in the targets' units, as f64; `width`: deviations, which have the unit and no
  // zero point.
  Array unscale(const Array& predictions, bool width = false) const;
  std::string describe() const;  // a line for each thing that was fitted or filled

  // Makes samples of the source's rows and hands them over, at most `block` at a time, in memory that does not grow with the
  // source. Every row that completes a window gives a sample, whatever the stride; the source needs the columns of the inputs
  // and of lags among them. The rows of a series must stand together. UserError as when training.
  Applied apply(RowSource& source, std::int64_t block, const std::function<void(const PreparedBlock&)>& use) const;

  struct State;
  explicit Preparation(std::shared_ptr<const State> state) : state_(std::move(state)) {}

 private:
  friend class Samples;
  friend class PreparedBlocks;
  std::shared_ptr<const State> state_;
};

// What Preparation::apply hands over, asked for block by block. The source must outlive it.
class PreparedBlocks {
 public:
  PreparedBlocks(const Preparation& preparation, RowSource& source, std::int64_t block);
  PreparedBlocks(PreparedBlocks&&) noexcept;
  ~PreparedBlocks();
  // The next samples, at most `block`; nothing when there are no more.
  std::optional<PreparedBlock> next();
  const Applied& applied() const;  // so far

 private:
  class Work;
  std::unique_ptr<Work> work_;
};

struct MemoryOptions {
  std::size_t bytes = std::size_t{1} << 30;  // what is larger lies in a temporary file
  std::filesystem::path folder = {};         // of that file; none: $TMPDIR or /tmp
};

// The samples of a table, in three parts. Rows are read once; beyond `memory` they lie in an unlinked temporary file, and
// what stays in memory is 8 bytes a sample (24 a row where the rows of groups alternate).
class Samples {
 public:
  Samples(RowSource& source, const Recipe& recipe, const MemoryOptions& memory = {});
  Samples(const Table& table, const Recipe& recipe) : Samples(*open_table(table), recipe) {}
  // Samples of another table, or another reading, by what was fitted before: nothing is fitted to this one. Its describe() tells
  // of this table.
  Samples(RowSource& source, const Preparation& fitted, const Split& split = {.by = Split::By::None},
          std::int64_t stride = 1, const MemoryOptions& memory = {});

  // inputs [length, features], targets [horizon_steps * targets]; for classification class indices i32, []
  // or [horizon_steps]; for series inputs [longest, features] with lengths.
  const Dataset& train() const;
  const Dataset& validation() const;
  const Dataset& test() const;
  const Preparation& preparation() const;
  std::int64_t num_rows() const;
  // The source's row of each sample's first target; of a series, its last row.
  std::vector<std::int64_t> target_rows(const Dataset& part) const;
  // recipe.kept: values at each sample's target rows, [n * horizon_steps].
  std::vector<double> kept(const Dataset& part, std::string_view name) const;
  // The same as a forecast may use it. A column's value at the target's row is taken to be announced before. A lag is what it is at the
  // target's row where that value is known when the forecast is made, else the last one that is: of the window's last row, or of the row
  // before if the first target stands there (horizon 0).
  std::vector<double> known(const Dataset& part, std::string_view name) const;
  // Of the only target; mean 0 and deviation 1 where there are several, which have no unit together.
  Standardization target_scale() const;
  std::string describe() const;  // samples in each part

  struct State;

 private:
  std::shared_ptr<const State> state_;
};

}  // namespace hotloop::data
