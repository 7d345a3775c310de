#include "data/columns.h"

#include <algorithm>
#include <cmath>
#include <set>

#include "core/nearest.h"
#include "core/print_number.h"
#include "data/time.h"
#include "hotloop/error.h"

namespace hotloop::data {
namespace {

template <class Items, class Projection>
auto find_by(const Items& items, Projection projection, const std::string& name) {
  const auto it = std::ranges::find(items, name, projection);
  return it == items.end() ? nullptr : &*it;
}

const Lag* find_lag(const Recipe& r, const std::string& name) { return find_by(r.lags, &Lag::name, name); }
const Cycle* find_cycle(const Recipe& r, const std::string& name) { return find_by(r.cycles, &Cycle::name, name); }
const OneHot* find_one_hot(const Recipe& r, const std::string& name) {
  return find_by(r.one_hots, &OneHot::column, name);
}

bool derived(const Recipe& r, const std::string& name) {
  return find_lag(r, name) != nullptr || find_cycle(r, name) != nullptr || find_one_hot(r, name) != nullptr;
}

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

}  // namespace

int Columns::find(const std::string& name, ColumnKind kind) const {
  for (std::size_t i = 0; i < requests.size(); ++i)
    if (requests[i].name == name && requests[i].kind == kind) return static_cast<int>(i);
  return -1;
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
  // Inputs that are the targets, several of them and no others, are an autoencoder's.
  if (targets.size() > 1 && recipe.horizon_steps == 1 && std::ranges::is_permutation(targets, recipe.inputs)) return;
  for (const std::string& input : recipe.inputs) {
    if (std::ranges::find(targets, input) == targets.end()) continue;
    if (find_lag(recipe, input) != nullptr || find_cycle(recipe, input) != nullptr) continue;
    const char* without = series ? "inputs without it" : "inputs without it, or horizon = 1";
    const bool lag_helps = !series && recipe.task == Task::Regression;
    throw UserError("data", "an input must not be the target's own row",
                    "'" + input + "' in inputs, with " + (series ? "one target a series" : "horizon = 0"),
                    lag_helps ? "a lag of it, or horizon = 1" : without);
  }
}

std::size_t position_of(const ColumnRequest& wanted, const std::vector<std::string>& names, const std::string& where,
                        const std::string& source, const std::string& received,
                        const std::optional<std::string>& hint) {
  const auto found = std::ranges::find(names, wanted.name);
  if (found != names.end() && !wanted.name.empty())  // several columns may be without a name
    return static_cast<std::size_t>(found - names.begin());
  std::string requirement = source + " must have the column '" + wanted.name + "'";
  std::string remedy = hint.value_or(nearest_hint(wanted.name, names));
  if (!wanted.lag.empty() && !wanted.is_target) {
    requirement += ", which the lag '" + wanted.lag + "' reads";
    if (!hint && !names.empty() && nearest_name(wanted.name, names) == nullptr)
      remedy = "the column as far as it is known; rows to forecast leave it empty";
  }
  throw UserError(where, requirement, received, remedy);
}

Columns choose_columns(const Recipe& recipe, Purpose purpose) {
  Columns columns;
  const auto want = [&](const std::string& name, ColumnKind kind, bool filled) {
    int i = columns.find(name, kind);
    if (i < 0) {
      i = static_cast<int>(columns.requests.size());
      columns.requests.push_back({name, kind, filled && missing_rule(recipe, name).fill != Fill::Refuse});
      columns.fills.push_back(filled ? missing_rule(recipe, name).fill : Fill::Refuse);
    }
    return i;
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
    if (const Lag* lag = find_lag(recipe, name))
      columns.requests[static_cast<std::size_t>(want(lag->column, ColumnKind::Number, true))].lag = name;
    else if (find_one_hot(recipe, name) != nullptr)
      want(name, ColumnKind::Text, true);
    else if (find_cycle(recipe, name) == nullptr)
      want(name, ColumnKind::Number, true);
  }
  if (purpose == Purpose::Train)
    for (const std::string& name : recipe.kept) {
      const Lag* lag = find_lag(recipe, name);
      want(lag != nullptr ? lag->column : name, ColumnKind::Number, true);
    }
  return columns;
}

std::vector<Feature> input_features(const Recipe& recipe, const Columns& columns, const Categories& categories) {
  std::vector<Feature> features;
  const auto add_indicator = [&](const std::string& name, int column) {
    if (missing_rule(recipe, name).indicator)
      features.push_back({.kind = Feature::Kind::Indicator, .name = name + "_missing", .column = column});
  };
  for (const std::string& name : recipe.inputs) {
    if (const Lag* lag = find_lag(recipe, name)) {
      features.push_back({.kind = Feature::Kind::Lag,
                          .name = name,
                          .column = columns.find(lag->column, ColumnKind::Number),
                          .steps = lag->steps});
    } else if (const Cycle* cycle = find_cycle(recipe, name)) {
      const int harmonics = cycle->of == Cycle::Of::Row ? cycle->rows.harmonics : cycle->harmonics;
      for (int k = 1; k <= harmonics; ++k)
        for (const bool cosine : {false, true})
          features.push_back({.kind = Feature::Kind::Cycle,
                              .name = name + (cosine ? "_cos" : "_sin") + std::to_string(k),
                              .cycle = static_cast<int>(cycle - recipe.cycles.data()),
                              .harmonic = k,
                              .cosine = cosine});
    } else if (find_one_hot(recipe, name) != nullptr) {
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
  for (const std::string& name : recipe.kept) {
    const Lag* lag = find_lag(recipe, name);
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
  const auto one_hot = [&](const std::string& name) { return find_one_hot(recipe, name) != nullptr; };
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
  const std::vector<std::string> columns = source.column_names();
  for (const std::string& name : recipe.inputs) {
    // A column may be called so.
    if (!name.ends_with('*') || derived(recipe, name) || std::ranges::find(columns, name) != columns.end()) {
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
