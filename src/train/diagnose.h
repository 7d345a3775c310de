// Which tensor of a training step first became infinite or NaN.
#pragma once

#include <span>
#include <string>

#include "hotloop/fit.h"
#include "hotloop/train.h"
#include "train/batches.h"

namespace hotloop::train {

bool all_finite(const Array& array);
bool all_finite(std::span<const Array> arrays);

// Computes one step again with everything in it as an output: batch, each layer's output, loss, gradients, new optimiser state,
// new parameters and buffers, looked at in the order in which they are computed. "the gradient of 0.weight_hh_l0, f32[12,3]: 7 of its 36
// numbers are not finite"; the tensor is empty when all are. `carried` are the values before the step, `trees` their structures, `x` that of the batch's
// inputs.
struct StepTrees {
  Tree<Array> params, state, buffers;
};
inline constexpr const char *batch_inputs = "the inputs of the batch", *batch_targets = "the targets of the batch",
                            *batch_input = "the input ";  // and its name, of several
struct FirstNonFinite {
  std::string tensor;
  bool in_gradients = false;  // whether a gradient was not finite, be it after another tensor
};
FirstNonFinite find_non_finite(const nn::Layer& model, const FitOptions& options, const StepTrees& trees,
                               std::span<const Array> carried, const Tree<ValueType>& x, const BatchBlock& block,
                               StepOptions step_options);

}  // namespace hotloop::train
