// safetensors files as dicts of arrays.
#include "hotloop/io.h"
#include "gil.h"

#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <string_view>

#include "array.h"
#include "io/files.h"

namespace hotloop::python {

void bind_io(nb::module_& m) {
  m.def("save_safetensors", [](const std::string& path, nb::dict tensors, nb::dict metadata) {
    io::Checkpoint checkpoint;
    for (const auto& [name, array] : tensors)
      checkpoint.tensors.emplace_back(nb::cast<std::string>(name), to_array(array, nb::cast<std::string>(name)));
    for (const auto& [key, value] : metadata)
      checkpoint.metadata[nb::cast<std::string>(key)] = nb::cast<std::string>(value);
    const GilReleased released;
    io::save_safetensors(path, checkpoint);
  });
  m.def("write_file", [](const std::string& path, nb::bytes content, const std::string& where) {
    const std::string_view bytes(content.c_str(), content.size());
    const GilReleased released;
    io::write_file_atomic(path, bytes, where);
  });
  m.def("replace_files", [](const std::string& folder, nb::dict files, const std::vector<std::string>& obsolete,
                            const std::string& where) {
    io::NamedBytes written;
    for (const auto& [name, content] : files) {
      const auto bytes = nb::cast<nb::bytes>(content);
      written.emplace_back(nb::cast<std::string>(name), std::string(bytes.c_str(), bytes.size()));
    }
    const GilReleased released;
    io::replace_files(folder, written, obsolete, where);
  });
  m.def("load_safetensors", [](const std::string& path) {
    io::Checkpoint checkpoint;
    {
      const GilReleased released;
      checkpoint = io::load_safetensors(path);
    }
    nb::dict tensors, metadata;
    for (auto& [name, array] : checkpoint.tensors) tensors[nb::str(name.c_str())] = to_python(std::move(array));
    for (const auto& [key, value] : checkpoint.metadata) metadata[nb::str(key.c_str())] = nb::str(value.c_str());
    return nb::make_tuple(tensors, metadata);
  });
}

}  // namespace hotloop::python
