// Runs compiled kernel IR: arenas from a pool, workers from the team.
#include <algorithm>
#include <array>
#include <atomic>
#include <bit>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <new>
#include <string_view>
#include <type_traits>
#include <utility>

#include "backends/backend.h"
#include "core/cancel.h"
#include "core/denormals.h"
#include "runtime/engine.h"
#include "runtime/kernel_record.h"
#include "runtime/large_memory.h"
#include "runtime/pool.h"
#include "runtime/thread_team.h"
#include "schedule/accesses.h"
#include "schedule/cost.h"

namespace hotloop::runtime {
namespace {

constexpr std::size_t alignment = 64;

// The arenas of one call in progress, and the argument block of each worker.
class Context {
 public:
  Context(std::size_t shared_bytes, std::size_t worker_bytes, int num_workers) {
    // Two cache lines apart, so that neighbouring workers' prefetchers do not meet.
    const std::size_t stride = round_up(worker_bytes) + 2 * alignment;
    const std::size_t total = round_up(shared_bytes) + stride * static_cast<std::size_t>(num_workers);
    arena_ = take_memory(total, alignment);
    // All ones is a NaN: a schedule that reads what it never wrote is seen at once. It also maps the pages, which takes a second for
    // some gigabytes: a call may be cancelled meanwhile.
    constexpr std::size_t piece = std::size_t{16} << 20;
    for (std::size_t at = 0; at < total; at += piece) {
      leave_if_cancelled();
      std::memset(arena_.get() + at, 0xff, std::min(piece, total - at));
    }
    workers_ = std::vector<KernelContext>(static_cast<std::size_t>(num_workers));
    for (std::size_t w = 0; w < workers_.size(); ++w) {
      workers_[w].shared = arena_.get();
      workers_[w].scratch = arena_.get() + round_up(shared_bytes) + stride * w;
      workers_[w].worker = static_cast<std::int64_t>(w);
      workers_[w].barrier = &ThreadTeam::barrier;
    }
  }

  std::vector<KernelContext>& workers() { return workers_; }
  std::int64_t next_turn() { return turn_++; }

 private:
  static std::size_t round_up(std::size_t n) { return (n + alignment - 1) / alignment * alignment; }

  Memory arena_;
  std::vector<KernelContext> workers_;
  std::int64_t turn_ = 0;
};

bool environment_says(const char* name, std::string_view what) {
  const char* value = std::getenv(name);
  return value != nullptr && value == what;
}

}  // namespace

bool always_takes_team() { return environment_says("HOTLOOP_TEAM", "always"); }
bool always_joins_tiles() { return environment_says("HOTLOOP_TILES", "joined"); }

namespace {

std::int64_t slots_in(const kernel::Block& block) {
  std::int64_t slots = 0;
  kernel::for_each_statement(block, [&](const auto& s) {
    if constexpr (std::is_same_v<std::decay_t<decltype(s)>, kernel::Grid>) slots = std::max(slots, s.slots);
  });
  return slots;
}

// How many of `most` workers run so many rows: waking the others for less than they save would be a loss.
class WorkersByRows {
 public:
  WorkersByRows(const kernel::Program& program, int most, bool fixed_rows) : most_(most), fixed_rows_(fixed_rows) {
    if (most == 1 || always_takes_team()) {
      by_width_.fill(most);
      return;
    }
    alone_ns_ = kernel::estimate_time_ns(program, program.max_rows, 1);
    patience_ = std::chrono::nanoseconds(static_cast<std::int64_t>(std::min(alone_ns_ / 4, 5e6)));
    for (std::size_t width = 0; width < by_width_.size(); ++width) {
      // Between powers of two one number does; the full batch is the most common one.
      const std::int64_t low = width == 0 ? 0 : std::int64_t{1} << (width - 1);
      const bool full = fixed_rows || low + (low - 1) >= program.max_rows;
      by_width_[width] = kernel::best_num_workers(program, full ? program.max_rows : low + low / 2, most);
      if (full) {
        std::fill(by_width_.begin() + static_cast<std::ptrdiff_t>(width), by_width_.end(), by_width_[width]);
        if (fixed_rows) by_width_.fill(by_width_[width]);
        return;
      }
    }
  }

  int of(std::int64_t rows) const { return by_width_[std::bit_width(static_cast<std::uint64_t>(rows))]; }
  // How long a call waits for the others before it goes on alone, after so many calls in a row that did: a quarter of what it would need
  // alone, then less and less, but as long as it takes to wake them.
  std::chrono::nanoseconds patience(int times_alone) const {
    return patience_ == ThreadTeam::no_limit
               ? patience_
               : std::max<std::chrono::nanoseconds>(patience_ / (1 << times_alone), waking);
  }
  // How many calls after that do not even ask: those for which waking the others would take a good part of their time.
  int calls_without(int times_alone) const {
    constexpr double share = 0.05;
    if (times_alone == 0 || patience_ == ThreadTeam::no_limit || alone_ns_ <= 0) return 0;
    return static_cast<int>(std::min(std::chrono::nanoseconds(waking).count() / (share * alone_ns_), 63.0));
  }
  int most() const { return *std::max_element(by_width_.begin(), by_width_.end()); }

  std::string explained(const kernel::Program& program) const {
    if (most_ == 1) return "";
    const int all = of(program.max_rows);
    std::string text = std::to_string(all) + " of " + std::to_string(most_) + " work on " +
                       (fixed_rows_ ? std::string("a call") : std::to_string(program.max_rows) + " rows");
    if (all == most_ && by_width_.front() == all) return text;
    char estimates[96];
    const int other = all > 1 ? 1 : most_;
    const auto us = [&](int n) { return kernel::estimate_time_ns(program, program.max_rows, n) * 1e-3; };
    std::snprintf(estimates, sizeof estimates, " (estimated %.3g us, with %d %.3g us)", us(all), other, us(other));
    text += estimates;
    for (std::size_t width = 1; all > 1 && width < by_width_.size(); ++width)
      if (by_width_[width] > 1) {
        if (width > 1) text += ", one on fewer than " + std::to_string(std::int64_t{1} << (width - 1));
        break;
      }
    return text;
  }

