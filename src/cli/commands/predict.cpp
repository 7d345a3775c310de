#include <fmt/format.h>
#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <cstring>
#include <utility>

#include "cli/command.h"
#include "cli/job_options.h"
#include "cli/output_guard.h"
#include "cli/report.h"
#include "cli/run_folder.h"
#include "cli/signals.h"
#include "data/time.h"
#include "hotloop/error.h"
#include "io/files.h"
#include "train/output_statistics.h"

namespace hotloop::cli {
namespace {

struct PredictOptions {
  std::string run, table, out;
  std::shared_ptr<JobSource> source;
  bool overwrite = false, probabilities = false, json = false;

  bool to_file() const { return !out.empty() && out != "-"; }
};

// A cell of CSV (RFC 4180).
std::string csv_cell(const std::string& text) {
  if (text.find_first_of(",\"\r\n") == std::string::npos) return text;
  std::string out = "\"";
  for (const char c : text) out += c == '"' ? "\"\"" : std::string(1, c);
  return out + "\"";
}

// The shortest text that reads back as the same number of this precision.
std::string number_text(double value, DType dtype) {
  char buffer[40];
  char* const end = buffer + sizeof buffer;
  return {buffer, dtype == DType::F32 ? std::to_chars(buffer, end, static_cast<float>(value)).ptr
                                      : std::to_chars(buffer, end, value).ptr};
}

// The lines of the output: what a sample is, then what is predicted of it.
class Lines {
 public:
  // `probabilities`: of classes these are written, in place of the model's outputs.
  Lines(const data::Preparation& preparation, const Job& job, const ValueType& output, bool probabilities)
      : preparation_(preparation),
        statistics_(job.fit.loss),
        distribution_(job.fit.loss.distribution()),
        output_(output),
        threshold_(job.fit.loss.threshold()),
        from_logits_(probabilities && job.scores == Job::Scores::Logits) {
    const data::Recipe& recipe = preparation.recipe();
    std::vector<std::string> names = {"row"};
    if (!recipe.time.empty()) names.push_back(recipe.time);
    group_ = !recipe.group.empty() || !recipe.sample.empty();
    if (group_) names.push_back(!recipe.sample.empty() ? recipe.sample : recipe.group);
    width_ = output.shape.size() / output.shape[0] / (distribution_ == nullptr ? 1 : distribution_->num_outputs);
    for_each_statistic([&](std::size_t i, const std::string&) { order_.push_back(i); });
    classes_ = recipe.task == data::Task::Classification;
    num_scores_ = classes_ ? output.shape[output.shape.rank() - 1] : 1;
    const std::int64_t steps = width_ / (classes_ ? num_scores_ : static_cast<std::int64_t>(recipe.targets.size()));
    for (std::int64_t step = 1; step <= std::max<std::int64_t>(1, steps); ++step) {
      const std::string suffix = steps > 1 ? "_" + std::to_string(step) : "";
      for (const std::string& target : recipe.targets)
        for_each_statistic([&](std::size_t, const std::string& name) { names.push_back(target + suffix + name); });
      if (!classes_) continue;
      for (std::int64_t c = 0; c < num_scores_; ++c)
        names.push_back((probabilities ? "probability" : "score") + suffix + "_" +
                        class_name(num_scores_ == 1 ? 1 : c));
    }
    for (std::size_t i = 0; i < names.size(); ++i) header_ += (i > 0 ? "," : "") + csv_cell(names[i]);
    header_ += "\n";
  }

  const std::string& header() const { return header_; }

  std::string of(const data::PreparedBlock& block, const Array& predicted) {
    const std::vector<Array> values = classes_ ? std::vector{predicted} : statistics_in_units(predicted);
    std::string out;
    for (std::size_t i = 0; i < block.rows.size(); ++i) {
      out += std::to_string(block.rows[i]);
      if (!block.times.empty()) out += "," + data::print_time(block.times[i]);
      if (group_) out += "," + csv_cell(block.groups[i]);
      const std::int64_t first = static_cast<std::int64_t>(i) * width_;
      if (classes_)
        for (std::int64_t at = first; at < first + width_; at += num_scores_) out += scores(values[0], at);
      else
        for (std::int64_t at = first; at < first + width_; ++at)
          for (const Array& value : values) out += "," + number_text(value.at(at), output_.dtype);
      out += "\n";
    }
    return out;
  }

 private:
  // A model may have more outputs than there are classes: those go by their numbers.
  std::string class_name(std::int64_t c) const {
    const std::span<const std::string> names = preparation_.classes();
    return c < std::ssize(names) ? names[static_cast<std::size_t>(c)] : std::to_string(c);
  }

