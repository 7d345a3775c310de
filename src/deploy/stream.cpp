#include "hotloop/stream.h"

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <exception>
#include <functional>
#include <optional>
#include <utility>

#include "deploy/own_steps.h"
#include "deploy/step_inputs.h"
#include "hotloop/dataset.h"
#include "hotloop/error.h"
#include "hotloop/ops.h"
#include "ir/op_def.h"
#include "nn/check_params.h"
#include "runtime/executable.h"

namespace hotloop {

bool has_a_step(const ValueType& input) {
  return input.shape.rank() > 1 && input.shape[1] == 1 && (input.shape.rank() > 2 || !is_float(input.dtype));
}

Tree<Array> initial_state(const nn::Layer& model, std::int64_t batch, DType dtype) {
  Tree<Value> state;
  const auto graph = trace(
      [&](std::span<const Value>) {
        state = model.initial_state(batch, dtype);
        return state.flatten();
      },
      {}, "initial_state");
  if (graph->outputs().empty()) return {};
  CompileOptions options;
  options.backend = "interp";  // zeros, as a rule: not worth a compiler
  return state.unflatten(compile(graph, options)(std::span<const Array>{}));
}

namespace {

DType dtype_of_params(const Tree<Array>& params) {
  const std::vector<Array> leaves = params.flatten();
  return leaves.empty() ? DType::F32 : leaves.front().dtype();
}

// `what` (params or buffers) must have each leaf of `wanted`, of its type.
void check_leaves(const std::string& what, const Tree<Array>& given, const Tree<Array>& wanted,
                  const std::string& remedy) {
  const std::vector<std::string> names = given.names();
  wanted.for_each([&](const std::string& name, const Array& leaf) {
    const bool there = std::ranges::find(names, name) != names.end();
    if (there && given[name].type() == leaf.type()) return;
    throw UserError("stream", what + " must be the model's own, " + name + " = " + leaf.type().str(),
                    there ? given[name].type().str() : "no " + name, remedy);
  });
}

// Fresh buffers in place of those that are missing would be wrong numbers without a word.
void check_buffers(const nn::Layer& model, const Tree<Array>& buffers, DType dtype) {
  check_leaves("buffers", buffers, model.init_buffers(dtype),
               "buffers = run.buffers, which training gave with the parameters, or the model's init_buffers()");
}

// Whether a loop over the steps runs from the last to the first. (A loop inside a cell is that cell's own affair.)
bool runs_backward(const Graph& graph) {
  return std::ranges::any_of(graph.nodes(), [](const auto& node) {
    if (node->op->kind == ir::OpKind::Loop) return node->attrs.flag("reverse");
    return std::ranges::any_of(node->regions, [](const auto& region) { return runs_backward(*region); });
  });
}

// What a model is given in a step: inputs of these types, as the graph has them, and made into what the model takes, with so many steps.
struct StepInputs {
  Tree<ValueType> types;
  std::function<Tree<Value>(std::span<const Value>, std::int64_t steps)> of_model;
  bool are_given_with_steps = false;  // with an axis of time, of one step
};

StepInputs inputs_of_features(std::int64_t batch, std::int64_t features, DType dtype) {
  return {ValueType{dtype, {batch, features}}, [=](std::span<const Value> in, std::int64_t steps) -> Tree<Value> {
            return broadcast(in[0], {batch, steps, features}, {0, 2});
          }};
}

StepInputs inputs_of_tree(std::int64_t batch, const Tree<ValueType>& inputs) {
  if (inputs.num_leaves() == 0) throw UserError("stream", "there must be an input", "a tree without leaves");
  if (batch <= 0) throw UserError("stream", "the batch must be positive", "batch " + std::to_string(batch));
  inputs.for_each([&](const std::string& name, const ValueType& type) {
    if (type.shape.rank() == 0 || type.shape[0] != batch)
      throw UserError("stream",
                      "each input of a step must have the batch, " + std::to_string(batch) + ", as its first axis",
                      (name.empty() ? "" : name + " = ") + type.str(), "StreamOptions::batch for more rows");
  });
  return {inputs,
          [=](std::span<const Value> in, std::int64_t steps) {
            std::vector<Value> leaves;
            for (const Value& v : in) {
              if (steps == 1 || !has_a_step(v.type())) {
                leaves.push_back(v);
                continue;
              }
              const Shape one = v.shape().without(1);
              std::vector<std::int64_t> axes;
              for (std::int64_t axis = 0; axis < one.rank(); ++axis) axes.push_back(axis + (axis > 0));
              leaves.push_back(broadcast(reshape(v, one), one.with_inserted(1, steps), axes));
            }
            return inputs.map([](const ValueType&) { return Value(); }).unflatten(leaves);
          },
          true};
}

StreamStep traced_step(const nn::Layer& model, const Tree<Array>& params, const StepInputs& inputs,
                       const StreamOptions& options) {
  const std::int64_t batch = options.batch;
  const DType dtype = dtype_of_params(params);
  const Tree<Array>& buffers = options.buffers;
  nn::check_defined("stream", "buffers", buffers);
  check_buffers(model, buffers, dtype);
  StreamStep step;
  step.inputs = inputs.types;
  step.initial_state = hotloop::initial_state(model, batch, dtype);
  if (inputs.are_given_with_steps && step.initial_state.num_leaves() > 0 &&
      std::ranges::none_of(inputs.types.flatten(), has_a_step))
    throw UserError("stream", "inputs of a step must be a sequence of one step, [batch, 1, ...] of what has steps",
                    data::str(inputs.types));
  for (const Tree<Array>* tree : {&params, &buffers})
    tree->for_each([&](const std::string& name, const Array& leaf) {
      step.bound.push_back(leaf);
      step.bound_names.push_back(name);
    });
  std::vector<ValueType> types;
  for (const Array& leaf : step.bound) types.push_back(leaf.type());
  for (const Array& leaf : step.initial_state.flatten()) types.push_back(leaf.type());
  for (const ValueType& input : inputs.types.flatten()) types.push_back(input);
  const std::size_t p = params.num_leaves(), b = buffers.num_leaves(), s = step.initial_state.num_leaves();
  const auto apply = [&](std::span<const Value> in, std::int64_t steps, nn::Context& context) {
    context.buffers = buffers.unflatten(in.subspan(p, b));
    context.state = step.initial_state.unflatten(in.subspan(p + b, s));
    return model.apply(params.unflatten(in.first(p)), inputs.of_model(in.subspan(p + b + s), steps), context);
  };
  // An axis of one step and one of one feature look alike: with two steps the first grows.
  const auto keeps_time = [&] {
    try {
      const auto two = trace(
          [&](std::span<const Value> in) {
            nn::Context context;
            return std::vector{apply(in, 2, context)};
          },
          types, "two_steps");
      const Shape shape = two->outputs()[0].shape();
      return shape.rank() > 1 && shape[1] == 2;
    } catch (const std::exception&) {  // a Python layer's, too
      return false;                    // a model of one step alone
    }
  };
  std::optional<nn::OwnModules> own(std::in_place);
  try {
    step.graph = trace(
        [&](std::span<const Value> in) {
          nn::Context context;
          Value y = apply(in, 1, context);
          // Many-to-many models keep the axis of time.
          if (y.rank() > 1 && y.shape()[1] == 1 && keeps_time()) y = reshape(y, y.shape().without(1));
          std::vector<Value> outputs = {y};
          const std::vector<Value> after = context.state->flatten();
          if (after.size() != s)
            throw UserError("stream", "a step must give the state after it, with as many leaves as initial_state() has",
                            std::to_string(after.size()) + " leaves where there are " + std::to_string(s));
          outputs.insert(outputs.end(), after.begin(), after.end());
          return outputs;
        },
        types, "stream_step");
  } catch (const UserError&) {
    nn::check_params("stream", model, params, nn::Dtypes::OfInit);
    throw;
  }
  if (runs_backward(*step.graph))
    throw UserError("stream", "every layer must read the sequence forward",
                    "a layer that reads it from the last step to the first", "the whole sequence, model(params, x)");
  const std::vector<nn::OwnModules::Call> calls = own->calls();
  own.reset();
  check_own_steps(calls);
  step.bound.resize(types.size());
  return step;
}

}  // namespace

StreamStep stream_step(const nn::Layer& model, const Tree<Array>& params, std::int64_t features,
                       const StreamOptions& options) {
  if (features <= 0 || options.batch <= 0)
    throw UserError("stream", "features and batch must be positive",
                    std::to_string(features) + " features, batch " + std::to_string(options.batch));
  nn::check_params("stream", model, params);
  return traced_step(model, params, inputs_of_features(options.batch, features, dtype_of_params(params)), options);
}

StreamStep stream_step(const nn::Layer& model, const Tree<Array>& params, const Tree<ValueType>& inputs,
                       const StreamOptions& options) {
  const StepInputs checked = inputs_of_tree(options.batch, inputs);
  nn::check_params("stream", model, params);
  return traced_step(model, params, checked, options);
}

struct Stream::State {
  Executable executable;
  Tree<Array> initial;
  Tree<ValueType> inputs;

