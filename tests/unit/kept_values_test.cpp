// Values that are kept beyond their trace are refused wherever they come back, whatever has become of their graph's memory.
#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

#include "hotloop/error.h"
#include "hotloop/functions.h"
#include "hotloop/structured_jit.h"

namespace hotloop {
namespace {

const Array x = Array::from({1.0, 2.0, 3.0}, {3});

void expect_refused(const std::function<void()>& f) {
  try {
    f();
    ADD_FAILURE() << "nothing was thrown";
  } catch (const UserError& e) {
    EXPECT_NE(std::string(e.what()).find("[graph] a value may be used only in the trace that made it"),
              std::string::npos)
        << e.what();
  }
}

// A value whose graph is gone, which a trace that throws leaves behind.
Value kept_value() {
  Value kept;
  try {
    jit([&](Value a) -> Value {
      kept = a * 2.0;
      throw std::runtime_error("mine");
    })(x);
  } catch (const std::runtime_error&) {
  }
  // Other graphs take the memory.
  for (int i = 0; i < 20; ++i) trace([](std::span<const Value> v) { return std::vector{exp(v[0])}; }, {{x.type()}});
  return kept;
}

TEST(KeptValues, AreRefusedInOperations) {
  const Value kept = kept_value();
  expect_refused([&] { jit([&](Value a) { return a + kept; })(x); });
  expect_refused([&] { jit([&](Value a) { return kept + a; })(x); });
  expect_refused([&] { jit([&](Value a) { return concat({a, kept}, 0); })(x); });
  expect_refused([&] { jit([&](Value a) { return a * like(kept, 2); })(x); });
}

TEST(KeptValues, AreRefusedAsResults) {
  const Value kept = kept_value();
  expect_refused([&] { jit([&](Value) { return kept; })(x); });
  expect_refused([&] { jit([&](Value a) { return grad([&](Value) { return kept; })(a); })(x); });
}

TEST(KeptValues, AreRefusedInRegions) {
  const Value kept = kept_value();
  expect_refused([&] {
    jit([&](Value a) {
      return scan([&](Value c, Value e) { return std::pair(c + e * sum(kept), c); }, sum(a), a).first;
    })(x);
  });
  expect_refused([&] { jit([&](Value a) { return vmap([&](Value e) { return e + kept; })(a); })(x); });
  expect_refused([&] { jit([&](Value a) { return jvp([](Value e) { return sin(e); }, a, kept).second; })(x); });
}

TEST(KeptValues, TellNoType) {
  const Value kept = kept_value();
  EXPECT_TRUE(kept.defined());
  expect_refused([&] { kept.type(); });
  expect_refused([&] { kept.rank(); });
  expect_refused([&] { kept.graph(); });
}

TEST(KeptValues, AreRefusedAfterATraceThatEndedWell) {
  struct Model {
    Value cached;
    Value operator()(Value v) {
      if (!cached.defined()) cached = exp(v);
      return v * cached;
    }
  } model;
  const auto f = jit([&](Value v) { return model(v); });
  EXPECT_DOUBLE_EQ(f(Array::from({0.0}, {1})).at(0), 0);
  expect_refused([&] { f(x); });
  std::optional<Jacobian> kept;
  jit([&](Value a) {
    kept = jacobian([](Value v) { return sin(v); })(a);
    return kept->values();
  })(x);
  expect_refused([&] { jit([&](Value a) { return kept->matvec(a); })(x); });
}

TEST(KeptValues, OfLivingGraphsAreCaptured) {
  const Array y = jit([](Value a) {
    const Value twice = a * 2.0;
    return scan([&](Value c, Value e) { return std::pair(c + e + sum(twice), c); }, sum(a), a).first;
  })(x);
  EXPECT_DOUBLE_EQ(y.at(0), 6 + 6 + 3 * 12);
}

// Many more graphs than the table that knows the living ones has places: those beyond are not looked after, and work.
TEST(KeptValues, OfMoreGraphsThanAreKnownWork) {
  std::vector<std::unique_ptr<Graph>> many;
  for (int i = 0; i < 70000; ++i) many.push_back(std::make_unique<Graph>());
  EXPECT_DOUBLE_EQ(jit([](Value a) { return sum(a + 1); })(x).at(0), 9);
  many.clear();
  const Value kept = kept_value();
  expect_refused([&] { kept.type(); });
}

}  // namespace
}  // namespace hotloop
