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
#include "cli/data_config.h"
#include "cli/output_guard.h"
#include "cli/report.h"
#include "cli/table_plan.h"
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
  std::string table, out, separator = ",", date_format;
  PlanOptions plan;
  bool overwrite = false;
};

constexpr std::int64_t least_groups = 10;  // that are parted as wholes

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
std::vector<std::string> missing_values(const TablePlan& plan) {
  std::vector<std::string> texts = data::CsvOptions().missing_values;
  for (const Use& use : plan.uses)
    if (use.role != Role::LeftOut && is_number(*use.column))
      for (const Cell& odd : use.column->odd_cells)
        if (std::ranges::find(texts, odd.text) == texts.end()) texts.push_back(odd.text);
  return texts;
}

// What judges classes: where nearly all rows have one of them, no accuracy tells a model that learned from one that did not.
std::string metric_text(const ColumnProfile& target) {
  std::map<double, std::int64_t> counts;
  std::int64_t num_rows = 0, commonest = 0;
  for (const double v : target.values) {
    if (std::isnan(v)) continue;
    ++num_rows;
    commonest = std::max(commonest, ++counts[v]);
  }
  if (5 * commonest <= 4 * num_rows) return "metric = \"accuracy\"\n";
  return fmt::format("metric = \"{}\"  # of accuracy, the commonest class alone has {:.2f}\n",
                     counts.size() == 2 ? "auc" : "f1", static_cast<double>(commonest) / static_cast<double>(num_rows));
}

// The layers, and how they are trained.
std::string model_text(const TablePlan& plan, bool ordered) {
  const bool classes = is_text(plan.target()), recurrent = ordered || plan.sample() != nullptr;
  std::string text;
  if (recurrent) text += layer("type = \"lstm\"\nhidden = 32");
  text += layer("type = \"last\"");
  if (!recurrent) text += layer("type = \"linear\"\nunits = 32") + layer("type = \"tanh\"");
  text += layer(fmt::format("type = \"linear\"\nunits = {}", classes ? plan.target().num_different : 1));
  if (classes) text += "\n[loss]\ntype = \"cross_entropy\"\n";
  return text +
         fmt::format(
             "\n[optimizer]\ntype = \"adam\"\nlearning_rate = 3e-3\n\n[train]\nepochs = 50\nbatch_size = {}\n"
             "patience = 8  # epochs in a row without a better validation\n",
             plan.sample() == nullptr ? 64 : 16) +
         (classes ? metric_text(plan.target()) : "");
}

// A configuration for the table: of windows where the rows are in order, of series where several are one sample, else of rows one by one.
std::string configuration(const NewCommand& options, const TablePlan& plan) {
  const ColumnProfile* target = &plan.target();
  const ColumnProfile* time = plan.time();
  const ColumnProfile* group = plan.group();
  const ColumnProfile* sample = plan.sample();
  const bool classes = is_text(*target), ordered = time != nullptr || (options.plan.in_order && sample == nullptr);
  std::vector<std::string> inputs, categories, left_out;
  bool missing = target->num_missing + target->num_odd > 0;
  for (const Use& use : plan.uses) {
    const ColumnProfile& c = *use.column;
    if (use.role == Role::LeftOut) left_out.push_back(printable(c.name) + " (" + use.note + ")");
    // Which series a window is of tells its level, where parts are cut by time; parts of whole groups share none.
    const bool known_series = use.role == Role::Group && ordered && c.num_different <= most_categories;
    if (use.role != Role::Input && !known_series) continue;
    inputs.push_back(c.name);
    if (is_text(c)) categories.push_back(c.name);
    missing = missing || c.num_missing + c.num_odd > 0;
  }
  const std::string before = fresh(target->name + "_before", plan.table), hour = fresh("hour", plan.table),
                    day = fresh("weekday", plan.table);
  const bool past = ordered && !classes, hours = time != nullptr && plan.steps.commonest < 86400,
             days = time != nullptr && plan.steps.commonest <= 86400;
  if (past) inputs.push_back(before);
  if (hours) inputs.push_back(hour);
  if (days) inputs.push_back(day);
  if (inputs.empty())
    throw UserError("new", "the table must have a column that can be an input beside the target",
                    options.table + (left_out.empty() ? "" : fmt::format(" without {}", fmt::join(left_out, ", "))),
                    "a second column of numbers, times or categories that vary");

  const std::string file = fs::path(options.table).is_absolute()
                               ? options.table
                               : seen_from(fs::path(options.out).parent_path(), options.table).string();
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
  if (time != nullptr) text += fmt::format("time = {}\n", print_toml(time->name));
  if (sample != nullptr)
    text +=
        fmt::format("sample = {}  # rows with the same one are a series with one target\n", print_toml(sample->name));
  if (group != nullptr)
    text += fmt::format("group = {}  # no window and no lag goes from one to another\n", print_toml(group->name));
  if (time != nullptr && time->dates != data::DateOrder::YearFirst)
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
  const std::int64_t length = ordered ? plan.window_length : 1;
  if (sample == nullptr) text += fmt::format("\n[window]\nlength = {}  # rows that the model sees\n", length);
  if (sample != nullptr)
    text += "\n[split]\nby = \"random\"  # whole series\n";
  else if (!ordered && group != nullptr && group->num_different >= least_groups)
    text += "\n[split]\nby = \"group\"  # whole groups: none is in two parts\n";
  else if (!ordered)
    text += "\n[split]\nby = \"random\"  # no column of times: rows that have nothing to do with each other\n";

  text += model_text(plan, ordered);
  if (past)
    text += fmt::format("\n[[baseline]]\ntype = \"column\"\ncolumn = {}\nname = \"the last known value\"\n",
                        print_toml(before));
  // Of series it has a weight for each number of the longest.
  if (!classes && sample == nullptr) text += "\n[[baseline]]\ntype = \"ridge\"\n";
  return text;
}