  State(const StreamStep& step, const CompileOptions& options)
      : executable(compile_bound(step.graph, step.bound, options)), initial(step.initial_state), inputs(step.inputs) {}
};

Stream::Stream(const nn::Layer& model, const Tree<Array>& params, std::int64_t features, const StreamOptions& options)
    : state_(std::make_shared<const State>(stream_step(model, params, features, options), options.compile)) {}
Stream::Stream(const nn::Layer& model, const Tree<Array>& params, const Tree<ValueType>& inputs,
               const StreamOptions& options)
    : state_(std::make_shared<const State>(stream_step(model, params, inputs, options), options.compile)) {}

Tree<Array> Stream::initial_state() const {
  return state_->initial.map([](const Array& leaf) { return leaf.clone(); });
}

std::pair<Array, Tree<Array>> Stream::step(const Tree<Array>& state, const Tree<Array>& x) const {
  std::vector<Array> inputs = state.flatten();
  if (state.names() != state_->initial.names())
    throw UserError("stream", "the state must be as initial_state() gives it",
                    std::to_string(state.num_leaves()) + " leaves of other names");
  if (x.names() != state_->inputs.names())
    throw UserError("stream", "a step takes " + data::str(state_->inputs),
                    data::str(x.map([](const Array& leaf) { return leaf.type(); })));
  for (const Array& leaf : x.flatten()) inputs.push_back(leaf);
  std::vector<Array> outputs = state_->executable(inputs);
  return {outputs[0], state.unflatten(std::span<const Array>(outputs).subspan(1))};
}

const Tree<ValueType>& Stream::inputs() const { return state_->inputs; }
const ValueType& Stream::input_type() const {
  const std::vector<ValueType>& types = state_->executable.input_types();
  return types[types.size() - state_->inputs.num_leaves()];
}
const ValueType& Stream::output_type() const { return state_->executable.output_types().front(); }
std::string Stream::explain() const { return state_->executable.explain(); }
const Executable& Stream::executable() const { return state_->executable; }

namespace {
bool meet(std::span<const std::byte> a, std::span<const std::byte> b) {
  const std::less<> before;  // of pointers into whatever memory
  return before(a.data(), b.data() + b.size()) && before(b.data(), a.data() + a.size());
}
}  // namespace

// The state twice: a step reads one and writes the other.
struct Stream::Voice::State {
  std::shared_ptr<const Stream::State> stream;
  std::vector<Array> initial, states[2];
  // Of a step that reads states[i]: the state, its inputs, what is bound; y, the state.
  std::vector<void*> inputs[2], outputs[2];
  std::size_t x = 0;  // where a step's inputs begin
  struct Input {
    std::size_t bytes;
    std::vector<std::byte> copy;  // for a caller whose y is where the input is: it is written while that is still read
  };
  std::vector<Input> given;
  std::optional<DType> of_both;  // of x and y, where there is one input
  std::size_t x_size = 0, y_size = 0;
  std::size_t y_bytes = 0;
  std::int64_t batch = 1;
  std::unique_ptr<runtime::Engine::Seat> seat;
  int current = 0;

