#include "cli/imported_model.h"

#include "cli/job.h"
#include "hotloop/checkpoint.h"
#include "hotloop/io.h"
#include "io/files.h"

namespace hotloop::cli {

namespace fs = std::filesystem;

namespace {

constexpr const char* layers_file = "model.toml";
constexpr const char* params_file = "model.safetensors";

}  // namespace

bool holds_imported_model(const fs::path& folder) { return fs::exists(folder / layers_file); }

ImportedModel read_imported_model(const fs::path& folder) {
  ConfigFile file = ConfigFile::read(folder / layers_file);
  const std::int64_t features = file.section("input", "What a step is given.").integer("features", "of a step", {}, 1);
  const nn::Layer model = nn::make_model(read_model(file), {DType::F32, {1, 1, features}});
  file.finish();
  return {model, train::load_model(folder / params_file, model.init(0)).params, features};
}

void write_imported_model(const fs::path& folder, const Tree<Array>& params, std::int64_t features,
                          const std::string& layers, const std::string& origin) {
  io::Checkpoint stored;
  params.for_each([&](const std::string& name, const Array& leaf) { stored.tensors.emplace_back(name, leaf); });
  const std::string toml = "# From " + origin + ".\n[input]\nfeatures = " + std::to_string(features) + "\n\n" + layers;
  io::write_folder_atomic(folder, {{layers_file, toml}, {params_file, io::print_safetensors(stored)}}, "import");
}

}  // namespace hotloop::cli
