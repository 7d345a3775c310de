// Functions that run on stacks of their own and give way to one another.
#pragma once

#include <cstddef>
#include <vector>

#if !defined(__x86_64__) || defined(HOTLOOP_EMULATED_UCONTEXT)
#define HOTLOOP_EMULATED_BY_UCONTEXT
#include <ucontext.h>
#endif

namespace hotloop::cuda::emulated {

#ifdef HOTLOOP_EMULATED_BY_UCONTEXT
using Context = ucontext_t;
#else
// A stack pointer, where the registers lie that a function must preserve. Modes of rounding are those of all threads.
using Context = void*;
#endif

// Returns when something switches back to `from`.
void switch_context(Context& from, Context& to);

// `entry` starts at the first switch to the context, and never returns.
void prepare_context(Context& context, unsigned char* stack, std::size_t bytes, void (*entry)());

// Stacks of one size with a guard before each, made once and used by all launches.
class Stacks {
 public:
  static constexpr std::size_t bytes = 64 << 10;
  ~Stacks();
  unsigned char* at(std::size_t i);

 private:
  std::vector<unsigned char*> stacks_;
};

}  // namespace hotloop::cuda::emulated