  State(std::shared_ptr<const Stream::State> of, std::span<const Array> start)
      : stream(std::move(of)), initial(stream->initial.flatten()) {
    const Executable& executable = stream->executable;
    const std::vector<ValueType> types = stream->inputs.flatten();
    for (auto& copy : states)
      for (const Array& leaf : start) copy.push_back(leaf.clone());
    for (int i = 0; i < 2; ++i) {
      outputs[i].push_back(nullptr);
      for (Array& leaf : states[i]) inputs[i].push_back(leaf.raw());
      for (Array& leaf : states[1 - i]) outputs[i].push_back(leaf.raw());
      inputs[i].resize(inputs[i].size() + types.size());
      for (const Array& a : executable.impl().bound) inputs[i].push_back(a.memory().get());
    }
    x = start.size();
    for (const ValueType& type : types) given.push_back({type.bytes(), std::vector<std::byte>(type.bytes())});
    const ValueType& y = executable.output_types().front();
    if (types.size() == 1 && types[0].dtype == y.dtype) of_both = y.dtype;
    x_size = static_cast<std::size_t>(types[0].shape.size());
    y_size = static_cast<std::size_t>(y.shape.size());
    y_bytes = y.bytes();
    batch = types.front().shape[0];
    seat = executable.impl().engine->seat();
  }

