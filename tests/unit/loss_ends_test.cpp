// Losses and their derivatives at the ends of what they are defined on: certain probabilities, classes that are masked out, errors of 0, rows that
// count nothing.
#include <cmath>
#include <limits>

#include "hotloop/jacobian.h"
#include "hotloop/losses.h"
#include "hotloop/transforms.h"
#include "nn/activations.h"
#include "nn/registry.h"
#include "nn_testing.h"
#include "registry_samples.h"

namespace hotloop::testing {
namespace {

constexpr double infinity = std::numeric_limits<double>::infinity();

// The loss of a prediction and its gradient, on every backend alike.
std::vector<Array> loss_and_gradient(const losses::Loss& loss, const Array& prediction, const Array& target,
                                     const Array& sample_weights = {}) {
  std::vector<Array> arrays = {prediction, target};
  if (sample_weights.defined()) arrays.push_back(sample_weights);
  const auto fn = value_and_grad(
      [&](std::span<const Value> in) {
        return std::vector<Value>{in.size() == 2 ? loss(in[0], in[1]) : loss(in[0], in[1], {.samples = in[2]}).loss};
      },
      {0});
  const std::vector<Array> first = run_traced(fn, arrays);
  for (const Backend& backend : all_backends()) {
    const std::vector<Array> other = run_traced(fn, arrays, backend);
    EXPECT_LE(difference(other[0], first[0]), 1e-5) << loss.name() << " on " << backend.name;
    EXPECT_LE(difference(other[1], first[1]), 1e-5) << loss.name() << " on " << backend.name;
  }
  return first;
}

void expect_near(const Array& a, const std::vector<double>& wanted, double within = 1e-6) {
  ASSERT_EQ(a.size(), std::ssize(wanted));
  for (std::size_t i = 0; i < wanted.size(); ++i) {
    const double x = a.at(static_cast<std::int64_t>(i));
    if (std::isinf(wanted[i]))
      EXPECT_EQ(x, wanted[i]) << i;
    else
      EXPECT_NEAR(x, wanted[i], within * (1 + std::abs(wanted[i]))) << i;
  }
}

Array column(const std::vector<double>& values, DType dtype) {
  return Array::from(values, {static_cast<std::int64_t>(values.size()), 1}).cast(dtype);
}

// What is right has the limit of (p - t) / (p (1 - p)), what is wrong the largest gradient that PyTorch has.
TEST(LossEnds, CertainProbabilitiesHaveAGradient) {
  const losses::BinaryCrossEntropy loss(false);
  for (const DType dtype : {DType::F32, DType::F64}) {
    const auto out = loss_and_gradient(loss, column({0, 1, 0, 1, 0.25}, dtype), column({0, 1, 1, 0, 1}, dtype));
    EXPECT_NEAR(out[0].at(0), (200 + std::log(4)) / 5, 1e-5);
    expect_near(out[1], {0.2, -0.2, -2e11, 2e11, -0.8});
  }
  // Too small for 1 / p to be an f32.
  const auto small = loss_and_gradient(loss, column({1e-30, 1e-40}, DType::F32), column({1, 1}, DType::F32));
  EXPECT_NEAR(small[1].at(0), -0.5e30, 1e24);
  EXPECT_EQ(small[1].at(1), -0.5e12f);
}

TEST(LossEnds, ASigmoidThatIsCertainTrains) {
  const losses::BinaryCrossEntropy from_p(false), from_logits;
  const Array x = column({20, -120, 8, -90}, DType::F32), t = column({1, 0, 0, 1}, DType::F32);
  const losses::Loss composed([&](Value v, Value target) { return from_p(sigmoid(v), target); }, "composed");
  const auto out = loss_and_gradient(composed, x, t), wanted = loss_and_gradient(from_logits, x, t);
  EXPECT_NEAR(out[0].at(0), wanted[0].at(0), 1e-3);
  EXPECT_NEAR(out[1].at(2), wanted[1].at(2), 1e-4);
  for (std::int64_t i = 0; i < 4; ++i) EXPECT_TRUE(std::isfinite(out[1].at(i))) << i;
  const auto curved = run_traced(
      hessian([&](std::span<const Value> in) { return std::vector<Value>{from_p(sigmoid(in[0]), in[1])}; }), {x, t});
  for (std::int64_t i = 0; i < 16; ++i) EXPECT_TRUE(std::isfinite(curved[0].at(i))) << i;
}

// The larger the logit, the smaller what is left to tell of: as many digits of that as the dtype has, of the loss and of its gradient.
TEST(LossEnds, RightPredictionsKeepTheirDigits) {
  const losses::BinaryCrossEntropy binary;
  const losses::CrossEntropy classes;
  for (const DType dtype : {DType::F32, DType::F64}) {
    const double within = dtype == DType::F32 ? 4e-7 : 1e-15;
    for (const double x : {0.0, 0.5, 10.0, 12.0, 16.0, 30.0, 80.0}) {
      const double loss = std::log1p(std::exp(-x)), slope = 1 / (1 + std::exp(x));
      const auto expect = [&](const std::vector<Array>& out, std::int64_t at, double sign, const char* what) {
        EXPECT_NEAR(out[0].at(0) / loss, 1, within) << what << " at " << x;
        EXPECT_NEAR(out[1].at(at) / slope, sign, within) << what << " at " << x;
      };
      expect(loss_and_gradient(binary, column({x}, dtype), column({1}, dtype)), 0, -1, "of class 1");
      expect(loss_and_gradient(binary, column({-x}, dtype), column({0}, dtype)), 0, 1, "of class 0");
      const Array logits = Array::from<double>({1000 + x, 1000}, {1, 2}).cast(dtype);
      expect(loss_and_gradient(classes, logits, Array::from<std::int32_t>({0}, {1})), 1, 1, "of two classes");
      const Array log_p = run_traced(
          [](std::span<const Value> in) {
            return std::vector<Value>{nn::activation_function("log_softmax", {})(in[0])};
          },
          {logits})[0];
      EXPECT_NEAR(log_p.at(0) / loss, -1, within) << x;
    }
  }
}

// Soft targets have the least loss where the prediction is the target.
TEST(LossEnds, SmoothedTargetsAreBetweenTheClasses) {
  for (const double smoothing : {0.0, 0.1})
    for (const double x : {-30.0, -2.0, 0.0, 0.7, 30.0})
      for (const double target : {0.0, 0.25, 1.0}) {
        const double t = target * (1 - smoothing) + 0.5 * smoothing;
        const double above = std::log1p(std::exp(-std::abs(x))),
                     loss = t * (std::max(-x, 0.0) + above) + (1 - t) * (std::max(x, 0.0) + above);
        const auto out = loss_and_gradient(losses::BinaryCrossEntropy(true, smoothing), column({x}, DType::F64),
                                           column({target}, DType::F64));
        EXPECT_NEAR(out[0].at(0), loss, 1e-15 * (1 + std::abs(x))) << x << ", " << target;
        EXPECT_NEAR(out[1].at(0), 1 / (1 + std::exp(-x)) - t, 1e-15) << x << ", " << target;
      }
}

// The gradient is that of the softmax: equal classes have equal shares, of any size and in any number.
TEST(LossEnds, LogSoftmaxOfTiesAndInfinities) {
  const auto log_softmax = [](std::span<const Value> in) {
    return std::vector<Value>{nn::activation_function("log_softmax", {})(in[0])};
  };
  const auto weighted = [&](std::span<const Value> in) {
    const Value weights = in[1];
    return std::vector<Value>{sum(weights * log_softmax(in)[0])};
  };
  const auto share = [](const Array& x, std::int64_t i) {
    double total = 0;
    for (std::int64_t j = 0; j < 4; ++j) total += std::exp(x.at(j) - x.at(i));
    return 1 / total;
  };
  const Array weights = Array::from<double>({1, 0.5, 0.25, -2}, {4});
  const double of_all = -0.25;
  for (const std::vector<double>& row :
       {std::vector<double>{3, 3, 3, 3}, {3, 3, 1, 0}, {0, -40, 0, 0}, {-5, 2e5, 2e5, 1}, {700, 0, -700, 700}}) {
    const Array x = Array::from(row, {4});
    const Array value = run_traced(log_softmax, {x})[0], slope = run_traced(grad(weighted, {0}), {x, weights})[0];
    for (std::int64_t i = 0; i < 4; ++i) {
      if (share(x, i) > 0) EXPECT_NEAR(value.at(i), std::log(share(x, i)), 1e-15 * (1 + std::abs(value.at(i))));
      EXPECT_NEAR(slope.at(i), weights.at(i) - of_all * share(x, i), 1e-15) << i;
    }
    const auto curved = run_traced(hessian(weighted), {x, weights});
    for (std::int64_t i = 0; i < 16; ++i) {
      const double p = share(x, i / 4), q = share(x, i % 4);
      EXPECT_NEAR(curved[0].at(i), of_all * (p * q - (i / 4 == i % 4 ? p : 0)), 1e-15) << i;
    }
  }
  const auto of = [&](double a, double b) { return run_traced(log_softmax, {Array::from<double>({a, b}, {2})})[0]; };
  EXPECT_EQ(of(-infinity, 5).at(0), -infinity);
  EXPECT_EQ(of(-infinity, 5).at(1), 0);
  EXPECT_TRUE(std::isnan(of(-infinity, -infinity).at(0)));
  EXPECT_TRUE(std::isnan(of(infinity, 0).at(0)));
  EXPECT_EQ(of(infinity, 0).at(1), -infinity);
  EXPECT_TRUE(std::isnan(of(std::nan(""), 0).at(1)));
}

TEST(LossEnds, AClassThatIsMaskedOutTakesNoPart) {
  const Array masked = Array::from<double>({1, -infinity, 2}, {1, 3}), two = Array::from<double>({1, 2}, {1, 2});
  const auto label = [](std::int32_t c) { return Array::from<std::int32_t>({c}, {1}); };
  for (const double smoothing : {0.0, 0.2}) {
    const losses::CrossEntropy loss(true, smoothing);
    const auto wanted = loss_and_gradient(loss, two, label(0));
    for (const Array& target : {label(0), Array::from<double>({1, 0, 0}, {1, 3})}) {
      const auto out = loss_and_gradient(loss, masked, target);
      EXPECT_NEAR(out[0].at(0), wanted[0].at(0), 1e-14) << smoothing;
      expect_near(out[1], {wanted[1].at(0), 0, wanted[1].at(1)}, 1e-14);
    }
    // What cannot be and is has no finite loss.
    EXPECT_EQ(loss_and_gradient(loss, masked, label(1))[0].at(0), infinity);
  }
}

TEST(LossEnds, ClassesWithoutProbabilityAreFinite) {
  const losses::CrossEntropy loss(false);
  const Array rows = Array::from<float>({0, 1, 0, 0, 0, 0}, {2, 3}), labels = Array::from<std::int32_t>({1, 2}, {2});
  const auto out = loss_and_gradient(loss, rows, labels);
  EXPECT_NEAR(out[0].at(0), 126 * std::log(2) / 2, 1e-5);
  expect_near(out[1], {0.5, 0, 0.5, 0, 0, 0});
}

TEST(LossEnds, ALabelThatIsNoClassCountsNothing) {
  const Array logits = Array::from<double>({1, 2, 3, 3, 2, 1}, {2, 3});
  for (const double smoothing : {0.0, 0.1})
    for (const std::int32_t none : {-1, 3}) {
      const losses::CrossEntropy loss(true, smoothing);
      const auto out = loss_and_gradient(loss, logits, Array::from<std::int32_t>({none, 0}, {2}));
      const auto alone =
          loss_and_gradient(loss, Array::from<double>({3, 2, 1}, {1, 3}), Array::from<std::int32_t>({0}, {1}));
      EXPECT_NEAR(out[0].at(0), alone[0].at(0) / 2, 1e-15);
      for (std::int64_t i = 0; i < 3; ++i) {
        EXPECT_EQ(out[1].at(i), 0);
        EXPECT_NEAR(out[1].at(3 + i), alone[1].at(i) / 2, 1e-15);
      }
    }
}

TEST(LossEnds, LogCoshIsAsCurvedAtZeroAsBesideIt) {
  for (const double at : {0.0, 1e-3, -1e-3, 2.0}) {
    const auto second = run_traced(hessian([](std::span<const Value> in) {
                                     return std::vector<Value>{losses::LogCosh()(in[0], zeros_like(in[0]))};
                                   }),
                                   {Array::from<double>({at}, {1})});
    EXPECT_NEAR(second[0].at(0), 1 / (std::cosh(at) * std::cosh(at)), 1e-12) << at;
  }
}

// What a sample of weight 0 predicts, and its target, may be anything.
TEST(LossEnds, ASampleOfWeightZeroIsAsIfItWereNotThere) {
  for (const losses::LossDef& def : losses::all_losses()) {
    const losses::Loss loss = losses::make_loss(def.name);
    const Array both = nn::uniform(1, prediction_shape(loss, 2), DType::F64, 0.1, 0.9);
    const Array target = nn::uniform(2, target_shape(loss, both.type()), DType::F64, 0, 1);
    const auto first_of = [](const Array& rows) {
      Shape shape = rows.shape();
      shape[0] = 1;
      Array one(rows.dtype(), shape);
      for (std::int64_t i = 0; i < one.size(); ++i) one.set(i, rows.at(i));
      return one;
    };
    const auto wanted = loss_and_gradient(loss, first_of(both), first_of(target), Array::full(DType::F64, {1}, 0.7));
    for (const double anything : {infinity, std::nan("")}) {
      Array prediction = both.clone(), seen = target.clone();
      for (std::int64_t i = both.size() / 2; i < both.size(); ++i) prediction.set(i, anything);
      for (std::int64_t i = target.size() / 2; i < target.size(); ++i)
        seen.set(i, loss.compares_sequences() ? 1 : anything);
      const auto out = loss_and_gradient(loss, prediction, seen, Array::from<double>({0.7, 0}, {2}));
      EXPECT_NEAR(out[0].at(0), wanted[0].at(0), 1e-14) << def.name;
      for (std::int64_t i = 0; i < both.size(); ++i)
        EXPECT_NEAR(out[1].at(i), i < both.size() / 2 ? wanted[1].at(i) : 0, 1e-14) << def.name << ", " << i;
    }
  }
}

TEST(LossEnds, LabelsThatDoNotFitCountNothingWithAWeightOfZero) {
  const losses::CTC loss;
  const Array logits = Array::full(DType::F64, {2, 2, 3}, 0),
              labels = Array::from<std::int32_t>({1, -1, -1, 1, 1, 2}, {2, 3});
  const auto out = loss_and_gradient(loss, logits, labels, Array::from<double>({1, 0}, {2}));
  EXPECT_NEAR(out[0].at(0), std::log(3), 1e-14);
  for (std::int64_t i = 0; i < 12; ++i) EXPECT_TRUE(i < 6 ? std::isfinite(out[1].at(i)) : out[1].at(i) == 0) << i;
}

// At one step of the first row neither the blank nor a label is possible, so that its labels are not; nothing of that is its gradient's.
TEST(LossEnds, LabelsThatAStepLeavesOutHaveNoGradient) {
  const Array labels = Array::from<std::int32_t>({1, 2, 1, 2}, {2, 2});
  Array logits = Array::full(DType::F64, {2, 4, 4}, 0);
  const Array second = Array::full(DType::F64, {1, 4, 4}, 0);
  const auto wanted = loss_and_gradient(losses::CTC(), second, Array::from<std::int32_t>({1, 2}, {1, 2}));
  for (std::int64_t i = 0; i < 3; ++i) logits.set(4 + i, -infinity);
  for (const bool zero_infinity : {true, false}) {
    const auto out = loss_and_gradient(losses::CTC(0, zero_infinity), logits, labels);
    if (zero_infinity)
      EXPECT_NEAR(out[0].at(0), wanted[0].at(0) / 2, 1e-15);
    else
      EXPECT_EQ(out[0].at(0), infinity);
    for (std::int64_t i = 0; i < 32; ++i)
      EXPECT_NEAR(out[1].at(i), i < 16 ? 0 : wanted[1].at(i - 16) / 2, 1e-15) << i << ", " << zero_infinity;
  }
  // A step at which only a label is possible takes it.
  logits.set(5, 0);
  const auto forced = loss_and_gradient(losses::CTC(), logits, labels);
  EXPECT_TRUE(std::isfinite(forced[0].at(0)));
  for (std::int64_t i = 0; i < 32; ++i) EXPECT_TRUE(std::isfinite(forced[1].at(i))) << i;
}

// With a = 1 and t = 3, r = 1: the probability of t is (m / (1 + m))^t / (1 + m).
TEST(LossEnds, CountsOfAnyMean) {
  const double raw = std::log(std::expm1(1 - 1e-4));
  for (const DType dtype : {DType::F32, DType::F64})
    for (const double x : {-700.0, -80.0, -3.0, 0.0, 3.0, 87.0, 89.0, 720.0}) {
      const auto out = loss_and_gradient(losses::NegativeBinomial(), Array::from<double>({x, raw}, {1, 2}).cast(dtype),
                                         column({3}, dtype));
      const double loss = (x > 0 ? x : -3 * x) + 4 * std::log1p(std::exp(-std::abs(x)));
      EXPECT_NEAR(out[0].at(0) / loss, 1, 1e-6) << x;
      EXPECT_NEAR(out[1].at(0), 4 / (1 + std::exp(-x)) - 3, 1e-6) << x;
      EXPECT_TRUE(std::isfinite(out[1].at(1))) << x;
    }
}

// The variance of a count, m + a m^2, leaves f32 long before the mean does.
TEST(LossEnds, WidthsOfLargeCounts) {
  const double raw = std::log(std::expm1(1 - 1e-4));
  for (const double x : {-80.0, 0.0, 50.0, 85.0}) {
    const Array outputs = Array::from<double>({x, raw}, {1, 2}).cast(DType::F32);
    const Array std = run_traced(
        [](std::span<const Value> in) {
          return std::vector<Value>{losses::NegativeBinomial().statistics(in[0])["std"]};
        },
        {outputs})[0];
    EXPECT_NEAR(std.at(0) / std::sqrt(std::exp(x) + std::exp(2 * x)), 1, 1e-5) << x;
  }
}

}  // namespace
}  // namespace hotloop::testing
