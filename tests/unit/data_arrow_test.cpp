// Tables through the Arrow C stream interface, made by hand here: layouts, offsets, missing values, ownership, refusals.
#include <cmath>
#include <cstring>
#include <deque>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "hotloop/arrow.h"
#include "hotloop/data.h"
#include "hotloop/error.h"

namespace hotloop {
namespace {

int num_live = 0;  // structures that were handed out and not released

template <class T> void release(T* structure) {
  structure->release = nullptr;
  --num_live;
}

struct Column {
  std::string name, format;
  std::int64_t offset = 0;
  std::vector<const void*> buffers;  // validity, then the format's
  const Column* dictionary = nullptr;
  std::int64_t length = 0;  // of a dictionary
};

// One batch of `rows` rows.
struct TestStream {
  std::vector<Column> columns;
  std::int64_t rows;
  int fail = 0;
  bool done = false;
  std::deque<ArrowSchema> schemas = {};
  std::deque<ArrowArray> arrays = {};
  std::vector<ArrowSchema*> schema_children = {};
  std::vector<ArrowArray*> array_children = {};

  ArrowSchema* schema_of(const Column& c) {
    schemas.push_back({c.format.c_str(), c.name.c_str(), nullptr, 2, 0, nullptr, nullptr, nullptr, nullptr});
    ArrowSchema* made = &schemas.back();
    if (c.dictionary != nullptr) made->dictionary = schema_of(*c.dictionary);
    return made;
  }
  ArrowArray* array_of(const Column& c, std::int64_t length) {
    arrays.push_back({length, -1, c.offset, static_cast<std::int64_t>(c.buffers.size()), 0,
                      const_cast<const void**>(c.buffers.data()), nullptr, nullptr, nullptr, nullptr});
    ArrowArray* made = &arrays.back();
    if (c.dictionary != nullptr) made->dictionary = array_of(*c.dictionary, c.dictionary->length);
    return made;
  }

