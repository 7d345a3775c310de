#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <optional>

#include "cli/command.h"
#include "core/nearest.h"
#include "data/separator.h"
#include "hotloop/error.h"
#include "hotloop/table.h"
#include "io/files.h"

namespace hotloop::cli {
namespace {

namespace fs = std::filesystem;

struct NewCommand {
  std::string table, target, out, separator = ",";
};

// What the first rows tell about a column.
struct Column {
  std::string name;
  data::ColumnKind kind = data::ColumnKind::Number;
  std::vector<double> values = {};
  std::int64_t num_labels = 0;
  bool missing = false;

  bool varies() const {
    const auto first = std::ranges::find_if(values, [](double v) { return std::isfinite(v); });
    return std::any_of(first, values.end(), [&](double v) { return std::isfinite(v) && v != *first; });
  }
  bool rises() const { return !missing && std::ranges::adjacent_find(values, std::greater_equal()) == values.end(); }
};

constexpr std::int64_t rows_looked_at = 10'000;
constexpr std::int64_t most_categories = 20;

std::optional<Column> column_as(const NewCommand& options, const std::string& name, data::ColumnKind kind) {
  data::CsvOptions csv;
  csv.separator = options.separator[0];
  const std::unique_ptr<data::RowSource> rows = data::open_file(options.table, csv);
  Column column{.name = name, .kind = kind};
  try {
    rows->select({{name, kind, true}});
    for (data::RowBlock block; static_cast<std::int64_t>(column.values.size()) < rows_looked_at && rows->next(block);)
      column.values.insert(column.values.end(), block.columns[0].begin(), block.columns[0].end());
  } catch (const UserError&) {
    if (kind == data::ColumnKind::Text) throw;
    return std::nullopt;
  }
  column.missing = std::ranges::any_of(column.values, [](double v) { return std::isnan(v); });
  if (kind == data::ColumnKind::Text) column.num_labels = static_cast<std::int64_t>(rows->labels(0).size());
  return column;
}

std::string quoted(const std::string& text) {
  std::string out = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') out += '\\';
    out += c;
  }
  return out + "\"";
}

std::string list(const std::vector<std::string>& names) {
  std::string out;
  for (const std::string& name : names) out += (out.empty() ? "" : ", ") + quoted(name);
  return "[" + out + "]";
}

// A name that no column has.
std::string fresh(std::string name, const std::vector<Column>& columns) {
  while (std::ranges::any_of(columns, [&](const Column& c) { return c.name == name; })) name += "_";
  return name;
}

std::string layer(const std::string& settings) { return "\n[[model]]\n" + settings + "\n"; }

// A configuration for the table: of windows where a column of times orders the rows, else of rows one by one.
std::string configuration(const NewCommand& options, const std::vector<Column>& columns) {
  const auto target = std::ranges::find_if(columns, [&](const Column& c) { return c.name == options.target; });
  const bool classes = target->kind == data::ColumnKind::Text;
  const auto time =
      std::ranges::find_if(columns, [](const Column& c) { return c.kind == data::ColumnKind::Time && c.rises(); });
  const bool ordered = time != columns.end();
  std::vector<std::string> inputs, categories, left_out;
  bool missing = false;
  for (const Column& c : columns) {
    if (&c == &*target || (ordered && &c == &*time)) continue;
    const bool words = c.kind == data::ColumnKind::Text;
    if (!c.varies())
      left_out.push_back(c.name + " (one value)");
    else if (c.kind == data::ColumnKind::Time)
      left_out.push_back(c.name + " (times that do not rise from row to row)");
    else if (words && c.num_labels > most_categories)
      left_out.push_back(fmt::format("{} ({} different texts)", c.name, c.num_labels));
    else
      inputs.push_back(c.name), missing = missing || c.missing;
    if (words && !inputs.empty() && inputs.back() == c.name) categories.push_back(c.name);
  }
  const std::string before = fresh(target->name + "_before", columns), hour = fresh("hour", columns),
                    day = fresh("weekday", columns);
  const double step = ordered && time->values.size() > 1 ? time->values[1] - time->values[0] : 0;
  const bool past = ordered && !classes, hours = ordered && step < 86400, days = ordered && step <= 86400;
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
  text += fmt::format("\n[data]\nfile = {}\n", quoted(file));
  if (options.separator != ",") text += "separator = " + quoted(options.separator) + "\n";
  text += fmt::format("target = {}\ninputs = {}\n", quoted(target->name), list(inputs));
  if (classes) text += "task = \"classification\"\n";
  if (ordered) text += fmt::format("time = {}\n", quoted(time->name));
  if (missing)
    text +=
        ordered ? "missing = \"forward\"  # the last value before\n" : "missing = \"mean\"  # of the training rows\n";
  if (past)
    text += fmt::format("\n[[data.lag]]  # the target's own past\nname = {}\ncolumn = {}\nsteps = 1\n", quoted(before),
                        quoted(target->name));
  if (hours) text += fmt::format("\n[[data.periodic]]\nname = {}\nof = \"hour_of_day\"\n", quoted(hour));
  if (days) text += fmt::format("\n[[data.periodic]]\nname = {}\nof = \"day_of_week\"\n", quoted(day));
  for (const std::string& name : categories)
    text += fmt::format("\n[[data.one_hot]]\ncolumn = {}\nunknown = \"zeros\"\n", quoted(name));
  const std::int64_t length =
      ordered ? std::clamp<std::int64_t>(static_cast<std::int64_t>(target->values.size()) / 20, 1, 24) : 1;
  text += fmt::format("\n[window]\nlength = {}  # rows that the model sees\n", length);
  if (!ordered)
    text += "\n[split]\nby = \"random\"  # no column of times: rows that have nothing to do with each other\n";

  if (ordered) text += layer("type = \"lstm\"\nhidden = 32");
  text += layer("type = \"last\"");
  if (!ordered) text += layer("type = \"linear\"\nunits = 32") + layer("type = \"tanh\"");
  text += layer(fmt::format("type = \"linear\"\nunits = {}", classes ? target->num_labels : 1));
  if (classes) text += "\n[loss]\ntype = \"cross_entropy\"\n";
  text += fmt::format(
      "\n[optimizer]\ntype = \"adam\"\nlearning_rate = 3e-3\n\n[train]\nepochs = 50\nbatch_size = 64\npatience = 8  # "
      "epochs in a row without a better validation\n{}",
      classes ? "metric = \"accuracy\"\n" : "");
  if (past)
    text += fmt::format("\n[[baseline]]\ntype = \"column\"\ncolumn = {}\nname = \"the last known value\"\n",
                        quoted(before));
  if (!classes) text += "\n[[baseline]]\ntype = \"ridge\"\n";
  return text;
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
    throw UserError("new", "the separator must be one character", quoted(options.separator),
                    R"(--separator ";", or --separator $'\t' for tabs)");
  if (!options.out.empty() && fs::exists(options.out))
    throw UserError("new", "the file to write must not exist", options.out, "another name, or remove it");
  data::CsvOptions csv;
  csv.separator = options.separator[0];
  const std::vector<std::string> names = data::open_file(options.table, csv)->column_names();
  if (std::ranges::find(names, options.target) == names.end())
    throw UserError("new", "the target must be a column of " + options.table, quoted(options.target),
                    separator_hint(names, csv.separator).value_or(nearest_hint(options.target, names)));
  std::vector<Column> columns;
  for (const std::string& name : names)
    for (const data::ColumnKind kind : {data::ColumnKind::Number, data::ColumnKind::Time, data::ColumnKind::Text})
      if (std::optional<Column> column = column_as(options, name, kind)) {
        columns.push_back(std::move(*column));
        break;
      }
  const auto target = std::ranges::find_if(columns, [&](const Column& c) { return c.name == options.target; });
  if (target->kind == data::ColumnKind::Time || !target->varies())
    throw UserError("new", "the target must be numbers or classes that vary", quoted(options.target),
                    "another column as the target");
  const std::string text = configuration(options, columns);
  if (options.out.empty()) {
    fmt::print("{}", text);
    return;
  }
  io::write_file_atomic(options.out, text, "new");
  fmt::print("{0} written. Next: hotloop train {0}\n", options.out);
}

}  // namespace

void command_new(CLI::App& app) {
  CLI::App* command = app.add_subcommand("new", "Write a configuration for a table");
  command->footer(
      "\nThe first 10,000 rows tell which columns are numbers, times and categories. With\n"
      "a column of times that rises, the model sees windows of rows; else single rows.\n"
      "What it prints is a place to start from: hotloop train takes it as it is.");
  auto options = std::make_shared<NewCommand>();
  command->add_option("TABLE", options->table, "CSV with a header line, .npy or .npz")->required();
  command->add_option("--target", options->target, "column to predict")->required();
  command->add_option("--separator", options->separator, "of CSV [,]");
  command->add_option("-o,--out", options->out, "file to write [standard output]");
  command->callback([options] { make_configuration(*options); });
}

}  // namespace hotloop::cli
