// Groups, gaps, missing values, one-hot columns, splits and series, against definitions written out here on small and random
// tables.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <numeric>
#include <set>

#include "data/split.h"
#include "data_tables.h"
#include "hotloop/error.h"

namespace hotloop::data {
namespace {

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

TEST(Groups, ManyWindowsThatAreLeftOutAreTold) {
  Recipe recipe = plain(5);
  recipe.time = "when";
  recipe.group = "place";
  EXPECT_EQ(from_csv(two_groups(), recipe).describe(),
            "8 training, 0 validation and 0 test windows of 5 rows by 1 input; 4 more hold a gap or a missing value");
  recipe.length = 3;  // two of sixteen
  EXPECT_EQ(from_csv(two_groups(), recipe).describe(),
            "14 training, 0 validation and 0 test windows of 3 rows by 1 input");
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

}  // namespace
}  // namespace hotloop::data
