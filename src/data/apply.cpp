// A preparation applied to new rows, a block at a time.
#include <algorithm>
#include <cmath>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "core/utf8.h"
#include "data/row_stream.h"
#include "data/time.h"
#include "hotloop/error.h"

namespace hotloop::data {

class PreparedBlocks::Work {
 public:
  Work(std::shared_ptr<const Preparation::State> state, RowSource& source, std::int64_t block_size)
      : owned_state_(std::move(state)),
        state_(*owned_state_),
        source_(source),
        block_size_(block_size),
        columns_(choose_columns(state_.recipe, Purpose::Predict)),
        features_(input_features(state_.recipe, columns_, state_.categories)),
        stream_(state_, columns_, features_),
        row_(columns_.requests.size()),
        row_features_(features_.size()) {
    if (block_size < 1) throw UserError("apply", "a block must hold a sample", std::to_string(block_size));
    source.select(columns_.requests);
  }

  std::optional<PreparedBlock> next() {
    while (!ready_ && !ended_) {
      if (next_row_ < rows_.num_rows)
        take_row(next_row_++);
      else if (source_.next(rows_))
        begin_rows();
      else
        end();
    }
    return std::exchange(ready_, std::nullopt);
  }
  const Applied& applied() const { return applied_; }

 private:
  struct RowAt {
    std::int64_t row = 0;
    double time = 0;
    std::span<const double> values;
  };
  // Of one group: the last rows' features, the oldest at row `next` of the ring.
  struct Window {
    std::vector<double> ring;
    std::int64_t next = 0, defined = 0;
  };

  void begin_rows() {
    next_row_ = 0;
    applied_.num_rows += rows_.num_rows;
    for (std::size_t c = 0; c < columns_.requests.size(); ++c)
      if (columns_.requests[c].kind == ColumnKind::Text) stream_.set_labels(c, source_.labels(c));
  }

  void take_row(std::int64_t i) {
    for (std::size_t c = 0; c < row_.size(); ++c) row_[c] = rows_.columns[c][static_cast<std::size_t>(i)];
    const auto place = [&] { return source_.place(rows_, i); };
    const std::int64_t rows_together = stream_.push(row_, row_features_, place);
    for (std::size_t f = 0; f < row_features_.size(); ++f)
      row_features_[f] = (row_features_[f] - state_.input_scales[f].mean) / state_.input_scales[f].std;
    const RowAt at{rows_.first_row + i, columns_.time < 0 ? 0 : row_[static_cast<std::size_t>(columns_.time)], row_};
    note_undefined(row_features_, place);
    if (columns_.sample >= 0)
      add_to_series(at, row_features_, place);
    else
      add_to_window(at, row_features_, rows_together);
  }

  void end() {
    ended_ = true;
    if (columns_.sample >= 0) end_series();
    if (!ready_) flush();
  }

  static bool defined(std::span<const double> features) {
    return std::ranges::all_of(features, [](double v) { return std::isfinite(v); });
  }

  template <class Place> void note_undefined(std::span<const double> features, const Place& place) {
    const auto first = std::ranges::find_if(features, [](double v) { return !std::isfinite(v); });
    if (first == features.end()) return;
    ++applied_.num_undefined;
    applied_.last_undefined =
        "'" + features_[static_cast<std::size_t>(first - features.begin())].name + "' at " + place();
  }

  std::string label(const RowAt& at) const {
    const int column = columns_.series();
    if (column < 0) return "";
    return source_.labels(
        static_cast<std::size_t>(column))[static_cast<std::size_t>(at.values[static_cast<std::size_t>(column)])];
  }

  void add_to_window(const RowAt& at, std::span<const double> features, std::int64_t rows_together) {
    const std::size_t id =
        columns_.group < 0 ? 0 : static_cast<std::size_t>(at.values[static_cast<std::size_t>(columns_.group)]);
    if (id >= windows_.size()) windows_.resize(id + 1);
    Window& window = windows_[id];
    const std::int64_t length = state_.recipe.length;
    const auto width = static_cast<std::int64_t>(features.size());
    if (rows_together == 1 || !defined(features)) {
      window.defined = window.next = 0;
      window.ring.clear();
      if (!defined(features)) return;
    }
    // Grows until it is a whole window: a group that is shorter takes no more than its rows.
    if (window.defined < length)
      window.ring.insert(window.ring.end(), features.begin(), features.end());
    else
      std::ranges::copy(features, window.ring.begin() + window.next * width);
    if (window.defined >= length) window.next = (window.next + 1) % length;
    if (++window.defined < length) return;
    const auto oldest = window.ring.begin() + window.next * width;
    std::vector<double> sample(oldest, window.ring.end());
    sample.insert(sample.end(), window.ring.begin(), oldest);
    emit(std::move(sample), length, at.row, at.time, label(at));
  }

