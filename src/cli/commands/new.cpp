#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <filesystem>
#include <map>
#include <optional>

#include "cli/command.h"
#include "cli/config_reader.h"
#include "cli/report.h"
#include "cli/table_profile.h"
#include "core/nearest.h"
#include "core/utf8.h"
#include "data/separator.h"
#include "data/time.h"
#include "hotloop/error.h"
#include "hotloop/table.h"
#include "io/files.h"

namespace hotloop::cli {
namespace {

namespace fs = std::filesystem;

struct NewCommand {
  std::string table, target, out, separator = ",", task, date_format;
};

constexpr std::size_t most_markers = 10;  // texts beside the numbers of a column that may stand for missing values
constexpr std::int64_t few_values = 10;   // of a target of numbers, which may be classes
constexpr std::int64_t least_rows_of_class = 10;  // on average, of texts that are taken for classes unasked

enum class Role { Target, Time, Input, LeftOut };
struct Use {
  const ColumnProfile* column = nullptr;
  Role role = Role::LeftOut;
  std::string note = {};
};

bool is_number(const ColumnProfile& c) { return c.kind == data::ColumnKind::Number; }
bool is_text(const ColumnProfile& c) { return c.kind == data::ColumnKind::Text; }

// From row to row of a column of times that rises.
struct TimeSteps {
  double commonest = 0;
  bool vary = false;  // so much that gaps, which other steps count as, leave few windows
};

// A table, and what each of its columns is used for.
struct Plan {
  TableProfile table;
  std::vector<Use> uses = {};  // by column
  TimeSteps steps = {};        // of time()

  const ColumnProfile& target() const { return *find(Role::Target); }
  const ColumnProfile* time() const { return find(Role::Time); }

