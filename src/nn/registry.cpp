#include "nn/registry.h"

#include "core/plugins.h"

namespace hotloop::nn {
namespace {

const std::vector<LayerDef>& table() {
  static const std::vector<LayerDef> layers = gather_plugins(layer_files());
  return layers;
}

}  // namespace

std::span<const LayerDef> all_layers() { return table(); }

const LayerDef& layer_def(std::string_view name) { return find_plugin(all_layers(), name, "layer"); }

bool sized_by_input(const LayerDef& def) {
  if (!def.make) return false;
  std::map<std::string, Setting> settings;
  for (const Parameter& p : def.parameters) {
    if (!p.required) continue;
    if (std::holds_alternative<std::int64_t>(p.fallback))
      settings[p.name] = std::int64_t{2};
    else if (std::holds_alternative<double>(p.fallback))
      settings[p.name] = 0.5;
    else if (std::holds_alternative<std::string>(p.fallback))
      settings[p.name] = p.choices.empty() ? "" : p.choices[0];
    else
      settings[p.name] = true;
  }
  const auto types = [&](std::int64_t features) -> std::vector<std::string> {
    for (const Shape& shape : {Shape{2, 4, features}, Shape{2, features}}) {
      try {
        std::vector<std::string> texts;
        const Layer layer = def.make(Config(def.name, def.parameters, settings), {DType::F32, shape});
        layer.init(0).for_each(
            [&](const std::string& name, const Array& a) { texts.push_back(name + a.type().str()); });
        layer.init_buffers().for_each(
            [&](const std::string& name, const Array& a) { texts.push_back(name + a.type().str()); });
        return texts;
      } catch (const UserError&) {
      }
    }
    return {};
  };
  return types(6) != types(12);
}

Layer make_layer(const LayerConfig& config, const ValueType& input) {
  const LayerDef& def = layer_def(config.type);
  const Config settings(def.name, def.parameters, config.settings);
  if (!def.wrap) {
    if (!config.layers.empty())
      throw UserError(def.name, "this layer has none inside", "'" + config.layers[0].type + "'",
                      "a [[model]] of its own");
    return def.make(settings, input);
  }
  if (config.layers.empty())
    throw UserError(def.name, "there must be a layer inside this one", "none", "[[model.layer]] below it");
  // One layer alone keeps its parameters' names.
  return def.wrap(settings,
                  config.layers.size() == 1 ? make_layer(config.layers[0], input) : make_model(config.layers, input));
}

Layer make_model(std::span<const LayerConfig> stack, const ValueType& input) {
  std::vector<Layer> layers;
  ValueType type = input;
  for (const LayerConfig& config : stack) {
    layers.push_back(make_layer(config, type));
    type = layers.back().output_type(type);
  }
  return Sequential(std::move(layers));
}

std::int64_t features_of(const ValueType& input, int rank, const std::string& where) {
  const int received = input.shape.rank();
  const bool fits = rank > 0 ? received == rank : received >= 1;
  if (!fits)
    throw UserError(where,
                    rank == 3 ? "the input must be a sequence (batch, time, features)"
                              : "the input must have a last axis, the features",
                    input.str(), rank == 3 && received == 2 ? "put recurrent layers before 'last'" : "");
  return input.shape[received - 1];
}

}  // namespace hotloop::nn

namespace hotloop::losses {
namespace {

const std::vector<LossDef>& table() {
  static const std::vector<LossDef> losses = gather_plugins(loss_files());
  return losses;
}

}  // namespace

std::span<const LossDef> all_losses() { return table(); }

const LossDef& loss_def(std::string_view name) { return find_plugin(all_losses(), name, "loss"); }

Loss make_loss(const std::string& name, const std::map<std::string, Setting>& settings) {
  const LossDef& def = loss_def(name);
  return def.make(Config(def.name, def.parameters, settings));
}

}  // namespace hotloop::losses
