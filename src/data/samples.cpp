#include "data/samples.h"

#include <algorithm>

#include "core/nearest.h"
#include "hotloop/error.h"

namespace hotloop::data {
namespace {

const PartDataset& own_part(const Samples::State& state, const Dataset& part) {
  for (const PartDataset& own : state.parts)
    if (&own == &part) return own;
  throw UserError("data", "the dataset must be a part of these samples", "another dataset",
                  "train(), validation() or test() of the same samples");
}

// A kept column for each target: row_of(column, ahead) says how many rows after the window's last it is read, for a target `ahead` after it.
template <class RowOf> std::vector<double> kept_values(const Samples::State& state, const Dataset& part,
                                                       std::string_view name, const RowOf& row_of) {
  const PartDataset& own = own_part(state, part);
  const std::vector<std::string>& names = state.fitted->recipe.kept;
  const auto it = std::ranges::find(names, name);
  if (it == names.end())
    throw UserError("data", "the column must be one of the recipe's kept ones", "'" + std::string(name) + "'",
                    nearest_hint(name, names));
  const auto column = static_cast<std::size_t>(it - names.begin());
  std::vector<double> row(names.size()), out;
  for (const std::int64_t last : own.last_rows)
    for (std::int64_t t = 0; t < own.steps; ++t) {
      state.kept->read(last + row_of(column, own.horizon + t), 1, row.data());
      out.push_back(row[column]);
    }
  return out;
}

// How many windows are not in the samples for what is missing in them, if those are a quarter of all or more: the few that reach over the
// end of a part are no news.
std::int64_t windows_left_out(const Samples::State& state) {
  const Recipe& recipe = state.fitted->recipe;
  if (recipe.stride != 1) return 0;
  const std::int64_t reach = recipe.length + recipe.horizon + recipe.horizon_steps - 2;
  const std::int64_t possible = state.num_rows - std::max<std::int64_t>(1, state.fitted->num_groups) * reach;
  std::int64_t there = 0;
  for (const PartDataset& part : state.parts) {
    there += part.size();
    if (recipe.split.by == Split::By::None) break;
  }
  return 4 * there <= 3 * possible ? possible - there : 0;
}

}  // namespace

Samples::Samples(RowSource& source, const Recipe& recipe, const MemoryOptions& memory)
    : state_(build_samples(source, recipe, memory)) {}
Samples::Samples(RowSource& source, const Preparation& fitted, const Split& split, std::int64_t stride,
                 const MemoryOptions& memory)
    : state_(build_samples(source, *fitted.state_, split, stride, memory)) {}

const Dataset& Samples::train() const { return state_->parts[0]; }
const Dataset& Samples::validation() const { return state_->parts[1]; }
const Dataset& Samples::test() const { return state_->parts[2]; }
const Preparation& Samples::preparation() const { return *state_->preparation; }
std::int64_t Samples::num_rows() const { return state_->num_rows; }

std::vector<std::int64_t> Samples::target_rows(const Dataset& part) const {
  const PartDataset& own = own_part(*state_, part);
  std::vector<std::int64_t> rows;
  for (const std::int64_t last : own.last_rows) {
    const std::int64_t position = last + own.horizon;
    rows.push_back(state_->source_row.empty() ? position : state_->source_row[static_cast<std::size_t>(position)]);
  }
  return rows;
}

std::vector<double> Samples::kept(const Dataset& part, std::string_view name) const {
  return kept_values(*state_, part, name, [](std::size_t, std::int64_t ahead) { return ahead; });
}

std::vector<double> Samples::known(const Dataset& part, std::string_view name) const {
  const Recipe& recipe = state_->fitted->recipe;
  const std::vector<Feature> kept = kept_features(recipe, choose_columns(recipe, Purpose::Train));
  return kept_values(*state_, part, name, [&](std::size_t column, std::int64_t ahead) {
    return known_ahead(kept[column], ahead, recipe.horizon);
  });
}

Standardization Samples::target_scale() const {
  const std::span<const Standardization> scales = preparation().target_scales();
  return scales.size() == 1 ? scales[0] : Standardization{};
}

std::string Samples::describe() const {
  const auto count = [&](std::size_t i) { return std::to_string(state_->parts[i].size()); };
  const PartDataset& train = state_->parts[0];
  const bool series = !train.lengths.empty();
  const bool fit = state_->fitted->recipe.split.by == Split::By::None;
  const std::int64_t left_out = series ? 0 : windows_left_out(*state_);
  return count(0) + " training, " + count(1) + " validation and " + count(2) + " test " +
         (series ? "series of up to " : "windows of ") + std::to_string(train.length) +
         (train.length == 1 ? " row by " : " rows by ") + std::to_string(train.rows->num_features) +
         (train.rows->num_features == 1 ? " input" : " inputs") + (fit ? ", the same in all parts" : "") +
         (left_out > 0 ? "; " + std::to_string(left_out) + " more hold a gap or a missing value" : "");
}

}  // namespace hotloop::data
