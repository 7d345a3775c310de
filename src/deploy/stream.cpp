#include "hotloop/stream.h"

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <exception>
#include <functional>

#include "hotloop/error.h"
#include "hotloop/ops.h"
#include "ir/op_def.h"
#include "nn/check_params.h"
#include "runtime/executable.h"

namespace hotloop {
namespace {

DType dtype_of_params(const Tree<Array>& params) {
  const std::vector<Array> leaves = params.flatten();
  return leaves.empty() ? DType::F32 : leaves.front().dtype();
}

Tree<Array> traced_initial_state(const nn::Layer& model, std::int64_t batch, DType dtype) {
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

}  // namespace

StreamStep stream_step(const nn::Layer& model, const Tree<Array>& params, std::int64_t features,
                       const StreamOptions& options) {
  const std::int64_t batch = options.batch;
  if (features <= 0 || batch <= 0)
    throw UserError("stream", "features and batch must be positive",
                    std::to_string(features) + " features, batch " + std::to_string(batch));
  nn::check_params("stream", model, params);
  const DType dtype = dtype_of_params(params);
  const Tree<Array>& buffers = options.buffers;
  nn::check_defined("stream", "buffers", buffers);
  check_buffers(model, buffers, dtype);
  StreamStep step;
  step.initial_state = traced_initial_state(model, batch, dtype);
  for (const Tree<Array>* tree : {&params, &buffers})
    tree->for_each([&](const std::string& name, const Array& leaf) {
      step.bound.push_back(leaf);
      step.bound_names.push_back(name);
    });
  std::vector<ValueType> types;
  for (const Array& leaf : step.bound) types.push_back(leaf.type());
  for (const Array& leaf : step.initial_state.flatten()) types.push_back(leaf.type());
  types.push_back({dtype, {batch, features}});
  const std::size_t p = params.num_leaves(), b = buffers.num_leaves(), s = step.initial_state.num_leaves();
  const auto apply = [&](std::span<const Value> in, Value x, nn::Context& context) {
    context.buffers = buffers.unflatten(in.subspan(p, b));
    context.state = step.initial_state.unflatten(in.subspan(p + b, s));
    return model.apply(params.unflatten(in.first(p)), x, context);
  };
  // An axis of one step and one of one feature look alike: with two steps the first grows.
  const auto keeps_time = [&] {
    try {
      const auto two = trace(
          [&](std::span<const Value> in) {
            nn::Context context;
            return std::vector{apply(in, broadcast(in.back(), {batch, 2, features}, {0, 2}), context)};
          },
          types, "two_steps");
      const Shape shape = two->outputs()[0].shape();
      return shape.rank() > 1 && shape[1] == 2;
    } catch (const std::exception&) {  // a Python layer's, too
      return false;                    // a model of one step alone
    }
  };
  try {
    step.graph = trace(
        [&](std::span<const Value> in) {
          nn::Context context;
          Value y = apply(in, reshape(in.back(), {batch, 1, features}), context);
          // Many-to-many models keep the axis of time.
          if (y.rank() > 1 && y.shape()[1] == 1 && keeps_time()) y = reshape(y, y.shape().without(1));
          std::vector<Value> outputs = {y};
          const std::vector<Value> after = context.state->flatten();
          HOTLOOP_CHECK(after.size() == s, "a step keeps the structure of the state");
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
  step.bound.resize(types.size());
  return step;
}

struct Stream::State {
  Executable executable;
  Tree<Array> initial;
};

Stream::Stream(const nn::Layer& model, const Tree<Array>& params, std::int64_t features, const StreamOptions& options) {
  const StreamStep step = stream_step(model, params, features, options);
  state_ =
      std::make_shared<const State>(State{compile_bound(step.graph, step.bound, options.compile), step.initial_state});
}

Tree<Array> Stream::initial_state() const {
  return state_->initial.map([](const Array& leaf) { return leaf.clone(); });
}

std::pair<Array, Tree<Array>> Stream::step(const Tree<Array>& state, const Array& x) const {
  std::vector<Array> inputs = state.flatten();
  if (state.names() != state_->initial.names())
    throw UserError("stream", "the state must be as initial_state() gives it",
                    std::to_string(state.num_leaves()) + " leaves of other names");
  inputs.push_back(x);
  std::vector<Array> outputs = state_->executable(inputs);
  return {outputs[0], state.unflatten(std::span<const Array>(outputs).subspan(1))};
}

const ValueType& Stream::input_type() const { return state_->executable.input_types().back(); }
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
  std::vector<Array> states[2];
  // Of a step that reads states[i]: the state, x, what is bound; y, the state.
  std::vector<void*> inputs[2], outputs[2];
  std::size_t x = 0;  // where x stands among the inputs
  DType dtype = DType::F32;
  std::size_t x_size = 0, y_size = 0;
  std::vector<std::byte> own_x;  // for a caller whose x and y are the same memory: y is written while x is still read
  std::int64_t batch = 1;
  std::unique_ptr<runtime::Engine::Seat> seat;
  int current = 0;

  State(std::shared_ptr<const Stream::State> of, std::span<const Array> start) : stream(std::move(of)) {
    const Executable& executable = stream->executable;
    for (auto& copy : states)
      for (const Array& leaf : start) copy.push_back(leaf.clone());
    for (int i = 0; i < 2; ++i) {
      outputs[i].push_back(nullptr);
      for (Array& leaf : states[i]) inputs[i].push_back(leaf.raw());
      for (Array& leaf : states[1 - i]) outputs[i].push_back(leaf.raw());
      inputs[i].push_back(nullptr);
      for (const Array& a : executable.impl().bound) inputs[i].push_back(a.memory().get());
    }
    const ValueType &x_type = executable.input_types().back(), &y_type = executable.output_types().front();
    x = start.size();
    dtype = x_type.dtype;
    x_size = static_cast<std::size_t>(x_type.shape.size());
    y_size = static_cast<std::size_t>(y_type.shape.size());
    own_x.resize(x_type.bytes());
    batch = x_type.shape[0];
    seat = executable.impl().engine->seat();
  }
};

Stream::Voice Stream::voice() const { return Voice(std::make_shared<Voice::State>(state_, state_->initial.flatten())); }

Stream::Voice::Voice(const Voice& other)
    : state_(std::make_shared<State>(other.state_->stream, other.state_->states[other.state_->current])) {}

void Stream::Voice::reset() {
  const std::vector<Array> initial = state_->stream->initial.flatten();
  for (std::size_t i = 0; i < initial.size(); ++i)
    std::memcpy(state_->states[state_->current][i].raw(), initial[i].raw(), initial[i].bytes());
}

template <class T> void Stream::Voice::step_as(std::span<const T> x, std::span<T> y) {
  State& own = *state_;
  if (own.dtype != dtype_of<T>() || x.size() != own.x_size || y.size() != own.y_size) {
    const Executable& executable = own.stream->executable;
    throw UserError("stream",
                    "a step takes " + executable.input_types().back().str() + " and gives " +
                        executable.output_types().front().str(),
                    std::string(name_of(dtype_of<T>())) + ", " + std::to_string(x.size()) + " numbers in and " +
                        std::to_string(y.size()) + " out");
  }
  const auto i = static_cast<std::size_t>(own.current);
  own.inputs[i][own.x] = const_cast<T*>(x.data());  // read only
  if (meet(std::as_bytes(x), std::as_bytes(y))) {
    std::memcpy(own.own_x.data(), x.data(), own.own_x.size());
    own.inputs[i][own.x] = own.own_x.data();
  }
  own.outputs[i].front() = y.data();
  // Straight to the kernel: counting and timing the call would cost as much as a small step.
  own.seat->run(own.inputs[i].data(), own.outputs[i].data(), own.batch);
  own.current = 1 - own.current;
}

void Stream::Voice::step(std::span<const float> x, std::span<float> y) { step_as(x, y); }
void Stream::Voice::step(std::span<const double> x, std::span<double> y) { step_as(x, y); }

}  // namespace hotloop
