// Derived columns, windows, splits and scales, against definitions written out here.
#include <gtest/gtest.h>

#include <cmath>
#include <numbers>
#include <numeric>
#include <random>

#include "hotloop/data.h"
#include "hotloop/error.h"
#include "hotloop/fit.h"

namespace hotloop::data {
namespace {

std::vector<double> random_series(std::size_t n, std::uint64_t seed) {
  std::mt19937_64 rng(seed);
  std::normal_distribution<double> normal(3, 2);
  std::vector<double> out(n);
  for (double& v : out) v = normal(rng);
  return out;
}

std::string message(const std::function<void()>& f) {
  try {
    f();
  } catch (const UserError& e) {
    return e.what();
  }
  return "accepted";
}

TEST(Lag, ShiftsAndLeavesTheStartUndefined) {
  const std::vector<double> y = lag(std::vector<double>{1, 2, 3, 4}, 2);
  EXPECT_TRUE(std::isnan(y[0]) && std::isnan(y[1]));
  EXPECT_EQ(y[2], 1);
  EXPECT_EQ(y[3], 2);
  EXPECT_EQ(message([] { lag(std::vector<double>{1}, 0); }), "[lag] steps must be positive. Received: 0.");
}

TEST(Periodic, DayOfHalfHours) {
  const auto columns = periodic("day", 100, {.period = 48, .harmonics = 2});
  ASSERT_EQ(columns.size(), 4u);
  EXPECT_EQ(columns[0].first, "day_sin1");
  EXPECT_EQ(columns[3].first, "day_cos2");
  for (std::size_t row = 0; row < 100; ++row) {
    const double angle = 2 * std::numbers::pi * static_cast<double>(row % 48) / 48;
    EXPECT_DOUBLE_EQ(columns[0].second[row], std::sin(angle));
    EXPECT_NEAR(columns[3].second[row], std::cos(2 * angle), 1e-15);
  }
}

TEST(Periodic, WeekdayOfHalfHoursThatBeginOnAWednesday) {
  const auto columns = periodic("week", 1000, {.period = 7, .step = 48, .phase = 2});
  for (std::size_t row = 0; row < 1000; ++row) {
    const double angle = 2 * std::numbers::pi * static_cast<double>((row / 48 + 2) % 7) / 7;
    EXPECT_DOUBLE_EQ(columns[0].second[row], std::sin(angle)) << row;
    EXPECT_DOUBLE_EQ(columns[1].second[row], std::cos(angle)) << row;
  }
}

TEST(Periodic, NegativePhaseWraps) {
  EXPECT_DOUBLE_EQ(periodic("p", 1, {.period = 4, .phase = -1})[0].second[0], std::sin(2 * std::numbers::pi * 3 / 4));
}

struct Fixture {
  Table table;
  Recipe options{.inputs = {"x", "late"}, .targets = {"y"}, .missing = Fill::Drop, .length = 5};
  Fixture() {
    table.add("x", random_series(200, 1));
    table.add("y", random_series(200, 2));
    table.add("late", lag(table["y"], 7));
  }
};

TEST(Windows, SplitByTimeWithoutUndefinedRows) {
  Fixture f;
  const Samples windows(f.table, f.options);
  // The first window that is defined ends at row 7 + 5 - 1; 0.7 * 200 = 140, 0.85 * 200 = 170.
  const auto rows = [&](const Dataset& part) { return windows.target_rows(part); };
  const auto range = [](std::int64_t from, std::int64_t to) {
    std::vector<std::int64_t> out(static_cast<std::size_t>(to - from));
    std::iota(out.begin(), out.end(), from);
    return out;
  };
  EXPECT_EQ(rows(windows.train()), range(11, 140));
  EXPECT_EQ(rows(windows.validation()), range(140, 170));
  EXPECT_EQ(rows(windows.test()), range(170, 200));
}

TEST(Windows, ScalesAreThoseOfTheTrainingRowsAlone) {
  Fixture f;
  const Samples windows(f.table, f.options);
  const auto x = f.table["x"];
  double mean = 0, square = 0;
  for (std::size_t row = 11; row < 140; ++row) mean += x[row] / 129;
  for (std::size_t row = 11; row < 140; ++row) square += (x[row] - mean) * (x[row] - mean) / 129;
  EXPECT_NEAR(windows.preparation().input_scales()[0].mean, mean, 1e-12);
  EXPECT_NEAR(windows.preparation().input_scales()[0].std, std::sqrt(square), 1e-12);

  std::vector<double> changed(x.begin(), x.end());
  for (std::size_t row = 140; row < 200; ++row) changed[row] += 1000;
  Table other;
  other.add("x", changed);
  other.add("y", random_series(200, 2));
  other.add("late", lag(other["y"], 7));
  EXPECT_EQ(Samples(other, f.options).preparation().input_scales()[0].mean,
            windows.preparation().input_scales()[0].mean);
}

TEST(Windows, GatherCopiesStandardisedRows) {
  for (const DType dtype : {DType::F32, DType::F64}) {
    Fixture f;
    f.options.dtype = dtype;
    f.options.horizon = 3;
    f.options.stride = 4;
    const Samples windows(f.table, f.options);
    const Dataset& part = windows.validation();
    ASSERT_GT(part.size(), 2);
    Array x(dtype, {2, 5, 2}), y(dtype, {2, 1});
    part.gather(std::vector<std::int64_t>{2, 0}, {.inputs = x.raw(), .targets = y.raw()});
    const auto scaled = [&](double value, const Standardization& s) {
      const double z = (value - s.mean) / s.std;
      return dtype == DType::F32 ? static_cast<double>(static_cast<float>(z)) : z;
    };
    const auto rows = windows.target_rows(part);
    EXPECT_EQ(rows[1] - rows[0], 4);
    for (std::int64_t i = 0; i < 2; ++i) {
      const std::int64_t target = rows[i == 0 ? 2 : 0];
      EXPECT_EQ(y.at(i), scaled(f.table["y"][static_cast<std::size_t>(target)], windows.target_scale()));
      for (std::int64_t t = 0; t < 5; ++t) {
        const auto row = static_cast<std::size_t>(target - 3 - 4 + t);
        EXPECT_EQ(x.at((i * 5 + t) * 2), scaled(f.table["x"][row], windows.preparation().input_scales()[0]));
        EXPECT_EQ(x.at((i * 5 + t) * 2 + 1), scaled(f.table["late"][row], windows.preparation().input_scales()[1]));
      }
    }
  }
}

TEST(Windows, UndefinedRowsInTheMiddleDropTheWindowsThatHoldThem) {
  Fixture f;
  std::vector<double> holes = random_series(200, 3);
  holes[50] = std::nan("");
  f.table.add("holes", holes);
  f.options.inputs = {"holes"};
  const Samples windows(f.table, f.options);
  for (const std::int64_t row : windows.target_rows(windows.train())) EXPECT_TRUE(row < 50 || row > 54) << row;
  EXPECT_EQ(windows.train().size(), 136 - 5);
}

TEST(Windows, AConstantColumnIsRefused) {
  Fixture f;
  f.table.add("flat", std::vector<double>(200, 4.0));
  f.options.inputs = {"flat"};
  EXPECT_EQ(message([&] { Samples(f.table, f.options); }),
            "[data] column 'flat' must vary over the training rows. Received: 4 on every one of them. "
            "Try: leave it out of the inputs, or standardize = false.");
  f.options.standardize = false;
  EXPECT_EQ(Samples(f.table, f.options).preparation().input_scales()[0].std, 1);
}

TEST(Windows, Refusals) {
  const auto with = [](const std::function<void(Recipe&)>& change) {
    return message([&] {
      Fixture f;
      change(f.options);
      Samples(f.table, f.options);
    });
  };
  EXPECT_EQ(with([](Recipe& o) { o.length = 0; }), "[window] length must be positive. Received: 0.");
  EXPECT_EQ(with([](Recipe& o) { o.stride = -1; }), "[window] stride must be positive. Received: -1.");
  EXPECT_EQ(with([](Recipe& o) { o.inputs = {"z"}; }),
            "[table] the table must have the column 'z'. Received: 3 other columns. Try: did you mean 'x'?");
  EXPECT_EQ(
      with([](Recipe& o) { o.length = 201; }),
      "[window] the table must be at least as long as a window and its horizon. Received: 200 rows for length 201 "
      "and horizon 0. Try: a shorter length or horizon, or more rows.");
  EXPECT_NE(with([](Recipe& o) { o.split.train = 0.9, o.split.validation = 0.2; }).find("their sum at most 1"),
            std::string::npos);
  EXPECT_NE(with([](Recipe& o) { o.split.train = 0.03; }).find("at least one window"), std::string::npos);
}

TEST(ArrayDataset, GathersRowsAndChecksShapes) {
  const ArrayDataset samples(Array::from(std::vector<float>{1, 2, 3, 4, 5, 6}, {3, 2}),
                             Array::from(std::vector<float>{7, 8, 9}, {3, 1}));
  Array x(DType::F32, {2, 2}), y(DType::F32, {2, 1});
  samples.gather(std::vector<std::int64_t>{2, 0}, {.inputs = x.raw(), .targets = y.raw()});
  EXPECT_EQ(x.at(0), 5);
  EXPECT_EQ(x.at(3), 2);
  EXPECT_EQ(y.at(1), 7);
  EXPECT_EQ(message([] {
              ArrayDataset(Array(DType::F32, {3, 2}), Array(DType::F32, {4, 1}));
            }),
            "[dataset] inputs and targets must have equally many samples. Received: f32[3,2] and f32[4,1].");
}

TEST(ArrayDataset, GathersLengthsWeightsIndicesAndClasses) {
  const ArrayDataset samples(Array::from(std::vector<std::int32_t>{1, 2, 3, 4, 5, 0}, {2, 3}),
                             Array::from(std::vector<std::int64_t>{8, 9}, {2}),
                             Array::from(std::vector<std::int64_t>{3, 2}, {2}),
                             Array::from(std::vector<double>{0.5, 2}, {2}));
  EXPECT_EQ(samples.dtype(), DType::F64);  // that of the weights: nothing else is a float
  EXPECT_EQ(samples.input_type(7).str(), "i32[7,3]");
  EXPECT_EQ(samples.target_type(7).str(), "i64[7]");
  Array x(DType::I32, {2, 3}), y(DType::I64, {2}), lengths(DType::I32, {2}), weights(DType::F64, {2});
  samples.gather(std::vector<std::int64_t>{1, 0}, {.inputs = x.raw(),
                                                   .targets = y.raw(),
                                                   .lengths = lengths.data<std::int32_t>().data(),
                                                   .weights = weights.raw()});
  EXPECT_EQ(x.at(0), 4);
  EXPECT_EQ(x.at(5), 3);
  EXPECT_EQ(y.at(0), 9);
  EXPECT_EQ(lengths.at(0), 2);
  EXPECT_EQ(lengths.at(1), 3);
  EXPECT_EQ(weights.at(0), 2);
  EXPECT_EQ(weights.at(1), 0.5);
}

TEST(ArrayDataset, WithoutLengthsAndWeightsAllStepsCountAlike) {
  const ArrayDataset samples(Array::zeros(DType::F32, {2, 3, 4}), Array::zeros(DType::F32, {2, 1}));
  EXPECT_FALSE(samples.has_lengths() || samples.has_weights());
  std::int32_t lengths[2] = {};
  float weights[2] = {};
  samples.gather(std::vector<std::int64_t>{0, 1}, {.lengths = lengths, .weights = weights});
  EXPECT_EQ(lengths[1], 3);
  EXPECT_EQ(weights[1], 1.0f);
}

TEST(ArrayDataset, Refusals) {
  const Array x = Array::zeros(DType::F32, {2, 3}), y = Array::zeros(DType::F32, {2, 1});
  EXPECT_EQ(message([&] { ArrayDataset(x, y.cast(DType::F64)); }),
            "[dataset] inputs and targets that are floats must have the same dtype. Received: f32[2,3] and f64[2,1]. "
            "Try: cast one of them.");
  EXPECT_EQ(message([&] { ArrayDataset(x, y.cast(DType::Bool)); }),
            "[dataset] inputs and targets must be f32, f64, i32 or i64. Received: f32[2,3] and bool[2,1]. "
            "Try: cast them to f32, classes to i32.");
  EXPECT_EQ(message([&] {
              ArrayDataset(x, y, Array::from(std::vector<std::int32_t>{1, 4}, {2}));
            }),
            "[dataset] lengths must lie between 0 and the inputs' steps, 3. Received: 4 for sample 1. "
            "Try: 3 for a sample without padding.");
  EXPECT_EQ(message([&] { ArrayDataset(x, y, Array::zeros(DType::I32, {3})); }),
            "[dataset] lengths must be one integer a sample, for inputs (samples, time, ...). Received: i32[3] for "
            "inputs f32[2,3]. Try: i32 of shape (2,), the steps of each sample before its padding.");
  EXPECT_EQ(message([&] {
              ArrayDataset(x, y, {}, Array::from(std::vector<float>{1, -1}, {2}));
            }),
            "[dataset] weights must be finite and not negative. Received: -1 for sample 1. "
            "Try: 0 for a sample that must not count.");
  EXPECT_EQ(message([&] {
              ArrayDataset(x, y, {}, Array::from(std::vector<float>{0, 0}, {2}));
            }),
            "[dataset] a sample must have a weight above 0. Received: 0 for all 2. Try: 1 for a sample as any other.");
}

TEST(Ridge, RecoversALinearModelAndShrinksWithLambda) {
  const std::size_t n = 300, k = 4;
  std::vector<double> a = random_series(n * k, 5), y(n);
  const std::vector<double> w = {1, -2, 0.5, 3};
  for (std::size_t i = 0; i < n; ++i)
    for (std::size_t j = 0; j < k; ++j) y[i] += a[i * k + j] * w[j];
  const ArrayDataset samples(Array::from(a, {static_cast<std::int64_t>(n), 2, 2}), Array::from(y, {300, 1}));
  const train::Ridge exact = train::fit_ridge(samples, samples, std::vector<double>{1000, 1e-9});
  EXPECT_EQ(exact.lambda, 1e-9);
  for (std::size_t j = 0; j < k; ++j) EXPECT_NEAR(exact.weights[j], w[j], 1e-10);
  EXPECT_NEAR(exact.predict(samples)[7], y[7], 1e-9);

  // The normal equations themselves, of what is left of the means: (A'A + lambda I) w = A'y.
  double mean_y = 0;
  std::vector<double> mean(k);
  for (std::size_t i = 0; i < n; ++i) {
    mean_y += y[i] / n;
    for (std::size_t j = 0; j < k; ++j) mean[j] += a[i * k + j] / n;
  }
  for (std::size_t i = 0; i < n; ++i) {
    y[i] -= mean_y;
    for (std::size_t j = 0; j < k; ++j) a[i * k + j] -= mean[j];
  }
  const train::Ridge shrunk = train::fit_ridge(samples, samples, std::vector<double>{100});
  for (std::size_t j = 0; j < k; ++j) {
    double left = 100 * shrunk.weights[j], right = 0;
    for (std::size_t i = 0; i < n; ++i) {
      for (std::size_t m = 0; m < k; ++m) left += a[i * k + j] * a[i * k + m] * shrunk.weights[m];
      right += a[i * k + j] * y[i];
    }
    EXPECT_NEAR(left, right, 1e-8 * std::abs(right));
  }
}

TEST(Ridge, TargetsOfSeveralNumbersAreAsManyRegressions) {
  const std::int64_t n = 90, k = 3;
  const Array a = Array::from(random_series(n * k, 5), {n, k}), y = Array::from(random_series(n * 2, 7), {n, 2});
  const std::vector<double> lambdas = {3};
  const ArrayDataset both(a, y);
  const train::Ridge all = train::fit_ridge(both, both, lambdas);
  const std::vector<double> predicted = all.predict(both);
  ASSERT_EQ(predicted.size(), 180);
  double error = 0;
  for (std::int64_t target = 0; target < 2; ++target) {
    Array column(DType::F64, {n, 1});
    for (std::int64_t i = 0; i < n; ++i) column.set(i, y.at(2 * i + target));
    const ArrayDataset one(a, column);
    const train::Ridge ridge = train::fit_ridge(one, one, lambdas);
    for (std::int64_t i = 0; i < k; ++i)
      EXPECT_EQ(all.weights[static_cast<std::size_t>(target * k + i)], ridge.weights[static_cast<std::size_t>(i)]);
    for (std::int64_t i = 0; i < n; ++i)
      EXPECT_EQ(predicted[static_cast<std::size_t>(2 * i + target)], ridge.predict(one)[static_cast<std::size_t>(i)]);
    error += ridge.validation_mae / 2;
  }
  EXPECT_NEAR(all.validation_mae, error, 1e-14);
}

// Nor does it matter where their zero points are.
TEST(Ridge, AnInterceptHasNoPenalty) {
  const std::int64_t n = 90, k = 3;
  Array a = Array::from(random_series(n * k, 5), {n, k}), y = Array::from(random_series(n, 7), {n, 1});
  const std::vector<double> lambdas = {3};
  const ArrayDataset centred(a, y);
  const train::Ridge ridge = train::fit_ridge(centred, centred, lambdas);
  Array far = Array::zeros(DType::F64, {n, k}), high = Array::zeros(DType::F64, {n, 1});
  for (std::int64_t i = 0; i < a.size(); ++i) far.set(i, a.at(i) - 1000);
  for (std::int64_t i = 0; i < n; ++i) high.set(i, y.at(i) + 100);
  const ArrayDataset shifted(far, high);
  const train::Ridge same = train::fit_ridge(shifted, shifted, lambdas);
  for (std::size_t i = 0; i < 3; ++i) EXPECT_NEAR(same.weights[i], ridge.weights[i], 1e-9);
  EXPECT_NEAR(same.validation_mae, ridge.validation_mae, 1e-9);
}

TEST(Ridge, SingularEquationsAreRefused) {
  const ArrayDataset samples(Array::zeros(DType::F64, {3, 2}), Array::zeros(DType::F64, {3, 1}));
  EXPECT_NE(message([&] { train::fit_ridge(samples, samples, std::vector<double>{0}); }).find("positive definite"),
            std::string::npos);
}

}  // namespace
}  // namespace hotloop::data
