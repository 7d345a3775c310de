// The training step: forward, backward and optimiser as one graph.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "hotloop/graph.h"
#include "hotloop/losses.h"
#include "hotloop/nn.h"
#include "hotloop/optim.h"

namespace hotloop::train {

// One step as a function of flat values, with what a compiler needs to know about it. With P parameter leaves and S leaves of
// optimiser state:
//   inputs   params (P), state (S), x, y
//   outputs  params (P), state (S), loss (scalar)
struct Step {
  TracedFunction function;
  std::string name = "train_step";  // of the graph, as reports show it
  std::vector<ValueType> input_types;
  std::vector<int> batch_axes;  // of each input: 0 for x and y, -1 for the rest
  std::vector<int> donated;     // inputs whose memory the new values may take over: params and state
  std::size_t num_params = 0, num_state = 0;

  // Arguments for a call of the compiled step, in order. A step without y takes an undefined Array there.
  std::vector<Array> arguments(const Tree<Array>& params, const Tree<Array>& state, const Array& x,
                               const Array& y) const;
  std::shared_ptr<Graph> graph() const;  // the function traced for input_types
};

// The step for parameters and state of these structures (their values do not matter) and batches of these types: x as the
// model takes it, y as it gives it.
Step train_step(const nn::Layer& model, const losses::Loss& loss, const optim::Optimizer& optimizer,
                const Tree<Array>& params, const Tree<Array>& state, const ValueType& x, const ValueType& y);

// (params..., x) -> (y): the model for inference, traced for parameters of this structure.
Step predict_step(const nn::Layer& model, const Tree<Array>& params, const ValueType& x);

}  // namespace hotloop::train
