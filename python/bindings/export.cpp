// Models as plain C; hotloop/_export.py is its front.
#include "hotloop/export.h"

#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <optional>

#include "components.h"
#include "deploy/step_inputs.h"

namespace hotloop::python {

namespace {

// A number of features, or an example of a step's inputs, whose batch it has.
struct StepInputs {
  std::optional<std::int64_t> features;
  std::int64_t batch = 1;
  Tree<ValueType> types;

  StepInputs(nb::handle given, std::int64_t batch_of_features) : batch(batch_of_features) {
    if (nb::isinstance<nb::int_>(given)) {
      features = nb::cast<std::int64_t>(given);
      return;
    }
    types = inputs_of(given).map([](const Array& leaf) { return leaf.type(); });
    for (const ValueType& type : types.flatten())
      if (type.shape.rank() > 0) {
        batch = type.shape[0];
        break;
      }
  }
};

StreamOptions options_of(nb::handle buffers, std::int64_t batch) {
  StreamOptions options;
  options.batch = batch;
  if (!buffers.is_none()) options.buffers = array_tree(buffers, "buffers");
  return options;
}

}  // namespace

void bind_export(nb::module_& m) {
  m.def(
      "has_a_step",
      [](const std::vector<std::int64_t>& shape, nb::handle dtype) {
        return has_a_step({dtype_of_python(dtype), Shape(shape)});
      },
      nb::arg("shape"), nb::arg("dtype"));
  // UserError if the model cannot be run one step at a time.
  m.def(
      "check_stream",
      [](const nn::Layer& model, nb::handle params, nb::handle buffers, nb::handle given) {
        const StepInputs inputs(given, 1);
        const StreamOptions options = options_of(buffers, inputs.batch);
        const Tree<Array> tree = array_tree(params, "params");
        if (inputs.features)
          (void)stream_step(model, tree, *inputs.features, options);
        else
          (void)stream_step(model, tree, inputs.types, options);
      },
      nb::arg("model"), nb::arg("params"), nb::arg("buffers").none(), nb::arg("inputs"));
  m.def(
      "export_c",
      [](const nn::Layer& model, nb::handle params, nb::handle given, const std::string& name,
         const std::string& target, std::int64_t batch, nb::object buffers) {
        const StepInputs inputs(given, batch);
        const ExportOptions options{.name = name, .target = target, .stream = options_of(buffers, inputs.batch)};
        const Tree<Array> tree = array_tree(params, "params");
        const ExportedC files = inputs.features ? export_c(model, tree, *inputs.features, options)
                                                : export_c(model, tree, inputs.types, options);
        return nb::make_tuple(files.header, files.source, files.weight_bytes, files.state_bytes, files.voice_bytes,
                              nb::bytes(files.object.data(), files.object.size()), nb::cast(files.targets));
      },
      nb::arg("model"), nb::arg("params"), nb::arg("inputs"), nb::arg("name"), nb::arg("target"), nb::arg("batch"),
      nb::arg("buffers").none());
}

}  // namespace hotloop::python
