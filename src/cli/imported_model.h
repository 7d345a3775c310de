// A model that came from elsewhere, without a training run: a folder with
//
//   model.toml           the features of its input and its layers, as a configuration has them
//   model.safetensors    its parameters
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

#include "hotloop/nn.h"

namespace hotloop::cli {

struct ImportedModel {
  nn::Layer model;
  Tree<Array> params;
  std::int64_t features = 0;
};

bool holds_imported_model(const std::filesystem::path& folder);
ImportedModel read_imported_model(const std::filesystem::path& folder);
// `layers` are [[model]] tables. UserError if the folder exists.
void write_imported_model(const std::filesystem::path& folder, const Tree<Array>& params, std::int64_t features,
                          const std::string& layers, const std::string& origin);

}  // namespace hotloop::cli
