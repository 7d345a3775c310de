// Runs compiled kernel IR: arenas from a pool, workers from the team.
#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <new>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "backends/backend.h"
#include "core/cancel.h"
#include "core/denormals.h"
#include "runtime/engine.h"
#include "runtime/large_memory.h"
#include "runtime/pool.h"
#include "runtime/run_plan.h"
#include "runtime/thread_team.h"

namespace hotloop::runtime {
namespace {

constexpr std::size_t alignment = 64;

// Whether memory of a call holds nothing of an earlier one, where time does not matter.
#ifdef NDEBUG
constexpr bool each_call_begins_anew = false;
#else
constexpr bool each_call_begins_anew = true;
#endif

// The arenas of one call in progress, and the argument block of each worker.
class Context {
 public:
  Context(std::size_t shared_bytes, std::size_t worker_bytes, int num_workers) {
    // Two cache lines apart, so that neighbouring workers' prefetchers do not meet.
    const std::size_t stride = round_up(worker_bytes) + 2 * alignment;
    bytes_ = round_up(shared_bytes) + stride * static_cast<std::size_t>(num_workers);
    arena_ = take_memory(bytes_, alignment);
    begin_anew();
    workers_ = std::vector<KernelContext>(static_cast<std::size_t>(num_workers));
    for (std::size_t w = 0; w < workers_.size(); ++w) {
      workers_[w].shared = arena_.get();
      workers_[w].scratch = arena_.get() + round_up(shared_bytes) + stride * w;
      workers_[w].worker = static_cast<std::int64_t>(w);
      workers_[w].barrier = &ThreadTeam::barrier;
    }
  }

  // All ones is a NaN: a schedule that reads what it never wrote is seen, in the first call of a context and, where each call begins anew, in
  // all. It also maps the pages, which takes a second for some gigabytes: a call may be cancelled meanwhile.
  void begin_anew() {
    constexpr std::size_t piece = std::size_t{16} << 20;
    for (std::size_t at = 0; at < bytes_; at += piece) {
      leave_if_cancelled();
      std::memset(arena_.get() + at, 0xff, std::min(piece, bytes_ - at));
    }
  }

  std::vector<KernelContext>& workers() { return workers_; }
  std::int64_t next_turn() { return turn_++; }

 private:
  static std::size_t round_up(std::size_t n) { return (n + alignment - 1) / alignment * alignment; }

  std::size_t bytes_ = 0;
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

// How long calls wait for the team, by what the plan says of one worker alone.
class Patience {
 public:
  explicit Patience(const RunPlan& plan) : alone_ns_(plan.alone_ns) {
    if (alone_ns_ >= 0) limit_ = std::chrono::nanoseconds(static_cast<std::int64_t>(std::min(alone_ns_ / 4, 5e6)));
  }
  // How long a call waits for the others before it goes on alone, after so many calls in a row that did: a quarter of what it would need
  // alone, then less and less, but as long as it takes to wake them.
  std::chrono::nanoseconds after(int times_alone) const {
    return limit_ == ThreadTeam::no_limit ? limit_
                                          : std::max<std::chrono::nanoseconds>(limit_ / (1 << times_alone), waking);
  }
  // How many calls after that do not even ask: those for which waking the others would take a good part of their time.
  int calls_without(int times_alone) const {
    constexpr double share = 0.05;
    if (times_alone == 0 || alone_ns_ <= 0) return 0;
    return static_cast<int>(std::min(std::chrono::nanoseconds(waking).count() / (share * alone_ns_), 63.0));
  }

 private:
  static constexpr auto waking = std::chrono::microseconds(20);
  double alone_ns_;
  std::chrono::nanoseconds limit_ = ThreadTeam::no_limit;
};

class KernelEngine final : public Engine {
 public:
  KernelEngine(RunPlan plan, std::shared_ptr<const CompiledKernel> kernel, KernelProgram program)
      : plan_(std::move(plan)),
        most_workers_(plan_.most_workers()),
        kernel_(std::move(kernel)),
        program_(std::move(program)),
        patience_(plan_) {
    if (most_workers_ > 1) shared_team(most_workers_);  // start the threads now, not in the first call
  }

