#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <numeric>
#include <set>

#include "core/nearest.h"
#include "core/print_number.h"
#include "core/utf8.h"
#include "data/labels.h"
#include "data/number.h"
#include "data/row_stream.h"
#include "data/samples.h"
#include "data/time.h"
#include "hotloop/error.h"

namespace hotloop::data {
namespace {

// In order of the numbers they are, or of the alphabet.
std::vector<std::string> sorted_labels(const std::set<std::string>& labels) {
  std::vector<std::string> all(labels.begin(), labels.end());
  if (std::ranges::all_of(all, [](const std::string& s) { return parse_number(s).has_value(); }))
    std::ranges::stable_sort(all, {}, [](const std::string& s) { return *parse_number(s); });
  return all;
}

// The steps from rows to samples, in the order in which build() calls them.
class Builder {
 public:
  Builder(RowSource& source, const Recipe& given, const MemoryOptions& memory)
      : budget_(std::make_shared<MemoryBudget>(memory)), fitted_(std::make_shared<Preparation::State>()) {
    check_recipe(given);
    check_answers(given);
    fitted_->recipe = expand_inputs(given, source);
    read(source);
  }

  // With what was fitted to another table.
  Builder(RowSource& source, const Preparation::State& before, const Split& split, std::int64_t stride,
          const MemoryOptions& memory)
      : budget_(std::make_shared<MemoryBudget>(memory)),
        fits_(false),
        fitted_(std::make_shared<Preparation::State>(before)) {
    fitted_->recipe.split = split;
    fitted_->recipe.stride = stride;
    check_recipe(recipe());
    fitted_->num_gaps = 0;
    fitted_->num_missing.clear();
    read(source);
  }

  std::shared_ptr<Samples::State> build() {
    state_ = std::make_shared<Samples::State>();
    state_->num_rows = fitted_->num_rows = table_.rows->num_rows();
    fitted_->num_groups = static_cast<std::int64_t>(table_.series_rows.size());
    if (fits_) fitted_->time_step = find_time_step(recipe(), table_, columns_);
    place_series();
    split_rows();
    scan_values();
    derive();
    table_.rows.reset();
    series() ? select_series() : select_windows();
    check_parts();
    if (recipe().split.by == Split::By::None) {
      part(Part::Test) = part(Part::Train);
      part(Part::Test).weights.clear();  // which are of training
      part(Part::Validation) = part(Part::Test);
    }
    weigh();
    if (fits_ && recipe().standardize) fit_scales();
    write_rows();
    state_->fitted = fitted_;
    state_->preparation = std::make_unique<Preparation>(fitted_);
    return state_;
  }

 private:
  const Recipe& recipe() const { return fitted_->recipe; }
  bool series() const { return columns_.sample >= 0; }
  void read(RowSource& source) {
    columns_ = choose_columns(recipe(), Purpose::Train);
    table_ = read_table(source, columns_, budget_, series());
  }
  PartDataset& part(Part p) { return state_->parts[static_cast<std::size_t>(p)]; }

  // One row of the table as it was read.
  struct RawRow {
    std::int64_t row = 0;  // of the source
    const double* values = nullptr;
    std::size_t series = 0;
    std::int64_t in_series = 0, position = 0;
    double line = 0;
  };
  template <class F> void for_each_row(F&& use) const {
    const std::size_t width = columns_.requests.size() + 1;
    std::vector<std::int64_t> seen(starts_.size(), 0);
    for_each_block(*table_.rows, [&](std::int64_t first, std::int64_t count, const double* rows) {
      for (std::int64_t i = 0; i < count; ++i) {
        RawRow r;
        r.row = first + i;
        r.values = rows + static_cast<std::size_t>(i) * width;
        r.series = columns_.series() < 0 ? 0 : static_cast<std::size_t>(r.values[columns_.series()]);
        r.in_series = seen[r.series]++;
        r.position = starts_[r.series] + r.in_series;
        r.line = r.values[width - 1];
        use(r);
      }
    });
  }
  std::string place(const RawRow& r) const { return table_.place(r.row, r.line); }

