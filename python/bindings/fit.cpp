// The training loop; hotloop/_fit.py is its front.
#include "hotloop/fit.h"
#include "gil.h"

#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <memory>
#include <utility>
#include <vector>

#include "components.h"
#include "hotloop/checkpoint.h"
#include "hotloop/error.h"
#include "interrupt.h"
#include "train/metrics.h"

namespace hotloop::python {
namespace {

Array optional_array(nb::handle object, const std::string& what) {
  return object.is_none() ? Array{} : to_array(object, what);
}

data::ArrayDataset dataset(nb::handle x, nb::handle y, nb::handle lengths, nb::handle weights) {
  return {inputs_of(x), to_array(y, "y"), optional_array(lengths, "lengths"),
          optional_array(weights, "sample_weights")};
}

nb::tuple record(const train::EpochRecord& r) {
  nb::dict metrics;
  for (const auto& [name, value] : r.metrics) metrics[name.c_str()] = value;
  return nb::make_tuple(r.epoch, r.train_loss, r.validation, r.seconds, metrics);
}

Tree<Array> cloned(const Tree<Array>& tree) {
  return tree.map([](const Array& a) { return a.clone(); });
}

// What Python's callback is told: a tuple, made into hotloop.Progress there.
nb::object progress_tuple(const train::Progress& p) {
  nb::object epoch_record = nb::none(), params = nb::none();
  if (p.epoch_done && p.epoch_record != nullptr) epoch_record = record(*p.epoch_record);
  if (p.epoch_done && p.params != nullptr) params = to_dicts(cloned(*p.params));
  return nb::make_tuple(p.epoch, p.num_epochs, p.step, p.num_steps, p.epoch_done, p.elapsed_s, epoch_record, params,
                        p.best);
}

nb::dict result_of(const train::FitResult& run) {
  nb::list history;
  for (const train::EpochRecord& r : run.history) history.append(record(r));
  nb::dict times;
  times["compile_s"] = run.times.compile_s;
  times["gather_s"] = run.times.gather_s;
  times["steps_s"] = run.times.steps_s;
  times["validation_s"] = run.times.validation_s;
  times["num_steps"] = run.times.num_steps;
  nb::dict result;
  result["status"] = name_of(run.status);
  result["message"] = run.message;
  result["params"] = to_dicts(run.params);
  result["buffers"] = to_dicts(run.buffers);
  result["best_epoch"] = run.best_epoch;
  result["best_validation"] = run.best_validation;
  result["history"] = history;
  result["times"] = times;
  result["state"] = nb::cast(std::make_shared<train::TrainingState>(run.state));
  result["step_explanation"] = run.step_explanation;
  result["validation_explanation"] = run.validation_explanation;
  return result;
}

// The first of `metrics` chooses the epoch. `callback`, or None, is called after each call of the step; true ends the fit after it.
nb::dict fit(const nn::Layer& model, const data::Dataset& training, const data::Dataset& validation,
             const losses::Loss& loss, const optim::Optimizer& optimizer, const std::vector<metrics::Metric>& metrics,
             const CompileOptions& compile, nb::dict settings, nb::object class_weights, nb::object params,
             nb::object buffers, nb::object resume, nb::object callback) {
  const auto integer = [&](const char* name) { return integer_of(settings[name], "fit", name); };
  train::FitOptions options;
  options.loss = loss;
  options.optimizer = optimizer;
  options.metric = metrics.at(0);
  options.further_metrics.assign(metrics.begin() + 1, metrics.end());
  options.compile = compile;
  if (options.compile.threads < 0) options.compile.threads = 1;
  options.batch_size = integer("batch_size");
  options.epochs = integer("epochs");
  options.seed = seed_number(settings["seed"], "fit");
  options.init = init_of(settings["init"]);
  options.generator = nn::generator_from_name(nb::cast<std::string>(settings["generator"]));
  options.shuffle = nb::cast<bool>(settings["shuffle"]);
  options.validate = nb::cast<bool>(settings["validate"]);
  options.steps_per_call = integer("steps_per_call");
  options.early_stopping = {integer("patience"), nb::cast<double>(settings["min_delta"])};
  options.checkpoint.folder = nb::cast<std::string>(settings["folder"]);
  options.checkpoint.every_epochs = integer("every_epochs");
  options.checkpoint.every_steps = integer("every_steps");
  options.checkpoint.keep = integer("keep");
  options.class_weights = optional_array(class_weights, "class_weights");
  if (nb::isinstance<nb::str>(resume)) {
    options.resume = std::make_shared<train::TrainingState>(train::load_checkpoint(nb::cast<std::string>(resume)));
  } else if (!resume.is_none()) {
    options.resume = nb::cast<std::shared_ptr<train::TrainingState>>(resume);
  } else if (!params.is_none()) {
    // From given parameters: where a training that starts with them stands.
    const Tree<Array> like = model.init(options.seed, training.dtype(), options.init);
    auto start = std::make_shared<train::TrainingState>();
    start->params = train::match_tree(cloned(array_tree(params, "params")), like, "params");
    start->optimizer_state = optimizer.init(start->params);
    const Tree<Array> fresh = model.init_buffers(training.dtype());
    if (buffers.is_none() && !fresh.empty())
      throw UserError("fit", "buffers must be given beside params: the model has " + fresh.names()[0], "params alone",
                      "buffers = run.buffers, which training gave with them, or the model's init_buffers()");
    start->buffers =
        buffers.is_none() ? fresh : train::match_tree(cloned(array_tree(buffers, "buffers")), fresh, "buffers");
    start->seed = options.seed;
    start->generator = options.generator;
    start->batch_size = std::min(options.batch_size, training.size());
    start->num_samples = training.size();
    start->shuffle = options.shuffle;
    options.resume = start;
  }
  std::atomic<bool> stop{false};
  options.stop = &stop;
  options.on_progress = [&](const train::Progress& progress) {
    const GilAcquired gil;
    if (PyErr_CheckSignals() < 0) throw nb::python_error();
    if (!callback.is_none() && nb::cast<bool>(nb::bool_(callback(progress_tuple(progress))))) stop.store(true);
  };
  options.on_cancelled = goes_on_after_cancel;
  train::FitResult run;
  run_interruptibly([&] { run = train::fit(model, training, validation, options); });
  return result_of(run);
}

// The model's output for all samples.
Array predicted(const nn::Layer& model, nb::handle params, nb::handle buffers, const data::Dataset& samples,
                std::int64_t batch_size, const CompileOptions& compile) {
  const Tree<Array> p = array_tree(params, "params"), b = array_tree(buffers, "buffers");
  CompileOptions options = compile;
  if (options.threads < 0) options.threads = 1;
  Array result;
  run_interruptibly([&] { result = train::predict(model, p, samples, batch_size, options, b); });
  return result;
}

}  // namespace

void bind_fit(nb::module_& m) {
  nb::class_<data::ArrayDataset, data::Dataset>(m, "ArrayDataset");
  m.def("dataset", &dataset, nb::arg("x"), nb::arg("y"), nb::arg("lengths").none(), nb::arg("weights").none());
  nb::class_<train::TrainingState>(m, "TrainingState")
      .def_prop_ro("epoch", [](const train::TrainingState& s) { return s.epoch; })
      .def_prop_ro("step", [](const train::TrainingState& s) { return s.step; })
      .def_prop_ro("num_steps", [](const train::TrainingState& s) { return s.num_steps; })
      .def_prop_ro("params", [](const train::TrainingState& s) { return to_dicts(s.params); })
      .def("save", [](const train::TrainingState& s,
                      const std::string& folder) { return train::save_checkpoint(folder, s).string(); })
      .def("__getstate__",
           [](const train::TrainingState& s) {
             nb::dict files;
             for (const auto& [name, bytes] : train::print_checkpoint(s))
               files[name.c_str()] = nb::bytes(bytes.data(), bytes.size());
             return files;
           })
      .def("__setstate__", [](train::TrainingState& s, const nb::dict& state) {
        std::vector<std::pair<std::string, std::string>> files;
        for (const auto& [name, bytes] : state) {
          const auto text = nb::cast<nb::bytes>(bytes);
          files.emplace_back(nb::cast<std::string>(name), std::string(text.c_str(), text.size()));
        }
        new (&s) train::TrainingState(train::parse_checkpoint(files));
      });
  nb::class_<metrics::Metric>(m, "Metric")
      .def_prop_ro("name", &metrics::Metric::name)
      .def("named", &metrics::Metric::named)
      .def(
          "__call__",
          [](const metrics::Metric& metric, nb::handle predictions, nb::handle targets, nb::handle lengths,
             nb::handle weights) {
            // The inputs of the samples play no part but for their number (and, with lengths, their steps).
            const Array p = to_array(predictions, "predictions"), t = to_array(targets, "targets");
            const Array n = optional_array(lengths, "lengths");
            const std::int64_t rows = p.shape().rank() > 0 ? p.shape()[0] : 0,
                               steps = n.defined() && p.shape().rank() > 1 ? p.shape()[1] : 1;
            const DType dtype = is_float(t.dtype()) ? t.dtype() : is_float(p.dtype()) ? p.dtype() : DType::F32;
            const data::ArrayDataset samples(Array::zeros(dtype, {rows, steps}), t, n,
                                             optional_array(weights, "sample_weights"));
            return train::evaluate_metric(metric, p, samples);
          },
          nb::arg("predictions"), nb::arg("targets"), nb::arg("lengths") = nb::none(),
          nb::arg("sample_weights") = nb::none());
  m.def("metric_definitions", [] { return definitions(metrics::all_metrics()); });
  m.def("loss_metric", &metrics::of_loss);
  m.def("make_metric",
        [](const std::string& name, nb::dict settings) { return metrics::make_metric(name, settings_of(settings)); });
  m.def("latest_checkpoint", [](const std::string& folder) { return train::latest_checkpoint(folder).string(); });
  m.def("fit", &fit, nb::arg("model"), nb::arg("training"), nb::arg("validation"), nb::arg("loss"),
        nb::arg("optimizer"), nb::arg("metrics"), nb::arg("compile"), nb::arg("settings"),
        nb::arg("class_weights").none(), nb::arg("params").none(), nb::arg("buffers").none(), nb::arg("resume").none(),
        nb::arg("callback").none());
  m.def(
      "predict",
      [](const nn::Layer& model, nb::handle params, nb::handle buffers, nb::handle x, nb::handle lengths,
         std::int64_t batch_size, const CompileOptions& compile) {
        const Tree<Array> inputs = inputs_of(x);
        const std::vector<Array> leaves = inputs.flatten();
        const auto first_float = std::ranges::find_if(leaves, [](const Array& a) { return is_float(a.dtype()); });
        const std::int64_t rows = !leaves.empty() && leaves[0].shape().rank() > 0 ? leaves[0].shape()[0] : 0;
        const Array targets = Array::zeros(first_float != leaves.end() ? first_float->dtype() : DType::F32, {rows, 1});
        const data::ArrayDataset samples(inputs, targets, optional_array(lengths, "lengths"));
        return predicted(model, params, buffers, samples, batch_size, compile);
      },
      nb::arg("model"), nb::arg("params").none(), nb::arg("buffers"), nb::arg("x"), nb::arg("lengths").none(),
      nb::arg("batch_size"), nb::arg("compile"));
  m.def(
      "evaluate",
      [](const nn::Layer& model, nb::handle params, nb::handle buffers, const data::Dataset& samples,
         const std::vector<metrics::Metric>& metrics, const losses::Loss* loss, std::int64_t batch_size,
         const CompileOptions& compile) {
        const Array outputs = predicted(model, params, buffers, samples, batch_size, compile);
        std::vector<double> values;
        for (const metrics::Metric& metric : metrics)
          values.push_back(train::evaluate_metric(
              metric, loss == nullptr ? outputs : train::metric_predictions(metric, *loss, outputs), samples));
        return values;
      },
      nb::arg("model"), nb::arg("params").none(), nb::arg("buffers"), nb::arg("samples"), nb::arg("metrics"),
      nb::arg("loss").none(), nb::arg("batch_size"), nb::arg("compile"));
}

}  // namespace hotloop::python
