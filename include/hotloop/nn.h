// Layers and losses: functions that append to the graph under trace, with their parameters in explicit trees.
//
//   using namespace hotloop;
//   nn::Sequential model(nn::LSTM(7, 32), nn::Last(), nn::Linear(32, 1));
//   Tree<Array> params = model.init(/*seed=*/0);           // "0.weight_ih_l0", ..., "2.weight", "2.bias"
//   Value y = model.apply(params_under_trace, x);          // x (batch, time, 7) -> y (batch, 1)
//
// Sequences are (batch, time, features). Layers work in the dtype of their input, f32 or f64; the parameters must have the same.
// Parameter names and shapes are PyTorch's. Axes in comments: B batch, T time, I input features, H hidden.
#pragma once

#include <concepts>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "hotloop/graph.h"
#include "hotloop/init.h"
#include "hotloop/tree.h"

namespace hotloop::nn {

// What a call of a layer is given besides parameters and input.
struct Context {
  Value key;  // u32[2]; defined means training (layers that draw random numbers do), undefined inference
  // In: the state to start from, as initial_state() gives it. Out: the state after the last step. Without one, recurrent layers
  // start from their initial state.
  std::optional<Tree<Value>> state;
};

// Interface that a layer implements. A user-written one is passed to whatever takes a Layer.
class Module {
 public:
  virtual ~Module() = default;
  // Fresh parameters; a module without any gives an empty tree. The same seed gives the same values on every machine.
  virtual Tree<Array> init(std::uint64_t seed, DType dtype, Init init) const = 0;
  // Appends the layer to the graph under trace. UserError when x or the parameters do not fit.
  virtual Value apply(const Tree<Value>& params, Value x, Context& context) const = 0;
  // The state before the first step, for `batch` rows; empty for a module that keeps none. Called under trace.
  virtual Tree<Value> initial_state(std::int64_t /*batch*/, DType /*dtype*/) const { return {}; }
};

// A module held by value: a shared, immutable handle. Cheap to copy.
class Layer {
 public:
  explicit Layer(std::shared_ptr<const Module> module) : module_(std::move(module)) {}
  template <std::derived_from<Module> M> Layer(M module) : module_(std::make_shared<const M>(std::move(module))) {}

  Tree<Array> init(std::uint64_t seed, DType dtype = DType::F32, Init init = Init::Torch) const {
    return module_->init(seed, dtype, init);
  }
  Value apply(const Tree<Value>& params, Value x, Context& context) const { return module_->apply(params, x, context); }
  Value apply(const Tree<Value>& params, Value x) const {
    Context context;
    return apply(params, x, context);
  }
  Tree<Value> initial_state(std::int64_t batch, DType dtype = DType::F32) const {
    return module_->initial_state(batch, dtype);
  }
  // Type of the output for an input of this type.
  ValueType output_type(const ValueType& input) const;

 private:
  std::shared_ptr<const Module> module_;
};

// One step of a recurrent network, written by a user or below. Recurrent(cell) runs it over time.
class Cell {
 public:
  virtual ~Cell() = default;
  virtual Tree<Array> init(std::uint64_t seed, DType dtype, Init init) const = 0;
  // The state before the first step, for `batch` rows: each leaf (batch, ...). Called under trace.
  virtual Tree<Value> initial_state(std::int64_t batch, DType dtype) const = 0;
  // The state after the step and the output; state as initial_state(), x (batch, features). Traced once, whatever the length
  // of the sequence.
  virtual std::pair<Tree<Value>, Value> step(const Tree<Value>& params, const Tree<Value>& state, Value x) const = 0;
};

// ---- layers: one line each; the class is in src/nn/layers -----------------------------------------------------------

// Layers one after another; parameters of the i-th under the name "i". The context's state has a child "i" for each layer that
// keeps one.
struct Sequential : Layer {
  explicit Sequential(std::vector<Layer> layers);
  template <std::convertible_to<Layer>... L> explicit Sequential(L... layers)
      : Sequential(std::vector<Layer>{Layer(std::move(layers))...}) {}
};

// y = x W^T + b on the last axis: (..., inputs) -> (..., outputs). weight (outputs, inputs), bias (outputs).
struct Linear : Layer {
  Linear(std::int64_t inputs, std::int64_t outputs, bool bias = true);
};

// (B, T, I) -> (B, T, H), by PyTorch's formulas; state h, c (num_layers children "l0", "l1", ... when there are several).
// weight_ih_l0 (4H, I), weight_hh_l0 (4H, H), bias_ih_l0 (4H), bias_hh_l0 (4H); gates i, f, g, o (Hochreiter and Schmidhuber
// 1997, with forget gates: Gers et al. 2000). Without a bias_hh_l0 in the parameters there is one bias, as in Keras.
struct LSTM : Layer {
  LSTM(std::int64_t inputs, std::int64_t hidden, std::int64_t num_layers = 1);
};

// Where the GRU's reset gate acts: on the recurrent product, r * (W_hn h + b_hn) (PyTorch, Keras' reset_after, cuDNN), or on the
// state before it, W_hn (r * h) (the paper: Cho et al. 2014; Keras with reset_after=False).
enum class Reset { After, Before };
// (B, T, I) -> (B, T, H); state h. As LSTM with 3H rows, gates r, z, n: h' = (1 - z) n + z h.
struct GRU : Layer {
  GRU(std::int64_t inputs, std::int64_t hidden, std::int64_t num_layers = 1, Reset reset = Reset::After);
};

enum class Nonlinearity { Tanh, Relu };
// (B, T, I) -> (B, T, H); state h. h' = tanh(W_ih x + b_ih + W_hh h + b_hh) (Elman 1990). As LSTM with H rows.
struct RNN : Layer {
  RNN(std::int64_t inputs, std::int64_t hidden, std::int64_t num_layers = 1,
      Nonlinearity nonlinearity = Nonlinearity::Tanh);
};

// Runs a cell over time: (B, T, I) -> (B, T, ...), with the cell's parameters and state as its own.
struct Recurrent : Layer {
  explicit Recurrent(std::shared_ptr<const Cell> cell);
  template <std::derived_from<Cell> C> explicit Recurrent(C cell)
      : Recurrent(std::make_shared<const C>(std::move(cell))) {}
};

// Normalises the last axis: (x - mean) / sqrt(variance + epsilon) * weight + bias (Ba et al. 2016). weight, bias (features).
// epsilon: 1e-5 as in PyTorch; Keras has 1e-3.
struct LayerNorm : Layer {
  explicit LayerNorm(std::int64_t features, double epsilon = 1e-5);
};

// The last step of a sequence: (B, T, ...) -> (B, ...).
struct Last : Layer {
  Last();
};

// An elementwise function of the input, by name: "tanh", "relu", "sigmoid", "gelu" (exact, with erf) or "softplus".
struct Activation : Layer {
  explicit Activation(const std::string& name);
};

// ---- for layers and cells -------------------------------------------------------------------------------------------

// The formulas of LayerNorm, for use inside cells. x (..., F), weight and bias (F).
Value layer_norm(Value x, Value weight, Value bias, double epsilon = 1e-5);
// x W^T for x (..., I) and W (O, I): a dot that contracts both last axes.
Value linear(Value x, Value weight);
// Zeros (batch, features): what most cells start from.
Value zero_state(std::int64_t batch, std::int64_t features, DType dtype);

}  // namespace hotloop::nn
