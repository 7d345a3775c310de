#include "cli/job.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "cli/data_config.h"
#include "cli/run_folder.h"
#include "core/denormals.h"
#include "core/nearest.h"
#include "hotloop/error.h"
#include "minimizers/registry.h"
#include "optim/registry.h"
#include "train/metrics.h"

namespace hotloop::cli {
namespace {

const std::vector<std::string> backends = {"llvm", "c", "interp"};

template <class Defs> std::vector<std::string> names_of(const Defs& defs) {
  std::vector<std::string> names;
  for (const auto& def : defs) names.push_back(def.name);
  return names;
}

bool has_standardized_targets(const data::Recipe& recipe) {
  return recipe.standardize && recipe.standardize_targets && recipe.task != data::Task::Classification;
}

// With the type of each.
using Tables = std::vector<std::pair<std::string, Section>>;

nn::LayerConfig read_layer(ConfigFile& file, Section& section, Tables* tables) {
  nn::LayerConfig layer;
  layer.type = section.text("type", "of layer", {}, names_of(nn::all_layers()));
  const nn::LayerDef& def = nn::layer_def(layer.type);
  layer.settings = section.settings(def.parameters);
  if (tables != nullptr) tables->emplace_back(layer.type, section);
  for (Section& inside : file.sections(section, "layer", "Inside it, one after another."))
    if (def.wrap)
      layer.layers.push_back(read_layer(file, inside, tables));
    else
      section.refuse("layer", "must not be there: '" + layer.type + "' has no layers inside", "[[model.layer]]",
                     "a [[model]] of its own");
  return layer;
}

void check_optimizer(const Section& section, const std::string& type) {
  const auto optimizers = names_of(optim::all_optimizers());
  const auto has = [&](const std::vector<std::string>& names) { return std::ranges::find(names, type) != names.end(); };
  if (has(optimizers)) return;
  if (has(names_of(minimizers::all_descents())) || has(names_of(minimizers::all_least_squares())))
    section.refuse(
        "type", "must be an optimiser, which steps from batch to batch",
        "\"" + type + "\", which minimises over all data at once",
        "adam, or for a function of all data hl.minimize of the Python package, minimize() of hotloop/minimize.h");
  section.refuse("type", "(of optimiser) must be one of its choices", "\"" + type + "\"",
                 nearest_hint(type, optimizers));
}

void read_components(ConfigFile& file, Job& job) {
  job.model = read_model(file, &job.layers);
  Section loss = file.section("loss", "What training makes small.");
  job.loss_name = loss.text("type", "of loss", "mse", names_of(losses::all_losses()));
  const auto loss_settings = loss.settings(losses::loss_def(job.loss_name).parameters);
  try {
    job.fit.loss = losses::make_loss(job.loss_name, loss_settings);
  } catch (const UserError& e) {
    loss.refuse(e);
  }
  const std::vector<Parameter>& loss_parameters = losses::loss_def(job.loss_name).parameters;
  if (std::ranges::find(loss_parameters, "logits", &Parameter::name) != loss_parameters.end()) {
    const auto logits = loss_settings.find("logits");
    const bool are = logits == loss_settings.end() || std::get<bool>(logits->second);
    job.scores = are ? Job::Scores::Logits : Job::Scores::Probabilities;
  }
  if (job.fit.loss.targets().is_bounded() && has_standardized_targets(job.recipe))
    loss.refuse("type", "must go with targets as they are: its targets are " + job.fit.loss.targets().str(),
                print_toml(job.loss_name) + " and standardised targets", "standardize_targets = false in [window]");
  Section optimizer = file.section("optimizer", "How.");
  job.optimizer_name = optimizer.text("type", "of optimiser", "adam");
  check_optimizer(optimizer, job.optimizer_name);
  const auto settings = optimizer.settings(optim::optimizer_def(job.optimizer_name).parameters);
  std::vector<optim::ComponentConfig> schedules, wrappers;
  Tables sections = {{job.optimizer_name, optimizer}};  // by type, which complaints begin with
  for (Section& section : file.sections("optimizer.schedule", "Factors of the learning rate, multiplied.")) {
    const std::string type = section.text("type", "of schedule", {}, names_of(optim::all_schedules()));
    schedules.push_back({type, section.settings(optim::schedule_def(type).parameters)});
    sections.emplace_back(type, section);
  }
  for (Section& section : file.sections("optimizer.wrapper", "Around the optimiser, the last one outermost.")) {
    const std::string type = section.text("type", "of wrapper", {}, names_of(optim::all_wrappers()));
    wrappers.push_back({type, section.settings(optim::wrapper_def(type).parameters)});
    sections.emplace_back(type, section);
  }
  try {
    job.fit.optimizer = optim::make_optimizer(job.optimizer_name, settings, schedules, wrappers);
  } catch (const UserError& e) {
    const auto section = std::ranges::find(sections, e.where(), &Tables::value_type::first);
    if (section == sections.end()) optimizer.refuse(e);
    // Of two schedules, say, it could be either.
    if (std::ranges::count(sections, e.where(), &Tables::value_type::first) > 1) throw;
    section->second.refuse(e);
  }
}

// One that has a threshold takes the loss's.
metrics::Metric make_metric(const std::string& name, const losses::Loss& loss) {
  std::map<std::string, Setting> settings;
  const std::vector<Parameter>& parameters = metrics::metric_def(name).parameters;
  if (std::ranges::find(parameters, "threshold", &Parameter::name) != parameters.end())
    settings.emplace("threshold", loss.threshold());
  return metrics::make_metric(name, settings);
}

void read_train(ConfigFile& file, Job& job) {
  Section train = file.section("train", "The loop.");
  job.fit.epochs = train.integer("epochs", "passes over the training samples", 10, 1);
  job.fit.batch_size = train.integer("batch_size", "samples a step", 32, 1);
  job.fit.seed = static_cast<std::uint64_t>(train.integer("seed", "of parameters and sample order", 0, 0));
  job.fit.generator = nn::generator_from_name(train.text(
      "generator", "of seed's numbers; torch: those of torch.manual_seed(seed)", "philox", {"philox", "torch"}));
  job.fit.shuffle = train.flag("shuffle", "a new order of the samples each epoch", true);
  job.fit.init = train.text("init", "whose initial parameters", "torch", {"torch", "keras"}) == "keras"
                     ? nn::Init::Keras
                     : nn::Init::Torch;
  std::vector<std::string> metric_names = names_of(metrics::all_metrics());
  metric_names.emplace_back("loss");
  const std::vector<std::string> chosen =
      train.text_or_texts("metric", "of validation and test; of several the first chooses; loss: the loss itself",
                          std::vector<std::string>{"mae"}, metric_names);
  if (chosen.empty()) train.refuse("metric", "must name one at least", "[]", "metric = [\"mae\", \"rmse\"]");
  for (const std::string& name : chosen) {
    if (std::ranges::count(chosen, name) > 1)
      train.refuse("metric", "must name each once", print_toml(name) + " twice");
    metrics::Metric metric = name == "loss" ? metrics::of_loss(job.fit.loss) : make_metric(name, job.fit.loss);
    // Alone it is called by the loss's name, which may be a metric's.
    if (chosen.size() > 1) metric = metric.named(name);
    if (name == chosen[0])
      job.fit.metric = std::move(metric);
    else
      job.fit.further_metrics.push_back(std::move(metric));
  }
  const std::string precision =
      train.text("precision", "of all arithmetic; bf16: f32, but products of matrices of factors in bfloat16", "f32",
                 {"f32", "f64", "bf16"});
  job.recipe.dtype = precision == "f64" ? DType::F64 : DType::F32;
  job.fit.compile.dot_precision = precision == "bf16" ? "bf16" : "f32";
  job.fit.compile.flush_denormals =
      train.flag("flush_denormals", "arithmetic counts numbers below the normal range as 0: faster, where they come up",
                 DenormalsAsZero::is_possible);
  job.fit.compile.threads = static_cast<int>(train.integer("threads", "0: all cores; same results for any", 1, 0));
  job.fit.compile.device =
      train.text("device", "cuda: a GPU; auto: as an estimate says", "auto", {"auto", "cpu", "cuda"});
  job.fit.compile.backend = train.text("backend", "that makes the code for the cpu", "llvm", backends);
  if (job.fit.compile.device == "cuda" && job.fit.compile.backend != "llvm")
    train.refuse("device", "must be auto or cpu with backend = " + print_toml(job.fit.compile.backend), "\"cuda\"",
                 "leave out the backend, which a GPU does not have");
  job.fit.steps_per_call =
      train.integer("steps_per_call", "whole batches that one call takes; same results for any", 1, 1);
  job.fit.prefetch = train.flag("prefetch", "gather batches beside the computing; same results", true);
  train::EarlyStopping& stopping = job.fit.early_stopping;
  stopping.patience =
      train.integer("patience", "epochs in a row without improvement that end the training; 0: never", 0, 0);
  stopping.min_delta = train.number("min_delta", "what counts as improvement, in the loop's standardised units", 0.0);
  if (!(stopping.min_delta >= 0)) train.refuse("min_delta", "must not be negative", print_toml(stopping.min_delta));
  const std::vector<double> weights =
      train.numbers("class_weights", "of the classes in the loss, in order; empty: all alike", std::vector<double>());
  if (!std::ranges::all_of(weights, [](double w) { return w >= 0 && std::isfinite(w); }))
    train.refuse("class_weights", "must be numbers that are not negative", std::to_string(weights.size()) + " numbers");
  if (!weights.empty()) job.fit.class_weights = Array::from(weights, {static_cast<std::int64_t>(weights.size())});

  Section checkpoint = file.section("checkpoint", "When states to go on from are written into the run's folder.");
  train::CheckpointOptions& options = job.fit.checkpoint;
  options.every_epochs = checkpoint.integer("every_epochs", "epochs; 0: at the end alone", 1, 0);
  options.every_steps = checkpoint.integer("every_steps", "steps, within epochs too; 0: not by steps", 0, 0);
  options.keep = checkpoint.integer("keep", "how many stay, the newest", 2, 1);
}

void read_baselines(ConfigFile& file, Job& job) {
  for (Section& section : file.sections("baseline", "Simple models the result is compared with.")) {
    Baseline baseline;
    const std::string type = section.text("type", "of baseline", {}, {"column", "ridge"});
    if (type == "column") {
      baseline.kind = Baseline::Kind::Column;
      baseline.columns = section.text_or_texts("column", "whose value is the prediction, or one for each target");
      const std::vector<std::string>& targets = job.recipe.targets;
      if (baseline.columns.size() != targets.size())
        section.refuse("column", targets.size() == 1 ? "must be one" : "must be a list of one for each target",
                       std::to_string(baseline.columns.size()) + " for " + std::to_string(targets.size()) +
                           (targets.size() == 1 ? " target" : " targets"));
      for (const std::string& column : baseline.columns)
        if (std::ranges::find(targets, column) != targets.end())
          section.refuse("column", "must be known when the forecast is made",
                         print_toml(column) + ", which is " + (targets.size() == 1 ? "the" : "a") + " target",
                         "the name of a [[data.lag]] of it");
      baseline.name = section.text("name", "in the report",
                                   baseline.columns.size() == 1 ? baseline.columns[0] : std::string("columns"));
    } else {
      if (job.recipe.task == data::Task::Classification)
        throw UserError(section.where("type"), "a ridge regression predicts numbers, not classes",
                        "task = \"classification\"", "leave out this [[baseline]]");
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

Job parse_job(const JobSource& source, const std::optional<std::filesystem::path>& shown_from) {
  ConfigFile file = ConfigFile::read(source.path);
  for (const Assignment& assignment : source.assignments) file.set(assignment.text, assignment.given_as);
  Job job;
  const auto data_file = [&](const std::string& given) {
    return source.data_file ? *source.data_file : named_file(RunFolder(source.path.parent_path()).home(), given);
  };
  DataConfig data = read_data_config(file, [&](const std::string& given) {
    return shown_from ? seen_from(*shown_from, data_file(given)).string() : given;
  });
  job.data_file = data_file(data.file);
  job.csv = std::move(data.csv);
  job.memory = std::move(data.memory);
  job.recipe = std::move(data.recipe);
  read_components(file, job);
  read_train(file, job);
  read_baselines(file, job);
  file.finish();
  const auto keep = [&](const std::string& column) {
    std::vector<std::string>& kept = job.recipe.kept;
    if (std::ranges::find(kept, column) == kept.end()) kept.push_back(column);
  };
  for (const Baseline& baseline : job.baselines)
    if (baseline.kind == Baseline::Kind::Column) {
      std::ranges::for_each(baseline.columns, keep);
      std::ranges::for_each(job.recipe.targets, keep);
    }
  job.text = file.print();
  return job;
}

}  // namespace

std::string Job::precision() const {
  return fit.compile.dot_precision == "f32" ? std::string(name_of(recipe.dtype)) : fit.compile.dot_precision;
}

ValueType Job::input_type() const {
  if (const std::optional<Shape> shape = data::fixed_input_shape(recipe))
    return {recipe.dtype, shape->with_inserted(0, fit.batch_size)};
  return input_type(load_samples(*this));
}

ValueType Job::input_type(const data::Samples& samples) const { return samples.train().input_type(fit.batch_size); }

std::vector<nn::LayerConfig> read_model(ConfigFile& file, Tables* tables) {
  std::vector<nn::LayerConfig> layers;
  for (Section& layer : file.sections("model", "The layers, one after another."))
    layers.push_back(read_layer(file, layer, tables));
  if (layers.empty())
    throw UserError("config", "a configuration must have at least one [[model]] table", "none",
                    "[[model]] with type = \"linear\", units = 1");
  return layers;
}

nn::Layer Job::make_model(const ValueType& input) const {
  try {
    return nn::make_model(model, input);
  } catch (const UserError& e) {
    // A message about a setting gets its place, where only one layer can be meant.
    const auto table = std::ranges::find(layers, e.where(), &Tables::value_type::first);
    if (std::ranges::count(layers, e.where(), &Tables::value_type::first) == 1 &&
        !table->second.key_named_by(e).empty())
      table->second.refuse(e);
    throw;
  }
}

void Job::check_classes(const nn::Layer& made, const data::Samples& samples) const {
  if (recipe.task != data::Task::Classification || !fit.loss.has_classes()) return;
  const ValueType output = made.output_type(input_type(samples));
  const auto num_classes = std::ssize(samples.preparation().classes());
  const std::int64_t num_outputs = output.shape.rank() > 1 ? output.shape[output.shape.rank() - 1] : 1;
  // Of one output that tells two classes, and of a loss that has none, the loss itself says what it needs.
  const bool one_for_two = num_outputs == 1 && num_classes == 2;
  if (one_for_two || num_outputs == num_classes) return;
  const std::string count = std::to_string(num_classes),
                    received = std::to_string(num_outputs) + (num_outputs == 1 ? " output" : " outputs"),
                    classes = count + ", as many as there are classes of '" + recipe.targets[0] + "'";
  // The last layer that says how many there are.
  for (auto layer = layers.rbegin(); layer != layers.rend(); ++layer)
    if (layer->second.has("units"))
      layer->second.refuse("units", "of layer " + layer->first + " must be " + classes, received, "units = " + count);
  throw UserError("model", "the outputs must be " + classes, received,
                  "a last [[model]] with type = \"linear\", units = " + count);
}

Job read_job(const JobSource& source) { return parse_job(source, {}); }

std::string text_for_folder(const JobSource& source, const std::filesystem::path& folder) {
  return parse_job(source, folder).text;
}

std::string unit_of(const Job& job) {
  const std::vector<std::string>& targets = job.recipe.targets;
  const int power = job.fit.metric.unit_power();
  if (targets.size() == 1 && power == 0) return "";
  return targets.size() == 1 ? (power == 1 ? "in units of " : "in squared units of ") + targets[0]
                             : "of " + std::to_string(targets.size()) +
                                   (has_standardized_targets(job.recipe) ? " standardised targets" : " targets");
}

data::Samples load_samples(const Job& job) {
  return {*data::open_file(job.data_file, job.csv), job.recipe, job.memory};
}

}  // namespace hotloop::cli