  // The rows of a series lie one after another, series in order of their first row.
  void place_series() {
    std::int64_t start = 0;
    for (const std::int64_t rows : table_.series_rows) {
      starts_.push_back(start);
      start += rows;
      fitted_->longest = std::max(fitted_->longest, rows);
    }
    const std::int64_t needed = recipe().length + recipe().horizon + recipe().horizon_steps - 1;
    if (!series() && needed > state_->num_rows)
      throw UserError("window", "the table must be at least as long as a window and its horizon",
                      std::to_string(state_->num_rows) + " rows for length " + std::to_string(recipe().length) +
                          " and horizon " + std::to_string(recipe().horizon + recipe().horizon_steps - 1),
                      "a shorter length or horizon, or more rows");
  }

  void split_rows() {
    SplitFacts facts;
    facts.num_units = series() ? fitted_->num_groups : state_->num_rows;
    if (!series()) facts.series_rows = table_.series_rows;
    if (columns_.group >= 0) facts.group_labels = table_.labels[static_cast<std::size_t>(columns_.group)];
    if (columns_.split >= 0) facts.split_labels = table_.labels[static_cast<std::size_t>(columns_.split)];
    const Split& split = recipe().split;
    // Several groups are cut at one point in time: the parts then do not know of each other's future.
    if (split.by == Split::By::Time && !series() && columns_.time >= 0 && table_.series_rows.size() > 1) {
      std::vector<double> times;
      times.reserve(static_cast<std::size_t>(state_->num_rows));
      for_each_row([&](const RawRow& r) { times.push_back(r.values[columns_.time]); });
      const auto time_at = [&](std::int64_t i) {
        if (i >= state_->num_rows) return std::numeric_limits<double>::infinity();
        std::nth_element(times.begin(), times.begin() + i, times.end());
        return times[static_cast<std::size_t>(i)];
      };
      const auto cut = cuts(split, state_->num_rows);
      facts.validation_time = time_at(cut.first);
      facts.test_time = time_at(cut.second);
      facts.by_time = true;
    }
    split_ = make_split(split, facts);
  }

  Part part_of(const RawRow& r) const {
    SplitUnit unit;
    unit.unit = series() ? static_cast<std::int64_t>(r.series) : r.position;
    unit.in_series = r.in_series;
    unit.series = r.series;
    if (columns_.time >= 0) unit.time = r.values[columns_.time];
    if (columns_.group >= 0) unit.group = r.values[columns_.group];
    if (columns_.split >= 0) unit.label = r.values[columns_.split];
    return split_(unit);
  }

  // What the columns hold, one entry a request.
  struct Seen {
    explicit Seen(std::size_t n) : sums(n, 0), counts(n, 0), labels(n) {}
    std::vector<double> sums;
    std::vector<std::int64_t> counts;
    std::vector<std::vector<bool>> labels;
  };

  // Counts what is missing; fits means, categories and classes to the training rows.
  void scan_values() {
    const std::size_t n = columns_.requests.size();
    std::vector<std::int64_t> missing(n, 0);
    Seen seen(n);
    for (std::size_t c = 0; c < n; ++c) seen.labels[c].resize(table_.labels[c].size());
    for_each_row([&](const RawRow& r) {
      const bool training = part_of(r) == Part::Train;
      for (std::size_t c = 0; c < n; ++c) {
        const double value = r.values[c];
        if (std::isnan(value)) {
          ++missing[c];
        } else if (training) {
          seen.sums[c] += value;
          ++seen.counts[c];
          if (!seen.labels[c].empty()) seen.labels[c][static_cast<std::size_t>(value)] = true;
        }
      }
    });
    for (std::size_t c = 0; c < n; ++c)
      if (missing[c] > 0) fitted_->num_missing[columns_.requests[c].name] = missing[c];
    if (fits_) {
      fit_means(seen);
      fit_labels(seen);
    }
    features_ = input_features(recipe(), columns_, fitted_->categories);
    fitted_->input_scales.resize(features_.size());
    fitted_->target_scales.resize(recipe().targets.size());
  }

