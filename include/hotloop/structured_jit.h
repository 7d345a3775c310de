// jit of functions of structures, see functions.h.
#pragma once

#include <functional>
#include <memory>
#include <mutex>
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
}  // namespace detail

// A function of structures, compiled for each combination of structures and types that it meets. Copies share their programs, and
// threads may share one, as with Jit. Numbers in the options, of batch_axes and donated, count leaves.
template <class R, class... A> class StructuredJit {
 public:
  StructuredJit(std::function<R(const A&...)> fn, CompileOptions options)
      : state_(std::make_shared<State>(std::move(fn), std::move(options))) {}

  ArraysOf<R> operator()(const ArraysOf<A>&... arguments) const {
    const std::vector<Array> leaves = leaves_of(arguments...);
    const Program& program = find(leaves, arguments...);
    return with_leaves(program.result, program.executable(leaves));
  }
  // The program for such arguments, compiled if it is not there: for explain() and the like.
  const Executable& executable(const ArraysOf<A>&... arguments) const {
    return find(leaves_of(arguments...), arguments...).executable;
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
    const std::scoped_lock lock(state_->mutex);
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
        leaves_of(types));
    return state_->programs.add({types, *result, compile(graph, state_->options)});
  }

  std::shared_ptr<State> state_;
};

template <StructuredFunction F> auto jit(F fn, CompileOptions options = {}) {
  return detail::with_arguments<F>(
      [&]<class... A>() { return StructuredJit<detail::ResultOf<F>, A...>(std::move(fn), std::move(options)); });
}

}  // namespace hotloop
