#include "cli/table_plan.h"

#include <fmt/format.h>
#include <array>
#include <cmath>
#include <map>
#include <optional>
#include <string_view>
#include <utility>

#include "cli/config_reader.h"
#include "core/nearest.h"
#include "core/utf8.h"
#include "data/time.h"
#include "hotloop/error.h"

namespace hotloop::cli {
namespace {

constexpr std::size_t most_markers = 10;  // texts beside the numbers of a column that may stand for missing values
constexpr std::int64_t few_values = 10;   // of a target of numbers, which may be classes
constexpr std::int64_t least_rows_of_class = 10;  // on average, of texts that are taken for classes unasked

std::string shown_at(const Cell& cell, const TableProfile& table) {
  return shown(cell.text) + " in " + table.place(cell.row);
}

// The rows of a table as one series, or as one for each value of a column.
class SeriesRows {
 public:
  SeriesRows(std::size_t num_rows, const ColumnProfile* group) : before_(num_rows) {
    std::map<double, std::size_t> last;  // row of each series
    for (std::size_t row = 0; row < num_rows; ++row) {
      const auto [it, first] = last.try_emplace(group == nullptr ? 0 : group->values[row], row);
      if (!first) before_[row] = std::exchange(it->second, row);
    }
    num_series_ = last.size();
  }
  // The row of the same series before this one.
  const std::optional<std::size_t>& before(std::size_t row) const { return before_[row]; }
  std::size_t num_rows() const { return before_.size(); }
  std::int64_t rows_of_a_series() const {
    return static_cast<std::int64_t>(before_.size() / std::max<std::size_t>(1, num_series_));
  }
  std::int64_t num_series() const { return static_cast<std::int64_t>(num_series_); }
  std::int64_t num_steps() const { return static_cast<std::int64_t>(before_.size() - num_series_); }

