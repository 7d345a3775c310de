// The batches of a training in order, gathered ahead of the steps that take them.
#pragma once

#include <atomic>
#include <exception>
#include <memory>
#include <optional>
#include <semaphore>
#include <thread>
#include <vector>

#include "hotloop/data.h"
#include "nn/torch_generator.h"

namespace hotloop::train {

// What the order of all batches follows from. Epoch e shows the samples in the order shuffled(num_samples, fold_in(seed,
// "shuffle"), e), or the e-th permutation that `torch` draws, in batches of `batch_size` of which the last may be shorter.
struct BatchPlan {
  std::int64_t batch_size = 1, num_epochs = 1;
  std::uint64_t seed = 0;
  std::shared_ptr<const nn::TorchGenerator> torch = nullptr;  // as it stands before the first epoch
  bool shuffle = true;
  std::int64_t steps_per_call = 1;  // so many whole batches are gathered together
  std::int64_t every_steps = 0;     // but never across a multiple of this many steps of the run; 0: no such multiples
};

// A position: `step` batches of `epoch` (from 1) are taken, `num_steps` of the whole run.
struct BatchPosition {
  std::int64_t epoch = 1, step = 0, num_steps = 0;
};

// The orders of one plan's epochs; cheapest when asked for one epoch after another.
class SampleOrder {
 public:
  SampleOrder(const BatchPlan& plan, std::int64_t num_samples);
  // The order of an epoch, counted from 1.
  std::vector<std::int64_t> operator()(std::int64_t epoch);

 private:
  const bool shuffle_;
  const std::uint64_t seed_;
  const std::shared_ptr<const nn::TorchGenerator> first_;
  const std::int64_t num_samples_;
  std::optional<nn::TorchGenerator> torch_;  // as it stands before next_epoch_
  std::int64_t next_epoch_ = 1;
};

// The batches of one call, one after another.
struct BatchBlock {
  BatchPosition start;
  std::int64_t count = 1;  // batches: 1 or steps_per_call
  std::int64_t rows = 0;   // samples of each
  bool ends_epoch = false;
  // [steps_per_call, batch_size, ...]; key u32 [steps_per_call, 2]; the last two may be undefined
  std::vector<Array> x;  // leaves of Dataset::inputs()
  Array y, key, lengths, weights;
};

// Whether there is another block, and which: start, count, rows, ends_epoch.
std::optional<BatchBlock> next_block(const BatchPlan& plan, const BatchPosition& position, std::int64_t num_samples);

// Hands out the blocks from a position on. With `ahead`, a thread gathers the next block while the caller works on this one, once
// the first few have shown that gathering takes longer than waking a thread does; the blocks are the same.
class BatchStream {
 public:
  BatchStream(const data::Dataset& samples, const BatchPlan& plan, const BatchPosition& start, bool ahead);
  ~BatchStream();
  BatchStream(const BatchStream&) = delete;
  BatchStream& operator=(const BatchStream&) = delete;

  // The next block, valid until the next call; null after the last. Throws what Dataset::gather() threw.
  const BatchBlock* next();

 private:
  bool fill(BatchBlock& block);
  const BatchBlock* fill_here();
  void produce();

  const data::Dataset& samples_;
  BatchPlan plan_;
  BatchPosition position_;
  SampleOrder order_of_;
  std::vector<std::int64_t> order_;
  std::int64_t order_epoch_ = 0;

  int trials_left_ = 0;  // blocks to be gathered here before a thread is considered
  double least_fill_s_ = 0;
  bool thread_wanted_ = false;
  BatchBlock blocks_[2];
  std::size_t next_ = 0;  // block that next() gives
  bool held_ = false;     // whether the caller holds the other one
  std::atomic<bool> stop_{false};
  std::counting_semaphore<2> empty_{2}, full_{0};
  bool ended_[2] = {false, false};
  std::exception_ptr error_;
  std::thread thread_;  // last: it uses all the above
};

}  // namespace hotloop::train
