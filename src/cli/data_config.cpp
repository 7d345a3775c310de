#include "cli/data_config.h"

#include <algorithm>

#include "data/time.h"
#include "hotloop/error.h"

namespace hotloop::cli {

namespace fs = std::filesystem;

namespace {

const std::vector<std::string> fills = {"refuse", "drop", "forward", "mean"};  // by data::Fill
const std::vector<std::string> cycles = {"row", "hour_of_day", "day_of_week", "hour_of_week", "day_of_year"};
const std::vector<std::string> splits = {"time", "group", "random", "column", "none"};  // by data::Split::By

template <class Enum> Enum choice(Section& section, const std::string& key, const std::string& doc,
                                  const std::vector<std::string>& names, const std::string& fallback) {
  const std::string value = section.text(key, doc, fallback, names);
  return static_cast<Enum>(std::ranges::find(names, value) - names.begin());
}

void read_csv_options(Section& data, DataConfig& config) {
  const std::string separator = data.text("separator", "between cells", ",");
  if (separator.size() != 1 || separator[0] == '"' || separator[0] == '\n' || separator[0] == '\r')
    data.refuse("separator", "must be one character that is no quote", print_toml(separator),
                R"(separator = ";", or separator = "\t" for tabs)");
  config.csv.separator = separator[0];
  config.csv.missing_values =
      data.texts("missing_values", "cells that stand for a missing value", config.csv.missing_values);
  const std::string unit = data.text("time_unit", "of times that are numbers", "s", {"s", "ms", "us", "ns"});
  config.csv.dates =
      choice<data::DateOrder>(data, "date_format", "order of a date's numbers; dots and dashes are read too",
                              data::date_formats, data::date_formats[0]);
  config.csv.time_unit = unit == "s" ? 1 : unit == "ms" ? 1e-3 : unit == "us" ? 1e-6 : 1e-9;
  config.memory.bytes =
      static_cast<std::size_t>(data.integer("memory_mb", "beyond it, rows lie in a file in $TMPDIR", 1024, 0)) << 20;
}

void read_columns(Section& data, data::Recipe& recipe) {
  recipe.targets = data.text_or_texts("target", "column to predict, or columns");
  recipe.inputs = data.texts("inputs", "columns, lags, periodic and one-hot names; \"x*\" for all that begin with x");
  if (recipe.inputs.empty())
    data.refuse("inputs", "must name at least one column", "an empty list", "inputs = [\"<column>\"]");
  if (recipe.targets.empty())
    data.refuse("target", "must name at least one column", "an empty list", "target = \"<column>\"");
  recipe.task = data.text("task", "what the target is: numbers, or classes", "regression",
                          {"regression", "classification"}) == "classification"
                    ? data::Task::Classification
                    : data::Task::Regression;
  recipe.balance_classes =
      data.flag("balance_classes", "weights that give each class the same share of the loss", false);
  recipe.time = data.text("time", "column of times; none: rows follow one another", "");
  recipe.time_step = data.text("time_step", "\"30 min\"; \"auto\": the most common; \"any\"", "auto");
  recipe.group = data.text("group", "column of groups, which no window and no lag crosses", "");
  recipe.sample = data.text("sample", "column of samples: each is a series as long as it is", "");
  recipe.weight = data.text("weight", "column of weights in the training loss", "");
  recipe.missing =
      choice<data::Fill>(data, "missing", "values: refused, their windows dropped, or filled", fills, "refuse");
  recipe.indicator = data.flag("missing_indicator", "an input that is 1 where a value was missing", false);
}

void read_derived(ConfigFile& file, data::Recipe& recipe) {
  for (Section& section : file.sections("data.fill", "Other ways with the missing values of some columns.")) {
    data::MissingRule rule;
    rule.columns = section.texts("columns", "of the file");
    rule.fill = choice<data::Fill>(section, "with", "what: refuse, drop, forward, mean", fills, "mean");
    rule.indicator = section.flag("indicator", "an input that is 1 where a value was missing", false);
    recipe.missing_rules.push_back(std::move(rule));
  }
  for (Section& section : file.sections("data.lag", "Columns as they were some rows earlier.")) {
    data::Lag lag;
    lag.name = section.text("name", "of the new column");
    lag.column = section.text("column", "of the file");
    lag.steps = section.integer("steps", "rows, or time steps, earlier", {}, 1);
    recipe.lags.push_back(std::move(lag));
  }
  for (Section& section :
       file.sections("data.periodic", "Sines and cosines of (floor(row / step) + phase) mod period, or of the time.")) {
    data::Cycle cycle;
    cycle.name = section.text("name", "of the new columns: name_sin1, name_cos1, ...");
    cycle.of = choice<data::Cycle::Of>(section, "of", "what: the row, or a cycle of its time", cycles, "row");
    if (cycle.of == data::Cycle::Of::Row) {
      cycle.rows.period = section.number("period", "in units of step rows");
      if (!(cycle.rows.period > 0)) section.refuse("period", "must be positive", print_toml(cycle.rows.period));
      cycle.rows.step = section.integer("step", "rows over which the position stands still", 1, 1);
      cycle.rows.phase = section.number("phase", "position of the first row", 0.0);
    }
    const std::int64_t harmonics = section.integer("harmonics", "number of sine and cosine pairs", 1, 1);
    if (harmonics > 1000) section.refuse("harmonics", "must be at most 1000", std::to_string(harmonics));
    cycle.harmonics = cycle.rows.harmonics = static_cast<int>(harmonics);
    recipe.cycles.push_back(std::move(cycle));
  }
  for (Section& section : file.sections("data.one_hot", "Columns of texts as one 0-1 column for each category.")) {
    data::OneHot one_hot;
    one_hot.column = section.text("column", "of the file, and its name in inputs");
    one_hot.unknown_as_zeros = section.text("unknown", "what a category is that no training row has", "refuse",
                                            {"refuse", "zeros"}) == "zeros";
    recipe.one_hots.push_back(std::move(one_hot));
  }
}

void read_window(ConfigFile& file, data::Recipe& recipe) {
  Section window = file.section("window", "What one sample is.");
  if (recipe.sample.empty()) {
    recipe.length = window.integer("length", "rows the model sees", {}, 1);
    recipe.stride = window.integer("stride", "rows from one window to the next", 1, 1);
    recipe.horizon = window.integer("horizon", "rows from a window's last row to its target", 0, 0);
    recipe.horizon_steps = window.integer("horizon_steps", "targets, in rows one after another", 1, 1);
  }
  recipe.standardize = window.flag("standardize", "to mean 0 and deviation 1 over the training rows", true);
  recipe.standardize_targets = window.flag("standardize_targets", "the targets too; false for counts", true);
}

void read_split(ConfigFile& file, data::Recipe& recipe) {
  Section section = file.section("split", "Parts of the rows, groups or samples; the rest is the test part.");
  data::Split& split = recipe.split;
  split.by = choice<data::Split::By>(section, "by", "time, group, random, column; none: all is in every part", splits,
                                     recipe.sample.empty() ? "time" : "random");
  if (split.by == data::Split::By::None) return;
  split.train = section.number("train", "fraction", 0.7);
  split.validation = section.number("validation", "fraction", 0.15);
  if (split.by != data::Split::By::Time)
    split.seed = static_cast<std::uint64_t>(section.integer("seed", "of what is drawn at random", 0, 0));
  if (split.by == data::Split::By::Group) {
    split.validation_groups = section.texts("validation_groups", "these; none: drawn", std::vector<std::string>{});
    split.test_groups = section.texts("test_groups", "these; none: drawn", std::vector<std::string>{});
  }
  if (split.by == data::Split::By::Column) split.column = section.text("column", "that says train, validation or test");
}

// Whether both lead to the same; of a file that is not there the text alone tells.
bool leads_to(const fs::path& path, const fs::path& file) {
  std::error_code none;
  return !fs::exists(file, none) || fs::equivalent(path, file, none);
}

}  // namespace

fs::path named_file(const fs::path& folder, const std::string& given) {
  const fs::path whole = folder / given, plain = whole.lexically_normal();
  return leads_to(plain, whole) ? plain : fs::proximate(whole);
}

fs::path seen_from(const fs::path& folder, const fs::path& file) {
  const fs::path from = folder.empty() ? fs::path(".") : folder;
  const auto whole = [](const fs::path& path) { return fs::absolute(path).lexically_normal(); };
  const fs::path plain = (whole(file)).lexically_proximate(whole(from));
  return leads_to(from / plain, file) ? plain : fs::proximate(file, from);
}

DataConfig read_data_config(ConfigFile& file, const std::function<std::string(const std::string& given)>& shown_file) {
  DataConfig config;
  Section data = file.section("data", "The table, and which of its columns are used.");
  config.file = data.text("file", "CSV with a header line, .npy or .npz, relative to this file");
  data.print_as("file", shown_file(config.file));
  read_csv_options(data, config);
  read_columns(data, config.recipe);
  read_derived(file, config.recipe);
  read_window(file, config.recipe);
  read_split(file, config.recipe);
  return config;
}

}  // namespace hotloop::cli