  // What the outputs say of a number of the target, with the end of its column's name: first what stands for it.
  template <class F> void for_each_statistic(F&& f) const {
    const std::size_t point = statistics_.point_index();
    f(point, std::string());
    if (distribution_ == nullptr) return;
    for (std::size_t i = 0; i < distribution_->statistics.size(); ++i)
      if (i != point) f(i, "_" + distribution_->statistics[i].name);
  }

  // In the order of the columns.
  std::vector<Array> statistics_in_units(const Array& predicted) {
    const std::vector<Array> all = statistics_.all(predicted);
    std::vector<Array> in_order;
    for (const std::size_t i : order_)
      in_order.push_back(
          preparation_.unscale(all[i], distribution_ != nullptr && distribution_->statistics[i].is_width));
    return in_order;
  }

  // The class with the largest score, then all scores. Of one score: class 1 where it is above the loss's threshold, and the score, or the
  // probability of that class.
  std::string scores(const Array& values, std::int64_t at) const {
    if (num_scores_ == 1) {
      const double score = values.at(at);
      return "," + csv_cell(class_name(score > threshold_ ? 1 : 0)) + "," +
             number_text(from_logits_ ? 1 / (1 + std::exp(-score)) : score, output_.dtype);
    }
    std::int64_t best = 0;
    for (std::int64_t c = 1; c < num_scores_; ++c)
      if (values.at(at + c) > values.at(at + best)) best = c;
    std::string out = "," + csv_cell(class_name(best));
    double total = 0;  // of exponentials, the largest of which is 1
    for (std::int64_t c = 0; c < num_scores_; ++c) total += std::exp(values.at(at + c) - values.at(at + best));
    for (std::int64_t c = 0; c < num_scores_; ++c) {
      const double score = values.at(at + c);
      out += "," + number_text(from_logits_ ? std::exp(score - values.at(at + best)) / total : score, output_.dtype);
    }
    return out;
  }

  const data::Preparation& preparation_;
  train::OutputStatistics statistics_;
  const losses::Distribution* distribution_;
  std::vector<std::size_t> order_ = {};
  ValueType output_;
  double threshold_;
  bool from_logits_, group_ = false, classes_ = false;
  std::int64_t width_ = 1, num_scores_ = 1;
  std::string header_;
};

// That nothing is lost to the output, nor of what else the run holds.
void check_out(const PredictOptions& options, const RunFolder& run) {
  if (!options.to_file()) return;
  if (lies_in(options.out, options.run))
    throw UserError("predict", "the output must lie outside of the run's folder", options.out, "another folder");
  const std::array<std::filesystem::path, 4> inputs = {options.table, run.config(), run.preparation(), run.model()};
  check_output_file("predict", options.out, inputs, options.overwrite);
}

// A file that appears when it is whole, or the standard output.
class Output {
 public:
  explicit Output(const PredictOptions& options) {
    if (options.to_file()) file_.emplace(options.out, "predict");
  }
  void write(const std::string& text) {
    if (file_)
      file_->write(text);
    else
      fmt::print("{}", text);
  }
  void commit() {
    if (file_) file_->commit();
  }

 private:
  std::optional<io::AtomicFile> file_;
};

// A run's model for blocks of prepared samples.
class StoredModel {
 public:
  StoredModel(const RunFolder& folder, const Job& job, const data::Preparation& preparation)
      : job_(job),
        lengths_(!preparation.recipe().sample.empty()),
        x_({preparation.recipe().dtype, preparation.input_shape().with_inserted(0, job.fit.batch_size)}),
        model_(job.make_model(x_)),
        arrays_(train::load_model(folder.model(), model_.init(job.fit.seed, x_.dtype, job.fit.init),
                                  model_.init_buffers(x_.dtype))) {
    compile_for(x_);
  }

  Array operator()(const data::PreparedBlock& block) {
    // A series can be longer than all that were trained with.
    const Shape sample = block.inputs.shape().without(0);
    if (sample != x_.shape.without(0)) compile_for({x_.dtype, sample.with_inserted(0, job_.fit.batch_size)});
    std::memcpy(inputs_.raw(), block.inputs.raw(), block.inputs.bytes());
    if (lengths_) std::memcpy(steps_.raw(), block.lengths.raw(), block.lengths.bytes());
    return predictor_->batch(arrays_.params, arrays_.buffers, inputs_, steps_,
                             static_cast<std::int64_t>(block.rows.size()));
  }
  ValueType output_type() const { return predictor_->output_type(); }

