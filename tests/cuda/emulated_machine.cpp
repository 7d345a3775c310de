#include "cuda/emulated_machine.h"

#include <cstring>
#include <map>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "cuda/guarded.h"

namespace hotloop::cuda::emulated {
namespace {

// In the order of State.
constexpr const char* names_of_states[] = {"can run",    "at hl_block_sync", "at hl_sync", "at hl_any",
                                           "at hl_down", "at hl_meet",       "returned"};

void wait_at(State state, int line) {
  Fiber& fiber = Machine::current();
  fiber.state = state;
  fiber.line = line;
  Machine::give_way();
}
void hook_sync(int line) { wait_at(State::Sync, line); }
void hook_block_sync(int line) { wait_at(State::BlockSync, line); }

bool hook_any(bool value, int line) {
  Fiber& fiber = Machine::current();
  fiber.state = State::Any;
  fiber.line = line;
  fiber.value = value;
  Machine::give_way();
  return fiber.value != 0;
}

std::uint64_t hook_down(std::uint64_t bits, int delta, int width, int line) {
  Fiber& fiber = Machine::current();
  fiber.state = State::Down;
  fiber.line = line;
  fiber.value = bits;
  fiber.delta = delta;
  fiber.width = width;
  Machine::give_way();
  return fiber.value;
}

bool hook_meet(std::uint32_t* barrier, const volatile std::int32_t* cancel, int line) {
  Fiber& fiber = Machine::current();
  fiber.state = State::Meet;
  fiber.line = line;
  fiber.barrier = barrier;
  fiber.cancel = cancel;
  Machine::give_way();
  return fiber.value != 0;
}

void hook_copy(void* to, const void* from, int bytes) {
  Machine::current().copies.push_back({to, from, static_cast<std::size_t>(bytes), Machine::current().copies_begun});
}

void hook_copies_begun() { ++Machine::current().copies_begun; }

void hook_copies_wait(int pending) {
  Fiber& fiber = Machine::current();
  const auto is_pending = [&](const Copy& copy) { return copy.group >= fiber.copies_begun - pending; };
  for (const Copy& copy : fiber.copies)
    if (!is_pending(copy)) std::memcpy(copy.to, copy.from, copy.bytes);
  std::erase_if(fiber.copies, [&](const Copy& copy) { return !is_pending(copy); });
}

}  // namespace

Machine* Machine::active = nullptr;

void Machine::run(Part& part, KernelFunction kernel, const LaunchShape& shape, const KernelArguments& arguments,
                  const EmulatedOptions& options, std::mt19937_64& random, EmulatedCounters& counters) {
  kernel_ = kernel;
  arguments_ = &arguments;
  options_ = &options;
  random_ = &random;
  counters_ = &counters;
  workers_ = shape.workers;
  block_threads_ = shape.threads;
  threads_ = shape.blocks * shape.threads;
  num_at_meet_ = 0;
  meets_ = 0;
  const auto num_blocks = static_cast<std::size_t>(workers_) * static_cast<std::size_t>(shape.blocks),
             num_fibers = num_blocks * static_cast<std::size_t>(block_threads_);
  fibers_.assign(num_fibers, Fiber{});
  waiting_.assign(static_cast<std::size_t>(workers_), 0);
  waiting_in_block_.assign(num_blocks, 0);
  at_meet_.assign(static_cast<std::size_t>(workers_), false);
  ready_ = {};
  std::vector<Guarded> near_memory;
  std::vector<unsigned char*> near_begins;
  for (std::size_t b = 0; b < num_blocks; ++b) {
    near_memory.emplace_back(static_cast<std::size_t>(shape.near_bytes), 128);
    near_begins.push_back(near_memory.back().begin());
  }
  part = {0,        0,         workers_,  shape.blocks, shape.threads,     nullptr,         hook_sync, hook_block_sync,
          hook_any, hook_down, hook_meet, hook_copy,    hook_copies_begun, hook_copies_wait};
  active = this;
  for (std::size_t i = 0; i < num_fibers; ++i) {
    Fiber& fiber = fibers_[i];
    fiber.worker = static_cast<int>(i) / threads_;
    fiber.thread = static_cast<int>(i) % threads_;
    prepare_context(fiber.context, stacks_.at(i), Stacks::bytes, fiber_main);
    make_ready(fiber);
  }

  std::size_t num_done = 0;
  while (num_done < num_fibers) {
    if (ready_.empty()) {
      if (release_cancelled()) continue;
      throw EmulationError("threads wait for others that do not come: " + report());
    }
    current_ = ready_.top().second;
    ready_.pop();
    part.thread = current_->thread;
    part.worker = current_->worker;
    part.near_memory = near_begins.data() + static_cast<std::ptrdiff_t>(current_->worker) * shape.blocks;
    switch_context(scheduler_, current_->context);
    if (current_->state == State::Done) {
      ++num_done;
    } else {
      settle(*current_);
    }
  }
  for (const Guarded& memory : near_memory) {
    const std::string where = memory.written_beside();
    if (!where.empty()) throw EmulationError("a kernel wrote " + where + " the shared memory of a block");
  }
}

void Machine::make_ready(Fiber& fiber) {
  fiber.state = State::Ready;
  const std::int64_t place = &fiber - fibers_.data();
  const std::int64_t key = options_->order == ThreadOrder::Forward    ? place
                           : options_->order == ThreadOrder::Backward ? -place
                                                                      : static_cast<std::int64_t>((*random_)() >> 1);
  ready_.emplace(key, &fiber);
}

void Machine::settle(Fiber& fiber) {
  if (fiber.state == State::Down) {
    settle_group(fiber);
  } else if (fiber.state == State::BlockSync) {
    if (++waiting_in_block_[block_of(fiber)] == block_threads_) settle_block(fiber);
  } else if (++waiting_[static_cast<std::size_t>(fiber.worker)] == threads_) {
    settle_worker(fiber.worker);
  }
}

void Machine::expect_together(const Fiber* first, int count) const {
  for (int i = 0; i < count; ++i)
    if (first[i].state != first->state || first[i].line != first->line)
      throw EmulationError("threads of a worker wait at different places: " + report());
}

void Machine::settle_block(Fiber& fiber) {
  const std::size_t block = block_of(fiber);
  Fiber* const first = fibers_.data() + static_cast<std::ptrdiff_t>(block) * block_threads_;
  expect_together(first, block_threads_);
  waiting_in_block_[block] = 0;
  ++counters_->syncs;
  for (int i = 0; i < block_threads_; ++i) make_ready(first[i]);
}

void Machine::settle_group(Fiber& fiber) {
  const int width = fiber.width;
  if (width < 1 || width > 32 || (width & (width - 1)) != 0 || threads_ % width != 0 || fiber.delta < 0) {
    throw EmulationError("line " + std::to_string(fiber.line) + ": hl_down by " + std::to_string(fiber.delta) +
                         " in groups of " + std::to_string(width) + " among " + std::to_string(threads_) + " threads");
  }
  Fiber* const group = of_worker(fiber.worker) + fiber.thread / width * width;
  for (int i = 0; i < width; ++i) {
    const Fiber& other = group[i];
    if (other.state != State::Down || other.width != width) return;
  }
  for (int i = 0; i < width; ++i) {
    if (group[i].line != fiber.line || group[i].delta != fiber.delta) {
      throw EmulationError("threads of a group are at different calls of hl_down: " + report());
    }
  }
  // Upwards, what is taken has not been replaced yet.
  for (int i = 0; i + fiber.delta < width; ++i) group[i].value = group[i + fiber.delta].value;
  for (int i = 0; i < width; ++i) make_ready(group[i]);
  ++counters_->downs;
}

void Machine::settle_worker(int worker) {
  Fiber* const first = of_worker(worker);
  expect_together(first, threads_);
  bool any = false;
  for (int i = 0; i < threads_; ++i) {
    const Fiber& fiber = first[i];
    if (fiber.state == State::Meet && (fiber.barrier != first->barrier || fiber.cancel != first->cancel)) {
      throw EmulationError("threads of a worker meet by different words: " + report());
    }
    any |= fiber.value != 0;
  }
  if (first->state == State::Meet) {
    at_meet_[static_cast<std::size_t>(worker)] = true;
    if (first->barrier == nullptr) {
      throw EmulationError("line " + std::to_string(first->line) + ": hl_meet without a barrier");
    }
    ++first->barrier[0];
    if (++num_at_meet_ == workers_) settle_meeting();
    return;
  }
  waiting_[static_cast<std::size_t>(worker)] = 0;
  ++(first->state == State::Sync ? counters_->syncs : counters_->anys);
  const bool is_any = first->state == State::Any;
  for (int i = 0; i < threads_; ++i) {
    if (is_any) first[i].value = any;
    make_ready(first[i]);
  }
}

void Machine::settle_meeting() {
  const Fiber& one = fibers_[0];
  for (int b = 1; b < workers_; ++b) {
    const Fiber& other = *of_worker(b);
    if (other.barrier != one.barrier || other.cancel != one.cancel) {
      throw EmulationError("workers meet by different words: " + report());
    }
    // After a cancellation workers may be at different places.
    if (other.line != one.line && (one.cancel == nullptr || *one.cancel == 0)) {
      throw EmulationError("workers wait at different places: " + report());
    }
  }
  std::uint32_t* const barrier = one.barrier;
  const volatile std::int32_t* const cancel = one.cancel;
  const bool was_cancelled = cancel != nullptr && *cancel != 0;
  const bool cancels_here = meets_ == options_->cancel_at_meet && cancel != nullptr;
  // What a run that is cancelled leaves there is worth nothing: others must be zero again before the next run.
  if (!was_cancelled) {
    if (barrier[0] != static_cast<std::uint32_t>(workers_)) {
      throw EmulationError("line " + std::to_string(one.line) +
                           ": the words of hl_meet were not zero, as they must be before the first launch and after a "
                           "run that was cancelled");
    }
    barrier[0] = 0;
  }
  ++barrier[1];
  ++meets_;
  ++counters_->meets;
  if (cancels_here) *const_cast<volatile std::int32_t*>(cancel) = 1;
  for (int b = 0; b < workers_; ++b) leave_meeting(b, was_cancelled || (cancels_here && b % 2 == 1));
}

void Machine::leave_meeting(int worker, bool cancelled) {
  at_meet_[static_cast<std::size_t>(worker)] = false;
  waiting_[static_cast<std::size_t>(worker)] = 0;
  --num_at_meet_;
  Fiber* const first = of_worker(worker);
  for (int i = 0; i < threads_; ++i) {
    first[i].value = cancelled;
    make_ready(first[i]);
  }
}

bool Machine::release_cancelled() {
  bool any = false;
  for (int b = 0; b < workers_; ++b) {
    const volatile std::int32_t* const cancel = of_worker(b)->cancel;
    if (!at_meet_[static_cast<std::size_t>(b)] || cancel == nullptr || *cancel == 0) continue;
    leave_meeting(b, true);
    any = true;
  }
  return any;
}

std::string Machine::report() const {
  std::ostringstream text;
  for (int b = 0; b < workers_; ++b) {
    std::map<std::pair<State, int>, std::pair<int, int>> groups;  // state and line: how many, and the first of them
    for (int i = 0; i < threads_; ++i) {
      const Fiber& fiber =
          fibers_[static_cast<std::size_t>(b) * static_cast<std::size_t>(threads_) + static_cast<std::size_t>(i)];
      const bool waits = fiber.state != State::Ready && fiber.state != State::Done;
      auto& [count, first] = groups[{fiber.state, waits ? fiber.line : 0}];
      if (count++ == 0) first = i;
    }
    text << (b == 0 ? "" : "; ") << "worker " << b << ":";
    const char* separator = " ";
    for (const auto& [key, value] : groups) {
      text << separator << value.first << " of " << threads_ << " threads (from " << value.second << ") "
           << names_of_states[static_cast<int>(key.first)];
      if (key.second != 0) text << " in line " << key.second;
      separator = ", ";
    }
  }
  return text.str();
}

}  // namespace hotloop::cuda::emulated
