#include "runtime/thread_team.h"

#include <pthread.h>
#include <sched.h>

#include <algorithm>
#include <chrono>
#include <mutex>
#include <new>
#include <string>
#include <system_error>

#include "core/fork.h"
#include "hotloop/error.h"

namespace hotloop::runtime {
namespace {

constexpr auto spin_time = std::chrono::microseconds(100);
constexpr std::uint64_t run_goes_on = std::uint64_t{1} << 31, run_dropped = std::uint64_t{1} << 30,
                        workers_that_came = run_dropped - 1;
constexpr std::uint64_t one_arrival = std::uint64_t{1} << 32;
constexpr int pauses_per_look_at_the_clock = 64;
constexpr int pauses_before_yield = 4096;

void pause_core() {
#if defined(__x86_64__) || defined(__i386__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield" ::: "memory");
#endif
}

// Spins until done(), giving the core away once in a while after the first few microseconds: whoever is waited for may
// need it.
template <class Done> void spin_until(Done done, bool yield_at_once) {
  int pauses = yield_at_once ? pauses_before_yield : 0;
  while (!done()) {
    if (pauses < pauses_before_yield) {
      ++pauses;
      pause_core();
    } else {
      std::this_thread::yield();
    }
  }
}

}  // namespace

int num_cores() {
  cpu_set_t set;
  CPU_ZERO(&set);
  if (sched_getaffinity(0, sizeof set, &set) == 0 && CPU_COUNT(&set) > 0) return CPU_COUNT(&set);
  return std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
}

ThreadTeam::ThreadTeam(int num_workers) : slots_(std::make_unique<Slot[]>(max_workers)) { grow(num_workers); }

ThreadTeam::~ThreadTeam() {
  while (!threads_.empty()) end_last_thread(run_.load() + 1);
}

void ThreadTeam::grow(int wanted) {
  if (wanted > max_workers)
    throw UserError("threads", "a team has at most " + std::to_string(max_workers) + " workers",
                    std::to_string(wanted) + " threads");
  const int before = num_workers();
  if (wanted <= before) return;
  // A run in progress does not know the new workers, and the first that does has a later number.
  const std::uint32_t last = run_.load(std::memory_order_relaxed);
  int now = before;
  try {
    threads_.reserve(static_cast<std::size_t>(wanted) - 1);
    for (; now < wanted; ++now) {
      slots_[static_cast<std::size_t>(now)].run.store(last, std::memory_order_relaxed);
      threads_.emplace_back([this, worker = now, last] { work(worker, last); });
    }
  } catch (const std::system_error&) {  // a limit on threads, or on memory for their stacks
  } catch (const std::bad_alloc&) {
  }
  if (now < wanted) {
    // At a limit the rest of the program needs something of what is left, too: half of it. A team that has threads stays as it is.
    const int kept = before == 1 ? 1 + now / 2 : before;
    for (; now > kept; --now) end_last_thread(last + 1);
  }
  num_workers_.store(now, std::memory_order_release);
  oversubscribed_.store(now > num_cores(), std::memory_order_relaxed);
}

// One that no run knows yet.
void ThreadTeam::end_last_thread(std::uint32_t next_run) {
  const std::size_t worker = threads_.size();
  slots_[worker].ends.store(true, std::memory_order_relaxed);
  wake(static_cast<int>(worker), next_run);
  threads_.back().join();
  threads_.pop_back();
  slots_[worker].ends.store(false, std::memory_order_relaxed);
}

bool ThreadTeam::try_run(int num_workers, Task task, void* context, std::chrono::nanoseconds patience) {
  if (num_workers > this->num_workers() || busy_.exchange(true, std::memory_order_acquire)) return false;
  const std::uint32_t run = run_.load(std::memory_order_relaxed) + 1;
  run_.store(run, std::memory_order_relaxed);
  task_ = task;
  context_ = context;
  gathering_.store(static_cast<std::uint64_t>(num_workers), std::memory_order_relaxed);
  running_.store(num_workers - 1, std::memory_order_relaxed);
  gate_.store(std::uint64_t{run} << 32, std::memory_order_release);
  for (int worker = 1; worker < num_workers; ++worker) wake(worker, run);
  if (!gather(static_cast<std::uint64_t>(num_workers - 1), patience)) {
    busy_.store(false, std::memory_order_release);
    return false;
  }
  task(context, 0);
  leave();
  spin_until([this] { return running_.load(std::memory_order_acquire) == 0; },
             oversubscribed_.load(std::memory_order_relaxed));
  busy_.store(false, std::memory_order_release);
  return true;
}

void ThreadTeam::barrier(void* team) {
  auto& self = *static_cast<ThreadTeam*>(team);
  // The phase cannot change before this worker has arrived, so it may be read without ordering.
  const std::uint32_t phase = self.phase_.load(std::memory_order_relaxed);
  const std::uint64_t state = self.gathering_.fetch_add(one_arrival, std::memory_order_acq_rel) + one_arrival;
  if (self.open_if_complete(state)) return;
  spin_until([&] { return self.phase_.load(std::memory_order_acquire) != phase; },
             self.oversubscribed_.load(std::memory_order_relaxed));
}

// All that are still running wait at the barrier: nobody else can change the state before the phase does.
bool ThreadTeam::open_if_complete(std::uint64_t state) {
  const std::uint64_t arrived = state / one_arrival, active = state % one_arrival;
  if (arrived == 0 || arrived != active) return false;
  gathering_.store(active, std::memory_order_relaxed);
  phase_.fetch_add(1, std::memory_order_release);
  return true;
}

// A worker that has returned is waited for no more: a cancelled run ends although its workers see the flag at
// different barriers.
void ThreadTeam::leave() { open_if_complete(gathering_.fetch_sub(1, std::memory_order_acq_rel) - 1); }

// Waits for the others and lets them run, or shuts the gate.
bool ThreadTeam::gather(std::uint64_t others, std::chrono::nanoseconds patience) {
  const auto complete = [&] { return (gate_.load(std::memory_order_acquire) & workers_that_came) == others; };
  if (patience == no_limit) {
    spin_until(complete, oversubscribed_.load(std::memory_order_relaxed));
  } else {
    const auto deadline = std::chrono::steady_clock::now() + patience;
    while (!complete()) {
      for (int i = 0; i < pauses_per_look_at_the_clock && !complete(); ++i) pause_core();
      if (std::chrono::steady_clock::now() >= deadline) break;
    }
  }
  std::uint64_t gate = gate_.load(std::memory_order_relaxed);
  while (true) {
    const std::uint64_t decided = (gate & workers_that_came) == others ? run_goes_on : run_dropped;
    if (gate_.compare_exchange_weak(gate, gate | decided, std::memory_order_acq_rel, std::memory_order_relaxed))
      return decided == run_goes_on;
  }
}

// Of a worker that was called for `run`: whether it takes part. One that comes when the run is over or was dropped finds the gate shut,
// or that of a later run.
bool ThreadTeam::join(std::uint32_t run) {
  constexpr std::uint64_t shut = run_goes_on | run_dropped;
  std::uint64_t gate = gate_.load(std::memory_order_acquire);
  const auto decided = [&] { return gate >> 32 != run || (gate & shut) != 0; };
  do {
    if (decided()) return false;
  } while (!gate_.compare_exchange_weak(gate, gate + 1, std::memory_order_acq_rel, std::memory_order_acquire));
  spin_until([&] { return gate = gate_.load(std::memory_order_acquire), decided(); },
             oversubscribed_.load(std::memory_order_relaxed));
  return gate >> 32 == run && (gate & run_goes_on) != 0;
}

void ThreadTeam::wake(int worker, std::uint32_t run) {
  Slot& slot = slots_[static_cast<std::size_t>(worker)];
  // Sequential consistency: either this thread sees `asleep`, or the worker sees the new run before it sleeps.
  slot.run.store(run, std::memory_order_seq_cst);
  if (slot.asleep.load(std::memory_order_seq_cst)) slot.run.notify_one();
}

// Waits until the slot's run differs from `last`; false when its worker is to end.
bool ThreadTeam::wait_for_call(Slot& slot, std::uint32_t last) const {
  const auto called = [&] { return slot.run.load(std::memory_order_acquire) != last; };
  const bool spin = !oversubscribed_.load(std::memory_order_relaxed);
  const auto deadline = std::chrono::steady_clock::now() + spin_time;
  while (!called()) {
    for (int i = 0; i < pauses_per_look_at_the_clock && !called(); ++i) pause_core();
    if (called()) break;
    if (spin && std::chrono::steady_clock::now() < deadline) continue;
    slot.asleep.store(true, std::memory_order_seq_cst);
    slot.run.wait(last, std::memory_order_seq_cst);
    slot.asleep.store(false, std::memory_order_relaxed);
  }
  return !slot.ends.load(std::memory_order_relaxed);
}

void ThreadTeam::work(int worker, std::uint32_t last) {
  Slot& slot = slots_[static_cast<std::size_t>(worker)];
  while (wait_for_call(slot, last)) {
    last = slot.run.load(std::memory_order_relaxed);
    if (!join(last)) continue;
    task_(context_, worker);
    leave();
    running_.fetch_sub(1, std::memory_order_release);
  }
}

namespace {

using Clock = std::chrono::steady_clock;
constexpr auto before_asking_again = std::chrono::seconds(1);

std::atomic<ThreadTeam*> g_team{nullptr};
std::atomic<Clock::time_point> g_ask_again{Clock::time_point::min()};  // later than when the system refused a thread
std::mutex g_team_mutex;                                               // taken inside a NoFork

void forget_team_in_child() {
  g_team.store(nullptr, std::memory_order_relaxed);  // its threads are not here; the memory is lost on purpose
}
[[maybe_unused]] const int registered = pthread_atfork(nullptr, nullptr, forget_team_in_child);

bool is_enough(const ThreadTeam* team, int num_workers) {
  return team != nullptr && (team->num_workers() >= num_workers || Clock::now() < g_ask_again.load());
}

}  // namespace

ThreadTeam& shared_team(int num_workers) {
  ThreadTeam* team = g_team.load(std::memory_order_acquire);
  if (is_enough(team, num_workers)) return *team;
  const NoFork no_fork;
  const std::scoped_lock lock(g_team_mutex);
  team = g_team.load(std::memory_order_acquire);
  if (is_enough(team, num_workers)) return *team;
  if (team == nullptr) {
    team = new ThreadTeam(num_workers);
    g_team.store(team, std::memory_order_release);
  } else {
    team->grow(num_workers);
  }
  if (team->num_workers() < num_workers) g_ask_again.store(Clock::now() + before_asking_again);
  return *team;
}

}  // namespace hotloop::runtime
