// Misuse of derivatives: each fails for the user's reason, in these words.
#include <gtest/gtest.h>

#include "hotloop/error.h"
#include "hotloop/jacobian.h"
#include "hotloop/ops.h"

namespace hotloop {
namespace {

using Values = std::span<const Value>;

std::string message_of(const Function& fn, const std::vector<ValueType>& types) {
  try {
    trace(fn, types);
  } catch (const UserError& error) {
    return error.what();
  }
  return "nothing was thrown";
}

ValueType f32(const Shape& shape) { return {DType::F32, shape}; }
ValueType i32(const Shape& shape) { return {DType::I32, shape}; }
const Function twice = [](Values v) { return std::vector{v[0] + v[0]}; };

TEST(JacobianErrors, IntegersHaveNoDerivative) {
  EXPECT_EQ(message_of(jacfwd(twice), {i32({2})}),
            "[jacfwd] derivatives are taken with respect to f32 or f64 inputs. Received: input 0 = i32[2]. Try: cast "
            "it, or leave "
            "it out of argnums.");
  EXPECT_EQ(message_of(jacrev([](Values v) { return std::vector{cast(v[0], DType::I32)}; }), {f32({2})}),
            "[jacrev] outputs must be f32 or f64. Received: output 0 = i32[2]. Try: leave it out of what the function "
            "returns: "
            "whole numbers have no derivative.");
  EXPECT_EQ(message_of(jacfwd(twice, {1}), {f32({2})}),
            "[jacfwd] argnums must be positions of inputs, 0 to 0. Received: 1.");
  EXPECT_EQ(message_of([](Values v) { return std::vector{jacobian(twice)(v).values()}; }, {i32({2})}),
            "[jacobian] derivatives are taken with respect to f32 or f64 inputs. Received: input 0 = i32[2]. Try: cast "
            "it, or "
            "leave it out of argnums.");
}

TEST(JacobianErrors, OutputsAndModes) {
  JacobianOptions second;
  second.output = 1;
  EXPECT_EQ(message_of([&](Values v) { return std::vector{jacobian(twice, second)(v).values()}; }, {f32({2})}),
            "[jacobian] output must be a position of outputs, 0 to 0. Received: 1.");
  EXPECT_THROW(jacobian_mode_from_name("forwards"), UserError);
  EXPECT_EQ(jacobian_mode_from_name("reverse"), JacobianMode::Reverse);
  EXPECT_EQ(
      message_of(hessian(twice), {f32({2})}),
      "[grad] the first output of the function must be an f32 or f64 scalar. Received: f32[2]. Try: reduce it, as in "
      "mean(loss).");
}

TEST(JacobianErrors, DenseThatNoMachineHolds) {
  const std::string tail =
      "the dense array must fit into memory. Received: f32[100000,400] with respect to f32[100000,1], 16 TB. Try: "
      "jacobian(), "
      "whose blocks() and sparse() leave zeros out, or products: jvp, vjp, hvp.";
  const Function wide = [](Values v) { return std::vector{broadcast_to(v[0], {100000, 400})}; };
  EXPECT_EQ(message_of(jacfwd(wide), {f32({100000, 1})}), "[jacfwd] " + tail);
  EXPECT_EQ(message_of(jacrev(wide), {f32({100000, 1})}), "[jacrev] " + tail);
}

TEST(JacobianErrors, HessiansThatNoMachineHolds) {
  const Function full = [](Values v) { return std::vector{square(sum(v[0] * v[0]))}; };
  EXPECT_EQ(message_of(hessian(full), {f32({4000000})}),
            "[hessian] the dense array must fit into memory. Received: f32[4000000] with respect to f32[4000000], 64 "
            "TB. Try: "
            "sparse_hessian(), which leaves zeros out, or products: hvp.");
  JacobianOptions options;
  options.max_bytes = 1'000'000;
  EXPECT_EQ(
      message_of([&](Values v) { return std::vector{sparse_hessian(full, options)(v).values()}; }, {f32({1000})}),
      "[hessian] its stored elements must fit into 1 MB of memory. Received: f32[1000,1000], 4 MB, of f32[1000] with "
      "respect to f32[1000]. Try: hvp(), which give products with it, or a part of the output at a time.");
  EXPECT_EQ(
      message_of(
          [&](Values v) {
            options.sparsity = false;
            return std::vector{jacobian([](Values x) { return std::vector{softmax(x[0], 0)}; }, options)(v).values()};
          },
          {f32({1000})}),
      "[jacobian] its stored elements must fit into 1 MB of memory. Received: f32[1000,1000], 4 MB, of f32[1000] with "
      "respect to f32[1000]. Try: jvp() and vjp(), which give products with it, or a part of the output at a time.");
}

TEST(JacobianErrors, Products) {
  const Function loss = [](Values v) { return std::vector{sum(v[0] * v[0])}; };
  const auto product = [&](const Shape& shape) {
    return message_of(
        [&](Values v) {
          const Value vectors[] = {constant(1, DType::F32, shape)};
          return hvp(loss, v, vectors);
        },
        {f32({2})});
  };
  EXPECT_EQ(product({3}),
            "[hvp] there must be one vector for each primal, of its type, at least one of them defined (undefined = "
            "zero, and "
            "for integers). Received: primals f32[2]; vectors f32[3].");
  EXPECT_EQ(
      message_of(
          [&](Values v) {
            const Value vectors[] = {v[0]};
            return fisher_vp(loss, v, vectors);
          },
          {f32({2})}),
      "[fisher_vp] the first output must be the losses of the samples, f32 or f64 with one axis. Received: f32[]. Try: "
      "leave the mean over the batch out of the function.");
  EXPECT_EQ(
      message_of([](Values v) { return std::vector{jacobian(twice)(v.first(1)).matvec(v[1])}; }, {f32({2}), f32({3})}),
      "[jacobian] matvec takes a value of type f32[2]. Received: f32[3].");
  EXPECT_EQ(message_of(
                [](Values v) {
                  const Value tangents[] = {v[1]};
                  return jvp_many(twice, v.first(1), tangents).second;
                },
                {f32({2}), f32({3})}),
            "[jvp_many] the tangents must have one leading axis of directions before the types f32[2]. Received: "
            "f32[3]. Try: "
            "leave those of integers undefined.");
}

}  // namespace
}  // namespace hotloop
