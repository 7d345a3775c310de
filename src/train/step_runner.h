// The compiled training step, alone and several in one call, with the arrays that it carries from step to step.
#pragma once

#include <map>
#include <optional>
#include <span>
#include <vector>

#include "hotloop/fit.h"
#include "hotloop/jit.h"
#include "hotloop/train.h"
#include "train/batches.h"

namespace hotloop::train {

// What the step of a training takes, of samples with lengths and weights or without, and how it is compiled.
StepOptions step_options(const FitOptions& options, bool lengths, bool weights, const Tree<Array>& buffers);
CompileOptions step_compile_options(CompileOptions options);
// The step for any number of rows or, where it cannot be, for its own, which sets `fixed_rows`.
Executable compile_step(const Step& step, CompileOptions options, bool* fixed_rows = nullptr);

// Parameters, optimiser state and buffers, flattened one after another, are kept twice: a call reads one copy and writes the
// other, so the values before a call are still there after it.
class StepRunner {
 public:
  // Compiles the step and, if `steps_per_call` > 1, so many of them in one loop. `compile` without batch axes. A step whose rows
  // cannot vary in number is compiled for each number it meets.
  StepRunner(const Step& step, std::int64_t steps_per_call, const CompileOptions& compile,
             const std::vector<Array>& carried);

  // Takes the block's batches. Their losses, and with a weighted step the total weights (empty otherwise), stay valid until the
  // next call.
  struct Result {
    std::span<const double> losses, weights;
  };
  Result run(const BatchBlock& block);
  // Compiles what run() of this block takes, if that is not there yet.
  void prepare(const BatchBlock& block);

  std::span<const Array> carried() const { return current_; }
  // Replaces the values: the state a validation has changed, or the one to go on from.
  void set_carried(std::span<const Array> values);

  const Step& step() const { return step_; }
  std::string explain() const;  // of the program that takes the most steps

 private:
  const Executable& for_rows(std::int64_t rows);

  Step step_;
  std::int64_t steps_per_call_;
  CompileOptions options_;
  bool fixed_rows_ = false;
  Executable one_;
  std::map<std::int64_t, Executable> by_rows_;  // of fewer rows, with fixed_rows_
  std::optional<Executable> many_;
  std::vector<Array> current_, next_;
  Array losses_, totals_;  // [steps_per_call]
  std::vector<double> loss_values_, total_values_;
  std::vector<void*> inputs_, outputs_;
};

}  // namespace hotloop::train
