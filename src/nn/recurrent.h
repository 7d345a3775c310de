// What recurrent layers share: the time loop, and stacks of cells under PyTorch's parameter names.
#pragma once

#include <memory>
#include <vector>

#include "hotloop/nn.h"
#include "nn/registry.h"

namespace hotloop::nn {

// Runs `cell` over x (B, T, ...) and gives its outputs (B, T, ...). Starts from *state if there is one, and leaves the final
// state there; else from the cell's initial state.
Value run_over_time(const Cell& cell, const Tree<Value>& params, Value x, std::optional<Tree<Value>>& state);

// One cell a layer, the outputs of one being the inputs of the next. Cells call their parameters "weight_ih", ...; the stack
// adds "_l0", "_l1", ...
Layer stacked_recurrent(std::vector<std::shared_ptr<const Cell>> cells);

// The parameters of a gated cell: weight_ih (gates*H, I), weight_hh (gates*H, H), bias_ih and bias_hh (gates*H). Keras' has the
// second bias only where `two_keras_biases`.
struct GatedParameters {
  std::int64_t inputs = 0, hidden = 0, gates = 1;
  bool two_keras_biases = false;
};
Tree<Array> init_gated(const GatedParameters& sizes, std::uint64_t seed, DType dtype, Init init);
// bias_ih + bias_hh, or bias_ih alone where that is the only one.
Value summed_bias(const Tree<Value>& params);
// UserError unless x is (batch, inputs) for weight_ih (gates*H, inputs).
void check_step_input(const std::string& where, Value x, Value weight_ih);
// Throws UserError unless both are positive, and num_layers too.
void check_sizes(const std::string& where, std::int64_t inputs, std::int64_t hidden, std::int64_t num_layers);

// The settings that every recurrent layer has: hidden, layers.
std::vector<Parameter> recurrent_settings();

}  // namespace hotloop::nn
