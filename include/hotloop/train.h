// The training step: forward, backward and optimiser as one graph.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "hotloop/graph.h"
#include "hotloop/losses.h"
#include "hotloop/nn.h"
#include "hotloop/optim.h"

namespace hotloop::train {

// What a step takes besides parameters, state, x and y. The defaults take nothing.
struct StepOptions {
  bool key = false;             // u32[2], for layers that draw random numbers; see step_key()
  bool lengths = false;         // i32 (B): valid steps of each row, see nn::Context::lengths
  bool sample_weights = false;  // (B), in the parameters' dtype: see losses::Weights
  Array class_weights = {};     // (C): a constant of the step; cast to the loss' dtype
  Tree<Array> buffers = {};     // of the model: init_buffers(), or a checkpoint's. Their values do not matter here
  bool watch = false;           // each layer's output and each gradient come out too, see Step::watched
};

// What one call is given: arrays of the types the step was made for, undefined where it takes none.
struct StepData {
  Tree<Array> x;  // one array, or as many as the model takes
  Array y = {}, key = {}, lengths = {}, sample_weights = {};
};

// One step as a function of flat values, with what a compiler needs to know about it. With P parameter leaves, S leaves of
// optimiser state and U leaves of buffers:
//   inputs   params (P), state (S), buffers (U), x (the leaves of its tree), y, then those asked for of key, lengths, sample_weights
//   outputs  params (P), state (S), buffers (U), loss (scalar), then, if anything is weighted, the total weight (scalar): the
//            mean loss of several steps is sum(weight * loss) / sum(weight), and with no weights rows take their place
struct Step {
  TracedFunction function;
  std::string name = "train_step";  // of the graph, as reports show it
  std::vector<ValueType> input_types;
  std::vector<int> batch_axes;  // of each input: 0 for what has a row a sample, -1 for the rest
  std::size_t num_params = 0, num_state = 0, num_buffers = 0;
  std::size_t num_inputs = 0;  // leaves of x
  std::int64_t num_steps = 1;  // in one call, see many_steps()
  bool weighted = false;       // whether there is an output of the total weight
  // Which of StepData's arrays it takes besides x.
  bool takes_y = false, takes_key = false, takes_lengths = false, takes_sample_weights = false;
  // With StepOptions::watch, what the last outputs are, filled in by graph(): "the output of layer 0", ..., then "the gradient of
  // 0.weight", ...
  std::shared_ptr<std::vector<std::string>> watched = std::make_shared<std::vector<std::string>>();

  std::size_t num_carried() const { return num_params + num_state + num_buffers; }
  // Arguments for a call of the compiled step, in order. UserError for trees of another number of leaves than the step was made for, and
  // for data that it does not take or that is not there.
  std::vector<Array> arguments(const Tree<Array>& params, const Tree<Array>& state, const Tree<Array>& buffers,
                               const StepData& data) const;
  std::vector<Array> arguments(const Tree<Array>& params, const Tree<Array>& state, const Tree<Array>& x,
                               const Array& y) const {
    return arguments(params, state, {}, {.x = x, .y = y});
  }
  std::shared_ptr<Graph> graph() const;  // the function traced for input_types
};

// The step for parameters and state of these structures (their values do not matter) and batches of these types: x as the
// model takes it, y as the loss takes it. UserError when x and y have different numbers of rows.
Step train_step(const nn::Layer& model, const losses::Loss& loss, const optim::Optimizer& optimizer,
                const Tree<Array>& params, const Tree<Array>& state, const Tree<ValueType>& x, const ValueType& y,
                const StepOptions& options = {});
inline Step train_step(const nn::Layer& model, const losses::Loss& loss, const optim::Optimizer& optimizer,
                       const Tree<Array>& params, const Tree<Array>& state, const ValueType& x, const ValueType& y,
                       const StepOptions& options = {}) {
  return train_step(model, loss, optimizer, params, state, Tree<ValueType>(x), y, options);
}

// `count` steps in one call, as a loop inside the executable: x, y, key, lengths and sample_weights gain a first axis of extent
// `count`, and so do the losses and total weights that come out. What as many calls of `step` give, but for rounding: a
// compiled loop may sum in another order. The batch of such a call is whole: it has no variable number of rows.
Step many_steps(const Step& step, std::int64_t count);

// The key of the training step `step` (counted over the whole run, from 0) of a run with this seed, u32[2]: a pure function, so
// that a resumed run draws what an uninterrupted one would have.
Array step_key(std::uint64_t seed, std::uint64_t step);

// (params..., buffers..., x, [lengths]) -> (y): the model for inference, traced for parameters of this structure. Of the
// options, buffers and lengths count.
Step predict_step(const nn::Layer& model, const Tree<Array>& params, const Tree<ValueType>& x,
                  const StepOptions& options = {});
inline Step predict_step(const nn::Layer& model, const Tree<Array>& params, const ValueType& x,
                         const StepOptions& options = {}) {
  return predict_step(model, params, Tree<ValueType>(x), options);
}

// (state..., value) -> (state...): what the optimiser makes of a number that training does not know, the validation metric, once
// an epoch: see optim::UpdateRule::observe. `value` is an f64 scalar. For state of this structure.
Step observe_step(const optim::Optimizer& optimizer, const Tree<Array>& state);

}  // namespace hotloop::train
