#include "train/batches.h"

#include <algorithm>
#include <chrono>
#include <numeric>
#include <utility>

#include "core/index.h"
#include "hotloop/fit.h"
#include "hotloop/train.h"

namespace hotloop::train {
namespace {

constexpr int num_trials = 4;
constexpr double handover_s = 200e-6;  // waking a thread twice takes some 10 us, and on a busy machine ten times that

}  // namespace

std::optional<BatchBlock> next_block(const BatchPlan& plan, const BatchPosition& position, std::int64_t num_samples) {
  const std::int64_t per_epoch = divided_up(num_samples, plan.batch_size);
  BatchBlock block;
  block.start = position;
  if (block.start.step >= per_epoch) block.start = {position.epoch + 1, 0, position.num_steps};
  if (block.start.epoch > plan.num_epochs) return {};
  const std::int64_t whole_left = num_samples / plan.batch_size - block.start.step;
  const std::int64_t until_mark =
      plan.every_steps > 0 ? plan.every_steps - block.start.num_steps % plan.every_steps : whole_left;
  if (plan.steps_per_call <= std::min(whole_left, until_mark)) block.count = plan.steps_per_call;
  block.rows = std::min(plan.batch_size, num_samples - block.start.step * plan.batch_size);
  block.ends_epoch = block.start.step + block.count == per_epoch;
  return block;
}

SampleOrder::SampleOrder(const BatchPlan& plan, std::int64_t num_samples)
    : shuffle_(plan.shuffle), seed_(plan.seed), first_(plan.torch), num_samples_(num_samples) {}

std::vector<std::int64_t> SampleOrder::operator()(std::int64_t epoch) {
  if (!shuffle_) {
    std::vector<std::int64_t> order(static_cast<std::size_t>(num_samples_));
    std::iota(order.begin(), order.end(), std::int64_t{0});
    return order;
  }
  if (!first_) return shuffled(num_samples_, nn::fold_in(seed_, "shuffle"), static_cast<std::uint64_t>(epoch));
  if (!torch_ || epoch < next_epoch_) {
    torch_ = *first_;
    next_epoch_ = 1;
  }
  // A stream has no shortcut to a later epoch: a fit that goes on there draws the earlier orders again.
  for (; next_epoch_ < epoch; ++next_epoch_) torch_->permutation(num_samples_);
  ++next_epoch_;
  return torch_->permutation(num_samples_);
}

BatchStream::BatchStream(const data::Dataset& samples, const BatchPlan& plan, const BatchPosition& start, bool ahead)
    : samples_(samples), plan_(plan), position_(start), order_of_(plan, samples.size()) {
  const std::int64_t k = plan.steps_per_call;
  const auto stacked = [&](const ValueType& type) { return Array::zeros(type.dtype, type.shape.with_inserted(0, k)); };
  for (BatchBlock& block : blocks_) {
    for (const ValueType& type : samples.input_types(plan.batch_size).flatten()) block.x.push_back(stacked(type));
    block.y = stacked(samples.target_type(plan.batch_size));
    block.key = Array::zeros(DType::U32, {k, 2});
    if (samples.has_lengths()) block.lengths = stacked({DType::I32, {plan.batch_size}});
    if (samples.has_weights()) block.weights = stacked({samples.dtype(), {plan.batch_size}});
  }
  if (ahead) trials_left_ = num_trials;
}

BatchStream::~BatchStream() {
  if (!thread_.joinable()) return;
  stop_.store(true, std::memory_order_relaxed);
  empty_.release();
  thread_.join();
}

const BatchBlock* BatchStream::fill_here() {
  const auto start = std::chrono::steady_clock::now();
  const bool filled = fill(blocks_[0]);
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  // The least of a few: what a busy machine adds is no reason for a thread.
  least_fill_s_ = trials_left_ == num_trials ? seconds : std::min(least_fill_s_, seconds);
  if (trials_left_ > 0 && --trials_left_ == 0 && least_fill_s_ > handover_s) thread_wanted_ = true;
  return filled ? &blocks_[0] : nullptr;
}

const BatchBlock* BatchStream::next() {
  // The caller has returned the last block, so both are free.
  if (std::exchange(thread_wanted_, false)) thread_ = std::thread([this] { produce(); });
  if (!thread_.joinable()) return fill_here();
  if (held_) empty_.release();
  held_ = false;
  full_.acquire();
  if (ended_[next_]) {
    full_.release();  // every later call ends here too
    if (error_) std::rethrow_exception(error_);
    return nullptr;
  }
  held_ = true;
  const BatchBlock* block = &blocks_[next_];
  next_ = 1 - next_;
  return block;
}

void BatchStream::produce() {
  for (std::size_t at = 0;; at = 1 - at) {
    empty_.acquire();
    if (stop_.load(std::memory_order_relaxed)) return;
    try {
      ended_[at] = !fill(blocks_[at]);
    } catch (...) {
      error_ = std::current_exception();
      ended_[at] = true;
    }
    const bool ended = ended_[at];
    full_.release();
    if (ended) return;
  }
}

bool BatchStream::fill(BatchBlock& block) {
  const std::int64_t num_samples = samples_.size();
  const std::optional<BatchBlock> wanted = next_block(plan_, position_, num_samples);
  if (!wanted) return false;
  block.start = wanted->start;
  block.count = wanted->count;
  block.rows = wanted->rows;
  block.ends_epoch = wanted->ends_epoch;
  if (order_epoch_ != block.start.epoch) {
    order_epoch_ = block.start.epoch;
    order_ = order_of_(order_epoch_);
  }
  // The batches of a block follow each other in the order as they do in memory. Only the block's last can be short.
  const auto first = static_cast<std::size_t>(block.start.step * plan_.batch_size);
  const auto n = static_cast<std::size_t>((block.count - 1) * plan_.batch_size + block.rows);
  std::vector<void*> more_inputs;
  for (std::size_t i = 1; i < block.x.size(); ++i) more_inputs.push_back(block.x[i].raw());
  samples_.gather(std::span<const std::int64_t>(order_).subspan(first, n),
                  {.inputs = block.x[0].raw(),
                   .targets = block.y.raw(),
                   .lengths = block.lengths.defined() ? block.lengths.data<std::int32_t>().data() : nullptr,
                   .weights = block.weights.defined() ? block.weights.raw() : nullptr,
                   .more_inputs = more_inputs});
  for (std::int64_t i = 0; i < block.count; ++i) {
    const Array key = step_key(plan_.seed, static_cast<std::uint64_t>(block.start.num_steps + i));
    std::ranges::copy(key.data<std::uint32_t>(), block.key.data<std::uint32_t>().begin() + i * 2);
  }
  position_ = {block.start.epoch, block.start.step + block.count, block.start.num_steps + block.count};
  return true;
}

}  // namespace hotloop::train