 private:
  static constexpr auto waking = std::chrono::microseconds(20);
  int most_;
  bool fixed_rows_;
  double alone_ns_ = 0;
  std::chrono::nanoseconds patience_ = ThreadTeam::no_limit;
  std::array<int, 65> by_width_{};
};

class KernelEngine final : public Engine {
 public:
  KernelEngine(kernel::Program program, std::unique_ptr<CompiledKernel> kernel, int num_workers, bool fixed_rows)
      : program_(std::move(program)),
        kernel_(std::move(kernel)),
        workers_(program_, num_workers, fixed_rows),
        fixed_rows_(fixed_rows) {
    record_ = structure_of(program_);
    if (workers_.most() > 1) shared_team(workers_.most());  // start the threads now, not in the first call
  }

  void run(void* const* inputs, void* const* outputs, std::int64_t rows) const override {
    std::unique_ptr<Context> context = contexts_.take();
    if (!context) context = new_context();
    run_in(*context, inputs, outputs, rows);
    contexts_.put(std::move(context));
  }

  KernelRecord describe(std::int64_t rows) const override {
    KernelRecord record = record_;
    record.num_workers = workers_.of(fixed_rows_ ? program_.max_rows : rows);
    return record;
  }
  std::string workers() const override {
    const bool shares = record_.num_sections > 0 && workers_.of(program_.max_rows) > 1;
    return workers_.explained(program_) + (shares ? "; what is independent runs at once, in sections" : "");
  }
  std::int64_t slots() const override { return slots_in(program_.body); }
  std::string kernel_text() const override { return kernel::print(program_); }
  const std::string& source() const override { return kernel_->source; }

  std::unique_ptr<Seat> seat() const override {
    class OwnContext final : public Seat {
     public:
      explicit OwnContext(const KernelEngine& engine) : engine_(engine), context_(engine.new_context()) {}
      void run(void* const* inputs, void* const* outputs, std::int64_t rows) override {
        engine_.run_in(*context_, inputs, outputs, rows);
      }

     private:
      const KernelEngine& engine_;
      std::unique_ptr<Context> context_;
    };
    return std::make_unique<OwnContext>(*this);
  }

 private:
  std::unique_ptr<Context> new_context() const {
    return std::make_unique<Context>(static_cast<std::size_t>(program_.shared_bytes),
                                     static_cast<std::size_t>(program_.worker_bytes), workers_.most());
  }

  void run_in(Context& context, void* const* inputs, void* const* outputs, std::int64_t rows) const {
    const std::int64_t turn = context.next_turn();
    if (fixed_rows_) rows = program_.max_rows;
    const int wanted = workers_.of(rows);
    ThreadTeam* team = wanted > 1 ? &shared_team(workers_.most()) : nullptr;
    const int num_workers = team != nullptr ? std::min(wanted, team->num_workers()) : 1;
    const std::int32_t* cancel = cancel_token().flag();
    for (int w = 0; w < num_workers; ++w) {
      KernelContext& c = context.workers()[static_cast<std::size_t>(w)];
      c.turn = turn;
      c.arguments = inputs;
      c.results = outputs;
      c.rows = rows;
      c.num_workers = num_workers;
      c.team = team;
      c.cancel = cancel;
    }
    if (num_workers == 1 || !run_on_team(*team, context, num_workers)) {
      context.workers()[0].num_workers = 1;
      enter(context.workers().front());
    }
  }

  // On the thread of each worker: one of the team's may serve another executable next.
  void enter(const KernelContext& worker) const {
    const DenormalsAsZero mode(program_.flushes_denormals);
    kernel_->function()(&worker);
  }

  bool run_on_team(ThreadTeam& team, Context& context, int num_workers) const {
    struct Job {
      const KernelEngine& engine;
      const KernelContext* workers;
    };
    Job job{*this, context.workers().data()};
    if (const int left = calls_left_alone_.load(std::memory_order_relaxed); left > 0) {
      calls_left_alone_.store(left - 1, std::memory_order_relaxed);
      return false;
    }
    const int times_alone = times_alone_.load(std::memory_order_relaxed);
    const bool joined = team.try_run(
        num_workers,
        [](void* p, int worker) {
          const Job& j = *static_cast<const Job*>(p);
          j.engine.enter(j.workers[worker]);
        },
        &job, workers_.patience(times_alone));
    const int times = joined ? 0 : std::min(times_alone + 1, 5);
    times_alone_.store(times, std::memory_order_relaxed);
    calls_left_alone_.store(workers_.calls_without(times), std::memory_order_relaxed);
    return joined;
  }

  kernel::Program program_;
  std::unique_ptr<CompiledKernel> kernel_;
  WorkersByRows workers_;
  bool fixed_rows_;
  KernelRecord record_;
  mutable ObjectPool<Context> contexts_;
  mutable std::atomic<int> times_alone_{0};       // calls in a row for which the team did not come
  mutable std::atomic<int> calls_left_alone_{0};  // that do not ask for it
};

}  // namespace

std::unique_ptr<Engine> make_kernel_engine(kernel::Program program, std::unique_ptr<CompiledKernel> kernel,
                                           int num_workers, bool fixed_rows) {
  return std::make_unique<KernelEngine>(std::move(program), std::move(kernel), num_workers, fixed_rows);
}

}  // namespace hotloop::runtime
