// Streaming: a model run one time step at a time, its state carried from call to call.
//
//   Stream stream(model, run.params, /*features=*/10);          // weights are laid out once, here
//   Stream::Voice voice = stream.voice();
//   for (;;) { read(x); voice.step(x, y); write(y); }           // no allocation, no lock
//
// A model is one that takes (batch, time, features), or a tree of inputs; what it gives for each step of a stream is what it gives for that step of the
// whole sequence, to the bit. A layer that reads the sequence from its end refuses a stream; one that pools over time sees one step.
//
// Of a tree, or of one input that is not (batch, time, features), a step is a sequence of one step, as the model takes it: [batch, 1, ...] of what has
// steps, [batch, ...] of what has none. Of more axes than two, or of integers, the second is that of time if its extent is 1.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "hotloop/jit.h"
#include "hotloop/nn.h"
#include "hotloop/tree.h"

namespace hotloop {

struct StreamOptions {
  std::int64_t batch = 1;    // number of sequences that advance together
  Tree<Array> buffers = {};  // the model's, such as running means, that training gave with the parameters
  CompileOptions compile = {};
};

class Stream {
 public:
  // The parameters' dtype is that of x, y and the state. Later changes of the parameters' memory do not reach the stream. UserError
  // if the model does not take (batch, 1, features), or has buffers that are not given.
  Stream(const nn::Layer& model, const Tree<Array>& params, std::int64_t features, const StreamOptions& options = {});
  // Of inputs with these types, of options.batch rows.
  Stream(const nn::Layer& model, const Tree<Array>& params, const Tree<ValueType>& inputs,
         const StreamOptions& options = {});

  Tree<Array> initial_state() const;
  // One step from `state`: x [batch, features], or the inputs -> (y [batch, ...], the state after it). Safe to call from several threads.
  std::pair<Array, Tree<Array>> step(const Tree<Array>& state, const Tree<Array>& x) const;

  const Tree<ValueType>& inputs() const;
  const ValueType& input_type() const;  // of the first
  const ValueType& output_type() const;
  std::string explain() const;
  const Executable& executable() const;  // (state..., inputs...) -> (y, state...)

  // One sequence (or `batch` of them) with a state of its own, for real-time use: a step allocates nothing, takes no lock unless options.compile
  // has more than one thread, and goes to its end whatever is cancelled. Used by one thread at a time. A copy is a voice of its own, which goes
  // on from the same state; one that was moved from can only be assigned to or destroyed.
  class Voice {
   public:
    Voice(const Voice& other);
    Voice(Voice&&) noexcept = default;
    Voice& operator=(const Voice& other) { return *this = Voice(other); }
    Voice& operator=(Voice&&) noexcept = default;

    void reset();  // back to the initial state, without an allocation
    // x: input_type().shape.size() numbers; y: output_type()'s. UserError for spans of another length or dtype, and for several inputs.
    void step(std::span<const float> x, std::span<float> y);
    void step(std::span<const double> x, std::span<double> y);
    // Of inputs of whatever types: the address of each, in the order of inputs(), and of as many numbers of output_type() as it has.
    // UserError for another number of addresses.
    void step(std::span<const void* const> inputs, void* y);

   private:
    friend class Stream;
    struct State;
    explicit Voice(std::shared_ptr<State> state) : state_(std::move(state)) {}
    template <class T> void step_as(std::span<const T> x, std::span<T> y);
    std::shared_ptr<State> state_;
  };
  Voice voice() const;

 private:
  struct State;
  std::shared_ptr<const State> state_;
};

// One step as a graph: (params..., buffers..., state..., x [batch, features] or the inputs...) -> (y, state...).
struct StreamStep {
  std::shared_ptr<Graph> graph;
  std::vector<Array> bound;  // params and buffers, then one undefined array for each other input: for compile_bound
  std::vector<std::string> bound_names;  // of the params and buffers
  Tree<Array> initial_state;
  Tree<ValueType> inputs;
};
StreamStep stream_step(const nn::Layer& model, const Tree<Array>& params, std::int64_t features,
                       const StreamOptions& options = {});
StreamStep stream_step(const nn::Layer& model, const Tree<Array>& params, const Tree<ValueType>& inputs,
                       const StreamOptions& options = {});

}  // namespace hotloop
