// A preparation applied to rows against the samples that training saw, on random tables; rows kept in a file.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <random>

#include "data_tables.h"
#include "hotloop/error.h"

namespace hotloop::data {
namespace {

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
      for (std::size_t i = 0; i < static_cast<std::size_t>(block.num_rows); ++i)
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
