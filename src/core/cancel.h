// What tells calls and compilations to end early. Running kernels poll a flag once a block and once an outer iteration, compilation looks
// between passes, levels of a schedule and functions.
#pragma once

#include <atomic>
#include <bit>
#include <cstdint>

namespace hotloop {

// A request to end early, which a call may be bound to.
class CancelToken {
 public:
  void request() noexcept { set(1); }  // also from a signal handler
  void clear() noexcept { set(0); }
  bool requested() const noexcept { return (state() & 1) != 0; }
  // Another number after each request and each clear.
  std::uint64_t state() const noexcept { return state_.load(std::memory_order_acquire); }
  // For KernelContext::cancel: generated code reads it as a plain integer, which is 0 unless something was requested.
  const std::int32_t* flag() const noexcept { return reinterpret_cast<const std::int32_t*>(&state_); }

 private:
  void set(std::uint64_t flag) noexcept {
    std::uint64_t now = state_.load(std::memory_order_relaxed);
    while ((now & 1) != flag &&
           !state_.compare_exchange_weak(now, ((now >> 32) + 1) << 32 | flag, std::memory_order_acq_rel)) {
    }
  }

  // The flag in the low half, the number of changes in the high half.
  std::atomic<std::uint64_t> state_{0};
  static_assert(sizeof(state_) == 8 && std::atomic<std::uint64_t>::is_always_lock_free);
  static_assert(std::endian::native == std::endian::little);
};

// What this thread runs and compiles is bound to: the token of the innermost CancelScope, else the one of request_cancel().
const CancelToken& cancel_token();
bool cancel_requested();
void leave_if_cancelled();  // throws Cancelled

// While one lives, what its thread runs is bound to `token`.
class CancelScope {
 public:
  explicit CancelScope(const CancelToken& token);
  ~CancelScope();
  CancelScope(const CancelScope&) = delete;
  CancelScope& operator=(const CancelScope&) = delete;

 private:
  const CancelToken* outer_;
};

// A token that nothing ever requests: for a call that writes over its inputs, which nobody could begin again.
extern const CancelToken never_cancelled;

// One call that polls the flag: its results are whole only if nothing was requested from beginning to end, whatever the flag says then.
class CancelWatch {
 public:
  CancelWatch();        // throws Cancelled if something is requested already
  void finish() const;  // throws Cancelled if anything was requested since

 private:
  const CancelToken& token_;
  std::uint64_t before_;
};

}  // namespace hotloop
