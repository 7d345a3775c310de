// jit of functions of structures, see functions.h.
#pragma once

#include <concepts>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <tuple>
#include <utility>
#include <vector>

#include "hotloop/append_list.h"
#include "hotloop/forkable_mutex.h"
#include "hotloop/functions.h"
#include "hotloop/jit.h"
#include "hotloop/structure.h"

namespace hotloop {

namespace detail {
// Whether a call may bring arrays of these types.
bool accepts(const Executable& executable, std::span<const Array> arrays);
void check_defined(std::span<const Array> arrays);

// What compiles for a function of one's own holds this lock, so that one thread traces and the others wait for its program. But a thread that is in
// the midst of another's tracing waits for nobody, who may wait for it: it goes on without. UserError for a function that calls itself.
class TraceLock {
 public:
  explicit TraceLock(ForkableMutex& mutex);
  ~TraceLock();
  TraceLock(const TraceLock&) = delete;
  TraceLock& operator=(const TraceLock&) = delete;

 private:
  ForkableMutex& mutex_;
  TraceLock* outer_;  // of this thread
  bool is_locked_ = true;
};
}  // namespace detail

// A function of structures, compiled for each combination of structures and types that it meets. Copies share their programs, and
// threads may share one, as with Jit. Numbers in the options, of batch_axes and donated, count leaves.
template <class R, class... A> class StructuredJit {
 public:
  StructuredJit(std::function<R(const A&...)> fn, CompileOptions options)
      : state_(std::make_shared<State>(std::move(fn), std::move(options))) {}

  ArraysOf<R> operator()(const ArraysOf<A>&... arguments) const {
    const std::vector<Array> leaves = arrays_of(arguments...);
    const Program& program = find(leaves, arguments...);
    return with_leaves(program.result, program.executable(leaves));
  }
  // The program for such arguments, compiled if it is not there: for explain() and the like.
  const Executable& executable(const ArraysOf<A>&... arguments) const {
    return find(arrays_of(arguments...), arguments...).executable;
  }

 private:
  struct Program {
    detail::With<std::tuple<A...>, ValueType> arguments;
    detail::With<R, ValueType> result;
    Executable executable;
  };
  struct State {
    State(std::function<R(const A&...)> f, CompileOptions o) : fn(std::move(f)), options(std::move(o)) {}
    std::function<R(const A&...)> fn;
    CompileOptions options;
    detail::ForkableMutex mutex;  // held while compiling
    detail::AppendList<Program> programs;
  };

  // Those of no arguments are no Values either.
  static std::vector<Array> arrays_of(const ArraysOf<A>&... arguments) {
    if constexpr (sizeof...(A) == 0)
      return {};
    else
      return leaves_of(arguments...);
  }
  static std::vector<ValueType> types_of(const detail::With<std::tuple<A...>, ValueType>& arguments) {
    if constexpr (sizeof...(A) == 0)
      return {};
    else
      return leaves_of(arguments);
  }

  const Program& find(std::span<const Array> leaves, const ArraysOf<A>&... arguments) const {
    const auto fits = [&](const Program& program) {
      auto any = [](const ValueType&, const Array&) { return true; };
      return std::apply(
                 [&](const auto&... traced) {
                   return (detail::Structure<std::decay_t<decltype(traced)>>::fits(traced, arguments, any) && ...);
                 },
                 program.arguments) &&
             detail::accepts(program.executable, leaves);
    };
    if (const Program* found = state_->programs.find(fits)) return *found;
    detail::check_defined(leaves);
    const detail::TraceLock lock(state_->mutex);
    if (const Program* found = state_->programs.find(fits)) return *found;
    const auto type_of = [](const auto& leaf) { return leaf.type(); };
    const auto types = map_leaves(std::tuple<ArraysOf<A>...>(arguments...), type_of);
    std::optional<detail::With<R, ValueType>> result;
    const auto graph = trace(
        [&](std::span<const Value> values) {
          const R r = std::apply(state_->fn, with_leaves(types, values));
          result = map_leaves(r, type_of);
          return leaves_of(r);
        },
        types_of(types));
    return state_->programs.add({types, *result, compile(graph, state_->options)});
  }

  std::shared_ptr<State> state_;
};

template <StructuredFunction F> auto jit(F fn, CompileOptions options = {}) {
  return detail::with_arguments<F, F>(
      [&]<class... A>() { return StructuredJit<detail::ResultOf<F>, A...>(std::move(fn), std::move(options)); });
}

// Of anything else: says what is missing.
template <class F>
requires(!detail::HasSignature<F> ||
         (!StructuredFunction<F> && !std::convertible_to<F, TracedFunction>)) void jit(F&&, CompileOptions = {}) {
  if constexpr (!detail::HasSignature<F>)
    static_assert(always_false<F>,
                  "a function to compile must name the types of its parameters, as in [](Value x, const Tree<Value>& "
                  "params): `auto` says too "
                  "little. Of what std::bind_front and the like give, write a lambda that calls it");
  else if constexpr (!ValueStructure<detail::ResultOf<F>>)
    static_assert(always_false<F>,
                  "a function to compile must return a Value, a Tree<Value> or a structure of them: constant(number, "
                  "dtype) makes a Value of a "
                  "number");
  else
    static_assert(always_false<F>,
                  "each parameter of a function to compile must be a Value, a Tree<Value> or a structure of them");
}

}  // namespace hotloop