  // For Fill::Mean.
  void fit_means(const Seen& seen) {
    for (std::size_t c = 0; c < columns_.requests.size(); ++c) {
      const ColumnRequest& request = columns_.requests[c];
      if (columns_.fills[c] != Fill::Mean || request.kind != ColumnKind::Number) continue;
      if (seen.counts[c] == 0)
        throw UserError("data", "a column that is filled with its mean must have a value in the training rows",
                        "none in '" + request.name + "'", "leave the column out");
      fitted_->means[request.name] = seen.sums[c] / static_cast<double>(seen.counts[c]);
    }
  }

  // Categories and classes.
  void fit_labels(const Seen& seen) {
    const auto labels_of = [&](int column) {
      std::set<std::string> labels;
      const auto c = static_cast<std::size_t>(column);
      for (std::size_t i = 0; i < seen.labels[c].size(); ++i)
        if (seen.labels[c][i]) labels.insert(table_.labels[c][i]);
      return labels;
    };
    for (const OneHot& one_hot : recipe().one_hots)
      if (const int column = columns_.find(one_hot.column, ColumnKind::Text); column >= 0) {
        const std::set<std::string> labels = labels_of(column);
        fitted_->categories[one_hot.column] = {labels.begin(), labels.end()};
      }
    if (recipe().task == Task::Classification) {
      fitted_->classes = sorted_labels(labels_of(columns_.targets[0]));
      if (fitted_->classes.size() < 2)
        throw UserError("data", "the training part must hold at least two classes of '" + recipe().targets[0] + "'",
                        std::to_string(fitted_->classes.size()), "another [split], or the column of the classes");
    }
  }

  double target(const RawRow& r, std::size_t k) const {
    const auto column = static_cast<std::size_t>(columns_.targets[k]);
    const double value = r.values[column];
    if (fitted_->classes.empty() || std::isnan(value)) return value;
    const auto index = static_cast<std::size_t>(value);
    if (class_of_[index] >= 0) return class_of_[index];
    const std::string& label = table_.labels[column][index];
    throw UserError("data", "every class of '" + recipe().targets[0] + "' must occur in the training part",
                    "'" + printable(label) + "' at " + place(r),
                    fits_ ? "another [split]" : nearest_hint(label, fitted_->classes));
  }

  void check_weight(const RawRow& r) const {
    if (columns_.weight >= 0 && r.values[columns_.weight] < 0)
      throw UserError("data", "weights '" + recipe().weight + "' must not be negative",
                      print_number(r.values[columns_.weight]) + " at " + place(r), "0 for rows that must not count");
  }

  // Features and targets of every row, to its position.
  void derive() {
    const std::vector<Feature> kept = kept_features(recipe(), columns_);
    std::vector<Feature> all = features_;
    all.insert(all.end(), kept.begin(), kept.end());
    RowStream stream(*fitted_, columns_, all);
    for (std::size_t c = 0; c < columns_.requests.size(); ++c)
      if (!table_.labels[c].empty()) stream.set_labels(c, table_.labels[c]);
    if (!fitted_->classes.empty())
      find_labels(table_.labels[static_cast<std::size_t>(columns_.targets[0])], fitted_->classes, class_of_);
    at_.features = features_.size();
    at_.targets = recipe().targets.size();
    at_.kept = kept.size();
    derived_ = std::make_unique<RowStore>(at_.width() * sizeof(double), budget_);
    if (table_.alternating) state_->source_row.resize(static_cast<std::size_t>(state_->num_rows));
    std::vector<double> pending, computed(all.size());
    std::int64_t pending_first = 0, pending_rows = 0;
    const auto flush = [&] {
      if (pending_rows > 0) derived_->write(pending_first, pending_rows, pending.data());
      pending.clear();
      pending_rows = 0;
    };
    for_each_row([&](const RawRow& r) {
      check_weight(r);
      const std::int64_t run = stream.push({r.values, columns_.requests.size()}, computed, [&] { return place(r); });
      if (run == 1 && r.in_series > 0) ++fitted_->num_gaps;
      if (pending_rows == 2048 || (pending_rows > 0 && r.position != pending_first + pending_rows)) flush();
      if (pending_rows == 0) pending_first = r.position;
      ++pending_rows;
      pending.insert(pending.end(), computed.begin(), computed.begin() + static_cast<std::ptrdiff_t>(at_.features));
      for (std::size_t k = 0; k < at_.targets; ++k) pending.push_back(target(r, k));
      pending.insert(pending.end(), computed.begin() + static_cast<std::ptrdiff_t>(at_.features), computed.end());
      pending.push_back(columns_.weight >= 0 ? r.values[columns_.weight] : 1);
      pending.push_back(static_cast<double>(part_of(r)));
      pending.push_back(static_cast<double>(run));
      if (table_.alternating) state_->source_row[static_cast<std::size_t>(r.position)] = r.row;
      if (series()) check_series(r, pending);
    });
    flush();
  }