  void run(void* const* inputs, void* const* outputs, std::int64_t rows) const override {
    std::unique_ptr<Context> context = contexts_.take();
    if (!context) context = new_context();
    run_in(*context, inputs, outputs, rows, cancel_token());
    contexts_.put(std::move(context));
  }

  KernelRecord describe(std::int64_t rows) const override {
    KernelRecord record = plan_.structure;
    record.num_workers = plan_.workers_of(plan_.fixed_rows ? plan_.max_rows : rows);
    return record;
  }
  std::string workers() const override { return plan_.workers; }
  std::int64_t slots() const override { return plan_.slots; }
  std::string kernel_text() const override { return kernel::print(*program_()); }
  Clocked clocked() const override {
    BackendOptions options;
    options.compile_threads = num_cores();
    options.clocks = true;
    const std::shared_ptr<const CompiledKernel> kernel = compile_llvm(*program_(), options);
    RunPlan alone = plan_;
    alone.workers_by_width.fill(1);
    return {kernel, make_kernel_engine(alone, kernel, program_), make_kernel_engine(alone, kernel_, program_)};
  }
  const std::string& source() const override { return kernel_->source; }

  std::unique_ptr<Seat> seat() const override {
    class OwnContext final : public Seat {
     public:
      explicit OwnContext(const KernelEngine& engine) : engine_(engine), context_(engine.new_context()) {}
      void run(void* const* inputs, void* const* outputs, std::int64_t rows) override {
        engine_.run_in(*context_, inputs, outputs, rows, never_cancelled);
      }

     private:
      const KernelEngine& engine_;
      std::unique_ptr<Context> context_;
    };
    return std::make_unique<OwnContext>(*this);
  }

 private:
  std::unique_ptr<Context> new_context() const {
    return std::make_unique<Context>(static_cast<std::size_t>(plan_.shared_bytes),
                                     static_cast<std::size_t>(plan_.worker_bytes), most_workers_);
  }

  void run_in(Context& context, void* const* inputs, void* const* outputs, std::int64_t rows,
              const CancelToken& token) const {
    const std::int64_t turn = context.next_turn();
    if (each_call_begins_anew && turn > 0) context.begin_anew();
    if (plan_.fixed_rows) rows = plan_.max_rows;
    const int wanted = plan_.workers_of(rows);
    ThreadTeam* team = wanted > 1 ? &shared_team(most_workers_) : nullptr;
    const int num_workers = team != nullptr ? std::min(wanted, team->num_workers()) : 1;
    const std::int32_t* cancel = token.flag();
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
    const DenormalsAsZero mode(plan_.flushes_denormals);
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
        &job, patience_.after(times_alone));
    const int times = joined ? 0 : std::min(times_alone + 1, 5);
    times_alone_.store(times, std::memory_order_relaxed);
    calls_left_alone_.store(patience_.calls_without(times), std::memory_order_relaxed);
    return joined;
  }

  RunPlan plan_;
  int most_workers_;
  std::shared_ptr<const CompiledKernel> kernel_;
  KernelProgram program_;
  Patience patience_;
  mutable ObjectPool<Context> contexts_;
  mutable std::atomic<int> times_alone_{0};       // calls in a row for which the team did not come
  mutable std::atomic<int> calls_left_alone_{0};  // that do not ask for it
};

}  // namespace

std::unique_ptr<Engine> make_kernel_engine(RunPlan plan, std::shared_ptr<const CompiledKernel> kernel,
                                           KernelProgram program) {
  return std::make_unique<KernelEngine>(std::move(plan), std::move(kernel), std::move(program));
}

}  // namespace hotloop::runtime
