// Groups, gaps, missing values, one-hot columns, splits and series, against definitions written out here on small and random
// tables; a preparation applied to rows against the samples that training saw.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <map>
#include <numeric>
#include <optional>
#include <random>
#include <set>
#include <sstream>

#include "data/split.h"
#include "hotloop/data.h"
#include "hotloop/error.h"

namespace hotloop::data {
namespace {

constexpr double nan = std::numeric_limits<double>::quiet_NaN();

// One sample's inputs [length, features], and its targets.
std::vector<double> inputs_of(const Dataset& part, std::int64_t i) {
  Array x(part.input_dtype(), part.input_shape());
  part.gather(std::span(&i, 1), {.inputs = x.raw()});
  std::vector<double> out;
  for (std::int64_t k = 0; k < x.size(); ++k) out.push_back(x.at(k));
  return out;
}
std::vector<double> targets_of(const Dataset& part, std::int64_t i) {
  Array y(part.target_dtype(), part.target_shape());
  part.gather(std::span(&i, 1), {.targets = y.raw()});
  std::vector<double> out;
  for (std::int64_t k = 0; k < y.size(); ++k) out.push_back(y.at(k));
  return out;
}

// The table with a last column "y" of the cells of "v", for targets that can be inputs, too: tests see at which rows both are.
std::string with_copy(const std::string& text) {
  const auto cells = [](const std::string& line) {
    std::vector<std::string> all(1);
    for (const char c : line)
      if (c == ',')
        all.emplace_back();
      else
        all.back() += c;
    return all;
  };
  std::istringstream lines(text);
  std::string header, out;
  std::getline(lines, header);
  const std::vector<std::string> names = cells(header);
  const auto column = static_cast<std::size_t>(std::ranges::find(names, "v") - names.begin());
  out = header + ",y\n";
  for (std::string line; std::getline(lines, line);) out += line + "," + cells(line).at(column) + "\n";
  return out;
}

Samples from_csv(const std::string& text, const Recipe& recipe) {
  const bool copied = recipe.targets == std::vector<std::string>{"y"};
  return Samples(*open_csv_text(copied ? with_copy(text) : text, "t.csv"), recipe);
}

// Two groups whose rows alternate, an hour apart, with a gap of three hours in "b" after its fourth row.
std::string two_groups() {
  std::string text = "when,place,v\n";
  for (int i = 0; i < 10; ++i) {
    text += "2020-01-01T" + std::string(i < 10 ? "0" : "") + std::to_string(i) + ":00,a," + std::to_string(i) + "\n";
    const int hour = i < 4 ? i : i + 2;
    text += "2020-01-01 " + std::string(hour < 10 ? "0" : "") + std::to_string(hour) + ":00:00Z,b," +
            std::to_string(100 + i) + "\n";
  }
  return text;
}

Recipe plain(std::int64_t length) {
  Recipe recipe{.inputs = {"v"}, .targets = {"y"}, .length = length};
  recipe.standardize = false;
  recipe.dtype = DType::F64;
  recipe.split.train = 1;
  recipe.split.validation = 0;
  return recipe;
}

TEST(Groups, WindowsCrossNeitherAGroupNorAGap) {
  Recipe recipe = plain(3);
  recipe.time = "when";
  recipe.group = "place";
  const Samples samples = from_csv(two_groups(), recipe);
  EXPECT_EQ(samples.preparation().time_step(), 3600);
  std::vector<std::vector<double>> windows;
  for (std::int64_t i = 0; i < samples.train().size(); ++i) windows.push_back(inputs_of(samples.train(), i));
  std::vector<std::vector<double>> expected;
  for (double i = 0; i < 8; ++i) expected.push_back({i, i + 1, i + 2});
  for (double i : {100, 101, 104, 105, 106, 107}) expected.push_back({i, i + 1, i + 2});
  EXPECT_EQ(windows, expected);
  // The source's rows: "a" has the even ones.
  EXPECT_EQ(samples.target_rows(samples.train())[0], 4);
  EXPECT_EQ(samples.target_rows(samples.train())[8], 5);
  EXPECT_EQ(samples.preparation().describe(),
            "2 groups by 'place'\ntime 'when' in steps of 1 h, 1 gap\nnothing standardised");
}

TEST(Groups, TimeStepAnyHasNoGaps) {
  Recipe recipe = plain(3);
  recipe.time = "when";
  recipe.group = "place";
  recipe.time_step = "any";
  EXPECT_EQ(from_csv(two_groups(), recipe).train().size(), 16);
}

TEST(Groups, LagsLookBackByTime) {
  Recipe recipe = plain(1);
  recipe.time = "when";
  recipe.group = "place";
  recipe.lags = {{"before", "v", 3}};
  recipe.inputs = {"v", "before"};
  const Samples samples = from_csv(two_groups(), recipe);
  std::map<double, double> before;
  for (std::int64_t i = 0; i < samples.train().size(); ++i) {
    const auto x = inputs_of(samples.train(), i);
    before[x[0]] = x[1];
  }
  // "b" has no rows at 04:00 and 05:00: what follows the gap at 06:00 looks at 03:00, then at nothing twice.
  const std::map<double, double> expected = {{3, 0}, {4, 1},     {5, 2},     {6, 3},     {7, 4},     {8, 5},
                                             {9, 6}, {103, 100}, {104, 103}, {107, 104}, {108, 105}, {109, 106}};
  EXPECT_EQ(before, expected);
}

TEST(Missing, EachFillDoesWhatItSays) {
  const std::string text = "v,w\n1,10\n,20\n3,30\nNA,40\n5,50\n6,60\n";
  const auto column = [&](Fill fill, bool indicator = false) {
    Recipe recipe = plain(1);
    recipe.targets = {"w"};
    recipe.missing = fill;
    recipe.indicator = indicator;
    const Samples samples = from_csv(text, recipe);
    std::vector<std::vector<double>> rows;
    for (std::int64_t i = 0; i < samples.train().size(); ++i) rows.push_back(inputs_of(samples.train(), i));
    return rows;
  };
  using Rows = std::vector<std::vector<double>>;
  EXPECT_EQ(column(Fill::Drop), (Rows{{1}, {3}, {5}, {6}}));
  EXPECT_EQ(column(Fill::Forward), (Rows{{1}, {1}, {3}, {3}, {5}, {6}}));
  EXPECT_EQ(column(Fill::Mean), (Rows{{1}, {3.75}, {3}, {3.75}, {5}, {6}}));
  EXPECT_EQ(column(Fill::Mean, true), (Rows{{1, 0}, {3.75, 1}, {3, 0}, {3.75, 1}, {5, 0}, {6, 0}}));
}

TEST(Missing, ATargetIsSaidToBeLeftOut) {
  Recipe recipe = plain(1);
  recipe.missing = Fill::Mean;
  recipe.targets = {"w"};
  const std::string text = "v,w\n1,1\n2,\n3,3\n4,4\n5,5\n6,6\n";
  EXPECT_TRUE(from_csv(text, recipe).preparation().describe().starts_with("'w': 1 missing, their samples left out\n"));
  recipe.inputs = {"v", "before"};
  recipe.lags = {{"before", "w", 1}};
  EXPECT_TRUE(
      from_csv(text, recipe)
          .preparation()
          .describe()
          .starts_with(
              "'w': 1 missing, their samples left out\n'w' in the inputs: filled with the training mean 3.8\n"));
}

TEST(Missing, TheMeanIsThatOfTheTrainingRows) {
  Recipe recipe = plain(1);
  recipe.split.train = 0.5;
  recipe.missing = Fill::Mean;
  recipe.targets = {"w"};
  const Samples samples = from_csv("v,w\n1,1\n,2\n3,3\n100,4\n,5\n100,6\n", recipe);
  EXPECT_EQ(inputs_of(samples.train(), 1), std::vector<double>{2});
  EXPECT_EQ(inputs_of(samples.test(), 1), std::vector<double>{2});
  EXPECT_NE(samples.preparation().describe().find("'v': 2 missing, filled with the training mean 2"), std::string::npos)
      << samples.preparation().describe();
}

TEST(Missing, ACategoryIsFilledWithNone) {
  Recipe recipe = plain(1);
  recipe.inputs = {"v", "c"};
  recipe.one_hots = {{.column = "c"}};
  recipe.missing = Fill::Mean;
  recipe.targets = {"w"};
  const Samples samples = from_csv("v,c,w\n1,a,1\n2,,2\n3,b,3\n", recipe);
  EXPECT_NE(samples.preparation().describe().find("'c': 1 missing, of no category, all zeros\n"), std::string::npos)
      << samples.preparation().describe();
  EXPECT_EQ(inputs_of(samples.train(), 1), (std::vector<double>{2, 0, 0}));
}

TEST(Missing, AMissingTargetIsNeverMadeUp) {
  Recipe recipe = plain(1);
  recipe.missing = Fill::Forward;
  const Samples samples = from_csv("v\n1\n\"\"\n3\n", recipe);
  EXPECT_EQ(samples.train().size(), 2);
}

TEST(Missing, ForwardFillStopsAtAGroup) {
  Recipe recipe = plain(1);
  recipe.targets = {"w"};
  recipe.group = "g";
  recipe.missing = Fill::Forward;
  const Samples samples = from_csv("g,v,w\na,1,1\na,,2\nb,,3\nb,4,4\n", recipe);
  ASSERT_EQ(samples.train().size(), 3);
  EXPECT_EQ(inputs_of(samples.train(), 1), std::vector<double>{1});
  EXPECT_EQ(inputs_of(samples.train(), 2), std::vector<double>{4});
}

TEST(OneHot, CategoriesOfTheTrainingRowsInOrder) {
  Recipe recipe = plain(1);
  recipe.inputs = {"sky", "v"};
  recipe.one_hots = {{"sky", true}};
  recipe.split.train = 0.75;
  const Samples samples = from_csv("sky,v\nwet,1\nclear,2\nwet,3\nfog,4\n", recipe);
  EXPECT_EQ(samples.preparation().input_names(), (std::vector<std::string>{"sky=clear", "sky=wet", "v"}));
  EXPECT_EQ(inputs_of(samples.train(), 0), (std::vector<double>{0, 1, 1}));
  EXPECT_EQ(inputs_of(samples.train(), 1), (std::vector<double>{1, 0, 2}));
  EXPECT_EQ(inputs_of(samples.test(), 0), (std::vector<double>{0, 0, 4}));
}

TEST(Cycles, OfRealTimes) {
  Recipe recipe = plain(1);
  recipe.time = "when";
  recipe.time_step = "any";
  recipe.cycles = {{.name = "hour", .of = Cycle::Of::HourOfDay},
                   {.name = "day", .of = Cycle::Of::DayOfWeek},
                   {.name = "week", .of = Cycle::Of::HourOfWeek},
                   {.name = "year", .of = Cycle::Of::DayOfYear}};
  recipe.inputs = {"hour", "day", "week", "year"};
  // A Saturday at 6 in the morning, and half a leap year later (366 days: noon of July 2nd is 183.5 days in).
  const Samples samples = from_csv("when,v\n2000-01-01T06:00,1\n2000-07-02T12:00:00+00:00,2\n", recipe);
  const auto expect_cycle = [](const std::vector<double>& x, std::size_t at, double position) {
    EXPECT_NEAR(x[2 * at], std::sin(2 * M_PI * position), 1e-12) << at;
    EXPECT_NEAR(x[2 * at + 1], std::cos(2 * M_PI * position), 1e-12) << at;
  };
  const std::vector<double> a = inputs_of(samples.train(), 0), b = inputs_of(samples.train(), 1);
  expect_cycle(a, 0, 0.25);
  expect_cycle(a, 1, 5.0 / 7);
  expect_cycle(a, 2, 5.25 / 7);
  expect_cycle(a, 3, 0.25 / 366);
  expect_cycle(b, 0, 0.5);
  expect_cycle(b, 1, 6.0 / 7);
  expect_cycle(b, 3, 183.5 / 366);
}

TEST(Horizon, SeveralStepsAndTargetsStepByStep) {
  Recipe recipe = plain(2);
  recipe.targets = {"v", "w"};
  recipe.horizon = 1;
  recipe.horizon_steps = 2;
  const Samples samples = from_csv("v,w\n0,10\n1,11\n2,12\n3,13\n4,14\n", recipe);
  ASSERT_EQ(samples.train().size(), 2);
  EXPECT_EQ(samples.train().target_shape(), (Shape{4}));
  EXPECT_EQ(inputs_of(samples.train(), 1), (std::vector<double>{1, 2}));
  EXPECT_EQ(targets_of(samples.train(), 1), (std::vector<double>{3, 13, 4, 14}));
}

TEST(Horizon, TargetsInTwoPartsAreLeftOut) {
  Recipe recipe = plain(1);
  recipe.horizon_steps = 2;
  recipe.split.train = 0.5;
  recipe.split.validation = 0;
  const Samples samples = from_csv("v\n0\n1\n2\n3\n4\n5\n", recipe);
  EXPECT_EQ(samples.train().size(), 2);  // targets 0-1, 1-2
  EXPECT_EQ(samples.test().size(), 2);   // 3-4, 4-5; 2-3 is in both
}

TEST(Split, GroupsAreCutAtOnePointInTime) {
  Recipe recipe = plain(1);
  recipe.time = "when";
  recipe.group = "place";
  recipe.time_step = "any";
  recipe.split.train = 0.5;
  recipe.split.validation = 0.25;
  const Samples samples = from_csv(two_groups(), recipe);
  // Of 20 rows by time, ten lie before 06:00 ("b" has none at 04:00 and 05:00).
  std::multiset<double> train;
  for (std::int64_t i = 0; i < samples.train().size(); ++i) train.insert(inputs_of(samples.train(), i)[0]);
  EXPECT_EQ(train, (std::multiset<double>{0, 1, 2, 3, 4, 5, 100, 101, 102, 103}));
}

TEST(Split, ByGroupByColumnAndAtRandom) {
  std::string text = "g,part,v\n";
  for (int g = 0; g < 20; ++g)
    for (int i = 0; i < 5; ++i)
      text += "g" + std::to_string(g) + "," + (g < 15 ? "train" : "test") + "," + std::to_string(g * 10 + i) + "\n";
  Recipe recipe = plain(1);
  recipe.group = "g";
  recipe.split = {.by = Split::By::Group, .train = 0.5, .validation = 0.25, .seed = 3};
  const auto groups = [](const Samples& s, const Dataset& part) {
    std::set<int> all;
    for (std::int64_t i = 0; i < part.size(); ++i) all.insert(static_cast<int>(inputs_of(part, i)[0]) / 10);
    EXPECT_EQ(static_cast<std::int64_t>(all.size()) * 5, part.size());
    (void)s;
    return all;
  };
  const Samples by_group = from_csv(text, recipe);
  EXPECT_EQ(groups(by_group, by_group.train()).size(), 10u);
  EXPECT_EQ(groups(by_group, by_group.validation()).size(), 5u);
  EXPECT_EQ(groups(by_group, by_group.test()).size(), 5u);
  EXPECT_EQ(groups(by_group, by_group.train()), groups(from_csv(text, recipe), from_csv(text, recipe).train()));
  recipe.split.seed = 4;
  EXPECT_NE(groups(by_group, by_group.train()), groups(from_csv(text, recipe), from_csv(text, recipe).train()));

  recipe.split = {.by = Split::By::Group, .validation_groups = {"g3"}, .test_groups = {"g4", "g5"}};
  const Samples named = from_csv(text, recipe);
  EXPECT_EQ(groups(named, named.validation()), std::set<int>{3});
  EXPECT_EQ(groups(named, named.test()), (std::set<int>{4, 5}));

  recipe.split = {.by = Split::By::Column, .validation = 0.1, .column = "part"};
  const Samples by_column = from_csv(text, recipe);
  EXPECT_EQ(by_column.test().size(), 25);
  EXPECT_EQ(by_column.train().size() + by_column.validation().size(), 75);
  EXPECT_GT(by_column.validation().size(), 0);

  recipe.split = {.by = Split::By::Random, .train = 0.6, .validation = 0.2, .seed = 1};
  const Samples random = from_csv(text, recipe);
  EXPECT_EQ(random.train().size(), 60);
  EXPECT_EQ(random.validation().size(), 20);
}

TEST(Split, PermutedIsAPermutation) {
  for (const std::int64_t n : {1, 2, 3, 17, 64, 1000}) {
    std::set<std::int64_t> images;
    for (std::int64_t i = 0; i < n; ++i) images.insert(permuted(i, n, 7));
    EXPECT_EQ(static_cast<std::int64_t>(images.size()), n);
    EXPECT_EQ(*images.rbegin(), n - 1);
  }
  // Where the first of 6 goes is uniform over seeds: 60,000 draws, standard deviation 91 of each count.
  std::array<int, 6> counts{};
  for (std::uint64_t seed = 0; seed < 60000; ++seed) ++counts[static_cast<std::size_t>(permuted(0, 6, seed))];
  for (const int count : counts) EXPECT_NEAR(count, 10000, 5 * 91);
}

const char* const series_text =
    "id,t,x,y,label,part\n"
    "s1,0,1,10,no,train\ns1,1,2,20,no,train\n"
    "s2,0,3,30,yes,train\ns2,1,4,40,yes,train\ns2,2,5,50,yes,train\n"
    "s3,0,6,60,yes,test\n";

Recipe series_recipe() {
  Recipe recipe{.inputs = {"x", "y"}, .targets = {"label"}, .sample = "id", .task = Task::Classification};
  recipe.dtype = DType::F64;
  recipe.split = {.by = Split::By::Column, .validation = 0, .column = "part"};
  return recipe;
}

TEST(Series, ArePaddedWithLengths) {
  Recipe recipe = series_recipe();
  recipe.standardize = false;
  const Samples samples = from_csv(series_text, recipe);
  const Dataset& train = samples.train();
  EXPECT_EQ(train.size(), 2);
  EXPECT_EQ(train.input_shape(), (Shape{3, 2}));
  EXPECT_EQ(train.target_shape(), Shape{});
  EXPECT_EQ(train.target_dtype(), DType::I32);
  EXPECT_TRUE(train.has_lengths());
  EXPECT_EQ(inputs_of(train, 0), (std::vector<double>{1, 10, 2, 20, 0, 0}));
  EXPECT_EQ(targets_of(train, 0), std::vector<double>{0});
  EXPECT_EQ(targets_of(train, 1), std::vector<double>{1});
  std::int32_t lengths[2];
  train.gather(std::vector<std::int64_t>{0, 1}, {.lengths = lengths});
  EXPECT_EQ(lengths[0], 2);
  EXPECT_EQ(lengths[1], 3);
  EXPECT_EQ(std::vector<std::string>(samples.preparation().classes().begin(), samples.preparation().classes().end()),
            (std::vector<std::string>{"no", "yes"}));
}

TEST(Series, ScalesAreThoseOfTheStepsThatAreThere) {
  const Samples samples = from_csv(series_text, series_recipe());
  EXPECT_DOUBLE_EQ(samples.preparation().input_scales()[0].mean, 3);
  EXPECT_DOUBLE_EQ(samples.preparation().input_scales()[0].std, std::sqrt(2.0));
  EXPECT_EQ(inputs_of(samples.train(), 0)[4], 0);  // padding stays zero
}

TEST(Classes, NumbersSortAsNumbersAndWeightsBalance) {
  std::string text = "x,c\n";
  for (int i = 0; i < 12; ++i) text += std::to_string(i) + "," + (i % 4 == 0 ? "10" : "9") + "\n";
  Recipe recipe = plain(1);
  recipe.inputs = {"x"};
  recipe.targets = {"c"};
  recipe.task = Task::Classification;
  recipe.balance_classes = true;
  const Samples samples = from_csv(text, recipe);
  EXPECT_EQ(samples.preparation().classes()[0], "9");
  std::vector<std::int64_t> all(12);
  std::iota(all.begin(), all.end(), 0);
  std::vector<double> weights(12);
  samples.train().gather(all, {.weights = weights.data()});
  EXPECT_DOUBLE_EQ(weights[0], 2);        // 3 of class 10: 12 / (2 * 3)
  EXPECT_DOUBLE_EQ(weights[1], 2.0 / 3);  // 9 of class 9
}

TEST(Weights, AreThoseOfTheTargetRow) {
  Recipe recipe = plain(2);
  recipe.weight = "w";
  const Samples samples = from_csv("v,w\n1,0.5\n2,1\n3,2\n", recipe);
  std::vector<double> weights(2);
  samples.train().gather(std::vector<std::int64_t>{0, 1}, {.weights = weights.data()});
  EXPECT_EQ(weights, (std::vector<double>{1, 2}));

  // Without a split the test part is the training's samples, without their weights.
  recipe.split = {.by = Split::By::None};
  const Samples whole = from_csv("v,w\n1,0.5\n2,1\n3,2\n", recipe);
  EXPECT_EQ(whole.test().size(), 2);
  EXPECT_TRUE(whole.train().has_weights());
  EXPECT_FALSE(whole.test().has_weights());
}

TEST(Inputs, AStarStandsForAllColumnsOfAPrefix) {
  Recipe recipe = plain(1);
  recipe.inputs = {"c*"};
  recipe.targets = {"c2"};
  const Samples samples = from_csv("c0,c1,d,c2\n1,2,3,4\n5,6,7,8\n", recipe);
  EXPECT_EQ(samples.preparation().recipe().inputs, (std::vector<std::string>{"c0", "c1"}));
}

TEST(Kept, ValuesAtTheTargets) {
  Recipe recipe = plain(1);
  recipe.horizon = 1;
  recipe.horizon_steps = 2;
  recipe.lags = {{"before", "v", 1}};
  recipe.kept = {"before", "w"};
  const Samples samples = from_csv("v,w\n1,10\n2,20\n3,30\n4,40\n", recipe);
  EXPECT_EQ(samples.kept(samples.train(), "before"), (std::vector<double>{1, 2, 2, 3}));
  EXPECT_EQ(samples.kept(samples.train(), "w"), (std::vector<double>{20, 30, 30, 40}));
}

// A lag no later than what is known when the forecast is made; a column as it is at the target.
TEST(Kept, WhatIsKnownWhenTheForecastIsMade) {
  std::string text = "v,w\n";
  for (int row = 0; row < 40; ++row) text += std::to_string(row) + "," + std::to_string(100 + row) + "\n";
  for (std::int64_t horizon = 0; horizon < 4; ++horizon)
    for (std::int64_t steps = 1; steps < 4; ++steps)
      for (std::int64_t lag = 1; lag < 7; ++lag) {
        Recipe recipe = plain(2);
        recipe.horizon = horizon;
        recipe.horizon_steps = steps;
        recipe.lags = {{"before", "v", lag}};
        recipe.kept = {"before", "w"};
        const Samples samples = from_csv(text, recipe);
        std::vector<double> lags, columns;
        for (const std::int64_t first_target : samples.target_rows(samples.train())) {
          const std::int64_t last_known = horizon == 0 ? first_target - 1 : first_target - horizon;
          for (std::int64_t t = 0; t < steps; ++t) {
            lags.push_back(static_cast<double>(std::min(first_target + t - lag, last_known)));
            columns.push_back(static_cast<double>(100 + first_target + t));
          }
        }
        EXPECT_EQ(samples.known(samples.train(), "before"), lags) << horizon << " " << steps << " " << lag;
        EXPECT_EQ(samples.known(samples.train(), "w"), columns) << horizon << " " << steps << " " << lag;
        ASSERT_FALSE(lags.empty());
      }
}

TEST(Kept, WindowsWhoseKnownValueIsMissingAreLeftOut) {
  Recipe recipe{.inputs = {"x"}, .targets = {"v"}, .length = 1, .horizon = 3};
  recipe.standardize = false;
  recipe.split.train = 1;
  recipe.split.validation = 0;
  recipe.missing = Fill::Drop;
  recipe.lags = {{"before", "v", 1}};
  recipe.kept = {"before"};
  const Samples samples = from_csv("x,v\n0,0\n1,1\n2,\n3,3\n4,4\n5,5\n6,6\n7,7\n8,8\n9,9\n", recipe);
  // Targets 3 rows later: not 3, whose lag is missing, nor 5, made at row 2.
  EXPECT_EQ(samples.target_rows(samples.train()), (std::vector<std::int64_t>{4, 6, 7, 8, 9}));
  EXPECT_EQ(samples.known(samples.train(), "before"), (std::vector<double>{1, 3, 4, 5, 6}));
}

// ---- preparations ----

struct Applied {
  std::vector<std::vector<double>> inputs;
  std::vector<std::int64_t> rows;
  std::vector<std::string> groups;
  std::vector<double> lengths;
};
Applied apply(const Preparation& preparation, RowSource& source, std::int64_t block) {
  Applied all;
  preparation.apply(source, block, [&](const PreparedBlock& b) {
    EXPECT_LE(b.inputs.shape()[0], block);
    const std::int64_t n = b.inputs.shape()[0], size = b.inputs.size() / n;
    for (std::int64_t i = 0; i < n; ++i) {
      std::vector<double> x;
      for (std::int64_t k = 0; k < size; ++k) x.push_back(b.inputs.at(i * size + k));
      all.inputs.push_back(std::move(x));
      all.lengths.push_back(b.lengths.at(i));
    }
    all.rows.insert(all.rows.end(), b.rows.begin(), b.rows.end());
    all.groups.insert(all.groups.end(), b.groups.begin(), b.groups.end());
  });
  return all;
}

// A table with everything: alternating groups, gaps, missing values, categories.
std::string random_table(std::uint64_t seed, int rows) {
  std::mt19937_64 rng(seed);
  std::string text = "when,g,a,b,sky,v\n";
  std::map<int, double> time;
  for (int i = 0; i < rows; ++i) {
    const int g = static_cast<int>(rng() % 3);
    time[g] += rng() % 12 == 0 ? 1800 : 900;
    const auto cell = [&] { return rng() % 9 == 0 ? std::string() : std::to_string(static_cast<int>(rng() % 1000)); };
    const char* const skies[] = {"clear", "fog", "rain"};
    const std::string a = cell(), b = cell();
    text += std::to_string(time[g]) + ",g" + std::to_string(g) + "," + a + "," + b + "," + skies[rng() % 3] + "," + a +
            "\n";
  }
  return text;
}

Recipe rich_recipe() {
  Recipe recipe{.inputs = {"a", "b", "a_before", "sky", "hour", "fourth"}, .targets = {"v"}, .length = 3};
  recipe.time = "when";
  recipe.group = "g";
  recipe.missing = Fill::Drop;
  recipe.missing_rules = {{{"b"}, Fill::Mean, true}, {{"a", "v"}, Fill::Forward, false}};
  recipe.lags = {{"a_before", "a", 2}};
  recipe.cycles = {{.name = "hour", .of = Cycle::Of::HourOfDay, .harmonics = 2},
                   {.name = "fourth", .rows = {.period = 4, .step = 2, .phase = 1}}};
  recipe.one_hots = {{"sky", true}};
  return recipe;
}

TEST(Preparation, ReadBackAndAppliedItGivesTheSamplesOfTraining) {
  for (std::uint64_t seed = 0; seed < 20; ++seed) {
    const std::string text = random_table(seed, 300);
    Recipe recipe = rich_recipe();
    recipe.dtype = seed % 2 == 0 ? DType::F32 : DType::F64;
    const Samples samples = from_csv(text, recipe);
    const std::string json = samples.preparation().json();
    const Preparation read = Preparation::parse(json, "p.json");
    EXPECT_EQ(read.json(), json);
    EXPECT_EQ(read.describe(), samples.preparation().describe());
    const Applied applied = apply(read, *open_csv_text(text, "new.csv"), 7);
    std::map<std::int64_t, std::size_t> by_row;
    for (std::size_t i = 0; i < applied.rows.size(); ++i) by_row[applied.rows[i]] = i;
    std::int64_t compared = 0;
    for (const Dataset* part : {&samples.train(), &samples.validation(), &samples.test()}) {
      const std::vector<std::int64_t> rows = samples.target_rows(*part);
      for (std::int64_t i = 0; i < part->size(); ++i, ++compared) {
        ASSERT_TRUE(by_row.contains(rows[static_cast<std::size_t>(i)])) << seed;
        EXPECT_EQ(applied.inputs[by_row[rows[static_cast<std::size_t>(i)]]], inputs_of(*part, i)) << seed;
      }
    }
    EXPECT_GT(compared, 30) << seed;
    EXPECT_TRUE(std::ranges::is_sorted(applied.rows));
  }
}

TEST(Preparation, SamplesByItAreItsOwnOnWhateverTable) {
  for (std::uint64_t seed = 0; seed < 10; ++seed) {
    const std::string text = random_table(seed, 300);
    const Samples trained = from_csv(text, rich_recipe());
    const Preparation read = Preparation::parse(trained.preparation().json(), "p.json");
    const Samples again(*open_csv_text(text, "t.csv"), read, rich_recipe().split);
    EXPECT_EQ(again.preparation().json(), trained.preparation().json());
    ASSERT_EQ(again.target_rows(again.test()), trained.target_rows(trained.test()));
    for (std::int64_t i = 0; i < again.test().size(); ++i)
      EXPECT_EQ(inputs_of(again.test(), i), inputs_of(trained.test(), i));
    // Without one of the categories, and with other numbers: all windows, prepared as predict() would.
    std::string other = random_table(seed + 1000, 200);
    for (std::size_t at; (at = other.find("fog")) != std::string::npos;) other.replace(at, 3, "rain");
    const Samples tested(*open_csv_text(other, "other.csv"), read);
    const Applied applied = apply(read, *open_csv_text(other, "other.csv"), 16);
    std::map<std::int64_t, std::size_t> by_row;
    for (std::size_t i = 0; i < applied.rows.size(); ++i) by_row[applied.rows[i]] = i;
    const std::vector<std::int64_t> rows = tested.target_rows(tested.test());
    EXPECT_GT(rows.size(), 30U) << seed;
    const Standardization scale = tested.target_scale();
    EXPECT_EQ(scale.mean, trained.target_scale().mean);
    for (std::size_t i = 0; i < rows.size(); ++i) {
      ASSERT_TRUE(by_row.contains(rows[i])) << seed;
      EXPECT_EQ(applied.inputs[by_row[rows[i]]], inputs_of(tested.test(), static_cast<std::int64_t>(i))) << seed;
    }
  }
}

TEST(Preparation, SamplesByItNeedAWindowOfTheTable) {
  Recipe recipe = plain(4);
  recipe.missing = Fill::Drop;
  const Samples trained = from_csv("v\n1\n2\n3\n4\n5\n6\n", recipe);
  const auto message = [&](const std::string& text) -> std::string {
    try {
      Samples(*open_csv_text(with_copy(text), "t.csv"), trained.preparation());
    } catch (const UserError& e) {
      return e.what();
    }
    return "";
  };
  EXPECT_NE(message("v\n1\n2\n").find("the table must be at least as long as a window"), std::string::npos);
  EXPECT_NE(message("v\n1\n\"\"\n3\n\"\"\n5\n").find("must hold at least one window"), std::string::npos);
  EXPECT_EQ(message("v\n1\n2\n3\n4\n"), "");
}

// Windows and their features again, written as plainly as can be.
TEST(Preparation, WindowsAreThoseOfTheDefinition) {
  for (std::uint64_t seed = 100; seed < 110; ++seed) {
    const std::string text = random_table(seed, 200);
    struct Row {
      double when, a, b;
      std::int64_t row;
    };
    std::map<std::string, std::vector<Row>> groups;
    std::unique_ptr<RowSource> source = open_csv_text(text, "t.csv");
    source->select({{"when", ColumnKind::Time},
                    {"g", ColumnKind::Text},
                    {"a", ColumnKind::Number, true},
                    {"b", ColumnKind::Number, true}});
    for (RowBlock block; source->next(block);)
      for (std::size_t i = 0; i < static_cast<std::size_t>(block.num_rows()); ++i)
        groups[source->labels(1)[static_cast<std::size_t>(block.columns[1][i])]].push_back(
            {block.columns[0][i], block.columns[2][i], block.columns[3][i],
             block.first_row + static_cast<std::int64_t>(i)});
    Recipe recipe{.inputs = {"b", "a_before"}, .targets = {"a"}, .missing = Fill::Drop, .length = 3, .horizon = 1};
    recipe.time = "when";
    recipe.group = "g";
    recipe.missing_rules = {{{"b"}, Fill::Forward, false}};
    recipe.lags = {{"a_before", "a", 2}};
    recipe.standardize = false;
    recipe.dtype = DType::F64;
    recipe.split.train = 1;
    recipe.split.validation = 0;
    std::map<std::int64_t, std::vector<double>> expected;  // by target row
    for (const auto& [name, rows] : groups) {
      const auto linked = [&](std::size_t from, std::size_t to) {
        for (std::size_t i = from + 1; i <= to; ++i)
          if (rows[i].when - rows[i - 1].when != 900) return false;
        return true;
      };
      for (std::size_t last = 2; last + 1 < rows.size(); ++last) {
        if (!linked(last - 2, last + 1) || std::isnan(rows[last + 1].a)) continue;
        std::vector<double> window;
        for (std::size_t i = last - 2; i <= last; ++i) {
          double b = rows[i].b;
          for (std::size_t k = i; std::isnan(b) && k > 0 && rows[k].when - rows[k - 1].when == 900;) b = rows[--k].b;
          double before = nan;
          for (const Row& r : rows)
            if (r.when == rows[i].when - 1800) before = r.a;
          window.insert(window.end(), {b, before});
        }
        if (std::ranges::none_of(window, [](double v) { return std::isnan(v); })) expected[rows[last + 1].row] = window;
      }
    }
    const Samples samples = from_csv(text, recipe);
    std::map<std::int64_t, std::vector<double>> found;
    const auto target_rows = samples.target_rows(samples.train());
    for (std::int64_t i = 0; i < samples.train().size(); ++i)
      found[target_rows[static_cast<std::size_t>(i)]] = inputs_of(samples.train(), i);
    EXPECT_GT(found.size(), 10u);
    EXPECT_EQ(found, expected) << seed;
  }
}

TEST(Preparation, SeriesWithoutTheirLabels) {
  const Samples samples = from_csv(series_text, series_recipe());
  const Preparation read = Preparation::parse(samples.preparation().json(), "p.json");
  const Applied applied = apply(read, *open_csv_text("y,x,id\n10,1,s1\n20,2,s1\n60,6,new\n", "n.csv"), 1);
  ASSERT_EQ(applied.inputs.size(), 2u);
  EXPECT_EQ(applied.inputs[0], inputs_of(samples.train(), 0));
  EXPECT_EQ(applied.inputs[1], inputs_of(samples.test(), 0));
  EXPECT_EQ(applied.groups, (std::vector<std::string>{"s1", "new"}));
  EXPECT_EQ(applied.lengths, (std::vector<double>{2, 1}));
}

TEST(Preparation, UnscaleGivesTheTargetsUnit) {
  Recipe recipe = plain(1);
  recipe.standardize = true;
  recipe.inputs = {"u"};
  recipe.targets = {"v", "w"};
  const Samples samples = from_csv("u,v,w\n0,1,10\n1,3,30\n", recipe);
  const Array y = samples.preparation().unscale(Array::from(std::vector<float>{-1, 1}, {1, 2}));
  EXPECT_DOUBLE_EQ(y.at(0), 1);
  EXPECT_DOUBLE_EQ(y.at(1), 30);
  EXPECT_EQ(samples.target_scale().std, 1);  // two targets have no unit together
  recipe.targets = {"w"};
  EXPECT_EQ(from_csv("u,w\n0,10\n1,30\n", recipe).target_scale().std, 10);
}

// ---- memory ----

TEST(Memory, RowsInAFileGiveTheSameSamples) {
  const std::string text = random_table(1, 3000);
  const Recipe recipe = rich_recipe();
  const Samples in_memory = from_csv(text, recipe);
  const Samples in_file(*open_csv_text(text, "t.csv"), recipe, {.bytes = 0});
  ASSERT_EQ(in_file.train().size(), in_memory.train().size());
  EXPECT_EQ(in_file.preparation().json(), in_memory.preparation().json());
  for (std::int64_t i = 0; i < in_file.train().size(); ++i) {
    EXPECT_EQ(inputs_of(in_file.train(), i), inputs_of(in_memory.train(), i));
    EXPECT_EQ(targets_of(in_file.train(), i), targets_of(in_memory.train(), i));
  }
}

}  // namespace
}  // namespace hotloop::data
