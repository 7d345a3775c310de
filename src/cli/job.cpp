#include "cli/job.h"

#include <algorithm>
#include <set>

#include "cli/config_reader.h"
#include "core/nearest.h"
#include "hotloop/error.h"
#include "optim/registry.h"

namespace hotloop::cli {
namespace {

const std::vector<std::string> backends = {"llvm", "c", "interp"};

template <class Defs> std::vector<std::string> names_of(const Defs& defs) {
  std::vector<std::string> names;
  for (const auto& def : defs) names.push_back(def.name);
  return names;
}

void read_data(ConfigFile& file, const std::filesystem::path& folder, const JobOverrides& overrides,
               const std::optional<std::filesystem::path>& shown_from, Job& job) {
  Section data = file.section("data", "The table, and which of its columns are used.");
  const std::string given = data.text("file", "CSV file with a header line, relative to this file");
  job.data_file = (folder / given).lexically_normal();
  if (overrides.data_file) job.data_file = *overrides.data_file;
  if (shown_from) {
    const std::filesystem::path shown = std::filesystem::proximate(job.data_file, *shown_from);
    data.override_with("file", shown.string());
  }
  const std::string separator = data.text("separator", "between cells", ",");
  if (separator.size() != 1) data.refuse("separator", "must be one character", print_toml(separator));
  job.separator = separator[0];
  job.window.target = data.text("target", "column to predict");
  job.inputs = data.texts("inputs", "columns, lags and periodic names the model sees, in order");

  for (Section& lag : file.sections("data.lag", "Columns as they were some rows earlier.")) {
    LagColumn column;
    column.name = lag.text("name", "of the new column");
    column.column = lag.text("column", "of the file");
    column.steps = lag.integer("steps", "rows earlier", {}, 1);
    job.lags.push_back(std::move(column));
  }
  for (Section& periodic :
       file.sections("data.periodic", "Sines and cosines of (floor(row / step) + phase) mod period.")) {
    PeriodicColumns columns;
    columns.name = periodic.text("name", "of the new columns: name_sin1, name_cos1, ...");
    columns.spec.period = periodic.number("period", "in units of step rows");
    if (!(columns.spec.period > 0)) periodic.refuse("period", "must be positive", print_toml(columns.spec.period));
    columns.spec.step = periodic.integer("step", "rows over which the position stands still", 1, 1);
    columns.spec.phase = periodic.number("phase", "position of the first row", 0.0);
    columns.spec.harmonics = static_cast<int>(periodic.integer("harmonics", "number of sine and cosine pairs", 1, 1));
    job.periodics.push_back(std::move(columns));
  }
}

void read_window(ConfigFile& file, Job& job) {
  Section window = file.section("window", "What one sample is.");
  job.window.length = window.integer("length", "rows the model sees", {}, 1);
  job.window.stride = window.integer("stride", "rows from one window to the next", 1, 1);
  job.window.horizon = window.integer("horizon", "rows from a window's last row to its target", 0, 0);
  job.window.standardize = window.flag("standardize", "to mean 0 and deviation 1 over the training rows", true);
  Section split = file.section("split", "Parts of the table's rows, in order of time; the rest is the test part.");
  job.window.train = split.number("train", "fraction", 0.7);
  job.window.validation = split.number("validation", "fraction", 0.15);
}

void read_components(ConfigFile& file, Job& job) {
  for (Section& layer : file.sections("model", "The layers, one after another.")) {
    const std::string type = layer.text("type", "of layer", {}, names_of(nn::all_layers()));
    job.model.push_back({type, layer.settings(nn::layer_def(type).parameters)});
  }
  if (job.model.empty())
    throw UserError("config", "a configuration must have at least one [[model]] table", "none",
                    "[[model]] with type = \"linear\", units = 1");
  Section loss = file.section("loss", "What training makes small.");
  job.loss_name = loss.text("type", "of loss", "mse", names_of(losses::all_losses()));
  job.fit.loss = losses::make_loss(job.loss_name, loss.settings(losses::loss_def(job.loss_name).parameters));
  Section optimizer = file.section("optimizer", "How.");
  job.optimizer_name = optimizer.text("type", "of optimiser", "adam", names_of(optim::all_optimizers()));
  job.fit.optimizer = optim::make_optimizer(job.optimizer_name,
                                            optimizer.settings(optim::optimizer_def(job.optimizer_name).parameters));
}

void read_train(ConfigFile& file, const JobOverrides& overrides, Job& job) {
  Section train = file.section("train", "The loop.");
  if (overrides.epochs) train.override_with("epochs", *overrides.epochs);
  if (overrides.batch_size) train.override_with("batch_size", *overrides.batch_size);
  if (overrides.seed) train.override_with("seed", *overrides.seed);
  if (overrides.threads) train.override_with("threads", *overrides.threads);
  if (overrides.backend) train.override_with("backend", *overrides.backend);
  job.fit.epochs = train.integer("epochs", "passes over the training samples", 10, 1);
  job.fit.batch_size = train.integer("batch_size", "samples a step", 32, 1);
  job.fit.seed = static_cast<std::uint64_t>(train.integer("seed", "of parameters and sample order", 0, 0));
  job.fit.shuffle = train.flag("shuffle", "a new order of the samples each epoch", true);
  job.fit.init = train.text("init", "whose initial parameters", "torch", {"torch", "keras"}) == "keras"
                     ? nn::Init::Keras
                     : nn::Init::Torch;
  job.fit.metric = train.text("metric", "of validation and test", "mae", {"mae", "mse"}) == "mse"
                       ? train::Metric::mse()
                       : train::Metric::mae();
  job.window.dtype = dtype_from_name(train.text("dtype", "of all arithmetic", "f32", {"f32", "f64"}));
  job.fit.compile.threads = static_cast<int>(train.integer("threads", "0: all cores; same results for any", 1, 0));
  job.fit.compile.device = train.text("device", "to run on", "auto", {"auto", "cpu"});
  job.fit.compile.backend = train.text("backend", "that makes the code", "llvm", backends);
}

void read_baselines(ConfigFile& file, Job& job) {
  for (Section& section : file.sections("baseline", "Simple models the result is compared with.")) {
    Baseline baseline;
    const std::string type = section.text("type", "of baseline", {}, {"column", "ridge"});
    if (type == "column") {
      baseline.kind = Baseline::Kind::Column;
      baseline.column = section.text("column", "whose value is the prediction");
      baseline.name = section.text("name", "in the report", baseline.column);
    } else {
      baseline.kind = Baseline::Kind::Ridge;
      baseline.name = section.text("name", "in the report", "ridge regression on the window");
      baseline.lambdas =
          section.numbers("lambdas", "penalties, chosen on the validation part", std::vector<double>{1, 10, 100, 1000});
      if (baseline.lambdas.empty() || !std::ranges::all_of(baseline.lambdas, [](double l) { return l >= 0; }))
        section.refuse("lambdas", "must be numbers that are not negative",
                       std::to_string(baseline.lambdas.size()) + " numbers");
    }
    job.baselines.push_back(std::move(baseline));
  }
}

// The inputs with each periodic name replaced by its columns.
std::vector<std::string> expanded_inputs(const Job& job) {
  std::vector<std::string> out;
  for (const std::string& name : job.inputs) {
    const auto periodic = std::ranges::find(job.periodics, name, &PeriodicColumns::name);
    if (periodic == job.periodics.end()) {
      out.push_back(name);
      continue;
    }
    for (int k = 1; k <= periodic->spec.harmonics; ++k) {
      out.push_back(name + "_sin" + std::to_string(k));
      out.push_back(name + "_cos" + std::to_string(k));
    }
  }
  return out;
}

Job parse_job(const std::filesystem::path& path, const JobOverrides& overrides,
              const std::optional<std::filesystem::path>& shown_from) {
  ConfigFile file = ConfigFile::read(path);
  Job job;
  read_data(file, path.parent_path(), overrides, shown_from, job);
  read_window(file, job);
  read_components(file, job);
  read_train(file, overrides, job);
  read_baselines(file, job);
  file.finish();
  if (job.inputs.empty())
    throw UserError(path.string() + " [data]", "'inputs' must name at least one column", "an empty list");
  job.window.inputs = expanded_inputs(job);
  job.text = file.print();
  return job;
}

}  // namespace

ValueType Job::input_type() const {
  return {window.dtype, {fit.batch_size, window.length, static_cast<std::int64_t>(window.inputs.size())}};
}

nn::Layer Job::make_model() const { return nn::make_model(model, input_type()); }

Job read_job(const std::filesystem::path& path, const JobOverrides& overrides) {
  return parse_job(path, overrides, {});
}

std::string text_for_folder(const std::filesystem::path& path, const JobOverrides& overrides,
                            const std::filesystem::path& folder) {
  return parse_job(path, overrides, folder).text;
}

data::Table load_table(const Job& job) {
  // Of the file: every name that is not derived.
  std::set<std::string> derived;
  for (const LagColumn& lag : job.lags) derived.insert(lag.name);
  for (const PeriodicColumns& periodic : job.periodics) derived.insert(periodic.name);
  std::vector<std::string> wanted;
  const auto want = [&](const std::string& name) {
    if (!derived.contains(name) && std::ranges::find(wanted, name) == wanted.end()) wanted.push_back(name);
  };
  want(job.window.target);
  for (const std::string& name : job.inputs) want(name);
  for (const LagColumn& lag : job.lags) want(lag.column);
  for (const Baseline& baseline : job.baselines)
    if (baseline.kind == Baseline::Kind::Column) want(baseline.column);

  data::Table table = data::read_csv(job.data_file, wanted, job.separator);
  for (const LagColumn& lag : job.lags) table.add(lag.name, data::lag(table[lag.column], lag.steps));
  for (const PeriodicColumns& periodic : job.periodics)
    for (auto& [name, values] : data::periodic(periodic.name, table.num_rows(), periodic.spec))
      table.add(name, std::move(values));
  return table;
}

}  // namespace hotloop::cli
