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
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "hotloop/graph.h"
#include "hotloop/init.h"
#include "hotloop/ode.h"
#include "hotloop/tree.h"

namespace hotloop::nn {

// What a call of a layer is given besides parameters and input. A default-constructed one is inference without masks.
struct Context {
  // u32[2], from which layers that draw random numbers draw them: the same key gives the same numbers whatever the batch's size,
  // the threads and the backend. Defined means training.
  Value key;
  // Training without a key: layers that draw random numbers then throw UserError, the others need none.
  bool training = false;
  // i32 (B), the number of valid steps of each row of a sequence (B, T, ...), 1..T; undefined: all are valid. Recurrent layers
  // keep the state of a row beyond its steps and give zeros there; what reduces over time leaves the other steps out. Out: of
  // the output, undefined once the time axis is gone.
  Value lengths;
  // The input has zeros beyond the rows' steps. The outermost Layer::apply() that is given lengths sees to it, so that whatever lies there
  // reaches no gradient (NaN would, as 0 times NaN); modules hand it on with the lengths.
  bool padding_is_zero = false;
  // Recurrent layers run from the last valid step to the first; the others do not care. Bidirectional sets it.
  bool reverse = false;
  // In: the state to start from, as initial_state() gives it. Out: the state after the last step. Without one, recurrent layers
  // start from their initial state.
  std::optional<Tree<Value>> state;
  // In: values that training updates but gradients do not, such as running means, as init_buffers() gives them. Out: after this
  // call, changed in training alone.
  Tree<Value> buffers;
  // Told of each layer's output inside a model, with its full name ("0", "2.1"), in the order of the computation.
  std::function<void(const std::string& layer, const Value& output)> watch = {};

  bool is_training() const { return training || key.defined(); }
};

// Interface that a layer implements. A user-written one is passed to whatever takes a Layer.
class Module {
 public:
  virtual ~Module() = default;
  // Fresh parameters; a module without any gives an empty tree. The same seed gives the same values on every machine: they are drawn
  // with fold_in(seed, name), one parameter after another in the order of PyTorch's layer.
  virtual Tree<Array> init(const Seed& seed, DType dtype, Init init) const = 0;
  // Appends the layer to the graph under trace. UserError when x or the parameters do not fit.
  virtual Value apply(const Tree<Value>& params, Value x, Context& context) const = 0;
  // The same of a tree of inputs. By default UserError unless it has one leaf, which apply() is given: see MultiInputModule.
  virtual Value apply_inputs(const Tree<Value>& params, const Tree<Value>& inputs, Context& context) const;
  // The state before the first step, for `batch` rows; empty for a module that keeps none. Called under trace.
  virtual Tree<Value> initial_state(std::int64_t /*batch*/, DType /*dtype*/) const { return {}; }
  // Values before training of what Context::buffers carries; empty for a module that has none. Names are PyTorch's, and are
  // stored beside the parameters.
  virtual Tree<Array> init_buffers(DType /*dtype*/) const { return {}; }
};

// Interface of a module that takes several arrays: implement apply_inputs(), which is given the tree that Layer::apply() is. Such a module
// may be the first one of a Sequential. Context::lengths, where it is given, counts the steps of timed_input(); the module leaves it
// undefined once the time axis is gone.
class MultiInputModule : public Module {
 public:
  Value apply(const Tree<Value>& params, Value x, Context& context) const final {
    return apply_inputs(params, Tree<Value>(x), context);
  }
  Value apply_inputs(const Tree<Value>& params, const Tree<Value>& inputs, Context& context) const override = 0;
};

// Which leaf of the inputs of a batch the lengths count the steps of, along its axis 1: the first that is (samples, time, features, ...)
// or, where none has so many axes, the first (samples, time); the first of all if there is no such either.
std::size_t timed_input(const Tree<ValueType>& batch_inputs);

// A module held by value: a shared, immutable handle. Cheap to copy.
class Layer {
 public:
  explicit Layer(std::shared_ptr<const Module> module) : module_(std::move(module)) {}
  template <std::derived_from<Module> M> Layer(M module) : module_(std::make_shared<const M>(std::move(module))) {}