 private:
  std::vector<std::optional<std::size_t>> before_;
  std::size_t num_series_ = 0;
};

// A window and the lag of its first row need as many steps in a row as the window has rows.
TimeSteps time_steps(const ColumnProfile& c, const SeriesRows& series, std::int64_t window_length) {
  std::map<double, std::int64_t> counts;
  for (std::size_t row = 0; row < series.num_rows(); ++row)
    if (const auto before = series.before(row)) ++counts[c.values[row] - c.values[*before]];
  if (counts.empty()) return {};
  const auto commonest = std::ranges::max_element(counts, {}, [](const auto& step) { return step.second; });
  std::vector<std::int64_t> alike(series.num_rows(), 0);  // steps up to each row
  std::int64_t num_whole = 0, num_longest = 0;            // windows, and how many there were without gaps
  std::vector<std::int64_t> rows(series.num_rows(), 0);
  for (std::size_t row = 0; row < series.num_rows(); ++row) {
    const auto before = series.before(row);
    if (!before) continue;
    rows[row] = rows[*before] + 1;
    alike[row] = c.values[row] - c.values[*before] == commonest->first ? alike[*before] + 1 : 0;
    num_whole += alike[row] >= window_length ? 1 : 0;
    num_longest += rows[row] >= window_length ? 1 : 0;
  }
  const std::int64_t num_steps = series.num_steps();
  const bool vary = 10 * (num_steps - commonest->second) > num_steps || 10 * num_whole < num_longest;
  return {commonest->first, vary};
}

// The first row whose time is not known or not above the one before in its series.
std::optional<std::size_t> first_unordered_row(const ColumnProfile& time, const SeriesRows& series) {
  for (std::size_t row = 0; row < series.num_rows(); ++row) {
    const auto before = series.before(row);
    if (std::isnan(time.values[row]) || (before && !(time.values[row] > time.values[*before]))) return row;
  }
  return std::nullopt;
}

// The column with the fewest different values, texts or whole numbers, in each of which the times rise. There are ten rows or more of each
// on average; and as times begin anew with each series, one after another or side by side, as many rows are out of order in the whole
// table. A few such rows are rather mistakes.
const ColumnProfile* group_by_which_rises(const ColumnProfile& time, const TableProfile& table,
                                          const std::string& target) {
  const auto is_name = [](double v) { return v == std::floor(v); };
  std::int64_t num_unordered = 0;
  for (std::size_t row = 1; row < time.values.size(); ++row)
    num_unordered += !(time.values[row] > time.values[row - 1]) ? 1 : 0;
  const ColumnProfile* best = nullptr;
  std::int64_t fewest = num_unordered + 2;
  for (const ColumnProfile& c : table.columns) {
    if (&c == &time || c.name == target || c.kind == data::ColumnKind::Time || c.num_missing + c.num_odd > 0 ||
        !std::ranges::all_of(c.values, is_name))
      continue;
    const SeriesRows series(time.values.size(), &c);
    if (series.num_series() >= fewest || series.rows_of_a_series() < 10 || first_unordered_row(time, series)) continue;
    best = &c;
    fewest = series.num_series();
  }
  return best;
}

// Why a column of times cannot order the rows, and what to do; nothing if it can.
std::string time_fault(const ColumnProfile& c, const TableProfile& table, const PlanOptions& options,
                       const SeriesRows& series) {
  if (c.ambiguous_dates)
    return "day and month of " + shown(c.example) +
           " could be swapped: --date-format dd/mm/yyyy or mm/dd/yyyy says which";
  if (!c.odd_cells.empty())
    return shown_at(c.odd_cells[0], table) + " is no time like the others: mend it or remove the row";
  const std::optional<std::size_t> row = first_unordered_row(c, series);
  if (!row) return "";
  const std::string place = table.place(*row);
  if (std::isnan(c.values[*row])) return "no time in " + place + ": put it in or remove the row";
  const std::size_t before = *series.before(*row);
  const bool twice = c.values[*row] == c.values[before];
  const std::string fault = place + (twice ? " has the time of " : " is earlier than ") + table.place(before) + ": ";
  if (options.group.empty())
    if (const ColumnProfile* group = group_by_which_rises(c, table, options.target))
      return fault + "it rises for each value of " + shown(group->name) + ", so --group " + shown(group->name) +
             " says that these are series of their own";
  return fault + (twice ? "keep one row of each time" : "sort the rows by time") +
         (options.group.empty() ? "; --group COLUMN, if there are several series" : "");
}

// Whether the target is one number or class in all rows of each value of `c`.
bool one_target_each(const ColumnProfile& c, const ColumnProfile& target) {
  std::map<double, double> targets;
  for (std::size_t row = 0; row < c.values.size(); ++row)
    if (targets.try_emplace(c.values[row], target.values[row]).first->second != target.values[row]) return false;
  return true;
}

// Whether the rows of a value of `c`, text or whole number, may be one sample: the target says nothing of single rows. There are five of them or
// more on average, and more samples than a class has to have.
bool may_name_samples(const ColumnProfile& c, const TableProfile& table, const ColumnProfile& target) {
  const auto is_name = [](double v) { return v == std::floor(v); };
  if (&c == &target || c.kind == data::ColumnKind::Time || c.num_missing + c.num_odd > 0 ||
      !std::ranges::all_of(c.values, is_name) || target.num_missing + target.num_odd > 0)
    return false;
  const SeriesRows samples(c.values.size(), &c);
  return samples.num_series() >= least_rows_of_class && samples.num_series() > target.num_different &&
         samples.rows_of_a_series() >= 5 && one_target_each(c, target) && table.columns.size() > 2;
}

// Whether a text that is none of the times that are read looks like one: "Jan 3, 2024", "3.1.24".
bool looks_like_date(std::string_view text) {
  constexpr std::array months = {"january", "february", "march",     "april",   "may",      "june",
                                 "july",    "august",   "september", "october", "november", "december"};
  std::int64_t num_digits = 0, num_marks = 0;
  bool month = false;
  std::string word;
  for (std::size_t i = 0; i <= text.size(); ++i) {
    const char c = i < text.size() ? text[i] : ' ';
    num_digits += c >= '0' && c <= '9' ? 1 : 0;
    num_marks += c == '/' || c == '.' || c == '-' ? 1 : 0;
    if (const char lower = static_cast<char>(c | 0x20); lower >= 'a' && lower <= 'z') {
      word += lower;
      continue;
    }
    for (const std::string_view name : months) month = month || word == name || word == name.substr(0, 3);
    word.clear();
  }
  return num_digits >= 3 && num_digits <= 17 && (month || num_marks == 2);
}

// Why a column can be no input; nothing if it can.
std::string input_fault(const ColumnProfile& c, const TableProfile& table, const std::string& fault_as_time) {
  if (c.num_cells == 0) return "no values";
  if (c.first_formatted) return shown_at(*c.first_formatted, table) + " is no plain number: write it like 1005.50";
  if (!c.varies()) return "one value";
  if (c.kind == data::ColumnKind::Time) return fault_as_time.empty() ? "a second column of times" : fault_as_time;
  if (is_text(c) && c.num_different > most_categories)
    return fmt::format("{} different texts", c.num_different) +
           (looks_like_date(c.example)
                ? "; if " + shown(c.example) + " is a time: write it like 2024-01-31 or 31/1/2024 18:30"
                : "");
  if (is_number(c) && c.odd_cells.size() > most_markers)
    return fmt::format("{} different texts beside numbers, the first {}", c.odd_cells.size(),
                       shown_at(c.odd_cells[0], table));
  return "";
}

// What else there is to know about a column in use.
std::string cells_note(const ColumnProfile& c, const TableProfile& table) {
  std::string note;
  if (is_number(c) && c.num_odd > 0)
    note = fmt::format("{} of {} cells are numbers; the first other: {}; such cells count as missing",
                       c.num_cells - c.num_odd, c.num_cells, shown_at(c.odd_cells[0], table));
  if (c.num_missing > 0) note += fmt::format("{}{} missing", note.empty() ? "" : "; ", c.num_missing);
  if (is_text(c)) note += fmt::format("{}{} different", note.empty() ? "" : "; ", c.num_different);
  if (c.kind == data::ColumnKind::Time && c.dates != data::DateOrder::YearFirst)
    note += "dates are " + data::date_formats[static_cast<std::size_t>(c.dates)];
  return note;
}

// A text as the target is a class only where classes have rows to learn from, or where that is asked for.
void check_target(const PlanOptions& options, const ColumnProfile& c, const TableProfile& table) {
  if (c.first_formatted)
    throw UserError("new", "every cell of the target must be a plain number, like 1005.50",
                    shown_at(*c.first_formatted, table) + " of '" + c.name + "'",
                    "no currency, separators of thousands or percent signs, and a decimal point");
  if (is_number(c) && c.odd_cells.size() > most_markers)
    throw UserError("new", "every cell of the target must be a number",
                    "'" + c.name + "' with " + input_fault(c, table, ""),
                    "mend the cells, or --task classification to take each text for a class");
  if (c.kind == data::ColumnKind::Time || !c.varies())
    throw UserError("new", "the target must be numbers or classes that vary", print_toml(options.target),
                    "another column as the target");
  if (!is_text(c) || options.task == "classification") return;
  const std::string received = fmt::format("{} different texts in {} rows of '{}', the first {}", c.num_different,
                                           c.num_cells, c.name, shown(c.example));
  if (options.task == "regression")
    throw UserError("new", "the target of a regression must be numbers", received, "--task classification");
  if (c.num_cells < least_rows_of_class * c.num_different)
    throw UserError(
        "new", fmt::format("the target must be numbers, or classes of {} rows or more on average", least_rows_of_class),
        received, "another column as the target, or --task classification to take each text for a class");
}

// What stands for a missing number does so in the whole table: no text that another column needs.
void check_markers(TablePlan& plan) {
  const auto column_with = [&](const std::string& text) -> const ColumnProfile* {
    for (const Use& use : plan.uses)
      if (use.role != Role::LeftOut && std::ranges::find(use.column->texts, text) != use.column->texts.end())
        return use.column;
    return nullptr;
  };
  for (Use& use : plan.uses) {
    if (use.role == Role::LeftOut || !is_number(*use.column)) continue;
    for (const Cell& odd : use.column->odd_cells) {
      const ColumnProfile* const other = column_with(odd.text);
      if (other == nullptr) continue;
      if (use.role == Role::Target)
        throw UserError(
            "new", "a text among the numbers of the target must be no value of another column",
            shown_at(odd, plan.table) + " of " + shown(use.column->name) + ", which " + shown(other->name) + " has too",
            "leave such cells of " + shown(use.column->name) + " empty, or take " + shown(other->name) +
                " out of the table");
      use.role = Role::LeftOut;
      use.note = shown_at(odd, plan.table) + " is no number, and a value of " + shown(other->name) +
                 ": leave such cells empty";
      break;
    }
  }
}

// A column that tells what each row belongs to, its group or its sample (`what`); null without a name.
const ColumnProfile* find_owner(const std::string& name, const std::string& what, const PlanOptions& options,
                                const TableProfile& table) {
  if (name.empty()) return nullptr;
  const auto owner = std::ranges::find(table.columns, name, &ColumnProfile::name);
  if (owner == table.columns.end()) {
    std::vector<std::string> names;
    for (const ColumnProfile& c : table.columns) names.push_back(c.name);
    throw UserError("new", "the " + what + " must be a column of the table", print_toml(name),
                    nearest_hint(name, names));
  }
  if (owner->name == options.target)
    throw UserError("new", "the " + what + " must be another column than the target", print_toml(name),
                    "--" + what + " with the column that names the " + (what == "group" ? "series" : "samples"));
  if (owner->num_missing > 0) {
    const auto row = std::ranges::find_if(owner->values, [](double v) { return std::isnan(v); });
    throw UserError(
        "new", "every row must tell its " + what,
        "no " + shown(owner->name) + " in " + table.place(static_cast<std::size_t>(row - owner->values.begin())),
        "put it in or remove the row");
  }
  return &*owner;
}

// A sample has one target, whatever its rows.
void check_samples(const ColumnProfile& sample, const PlanOptions& options, const TableProfile& table) {
  if (!options.group.empty())
    throw UserError("new", "rows must belong to groups or to samples",
                    "--group " + shown(options.group) + " and --sample " + shown(options.sample),
                    "--group for series with a target in each row, --sample for series that have one target each");
  const auto target = std::ranges::find(table.columns, options.target, &ColumnProfile::name);
  std::map<double, std::size_t> first;  // row of each sample
  for (std::size_t row = 0; row < sample.values.size(); ++row) {
    const std::size_t other = first.try_emplace(sample.values[row], row).first->second;
    const double a = target->values[other], b = target->values[row];
    if (a == b || std::isnan(a) || std::isnan(b)) continue;
    throw UserError("new", "the target must be the same in all rows of a sample",
                    "other targets in " + table.place(other) + " and " + table.place(row) + ", which have one " +
                        shown(sample.name),
                    "--group " + shown(sample.name) + ", if these are series with a target in each row");
  }
}

}  // namespace

TablePlan make_plan(const PlanOptions& options, TableProfile profile) {
  TablePlan plan{std::move(profile)};
  const TableProfile& table = plan.table;
  const ColumnProfile* group = find_owner(options.group, "group", options, table);
  const ColumnProfile* sample = find_owner(options.sample, "sample", options, table);
  if (sample != nullptr) check_samples(*sample, options, table);
  const SeriesRows series(table.columns.empty() ? 0 : table.columns[0].values.size(), group);
  std::map<const ColumnProfile*, std::string> faults;  // of columns of times
  for (const ColumnProfile& c : table.columns)
    if (c.kind == data::ColumnKind::Time) faults[&c] = time_fault(c, table, options, series);
  const auto orders_rows = [&](const ColumnProfile& c) {
    return sample == nullptr && c.kind == data::ColumnKind::Time && faults[&c].empty();
  };
  const auto time = std::ranges::find_if(table.columns, orders_rows);
  const auto target = std::ranges::find(table.columns, options.target, &ColumnProfile::name);
  const bool one_by_one = sample == nullptr && group == nullptr && time == table.columns.end() && !options.in_order;
  plan.window_length = std::clamp<std::int64_t>(series.rows_of_a_series() / 20, 1, 24);
  for (const ColumnProfile& c : table.columns) {
    Use use{&c, Role::Input, cells_note(c, table)};
    const auto add_note = [&](const std::string& note) { use.note += (use.note.empty() ? "" : "; ") + note; };
    if (c.name == options.target) {
      check_target(options, c, table);
      use.role = Role::Target;
      if (is_number(c) && options.task.empty() && c.num_different <= few_values &&
          c.num_cells >= least_rows_of_class * c.num_different)
        add_note(fmt::format("{} different values: --task classification takes them for classes", c.num_different));
    } else if (&c == group) {
      use.role = Role::Group;
    } else if (&c == sample) {
      use.role = Role::Sample;
    } else if (sample != nullptr && c.kind == data::ColumnKind::Time) {
      use.role = Role::LeftOut;
      use.note = "rows of a sample follow one another as they stand in the table";
    } else if (time != table.columns.end() && &c == &*time) {
      use.role = Role::Time;
      plan.steps = time_steps(c, series, plan.window_length);
      if (plan.steps.vary) add_note("steps vary, most often " + data::print_duration(plan.steps.commonest));
    } else if (const std::string fault = input_fault(c, table, faults[&c]); !fault.empty()) {
      use.role = Role::LeftOut;
      use.note = fault;
    }
    if (one_by_one && use.role != Role::Target && may_name_samples(c, table, *target))
      add_note("rows with the same one have the same target: --sample " + shown(c.name) + " takes them for one series");
    plan.uses.push_back(std::move(use));
  }
  check_markers(plan);
  return plan;
}

}  // namespace hotloop::cli
