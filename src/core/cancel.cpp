#include "core/cancel.h"

#include <atomic>

#include "hotloop/cancel.h"

namespace hotloop {
namespace {

// Generated code reads the flag as a plain integer.
std::atomic<std::int32_t> g_cancel{0};
constexpr std::int32_t never = 0;
thread_local int num_not_cancelled = 0;
static_assert(sizeof(g_cancel) == sizeof(std::int32_t) && std::atomic<std::int32_t>::is_always_lock_free);

}  // namespace

void request_cancel() noexcept { g_cancel.store(1, std::memory_order_relaxed); }
void clear_cancel() noexcept { g_cancel.store(0, std::memory_order_relaxed); }

const std::int32_t* cancel_flag() {
  return num_not_cancelled > 0 ? &never : reinterpret_cast<const std::int32_t*>(&g_cancel);
}
bool cancel_requested() { return g_cancel.load(std::memory_order_relaxed) != 0 && num_not_cancelled == 0; }
void leave_if_cancelled() {
  if (cancel_requested()) throw Cancelled();
}

NotCancelled::NotCancelled() { ++num_not_cancelled; }
NotCancelled::~NotCancelled() { --num_not_cancelled; }

}  // namespace hotloop
