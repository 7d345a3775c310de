// Compiled functions that are called while others are traced.
#include <gtest/gtest.h>

#include <chrono>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "hotloop/error.h"
#include "hotloop/functions.h"
#include "hotloop/structured_jit.h"

namespace hotloop {
namespace {

const Array one = Array::full(DType::F64, {1}, 1), two = Array::full(DType::F64, {2}, 1);

void expect_refused(const std::function<void()>& f) {
  try {
    f();
    ADD_FAILURE() << "nothing was thrown";
  } catch (const UserError& e) {
    EXPECT_NE(std::string(e.what()).find("[jit] a function must not call itself while it is traced"), std::string::npos)
        << e.what();
  }
}

TEST(NestedJit, RefusesAFunctionThatCallsItself) {
  std::function<Array(Array)> self;
  const auto of_values = jit([&](Value x) { return x.shape()[0] > 1 ? x + constant(self(one)) : x * 2.0; });
  self = [&](const Array& a) { return of_values(a); };
  expect_refused([&] { of_values(two); });
  // It is as before: a smaller one, once there, may be called.
  EXPECT_DOUBLE_EQ(of_values(one).at(0), 2);
  EXPECT_DOUBLE_EQ(of_values(two).at(0), 3);

  const Jit flat([&](std::span<const Value> v) {
    return std::vector{v[0].shape()[0] > 1 ? v[0] + constant(self(one)) : v[0] * 2.0};
  });
  self = [&](const Array& a) { return flat({a})[0]; };
  expect_refused([&] { flat({two}); });
}

// Each begins with one and meets the other's lock.
TEST(NestedJit, OfTwoThreadsDoNotWaitForEachOther) {
  std::function<Array(Array)> call_a, call_b;
  const auto pause = [] { std::this_thread::sleep_for(std::chrono::milliseconds(50)); };
  const auto a = jit([&](Value x) {
    pause();
    return x.shape()[0] > 1 ? x + constant(call_b(one)) : x * 2.0;
  });
  const auto b = jit([&](Value x) {
    pause();
    return x.shape()[0] > 1 ? x + constant(call_a(one)) : x * 3.0;
  });
  call_a = [&](const Array& v) { return a(v); };
  call_b = [&](const Array& v) { return b(v); };
  double of_a = 0;
  std::thread other([&] { of_a = a(two).at(0); });
  const double of_b = b(two).at(0);
  other.join();
  EXPECT_DOUBLE_EQ(of_a, 4);
  EXPECT_DOUBLE_EQ(of_b, 3);
}

TEST(NestedJit, TracesOnceForThreadsThatComeTogether) {
  int traces = 0;
  const auto f = jit([&](Value x) {
    ++traces;
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    return x + 1;
  });
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) threads.emplace_back([&] { EXPECT_DOUBLE_EQ(f(two).at(1), 2); });
  for (std::thread& t : threads) t.join();
  EXPECT_EQ(traces, 1);
}

TEST(Jit, TakesAFunctionWithoutArguments) {
  const auto table = jit([]() { return exp(cast(iota(DType::I32, {8}, 0), DType::F64)); });
  EXPECT_EQ(table().shape(), Shape({8}));
  EXPECT_DOUBLE_EQ(table().at(0), 1);
  EXPECT_EQ(table.executable().input_types().size(), 0U);
}

}  // namespace
}  // namespace hotloop