  // What belongs to a sample as a whole must be the same on all of its rows.
  void check_series(const RawRow& r, const std::vector<double>& pending) {
    const double* row = pending.data() + pending.size() - at_.width();
    const std::span<const double> now{row + at_.features, at_.targets};
    if (r.in_series > 0) {
      if (!std::ranges::equal(now, series_targets_,
                              [](double a, double b) { return a == b || (std::isnan(a) && std::isnan(b)); }))
        throw UserError("data", "the target must be the same on all rows of a sample", "another value at " + place(r),
                        "the column that tells samples apart");
      if (row[at_.part()] != series_part_)
        throw UserError("split", "all rows of a sample must be in one part", "another part at " + place(r),
                        "one label of [split] column on all rows of a sample");
    }
    series_targets_.assign(now.begin(), now.end());
    series_part_ = row[at_.part()];
  }

  void select_windows() {
    const Recipe& r = recipe();
    const std::int64_t ahead = r.horizon + r.horizon_steps - 1;  // from a window's last row to its last target
    struct Row {
      std::int64_t defined = 0;
      bool target = false;  // defined, and so is what is kept beside it
      int part = 0;
    };
    std::vector<Row> ring(static_cast<std::size_t>(ahead + 1));
    const auto at = [&](std::int64_t p) -> Row& { return ring[static_cast<std::size_t>(p % (ahead + 1))]; };
    const std::vector<Feature> kept = kept_features(r, columns_);
    std::vector<bool> kept_defined(ring.size() * kept.size());
    const auto kept_at = [&](std::int64_t p, std::size_t k) {
      return kept_defined[static_cast<std::size_t>(p % (ahead + 1)) * kept.size() + k];
    };
    fit_inputs_.assign(static_cast<std::size_t>(state_->num_rows), false);
    fit_targets_ = fit_inputs_;
    std::size_t next_series = 0;
    std::int64_t defined = 0, until_next = 0;
    for_each_block(*derived_, [&](std::int64_t first, std::int64_t count, const double* rows) {
      for (std::int64_t i = 0; i < count; ++i) {
        const std::int64_t q = first + i, p = q - ahead;
        const double* row = rows + static_cast<std::size_t>(i) * at_.width();
        if (next_series < starts_.size() && q == starts_[next_series]) {
          ++next_series;
          defined = until_next = 0;
        }
        if (row[at_.run()] == 1) defined = 0;
        const auto finite = [](double v) { return std::isfinite(v); };
        defined = std::all_of(row, row + at_.features, finite) ? defined + 1 : 0;
        longest_stretch_ = std::max(longest_stretch_, defined);
        const int this_part = static_cast<int>(row[at_.part()]);
        at(q) = {defined, std::all_of(row + at_.features, row + at_.weight(), finite), this_part};
        for (std::size_t k = 0; k < kept.size(); ++k) kept_at(q, k) = std::isfinite(row[at_.keep(k)]);
        if (row[at_.run()] < static_cast<double>(ahead + r.length) || at(p).defined < r.length) continue;
        bool whole = true;
        for (std::int64_t t = q - r.horizon_steps + 1; t <= q; ++t) {
          whole = whole && at(t).target;
          for (std::size_t k = 0; k < kept.size(); ++k)
            whole = whole && kept_at(p + known_ahead(kept[k], t - p, r.horizon), k);
          if (r.split.by != Split::By::Random) whole = whole && at(t).part == this_part;
        }
        if (!whole) continue;
        if (this_part == static_cast<int>(Part::Train)) {
          fit_inputs_[static_cast<std::size_t>(p)] = true;
          for (std::int64_t t = p + r.horizon; t <= q; ++t) fit_targets_[static_cast<std::size_t>(t)] = true;
        }
        if (until_next-- > 0) continue;
        until_next = r.stride - 1;
        PartDataset& to = state_->parts[this_part];
        to.last_rows.push_back(p);
        if (columns_.weight >= 0 && this_part == static_cast<int>(Part::Train)) to.weights.push_back(row[at_.weight()]);
      }
    });
    for (PartDataset& p : state_->parts) {
      p.length = r.length;
      p.horizon = r.horizon;
      p.steps = r.horizon_steps;
    }
  }

