#include "train/step_runner.h"

#include <cstring>
#include <utility>

#include "core/denormals.h"
#include "hotloop/error.h"
#include "hotloop/fixed_rows.h"

namespace hotloop::train {
StepOptions step_options(const FitOptions& options, bool lengths, bool weights, const Tree<Array>& buffers) {
  return {.key = true,
          .lengths = lengths,
          .sample_weights = weights,
          .class_weights = options.class_weights,
          .buffers = buffers};
}

// What gets no gradient any more leaves an optimiser averages that decay to denormals, and stay there: 0.9 times the least one rounds to itself.
CompileOptions step_compile_options(CompileOptions options) {
  if (!options.flush_denormals) options.flush_denormals = DenormalsAsZero::is_possible;
  return options;
}

Executable compile_step(const Step& step, CompileOptions options, bool* fixed_rows) {
  options.batch_axes = step.batch_axes;
  const std::shared_ptr<Graph> graph = step.graph();
  try {
    return compile(graph, options);
  } catch (const NeedsFixedRows&) {
    if (fixed_rows != nullptr) *fixed_rows = true;
    options.batch_axes.clear();
    return compile(graph, options);
  }
}

StepRunner::StepRunner(const Step& step, std::int64_t steps_per_call, const CompileOptions& compile,
                       const std::vector<Array>& carried)
    : step_(step), steps_per_call_(steps_per_call), options_(compile), one_(compile_step(step, compile, &fixed_rows_)) {
  if (steps_per_call > 1) many_ = compile_step(many_steps(step, steps_per_call), compile);
  HOTLOOP_CHECK(carried.size() == step.num_carried(), "carried arrays of another structure than the step was made for");
  for (std::vector<Array>* copy : {&current_, &next_})
    for (const Array& leaf : carried) copy->push_back(leaf.clone());
  losses_ = Array::zeros(one_.output_types()[carried.size()].dtype, {steps_per_call});
  totals_ = losses_.clone();
}

StepRunner::Result StepRunner::run(const BatchBlock& block) {
  inputs_.clear();
  outputs_.clear();
  for (Array& a : current_) inputs_.push_back(a.raw());
  for (Array& a : next_) outputs_.push_back(a.raw());
  // Whatever the step takes of these is there in this order; a program only reads them.
  for (const Array& a : block.x) inputs_.push_back(const_cast<void*>(a.raw()));
  for (const Array* a : {&block.y, &block.key, &block.lengths, &block.weights})
    if (a->defined()) inputs_.push_back(const_cast<void*>(a->raw()));
  outputs_.push_back(losses_.raw());
  if (step_.weighted) outputs_.push_back(totals_.raw());
  // One step reads the first of the block's batches, which is where the memory of all of them begins.
  (block.count > 1 ? *many_ : for_rows(block.rows)).run_raw(inputs_.data(), outputs_.data(), block.rows);
  std::swap(current_, next_);

  const auto values = [&](const Array& from, std::vector<double>& to) {
    to.clear();
    for (std::int64_t i = 0; i < block.count; ++i) to.push_back(from.at(i));
    return std::span<const double>(to);
  };
  return {values(losses_, loss_values_), step_.weighted ? values(totals_, total_values_) : std::span<const double>()};
}

void StepRunner::prepare(const BatchBlock& block) {
  if (block.count == 1) for_rows(block.rows);
}

const Executable& StepRunner::for_rows(std::int64_t rows) {
  if (!fixed_rows_) return one_;
  Step fewer = step_;
  bool full = true;
  for (std::size_t i = 0; i < fewer.input_types.size(); ++i)
    if (const int axis = fewer.batch_axes[i]; axis >= 0) {
      full = full && fewer.input_types[i].shape[axis] == rows;
      fewer.input_types[i].shape[axis] = rows;
    }
  if (full) return one_;
  const auto found = by_rows_.find(rows);
  return found != by_rows_.end() ? found->second
                                 : by_rows_.emplace(rows, compile(fewer.graph(), options_)).first->second;
}

void StepRunner::set_carried(std::span<const Array> values) {
  for (std::size_t i = 0; i < current_.size(); ++i)
    std::memcpy(current_[i].raw(), values[i].raw(), current_[i].bytes());
}

std::string StepRunner::explain() const { return (many_ ? *many_ : one_).explain(); }

}  // namespace hotloop::train