 private:
  const ColumnProfile* find(Role role) const {
    const auto use = std::ranges::find(uses, role, &Use::role);
    return use == uses.end() ? nullptr : use->column;
  }
};

std::string shown_at(const Cell& cell, const TableProfile& table) {
  return shown(cell.text) + " in " + table.place(cell.row);
}

// Rows that a window of a table with times has.
std::int64_t window_length(const ColumnProfile& c) {
  return std::clamp<std::int64_t>(static_cast<std::int64_t>(c.values.size()) / 20, 1, 24);
}

TimeSteps time_steps(const ColumnProfile& c) {
  std::map<double, std::int64_t> counts;
  for (std::size_t row = 1; row < c.values.size(); ++row) ++counts[c.values[row] - c.values[row - 1]];
  if (counts.empty()) return {};
  const auto commonest = std::ranges::max_element(counts, {}, [](const auto& step) { return step.second; });
  // A window and the lag of its first row need as many steps in a row as the window has rows.
  const std::int64_t length = window_length(c), num_steps = static_cast<std::int64_t>(c.values.size()) - 1;
  std::int64_t alike = 0, num_whole = 0;
  for (std::size_t row = 1; row < c.values.size(); ++row) {
    alike = c.values[row] - c.values[row - 1] == commonest->first ? alike + 1 : 0;
    num_whole += alike >= length ? 1 : 0;
  }
  const bool vary = 10 * (num_steps - commonest->second) > num_steps || 10 * num_whole < num_steps - length + 1;
  return {commonest->first, vary};
}

// Why a column of times cannot order the rows, and what to do; nothing if it can.
std::string time_fault(const ColumnProfile& c, const TableProfile& table) {
  if (c.ambiguous_dates)
    return "day and month of " + shown(c.example) +
           " could be swapped: --date-format dd/mm/yyyy or mm/dd/yyyy says which";
  if (!c.odd_cells.empty())
    return shown_at(c.odd_cells[0], table) + " is no time like the others: mend it or remove the row";
  const std::optional<std::size_t> row = c.first_unordered_row();
  if (!row) return "";
  const std::string place = table.place(*row);
  if (std::isnan(c.values[*row])) return "no time in " + place + ": put it in or remove the row";
  const std::string before = table.place(*row - 1);
  if (c.values[*row] == c.values[*row - 1])
    return place + " has the time of " + before +
           ": keep one row of each time; of several series in one table, see group in docs/data.md";
  return place + " is earlier than " + before +
         ": sort the rows by time; of several series in one table, see group in docs/data.md";
}

// Why a column can be no input; nothing if it can.
std::string input_fault(const ColumnProfile& c, const TableProfile& table) {
  if (c.num_cells == 0) return "no values";
  if (c.first_formatted) return shown_at(*c.first_formatted, table) + " is no plain number: write it like 1005.50";
  if (!c.varies()) return "one value";
  if (c.kind == data::ColumnKind::Time) {
    const std::string fault = time_fault(c, table);
    return fault.empty() ? "a second column of times" : fault;
  }
  if (is_text(c) && c.num_different > most_categories) return fmt::format("{} different texts", c.num_different);
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
void check_target(const NewCommand& options, const ColumnProfile& c, const TableProfile& table) {
  if (c.first_formatted)
    throw UserError("new", "every cell of the target must be a plain number, like 1005.50",
                    shown_at(*c.first_formatted, table) + " of '" + c.name + "'",
                    "no currency, separators of thousands or percent signs, and a decimal point");
  if (is_number(c) && c.odd_cells.size() > most_markers)
    throw UserError("new", "every cell of the target must be a number",
                    "'" + c.name + "' with " + input_fault(c, table),
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
void check_markers(Plan& plan) {
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

Plan make_plan(const NewCommand& options, TableProfile profile) {
  Plan plan{std::move(profile)};
  const TableProfile& table = plan.table;
  const auto orders_rows = [&](const ColumnProfile& c) {
    return c.kind == data::ColumnKind::Time && time_fault(c, table).empty();
  };
  const auto time = std::ranges::find_if(table.columns, orders_rows);
  for (const ColumnProfile& c : table.columns) {
    Use use{&c, Role::Input, cells_note(c, table)};
    if (c.name == options.target) {
      check_target(options, c, table);
      use.role = Role::Target;
      if (is_number(c) && options.task.empty() && c.num_different <= few_values &&
          c.num_cells >= least_rows_of_class * c.num_different)
        use.note += fmt::format("{}{} different values: --task classification takes them for classes",
                                use.note.empty() ? "" : "; ", c.num_different);
    } else if (time != table.columns.end() && &c == &*time) {
      use.role = Role::Time;
      plan.steps = time_steps(c);
      if (plan.steps.vary)
        use.note += fmt::format("{}steps vary, most often {}", use.note.empty() ? "" : "; ",
                                data::print_duration(plan.steps.commonest));
    } else if (const std::string fault = input_fault(c, table); !fault.empty()) {
      use.role = Role::LeftOut;
      use.note = fault;
    }
    plan.uses.push_back(std::move(use));
  }
  check_markers(plan);
  return plan;
}

std::string list(const std::vector<std::string>& names) {
  std::string out;
  for (const std::string& name : names) out += (out.empty() ? "" : ", ") + print_toml(name);
  return "[" + out + "]";
}

// A name that no column has.
std::string fresh(std::string name, const TableProfile& table) {
  while (std::ranges::find(table.columns, name, &ColumnProfile::name) != table.columns.end()) name += "_";
  return name;
}

std::string layer(const std::string& settings) { return "\n[[model]]\n" + settings + "\n"; }

// The texts that stand for missing values: the usual ones, and those beside the numbers of columns in use.
std::vector<std::string> missing_values(const Plan& plan) {
  std::vector<std::string> texts = data::CsvOptions().missing_values;
  for (const Use& use : plan.uses)
    if (use.role != Role::LeftOut && is_number(*use.column))
      for (const Cell& odd : use.column->odd_cells)
        if (std::ranges::find(texts, odd.text) == texts.end()) texts.push_back(odd.text);
  return texts;
}

// The layers, and how they are trained.
std::string model_text(bool ordered, std::int64_t num_classes) {
  std::string text;
  if (ordered) text += layer("type = \"lstm\"\nhidden = 32");
  text += layer("type = \"last\"");
  if (!ordered) text += layer("type = \"linear\"\nunits = 32") + layer("type = \"tanh\"");
  text += layer(fmt::format("type = \"linear\"\nunits = {}", std::max<std::int64_t>(1, num_classes)));
  if (num_classes > 0) text += "\n[loss]\ntype = \"cross_entropy\"\n";
  return text +
         "\n[optimizer]\ntype = \"adam\"\nlearning_rate = 3e-3\n\n[train]\nepochs = 50\nbatch_size = 64\n"
         "patience = 8  # epochs in a row without a better validation\n" +
         (num_classes > 0 ? "metric = \"accuracy\"\n" : "");
}

// A configuration for the table: of windows where a column of times orders the rows, else of rows one by one.
std::string configuration(const NewCommand& options, const Plan& plan) {
  const ColumnProfile* target = &plan.target();
  const ColumnProfile* time = plan.time();
  const bool classes = is_text(*target), ordered = time != nullptr;
  std::vector<std::string> inputs, categories, left_out;
  bool missing = target->num_missing + target->num_odd > 0;
  for (const Use& use : plan.uses) {
    const ColumnProfile& c = *use.column;
    if (use.role == Role::LeftOut) left_out.push_back(printable(c.name) + " (" + use.note + ")");
    if (use.role != Role::Input) continue;
    inputs.push_back(c.name);
    if (is_text(c)) categories.push_back(c.name);
    missing = missing || c.num_missing + c.num_odd > 0;
  }
  const std::string before = fresh(target->name + "_before", plan.table), hour = fresh("hour", plan.table),
                    day = fresh("weekday", plan.table);
  const bool past = ordered && !classes, hours = ordered && plan.steps.commonest < 86400,
             days = ordered && plan.steps.commonest <= 86400;
  if (past) inputs.push_back(before);
  if (hours) inputs.push_back(hour);
  if (days) inputs.push_back(day);
  if (inputs.empty())
    throw UserError("new", "the table must have a column that can be an input beside the target",
                    options.table + (left_out.empty() ? "" : fmt::format(" without {}", fmt::join(left_out, ", "))),
                    "a second column of numbers, times or categories that vary");

  const fs::path folder = options.out.empty() ? fs::path(".") : fs::path(options.out).parent_path();
  const std::string file = fs::path(options.table).is_absolute()
                               ? options.table
                               : fs::path(options.table).lexically_proximate(folder).string();
  std::string text =
      fmt::format("# Made by `hotloop new` from the first rows of {}: a place to start from.\n", options.table);
  for (const std::string& column : left_out) text += "# Left out: " + column + ".\n";
  text += fmt::format("\n[data]\nfile = {}\n", print_toml(file));
  if (options.separator != ",") text += "separator = " + print_toml(options.separator) + "\n";
  const std::vector<std::string> markers = missing_values(plan);
  if (markers.size() > data::CsvOptions().missing_values.size())
    text += "missing_values = " + list(markers) + "  # cells that stand for one\n";
  text += fmt::format("target = {}\ninputs = {}\n", print_toml(target->name), list(inputs));
  if (classes) text += "task = \"classification\"\n";
  if (ordered) text += fmt::format("time = {}\n", print_toml(time->name));
  if (ordered && time->dates != data::DateOrder::YearFirst)
    text += fmt::format("date_format = {}\n", print_toml(data::date_formats[static_cast<std::size_t>(time->dates)]));
  if (plan.steps.vary)
    text += "time_step = \"any\"  # steps vary: each row follows the one before, however long after\n";
  if (missing)
    text +=
        ordered ? "missing = \"forward\"  # the last value before\n" : "missing = \"mean\"  # of the training rows\n";
  if (past)
    text += fmt::format("\n[[data.lag]]  # the target's own past\nname = {}\ncolumn = {}\nsteps = 1\n",
                        print_toml(before), print_toml(target->name));
  if (past && !missing)
    text += fmt::format("\n[[data.fill]]  # a row to forecast leaves its target empty\ncolumns = {}\nwith = \"drop\"\n",
                        list({target->name}));
  if (hours) text += fmt::format("\n[[data.periodic]]\nname = {}\nof = \"hour_of_day\"\n", print_toml(hour));
  if (days) text += fmt::format("\n[[data.periodic]]\nname = {}\nof = \"day_of_week\"\n", print_toml(day));
  for (const std::string& name : categories)
    text += fmt::format("\n[[data.one_hot]]\ncolumn = {}\nunknown = \"zeros\"\n", print_toml(name));
  const std::int64_t length = ordered ? window_length(*time) : 1;
  text += fmt::format("\n[window]\nlength = {}  # rows that the model sees\n", length);
  if (!ordered)
    text += "\n[split]\nby = \"random\"  # no column of times: rows that have nothing to do with each other\n";

  text += model_text(ordered, classes ? target->num_different : 0);
  if (past)
    text += fmt::format("\n[[baseline]]\ntype = \"column\"\ncolumn = {}\nname = \"the last known value\"\n",
                        print_toml(before));
  if (!classes) text += "\n[[baseline]]\ntype = \"ridge\"\n";
  return text;
}

std::string kind_name(const Use& use) {
  if (is_number(*use.column)) return "numbers";
  if (use.column->kind == data::ColumnKind::Time) return "times";
  return use.role == Role::Target ? "classes" : use.role == Role::Input ? "categories" : "texts";
}

// What each column is used for, in 80 columns.
std::string description(const Plan& plan) {
  constexpr std::array roles = {"target", "time", "input", "left out"};  // by Role
  constexpr std::size_t most = 24;                                       // characters of a name
  std::size_t width = std::string_view("column").size();
  for (const Use& use : plan.uses) width = std::max(width, std::min(printable(use.column->name).size(), most));
  const auto line = [&](const std::string& name, std::string_view role, std::string_view kind,
                        const std::string& note) {
    const std::string start = fmt::format("  {:<{}.{}}  {:<8}  {:<10}", name, width, most, role, kind);
    return note.empty() ? start.substr(0, start.find_last_not_of(' ') + 1) + "\n"
                        : start + "  " + wrapped(note, width + 26) + "\n";
  };
  std::string out = line("column", "role", "kind", "note");
  for (const Use& use : plan.uses)
    out += line(printable(use.column->name), roles[static_cast<std::size_t>(use.role)], kind_name(use), use.note);
  const bool times = std::ranges::any_of(
      plan.uses, [](const Use& use) { return use.column->kind == data::ColumnKind::Time && use.column->varies(); });
  if (times && plan.time() == nullptr)
    out +=
        "\nNo column of times is in use: each row stands alone, without what was before.\n"
        "Mend that column as said above, and make the configuration anew.\n";
  return out;
}

// How to read a header that came out as one name, which holds another separator.
std::optional<std::string> separator_hint(const std::vector<std::string>& names, char used) {
  const auto other = names.size() == 1 ? data::other_separator(names[0], used) : std::nullopt;
  if (!other) return std::nullopt;
  return "the file seems to use another separator: --separator " +
         (*other == '\t' ? "$'\\t'" : "\"" + std::string(1, *other) + "\"");
}

void make_configuration(const NewCommand& options) {
  if (options.separator.size() != 1)
    throw UserError("new", "the separator must be one character", print_toml(options.separator),
                    R"(--separator ";", or --separator $'\t' for tabs)");
  if (!options.out.empty() && fs::exists(options.out))
    throw UserError("new", "the file to write must not exist", options.out, "another name, or remove it");
  data::CsvOptions csv;
  csv.separator = options.separator[0];
  const std::vector<std::string> names = data::open_file(options.table, csv)->column_names();
  if (options.target.empty() || std::ranges::find(names, options.target) == names.end())
    throw UserError("new", "the target must be a column of " + options.table, print_toml(options.target),
                    separator_hint(names, csv.separator).value_or(nearest_hint(options.target, names)));
  ProfileOptions profile{.csv = csv};
  if (options.task == "classification") profile.texts = options.target;
  if (const auto format = std::ranges::find(data::date_formats, options.date_format);
      format != data::date_formats.end())
    profile.dates = static_cast<data::DateOrder>(format - data::date_formats.begin());
  const Plan plan = make_plan(options, profile_table(options.table, profile));
  const std::string text = configuration(options, plan);
  if (options.out.empty()) {
    fmt::print(stderr, "{}", description(plan));
    fmt::print("{}", text);
    return;
  }
  io::write_file_atomic(options.out, text, "new");
  fmt::print("{0}\n{1} written. Next: hotloop train {1}\n", description(plan), options.out);
}

}  // namespace

void command_new(CLI::App& app) {
  CLI::App* command = app.add_subcommand("new", "Write a configuration for a table");
  command->footer(
      "\nThe first 10,000 rows tell which columns are numbers, times and categories; what\n"
      "each is used for is printed as a table. With a column of times that rises, the\n"
      "model sees windows of rows; else single rows.\n"
      "The configuration is a place to start from: hotloop train takes it as it is.");
  auto options = std::make_shared<NewCommand>();
  command->add_option("TABLE", options->table, "CSV with a header line, .npy or .npz")->required();
  command->add_option("--target", options->target, "column to predict")->required();
  command->add_option("--separator", options->separator, "of CSV [,]");
  command->add_option("--task", options->task, "of the target [by its cells]")
      ->check(CLI::IsMember({"regression", "classification"}));
  command->add_option("--date-format", options->date_format, "of times [by the dates]")
      ->check(CLI::IsMember(data::date_formats));
  command->add_option("-o,--out", options->out, "file to write [standard output]");
  command->callback([options] { make_configuration(*options); });
}

}  // namespace hotloop::cli