std::string kind_name(const Use& use) {
  if (is_number(*use.column)) return "numbers";
  if (use.column->kind == data::ColumnKind::Time) return "times";
  return use.role == Role::Target ? "classes" : use.role == Role::Input ? "categories" : "texts";
}

// What each column is used for, in 80 columns.
std::string description(const TablePlan& plan, bool in_order) {
  constexpr std::array roles = {"target", "time", "group", "sample", "input", "left out"};  // by Role
  constexpr std::size_t most = 24;                                                          // characters of a name
  std::size_t width = std::string_view("column").size();
  for (const Use& use : plan.uses) width = std::max(width, std::min(num_columns(printable(use.column->name)), most));
  const auto line = [&](const std::string& name, std::string_view role, std::string_view kind,
                        const std::string& note) {
    const std::string start = fmt::format("  {}  {:<8}  {:<10}", padded(shortened(name, most, ""), width), role, kind);
    return note.empty() ? start.substr(0, start.find_last_not_of(' ') + 1) + "\n"
                        : start + "  " + wrapped(note, width + 26) + "\n";
  };
  std::string out = line("column", "role", "kind", "note");
  for (const Use& use : plan.uses)
    out += line(printable(use.column->name), roles[static_cast<std::size_t>(use.role)], kind_name(use), use.note);
  const bool times = std::ranges::any_of(
      plan.uses, [](const Use& use) { return use.column->kind == data::ColumnKind::Time && use.column->varies(); });
  if (in_order || plan.time() != nullptr || plan.sample() != nullptr) return out;
  if (!times)
    out += "\nEach row stands alone. Where one follows the other at equal steps: --in-order.\n";
  else
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
  if (!options.out.empty())
    check_output_file("new", options.out, std::array<fs::path, 1>{options.table}, options.overwrite);
  data::CsvOptions csv;
  csv.separator = options.separator[0];
  const std::vector<std::string> names = data::open_file(options.table, csv)->column_names();
  if (options.plan.target.empty() || std::ranges::find(names, options.plan.target) == names.end())
    throw UserError("new", "the target must be a column of " + options.table, print_toml(options.plan.target),
                    separator_hint(names, csv.separator).value_or(nearest_hint(options.plan.target, names)));
  ProfileOptions profile{.csv = csv};
  if (options.plan.task == "classification") profile.texts.push_back(options.plan.target);
  if (!options.plan.group.empty()) profile.texts.push_back(options.plan.group);
  if (!options.plan.sample.empty()) profile.texts.push_back(options.plan.sample);
  if (const auto format = std::ranges::find(data::date_formats, options.date_format);
      format != data::date_formats.end())
    profile.dates = static_cast<data::DateOrder>(format - data::date_formats.begin());
  const TablePlan plan = make_plan(options.plan, profile_table(options.table, profile));
  const std::string text = configuration(options, plan);
  if (options.out.empty()) {
    fmt::print(stderr, "{}", description(plan, options.plan.in_order));
    fmt::print("{}", text);
    return;
  }
  io::write_file_atomic(options.out, text, "new");
  fmt::print("{0}\n{1} written. Next: hotloop train {1}\n", description(plan, options.plan.in_order), options.out);
}

}  // namespace

void command_new(CLI::App& app) {
  CLI::App* command = app.add_subcommand("new", "Write a configuration for a table");
  command->footer(
      "\nThe first 10,000 rows tell which columns are numbers, times and categories; what\n"
      "each is used for is printed as a table. With a column of times that rises, or\n"
      "with --in-order, the model sees windows of rows; with --sample whole series that\n"
      "have one target each; else single rows.\n"
      "The configuration is a place to start from: hotloop train takes it as it is.");
  auto options = std::make_shared<NewCommand>();
  command->add_option("TABLE", options->table, "CSV with a header line, .npy or .npz")->required();
  command->add_option("--target", options->plan.target, "column to predict")->required();
  command->add_option("--group", options->plan.group, "column that names a row's series [one series]");
  command->add_option("--sample", options->plan.sample, "column that names a series with one target");
  command->add_flag("--in-order", options->plan.in_order, "rows follow one another at equal steps");
  command->add_option("--separator", options->separator, "of CSV [,]");
  command->add_option("--task", options->plan.task, "of the target [by its cells]")
      ->check(CLI::IsMember({"regression", "classification"}));
  command->add_option("--date-format", options->date_format, "of times [by the dates]")
      ->check(CLI::IsMember(data::date_formats));
  command->add_option("-o,--out", options->out, "file to write [standard output]");
  command->add_flag("--overwrite", options->overwrite, "replace the file");
  command->callback([options] { make_configuration(*options); });
}

}  // namespace hotloop::cli
