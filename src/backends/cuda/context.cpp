#include "backends/cuda/context.h"

#include <pthread.h>

#include <atomic>

#include "hotloop/error.h"

namespace hotloop::cuda {
namespace {

std::atomic<bool> g_used{false}, g_forked{false};

void in_child() { g_forked.store(g_used.load()); }

[[maybe_unused]] const int registered = pthread_atfork(nullptr, nullptr, in_child);

}  // namespace

void note_use_of_driver() { g_used.store(true); }
bool is_forked_from_use() { return g_forked.load(std::memory_order_relaxed); }

void Context::check(Result result, const char* doing) const {
  if (result == 0) return;
  const std::string text = std::string(doing) + " failed with " + driver.error_text(result);
  if (result == out_of_memory)
    throw UserError("cuda", "the memory of the device must hold what runs on it", text,
                    "smaller batches, or end what else uses the device");
  if (result == launch_timeout)
    throw UserError("cuda", "a kernel must end in the time that the system gives it", text,
                    "smaller batches, or a device that drives no display");
  if (result == device_unavailable || result == ecc_uncorrectable || result == nvlink_uncorrectable)
    throw UserError("cuda", "the device must work and be free", text, "nvidia-smi, which shows its state");
  throw InternalError(__FILE__, __LINE__, text);
}

CurrentContext::CurrentContext(const Context& context) : context_(context) {
  if (is_forked_from_use())
    throw UserError("cuda", "the device serves the process that found it", forked_text,
                    "multiprocessing's start method \"spawn\", or the first use of the device after the fork");
  context.check(context.driver.ctx_get_current(&before_), "asking for the thread's context");
  if (before_ != context.handle_)
    context.check(context.driver.ctx_set_current(context.handle_), "setting the thread's context");
}

// A thread that had none keeps this one: the next call is cheaper, and nobody's choice was changed.
CurrentContext::~CurrentContext() {
  if (before_ != nullptr && before_ != context_.handle_) context_.driver.ctx_set_current(before_);
}

}  // namespace hotloop::cuda
