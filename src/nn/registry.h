// The generated lists of layers and losses, and how both are built from configuration files.
#pragma once

#include <functional>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/config.h"
#include "hotloop/losses.h"
#include "hotloop/nn.h"
#include "nn/own_modules.h"

namespace hotloop::nn {

// One entry of a configuration's model, `[[model]] type = "lstm", hidden = 32`.
struct LayerConfig {
  std::string type;
  std::map<std::string, Setting> settings;
  std::vector<LayerConfig> layers = {};  // inside this one, for a layer that wraps others: [[model.layer]]
};

// What a file says of a layer, for configurations, documentation and tests.
struct LayerDef {
  std::string name;     // the type in a configuration: "lstm"
  std::string summary;  // one line, with the shapes
  std::vector<Parameter> parameters;
  // The layer for inputs of this type, batch axis first; its sizes come from there where they can.
  std::function<Layer(const Config&, const ValueType& input)> make;
  // In place of `make`, for a layer around others: these one after another are `inner`.
  std::function<Layer(const Config&, Layer inner)> wrap = {};
};

// Each file src/nn/layers/<name>.cpp defines `std::vector<LayerDef> layers_<name>()`.
using LayerFile = std::vector<LayerDef> (*)();
std::vector<LayerFile> layer_files();  // generated

std::span<const LayerDef> all_layers();            // by name
const LayerDef& layer_def(std::string_view name);  // UserError with the nearest name if there is none
// Whether the layer's size depends on its input's last axis: Python's constructor then takes that first.
bool sized_by_input(const LayerDef& def);
Layer make_layer(const LayerConfig& config, const ValueType& input);
// The layers one after another, each made for the output of the one before.
Layer make_model(std::span<const LayerConfig> stack, const ValueType& input);

// The last axis of `input`; UserError unless its rank is `rank`, in words "(batch, time, features)".
std::int64_t features_of(const ValueType& input, int rank, const std::string& where);

}  // namespace hotloop::nn

namespace hotloop::losses {

struct LossDef {
  std::string name;
  std::string summary;
  std::vector<Parameter> parameters;
  std::function<Loss(const Config&)> make;
};

// Each file src/nn/losses/<name>.cpp defines `std::vector<LossDef> losses_<name>()`.
using LossFile = std::vector<LossDef> (*)();
std::vector<LossFile> loss_files();  // generated

std::span<const LossDef> all_losses();
const LossDef& loss_def(std::string_view name);
Loss make_loss(const std::string& name, const std::map<std::string, Setting>& settings = {});

}  // namespace hotloop::losses
