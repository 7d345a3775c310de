// C++ numbers beside values and as elements: all of their digits, or an error.
#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "hotloop/error.h"
#include "hotloop/functions.h"
#include "hotloop/structured_jit.h"
#include "hotloop/tree.h"

namespace hotloop {
namespace {

constexpr std::int64_t big = 9007199254740993;  // 2^53 + 1
const Array zero = Array::from({std::int64_t{0}}, {1});

std::int64_t integer(const Array& a) { return a.data<std::int64_t>()[0]; }

void expect_error(const std::string& wanted, const std::function<void()>& f) {
  try {
    f();
    ADD_FAILURE() << "nothing was thrown: " << wanted;
  } catch (const UserError& e) {
    EXPECT_NE(std::string(e.what()).find(wanted), std::string::npos) << e.what();
  }
}

TEST(Numbers, IntegersBesideAValueAreExact) {
  EXPECT_EQ(integer(jit([](Value v) { return v + big; })(zero)), big);
  EXPECT_EQ(integer(jit([](Value v) { return big - v; })(zero)), big);
  EXPECT_EQ(integer(jit([](Value v) { return maximum(v, -big); })(zero)), 0);
  EXPECT_EQ(integer(jit([](Value v) { return minimum(v, -big); })(zero)), -big);
  EXPECT_EQ(integer(jit([](Value v) { return v + 9007199254740993ULL; })(zero)), big);
  EXPECT_EQ(integer(jit([](Value v) { return v += big; })(zero)), big);
  const Array same =
      jit([](Value v) { return equal(v, 1234567890123456789); })(Array::from({std::int64_t{1234567890123456788}}, {1}));
  EXPECT_EQ(same.at(0), 0);
}

TEST(Numbers, IntegersBesideFloatsAreRoundedAsFloats) {
  EXPECT_EQ(jit([](Value v) { return v + big; })(Array::scalar(0.0)).at(0), 9007199254740992.0);
  EXPECT_EQ(jit([](Value v) { return v * 3; })(Array::scalar(0.5F)).at(0), 1.5);
}

TEST(Numbers, ThatTheDtypeHasNotAreRefused) {
  const Array i32 = Array::from({std::int32_t{1}}, {1}), u32 = Array::from({std::uint32_t{1}}, {1});
  expect_error("4294967296 beside i32[1]", [&] { jit([](Value v) { return v + 4294967296; })(i32); });
  expect_error("9007199254740993 beside u32[1]", [&] { jit([](Value v) { return v + big; })(u32); });
  expect_error("-1 beside u32[1]", [&] { jit([](Value v) { return v + -1; })(u32); });
  expect_error("18446744073709551615 beside i64[1]", [&] { jit([](Value v) { return v + ~std::uint64_t{0}; })(zero); });
  for (const double number : {0.5, 1e30, std::nan("")}) {
    expect_error("[constant] the number must be one of the dtype, i32",
                 [&] { jit([&](Value v) { return v + constant(number, DType::I32); })(i32); });
    expect_error("[array] full() takes a number of the dtype, i32", [&] { Array::full(DType::I32, {2}, number); });
  }
  expect_error("bool", [] { Array::full(DType::Bool, {2}, 0.5); });
  EXPECT_EQ(Array::full(DType::U32, {2}, 4294967295.0).at(1), 4294967295.0);
}

TEST(Numbers, MakeArrays) {
  const Array listed = Array::from({1.0, 2.0}, {2}), fixed = Array::from(std::array<float, 2>{3, 4}, {2});
  EXPECT_EQ(listed.dtype(), DType::F64);
  EXPECT_EQ(listed.at(1), 2);
  EXPECT_EQ(fixed.dtype(), DType::F32);
  EXPECT_EQ(fixed.at(1), 4);
  const Array wide = Array::from(std::vector<long long>{big, -1}, {2});
  EXPECT_EQ(wide.dtype(), DType::I64);
  EXPECT_EQ(integer(wide), big);
  EXPECT_EQ(Array::from({true, false}, {2}).dtype(), DType::Bool);
}

TEST(Numbers, OfAxesAreCountedFromTheFirst) {
  const Array m = Array::from({1.0, 2.0, 3.0, 4.0}, {2, 2});
  expect_error(
      "[vmap] a batch axis must be counted from the first, or be -1. Received: axis -2 of input 1 = f64[2,2]. Try: 0",
      [&] {
        jit(vmap([](Value a, Value b) { return sum(a) * sum(b); }, {0, -2}))(m, m);
      });
}

TEST(Trees, HaveDifferentNames) {
  const Array a = Array::scalar(1.0);
  expect_error("[tree] children must have different names. Received: 'w' twice", [&] {
    Tree<Array>{{"w", a}, {"w", a}};
  });
  expect_error("'x' of a leaf. Try: leaf()", [&] { Tree<Array>(a).at("x"); });
}

}  // namespace
}  // namespace hotloop
