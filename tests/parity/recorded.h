// Values recorded from PyTorch and Keras by scripts/record_parity.py.
#pragma once

#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "backends.h"
#include "core/config.h"
#include "hotloop/error.h"
#include "hotloop/tree.h"
#include "nn/registry.h"
#include "optim/registry.h"
#include "test_dir.h"

namespace hotloop::testing {

using Json = nlohmann::ordered_json;

// tests/parity/data/<library>.json, "torch" or "keras".
inline const Json& recorded(const std::string& library) {
  static std::map<std::string, Json> documents;
  if (!documents.contains(library)) {
    std::ifstream file(testing::test_dir() + "/parity/data/" + library + ".json");
    HOTLOOP_CHECK(file.good(), "no recorded values of " + library);
    documents[library] = Json::parse(file);
  }
  return documents[library];
}

inline Array array_of(const Json& json, DType dtype) {
  const Shape shape(json.at("shape").get<std::vector<std::int64_t>>());
  return Array::from(json.at("data").get<std::vector<double>>(), shape).cast(dtype);
}

inline Tree<Array> tree_of(const Json& json, DType dtype) {
  std::vector<std::pair<std::string, Array>> leaves;
  for (const auto& [name, value] : json.items()) leaves.emplace_back(name, array_of(value, dtype));
  return Tree<Array>::from_names(leaves);
}

// {"type": "lstm", "hidden": 4} as a configuration would have it.
inline nn::LayerConfig config_of(const Json& json) {
  nn::LayerConfig config;
  for (const auto& [name, value] : json.items()) {
    if (name == "type")
      config.type = value.get<std::string>();
    else if (value.is_array() && name == "layers")
      for (const Json& inner : value) config.layers.push_back(config_of(inner));
    else if (value.is_array())
      continue;  // an optimiser's schedules and wrappers
    else if (value.is_boolean())
      config.settings[name] = value.get<bool>();
    else if (value.is_number_integer())
      config.settings[name] = value.get<std::int64_t>();
    else if (value.is_number())
      config.settings[name] = value.get<double>();
    else
      config.settings[name] = value.get<std::string>();
  }
  return config;
}

inline std::vector<optim::ComponentConfig> components_of(const Json& json, const char* name) {
  std::vector<optim::ComponentConfig> components;
  if (json.contains(name))
    for (const Json& item : json.at(name)) {
      nn::LayerConfig config = config_of(item);
      components.push_back({config.type, config.settings});
    }
  return components;
}
inline optim::Optimizer optimizer_of(const Json& json) {
  const nn::LayerConfig config = config_of(json);
  return optim::make_optimizer(config.type, config.settings, components_of(json, "schedules"),
                               components_of(json, "wrappers"));
}

// What every parity test is repeated over.
struct RecordedCase {
  std::string library;
  std::string section;
  std::size_t index = 0;
  DType dtype = DType::F32;
  std::string backend;

  const Json& json() const { return recorded(library).at(section).at(index); }
  const Json& values() const { return json().at(std::string(name_of(dtype))); }
  // What parity asks for.
  double tolerance() const { return dtype == DType::F32 ? 1e-5 : 1e-10; }
  std::string name() const {
    std::string text =
        library + "_" + json().at("name").get<std::string>() + "_" + std::string(name_of(dtype)) + "_" + backend;
    for (char& c : text) c = c == ' ' ? '_' : c;
    return text;
  }
};
inline void PrintTo(const RecordedCase& c, std::ostream* out) { *out << c.name(); }

inline std::vector<RecordedCase> all_recorded(const std::string& section) {
  std::vector<RecordedCase> cases;
  for (const Backend& backend : all_backends())
    for (const std::string library : {"torch", "keras"})
      for (std::size_t i = 0; i < recorded(library).at(section).size(); ++i)
        for (DType dtype : {DType::F32, DType::F64}) cases.push_back({library, section, i, dtype, backend.name});
  return cases;
}

inline Backend backend_named(const std::string& name) {
  for (const Backend& backend : all_backends())
    if (backend.name == name) return backend;
  throw InternalError(__FILE__, __LINE__, "no backend " + name);
}

}  // namespace hotloop::testing
