// What recurrent layers share: the time loop, and stacks of cells under PyTorch's parameter names.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "hotloop/nn.h"
#include "nn/registry.h"

namespace hotloop::nn {

// x (B, T, ...) with zeros beyond the rows' lengths, where numbers may be NaN: 0 times their derivatives would be NaN. x itself without
// lengths (undefined), and integers.
Value without_padding(Value x, Value lengths);

// Runs `cell` over the valid steps of x (B, T, ...), from the last to the first with context.reverse, and gives its outputs
// (B, T, ...), zero at other steps. Starts from *context.state if there is one, and leaves the final state there; else from the
// cell's initial state. With a recurrent dropout, the state that a step of training
// is given has a further leaf "h_dropped".
Value run_over_time(const Cell& cell, const Tree<Value>& params, Value x, Context& context,
                    double recurrent_dropout = 0);

// One cell a layer, made for its number of inputs; the outputs of one are the inputs of the next. Cells call their parameters
// "weight_ih", ...; the stack adds "_l0", "_l1", ..., and "_reverse" for the other direction. UserError for sizes and rates that
// cannot be.
using MakeCell = std::function<std::shared_ptr<const Cell>(std::int64_t inputs)>;
Layer stacked_recurrent(const std::string& where, std::int64_t inputs, std::int64_t hidden,
                        const RecurrentOptions& options, const MakeCell& make_cell);

// The parameters of a gated cell: weight_ih (gates*H, I), weight_hh (gates*H, H), bias_ih and bias_hh (gates*H). Keras' has the
// second bias only where `two_keras_biases`.
struct GatedParameters {
  std::int64_t inputs = 0, hidden = 0, gates = 1;
  bool two_keras_biases = false;
};
Tree<Array> init_gated(const GatedParameters& sizes, const Seed& seed, DType dtype, Init init);
// What a step's recurrent products read: h, or h under the recurrent dropout's mask (what is carried on is h itself).
Value recurrent_input(const Tree<Value>& state);
// bias_ih + bias_hh, or bias_ih alone where that is the only one.
Value summed_bias(const Tree<Value>& params);
// UserError unless the parameters have the shapes of init_gated() and x is (batch, inputs) of their dtype.
void check_step(const std::string& where, const GatedParameters& sizes, const Tree<Value>& params, Value x);

// The settings that every recurrent layer has, and what they say.
std::vector<Parameter> recurrent_settings();
RecurrentOptions recurrent_options(const Config& config);
// Those of layers whose activations can be chosen: gate, activation.
std::vector<Parameter> gate_settings();

}  // namespace hotloop::nn
