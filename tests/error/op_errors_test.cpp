// Misuse of operations: each fails for the user's reason, in these words.
#include <gtest/gtest.h>

#include <functional>
#include <limits>

#include "hotloop/angles.h"
#include "hotloop/error.h"
#include "hotloop/jit.h"
#include "hotloop/ops.h"
#include "hotloop/sorting.h"
#include "hotloop/transforms.h"

namespace hotloop {
namespace {

// What `fn` throws when it is traced on inputs of these types.
std::string message_of(const std::function<Value(std::span<const Value>)>& fn, const std::vector<ValueType>& types) {
  try {
    trace([&](std::span<const Value> in) { return std::vector<Value>{fn(in)}; }, types);
  } catch (const UserError& error) {
    return error.what();
  }
  return "nothing was thrown";
}

ValueType f32(const Shape& shape) { return {DType::F32, shape}; }
ValueType f64(const Shape& shape) { return {DType::F64, shape}; }
ValueType i32(const Shape& shape) { return {DType::I32, shape}; }
ValueType boolean(const Shape& shape) { return {DType::Bool, shape}; }

using In = std::span<const Value>;

TEST(OpErrors, Elementwise) {
  EXPECT_EQ(message_of([](In in) { return add(in[0], in[1]); }, {f32({2, 3}), f32({4})}),
            "[add] shapes must broadcast: from the last axis on, extents are equal or 1. Received: f32[2,3], f32[4]. "
            "Try: reshape() or expand_dims() an operand.");
  EXPECT_EQ(message_of([](In in) { return mul(in[0], in[1]); }, {f32({2}), f64({2})}),
            "[mul] both operands must have one dtype. Received: f32[2], f64[2]. Try: cast() one of them.");
  EXPECT_EQ(message_of([](In in) { return exp(in[0]); }, {i32({2})}),
            "[exp] operands must be f32 or f64. Received: i32[2]. Try: cast(x, DType::F32).");
  EXPECT_EQ(message_of([](In in) { return bitcast(in[0], DType::I64); }, {f32({2})}),
            "[bitcast] both dtypes must be numbers of one size. Received: f32[2] to i64. Try: cast() for the number "
            "itself in "
            "another dtype.");
  EXPECT_EQ(message_of([](In in) { return asin(in[0]); }, {i32({2})}),
            "[asin] the operand must be f32 or f64. Received: i32[2]. Try: cast().");
  EXPECT_EQ(message_of([](In in) { return neg(in[0]); }, {boolean({2})}),
            "[neg] operands must be numbers. Received: bool[2]. Try: cast(x, DType::F32), or select().");
  EXPECT_EQ(message_of([](In in) { return bit_and(in[0], in[0]); }, {f32({2})}),
            "[and] operands must be integers or bool. Received: f32[2], f32[2]. Try: cast(x, DType::I32).");
  EXPECT_EQ(message_of([](In in) { return shift_left(in[0], in[0]); }, {boolean({2})}),
            "[shl] operands must be integers. Received: bool[2], bool[2]. Try: cast(x, DType::I32).");
  EXPECT_EQ(
      message_of([](In in) { return select(in[0], in[0], in[0]); }, {f32({2})}),
      "[select] the condition must be bool. Received: f32[2], f32[2], f32[2]. Try: compare, as in greater(x, y).");
  EXPECT_EQ(
      message_of([](In in) { return select(in[0], in[1], in[2]); }, {boolean({}), f32({2}), f64({2})}),
      "[select] both alternatives must have one dtype. Received: bool[2], f32[2], f64[2]. Try: cast() one of them.");
  EXPECT_EQ(message_of([](In in) { return select(in[0], in[1], in[2]); }, {boolean({3}), f32({2}), f32({2})}),
            "[select] shapes must broadcast: from the last axis on, extents are equal or 1. Received: bool[3], f32[2], "
            "f32[2]. Try: reshape() or expand_dims() an operand.");
  EXPECT_EQ(message_of([](In in) { return add(in[0], Value{}); }, {f32({2})}),
            "[add] every operand must be a value. Received: f32[2], an undefined value.");
  EXPECT_EQ(message_of([](In in) { return clip(in[0], 1, 0); }, {f32({2})}),
            "[clip] low must not be above high. Received: 1 and 0.");
}

TEST(OpErrors, Creation) {
  EXPECT_EQ(message_of([](In) { return constant(Array{}); }, {}),
            "[constant] the array must hold values. Received: an empty Array{}.");
  EXPECT_EQ(
      message_of(
          [](In) {
            return iota(DType::I32, {2, 3}, 2);
          },
          {}),
      "[iota] the axis must be one of the operand's 2 axes. Received: axis 2 of i32[2,3]. Try: an axis from -2 to 1.");
  EXPECT_EQ(message_of([](In) { return iota(DType::Bool, {2}, 0); }, {}),
            "[iota] the dtype must be a number's. Received: bool[2]. Try: iota(DType::I32, ...).");
  EXPECT_EQ(message_of([](In in) { return random_bits(in[0], {3}); }, {i32({2})}),
            "[random_bits] a key must be u32[2]. Received: i32[2].");
  const std::vector<ValueType> key = {{DType::U32, {2}}};
  EXPECT_EQ(message_of(
                [](In in) {
                  return random_bits(in[0], {1 << 20, 1 << 20});
                },
                key),
            "[random_bits] a key gives at most 2^32 words. Received: (1048576, 1048576). Try: a key for each part, by "
            "split().");
}

TEST(OpErrors, Movement) {
  EXPECT_EQ(message_of(
                [](In in) {
                  return reshape(in[0], {4, 2});
                },
                {f32({2, 3})}),
            "[reshape] the number of elements must stay. Received: f32[2,3] (6 elements) to (4, 2) (8).");
  EXPECT_EQ(message_of(
                [](In in) {
                  return transpose(in[0], {0, 0});
                },
                {f32({2, 3})}),
            "[transpose] the permutation must name each axis of the operand once. Received: (0, 0) for f32[2,3]. "
            "Try: the axes 0 to 1 in their new order.");
  EXPECT_EQ(
      message_of(
          [](In in) {
            return broadcast(in[0], {2, 4}, {1});
          },
          {f32({3})}),
      "[broadcast] each axis of the operand must land on an axis of its extent, in order. Received: f32[3] to (2, "
      "4) at axes (1,).");
  EXPECT_EQ(message_of([](In in) { return broadcast_to(in[0], {3}); }, {f32({2, 3})}),
            "[broadcast_to] from the last axis on, extents must be equal, or 1 in the operand. Received: f32[2,3] to "
            "(3,). Try: expand_dims() or reshape() it first.");
  EXPECT_EQ(
      message_of(
          [](In in) {
            return slice(in[0], {1, 0}, {3, 2});
          },
          {f32({2, 3})}),
      "[slice] on each axis 0 <= start <= stop <= extent and step > 0 must hold. Received: axis 0 of f32[2,3] with "
      "start 1, stop 3, step 1.");
  EXPECT_EQ(message_of([](In in) { return slice(in[0], {1}, {2}); }, {f32({2, 3})}),
            "[slice] start must have one number for each axis. Received: 1 numbers for f32[2,3].");
  EXPECT_EQ(
      message_of([](In in) { return pad(in[0], in[0], {1}, {1}); }, {f32({2})}),
      "[pad] the padding value must be a scalar of the operand's dtype. Received: f32[2], f32[2]. Try: like(x, 0).");
  EXPECT_EQ(message_of([](In in) { return pad(in[0], like(in[0], 0), {-1}, {1}); }, {f32({2})}),
            "[pad] amounts of padding must not be negative. Received: low -1, high 1, interior 0 on axis 0 of f32[2]. "
            "Try: slice().");
  EXPECT_EQ(message_of([](In in) { return concat(in, 0); }, {f32({2, 3}), f32({2, 4})}),
            "[concat] parts must have one dtype and agree on every axis but 0. Received: f32[2,3], f32[2,4]. "
            "Try: cast(), reshape() or expand_dims() a part.");
  EXPECT_EQ(message_of([](In) { return concat({}, 0); }, {}),
            "[concat] there must be at least one part. Received: none.");
  EXPECT_EQ(message_of(
                [](In in) {
                  return reverse(in[0], {0, -2});
                },
                {f32({2, 3})}),
            "[reverse] each axis must be named once. Received: axis 0 of f32[2,3] twice.");
  EXPECT_EQ(
      message_of([](In in) { return windows(in[0], 0, 4, 1, 2); }, {f32({5})}),
      "[windows] a window must fit into the axis: (size - 1) * dilation + 1 elements. Received: size 4, stride 1, "
      "dilation 2 on axis 0 of f32[5]. Try: pad().");
  EXPECT_EQ(message_of([](In in) { return windows(in[0], 0, 2, 0); }, {f32({5})}),
            "[windows] size, stride and dilation must be positive. Received: size 2, stride 0, dilation 1 on axis 0 of "
            "f32[5].");
  EXPECT_EQ(message_of([](In in) { return expand_dims(in[0], 3); }, {f32({5})}),
            "[expand_dims] the axis must be one of the result's 2 axes. Received: axis 3 for f32[5]. Try: an axis from "
            "-2 to 1.");
  EXPECT_EQ(message_of([](In in) { return squeeze(in[0], 0); }, {f32({5})}),
            "[squeeze] the axis must have extent 1. Received: axis 0 of f32[5]. Try: take(), or reshape().");
  EXPECT_EQ(
      message_of([](In in) { return take(in[0], 0, 5); }, {f32({5})}),
      "[take] the index must lie within the axis. Received: index 5 on axis 0 of f32[5]. Try: an index from -5 to 4.");
  EXPECT_EQ(message_of([](In in) { return narrow(in[0], 0, 3, 3); }, {f32({5})}),
            "[narrow] start and start + size must lie within the axis. Received: start 3, size 3 on axis 0 of f32[5].");
  EXPECT_EQ(
      message_of([](In in) { return split(in[0], 2, 0)[0]; }, {f32({5})}),
      "[split] the number of parts must divide the extent of the axis. Received: 2 parts of axis 0 of f32[5]. Try: "
      "narrow() for unequal parts.");
}

// Positions are i32.
TEST(OpErrors, AxesThatPositionsDoNotReachTheEndOf) {
  constexpr std::int64_t n = std::int64_t{1} << 31;
  EXPECT_EQ(message_of(
                [](In in) {
                  return argmax(broadcast_to(in[0], {2, n}), 1);
                },
                {f32({})}),
            "[argmax] the axis must have at most 2^31 - 1 elements, since the index is i32. Received: axis 1 of "
            "f32[2,2147483648]. Try: reshape() to shorter axes.");
  EXPECT_EQ(message_of(
                [](In in) {
                  return argmax(broadcast_to(in[0], {2, n - 1}), 1);
                },
                {f32({})}),
            "nothing was thrown");
  EXPECT_EQ(message_of([](In in) { return argsort(broadcast_to(in[0], {n}), 0); }, {f32({})}),
            "[argsort] the axis must have at most 2^31 - 1 elements, since positions are i32. Received: axis 0 of "
            "f32[2147483648]. Try: reshape() to shorter axes.");
  EXPECT_EQ(message_of([](In in) { return sort(broadcast_to(in[0], {n}), 0); }, {f32({})}).substr(0, 9), "[argsort]");
  EXPECT_EQ(message_of([](In in) { return searchsorted(broadcast_to(in[0], {n}), in[1]); }, {f32({}), f32({3})}),
            "[searchsorted] the sorted vector must have at most 2^31 - 1 elements, since positions are i32. Received: "
            "f32[2147483648].");
  EXPECT_EQ(message_of([](In) { return iota(DType::I32, {n + 1}, 0); }, {}),
            "[iota] the dtype must hold the last index. Received: axis 0 of i32[2147483649]. Try: DType::I64.");
  EXPECT_EQ(message_of(
                [](In) {
                  return iota(DType::U32, {2, 2 * n + 1}, 1);
                },
                {}),
            "[iota] the dtype must hold the last index. Received: axis 1 of u32[2,4294967297]. Try: DType::I64.");
  EXPECT_EQ(message_of([](In) { return iota(DType::I32, {n}, 0); }, {}), "nothing was thrown");
  EXPECT_EQ(message_of([](In) { return iota(DType::I32, {n + 1, 2}, 1); }, {}), "nothing was thrown");
  EXPECT_EQ(message_of([](In in) { return dynamic_slice(broadcast_to(in[0], {n}), in.subspan(1), {n - 1}); },
                       {f32({}), i32({})}),
            "nothing was thrown");
  EXPECT_EQ(
      message_of([](In in) { return dynamic_slice(broadcast_to(in[0], {n}), in.subspan(1), {0}); }, {f32({}), i32({})}),
      "[dynamic_slice] i32 starts must reach the last place where the part fits. Received: (0,) of "
      "f32[2147483648]. Try: reshape() to shorter axes.");
  const auto one = [](In carry) { return std::vector<Value>{carry[0] + 1.0}; };
  EXPECT_EQ(
      message_of(
          [&](In in) { return while_loop([](In carry) { return less(carry[0], like(carry[0], 5)); }, one, in, n)[0]; },
          {f32({})}),
      "[loop] the length must be at most 2^31 - 1, since iterations are counted in i32. Received: 2147483648.");
}

// The product of extents wrapped around, to 0 for these.
TEST(OpErrors, MoreElementsThanCanBeCounted) {
  constexpr std::int64_t n = std::int64_t{1} << 32;
  const std::string wanted = " an array must have at most 2^59 elements. Received: f32[4294967296,4294967296].";
  EXPECT_EQ(message_of([](In in) { return in[0]; }, {f32({n, n})}), "[input]" + wanted);
  EXPECT_EQ(message_of([](In in) { return sum(broadcast_to(in[0], {n, n})); }, {f32({})}), "[broadcast]" + wanted);
  EXPECT_EQ(message_of([](In in) { return reshape(in[0], {n, n}); }, {f32({0})}), "[reshape]" + wanted);
  EXPECT_EQ(message_of(
                [](In in) {
                  return dot(in[0], in[1], {{}, {}, {}, {}});
                },
                {f32({n}), f32({n})}),
            "[dot]" + wanted);
  // Bytes can be counted, too, and what is empty is as little as its other axes would be.
  constexpr std::int64_t half = std::int64_t{1} << 58;
  EXPECT_EQ(message_of([](In in) { return broadcast_to(in[0], {2, half}); }, {f64({})}), "nothing was thrown");
  EXPECT_EQ(message_of(
                [](In in) {
                  return broadcast_to(in[0], {2, half, 2});
                },
                {f64({})}),
            "[broadcast] an array must have at most 2^59 elements. Received: f64[2,288230376151711744,2].");
  EXPECT_EQ(message_of([](In in) { return reduce_sum(in[0], {0}); }, {f32({0, n, n})}),
            "[input] an array must have at most 2^59 elements, an extent of 0 left out. Received: "
            "f32[0,4294967296,4294967296].");
  const auto reshaped = [](const Shape& shape) {
    try {
      (void)Array(DType::F32, {0}).reshaped(shape);
    } catch (const UserError& error) {
      return std::string(error.what());
    }
    return std::string("nothing was thrown");
  };
  EXPECT_EQ(reshaped({n, n}), "[array]" + wanted);
  EXPECT_EQ(reshaped({0, 4}), "nothing was thrown");
}

// Each of these alone has few enough elements; what lies in memory beside each other does not.
TEST(OpErrors, MoreMemoryThanCanBeCounted) {
  constexpr std::int64_t n = std::int64_t{1} << 58;
  const auto graph = trace(
      [](In in) {
        const Value x = iota(DType::F64, {n}, 0), a = sin(x * in[0]), b = cos(x * in[0]);
        return std::vector<Value>{sum(gather(a, in[1], 0) * gather(b, in[1], 0))};
      },
      std::vector<ValueType>{f64({}), i32({5})});
  try {
    (void)compile(graph);
    FAIL() << "nothing was thrown";
  } catch (const UserError& error) {
    EXPECT_EQ(std::string(error.what()),
              "[compile] what a program keeps in memory must be at most 2^52 bytes. Received: 2306 PB. Try: smaller "
              "arrays.");
  }
}

TEST(OpErrors, Indirect) {
  EXPECT_EQ(message_of([](In in) { return gather(in[0], in[1], 0); }, {f32({5}), f32({2})}),
            "[gather] indices must be integers. Received: f32[5], f32[2]. Try: cast(indices, DType::I32).");
  EXPECT_EQ(
      message_of([](In in) { return gather(in[0], in[1], 1); }, {f32({5}), i32({2})}),
      "[gather] the axis must be one of the operand's 1 axes. Received: axis 1 of f32[5]. Try: an axis from -1 to 0.");
  EXPECT_EQ(message_of([](In in) { return gather(in[0], in[1], 0); }, {f32({0}), i32({2})}),
            "[gather] the axis must have an element to take. Received: f32[0], i32[2].");
  EXPECT_EQ(message_of([](In in) { return scatter_add(in[0], in[1], in[2], 0); }, {f32({5, 3}), i32({2}), f32({2})}),
            "[scatter_add] updates must have the shape of x with axis 0 replaced by the axes of indices, (2, 3). "
            "Received: f32[5,3], i32[2], f32[2]. Try: broadcast_to() or reshape() the updates.");
  EXPECT_EQ(
      message_of([](In in) { return scatter_add(in[0], in[1], in[2], 0); }, {f32({5}), i32({2}), f64({2})}),
      "[scatter_add] x and updates must be numbers of one dtype. Received: f32[5], i32[2], f64[2]. Try: cast() one "
      "of them.");
  EXPECT_EQ(message_of([](In in) { return dynamic_slice(in[0], in.subspan(1), {6}); }, {f32({5}), i32({})}),
            "[dynamic_slice] the part must fit into the operand on every axis. Received: (6,) of f32[5].");
  EXPECT_EQ(message_of([](In in) { return dynamic_slice(in[0], in.subspan(1), {2}); }, {f32({5}), f32({})}),
            "[dynamic_slice] there must be one i32 scalar start for each axis. Received: f32[] for f32[5]. Try: "
            "cast(start, DType::I32).");
  EXPECT_EQ(
      message_of([](In in) { return dynamic_update(in[0], in[1], in.subspan(2)); }, {f32({5}), f32({2, 1}), i32({})}),
      "[dynamic_update] x and the update must have one dtype and as many axes. Received: f32[5], f32[2,1]. Try: "
      "cast() or reshape() the update.");
}

TEST(OpErrors, ReductionAndContraction) {
  EXPECT_EQ(message_of([](In in) { return reduce_sum(in[0], {2}); }, {f32({2, 3})}),
            "[reduce_sum] the axis must be one of the operand's 2 axes. Received: axis 2 of f32[2,3]. Try: an axis "
            "from -2 to 1.");
  EXPECT_EQ(message_of(
                [](In in) {
                  return reduce_sum(in[0], {1, -1});
                },
                {f32({2, 3})}),
            "[reduce_sum] each axis must be named once. Received: axis 1 of f32[2,3] twice.");
  EXPECT_EQ(message_of([](In in) { return reduce_sum(in[0], {0}); }, {boolean({2})}),
            "[reduce_sum] the operand must be numbers. Received: bool[2]. Try: cast(x, DType::I32).");
  EXPECT_EQ(message_of([](In in) { return argmax(in[0], 0); }, {f32({0})}),
            "[argmax] the axis must not be empty. Received: axis 0 of f32[0].");
  EXPECT_EQ(message_of([](In in) { return mean(in[0], {0}); }, {i32({2})}),
            "[mean] the operand must be f32 or f64. Received: i32[2]. Try: cast(x, DType::F32).");
  EXPECT_EQ(message_of(
                [](In in) {
                  return dot(in[0], in[1], {{1}, {0}, {}, {}});
                },
                {f32({2, 3}), f32({4, 5})}),
            "[dot] contracted axes must have the same extents. Received: f32[2,3], f32[4,5] contracted at {1} and {0}, "
            "batched at {} and {}. Try: transpose() or reshape() an operand.");
  EXPECT_EQ(message_of(
                [](In in) {
                  return dot(in[0], in[1], {{1}, {}, {}, {}});
                },
                {f32({2, 3}), f32({3})}),
            "[dot] contracted and batch axes must come in pairs, one of each operand. Received: f32[2,3], f32[3] "
            "contracted at {1} and {}, batched at {} and {}.");
  EXPECT_EQ(
      message_of(
          [](In in) {
            return dot(in[0], in[1], {{1}, {0}, {1}, {1}});
          },
          {f32({2, 3}), f32({3, 3})}),
      "[dot] axes must exist and be named once. Received: f32[2,3], f32[3,3] contracted at {1} and {0}, batched at "
      "{1} and {1}.");
  EXPECT_EQ(
      message_of(
          [](In in) {
            return dot(in[0], in[1], {{1}, {0}, {}, {}});
          },
          {f32({2, 3}), i32({3})}),
      "[dot] both operands must be f32, or both f64. Received: f32[2,3], i32[3] contracted at {1} and {0}, batched "
      "at {} and {}. Try: cast() one of them.");
  EXPECT_EQ(message_of([](In in) { return matmul(in[0], in[1]); }, {f32({2, 3}), f32({4, 5})}),
            "[matmul] the last axis of a and the last but one of b must have the same extent. Received: f32[2,3], "
            "f32[4,5]. Try: transpose() or reshape() an operand.");
  EXPECT_EQ(message_of([](In in) { return matmul(in[0], in[1]); }, {f32({2, 4, 3}), f32({3, 3, 5})}),
            "[matmul] leading axes must broadcast. Received: f32[2,4,3], f32[3,3,5]. Try: transpose() or reshape() an "
            "operand.");
}

TEST(OpErrors, NumbersMustBeOfTheDtype) {
  const auto refused = [](const std::string& received) {
    return "[like] a number beside a value must be one of its dtype, " + received + ". Try: cast(x, DType::F32) first.";
  };
  EXPECT_EQ(message_of([](In in) { return 2.5 * in[0]; }, {i32({})}), refused("i32. Received: 2.5 beside i32[]"));
  EXPECT_EQ(message_of([](In in) { return in[0] + 0.5; }, {i32({3})}), refused("i32. Received: 0.5 beside i32[3]"));
  EXPECT_EQ(message_of([](In in) { return like(in[0], 1e30); }, {i32({})}),
            refused("i32. Received: 1e+30 beside i32[]"));
  EXPECT_EQ(message_of([](In in) { return like(in[0], std::numeric_limits<double>::quiet_NaN()); }, {i32({})}),
            refused("i32. Received: nan beside i32[]"));
  EXPECT_EQ(message_of([](In in) { return greater(in[0], 0.5); }, {i32({})}),
            refused("i32. Received: 0.5 beside i32[]"));
  EXPECT_EQ(message_of([](In in) { return like(in[0], 0x1p63); }, {{DType::I64, {}}}),
            refused("i64. Received: 9223372036854775808 beside i64[]"));
  EXPECT_EQ(message_of([](In in) { return in[0] * -2.0; }, {i32({})}), "nothing was thrown");
  EXPECT_EQ(message_of([](In in) { return like(in[0], -0x1p63); }, {{DType::I64, {}}}), "nothing was thrown");
  EXPECT_EQ(message_of([](In in) { return in[0] + 1e300; }, {f32({})}), "nothing was thrown");
}

TEST(OpErrors, ValuesMustBeDefined) {
  const std::string undefined =
      "[value] every value must be defined. Received: Value(), which is none. Try: constant(number, dtype), "
      "zeros_like(x), or what an operation gives.";
  EXPECT_EQ(message_of([](In) { return relu(Value{}); }, {}),
            "[like] every operand must be a value. Received: an undefined value.");
  EXPECT_EQ(message_of([](In) { return constant(static_cast<double>(Value{}.rank())); }, {}), undefined);
  EXPECT_EQ(message_of(
                [](In in) {
                  const TracedFunction sum_of = [](In v) { return std::vector{sum(v[0] * v[1])}; };
                  return grad(sum_of, {0})(std::vector{in[0], Value{}})[0];
                },
                {f32({2})}),
            undefined);
  const auto scan_message = [](bool in_init, bool in_xs, bool in_carry) {
    return message_of(
        [&](In in) {
          const auto body = [&](In carry, In) {
            return std::pair{std::vector{in_carry ? Value{} : carry[0]}, std::vector<Value>{}};
          };
          const Value init[] = {in_init ? Value{} : in[0]}, xs[] = {in_xs ? Value{} : in[0]};
          return scan(body, init, xs).first[0];
        },
        {f32({2})});
  };
  const std::string of_scan = "[scan] every operand must be a value. Received: an undefined value.";
  EXPECT_EQ(scan_message(true, false, false), of_scan);
  EXPECT_EQ(scan_message(false, true, false), of_scan);
  EXPECT_EQ(scan_message(false, false, true), of_scan);
  EXPECT_EQ(scan_message(false, false, false), "nothing was thrown");
  const auto same = [](In v) { return std::vector<Value>(v.begin(), v.end()); };
  const Value none[] = {Value{}};
  EXPECT_EQ(message_of([&](In) { return while_loop([](In v) { return less(v[0], 1); }, same, none, 3)[0]; }, {}),
            "[while_loop] every operand must be a value. Received: an undefined value.");
  EXPECT_EQ(message_of([&](In in) { return cond(less(in[0], 1), same, same, none)[0]; }, {f32({})}),
            "[cond] every operand must be a value. Received: an undefined value.");
}

TEST(OpErrors, ConditionsAreOneBool) {
  const auto same = [](In v) { return std::vector<Value>(v.begin(), v.end()); };
  EXPECT_EQ(message_of([&](In in) { return cond(less(in[0], 1), same, same, in)[0]; }, {f32({2})}),
            "[cond] the condition must be bool[]. Received: bool[2]. Try: a comparison; of several, all() or any(), in "
            "C++ reduce_min() or reduce_max() over the axes.");
}

TEST(OpErrors, Compilation) {
  const auto message = [](const CompileOptions& options, bool null) -> std::string {
    const auto graph = trace([](In in) { return std::vector{in[0] + 1.0}; }, std::vector{f32({})});
    try {
      compile(null ? nullptr : graph, options);
    } catch (const UserError& error) {
      return error.what();
    }
    return "nothing was thrown";
  };
  EXPECT_EQ(message({}, true),
            "[compile] there must be a graph to compile. Received: a null pointer. Try: trace(function, types).");
  EXPECT_EQ(message({.dot_precision = "bfloat16"}, false),
            "[compile] dot_precision must be one of f32, bf16. Received: 'bfloat16'. Try: bf16.");
}

TEST(OpErrors, ResultsThatNoMemoryHolds) {
  const auto program = jit([](In in) {
    const auto body = [](In carry, In) { return std::pair{std::vector{carry[0] + 1.0}, std::vector{carry[0]}}; };
    return scan(body, in, {}, {.length = 2'000'000'000}).second;
  });
  try {
    program({Array::zeros(DType::F32, {100'000})});
    FAIL();
  } catch (const std::bad_alloc& error) {
    EXPECT_STREQ(error.what(), "no memory for an array f32[2000000000,100000], 800 TB");
  }
}

}  // namespace
}  // namespace hotloop
