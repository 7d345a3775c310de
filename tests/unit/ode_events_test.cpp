// Events: located, differentiated, one by one within a batch.
#include <gtest/gtest.h>

#include <cmath>

#include "hotloop/jit.h"
#include "hotloop/transforms.h"
#include "ode_problems.h"

namespace hotloop {
namespace {

using ode::Options;
using ode::SaveAt;
using testing::vector_of;

// A ball dropped from a height: (height, gravity) -> where it is at the end, which is the floor if that is `terminal`. Else it loses a
// fifth of its speed at each bounce.
std::vector<Value> bounces(std::span<const Value> in, bool terminal) {
  const ode::Field field = [](Value, const Tree<Value>& y, const Tree<Value>& g) {
    return Tree<Value>{{"height", y["speed"]}, {"speed", -g.leaf()}};
  };
  const Tree<Value> y0 = {{"height", in[0]}, {"speed", like(in[0], 0)}};
  Options options;
  options.args = Tree<Value>(in[1]);
  options.controller = ode::PID(1e-8, 1e-8);
  ode::Event floor;
  floor.function = [](Value, const Tree<Value>& y, const Tree<Value>&) { return y["height"]; };
  floor.direction = -1;
  floor.terminal = terminal;
  if (!terminal)
    floor.change = [](Value, const Tree<Value>& y, const Tree<Value>&) {
      return Tree<Value>{{"height", y["height"]}, {"speed", -0.8 * y["speed"]}};
    };
  options.events = {floor};
  options.saveat = SaveAt::times(std::vector<double>{0.5, 1.0, 2.0});
  const auto s = ode::solve(field, ode::Tsit5(), 0, 2.5, y0, options);
  return {s.t1, s.y1["height"], s.y1["speed"], s.stats.num_events, s.result, s.ys["height"]};
}

TEST(OdeEvents, ABallThatHitsTheFloor) {
  const auto fn = [](std::span<const Value> in) { return bounces(in, true); };
  const double h = 1.7, g = 9.81, fall = std::sqrt(2 * h / g);
  const std::vector<Array> at = {Array::scalar(h), Array::scalar(g)};
  const auto got = jit(fn)(at);
  EXPECT_NEAR(got[0].at(0), fall, 1e-12);
  EXPECT_NEAR(got[1].at(0), 0, 1e-12);
  EXPECT_NEAR(got[2].at(0), -g * fall, 1e-11);
  EXPECT_EQ(got[3].at(0), 1);
  EXPECT_EQ(got[4].at(0), static_cast<int>(ode::Result::Event));
  EXPECT_NEAR(got[5].at(0), h - g / 8, 1e-12);
  EXPECT_TRUE(std::isinf(got[5].at(1)));
  // Closed forms: d fall / d h = fall / (2 h), d fall / d g = - fall / (2 g); of the speed - g fall the same way.
  for (int which = 0; which < 2; ++which) {
    const auto one = [&](std::span<const Value> in) { return std::vector<Value>{fn(in)[which == 0 ? 0 : 2]}; };
    const auto gradient = jit(grad(one, {0, 1}))(at);
    EXPECT_NEAR(gradient[0].at(0), which == 0 ? fall / (2 * h) : -g * fall / (2 * h), 1e-9);
    EXPECT_NEAR(gradient[1].at(0), which == 0 ? -fall / (2 * g) : -fall / 2, 1e-9);
  }
}

TEST(OdeEvents, ABallThatBounces) {
  const auto fn = [](std::span<const Value> in) { return bounces(in, false); };
  const double h = 1.7, g = 9.81, fall = std::sqrt(2 * h / g);
  // Height at time t in closed form.
  const auto height = [&](double t, double h0, double g0) {
    double start = std::sqrt(2 * h0 / g0), speed = 0.8 * g0 * start;
    if (t < start) return h0 - g0 * t * t / 2;
    while (t > start + 2 * speed / g0) {
      start += 2 * speed / g0;
      speed *= 0.8;
    }
    return speed * (t - start) - g0 * (t - start) * (t - start) / 2;
  };
  const std::vector<Array> at = {Array::scalar(h), Array::scalar(g)};
  const auto got = jit(fn)(at);
  EXPECT_EQ(got[4].at(0), 0);
  EXPECT_EQ(got[3].at(0), 3) << fall;
  const double times[] = {0.5, 1.0, 2.0};
  for (int i = 0; i < 3; ++i) EXPECT_NEAR(got[5].at(i), height(times[i], h, g), 1e-9);
  EXPECT_NEAR(got[1].at(0), height(2.5, h, g), 1e-9);
  const auto end = [&](std::span<const Value> in) { return std::vector<Value>{fn(in)[1]}; };
  const auto gradient = jit(grad(end, {0, 1}))(at);
  EXPECT_NEAR(gradient[0].at(0), (height(2.5, h + 1e-5, g) - height(2.5, h - 1e-5, g)) / 2e-5, 1e-6);
  EXPECT_NEAR(gradient[1].at(0), (height(2.5, h, g + 1e-5) - height(2.5, h, g - 1e-5)) / 2e-5, 1e-6);
  // Each ball of a batch bounces on its own.
  const auto batch = jit(vmap(fn, {0, 0}))({vector_of({1.7, 0.4, 3.0}), vector_of({9.81, 5.0, 9.81})});
  EXPECT_NEAR(batch[1].at(0), height(2.5, 1.7, 9.81), 1e-9);
  EXPECT_NEAR(batch[1].at(1), height(2.5, 0.4, 5.0), 1e-9);
  EXPECT_NEAR(batch[1].at(2), height(2.5, 3.0, 9.81), 1e-9);
}

// The same where the change puts the ball on the floor, in place of leaving it where rounding had it: by a number, and by a formula of
// which the last digits are rounding, on a floor that is not at zero.
TEST(OdeEvents, AChangeToTheEventItself) {
  const auto run = [](double floor_height, const std::function<Value(Value)>& function,
                      const std::function<Value(Value)>& put) {
    return jit([&](std::span<const Value> in) {
      const ode::Field field = [](Value, const Tree<Value>& y, const Tree<Value>& g) {
        return Tree<Value>{{"height", y["speed"]}, {"speed", -g.leaf()}};
      };
      ode::Event floor;
      floor.function = [&](Value, const Tree<Value>& y, const Tree<Value>&) { return function(y["height"]); };
      floor.direction = -1;
      floor.terminal = false;
      floor.change = [&](Value, const Tree<Value>& y, const Tree<Value>&) {
        return Tree<Value>{{"height", put(y["height"])}, {"speed", -0.8 * y["speed"]}};
      };
      Options options;
      options.args = Tree<Value>(like(in[0], 9.81));
      options.events = {floor};
      const Tree<Value> y0 = {{"height", in[0]}, {"speed", like(in[0], 0)}};
      const auto s = ode::solve(field, ode::Tsit5(), 0, 3, y0, options);
      return std::vector<Value>{s.y1["height"], s.stats.num_events};
    })({Array::scalar(floor_height + 1)});
  };
  const auto same = [](Value h) { return h; };
  const auto want = run(0, same, same);
  EXPECT_EQ(want[1].at(0), 6);
  EXPECT_GT(want[0].at(0), 0);
  const auto zero = run(0, same, [](Value h) { return 0 * h; });
  EXPECT_EQ(zero[1].at(0), 6);
  EXPECT_NEAR(zero[0].at(0), want[0].at(0), 1e-9);
  for (const double put : {0.3, std::nextafter(0.3, 0), std::nextafter(0.3, 1)}) {
    const auto moved = run(
        0.3, [](Value h) { return 3 * h - 0.9; }, [&](Value h) { return like(h, put); });
    EXPECT_EQ(moved[1].at(0), 6) << put;
    EXPECT_NEAR(moved[0].at(0), want[0].at(0) + 0.3, 1e-9) << put;
  }
}

// Further derivatives than the first, in both modes and under vmap, against closed forms.
TEST(OdeEvents, DerivativesOfEveryOrder) {
  // y' = (-a y0, y0) from (1, 0) to where y0 is 1/2: t = log 2 / a, y1 = 1 / 2a.
  const auto decay = [](bool time) {
    return [time](std::span<const Value> in) {
      const ode::Field field = [](Value, const Tree<Value>& y, const Tree<Value>& a) {
        return Tree<Value>{{"y0", -a.leaf() * y["y0"]}, {"y1", y["y0"]}};
      };
      ode::Event half;
      half.function = [](Value, const Tree<Value>& y, const Tree<Value>&) { return y["y0"] - 0.5; };
      Options options;
      options.args = Tree<Value>(in[0]);
      options.controller = ode::PID(1e-11, 1e-11);
      options.events = {half};
      const Tree<Value> y0 = {{"y0", like(in[0], 1)}, {"y1", like(in[0], 0)}};
      const auto s = ode::solve(field, ode::Tsit5(), 0, 100, y0, options);
      return std::vector<Value>{time ? s.t1 : s.y1["y1"]};
    };
  };
  const double a = 0.1;
  for (const bool time : {true, false}) {
    const double scale = time ? std::log(2.0) : 0.5;
    const Function second = grad(grad(decay(time), {0}), {0});
    const auto got = jit(second)({Array::scalar(a)});
    EXPECT_NEAR(got[0].at(0), 2 * scale / std::pow(a, 3), 1e-6 * got[0].at(0));
    const auto batch = jit(vmap(second, {0}))({vector_of({a, 0.2, 0.3})});
    for (int i = 0; i < 3; ++i) {
      const double want = 2 * scale / std::pow(a * (i + 1), 3);
      EXPECT_NEAR(batch[0].at(i), want, 1e-6 * want) << i;
    }
    if (!time) continue;
    const auto third = jit(grad(second, {0}))({Array::scalar(a)});
    EXPECT_NEAR(third[0].at(0), -6 * scale / std::pow(a, 4), -1e-5 * third[0].at(0));
    const auto forward = jit([&](std::span<const Value> in) {
      return std::vector<Value>{jvp(grad(decay(time), {0}), in, std::vector<Value>{like(in[0], 1)}).second[0]};
    })({Array::scalar(a)});
    EXPECT_NEAR(forward[0].at(0), got[0].at(0), 1e-9 * got[0].at(0));
  }
  // The ball's height at 2.5, after three bounces, by where it starts.
  const auto end = [](std::span<const Value> in) { return std::vector<Value>{bounces(in, false)[1]}; };
  const auto by_height = jit(grad(grad(end, {0}), {0}))({Array::scalar(1.7), Array::scalar(9.81)});
  // The n-th bounce is at c_n s, s = sqrt(2 h / g), and leaves with speed 0.8^n g s: of the height, 0.8^n g s (t - c_n s) - g (t - c_n s)^2 / 2,
  // only the part (0.8^n + c_n) g s t is not linear in h.
  const double c = 1 + 2 * (0.8 + 0.64), fall = std::sqrt(2 * 1.7 / 9.81);
  EXPECT_NEAR(by_height[0].at(0), -(0.512 + c) * 9.81 * 2.5 * fall / (4 * 1.7 * 1.7), 1e-6);
}

// (t1, jump) -> counts and state of y' = -y with an event that changes the state: how often it happens depends on where its function
// goes from there.
TEST(OdeEvents, ChangesOfTheStateHappenOnceEach) {
  const auto run = [](const ode::Event& event, double y0, double t1) {
    return jit([&](std::span<const Value> in) {
      const ode::Field field = [](Value, const Tree<Value>& y, const Tree<Value>&) { return Tree<Value>(-y.leaf()); };
      Options options;
      options.controller = ode::PID(1e-10, 1e-12);
      options.events = {event};
      const auto s = ode::solve(field, ode::Tsit5(), 0, t1, Tree<Value>(in[0]), options);
      return std::vector<Value>{s.y1.leaf(), s.stats.num_events, s.result};
    })({Array::scalar(y0)});
  };
  // A clock, which goes on: a dose of 1 each time unit.
  ode::Event dose;
  dose.function = [](Value t, const Tree<Value>&, const Tree<Value>&) {
    return sin(2 * 3.14159265358979323846 * (t - 0.25));
  };
  dose.direction = 1;
  dose.terminal = false;
  dose.change = [](Value, const Tree<Value>& y, const Tree<Value>&) { return Tree<Value>(y.leaf() + 1); };
  auto got = run(dose, 0.5, 3);
  EXPECT_EQ(got[1].at(0), 3);
  EXPECT_EQ(got[2].at(0), 0);
  EXPECT_NEAR(got[0].at(0), 0.5 * std::exp(-3) + std::exp(-2.75) + std::exp(-1.75) + std::exp(-0.75), 1e-9);
  // A reset that leaves the function on the side it came from: from 1/2 back to 1, every log 2.
  ode::Event reset;
  reset.function = [](Value, const Tree<Value>& y, const Tree<Value>&) { return y.leaf() - 0.5; };
  reset.terminal = false;
  reset.change = [](Value, const Tree<Value>& y, const Tree<Value>&) { return Tree<Value>(y.leaf() + 0.5); };
  got = run(reset, 1, 3);
  EXPECT_EQ(got[1].at(0), 4);
  EXPECT_NEAR(got[0].at(0), std::exp(-3 + 4 * std::log(2)), 1e-9);
  // One that moves it beyond: there is no way back.
  reset.change = [](Value, const Tree<Value>& y, const Tree<Value>&) { return Tree<Value>(0.5 * y.leaf()); };
  got = run(reset, 1, 3);
  EXPECT_EQ(got[1].at(0), 1);
  EXPECT_NEAR(got[0].at(0), 0.25 * std::exp(-3 + std::log(2)), 1e-9);
}

}  // namespace
}  // namespace hotloop
