// Rules that all elementwise ops share: operands of one shape, one result of that shape, batch by batching everything.
#pragma once

#include <concepts>
#include <string>
#include <type_traits>
#include <vector>

#include "core/denormals.h"
#include "hotloop/error.h"
#include "hotloop/ops.h"
#include "ir/op_def.h"

namespace hotloop::ir {

// Dtypes an op takes.
enum class Accepts { Floats, Numbers, Integers, Integral /* integers and bool */, Any };

// An op of one operand, or of two of equal type, whose result has the operand's type.
OpDef unary_op(const std::string& name, const std::string& summary, ScalarOp scalar, Accepts accepts, double cost = 1);
OpDef binary_op(const std::string& name, const std::string& summary, ScalarOp scalar, Accepts accepts, double cost = 1);
// An op of two operands of equal type whose result is bool.
OpDef compare_op(const std::string& name, const std::string& summary, ScalarOp scalar);

// Front-end of a two-operand op: checks dtypes, broadcasts, appends.
Value append_binary(std::string_view name, Value a, Value b);

// Definition of an elementwise op from a function of one or two elements, for every C++ element type that `f` takes;
// one that gives bool defines a comparison. Bool elements are uint8_t, 0 or 1.
template <class F> auto eval_elementwise(F f) {
  return [f](const EvalContext& c) -> std::vector<Array> {
    const ValueType& type = c.node.types.front();
    Array out(type.dtype, type.shape);
    const auto fill = [&]<class T, class R>(T, R, auto element) {
      auto* r = static_cast<std::conditional_t<std::is_same_v<R, bool>, std::uint8_t, T>*>(out.raw());
      for (std::int64_t i = 0; i < out.size(); ++i) r[i] = element(i);
    };
    visit_dtype(c.operands[0].dtype(), [&](auto tag) {
      using T = decltype(tag);
      const auto* a = static_cast<const T*>(c.operands[0].raw());
      if constexpr (std::is_invocable_v<F, T>) {
        using R = std::invoke_result_t<F, T>;
        fill(T{}, R{},
             [&](std::int64_t i) { return static_cast<std::conditional_t<std::is_same_v<R, bool>, R, T>>(f(a[i])); });
      } else if constexpr (std::is_invocable_v<F, T, T>) {
        using R = std::invoke_result_t<F, T, T>;
        const auto* b = static_cast<const T*>(c.operands[1].raw());
        fill(T{}, R{}, [&](std::int64_t i) {
          return static_cast<std::conditional_t<std::is_same_v<R, bool>, R, T>>(f(a[i], b[i]));
        });
      } else {
        throw InternalError(__FILE__, __LINE__, "the op does not take this dtype");
      }
    });
    return {out};
  };
}
// The same for float ops, from a function of doubles: f32 is rounded once, at the end.
template <class F> auto eval_math(F f) {
  return eval_elementwise([f](std::floating_point auto x) { return f(as_operand(static_cast<double>(x))); });
}

// jvp rule tangent * factor(context), for an op of one operand.
template <class F> auto scaled_tangent(F factor) {
  return [factor](const JvpContext& c) {
    return std::vector<Value>{c.tangents[0].defined() ? mul(c.tangents[0], factor(c)) : Value{}};
  };
}

// Integer arithmetic that wraps, as ScalarOp promises; the types as they are for floats.
template <class T> T wrapping(T a, T b, auto f) {
  if constexpr (std::is_integral_v<T>) {
    using U = std::make_unsigned_t<T>;
    return static_cast<T>(static_cast<U>(f(static_cast<U>(a), static_cast<U>(b))));
  } else {
    return f(a, b);
  }
}

}  // namespace hotloop::ir
