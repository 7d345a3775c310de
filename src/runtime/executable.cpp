#include "runtime/executable.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <utility>

#include "core/cancel.h"
#include "core/memory.h"
#include "core/own_memory.h"
#include "hotloop/error.h"
#include "runtime/history.h"

namespace hotloop {
namespace {

// The types of a span of arrays, without copying them.
struct TypesOf {
  std::span<const Array> arrays;
  const ValueType& operator[](std::size_t i) const { return arrays[i].type(); }
};

}  // namespace

std::shared_ptr<void> runtime::result_memory(const ValueType& type) {
  try {
    return array_pool().take(type.bytes());
  } catch (const std::bad_alloc&) {
    throw OutOfMemory(type.str(), static_cast<double>(type.bytes()));
  }
}

ValueType Executable::Impl::output_type(std::size_t index, std::int64_t rows) const {
  ValueType type = outputs[index];
  const int axis = program.output_batch_axes.empty() ? -1 : program.output_batch_axes[index];
  if (axis >= 0 && max_rows > 0) type.shape[axis] = type.shape[axis] / max_rows * rows;
  return type;
}

void Executable::Impl::take_facts(std::shared_ptr<const Graph> graph) {
  program.name = graph->name();
  program.num_nodes = graph->nodes().size();
  program.arithmetic = ir::count_arithmetic(*graph);
  graph_text = [graph = std::move(graph)] { return graph->str(); };
}

std::int64_t Executable::Impl::check(std::span<const Array> arrays) const {
  if (arrays.size() != inputs.size())
    throw UserError(program.name, "the program takes " + std::to_string(inputs.size()) + " arguments",
                    std::to_string(arrays.size()));
  for (std::size_t i = 0; i < arrays.size(); ++i)
    if (!arrays[i].defined())
      throw UserError(program.name, "argument " + std::to_string(i) + " must be an array of " + inputs[i].str(),
                      "an undefined array");
  std::size_t misfit = 0;
  const std::int64_t rows = rows_of(TypesOf{arrays}, &misfit);
  if (rows >= 0) return rows;
  const int batch = options.batch_axes.empty() ? -1 : options.batch_axes[misfit];
  throw UserError(
      program.name,
      "argument " + std::to_string(misfit) + " must be " + inputs[misfit].str() +
          (batch < 0 ? ""
                     : ", or shorter along its batch axis " + std::to_string(batch) + " (alike for all arguments)"),
      arrays[misfit].type().str(), "compile for these types, or convert the argument");
}

void Executable::Impl::fill_in_place(void* const* in, void* const* out, std::int64_t rows) const {
  for (std::size_t i = 0; i < program.in_place.size(); ++i)
    if (const int input = program.in_place[i]; input >= 0 && in[input] != out[i])
      std::memcpy(out[i], in[input], output_type(i, rows).bytes());
}

void Executable::Impl::launch(void* const* in, void* const* out, std::int64_t rows) const {
  const CancelWatch watch;
  fill_in_place(in, out, rows);  // a caller who keeps what was donated gets the output elsewhere
  // Reading the clock twice takes longer than a small kernel: after a while only some calls are timed.
  constexpr std::int64_t first_timed = 32, timed_every = 32;
  const std::int64_t call = num_calls.fetch_add(1, std::memory_order_relaxed);
  if (call >= first_timed && call % timed_every != 0 && !runtime::history_is_recording()) {
    engine->run(in, out, rows);
    watch.finish();
    return;
  }
  using Clock = std::chrono::steady_clock;
  const auto start = Clock::now();
  engine->run(in, out, rows);
  watch.finish();
  const std::int64_t ns = std::chrono::duration_cast<std::chrono::nanoseconds>(Clock::now() - start).count();
  num_timed.fetch_add(1, std::memory_order_relaxed);
  total_ns.fetch_add(ns, std::memory_order_relaxed);
  std::int64_t best = best_ns.load(std::memory_order_relaxed);
  const bool all_rows = options.batch_axes.empty() || rows == max_rows;
  while (all_rows && (best == 0 || ns < best) && !best_ns.compare_exchange_weak(best, ns, std::memory_order_relaxed)) {
  }
  if (runtime::history_is_recording() && !engine->launches_others()) {
    KernelRecord record = engine->describe(rows);
    record.rows = rows;
    record.flops =
        program.arithmetic.flops * (all_rows ? 1 : static_cast<double>(rows) / static_cast<double>(max_rows));
    record.flops_are_bound = program.arithmetic.is_bound;
    record.bytes = bytes;
    record.time_us = static_cast<double>(ns) * 1e-3;
    runtime::record_launch(record);
  }
}

std::unique_ptr<Executable::Impl::Call> Executable::Impl::take_call() const {
  std::unique_ptr<Call> call = calls.take();
  if (call) return call;
  call = std::make_unique<Call>();
  call->inputs.resize(inputs.size());
  for (const Array& a : bound) call->inputs.push_back(a.memory().get());
  call->outputs.resize(outputs.size());
  call->results.resize(outputs.size());
  return call;
}

void Executable::run(std::span<const Array> inputs, std::span<Array> outputs) const {
  const std::int64_t rows = impl_->check_call(inputs, outputs);
  impl_->run(inputs, outputs, rows, {});
}

void Executable::run_donating(std::span<Array> inputs, std::span<Array> outputs) const {
  const Impl& self = *impl_;
  const std::int64_t rows = self.check_call(inputs, outputs);
  for (const int i : self.options.donated)
    if (!is_sole_owner(inputs[static_cast<std::size_t>(i)].memory()))
      throw UserError(
          self.program.name,
          "donated argument " + std::to_string(i) + " must have memory of the library's own, and be alone with it",
          "memory that is wrapped, or that another Array shares", "clone()");
  // Without memory from here on, whatever happens.
  std::vector<Array> donated;
  donated.reserve(self.options.donated.size());
  for (const int i : self.options.donated) donated.push_back(std::move(inputs[static_cast<std::size_t>(i)]));
  self.run(inputs, outputs, rows, donated);
}

std::int64_t Executable::Impl::check_call(std::span<const Array> in, std::span<const Array> out) const {
  const std::int64_t rows = check(in);
  if (out.size() != outputs.size())
    throw UserError(program.name, "the program gives " + std::to_string(outputs.size()) + " outputs",
                    "room for " + std::to_string(out.size()));
  return rows;
}

// `donated`: the arrays of options.donated, taken out of `in`; or none.
void Executable::Impl::run(std::span<const Array> in, std::span<Array> out, std::int64_t rows,
                           std::span<const Array> donated) const {
  std::unique_ptr<Call> call = take_call();
  for (std::size_t i = 0; i < in.size(); ++i) call->inputs[i] = in[i].memory().get();
  for (std::size_t i = 0; i < donated.size(); ++i)
    call->inputs[static_cast<std::size_t>(options.donated[i])] = donated[i].memory().get();
  for (std::size_t i = 0; i < out.size(); ++i) {
    const ValueType type = output_type(i, rows);
    const auto at = std::ranges::find(options.donated, input_of(i)) - options.donated.begin();
    const bool takes_over = static_cast<std::size_t>(at) < donated.size();
    call->results[i] =
        Array::wrap(type.dtype, type.shape,
                    takes_over ? donated[static_cast<std::size_t>(at)].memory() : runtime::result_memory(type));
    call->outputs[i] = call->results[i].raw();
  }
  launch(call->inputs.data(), call->outputs.data(), rows);
  // Only now, since `out` may hold the very arrays that are the inputs.
  for (std::size_t i = 0; i < out.size(); ++i) out[i] = std::exchange(call->results[i], Array{});
  calls.put(std::move(call));
}

std::vector<Array> Executable::operator()(std::span<const Array> inputs) const {
  std::vector<Array> outputs(impl_->outputs.size());
  run(inputs, outputs);
  return outputs;
}

void Executable::run_raw(void* const* inputs, void* const* outputs, std::int64_t rows) const {
  const Impl& self = *impl_;
  if (self.bound.empty()) {
    self.launch(inputs, outputs, rows);
    return;
  }
  std::unique_ptr<Impl::Call> call = self.take_call();
  std::copy_n(inputs, self.inputs.size(), call->inputs.begin());
  self.launch(call->inputs.data(), outputs, rows);
  self.calls.put(std::move(call));
}

const std::vector<ValueType>& Executable::input_types() const { return impl_->inputs; }
const std::vector<ValueType>& Executable::output_types() const { return impl_->outputs; }
std::string Executable::graph_text() const { return impl_->graph_text(); }
std::string Executable::kernel_text() const { return impl_->engine->kernel_text(); }
const std::string& Executable::source() const { return impl_->engine->source(); }

}  // namespace hotloop
