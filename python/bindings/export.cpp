// Models as plain C; hotloop/_export.py is its front.
#include "hotloop/export.h"

#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include "components.h"

namespace hotloop::python {

void bind_export(nb::module_& m) {
  // UserError if the model cannot be run one step at a time.
  m.def(
      "check_stream",
      [](const nn::Layer& model, nb::handle params, nb::handle buffers, std::int64_t features) {
        StreamOptions options;
        if (!buffers.is_none()) options.buffers = array_tree(buffers, "buffers");
        (void)stream_step(model, array_tree(params, "params"), features, options);
      },
      nb::arg("model"), nb::arg("params"), nb::arg("buffers").none(), nb::arg("features"));
  m.def(
      "export_c",
      [](const nn::Layer& model, nb::handle params, std::int64_t features, const std::string& name,
         const std::string& target, std::int64_t batch, nb::object buffers) {
        ExportOptions options;
        options.name = name;
        options.target = target;
        options.stream.batch = batch;
        if (!buffers.is_none()) options.stream.buffers = array_tree(buffers, "buffers");
        const ExportedC files = export_c(model, array_tree(params, "params"), features, options);
        return nb::make_tuple(files.header, files.source, files.weight_bytes, files.state_bytes, files.scratch_bytes,
                              nb::bytes(files.object.data(), files.object.size()), nb::cast(files.targets));
      },
      nb::arg("model"), nb::arg("params"), nb::arg("features"), nb::arg("name"), nb::arg("target"), nb::arg("batch"),
      nb::arg("buffers").none());
}

}  // namespace hotloop::python