  void select_series() {
    fit_inputs_.assign(static_cast<std::size_t>(state_->num_rows), false);
    fit_targets_ = fit_inputs_;
    std::vector<std::int64_t> whole(starts_.size(), 1);  // 0: a row is not defined
    std::vector<int> parts(starts_.size());
    std::vector<double> weights(starts_.size());
    std::size_t s = 0;
    for_each_block(*derived_, [&](std::int64_t first, std::int64_t count, const double* rows) {
      for (std::int64_t i = 0; i < count; ++i) {
        while (s + 1 < starts_.size() && first + i >= starts_[s + 1]) ++s;
        const double* row = rows + static_cast<std::size_t>(i) * at_.width();
        if (!std::all_of(row, row + at_.features + at_.targets, [](double v) { return std::isfinite(v); }))
          whole[s] = 0;
        parts[s] = static_cast<int>(row[at_.part()]);
        weights[s] = row[at_.weight()];
      }
    });
    bool unequal = false;
    for (s = 0; s < starts_.size(); ++s) {
      if (whole[s] == 0) continue;
      const std::int64_t length = table_.series_rows[s], last = starts_[s] + length - 1;
      PartDataset& to = state_->parts[parts[s]];
      to.last_rows.push_back(last);
      to.lengths.push_back(static_cast<std::int32_t>(length));
      unequal = unequal || length != fitted_->longest;
      if (parts[s] != static_cast<int>(Part::Train)) continue;
      if (columns_.weight >= 0) to.weights.push_back(weights[s]);
      for (std::int64_t p = starts_[s]; p <= last; ++p) fit_inputs_[static_cast<std::size_t>(p)] = true;
      fit_targets_[static_cast<std::size_t>(last)] = true;
    }
    for (PartDataset& p : state_->parts) {
      p.length = fitted_->longest;
      p.unequal = unequal;
    }
  }

  void check_parts() {
    if (!part(Part::Train).last_rows.empty()) return;
    const bool whole = !fits_ && recipe().split.by == Split::By::None;
    if (!fits_ && !whole) return;
    const std::string holder = whole ? "the table" : "the training part";
    if (series())
      throw UserError(whole ? "data" : "split", holder + " must hold at least one series",
                      "none of " + std::to_string(starts_.size()) + (whole ? " whose rows are all defined" : ""),
                      whole ? "series without missing values" : "a larger [split] train");
    std::string received = "none: windows of " + std::to_string(recipe().length) + " defined rows";
    const std::int64_t later = recipe().horizon + recipe().horizon_steps - 1;
    if (later > 0)
      received += " and targets up to " + std::to_string(later) + (later == 1 ? " row later" : " rows later");
    received += "; the longest stretch of such rows has " + std::to_string(longest_stretch_);
    if (fitted_->num_gaps > 0)
      received += ", with " + std::to_string(fitted_->num_gaps) + (fitted_->num_gaps == 1 ? " gap" : " gaps") +
                  " where the time step is not " + print_duration(fitted_->time_step);
    if (whole) throw UserError("window", holder + " must hold at least one window", received, "more rows");
    throw UserError("window", holder + " must hold at least one window", received,
                    "shorter windows, shorter lags, a larger [split] train" +
                        std::string(fitted_->num_gaps > 0 ? ", or time_step = \"any\"" : ""));
  }