  void give(std::size_t k, const void* input, const void* y) {
    Input& own = given[k];
    void*& place = inputs[current][x + k];
    place = const_cast<void*>(input);  // read only
    if (!meet({static_cast<const std::byte*>(input), own.bytes}, {static_cast<const std::byte*>(y), y_bytes})) return;
    std::memcpy(own.copy.data(), input, own.bytes);
    place = own.copy.data();
  }
  void run(void* y) {
    const auto i = static_cast<std::size_t>(current);
    outputs[i].front() = y;
    // Straight to the kernel: counting and timing the call would cost as much as a small step.
    seat->run(inputs[i].data(), outputs[i].data(), batch);
    current = 1 - current;
  }
};

Stream::Voice Stream::voice() const { return Voice(std::make_shared<Voice::State>(state_, state_->initial.flatten())); }

Stream::Voice::Voice(const Voice& other)
    : state_(std::make_shared<State>(other.state_->stream, other.state_->states[other.state_->current])) {}

void Stream::Voice::reset() {
  const std::vector<Array>& initial = state_->initial;
  for (std::size_t i = 0; i < initial.size(); ++i)
    std::memcpy(state_->states[state_->current][i].raw(), initial[i].raw(), initial[i].bytes());
}

template <class T> void Stream::Voice::step_as(std::span<const T> x, std::span<T> y) {
  State& own = *state_;
  if (own.of_both != dtype_of<T>() || x.size() != own.x_size || y.size() != own.y_size) {
    const Stream::State& stream = *own.stream;
    throw UserError(
        "stream",
        "a step takes " + data::str(stream.inputs) + " and gives " + stream.executable.output_types().front().str(),
        std::string(name_of(dtype_of<T>())) + ", " + std::to_string(x.size()) + " numbers in and " +
            std::to_string(y.size()) + " out",
        own.of_both ? "" : "step() with the address of each input");
  }
  own.give(0, x.data(), y.data());
  own.run(y.data());
}

void Stream::Voice::step(std::span<const float> x, std::span<float> y) { step_as(x, y); }
void Stream::Voice::step(std::span<const double> x, std::span<double> y) { step_as(x, y); }
void Stream::Voice::step(std::span<const void* const> inputs, void* y) {
  State& own = *state_;
  if (inputs.size() != own.given.size())
    throw UserError("stream", "a step takes " + data::str(own.stream->inputs),
                    std::to_string(inputs.size()) + (inputs.size() == 1 ? " address" : " addresses"));
  for (std::size_t k = 0; k < inputs.size(); ++k) own.give(k, inputs[k], y);
  own.run(y);
}

}  // namespace hotloop