  // UserError for Keras' defaults from PyTorch's generator, which has no such draws.
  Tree<Array> init(const Seed& seed, DType dtype = DType::F32, Init init = Init::Torch) const;
  // UserError if the module gives an undefined value. With lengths the module sees zeros beyond the rows' steps, of several inputs in the one
  // that timed_input() tells.
  Value apply(const Tree<Value>& params, Value x, Context& context) const;
  Value apply(const Tree<Value>& params, Value x) const {
    Context context;
    return apply(params, x, context);
  }
  // Of a tree of inputs: see MultiInputModule. UserError for a module that takes one array, unless the tree is one.
  Value apply(const Tree<Value>& params, const Tree<Value>& inputs, Context& context) const;
  Value apply(const Tree<Value>& params, const Tree<Value>& inputs) const {
    Context context;
    return apply(params, inputs, context);
  }
  Tree<Value> initial_state(std::int64_t batch, DType dtype = DType::F32) const {
    return module_->initial_state(batch, dtype);
  }
  Tree<Array> init_buffers(DType dtype = DType::F32) const { return module_->init_buffers(dtype); }
  // Type of the output for inputs of these types, in inference. The parameters have the first float dtype among them, f32 if none is.
  ValueType output_type(const ValueType& input) const { return output_type(Tree<ValueType>(input)); }
  ValueType output_type(const Tree<ValueType>& inputs) const;

