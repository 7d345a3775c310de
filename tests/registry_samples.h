// One component of every entry of the registries of layers, losses and optimisers, for tests that go through them.
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "nn/registry.h"
#include "nn_testing.h"
#include "optim/registry.h"

namespace hotloop::testing {

// Required settings are 3; inside a layer that wraps others there are two, of which the last keeps the features.
inline nn::LayerConfig sample_of(const nn::LayerDef& def, std::int64_t features = 4) {
  nn::LayerConfig config{def.name, {}};
  for (const Parameter& parameter : def.parameters)
    if (parameter.required) config.settings[parameter.name] = std::int64_t{3};
  // Adaptive steps are constants of the derivative, but not of a difference.
  if (def.name == "ode") {
    config.settings["controller"] = std::string("constant");
    config.settings["dt0"] = 0.25;
    config.settings["max_steps"] = std::int64_t{6};
  }
  if (def.wrap) config.layers = {{"gru", {{"hidden", std::int64_t{3}}}}, {"linear", {{"units", features}}}};
  return config;
}

// The shape of predictions of so many rows.
inline Shape prediction_shape(const losses::Loss& loss, std::int64_t rows) {
  return loss.compares_sequences() ? Shape{rows, 5, 3} : Shape{rows, 6};
}

// The shape of a target that the loss takes for such a prediction: the same, fewer numbers of which each has several outputs, or
// one number a row.
inline Shape target_shape(const losses::Loss& loss, const ValueType& prediction) {
  if (loss.compares_sequences()) return {prediction.shape[0], 2};
  std::vector<Shape> shapes = {prediction.shape, Shape{prediction.shape[0], 1}};
  if (const losses::Distribution* distribution = loss.distribution())
    shapes = {{prediction.shape[0], prediction.shape[1] / distribution->num_outputs}};
  for (const Shape& shape : shapes) {
    const ValueType types[] = {prediction, {prediction.dtype, shape}};
    try {
      trace([&](std::span<const Value> in) { return std::vector<Value>{loss(in[0], in[1])}; }, types);
      return shape;
    } catch (const UserError&) {
    }
  }
  throw UserError(loss.name(), "the loss must take a target that the tests know", prediction.str());
}

// Every optimiser alone, each schedule on Adam and each wrapper around SGD with momentum.
inline std::vector<std::pair<std::string, optim::Optimizer>> sample_optimizers(double learning_rate = 0.05) {
  const std::map<std::string, Setting> settings = {{"learning_rate", learning_rate}};
  std::vector<std::pair<std::string, optim::Optimizer>> all;
  for (const optim::OptimizerDef& def : optim::all_optimizers())
    all.emplace_back(def.name, optim::make_optimizer(def.name, settings));
  for (const optim::ScheduleDef& def : optim::all_schedules()) {
    optim::ComponentConfig schedule{def.name};
    for (const Parameter& parameter : def.parameters)
      if (parameter.required) schedule.settings[parameter.name] = std::int64_t{20};
    all.emplace_back("adam, " + def.name, optim::make_optimizer("adam", settings, std::vector{schedule}));
  }
  for (const optim::WrapperDef& def : optim::all_wrappers())
    all.emplace_back(def.name, optim::make_optimizer("sgd", {{"learning_rate", learning_rate}, {"momentum", 0.5}}, {},
                                                     std::vector{optim::ComponentConfig{def.name}}));
  return all;
}

}  // namespace hotloop::testing
