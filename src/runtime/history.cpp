#include "runtime/history.h"

#include <atomic>
#include <mutex>
#include <utility>

#include "core/fork.h"

namespace hotloop {
namespace {

std::atomic<bool> g_recording{false};
std::mutex g_mutex;
std::vector<KernelRecord> g_records;

}  // namespace

void KernelHistory::start() {
  const NoFork no_fork;
  const std::scoped_lock lock(g_mutex);
  g_records.clear();
  g_recording.store(true, std::memory_order_relaxed);
}

std::vector<KernelRecord> KernelHistory::stop() {
  const NoFork no_fork;
  const std::scoped_lock lock(g_mutex);
  g_recording.store(false, std::memory_order_relaxed);
  return std::exchange(g_records, {});
}

namespace runtime {

bool history_is_recording() { return g_recording.load(std::memory_order_relaxed); }

void record_launch(const KernelRecord& record) {
  const NoFork no_fork;
  const std::scoped_lock lock(g_mutex);
  if (history_is_recording()) g_records.push_back(record);
}

}  // namespace runtime
}  // namespace hotloop
