// Jit: a function compiled for each combination of argument types that it meets.
#include <atomic>
#include <mutex>
#include <utility>

#include "runtime/executable.h"

namespace hotloop {

struct Jit::State {
  // Specialisations form a list that only grows, so that calls search it without a lock.
  struct Entry {
    Executable executable;
    std::unique_ptr<Entry> next;
  };

  State(TracedFunction f, CompileOptions o) : fn(std::move(f)), options(std::move(o)) {}
  ~State() {
    // Unlinked one by one: a long list must not recurse.
    std::unique_ptr<Entry> entry(head.load(std::memory_order_relaxed));
    while (entry) entry = std::move(entry->next);
  }

  template <class Types> const Executable* find(const Types& types, std::size_t count) const {
    std::size_t misfit = 0;
    for (const Entry* e = head.load(std::memory_order_acquire); e != nullptr; e = e->next.get())
      if (e->executable.impl().inputs.size() == count && e->executable.impl().rows_of(types, &misfit) >= 0)
        return &e->executable;
    return nullptr;
  }

  const Executable& add(std::span<const ValueType> types) {
    const std::scoped_lock lock(mutex);
    if (const Executable* found = find(types, types.size())) return *found;
    auto entry = std::make_unique<Entry>(Entry{compile(trace(fn, types), options), nullptr});
    entry->next.reset(head.load(std::memory_order_relaxed));
    head.store(entry.get(), std::memory_order_release);
    return entry.release()->executable;
  }

  TracedFunction fn;
  CompileOptions options;
  std::mutex mutex;  // held while compiling
  std::atomic<Entry*> head{nullptr};
};

Jit::Jit(TracedFunction fn, CompileOptions options)
    : state_(std::make_shared<State>(std::move(fn), std::move(options))) {}

const Executable& Jit::executable(std::span<const ValueType> types) const {
  const Executable* found = state_->find(types, types.size());
  return found != nullptr ? *found : state_->add(types);
}

std::vector<Array> Jit::operator()(std::span<const Array> inputs) const {
  struct TypesOf {
    std::span<const Array> arrays;
    const ValueType& operator[](std::size_t i) const { return arrays[i].type(); }
  };
  const Executable* found = state_->find(TypesOf{inputs}, inputs.size());
  if (found == nullptr) {
    std::vector<ValueType> types;
    for (const Array& a : inputs) types.push_back(a.type());
    found = &state_->add(types);
  }
  return (*found)(inputs);
}

}  // namespace hotloop
