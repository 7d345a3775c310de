// Tables, recipes and the samples made of them; hotloop/data.py is the front.
#include <nanobind/stl/map.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/unique_ptr.h>
#include <nanobind/stl/vector.h>

#include <memory>
#include <mutex>
#include <optional>
#include <utility>

#include "components.h"
#include "gil.h"
#include "hotloop/arrow.h"
#include "hotloop/data.h"
#include "hotloop/error.h"
#include "hotloop/forkable_mutex.h"

namespace hotloop::python {
namespace {

// A source that owns what it reads.
struct Source {
  std::unique_ptr<data::Table> table;
  std::unique_ptr<data::RowSource> rows;
  bool used = false;

  data::RowSource& take() {
    if (std::exchange(used, true))
      throw UserError("data", "a table is read once", "a second reading", "make the table anew for each reading");
    return *rows;
  }
};

template <class T> constexpr const char* kind_of() {
  if constexpr (std::is_same_v<T, std::string>) return "a string";
  if constexpr (std::is_same_v<T, std::vector<std::string>>) return "a list of strings";
  if constexpr (std::is_same_v<T, bool>) return "True or False";
  if constexpr (std::is_same_v<T, std::uint64_t>) return "an integer that is not negative";
  if constexpr (std::is_integral_v<T>) return "an integer";
  return "a number";
}

template <class T> T field(nb::handle settings, const char* name) {
  try {
    return nb::cast<T>(settings[name]);
  } catch (const nb::cast_error&) {
    throw UserError("data", std::string(name) + " must be " + kind_of<T>(),
                    nb::cast<std::string>(nb::repr(settings[name])));
  }
}

template <class Enum> Enum choice(nb::handle settings, const char* name, std::initializer_list<const char*> names) {
  const auto given = field<std::string>(settings, name);
  std::string all;
  int index = 0;
  for (const char* n : names) {
    if (given == n) return static_cast<Enum>(index);
    all += (index++ ? ", " : "") + std::string(n);
  }
  throw UserError("data", std::string(name) + " must be one of " + all, "'" + given + "'");
}

data::Fill fill_of(nb::handle settings, const char* name) {
  return choice<data::Fill>(settings, name, {"refuse", "drop", "forward", "mean"});
}

data::Split split_of(nb::handle s) {
  return {.by = choice<data::Split::By>(s, "by", {"time", "group", "random", "column", "none"}),
          .train = field<double>(s, "train"),
          .validation = field<double>(s, "validation"),
          .seed = field<std::uint64_t>(s, "seed"),
          .validation_groups = field<std::vector<std::string>>(s, "validation_groups"),
          .test_groups = field<std::vector<std::string>>(s, "test_groups"),
          .column = field<std::string>(s, "column")};
}

data::Recipe recipe_of(nb::handle s) {
  data::Recipe r;
  r.inputs = field<std::vector<std::string>>(s, "inputs");
  r.targets = field<std::vector<std::string>>(s, "targets");
  for (auto [name, member] : {std::pair{"time", &data::Recipe::time},
                              {"group", &data::Recipe::group},
                              {"sample", &data::Recipe::sample},
                              {"weight", &data::Recipe::weight},
                              {"time_step", &data::Recipe::time_step}})
    r.*member = field<std::string>(s, name);
  r.missing = fill_of(s, "missing");
  r.indicator = field<bool>(s, "indicator");
  for (const nb::handle rule : s["missing_rules"])
    r.missing_rules.push_back(
        {field<std::vector<std::string>>(rule, "columns"), fill_of(rule, "fill"), field<bool>(rule, "indicator")});
  for (const nb::handle lag : s["lags"])
    r.lags.push_back(
        {field<std::string>(lag, "name"), field<std::string>(lag, "column"), field<std::int64_t>(lag, "steps")});
  for (const nb::handle cycle : s["cycles"]) {
    const int harmonics = field<int>(cycle, "harmonics");
    const auto of =
        choice<data::Cycle::Of>(cycle, "of", {"row", "hour_of_day", "day_of_week", "hour_of_week", "day_of_year"});
    r.cycles.push_back(
        {field<std::string>(cycle, "name"),
         of,
         {field<double>(cycle, "period"), field<std::int64_t>(cycle, "step"), field<double>(cycle, "phase"), harmonics},
         harmonics});
  }
  for (const nb::handle one_hot : s["one_hots"])
    r.one_hots.push_back({field<std::string>(one_hot, "column"), field<bool>(one_hot, "unknown_as_zeros")});
  r.length = field<std::int64_t>(s, "length");
  r.stride = field<std::int64_t>(s, "stride");
  r.horizon = field<std::int64_t>(s, "horizon");
  r.horizon_steps = field<std::int64_t>(s, "horizon_steps");
  r.split = split_of(s["split"]);
  r.task = choice<data::Task>(s, "task", {"regression", "classification"});
  r.balance_classes = field<bool>(s, "balance_classes");
  r.standardize = field<bool>(s, "standardize");
  r.standardize_targets = field<bool>(s, "standardize_targets");
  r.dtype = dtype_of_python(s["dtype"]);
  r.kept = field<std::vector<std::string>>(s, "kept");
  return r;
}

// All samples of a dataset as arrays, by the names that fit() takes.
nb::dict arrays_of(const data::Dataset& dataset) {
  const std::int64_t n = dataset.size();
  std::vector<std::int64_t> all(static_cast<std::size_t>(n));
  for (std::size_t i = 0; i < all.size(); ++i) all[i] = static_cast<std::int64_t>(i);
  const Tree<Array> x = dataset.input_types(n).map([](const ValueType& type) { return Array(type.dtype, type.shape); });
  Array y(dataset.target_dtype(), dataset.target_shape().with_inserted(0, n));
  Array lengths, weights;
  std::vector<void*> inputs;
  for (Array& leaf : x.flatten()) inputs.push_back(leaf.raw());
  data::Batch batch{.inputs = inputs[0], .targets = y.raw(), .more_inputs = std::span(inputs).subspan(1)};
  if (dataset.has_lengths()) {
    lengths = Array(DType::I32, {n});
    batch.lengths = lengths.data<std::int32_t>().data();
  }
  if (dataset.has_weights()) {
    weights = Array(dataset.dtype(), {n});
    batch.weights = weights.raw();
  }
  {
    const GilReleased released;
    dataset.gather(all, batch);
  }
  nb::dict result;
  result["x"] = to_dicts(x);
  result["y"] = to_python(y);
  if (lengths.defined()) result["lengths"] = to_python(lengths);
  if (weights.defined()) result["sample_weights"] = to_python(weights);
  return result;
}

template <class T> nb::object as_array(const std::vector<T>& values) {
  return to_python(Array::from<T>(values, {static_cast<std::int64_t>(values.size())}));
}

// New rows prepared: one dict a block. Threads may share it: each block goes to one of them.
class Blocks {
 public:
  Blocks(const data::Preparation& preparation, data::RowSource& rows, std::int64_t size)
      : blocks_(preparation, rows, size) {}

