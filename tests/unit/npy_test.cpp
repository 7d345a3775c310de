// .npy and .npz files as NumPy wrote them (fuzz/corpus, scripts/make_fuzz_corpus.py), as arrays and as tables.
#include "hotloop/npy.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <limits>
#include <tuple>

#include "hotloop/data.h"
#include "hotloop/error.h"
#include "test_dir.h"

namespace hotloop::io {
namespace {

using data::ColumnKind;

std::filesystem::path corpus(const std::string& name) {
  return std::filesystem::path(testing::test_dir()).parent_path() / "fuzz" / "corpus" / name;
}

TEST(Npy, ReadsNumPysDtypes) {
  const std::vector<std::tuple<const char*, DType, Shape>> files = {
      {"f8", DType::F64, {2, 3}},    {"f4", DType::F32, {4}}, {"f2", DType::F32, {3}}, {"i8", DType::I64, {2, 2}},
      {"i4", DType::I32, {1, 2, 3}}, {"i2", DType::I32, {3}}, {"i1", DType::I32, {2}}, {"u4", DType::U32, {2}},
      {"u2", DType::I32, {2}},       {"u1", DType::I32, {3}}, {"b1", DType::Bool, {3}}};
  for (const auto& [name, dtype, shape] : files) {
    const Array array = load_npy(corpus(std::string("npy/") + name));
    EXPECT_EQ(array.type(), (ValueType{dtype, shape})) << name;
    for (std::int64_t i = 0; i < array.size(); ++i)
      EXPECT_EQ(array.at(i), static_cast<double>(dtype == DType::Bool ? i % 2 : i)) << name;
  }
  EXPECT_EQ(load_npy(corpus("npy/scalar")).at(0), 3);
  EXPECT_EQ(load_npy(corpus("npy/empty")).shape(), (Shape{0, 3}));
}

TEST(Npy, EveryHalfIsItsFloat) {
  std::string data;
  for (int i = 0; i < 65536; ++i) data += {static_cast<char>(i & 255), static_cast<char>(i >> 8)};
  const std::string header = "{'descr': '<f2', 'fortran_order': False, 'shape': (65536,), }\n";
  std::string file("\x93NUMPY\1\0", 8);
  file += {static_cast<char>(header.size()), '\0'};
  file += header;
  file += data;
  const Array halves = parse_npy(file, "halves");
  // IEEE 754: sign, 5 bits of exponent with bias 15, 10 of fraction.
  for (int i = 0; i < 65536; ++i) {
    const int exponent = i >> 10 & 31, fraction = i & 1023;
    double expected = exponent == 0 ? std::ldexp(fraction, -24) : std::ldexp(1024 + fraction, exponent - 25);
    if (exponent == 31) expected = fraction == 0 ? std::numeric_limits<double>::infinity() : std::nan("");
    if ((i & 0x8000) != 0) expected = -expected;
    if (std::isnan(expected))
      EXPECT_TRUE(std::isnan(halves.at(i))) << i;
    else
      EXPECT_EQ(halves.at(i), expected) << i;
  }
}

TEST(Npy, WhatIsWrittenReadsBackAndIsNumPysOwnHeader) {
  for (const char* name : {"f8", "f4", "i8", "i4", "u4", "b1", "scalar", "empty"}) {
    std::ifstream file(corpus(std::string("npy/") + name), std::ios::binary);
    const std::string bytes((std::istreambuf_iterator<char>(file)), {});
    EXPECT_EQ(print_npy(parse_npy(bytes, name)), bytes) << name;
  }
}

TEST(Npz, StoredAndDeflated) {
  for (const char* name : {"npz/stored", "npz/deflated"}) {
    const auto arrays = load_npz(corpus(name));
    ASSERT_EQ(arrays.size(), 3u);
    EXPECT_EQ(arrays[0].first, "x");
    EXPECT_EQ(arrays[0].second.type().str(), "f32[2,4,3]");
    EXPECT_EQ(arrays[0].second.at(23), 23);
    EXPECT_EQ(arrays[2].first, "lengths");
  }
}

class TemporaryFile {
 public:
  TemporaryFile(const std::string& suffix, const std::string& from)
      : path_(std::filesystem::temp_directory_path() / ("npy_test." + std::to_string(::getpid()) + suffix)) {
    std::filesystem::copy_file(from, path_, std::filesystem::copy_options::overwrite_existing);
  }
  ~TemporaryFile() { std::filesystem::remove(path_); }
  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
};

TEST(NpzSource, SamplesOfStepsAreSeries) {
  const TemporaryFile file(".npz", corpus("npz/stored"));
  data::Recipe recipe{.inputs = {"x*"}, .targets = {"y"}, .sample = "sample", .task = data::Task::Classification};
  recipe.split.train = 1;
  recipe.split.validation = 0;
  recipe.standardize = false;
  const data::Samples samples(*data::open_file(file.path()), recipe);
  EXPECT_EQ(samples.preparation().input_names(), (std::vector<std::string>{"x0", "x1", "x2"}));
  const data::Dataset& train = samples.train();
  ASSERT_EQ(train.size(), 2);
  Array x(DType::F32, {2, 4, 3});
  std::int32_t lengths[2];
  train.gather(std::vector<std::int64_t>{0, 1}, {.inputs = x.raw(), .lengths = lengths});
  EXPECT_EQ(lengths[0], 4);
  EXPECT_EQ(lengths[1], 2);
  for (std::int64_t i = 0; i < 24; ++i) EXPECT_EQ(x.at(i), i < 18 ? static_cast<double>(i) : 0);
}

TEST(NpySource, RowsByColumnsIsATable) {
  const TemporaryFile file(".npy", corpus("npy/f8"));
  std::unique_ptr<data::RowSource> source = data::open_file(file.path());
  EXPECT_EQ(source->column_names(), (std::vector<std::string>{"0", "1", "2"}));
  source->select({{"2"}, {"0", data::ColumnKind::Text}});
  data::RowBlock block;
  ASSERT_TRUE(source->next(block));
  EXPECT_EQ(block.columns[0], (std::vector<double>{2, 5}));
  EXPECT_EQ(source->labels(1)[1], "3");
  EXPECT_FALSE(source->next(block));
}

// As a cell of CSV has them: what was trained on one kind of table reads the other.
TEST(NpySource, WholeNumbersAreLabelsWithAllTheirDigits) {
  const std::int64_t large = (std::int64_t{1} << 53) + 1;
  const std::filesystem::path path =
      std::filesystem::temp_directory_path() / ("hotloop_labels_" + std::to_string(::getpid()) + ".npy");
  const auto labels = [&](const Array& array) {
    save_npy(path, array);
    const std::unique_ptr<data::RowSource> source = data::open_file(path);
    source->select({{"0", ColumnKind::Text}});
    data::RowBlock block;
    EXPECT_TRUE(source->next(block));
    std::filesystem::remove(path);
    return std::vector<std::string>(source->labels(0).begin(), source->labels(0).end());
  };
  EXPECT_EQ(labels(Array::from<std::int64_t>({100000, large, large + 1}, {3, 1})),
            (std::vector<std::string>{"100000", "9007199254740993", "9007199254740994"}));
  EXPECT_EQ(labels(Array::from<double>({100000, 1e15, -0.0, 0.5, 1e-5}, {5, 1})),
            (std::vector<std::string>{"100000", "1000000000000000", "0", "0.5", "1e-05"}));
}

TEST(NpySource, TimesAreInTheTablesUnit) {
  const std::filesystem::path path =
      std::filesystem::temp_directory_path() / ("hotloop_times_" + std::to_string(::getpid()) + ".npy");
  save_npy(path, Array::from<double>({1704067200000, 1704067200500}, {2, 1}));
  const auto read = [&](const data::CsvOptions& options) {
    const std::unique_ptr<data::RowSource> source = data::open_file(path, options);
    source->select({{"0", ColumnKind::Time}});
    data::RowBlock block;
    EXPECT_TRUE(source->next(block));
    return block.columns[0];
  };
  EXPECT_EQ(read({.time_unit = 1e-3}), (std::vector<double>{1704067200, 1704067200.5}));
  EXPECT_THROW(read({}), UserError);
  std::filesystem::remove(path);
}

TEST(Npy, RefusesToWriteAnUndefinedArray) {
  try {
    print_npy(Array());
    FAIL();
  } catch (const UserError& e) {
    EXPECT_STREQ(e.what(), "[npy] an array must be defined. Received: Array(), which has no memory.");
  }
}

}  // namespace
}  // namespace hotloop::io
