#include "data/columns.h"

#include <algorithm>
#include <cmath>
#include <set>
#include <string_view>
#include <unordered_map>
#include <utility>

#include "core/nearest.h"
#include "core/print_number.h"
#include "data/time.h"
#include "hotloop/error.h"

namespace hotloop::data {
namespace {

// What a recipe says of a name, found without a walk: there may be as many as a table has columns. Of the recipe, which must outlive it.
class Names {
 public:
  explicit Names(const Recipe& recipe) : recipe_(recipe) {
    for (const Lag& lag : recipe.lags) lags_.emplace(lag.name, &lag);
    for (const Cycle& cycle : recipe.cycles) cycles_.emplace(cycle.name, &cycle);
    for (const OneHot& one_hot : recipe.one_hots) one_hots_.emplace(one_hot.column, &one_hot);
    for (const MissingRule& rule : recipe.missing_rules)
      for (const std::string& column : rule.columns) rules_.emplace(column, &rule);
  }

  const Lag* lag(const std::string& name) const { return find(lags_, name); }
  const Cycle* cycle(const std::string& name) const { return find(cycles_, name); }
  const OneHot* one_hot(const std::string& name) const { return find(one_hots_, name); }
  bool derived(const std::string& name) const {
    return lag(name) != nullptr || cycle(name) != nullptr || one_hot(name) != nullptr;
  }
  ColumnRule missing(const std::string& column) const {
    if (const MissingRule* rule = find(rules_, column)) return {rule->fill, rule->indicator};
    return {recipe_.missing, recipe_.indicator};
  }

 private:
  template <class T> using Map = std::unordered_map<std::string_view, const T*>;
  template <class T> static const T* find(const Map<T>& map, const std::string& name) {
    const auto it = map.find(name);
    return it == map.end() ? nullptr : it->second;
  }

