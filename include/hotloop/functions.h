// Functions of structures (structure.h): differentiated, batched, looped over and compiled (structured_jit.h) as they are written, with trees of
// parameters in and trees of gradients out. The forms of transforms.h and ops.h, of the same names, take flat lists of values; these are
// made of them.
//
//   const auto step = jit([&](const Tree<Value>& params, const Tree<Value>& state, Value x, Value y) {
//     const auto [value, grads] = value_and_grad([&](const Tree<Value>& p) { return loss(model.apply(p, x), y); })(params);
//     const auto [new_params, new_state] = adam.update(grads, state, params);
//     return std::tuple(new_params, new_state, value);
//   });
//   auto [params, state, value] = step(params0, state0, x, y);      // Tree<Array>, Tree<Array>, Array
//
// Such a function, and the body of a loop, names the types of its parameters, a Value, a Tree<Value>, any structure, also by const
// reference: `auto` says too little.
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include "hotloop/jacobian.h"
#include "hotloop/ops.h"
#include "hotloop/signature.h"
#include "hotloop/structure.h"
#include "hotloop/transforms.h"

namespace hotloop {

namespace detail {

template <class F> using ResultOf = typename Signature<std::decay_t<F>>::Result;
template <class F> using ArgumentsOf = typename Signature<std::decay_t<F>>::Arguments;
// What one function of structures is a function of: its argument or, of several, the tuple of them.
template <class T> struct SoleOrAll { using type = T; };
template <class A> struct SoleOrAll<std::tuple<A>> { using type = A; };
template <class F> using PrimalsOf = typename SoleOrAll<ArgumentsOf<F>>::type;

}  // namespace detail

template <class F>
concept StructuredFunction = requires {
  typename detail::Signature<std::decay_t<F>>::Result;
  requires ValueStructure<detail::ResultOf<F>>;
  requires ValueStructure<detail::ArgumentsOf<F>>;
};

namespace detail {

template <StructuredFunction F> ResultOf<F> call_with(F& fn, const PrimalsOf<F>& primals) {
  if constexpr (std::same_as<PrimalsOf<F>, ArgumentsOf<F>>) {
    return std::apply(fn, primals);
  } else {
    return fn(primals);
  }
}

// `fn` as a function of the leaves of `like`, and the structure of what it gave when it was last called.
template <class F> struct Flat {
  F fn;
  PrimalsOf<F> like;
  std::optional<ResultOf<F>> result = {};

  std::vector<Value> operator()(std::span<const Value> leaves) {
    result = call_with(fn, with_leaves(like, leaves));
    return leaves_of(*result);
  }
  // A function that this object must outlive.
  Function function() {
    return [this](std::span<const Value> leaves) { return (*this)(leaves); };
  }
};

// make.operator()<A...>() with the types of the arguments of F, which is called as a Callee.
template <class F, class Callee = const F, class Make> auto with_arguments(const Make& make) {
  return [&]<class... A>(std::type_identity<std::tuple<A...>>) {
    // One error in place of those of all that is made of the function.
    if constexpr (std::is_invocable_v<Callee&, const A&...>)
      return make.template operator()<A...>();
    else
      static_assert(always_false<F>,
                    "the function must take its arguments by value or const reference (Value x, const Tree<Value>& "
                    "params), and a lambda that is "
                    "differentiated or batched must not be mutable");
  }(std::type_identity<ArgumentsOf<F>>());
}

std::vector<Value> defined_tangents(std::span<const Value> primals, std::span<const Value> tangents);
std::vector<Value> zeros_where_undefined(std::vector<Value> values, std::span<const Value> like);
// One axis for each leaf, from one for each argument with so many leaves.
std::vector<int> axes_of_leaves(std::span<const int> in_axes, std::span<const std::size_t> num_leaves);

}  // namespace detail

// ---- derivatives ----------------------------------------------------------------------------------------------------
// fn's first leaf, or only one, must be an f32 or f64 scalar. Result: a function of the same arguments that gives what fn gives, and
// the derivatives of that scalar by argument `argnum`, in the structure of that argument, whose leaves must be f32 or f64.
template <std::size_t argnum = 0, StructuredFunction F> auto value_and_grad(F fn) {
  static_assert(argnum < std::tuple_size_v<detail::ArgumentsOf<F>>, "there is no such argument");
  return detail::with_arguments<F>([&]<class... A>() {
    return [fn](const A&... arguments) {
      using Wanted = std::tuple_element_t<argnum, std::tuple<A...>>;
      const std::tuple<A...> all(arguments...);
      const Wanted& wanted = std::get<argnum>(all);
      // A function of the wanted argument alone; the others are captured where they are used.
      const auto of_wanted = [&](const Wanted& w) {
        std::tuple<A...> given = all;
        std::get<argnum>(given) = w;
        return std::apply(fn, given);
      };
      detail::Flat<decltype(of_wanted)> flat{of_wanted, wanted};
      const std::vector<Value> leaves = leaves_of(wanted);
      std::vector<int> argnums(leaves.size());
      for (std::size_t i = 0; i < argnums.size(); ++i) argnums[i] = static_cast<int>(i);
      const std::vector<Value> out = value_and_grad(flat.function(), argnums)(leaves);
      const auto split = std::span(out).size() - leaves.size();
      return std::pair(with_leaves(*flat.result, std::span(out).first(split)),
                       with_leaves(wanted, std::span(out).subspan(split)));
    };
  });
}
// The derivatives alone.
template <std::size_t argnum = 0, StructuredFunction F> auto grad(F fn) {
  return detail::with_arguments<F>([&]<class... A>() {
    return [fn](const A&... arguments) { return value_and_grad<argnum>(fn)(arguments...).second; };
  });
}
// What fn gives, and its derivative along `tangents`. Primals and tangents are fn's argument or, of a function of several, a
// std::tuple of them; an undefined tangent is zero, as is that of a leaf which is not a float.
template <StructuredFunction F>
std::pair<detail::ResultOf<F>, detail::ResultOf<F>> jvp(F fn, const detail::PrimalsOf<F>& primals,
                                                        const detail::PrimalsOf<F>& tangents) {
  detail::Flat<F> flat{std::move(fn), primals};
  const std::vector<Value> at = leaves_of(primals);
  auto [outputs, along] = jvp(flat.function(), at, detail::defined_tangents(at, leaves_of(tangents)));
  along = detail::zeros_where_undefined(std::move(along), outputs);
  return {with_leaves(*flat.result, outputs), with_leaves(*flat.result, along)};
}
// What fn gives, and its pullback: a cotangent of the result -> that of the primals (zeros where nothing arrives).
template <StructuredFunction F>
std::pair<detail::ResultOf<F>, std::function<detail::PrimalsOf<F>(const detail::ResultOf<F>&)>> vjp(
    F fn, const detail::PrimalsOf<F>& primals) {
  detail::Flat<F> flat{std::move(fn), primals};
  auto [outputs, pullback] = vjp(flat.function(), leaves_of(primals));
  return {with_leaves(*flat.result, outputs),
          [pullback = std::move(pullback), primals](const detail::ResultOf<F>& cotangents) {
            return with_leaves(primals, pullback(leaves_of(cotangents)));
          }};
}
// H v of fn's first leaf, a scalar, in the structure of `primals`; zero where a leaf is not a float. Forward over reverse.
template <StructuredFunction F>
detail::PrimalsOf<F> hvp(F fn, const detail::PrimalsOf<F>& primals, const detail::PrimalsOf<F>& vectors) {
  const auto gradient = [&](const detail::PrimalsOf<F>& at) {
    return grad([&](const detail::PrimalsOf<F>& p) { return detail::call_with(fn, p); })(at);
  };
  return jvp(gradient, primals, vectors).second;
}
// The Jacobian of one leaf of what fn gives by one of its arguments' leaves, with its structure; options.argnum and options.output count
// leaves. See jacobian.h.
template <StructuredFunction F> auto jacobian(F fn, JacobianOptions options = {}) {
  return detail::with_arguments<F>([&]<class... A>() {
    return [fn, options](const A&... arguments) {
      detail::Flat<F> flat{fn, detail::PrimalsOf<F>(arguments...)};
      return jacobian(flat.function(), options)(leaves_of(arguments...));
    };
  });
}
// The Hessian of fn's first leaf, a scalar, by one leaf, in the same form.
template <StructuredFunction F> auto sparse_hessian(F fn, JacobianOptions options = {}) {
  return detail::with_arguments<F>([&]<class... A>() {
    return [fn, options](const A&... arguments) {
      detail::Flat<F> flat{fn, detail::PrimalsOf<F>(arguments...)};
      return sparse_hessian(flat.function(), options)(leaves_of(arguments...));
    };
  });
}
// fn whose backward pass recomputes instead of saving.
template <StructuredFunction F> auto checkpoint(F fn) {
  return detail::with_arguments<F>([&]<class... A>() {
    return [fn](const A&... arguments) {
      detail::Flat<F> flat{fn, detail::PrimalsOf<F>(arguments...)};
      const std::vector<Value> out = checkpoint(flat.function())(leaves_of(flat.like));
      return with_leaves(*flat.result, out);
    };
  });
}

// ---- batches --------------------------------------------------------------------------------------------------------
// fn applied to each element along an axis of its arguments; results have that axis first. in_axes: for each argument the axis of all
// its leaves, or -1 for what is the same for all elements; empty: 0 for each.
template <StructuredFunction F> auto vmap(F fn, std::vector<int> in_axes = {}) {
  return detail::with_arguments<F>([&]<class... A>() {
    return [fn, in_axes](const A&... arguments) {
      detail::Flat<F> flat{fn, detail::PrimalsOf<F>(arguments...)};
      const std::size_t counts[] = {num_leaves(arguments)...};
      const std::vector<Value> out =
          vmap(flat.function(), detail::axes_of_leaves(in_axes, counts))(leaves_of(flat.like));
      return with_leaves(*flat.result, out);
    };
  });
}

// ---- loops and branches ---------------------------------------------------------------------------------------------
// body(carry, x_t) -> std::pair(carry, y_t), traced once; every leaf of xs is taken apart along axis 0, and those of the ys stacked
// along it. With std::tuple<>() for xs, options.length is the number of steps.
template <ValueStructure C, ValueStructure X, std::invocable<const C&, const X&> Body>
auto scan(const Body& body, const C& init, const X& xs, const ScanOptions& options = {}) {
  using Y = std::decay_t<decltype(body(init, xs).second)>;
  std::optional<Y> y;
  const std::vector<Value> first = leaves_of(init), elements = leaves_of(xs);
  const ScanBody flat = [&](std::span<const Value> carry, std::span<const Value> x) {
    const auto [next, given] = body(with_leaves(init, carry), with_leaves(xs, x));
    y = given;
    return std::pair(leaves_of(C(next)), leaves_of(given));
  };
  const auto [last, ys] = scan(flat, std::span(first), std::span(elements), options);
  return std::pair<C, Y>(with_leaves(init, last), with_leaves(*y, ys));
}
// Runs body while cond(carry), a bool scalar, is true, at most max_steps times; the last carry.
template <ValueStructure C, std::invocable<const C&> Condition, std::invocable<const C&> Body>
C while_loop(const Condition& cond, const Body& body, const C& init, std::int64_t max_steps) {
  const std::vector<Value> first = leaves_of(init);
  const std::vector<Value> last =
      while_loop(Predicate([&](std::span<const Value> carry) -> Value { return cond(with_leaves(init, carry)); }),
                 CarryBody([&](std::span<const Value> carry) { return leaves_of(C(body(with_leaves(init, carry)))); }),
                 std::span(first), max_steps);
  return with_leaves(init, last);
}
// What the chosen branch gives: functions without arguments, of one result. Both are traced, one runs.
template <std::invocable Then, std::invocable Else>
auto cond(Value predicate, const Then& if_true, const Else& if_false) {
  using R = std::decay_t<decltype(if_true())>;
  std::optional<R> result;
  const std::vector<Value> given = cond(
      predicate,
      [&](std::span<const Value>) {
        result = if_true();
        return leaves_of(*result);
      },
      [&](std::span<const Value>) { return leaves_of(R(if_false())); }, std::span<const Value>());
  return with_leaves(*result, given);
}

}  // namespace hotloop