  nb::dict next() {
    std::optional<data::PreparedBlock> block;
    {
      const GilReleased released;
      const std::lock_guard lock(mutex_);
      block = read();
    }
    if (!block) throw nb::stop_iteration();
    nb::dict part;
    part["x"] = to_python(block->inputs);
    part["lengths"] = block->lengths.defined() ? to_python(block->lengths) : nb::none();
    part["rows"] = as_array(block->rows);
    part["times"] = block->times.empty() ? nb::none() : as_array(block->times);
    part["groups"] = block->groups;
    return part;
  }

 private:
  std::optional<data::PreparedBlock> read() {
    if (is_read_)
      throw UserError("data", "blocks must not be asked for in a process that was forked while another thread read one",
                      "a next block", "apply() in that process");
    const struct Reading {
      explicit Reading(bool& is_read) : is_read(is_read) { is_read = true; }
      ~Reading() { is_read = false; }
      Reading(const Reading&) = delete;
      Reading& operator=(const Reading&) = delete;
      bool& is_read;
    } reading(is_read_);
    return blocks_.next();
  }

  data::PreparedBlocks blocks_;
  hotloop::detail::ForkableMutex mutex_;
  bool is_read_ = false;  // by a thread that holds the mutex, or that a forked process has not
};

data::CsvOptions options_of(nb::handle s) {
  const auto separator = field<std::string>(s, "separator");
  if (separator.size() != 1)
    throw UserError("data", "the separator must be one character", "'" + separator + "'", R"("," or ";" or "\t")");
  return {.separator = separator[0],
          .missing_values = field<std::vector<std::string>>(s, "missing_values"),
          .time_unit = field<double>(s, "time_unit"),
          .dates = static_cast<data::DateOrder>(field<int>(s, "dates"))};
}

void bind_sources(nb::module_& m) {
  m.attr("missing_values") = nb::cast(data::CsvOptions().missing_values);
  nb::class_<Source>(m, "RowSource").def_prop_ro("names", [](const Source& s) { return s.rows->column_names(); });
  m.def("arrow_source", [](nb::handle capsule, const std::string& name, nb::handle options) {
    auto* stream = static_cast<ArrowArrayStream*>(PyCapsule_GetPointer(capsule.ptr(), "arrow_array_stream"));
    if (stream == nullptr) throw nb::python_error();
    auto source = std::make_unique<Source>();
    source->rows = data::open_arrow(stream, name, options_of(options));
    return source;
  });
  m.def("file_source", [](const std::string& path, nb::handle options) {
    auto source = std::make_unique<Source>();
    source->rows = data::open_file(path, options_of(options));
    return source;
  });
  // columns: (name, "number", f64 array), (name, "integer", f64 array, list of str), (name, "time", f64 array) or (name, "text", list of str)
  m.def("columns_source", [](nb::list columns, const std::string& name, nb::handle options) {
    auto source = std::make_unique<Source>();
    source->table = std::make_unique<data::Table>();
    for (const nb::handle column : columns) {
      const auto column_name = nb::cast<std::string>(column[0]), kind = nb::cast<std::string>(column[1]);
      if (kind == "text") {
        source->table->add_texts(column_name, nb::cast<std::vector<std::string>>(column[2]));
        continue;
      }
      const Array values = to_array(column[2], column_name);
      const auto numbers = std::as_const(values).data<double>();
      std::vector<double> copy(numbers.begin(), numbers.end());
      if (kind == "time")
        source->table->add_times(column_name, std::move(copy));
      else if (kind == "integer")
        source->table->add(column_name, std::move(copy), nb::cast<std::vector<std::string>>(column[3]));
      else
        source->table->add(column_name, std::move(copy));
    }
    source->rows = data::open_table(*source->table, name, options_of(options));
    return source;
  });
}

}  // namespace

void bind_data(nb::module_& m) {
  bind_sources(m);
  nb::class_<data::Dataset>(m, "Dataset", "Samples of one input and one target each, which fit draws batches from.")
      .def("__len__", &data::Dataset::size)
      .def_prop_ro("size", &data::Dataset::size, "Number of samples.")
      .def("arrays", &arrays_of, "All samples: a dict of x, y and, if there are any, lengths and sample_weights.");
  nb::class_<data::Preparation>(m, "Preparation", "A recipe with all that was fitted on the training rows.")
      .def("json", &data::Preparation::json, "As text; Preparation.parse reads it, and so does the command line.")
      .def_static(
          "parse",
          [](const std::string& text, const std::string& source) { return data::Preparation::parse(text, source); },
          nb::arg("text"), nb::arg("source") = "the text")
      .def_prop_ro("input_names", &data::Preparation::input_names, "One a feature.")
      .def_prop_ro(
          "classes",
          [](const data::Preparation& p) { return std::vector<std::string>(p.classes().begin(), p.classes().end()); })
      .def("_unscale", [](const data::Preparation& p, nb::handle x,
                          bool width) { return p.unscale(to_array(x, "unscale"), width); })
      .def(
          "_apply",
          [](const data::Preparation& p, Source& source, std::int64_t block_size) {
            return std::make_unique<Blocks>(p, source.take(), block_size);
          },
          nb::keep_alive<0, 2>())
      .def("describe", &data::Preparation::describe, "A line for each thing that was fitted or filled.")
      .def("__getstate__", &data::Preparation::json)
      .def("__setstate__", [](data::Preparation& p, const std::string& json) {
        new (&p) data::Preparation(data::Preparation::parse(json, "a pickled Preparation"));
      });
  nb::class_<Blocks>(m, "PreparedBlocks")
      .def("__iter__", [](nb::handle self) { return nb::borrow(self); })
      .def("__next__", &Blocks::next);
  nb::class_<data::Samples>(m, "Samples")
      .def("__init__",
           [](data::Samples* self, Source& source, nb::dict recipe, std::size_t memory_bytes) {
             const data::Recipe r = recipe_of(recipe);
             data::RowSource& rows = source.take();
             const GilReleased released;
             new (self) data::Samples(rows, r, {.bytes = memory_bytes});
           })
      .def_prop_ro("train", &data::Samples::train, nb::rv_policy::reference_internal)
      .def_prop_ro("validation", &data::Samples::validation, nb::rv_policy::reference_internal)
      .def_prop_ro("test", &data::Samples::test, nb::rv_policy::reference_internal)
      .def_prop_ro("preparation", [](const data::Samples& s) { return s.preparation(); })
      .def_prop_ro("num_rows", &data::Samples::num_rows)
      .def("target_rows",
           [](const data::Samples& s, const data::Dataset& part) { return as_array(s.target_rows(part)); })
      .def("kept", [](const data::Samples& s, const data::Dataset& part,
                      const std::string& name) { return as_array(s.kept(part, name)); })
      .def("describe", &data::Samples::describe);
}

}  // namespace hotloop::python
