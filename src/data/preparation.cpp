#include "data/preparation.h"

#include <algorithm>

#include "core/print_number.h"
#include "data/time.h"
#include "hotloop/error.h"

namespace hotloop::data {
namespace {

const char* name_of_fill(Fill fill) {
  switch (fill) {
    case Fill::Refuse: return "refused";
    case Fill::Drop: return "their windows left out";
    case Fill::Forward: return "filled with the last value before";
    case Fill::Mean: break;
  }
  return "filled with the training mean";
}

std::string filling(const std::string& column, const Preparation::State& s) {
  const ColumnRule rule = missing_rule(s.recipe, column);
  // A text has no mean.
  const bool is_category = s.categories.contains(column);
  std::string text = is_category && rule.fill == Fill::Mean ? "of no category, all zeros" : name_of_fill(rule.fill);
  if (const auto mean = s.means.find(column); mean != s.means.end()) text += " " + print_digits(mean->second, 6);
  return text + (rule.indicator ? ", indicated" : "");
}

std::string plural(std::int64_t count, const std::string& one, const std::string& many) {
  return std::to_string(count) + " " + (count == 1 ? one : many);
}

}  // namespace

const Recipe& Preparation::recipe() const { return state_->recipe; }
std::span<const Standardization> Preparation::input_scales() const { return state_->input_scales; }
std::span<const Standardization> Preparation::target_scales() const { return state_->target_scales; }
std::span<const std::string> Preparation::classes() const { return state_->classes; }
double Preparation::time_step() const { return state_->time_step; }

std::vector<std::string> Preparation::input_names() const {
  std::vector<std::string> names;
  for (const Feature& f :
       input_features(state_->recipe, choose_columns(state_->recipe, Purpose::Predict), state_->categories))
    names.push_back(f.name);
  return names;
}

Shape Preparation::input_shape() const {
  const auto features = static_cast<std::int64_t>(state_->input_scales.size());
  return {state_->recipe.sample.empty() ? state_->recipe.length : state_->longest, features};
}

Array Preparation::unscale(const Array& predictions, bool width) const {
  const auto num_targets = static_cast<std::int64_t>(state_->target_scales.size());
  const std::int64_t numbers = num_targets * state_->recipe.horizon_steps;
  const Shape& shape = predictions.shape();
  if (!state_->classes.empty())
    throw UserError("unscale", "predictions must be those of a regression", "a classification",
                    "the index of the largest is that of the class");
  if (shape.rank() != 2 || shape[1] != numbers)
    throw UserError("unscale", "predictions must be (samples, " + std::to_string(numbers) + ")", shape.str(),
                    shape.rank() == 2 && numbers > 0 && shape[1] % numbers == 0
                        ? "of a loss with several outputs for a number: one of its statistics"
                        : "");
  Array out(DType::F64, shape);
  for (std::int64_t i = 0; i < out.size(); ++i) {
    const Standardization& s = state_->target_scales[static_cast<std::size_t>(i % num_targets)];
    out.set(i, predictions.at(i) * s.std + (width ? 0 : s.mean));
  }
  return out;
}

std::string Preparation::describe() const {
  const State& s = *state_;
  const Recipe& r = s.recipe;
  std::string out;
  const auto line = [&](const std::string& text) { out += (out.empty() ? "" : "\n") + text; };
  if (!r.sample.empty())
    line(plural(s.num_groups, "series", "series") + " by '" + r.sample + "', of up to " + std::to_string(s.longest) +
         " rows");
  else if (!r.group.empty())
    line(plural(s.num_groups, "group", "groups") + " by '" + r.group + "'");
  if (!r.time.empty() && s.time_step > 0)
    line("time '" + r.time + "' in steps of " + print_duration(s.time_step) + ", " + plural(s.num_gaps, "gap", "gaps"));
  const Columns inputs = choose_columns(r, Purpose::Predict);
  for (const auto& [column, count] : s.num_missing) {
    // A missing target is never made up, whatever is done to the same column as an input or behind a lag.
    const bool target = std::ranges::find(r.targets, column) != r.targets.end();
    const std::string name = "'" + column + "'";
    line(name + ": " + std::to_string(count) + " missing, " + (target ? "their samples left out" : filling(column, s)));
    if (target && inputs.find(column, ColumnKind::Number) >= 0 && missing_rule(r, column).fill != Fill::Drop)
      line(name + " in the inputs: " + filling(column, s));
  }
  for (const auto& [column, categories] : s.categories)
    line("'" + column + "' one-hot: " + plural(static_cast<std::int64_t>(categories.size()), "category", "categories"));
  if (!s.classes.empty())
    line(plural(static_cast<std::int64_t>(s.classes.size()), "class", "classes") + " of '" + r.targets[0] + "'");
  const char* standardised = s.classes.empty() && r.standardize_targets ? "inputs and targets" : "inputs";
  line(r.standardize ? std::string(standardised) + " standardised by the training rows" : "nothing standardised");
  return out;
}

}  // namespace hotloop::data