  void weigh() {
    if (!recipe().balance_classes) return;
    PartDataset& train = part(Part::Train);
    std::vector<std::size_t> classes;
    std::vector<double> row(at_.width()), totals(fitted_->classes.size(), 0);
    if (train.weights.empty()) train.weights.assign(train.last_rows.size(), 1);
    for (std::size_t i = 0; i < train.last_rows.size(); ++i) {
      derived_->read(train.last_rows[i] + train.horizon + train.steps - 1, 1, row.data());
      classes.push_back(static_cast<std::size_t>(row[at_.target(0)]));
      totals[classes.back()] += train.weights[i];
    }
    // Every class gets the same sum of weights, and all samples together their number. One whose weights are all 0 has none to share out.
    const auto present = static_cast<double>(std::ranges::count_if(totals, [](double t) { return t > 0; }));
    for (std::size_t i = 0; i < classes.size(); ++i)
      if (const double total = totals[classes[i]]; total > 0)
        train.weights[i] *= static_cast<double>(classes.size()) / (present * total);
  }

  // Means in one pass, deviations from them in the next: of the rows that training windows end at, and of their targets.
  void fit_scales() {
    const std::size_t numbers = at_.features + (fitted_->classes.empty() ? at_.targets : 0);
    std::vector<double> mean(numbers, 0), square(numbers, 0);
    std::vector<double> least(numbers, std::numeric_limits<double>::infinity()), most(numbers, -least[0]);
    double num_inputs = 0, num_targets = 0;
    const auto for_each_fitted = [&](auto&& use) {
      for_each_block(*derived_, [&](std::int64_t first, std::int64_t count, const double* rows) {
        for (std::int64_t i = 0; i < count; ++i) {
          const auto p = static_cast<std::size_t>(first + i);
          const double* row = rows + static_cast<std::size_t>(i) * at_.width();
          if (fit_inputs_[p]) use(row, std::size_t{0}, at_.features);
          if (fit_targets_[p]) use(row, at_.features, numbers);
        }
      });
    };
    for_each_fitted([&](const double* row, std::size_t begin, std::size_t end) {
      (begin == 0 ? num_inputs : num_targets) += 1;
      for (std::size_t c = begin; c < end; ++c) {
        mean[c] += row[c];
        least[c] = std::min(least[c], row[c]);
        most[c] = std::max(most[c], row[c]);
      }
    });
    for (std::size_t c = 0; c < numbers; ++c) mean[c] /= c < at_.features ? num_inputs : num_targets;
    for_each_fitted([&](const double* row, std::size_t begin, std::size_t end) {
      for (std::size_t c = begin; c < end; ++c) square[c] += (row[c] - mean[c]) * (row[c] - mean[c]);
    });
    for (std::size_t c = 0; c < numbers; ++c) {
      const bool input = c < at_.features;
      if (input ? !features_[c].standardized() : !recipe().standardize_targets) continue;
      const double std = std::sqrt(square[c] / (input ? num_inputs : num_targets));
      const bool constant = least[c] == most[c] || !(std > 0);
      if (constant && !(input && features_[c].may_be_constant())) refuse_constant(c, least[c]);
      if (!std::isfinite(mean[c]) || !std::isfinite(std))
        throw UserError("data", "column '" + name_of_number(c) + "' must have a finite mean and deviation",
                        "values up to " + print_number(std::max(std::abs(least[c]), std::abs(most[c]))),
                        "scale the column down");
      (input ? fitted_->input_scales[c] : fitted_->target_scales[c - at_.features]) =
          Standardization{mean[c], constant ? 1 : std};
    }
  }

