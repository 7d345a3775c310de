// The inside of an Executable.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "hotloop/jit.h"
#include "runtime/engine.h"
#include "runtime/pool.h"
#include "runtime/program_facts.h"

namespace hotloop {

namespace runtime {

// For a result of a call, uninitialised. OutOfMemory if there is none.
std::shared_ptr<void> result_memory(const ValueType& type);

}  // namespace runtime

struct Executable::Impl {
  struct Call {  // what one call needs, kept for the next
    std::vector<void*> inputs, outputs;
    std::vector<Array> results;
  };

  runtime::ProgramFacts program;
  std::function<std::string()> graph_text;  // of the graph after the passes
  CompileOptions options;
  std::vector<ValueType> inputs, outputs;
  std::int64_t max_rows = 1;
  std::shared_ptr<const runtime::Engine> engine;
  std::vector<Array> bound;           // arguments after `inputs` that every call gets, see compile_bound()
  std::optional<Executable> prepare;  // what makes them of the values that are bound
  std::string device_choice;  // with device "auto", the estimates that it was chosen by; empty: nothing to choose
  std::vector<runtime::StageTime> stages;
  double bytes = 0;

  // Of the graph after the passes: what the program is called and what it does, as calls and explain() tell.
  void take_facts(std::shared_ptr<const Graph> graph);

  mutable runtime::ObjectPool<Call> calls;
  mutable std::atomic<std::int64_t> num_calls{0}, num_timed{0}, total_ns{0},
      best_ns{0};  // best: of calls with all rows

  // Number of batch rows that arguments of these types bring, or -1 if some type does not fit (`misfit`: which).
  template <class Types> std::int64_t rows_of(const Types& types, std::size_t* misfit) const;
  ValueType output_type(std::size_t index, std::int64_t rows) const;
  std::int64_t check(std::span<const Array> arrays) const;
  int input_of(std::size_t output) const { return program.in_place.empty() ? -1 : program.in_place[output]; }
  std::unique_ptr<Call> take_call() const;
  std::int64_t check_call(std::span<const Array> in, std::span<const Array> out) const;
  void run(std::span<const Array> in, std::span<Array> out, std::int64_t rows, std::span<const Array> donated) const;
  // Results that take over an input's memory begin with what it holds: copies it where they have other memory.
  void fill_in_place(void* const* in, void* const* out, std::int64_t rows) const;
  void launch(void* const* in, void* const* out, std::int64_t rows) const;
};

template <class Types> std::int64_t Executable::Impl::rows_of(const Types& types, std::size_t* misfit) const {
  std::int64_t rows = -1;
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    const ValueType& given = types[i];
    const ValueType& wanted = inputs[i];
    const int batch = options.batch_axes.empty() ? -1 : options.batch_axes[i];
    bool fits = given.dtype == wanted.dtype && given.shape.rank() == wanted.shape.rank();
    for (int axis = 0; fits && axis < wanted.shape.rank(); ++axis) {
      if (axis != batch) {
        fits = given.shape[axis] == wanted.shape[axis];
      } else {
        if (rows < 0) rows = given.shape[axis];
        fits = given.shape[axis] == rows && rows <= max_rows;
      }
    }
    if (!fits) {
      *misfit = i;
      return -1;
    }
  }
  return rows < 0 ? max_rows : rows;
}

}  // namespace hotloop
