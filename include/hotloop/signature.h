// What a function of one's own takes and gives, as its type says it.
#pragma once

#include <tuple>
#include <type_traits>

namespace hotloop::detail {

// What a function takes and gives: of a pointer to one, or of an object whose call is not a template.
template <class F> struct Signature {};
template <class R, class... A> struct Signature<R(A...)> {
  using Result = std::decay_t<R>;
  using Arguments = std::tuple<std::decay_t<A>...>;
};
template <class R, class... A> struct Signature<R (*)(A...)> : Signature<R(A...)> {};
template <class R, class... A> struct Signature<R (*)(A...) noexcept> : Signature<R(A...)> {};
template <class M> struct MemberSignature {};
template <class C, class R, class... A> struct MemberSignature<R (C::*)(A...)> : Signature<R(A...)> {};
template <class C, class R, class... A> struct MemberSignature<R (C::*)(A...) const> : Signature<R(A...)> {};
template <class C, class R, class... A> struct MemberSignature<R (C::*)(A...) noexcept> : Signature<R(A...)> {};
template <class C, class R, class... A> struct MemberSignature<R (C::*)(A...) const noexcept> : Signature<R(A...)> {};
template <class F>
requires requires { &F::operator(); }
struct Signature<F> : MemberSignature<decltype(&F::operator())> {};

template <class F>
concept HasSignature = requires {
  typename Signature<std::decay_t<F>>::Result;
};

}  // namespace hotloop::detail
