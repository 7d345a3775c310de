#include "cuda/fibers.h"

#include <sys/mman.h>

#include <new>

#include "cuda/guarded.h"

namespace hotloop::cuda::emulated {

#ifdef HOTLOOP_EMULATED_BY_UCONTEXT
void switch_context(Context& from, Context& to) { swapcontext(&from, &to); }

void prepare_context(Context& context, unsigned char* stack, std::size_t bytes, void (*entry)()) {
  getcontext(&context);
  context.uc_stack.ss_sp = stack;
  context.uc_stack.ss_size = bytes;
  context.uc_link = nullptr;
  makecontext(&context, entry, 0);
}
#else
extern "C" void hotloop_emulated_switch(Context* from, Context to);
asm(R"(
  .text
  .globl hotloop_emulated_switch
  .hidden hotloop_emulated_switch
  .type hotloop_emulated_switch, @function
hotloop_emulated_switch:
  pushq %rbp
  pushq %rbx
  pushq %r12
  pushq %r13
  pushq %r14
  pushq %r15
  movq %rsp, (%rdi)
  movq %rsi, %rsp
  popq %r15
  popq %r14
  popq %r13
  popq %r12
  popq %rbx
  popq %rbp
  ret
  .size hotloop_emulated_switch, .-hotloop_emulated_switch
)");

void switch_context(Context& from, Context& to) { hotloop_emulated_switch(&from, to); }

void prepare_context(Context& context, unsigned char* stack, std::size_t bytes, void (*entry)()) {
  // As if `entry` had been called from nowhere: the stack is aligned before its return address.
  void** top = reinterpret_cast<void**>(stack + bytes);
  *--top = nullptr;
  *--top = reinterpret_cast<void*>(entry);
  for (int i = 0; i < 6; ++i) *--top = nullptr;
  context = top;
}
#endif

Stacks::~Stacks() {
  for (unsigned char* stack : stacks_) munmap(stack - page_bytes(), page_bytes() + bytes);
}

unsigned char* Stacks::at(std::size_t i) {
  const std::size_t page = page_bytes();
  while (stacks_.size() <= i) {
    void* memory = mmap(nullptr, page + bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED || mprotect(memory, page, PROT_NONE) != 0) throw std::bad_alloc();
    stacks_.push_back(static_cast<unsigned char*>(memory) + page);
  }
  return stacks_[i];
}

}  // namespace hotloop::cuda::emulated
