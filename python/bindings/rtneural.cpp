// RTNeural's models, for hotloop/_from_rtneural.py.
#include "deploy/rtneural.h"

#include <nanobind/stl/string.h>

#include "components.h"
#include "io/files.h"

namespace hotloop::python {

void bind_rtneural(nb::module_& m) {
  // ([(type, settings, inputs, params)], features)
  m.def("read_rtneural", [](const std::string& path) {
    const RtneuralFile file = read_rtneural(io::read_file(path, "rtneural"), path, DType::F32);
    nb::list layers;
    for (const RtneuralLayer& layer : file.layers) {
      nb::dict settings;
      for (const auto& [key, value] : layer.config.settings)
        settings[nb::str(key.c_str())] = std::visit([](const auto& v) { return nb::cast(v); }, value);
      layers.append(nb::make_tuple(layer.config.type, settings, layer.inputs, to_dicts(layer.params)));
    }
    return nb::make_tuple(layers, file.features);
  });
}

}  // namespace hotloop::python