 private:
  std::shared_ptr<const Module> module_;
};

// One step of a recurrent network, written by a user or below. Recurrent(cell) runs it over time.
class Cell {
 public:
  virtual ~Cell() = default;
  virtual Tree<Array> init(const Seed& seed, DType dtype, Init init) const = 0;
  // The state before the first step, for `batch` rows: each leaf (batch, ...). Called under trace.
  virtual Tree<Value> initial_state(std::int64_t batch, DType dtype) const = 0;
  // The state after the step and the output; state as initial_state(), x (batch, features). Traced once, whatever the length
  // of the sequence.
  virtual std::pair<Tree<Value>, Value> step(const Tree<Value>& params, const Tree<Value>& state, Value x) const = 0;
};

// ---- layers: one line each; the class is in src/nn/layers -----------------------------------------------------------

// Layers one after another; parameters of the i-th under the name "i". The context's state and buffers have a child "i" for each
// layer that keeps some; the i-th layer's key is words 2i and 2i + 1 of random_bits(key). The first may take several inputs.
struct Sequential : Layer {
  explicit Sequential(std::vector<Layer> layers);
  template <std::convertible_to<Layer>... L> explicit Sequential(L... layers)
      : Sequential(std::vector<Layer>{Layer(std::move(layers))...}) {}
};

// y = x W^T + b on the last axis: (..., inputs) -> (..., outputs). weight (outputs, inputs), bias (outputs).
struct Linear : Layer {
  Linear(std::int64_t inputs, std::int64_t outputs, bool bias = true);
};

// Convolution over time that sees no later step: (B, T, inputs) -> (B, T, filters), y[t] = sum over k of W[:, :, k] x[t - (kernel - 1 - k)
// dilation] + b, with zeros before the first step. weight (filters, inputs / groups, kernel), bias (filters), as PyTorch's Conv1d after
// padding on the left alone. State: past (B, (kernel - 1) dilation, inputs), the steps before.
struct Conv1dOptions {
  std::int64_t dilation = 1;
  std::int64_t groups = 1;  // the features of one group see each other alone
  bool bias = true;
};
struct Conv1d : Layer {
  Conv1d(std::int64_t inputs, std::int64_t filters, std::int64_t kernel, const Conv1dOptions& options = {});
};

// What LSTM, GRU and RNN have in common.
struct RecurrentOptions {
  std::int64_t num_layers = 1;  // the outputs of one are the inputs of the next
  // Each layer also runs from the last valid step to the first, with parameters "..._reverse" of its own; both outputs stand side
  // by side, (B, T, 2H), and are the next layer's inputs. (Bidirectional turns any layer around, and merges otherwise.)
  bool bidirectional = false;
  double dropout = 0;            // in training, rate between stacked layers
  double recurrent_dropout = 0;  // in training, rate of h in a step's products, one mask for all steps of a row
  std::string gate = "sigmoid";  // activation of the gates of LSTM and GRU; old Keras files have "hard_sigmoid_keras2"
  std::string activation = "tanh";  // of the candidate, and of the LSTM's cell at its output
};

// (B, T, I) -> (B, T, H), by PyTorch's formulas; state h, c, or a child "l0", "l0_reverse", "l1", ... with them for each layer and
// direction if there are several. weight_ih_l0 (4H, I), weight_hh_l0 (4H, H), bias_ih_l0 (4H), bias_hh_l0 (4H); gates i, f, g, o
// (Hochreiter and Schmidhuber 1997, with forget gates: Gers et al. 2000). Without a bias_hh_l0 in the parameters there is one bias,
// as in Keras.
struct LSTM : Layer {
  LSTM(std::int64_t inputs, std::int64_t hidden, std::int64_t num_layers = 1);
  LSTM(std::int64_t inputs, std::int64_t hidden, const RecurrentOptions& options);
};

// Where the GRU's reset gate acts: on the recurrent product, r * (W_hn h + b_hn) (PyTorch, Keras' reset_after, cuDNN), or on the
// state before it, W_hn (r * h) (the paper: Cho et al. 2014; Keras with reset_after=False).
enum class Reset { After, Before };
// (B, T, I) -> (B, T, H); state h. As LSTM with 3H rows, gates r, z, n: h' = (1 - z) n + z h.
struct GRU : Layer {
  GRU(std::int64_t inputs, std::int64_t hidden, std::int64_t num_layers = 1, Reset reset = Reset::After);
  GRU(std::int64_t inputs, std::int64_t hidden, const RecurrentOptions& options, Reset reset = Reset::After);
};

enum class Nonlinearity { Tanh, Relu };
// (B, T, I) -> (B, T, H); state h. h' = tanh(W_ih x + b_ih + W_hh h + b_hh) (Elman 1990). As LSTM with H rows.
struct RNN : Layer {
  RNN(std::int64_t inputs, std::int64_t hidden, std::int64_t num_layers = 1,
      Nonlinearity nonlinearity = Nonlinearity::Tanh);
  RNN(std::int64_t inputs, std::int64_t hidden, const RecurrentOptions& options,
      Nonlinearity nonlinearity = Nonlinearity::Tanh);
};

// How the outputs of both directions become one: side by side, or element by element.
enum class Merge { Concat, Sum, Mul, Average };
// Any layer over time beside one of its kind, with parameters "<name>_reverse", whose recurrent layers run from the last valid step
// to the first (Schuster and Paliwal 1997): (B, T, F) -> (B, T, 2F), or (B, T, F) for the elementwise merges. State: children
// "forward" and "reverse". With sequences = false only where each direction ends: the forward one's last valid step beside the
// reverse one's first, (B, 2F) or (B, F), as Keras gives without return_sequences. init() throws UserError for a layer with names that
// end in "_reverse" itself, such as a bidirectional one.
struct Bidirectional : Layer {
  explicit Bidirectional(Layer layer, Merge merge = Merge::Concat, bool sequences = true);
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

// The last valid step of a sequence: (B, T, ...) -> (B, ...). Of a bidirectional layer's outputs it is also the step that the
// reverse direction starts from: see Bidirectional's `sequences` for where that one ends.
struct Last : Layer {
  Last();
};

// The mean, or the largest, of each feature over the valid steps: (B, T, ...) -> (B, ...). A row without steps gives 0.
struct MeanPool : Layer {
  MeanPool();
};
struct MaxPool : Layer {
  MaxPool();
};

// All axes but the batch become one: (B, ...) -> (B, F).
struct Flatten : Layer {
  Flatten();
};

// x + layer(x) (He et al. 2016): for a layer that keeps the shape. Parameters, state and buffers are the layer's.
struct Residual : Layer {
  explicit Residual(Layer layer);
};

// Solves dy/dt = field(y) from t = 0 to t1, starting from each row of the input (Chen et al. 2018): (B, ...) -> (B, ...), the state at
// t1, or with saves > 0 (B, saves, ...), the states at t1 / saves, 2 t1 / saves, ..., t1. Every row takes steps of its own. The
// field is any layer that keeps the shape of its input and has no buffers; it is not given t. In training a row has a key of its own, the same for all of
// its solve. Parameters are the field's. A row whose solve does not get there is inf. Of `options`, args and saveat are the layer's own.
struct NeuralODE : Layer {
  explicit NeuralODE(Layer field, double t1 = 1, std::int64_t saves = 0, const ode::Solver& solver = ode::Tsit5(),
                     const ode::Options& options = {});
};

// In training, each element is 0 with probability `rate`, else divided by 1 - rate (Srivastava et al. 2014); in inference, nothing.
// With same_over_time the steps of a sequence (B, T, ...) share one mask (B, ...).
struct Dropout : Layer {
  explicit Dropout(double rate, bool same_over_time = false);
};

// Normalises each feature, the last axis, over the batch and all other axes, leaving out steps beyond a row's lengths:
// (x - mean) / sqrt(variance + epsilon) * weight + bias (Ioffe and Szegedy 2015). In training, mean and variance are the batch's, which
// couples its rows; in inference the running ones. weight, bias (features); buffers running_mean, running_var (features) and
// num_batches_tracked (i64): running = (1 - momentum) running + momentum batch's, its variance with n - 1 if `unbiased`.
// Defaults are PyTorch's; Keras has momentum 0.01 (it calls it 0.99), epsilon 1e-3 and a biased variance.
struct BatchNormOptions {
  double momentum = 0.1, epsilon = 1e-5;
  bool unbiased = true;
  static BatchNormOptions keras() { return {.momentum = 0.01, .epsilon = 1e-3, .unbiased = false}; }
};
struct BatchNorm : Layer {
  explicit BatchNorm(std::int64_t features, const BatchNormOptions& options = {});
};

// Row of a table for each number in the input: ids (...) -> (..., outputs); weight (count, outputs). Ids are integers, or floats
// that hold whole numbers, as a table stores them; one outside 0..count-1 takes the nearest row. The row of `padding`, if it is not
// negative, starts as zero and is not trained. Its gradient is a sum over the ids that occur (scatter_add), never a product with
// one-hot vectors. Initially normal with deviation 1 (PyTorch), or uniform in +-0.05 (Keras).
struct Embedding : Layer {
  Embedding(std::int64_t count, std::int64_t outputs, std::int64_t padding = -1);
  // The same for one feature among others: (..., F) -> (..., F - 1 + outputs), the rest first.
  static Layer of_feature(std::int64_t feature, std::int64_t count, std::int64_t outputs, std::int64_t padding = -1);
};

// A function by name, elementwise but for softmax and log_softmax, which are along the last axis: "elu", "exponential", "gelu",
// "gelu_tanh", "hard_sigmoid_keras2" (clip(0.2 x + 0.5)), "hard_sigmoid_keras3" (clip(x / 6 + 0.5)), "hard_tanh", "leaky_relu",
// "log_softmax", "mish", "relu", "relu6", "selu", "sigmoid", "silu", "softmax", "softplus", "softsign", "tanh". `parameter` is
// elu's alpha (default 1) and leaky_relu's slope (default 0.01).
struct Activation : Layer {
  explicit Activation(const std::string& name);
  Activation(const std::string& name, double parameter);
};

// max(x, 0) + weight min(x, 0), weight (features), or one for all (He et al. 2015); at first 0.25 (PyTorch) or 0 (Keras).
struct PReLU : Layer {
  explicit PReLU(std::int64_t features);
};

// ---- for layers and cells -------------------------------------------------------------------------------------------

// The formulas of LayerNorm, for use inside cells. x (..., F), weight and bias (F).
Value layer_norm(Value x, Value weight, Value bias, double epsilon = 1e-5);
// x W^T for x (..., I) and W (O, I): a dot that contracts both last axes.
Value linear(Value x, Value weight);
// x W^T + b for b (O).
Value linear(Value x, Value weight, Value bias);
// For x (B, T, ...) and lengths i32 (B): bool of x's shape, true at the valid steps. UserError if they do not fit.
Value valid_steps(Value x, Value lengths);
// Zeros (batch, features): what most cells start from.
Value zero_state(std::int64_t batch, std::int64_t features, DType dtype);

}  // namespace hotloop::nn