  const Recipe& recipe_;
  Map<Lag> lags_;
  Map<Cycle> cycles_;
  Map<OneHot> one_hots_;
  Map<MissingRule> rules_;
};

void check_names(const Recipe& recipe) {
  std::set<std::string> names;
  const auto add = [&](const std::string& name, const char* kind) {
    if (name.empty())
      throw UserError("data", std::string("a ") + kind + " must have a name", "none", "name = \"<column>\"");
    if (!names.insert(name).second)
      throw UserError("data", "names of derived columns must differ", "a second '" + name + "'");
  };
  for (const Lag& lag : recipe.lags) {
    add(lag.name, "lag");
    if (lag.steps < 1)
      throw UserError("lag", "steps must be positive", std::to_string(lag.steps) + " for '" + lag.name + "'");
  }
  for (const Cycle& cycle : recipe.cycles) {
    add(cycle.name, "periodic column");
    if (cycle.of != Cycle::Of::Row && recipe.time.empty())
      throw UserError("periodic", "a cycle of the time needs the column of times", "none for '" + cycle.name + "'",
                      "[data] time = \"<column>\"");
    if (cycle.of == Cycle::Of::Row)
      periodic(cycle.name, 0, cycle.rows);  // checks it
    else if (cycle.harmonics < 1)
      throw UserError("periodic", "harmonics must be positive",
                      std::to_string(cycle.harmonics) + " for '" + cycle.name + "'");
  }
  for (const OneHot& one_hot : recipe.one_hots) add(one_hot.column, "one-hot column");
  std::set<std::string> inputs;
  for (const std::string& name : recipe.inputs)
    if (!inputs.insert(name).second) throw UserError("data", "inputs must differ", "'" + name + "' twice");
}

void check_window(const Recipe& recipe) {
  if (recipe.inputs.empty())
    throw UserError("window", "at least one input column is needed", "none", "inputs = [\"<column>\", ...]");
  if (recipe.targets.empty())
    throw UserError("data", "at least one target column is needed", "none", "targets = \"<column>\"");
  if (recipe.length < 1) throw UserError("window", "length must be positive", std::to_string(recipe.length));
  if (recipe.stride < 1) throw UserError("window", "stride must be positive", std::to_string(recipe.stride));
  if (recipe.horizon < 0) throw UserError("window", "horizon must not be negative", std::to_string(recipe.horizon));
  if (recipe.horizon_steps < 1)
    throw UserError("window", "horizon_steps must be positive", std::to_string(recipe.horizon_steps));
  constexpr std::int64_t most = std::int64_t{1} << 40;
  for (const std::int64_t extent : {recipe.length, recipe.stride, recipe.horizon, recipe.horizon_steps})
    if (extent > most)
      throw UserError("window", "length, stride and horizon must be numbers of rows that a table can have",
                      std::to_string(extent), "up to " + std::to_string(most));
  if (!is_float(recipe.dtype))
    throw UserError("window", "dtype must be f32 or f64", std::string(name_of(recipe.dtype)));
  if (recipe.task == Task::Classification && recipe.targets.size() != 1)
    throw UserError("data", "a classification must have one target", std::to_string(recipe.targets.size()),
                    "one of them, or task = \"regression\"");
  if (recipe.balance_classes && recipe.task != Task::Classification)
    throw UserError("data", "balanced classes need a classification", "a regression", "task = \"classification\"");
  if (!recipe.sample.empty() && recipe.sample == recipe.group)
    throw UserError("data", "sample and group must be different columns", "'" + recipe.sample + "' for both",
                    "sample alone: each of its series is a sample");
}

void check_split(const Recipe& recipe) {
  const Split& split = recipe.split;
  if (!(split.train > 0) || !(split.validation >= 0) || !(split.train + split.validation <= 1 + 1e-12))
    throw UserError("split", "train must be positive, validation not negative, and their sum at most 1",
                    "train " + print_number(split.train) + ", validation " + print_number(split.validation),
                    "train = 0.7 and validation = 0.15, which leaves as much for the test");
  if (split.by == Split::By::Group && recipe.group.empty())
    throw UserError("split", "a split by group needs the column of groups", "none", "[data] group = \"<column>\"");
  if (split.by == Split::By::Column && split.column.empty())
    throw UserError("split", "a split by column needs the column's name", "none", "[split] column = \"<column>\"");
  for (const std::string& name : split.test_groups)
    if (std::ranges::find(split.validation_groups, name) != split.validation_groups.end())
      throw UserError("split", "validation and test groups must differ", "'" + name + "' in both");
}

[[noreturn]] void refuse_column(const ColumnRequest& wanted, const std::vector<std::string>& names,
                                const std::string& where, const std::string& source, const std::string& received,
                                const std::optional<std::string>& hint) {
  std::string requirement = source + " must have the column '" + wanted.name + "'";
  std::string remedy = hint.value_or(nearest_hint(wanted.name, names));
  if (!wanted.lag.empty() && !wanted.is_target) {
    requirement += ", which the lag '" + wanted.lag + "' reads";
    if (!hint && !names.empty() && nearest_name(wanted.name, names) == nullptr)
      remedy = "the column as far as it is known; rows to forecast leave it empty";
  }
  throw UserError(where, requirement, received, remedy);
}

}  // namespace

int Columns::find(const std::string& name, ColumnKind kind) const {
  const auto it = positions_.find({name, kind});
  return it == positions_.end() ? -1 : it->second;
}

int Columns::add(ColumnRequest request, Fill fill) {
  const int position = static_cast<int>(requests.size());
  positions_.emplace(std::pair(request.name, request.kind), position);
  requests.push_back(std::move(request));
  fills.push_back(fill);
  return position;
}

ColumnRule missing_rule(const Recipe& recipe, const std::string& column) {
  for (const MissingRule& rule : recipe.missing_rules)
    if (std::ranges::find(rule.columns, column) != rule.columns.end()) return {rule.fill, rule.indicator};
  return {recipe.missing, recipe.indicator};
}

void check_recipe(const Recipe& recipe) {
  check_window(recipe);
  check_names(recipe);
  check_split(recipe);
  if (recipe.time_step != "auto" && recipe.time_step != "any" && !parse_duration(recipe.time_step))
    throw UserError("data", "time_step must be \"auto\", \"any\" or a number with a unit", "'" + recipe.time_step + "'",
                    "\"1 h\", \"30 min\", \"15 s\" or \"1 d\"");
  const Columns columns = choose_columns(recipe, Purpose::Train);
  for (const MissingRule& rule : recipe.missing_rules)
    for (const std::string& name : rule.columns)
      if (columns.find(name, ColumnKind::Number) < 0 && columns.find(name, ColumnKind::Text) < 0)
        throw UserError("data", "a rule for missing values must be for columns that are read", "'" + name + "'",
                        "a column among the inputs, targets and what they are made of");
}

void check_answers(const Recipe& recipe) {
  const bool series = !recipe.sample.empty();
  if (!series && recipe.horizon > 0) return;
  const std::vector<std::string>& targets = recipe.targets;
  const std::set<std::string_view> answers(targets.begin(), targets.end());
  const Names names(recipe);
  // Inputs that are the targets, several of them and no others, are an autoencoder's.
  if (targets.size() > 1 && recipe.horizon_steps == 1 && targets.size() == recipe.inputs.size() &&
      answers == std::set<std::string_view>(recipe.inputs.begin(), recipe.inputs.end()))
    return;
  for (const std::string& input : recipe.inputs) {
    if (!answers.contains(input)) continue;
    if (names.lag(input) != nullptr || names.cycle(input) != nullptr) continue;
    const char* without = series ? "inputs without it" : "inputs without it, or horizon = 1";
    const bool lag_helps = !series && recipe.task == Task::Regression;
    throw UserError("data", "an input must not be the target's own row",
                    "'" + input + "' in inputs, with " + (series ? "one target a series" : "horizon = 0"),
                    lag_helps ? "a lag of it, or horizon = 1" : without);
  }
}

std::vector<std::size_t> positions_of(std::span<const ColumnRequest> requests, const std::vector<std::string>& names,
                                      const std::string& where, const std::string& source, const std::string& received,
                                      const std::optional<std::string>& hint) {
  std::unordered_map<std::string_view, std::size_t> position_by_name;
  for (std::size_t i = 0; i < names.size(); ++i)
    if (!names[i].empty()) position_by_name.emplace(names[i], i);  // several columns may be without a name
  std::vector<std::size_t> positions;
  for (const ColumnRequest& wanted : requests) {
    const auto found = position_by_name.find(wanted.name);
    if (found == position_by_name.end()) refuse_column(wanted, names, where, source, received, hint);
    positions.push_back(found->second);
  }
  return positions;
}

Columns choose_columns(const Recipe& recipe, Purpose purpose) {
  Columns columns;
  const Names names(recipe);
  const auto want = [&](const std::string& name, ColumnKind kind, bool filled) {
    if (const int i = columns.find(name, kind); i >= 0) return i;
    const Fill fill = filled ? names.missing(name).fill : Fill::Refuse;
    return columns.add({name, kind, fill != Fill::Refuse}, fill);
  };
  // What may not be missing comes first, so that another use of the same column does not allow it.
  if (!recipe.sample.empty()) columns.sample = want(recipe.sample, ColumnKind::Text, false);
  if (!recipe.group.empty()) columns.group = want(recipe.group, ColumnKind::Text, false);
  if (!recipe.time.empty()) columns.time = want(recipe.time, ColumnKind::Time, false);
  if (purpose == Purpose::Train) {
    if (recipe.split.by == Split::By::Column) columns.split = want(recipe.split.column, ColumnKind::Text, false);
    if (!recipe.weight.empty()) columns.weight = want(recipe.weight, ColumnKind::Number, false);
    for (const std::string& name : recipe.targets) {
      columns.targets.push_back(
          want(name, recipe.task == Task::Classification ? ColumnKind::Text : ColumnKind::Number, true));
      columns.requests[static_cast<std::size_t>(columns.targets.back())].is_target = true;
    }
  }
  for (const std::string& name : recipe.inputs) {
    if (const Lag* lag = names.lag(name))
      columns.requests[static_cast<std::size_t>(want(lag->column, ColumnKind::Number, true))].lag = name;
    else if (names.one_hot(name) != nullptr)
      want(name, ColumnKind::Text, true);
    else if (names.cycle(name) == nullptr)
      want(name, ColumnKind::Number, true);
  }
  if (purpose == Purpose::Train)
    for (const std::string& name : recipe.kept) {
      const Lag* lag = names.lag(name);
      want(lag != nullptr ? lag->column : name, ColumnKind::Number, true);
    }
  return columns;
}

std::vector<Feature> input_features(const Recipe& recipe, const Columns& columns, const Categories& categories) {
  std::vector<Feature> features;
  const Names names(recipe);
  const auto add_indicator = [&](const std::string& name, int column) {
    if (names.missing(name).indicator)
      features.push_back({.kind = Feature::Kind::Indicator, .name = name + "_missing", .column = column});
  };
  for (const std::string& name : recipe.inputs) {
    if (const Lag* lag = names.lag(name)) {
      features.push_back({.kind = Feature::Kind::Lag,
                          .name = name,
                          .column = columns.find(lag->column, ColumnKind::Number),
                          .steps = lag->steps});
    } else if (const Cycle* cycle = names.cycle(name)) {
      const int harmonics = cycle->of == Cycle::Of::Row ? cycle->rows.harmonics : cycle->harmonics;
      for (int k = 1; k <= harmonics; ++k)
        for (const bool cosine : {false, true})
          features.push_back({.kind = Feature::Kind::Cycle,
                              .name = name + (cosine ? "_cos" : "_sin") + std::to_string(k),
                              .cycle = static_cast<int>(cycle - recipe.cycles.data()),
                              .harmonic = k,
                              .cosine = cosine});
    } else if (names.one_hot(name) != nullptr) {
      const int column = columns.find(name, ColumnKind::Text);
      const auto it = categories.find(name);
      for (std::size_t i = 0; it != categories.end() && i < it->second.size(); ++i)
        features.push_back({.kind = Feature::Kind::OneHot,
                            .name = name + "=" + it->second[i],
                            .column = column,
                            .category = static_cast<int>(i)});
      add_indicator(name, column);
    } else {
      const int column = columns.find(name, ColumnKind::Number);
      features.push_back({.kind = Feature::Kind::Column, .name = name, .column = column});
      add_indicator(name, column);
    }
  }
  return features;
}

std::vector<Feature> kept_features(const Recipe& recipe, const Columns& columns) {
  std::vector<Feature> features;
  const Names names(recipe);
  for (const std::string& name : recipe.kept) {
    const Lag* lag = names.lag(name);
    features.push_back({.kind = lag != nullptr ? Feature::Kind::Lag : Feature::Kind::Column,
                        .name = name,
                        .column = columns.find(lag != nullptr ? lag->column : name, ColumnKind::Number),
                        .steps = lag != nullptr ? lag->steps : 0});
  }
  return features;
}

std::int64_t known_ahead(const Feature& kept, std::int64_t ahead, std::int64_t horizon) {
  if (kept.kind != Feature::Kind::Lag) return ahead;
  // The lag at row r is the value of row r - steps. With horizon 0 the target of the window's last row is not known yet.
  const std::int64_t last_known = horizon > 0 ? 0 : -1;
  return std::min(ahead, last_known + kept.steps);
}

std::optional<Shape> fixed_input_shape(const Recipe& recipe) {
  const Names names(recipe);
  const auto one_hot = [&](const std::string& name) { return names.one_hot(name) != nullptr; };
  const auto many = [](const std::string& name) { return name.ends_with('*'); };
  if (!recipe.sample.empty() || std::ranges::any_of(recipe.inputs, one_hot) || std::ranges::any_of(recipe.inputs, many))
    return std::nullopt;
  const std::size_t features = input_features(recipe, choose_columns(recipe, Purpose::Train), {}).size();
  return Shape{recipe.length, static_cast<std::int64_t>(features)};
}

ValueType target_type_of(const Recipe& recipe) {
  if (recipe.task == Task::Classification)
    return {DType::I32, recipe.horizon_steps > 1 ? Shape{recipe.horizon_steps} : Shape{}};
  return {recipe.dtype, {recipe.horizon_steps * static_cast<std::int64_t>(recipe.targets.size())}};
}

Recipe expand_inputs(Recipe recipe, const RowSource& source) {
  std::set<std::string> taken(recipe.targets.begin(), recipe.targets.end());
  taken.insert({recipe.time, recipe.group, recipe.sample, recipe.weight, recipe.split.column});
  for (const std::string& name : recipe.inputs) taken.insert(name);
  std::vector<std::string> inputs;
  const Names names(recipe);
  const std::vector<std::string> columns = source.column_names();
  for (const std::string& name : recipe.inputs) {
    // A column may be called so.
    if (!name.ends_with('*') || names.derived(name) || std::ranges::find(columns, name) != columns.end()) {
      inputs.push_back(name);
      continue;
    }
    const std::string prefix = name.substr(0, name.size() - 1);
    const std::size_t before = inputs.size();
    for (const std::string& column : columns)
      if (column.starts_with(prefix) && taken.insert(column).second) inputs.push_back(column);
    if (inputs.size() == before)
      throw UserError("data", source.name() + " must have columns whose names begin with '" + prefix + "'", "none",
                      nearest_hint(prefix, columns));
  }
  recipe.inputs = std::move(inputs);
  return recipe;
}

}  // namespace hotloop::data