  ArrowArrayStream stream() {
    ++num_live;
    return {[](ArrowArrayStream* s, ArrowSchema* out) {
              auto& self = *static_cast<TestStream*>(s->private_data);
              for (const Column& c : self.columns) self.schema_children.push_back(self.schema_of(c));
              *out = {"+s",
                      "",
                      nullptr,
                      0,
                      static_cast<std::int64_t>(self.columns.size()),
                      self.schema_children.data(),
                      nullptr,
                      release<ArrowSchema>,
                      nullptr};
              ++num_live;
              return 0;
            },
            [](ArrowArrayStream* s, ArrowArray* out) {
              auto& self = *static_cast<TestStream*>(s->private_data);
              if (self.fail) return self.fail;
              std::memset(out, 0, sizeof *out);
              if (self.done) return 0;
              self.done = true;
              for (const Column& c : self.columns) self.array_children.push_back(self.array_of(c, self.rows));
              static const void* no_validity[] = {nullptr};
              *out = {self.rows,
                      0,
                      0,
                      1,
                      static_cast<std::int64_t>(self.columns.size()),
                      no_validity,
                      self.array_children.data(),
                      nullptr,
                      release<ArrowArray>,
                      nullptr};
              ++num_live;
              return 0;
            },
            [](ArrowArrayStream*) -> const char* { return "the disk is gone"; },
            [](ArrowArrayStream* s) { release(s); }, this};
  }
};

using data::ColumnKind;

std::vector<std::vector<double>> read(TestStream& test, const std::vector<data::ColumnRequest>& requests,
                                      std::vector<std::string>* labels = nullptr) {
  ArrowArrayStream stream = test.stream();
  const auto source = data::open_arrow(&stream);
  EXPECT_EQ(stream.release, nullptr) << "the stream is the source's now";
  source->select(requests);
  data::RowBlock block;
  EXPECT_TRUE(source->next(block));
  const auto columns = block.columns;
  if (labels != nullptr) labels->assign(source->labels(0).begin(), source->labels(0).end());
  EXPECT_FALSE(source->next(block));
  return columns;
}

std::string refusal(TestStream test, const std::vector<data::ColumnRequest>& requests) {
  try {
    read(test, requests);
  } catch (const UserError& error) {
    return error.what();
  }
  return "";
}

const std::int32_t integers[] = {99, 7, -3, 5};
const std::uint8_t second_is_null[] = {0b1011};  // of four with an offset of one: rows 0, 2
const double doubles[] = {0.5, NAN, 2};
const std::uint8_t bits[] = {0b101};
const std::int64_t milliseconds[] = {1500, -500, 86400000};
const std::int32_t days[] = {0, 1, -1};
const std::int32_t ends[] = {0, 2, 2, 5};
const char letters[] = "abxyz";
const std::int8_t codes[] = {1, 0, 1};
const std::int64_t word_ends[] = {0, 3, 6};
const char words[] = "redtan";
const std::int64_t large[] = {9007199254740993, 9007199254740992, 1};
const std::uint16_t halves[] = {0x3C00, 0xC100, 0x0001};

Column dictionary_values() { return {"", "U", 0, {nullptr, word_ends, words}, nullptr, 2}; }

TEST(Arrow, NumbersOfEveryLayout) {
  TestStream test{{{"i", "i", 1, {second_is_null, integers}},
                   {"d", "g", 0, {nullptr, doubles}},
                   {"b", "b", 0, {nullptr, bits}},
                   {"h", "e", 0, {nullptr, halves}}},
                  3};
  const auto columns = read(test, {{"i", ColumnKind::Number, true},
                                   {"d", ColumnKind::Number, true},
                                   {"b", ColumnKind::Number},
                                   {"h", ColumnKind::Number}});
  EXPECT_EQ(columns[0][0], 7);
  EXPECT_TRUE(std::isnan(columns[0][1]));
  EXPECT_EQ(columns[0][2], 5);
  EXPECT_TRUE(std::isnan(columns[1][1]));
  EXPECT_EQ(columns[2], (std::vector<double>{1, 0, 1}));
  EXPECT_EQ(columns[3], (std::vector<double>{1, -2.5, std::ldexp(1.0, -24)}));
  EXPECT_EQ(num_live, 0);
}

TEST(Arrow, TimesAreSeconds) {
  TestStream test{{{"t", "tsm:UTC", 0, {nullptr, milliseconds}}, {"d", "tdD", 0, {nullptr, days}}}, 3};
  const auto columns = read(test, {{"t", ColumnKind::Time}, {"d", ColumnKind::Time}});
  EXPECT_EQ(columns[0], (std::vector<double>{1.5, -0.5, 86400}));
  EXPECT_EQ(columns[1], (std::vector<double>{0, 86400, -86400}));
}

TEST(Arrow, TextsOfEveryLayout) {
  std::vector<std::string> labels;
  TestStream plain{{{"s", "u", 0, {nullptr, ends, letters}}}, 3};
  EXPECT_EQ(read(plain, {{"s", ColumnKind::Text}}, &labels)[0], (std::vector<double>{0, 1, 2}));
  EXPECT_EQ(labels, (std::vector<std::string>{"ab", "", "xyz"}));

  const Column values = dictionary_values();
  TestStream coded{{{"s", "c", 0, {nullptr, codes}, &values}}, 3};
  EXPECT_EQ(read(coded, {{"s", ColumnKind::Text}}, &labels)[0], (std::vector<double>{0, 1, 0}));
  EXPECT_EQ(labels, (std::vector<std::string>{"tan", "red"}));

  const std::string far = "longer than twelve bytes";
  unsigned char views[2][16] = {};
  const std::int32_t lengths[] = {3, static_cast<std::int32_t>(far.size())};
  std::memcpy(views[0], &lengths[0], 4);
  std::memcpy(views[0] + 4, "abc", 3);
  std::memcpy(views[1], &lengths[1], 4);  // buffer 0, offset 0
  TestStream viewed{{{"s", "vu", 0, {nullptr, views, far.data()}}}, 2};
  read(viewed, {{"s", ColumnKind::Text}}, &labels);
  EXPECT_EQ(labels, (std::vector<std::string>{"abc", far}));

  // Two customers whose numbers are one double.
  TestStream numbers{{{"id", "l", 0, {nullptr, large}}}, 3};
  EXPECT_EQ(read(numbers, {{"id", ColumnKind::Text}}, &labels)[0], (std::vector<double>{0, 1, 2}));
  EXPECT_EQ(labels[0], "9007199254740993");
}

TEST(Arrow, Refusals) {
  const TestStream table{{{"i", "i", 1, {second_is_null, integers}},
                          {"d", "d:10,2", 0, {nullptr, doubles}},
                          {"s", "u", 0, {nullptr, ends, letters}}},
                         3};
  EXPECT_EQ(refusal(table, {{"i", ColumnKind::Number}}),
            "[arrow] every value of column 'i' must be there. Received: null in row 1 of the table. Try: mend the "
            "value, or missing "
            "= \"drop\", \"forward\" or \"mean\".");
  EXPECT_NE(refusal(table, {{"d", ColumnKind::Number}}).find("Received: a decimal. Try: cast it to float64"),
            std::string::npos);
  EXPECT_NE(refusal(table, {{"s", ColumnKind::Number}}).find("column 's' must hold numbers. Received: texts"),
            std::string::npos);
  EXPECT_NE(refusal(table, {{"s", ColumnKind::Time}}).find("'ab' in row 0 of the table"), std::string::npos);
  EXPECT_NE(refusal(table, {{"sx", ColumnKind::Text}}).find("did you mean 's'"), std::string::npos);
  TestStream broken = table;
  broken.fail = 5;
  EXPECT_NE(refusal(broken, {{"i", ColumnKind::Number}}).find("the disk is gone"), std::string::npos);
  EXPECT_EQ(num_live, 0);
}

}  // namespace
}  // namespace hotloop