 private:
  void compile_for(const ValueType& x) {
    x_ = x;
    predictor_.emplace(model_, arrays_.params, arrays_.buffers, x, lengths_, job_.fit.compile);
    inputs_ = Array::zeros(x.dtype, x.shape);
    if (lengths_) steps_ = Array::full(DType::I32, {x.shape[0]}, 1);
  }

  const Job& job_;
  bool lengths_;
  ValueType x_;
  nn::Layer model_;
  train::ModelArrays arrays_;
  std::optional<train::Predictor> predictor_;
  Array inputs_, steps_;
};

// Why there are fewer predictions than rows, a line for each reason.
std::string left_out_rows(const data::Recipe& recipe, const data::Applied& applied) {
  std::string out;
  const auto rows = [](std::int64_t count) { return grouped(count) + (count == 1 ? " row" : " rows"); };
  const std::int64_t early = applied.num_rows - applied.num_undefined - applied.num_samples;
  if (recipe.sample.empty() && early > 0)
    out += fmt::format("  {} before a whole window, which takes {} one after another with all inputs\n", rows(early),
                       rows(recipe.length));
  if (applied.num_undefined > 0)
    out += "  " +
           wrapped(fmt::format("{} without all inputs, the last: no {}", rows(applied.num_undefined),
                               applied.last_undefined),
                   2) +
           "\n";
  return out;
}

void predict(const PredictOptions& options) {
  const RunFolder folder = RunFolder(options.run).trained();
  check_out(options, folder);
  JobSource source = *options.source;
  source.path = folder.config();
  const Job job = read_job(source);
  const data::Preparation preparation = folder.read_preparation();
  StoredModel model(folder, job, preparation);

  if (options.probabilities &&
      (preparation.recipe().task != data::Task::Classification || job.scores == Job::Scores::Other))
    throw UserError("predict", "probabilities are of classes, by a loss that knows them", "the loss " + job.loss_name,
                    "no --probabilities, or the loss cross_entropy in training");
  const std::unique_ptr<data::RowSource> rows = data::open_file(options.table, job.csv);
  Lines lines(preparation, job, model.output_type(), options.probabilities);
  Output out(options);
  // Once the table is known to fit: nothing comes before an error about its columns.
  bool begun = false;
  const auto begin = [&] {
    if (!std::exchange(begun, true)) out.write(lines.header());
  };
  const StopSignals signals;
  const data::Applied applied = preparation.apply(*rows, job.fit.batch_size, [&](const data::PreparedBlock& block) {
    if (signals.stop()) throw ExitCode{signals.exit_status()};
    begin();
    out.write(lines.of(block, model(block)));
  });
  begin();
  out.commit();
  const bool to_file = options.to_file();
  std::FILE* told = to_file ? stdout : stderr;  // where the predictions do not go
  if (options.json)
    print_json({{"rows", applied.num_rows},
                {"predictions", applied.num_samples},
                {"undefined_rows", applied.num_undefined},
                {"out", options.out}},
               told);
  else
    fmt::print(told, "{} predictions of {} rows{}\n{}", grouped(applied.num_samples), grouped(applied.num_rows),
               to_file ? " written to " + options.out : "", left_out_rows(preparation.recipe(), applied));
}

}  // namespace

void command_predict(CLI::App& app) {
  CLI::App* command = app.add_subcommand("predict", "Apply a run's model to a table");
  command->footer(
      "\nThe table needs the columns of the inputs, and those that lags read: often the\n"
      "target's, with its past; a row to forecast leaves it empty. Lags, cycles, scales\n"
      "and whatever else was fitted in training are applied as they were. Each window\n"
      "gives a line, with the row that ends it, counted from 0. A table of any size\n"
      "takes the same memory.");
  auto options = std::make_shared<PredictOptions>();
  options->source = std::make_shared<JobSource>();
  command->add_option("RUN", options->run, "folder of a run, e.g. runs/demand")->required();
  command->add_option("TABLE", options->table, "CSV file, e.g. data.csv")->required();
  command->add_option("-o,--out", options->out,
                      "CSV file to write, which must not exist; without\nit, the standard output");
  command->add_flag("--overwrite", options->overwrite, "replace the file");
  command->add_flag("--probabilities", options->probabilities, "of classes, in place of their scores");
  add_machine_overrides(*command, options->source);
  command->add_flag("--json", options->json, "tell what was done as JSON");
  command->callback([options] { predict(*options); });
}

}  // namespace hotloop::cli
