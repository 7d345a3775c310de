// Jit: a function compiled for each combination of argument types that it meets.
#include <utility>

#include "hotloop/append_list.h"
#include "hotloop/error.h"
#include "hotloop/forkable_mutex.h"
#include "hotloop/structured_jit.h"
#include "runtime/executable.h"

namespace hotloop {

namespace {

struct TypesOf {
  std::span<const Array> arrays;
  const ValueType& operator[](std::size_t i) const { return arrays[i].type(); }
};

template <class Types> bool fits(const Executable::Impl& program, const Types& types, std::size_t count) {
  std::size_t misfit = 0;
  return program.inputs.size() == count && program.rows_of(types, &misfit) >= 0;
}

}  // namespace

struct Jit::State {
  State(TracedFunction f, CompileOptions o) : fn(std::move(f)), options(std::move(o)) {}
  template <class Types> const Executable* find(const Types& types, std::size_t count) const {
    return programs.find([&](const Executable& e) { return fits(e.impl(), types, count); });
  }

  const Executable& add(std::span<const ValueType> types) {
    const detail::TraceLock lock(mutex);
    if (const Executable* found = find(types, types.size())) return *found;
    return programs.add(compile(trace(fn, types), options));
  }

  TracedFunction fn;
  CompileOptions options;
  detail::ForkableMutex mutex;  // held while compiling
  detail::AppendList<Executable> programs;
};

Jit::Jit(TracedFunction fn, CompileOptions options)
    : state_(std::make_shared<State>(std::move(fn), std::move(options))) {}

const Executable& Jit::executable(std::span<const ValueType> types) const {
  const Executable* found = state_->find(types, types.size());
  return found != nullptr ? *found : state_->add(types);
}

std::vector<Array> Jit::operator()(std::span<const Array> inputs) const {
  const Executable* found = state_->find(TypesOf{inputs}, inputs.size());
  if (found == nullptr) {
    std::vector<ValueType> types;
    for (const Array& a : inputs) types.push_back(a.type());
    found = &state_->add(types);
  }
  return (*found)(inputs);
}

namespace detail {

bool accepts(const Executable& executable, std::span<const Array> arrays) {
  return fits(executable.impl(), TypesOf{arrays}, arrays.size());
}

namespace {
thread_local TraceLock* g_innermost = nullptr;
}

TraceLock::TraceLock(ForkableMutex& mutex) : mutex_(mutex), outer_(g_innermost) {
  for (const TraceLock* lock = outer_; lock != nullptr; lock = lock->outer_)
    if (&lock->mutex_ == &mutex)
      throw UserError("jit", "a function must not call itself while it is traced", "a call of itself, on arrays",
                      "the function without jit(), on values");
  if (outer_ == nullptr)
    mutex_.lock();
  else
    is_locked_ = mutex_.try_lock();
  g_innermost = this;
}

TraceLock::~TraceLock() {
  g_innermost = outer_;
  if (is_locked_) mutex_.unlock();
}

void check_defined(std::span<const Array> arrays) {
  for (std::size_t i = 0; i < arrays.size(); ++i)
    if (!arrays[i].defined())
      throw UserError("jit", "each leaf of the arguments must be an array",
                      "leaf " + std::to_string(i) + " of " + std::to_string(arrays.size()) + " is undefined");
}

}  // namespace detail

}  // namespace hotloop