  template <class Place> void add_to_series(const RowAt& at, std::span<const double> features, const Place& place) {
    const auto id = static_cast<std::int64_t>(at.values[static_cast<std::size_t>(columns_.sample)]);
    if (id != series_id_) {
      end_series();
      if (id < num_series_)
        throw UserError("data", "the rows of a sample must stand together",
                        "sample '" + printable(label(at)) + "' again at " + place(), "sort the table by sample");
      num_series_ = id + 1;
      series_id_ = id;
      series_.clear();
      series_defined_ = true;
      series_label_ = label(at);
    }
    series_defined_ = series_defined_ && defined(features);
    series_.insert(series_.end(), features.begin(), features.end());
    series_row_ = at.row;
    series_time_ = at.time;
  }

  void end_series() {
    if (series_id_ < 0 || !series_defined_ || series_.empty()) return;
    const auto length = static_cast<std::int64_t>(series_.size() / features_.size());
    emit(std::exchange(series_, {}), length, series_row_, series_time_, series_label_);
  }

  void emit(std::vector<double> sample, std::int64_t length, std::int64_t row, double time, std::string group) {
    ++applied_.num_samples;
    samples_.push_back(std::move(sample));
    lengths_.push_back(static_cast<std::int32_t>(length));
    block_.rows.push_back(row);
    if (columns_.time >= 0) block_.times.push_back(time);
    if (columns_.series() >= 0) block_.groups.push_back(std::move(group));
    if (static_cast<std::int64_t>(samples_.size()) == block_size_) flush();
  }

  void flush() {
    if (samples_.empty()) return;
    const auto n = static_cast<std::int64_t>(samples_.size()), width = static_cast<std::int64_t>(features_.size());
    // At least as long as in training, so that a program compiled for that length takes the block.
    const std::int64_t length = columns_.sample < 0
                                    ? state_.recipe.length
                                    : std::max<std::int64_t>(state_.longest, *std::ranges::max_element(lengths_));
    block_.inputs = Array::zeros(state_.recipe.dtype, {n, length, width});
    visit_dtype(state_.recipe.dtype, [&]<class T>(T) {
      T* out = static_cast<T*>(block_.inputs.raw());
      for (std::size_t i = 0; i < samples_.size(); ++i)
        std::ranges::transform(samples_[i], out + static_cast<std::ptrdiff_t>(i) * length * width,
                               [](double v) { return static_cast<T>(v); });
    });
    block_.lengths = Array::from(lengths_, {n});
    ready_ = std::exchange(block_, {});
    samples_.clear();
    lengths_.clear();
  }

  std::shared_ptr<const Preparation::State> owned_state_;
  const Preparation::State& state_;
  RowSource& source_;
  std::int64_t block_size_;
  Columns columns_;
  std::vector<Feature> features_;
  RowStream stream_;
  RowBlock rows_;  // of the source, up to next_row_ taken
  std::int64_t next_row_ = 0;
  bool ended_ = false;
  std::vector<double> row_, row_features_;
  std::vector<Window> windows_;  // by group
  std::vector<double> series_;   // the series under way
  std::int64_t series_id_ = -1, num_series_ = 0, series_row_ = 0;
  double series_time_ = 0;
  bool series_defined_ = true;
  std::string series_label_;
  Applied applied_;
  PreparedBlock block_;  // under way
  std::optional<PreparedBlock> ready_;
  std::vector<std::vector<double>> samples_;
  std::vector<std::int32_t> lengths_;
};

PreparedBlocks::PreparedBlocks(const Preparation& preparation, RowSource& source, std::int64_t block)
    : work_(std::make_unique<Work>(preparation.state_, source, block)) {}
PreparedBlocks::PreparedBlocks(PreparedBlocks&&) noexcept = default;
PreparedBlocks::~PreparedBlocks() = default;
std::optional<PreparedBlock> PreparedBlocks::next() { return work_->next(); }
const Applied& PreparedBlocks::applied() const { return work_->applied(); }

Applied Preparation::apply(RowSource& source, std::int64_t block,
                           const std::function<void(const PreparedBlock&)>& use) const {
  PreparedBlocks rows(*this, source, block);
  while (const std::optional<PreparedBlock> next = rows.next()) use(*next);
  return rows.applied();
}

}  // namespace hotloop::data
