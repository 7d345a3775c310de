// Arrays: indices and undefined arrays are refused, texts read back, and what they are made from.
#include "hotloop/array.h"

#include <gtest/gtest.h>

#include <cmath>
#include <sstream>
#include <string>
#include <vector>

#include "hotloop/error.h"
#include "nn_testing.h"

namespace hotloop {
namespace {

TEST(Array, IndicesMustBeOfElements) {
  Array a = Array::zeros(DType::F32, {2, 2});
  const auto refused = [](const std::string& index) {
    return "[array] an index must be that of an element of f32[2,2], which has 4. Received: " + index +
           ". Try: at() and set() count all elements, from 0, the last axis fastest.";
  };
  EXPECT_EQ(testing::message_of([&] { a.set(99, 1); }), refused("99"));
  EXPECT_EQ(testing::message_of([&] { a.set(4, 1); }), refused("4"));
  EXPECT_EQ(testing::message_of([&] { (void)a.at(-1); }), refused("-1"));
  a.set(3, 7);
  EXPECT_EQ(a.at(3), 7);
}

TEST(Array, UndefinedArraysAreRefused) {
  Array none;
  const auto refused = [](const std::string& what) {
    return "[array] " + what +
           " needs an array that is defined. Received: Array(), which has no memory. Try: Array(dtype, shape), "
           "Array::zeros(dtype, shape) or Array::from(values, shape).";
  };
  EXPECT_EQ(testing::message_of([&] { (void)none.at(0); }), refused("at() or set()"));
  EXPECT_EQ(testing::message_of([&] { none.set(0, 1); }), refused("at() or set()"));
  EXPECT_EQ(testing::message_of([&] { none.cast(DType::F64); }), refused("cast()"));
  EXPECT_EQ(testing::message_of([&] { none.clone(); }), refused("clone()"));
  EXPECT_EQ(testing::message_of([&] { none.reshaped({1, 1}); }), refused("reshaped()"));
  EXPECT_EQ(none.str(), "undefined");
}

TEST(Array, TextsReadBack) {
  EXPECT_EQ(Array::from(std::vector<double>{1e-12, 1e300, 0.1, -2, NAN}, {5}).str(),
            "f64[5] {1e-12, 1e+300, 0.1, -2, nan}");
  EXPECT_EQ(Array::from(std::vector<float>{0.1f, 16777216.0f}, {2}).str(), "f32[2] {0.1, 16777216}");
  EXPECT_EQ(Array::scalar((std::int64_t{1} << 53) + 1).str(), "i64[] {9007199254740993}");
  EXPECT_EQ(Array::zeros(DType::I32, {9}).str(), "i32[9] {0, 0, 0, 0, 0, 0, 0, 0, ...}");
  std::ostringstream stream;
  const Array ones = Array::full(DType::F64, {2}, 1);
  stream << ones << ' ' << ones.type() << ' ' << ones.dtype() << ' ' << ones.shape();
  EXPECT_EQ(stream.str(), "f64[2] {1, 1} f64[2] f64 (2,)");
}

TEST(Array, IsMadeFromBoolsAndSpans) {
  const Array one = Array::scalar(true);
  EXPECT_EQ(one.type(), (ValueType{DType::Bool, {}}));
  EXPECT_EQ(one.at(0), 1);
  EXPECT_EQ(Array::from(std::vector<bool>{true, false, true}, {3}).str(), "bool[3] {1, 0, 1}");
  const std::vector<float> values = {1, 2, 3, 4};
  EXPECT_EQ(Array::from(std::span(values).subspan(1, 2), {2}).str(), "f32[2] {2, 3}");
  EXPECT_EQ(testing::message_of([&] { Array::from(std::span(values), {3}); }),
            "[array] the values must fill the shape (3,). Received: 4 values. Try: 3 values.");
}

}  // namespace
}  // namespace hotloop