  std::string name_of_number(std::size_t c) const {
    return c < at_.features ? features_[c].name : recipe().targets[c - at_.features];
  }

  [[noreturn]] void refuse_constant(std::size_t c, double value) const {
    throw UserError("data", "column '" + name_of_number(c) + "' must vary over the training rows",
                    print_number(value) + " on every one of them",
                    c < at_.features ? "leave it out of the inputs, or standardize = false"
                                     : "another target, or a [split] whose training part has more of it");
  }

  // Standardised rows in the arithmetic's dtype.
  void write_rows() {
    auto rows = std::make_shared<PreparedRows>();
    rows->dtype = recipe().dtype;
    rows->target_dtype = fitted_->classes.empty() ? recipe().dtype : DType::I32;
    rows->num_features = static_cast<std::int64_t>(at_.features);
    rows->num_targets = static_cast<std::int64_t>(at_.targets);
    rows->features = std::make_unique<RowStore>(at_.features * size_of(rows->dtype), budget_);
    rows->targets = std::make_unique<RowStore>(at_.targets * size_of(rows->target_dtype), budget_);
    if (at_.kept > 0) state_->kept = std::make_unique<RowStore>(at_.kept * sizeof(double), budget_);
    const auto write = [&](RowStore& store, DType dtype, const double* from, std::int64_t count, std::size_t width,
                           const std::vector<Standardization>& scales) {
      visit_dtype(dtype, [&]<class T>(T) {
        std::vector<T> out;
        for (std::size_t i = 0; i < static_cast<std::size_t>(count); ++i)
          for (std::size_t c = 0; c < width; ++c) {
            const double value = from[i * at_.width() + c];
            if constexpr (std::is_floating_point_v<T>)
              out.push_back(static_cast<T>((value - scales[c].mean) / scales[c].std));
            else
              out.push_back(std::isnan(value) ? T{0} : static_cast<T>(value));
          }
        store.append(count, out.data());
      });
    };
    for_each_block(*derived_, [&](std::int64_t, std::int64_t count, const double* from) {
      write(*rows->features, rows->dtype, from, count, at_.features, fitted_->input_scales);
      write(*rows->targets, rows->target_dtype, from + at_.features, count, at_.targets, fitted_->target_scales);
      std::vector<double> kept;
      for (std::size_t i = 0; at_.kept > 0 && i < static_cast<std::size_t>(count); ++i) {
        const double* first = from + i * at_.width() + at_.keep(0);
        kept.insert(kept.end(), first, first + at_.kept);
      }
      if (state_->kept) state_->kept->append(count, kept.data());
    });
    derived_.reset();
    for (PartDataset& p : state_->parts) p.rows = rows;
  }

  std::shared_ptr<MemoryBudget> budget_;
  bool fits_ = true;  // false: fitted_ comes from another table
  std::shared_ptr<Preparation::State> fitted_;
  std::shared_ptr<Samples::State> state_;
  Columns columns_;
  std::vector<Feature> features_;
  RawTable table_;
  std::vector<int> class_of_;         // of the target's labels; -1: of none
  std::vector<std::int64_t> starts_;  // position of the first row of each series
  std::function<Part(const SplitUnit&)> split_;
  DerivedLayout at_;
  std::unique_ptr<RowStore> derived_;
  std::vector<bool> fit_inputs_, fit_targets_;  // by position: what scales are fitted on
  std::int64_t longest_stretch_ = 0;
  std::vector<double> series_targets_;
  double series_part_ = 0;
};

}  // namespace

std::shared_ptr<Samples::State> build_samples(RowSource& source, const Recipe& recipe, const MemoryOptions& memory) {
  return Builder(source, recipe, memory).build();
}

std::shared_ptr<Samples::State> build_samples(RowSource& source, const Preparation::State& fitted, const Split& split,
                                              std::int64_t stride, const MemoryOptions& memory) {
  return Builder(source, fitted, split, stride, memory).build();
}

}  // namespace hotloop::data
