// Bad tables: each mistake gets the message that names its place and the remedy.
#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>

#include "hotloop/data.h"
#include "hotloop/error.h"
#include "hotloop/npy.h"

namespace hotloop::data {
namespace {

std::string message(const std::function<void()>& f) {
  try {
    f();
  } catch (const UserError& e) {
    return e.what();
  }
  return "accepted";
}

std::string csv(std::string_view text, const std::vector<std::string>& columns = {}) {
  return message([&] { parse_csv(text, "t.csv", columns); });
}

Recipe recipe_of(const std::function<void(Recipe&)>& change) {
  Recipe recipe{.inputs = {"v"}, .targets = {"v"}, .horizon = 1};
  recipe.split.train = 1;
  recipe.split.validation = 0;
  change(recipe);
  return recipe;
}

// The samples of a text by a recipe for the column "v" with one thing changed.
std::string samples(
    const std::string& text, const std::function<void(Recipe&)>& change = [](Recipe&) {}) {
  return message([&] { Samples(*open_csv_text(text, "t.csv"), recipe_of(change)); });
}

TEST(BadCsv, Encodings) {
  EXPECT_EQ(csv(std::string_view("\xFF\xFE"
                                 "a\0,\0b\0\n\0",
                                 10)),
            "[csv] t.csv must be text in UTF-8. Received: UTF-16 text. Try: iconv -f UTF-16 -t UTF-8.");
  EXPECT_EQ(
      csv(std::string_view("a\0,\0b\0\n\0"
                           "1\0",
                           10)),
      "[csv] t.csv must be text in UTF-8. Received: UTF-16 text without a mark. Try: iconv -f UTF-16LE -t UTF-8.");
  EXPECT_EQ(csv("a,h\xF6he\n1,2\n"),
            "[csv] t.csv must be text in UTF-8. Received: a column named 'h\\xF6he' at t.csv:1. "
            "Try: iconv -f LATIN1 -t UTF-8.");
  EXPECT_EQ(
      samples("v,g\n1,a\n2,\xE9t\xE9\n", [](Recipe& r) { r.group = "g"; }),
      "[csv] column 'g' must be text in UTF-8. Received: '\\xE9t\\xE9' at t.csv:3. Try: iconv -f LATIN1 -t UTF-8.");
}

TEST(BadCsv, FilesThatAreNoText) {
  EXPECT_EQ(csv("PK\x03\x04rest"),
            "[csv] t.csv must be text in UTF-8. Received: a zip archive or spreadsheet. "
            "Try: save the sheet as CSV in UTF-8.");
  EXPECT_EQ(csv("\x1F\x8B"), "[csv] t.csv must be text in UTF-8. Received: a gzip file. Try: gunzip it first.");
  EXPECT_EQ(csv("PAR1"),
            "[csv] t.csv must be text in UTF-8. Received: a Parquet file. Try: hl.data.Samples of the Python package "
            "reads it.");
}

TEST(BadCsv, AnotherSeparator) {
  EXPECT_EQ(csv("a;b\n1;2\n", {"b"}),
            "[csv] t.csv must have the column 'b'. Received: a header with 1 column. "
            "Try: the file seems to use ';': separator = \";\".");
  EXPECT_EQ(csv("a\tb\n1\t2\n", {"b"}),
            "[csv] t.csv must have the column 'b'. Received: a header with 1 column. "
            "Try: the file seems to use '\\t': separator = \"\\t\".");
  EXPECT_EQ(csv("a, m;b;c\n1,5;2;3\n", {"c"}),
            "[csv] t.csv must have the column 'c'. Received: a header with 2 columns. "
            "Try: the file seems to use ';': separator = \";\".");
  EXPECT_EQ(csv("a;b\n1,5;2\n"),
            "[csv] every row must have as many cells as the header, 1. Received: 2 at t.csv:2. "
            "Try: the file seems to use ';': separator = \";\".");
}

TEST(BadCsv, DecimalCommas) {
  EXPECT_EQ(csv("a\n\"1,5\"\n"),
            "[csv] every cell of column 'a' must be a finite number. Received: '1,5' at t.csv:2. "
            "Try: write it like 1005.50: a decimal point, and no separators or units.");
}

TEST(BadCsv, InfinityIsNeverMissing) {
  EXPECT_EQ(samples("v\n1\ninf\n", [](Recipe& r) { r.missing = Fill::Mean; }),
            "[csv] every cell of column 'v' must be a finite number. Received: 'inf' at t.csv:3. "
            "Try: add 'inf' to missing_values if it stands for a missing value, or mend the cell or remove the row.");
}

TEST(BadTimes, DatesInAnotherOrder) {
  const auto remedy = [](const std::string& day) {
    const std::string text = samples("v,t\n1," + day + "\n", [](Recipe& r) { r.time = "t"; });
    return text.substr(text.find(" Try: ") + 6);
  };
  EXPECT_EQ(remedy("31/12/2024"), "date_format = \"dd/mm/yyyy\".");
  EXPECT_EQ(remedy("12/31/2024 18:00"), "date_format = \"mm/dd/yyyy\".");
  EXPECT_EQ(remedy("01/02/2024"), "date_format = \"dd/mm/yyyy\" or \"mm/dd/yyyy\".");
}

TEST(BadTimes, CellsThatAreNone) {
  const auto with_time = [](Recipe& r) { r.time = "t"; };
  const std::string remedy = ". Try: ISO 8601 like 2014-01-31T18:30:00, or seconds since 1970.";
  for (const char* cell : {"31.01.14", "2014-02-30", "2014-01-01T25:00", "2014-01-01T1:00", "2014-01-01x", ""})
    EXPECT_EQ(samples("t,v\n2014-01-01,1\n" + std::string(cell) + ",2\n", with_time),
              "[csv] every cell of column 't' must be a time. Received: " +
                  (*cell == '\0' ? "an empty cell" : "'" + std::string(cell) + "'") + " at t.csv:3" + remedy);
}

TEST(BadTimes, UnsortedAndTwice) {
  const auto with_time = [](Recipe& r) { r.time = "t"; };
  EXPECT_EQ(
      samples("t,v\n2014-01-01,1\n2014-01-03,2\n2014-01-02,3\n", with_time),
      "[data] times 't' must increase from row to row. Received: 2014-01-02T00:00:00Z after 2014-01-03T00:00:00Z "
      "at t.csv:4. Try: sort the table by time, or name the column that tells series apart: group = \"<column>\".");
  EXPECT_EQ(samples("t,v\n2014-01-01,1\n2014-01-01,2\n", with_time),
            "[data] times 't' must increase from row to row. Received: 2014-01-01T00:00:00Z a second time at t.csv:3. "
            "Try: keep one row of each time, or name the column that tells them apart: group = \"<column>\".");
  EXPECT_EQ(
      samples("t,g,v\n1,a,1\n1,b,2\n1,a,3\n",
              [](Recipe& r) {
                r.time = "t";
                r.group = "g";
              }),
      "[data] times 't' must increase from row to row of a group. Received: 1970-01-01T00:00:01Z a second time at "
      "t.csv:4. Try: keep one row of each time and group.");
}

TEST(BadTimes, Steps) {
  EXPECT_EQ(samples("t,v\n1,1\n", [](Recipe& r) { r.time_step = "1 week"; }),
            "[data] time_step must be \"auto\", \"any\" or a number with a unit. Received: '1 week'. "
            "Try: \"1 h\", \"30 min\", \"15 s\" or \"1 d\".");
  EXPECT_EQ(samples("t,v\n0,1\n60,2\n120,3\n200,4\n260,5\n",
                    [](Recipe& r) {
                      r.time = "t";
                      r.length = 4;
                    }),
            "[window] the training part must hold at least one window. Received: none: windows of 4 defined rows "
            "and targets up to 1 row later; the longest stretch of such rows has 3, with 1 gap where the time step is "
            "not 1 min. "
            "Try: shorter windows, shorter lags, a larger [split] train, or time_step = \"any\".");
}

TEST(BadColumns, Constant) {
  EXPECT_EQ(samples("v,w\n0.1,1\n0.1,2\n0.1,3\n", [](Recipe& r) { r.targets = {"w"}; }),
            "[data] column 'v' must vary over the training rows. Received: 0.1 on every one of them. "
            "Try: leave it out of the inputs, or standardize = false.");
  EXPECT_EQ(samples("v,w\n1,5\n2,5\n3,5\n", [](Recipe& r) { r.targets = {"w"}; }),
            "[data] column 'w' must vary over the training rows. Received: 5 on every one of them. "
            "Try: another target, or a [split] whose training part has more of it.");
}

TEST(BadColumns, UnknownPrefixAndNames) {
  EXPECT_EQ(samples("v,w1\n1,2\n", [](Recipe& r) { r.inputs = {"x*"}; }),
            "[data] t.csv must have columns whose names begin with 'x'. Received: none. Try: did you mean 'v'?");
  EXPECT_EQ(samples("v\n1\n",
                    [](Recipe& r) {
                      r.inputs = {"v", "v"};
                    }),
            "[data] inputs must differ. Received: 'v' twice.");
  EXPECT_EQ(samples("v\n1\n",
                    [](Recipe& r) {
                      r.cycles = {{.name = "day", .of = Cycle::Of::HourOfDay}};
                      r.inputs = {"day"};
                    }),
            "[periodic] a cycle of the time needs the column of times. Received: none for 'day'. "
            "Try: [data] time = \"<column>\".");
}

TEST(BadColumns, UnknownCategory) {
  const auto one_hot = [](Recipe& r) {
    r.one_hots = {{"sky"}};
    r.inputs = {"sky"};
    r.split.train = 0.6;
  };
  EXPECT_EQ(samples("sky,v\nclear,1\nrain,2\nclear,3\nrains,4\nfog,5\n", one_hot),
            "[data] every category of column 'sky' must be one of the training rows. Received: 'rains' at t.csv:5. "
            "Try: did you mean 'rain'?, or unknown = \"zeros\".");
}

TEST(BadWindows, ImpossibleSizes) {
  EXPECT_EQ(
      samples("v\n1\n2\n", [](Recipe& r) { r.length = 3; }),
      "[window] the table must be at least as long as a window and its horizon. Received: 2 rows for length 3 and "
      "horizon 1. Try: a shorter length or horizon, or more rows.");
  EXPECT_EQ(samples("v\n1\n2\n", [](Recipe& r) { r.length = std::int64_t{1} << 62; }),
            "[window] length, stride and horizon must be numbers of rows that a table can have. Received: "
            "4611686018427387904. Try: up to 1099511627776.");
  EXPECT_EQ(samples("v\n1\n2\n", [](Recipe& r) { r.horizon_steps = 0; }),
            "[window] horizon_steps must be positive. Received: 0.");
}

TEST(BadSplits, UnknownGroupsAndLabels) {
  const auto by_group = [](Recipe& r) {
    r.group = "g";
    r.split.by = Split::By::Group;
    r.split.test_groups = {"JFQ"};
  };
  EXPECT_EQ(samples("g,v\nJFK,1\nLGA,2\n", by_group),
            "[split] every group must be one that the table has. Received: 'JFQ'. Try: did you mean 'JFK'?");
  const auto by_column = [](Recipe& r) {
    r.split.by = Split::By::Column;
    r.split.column = "g";
  };
  EXPECT_EQ(samples("g,v\ntrain,1\ntets,2\n", by_column),
            "[split] column 'g' must hold \"train\", \"validation\" and \"test\". Received: 'tets'. "
            "Try: did you mean 'test'?");
  EXPECT_EQ(samples("v\n1\n", [](Recipe& r) { r.split.by = Split::By::Group; }),
            "[split] a split by group needs the column of groups. Received: none. Try: [data] group = \"<column>\".");
}

TEST(BadSeries, RowsApartAndTargetsThatChange) {
  const auto series = [](Recipe& r) {
    r.sample = "id";
    r.targets = {"y"};
  };
  EXPECT_EQ(samples("id,v,y\na,1,1\nb,2,2\na,3,1\n", series),
            "[data] the rows of a sample must stand together. Received: sample 'a' again at t.csv:4. "
            "Try: sort the table by sample.");
  EXPECT_EQ(samples("id,v,y\na,1,1\na,2,2\n", series),
            "[data] the target must be the same on all rows of a sample. Received: another value at t.csv:3. "
            "Try: the column that tells samples apart.");
}

TEST(BadClasses, OneAloneAndOneUnseen) {
  const auto classes = [](Recipe& r) {
    r.inputs = {"v"};
    r.targets = {"c"};
    r.task = Task::Classification;
    r.split.train = 0.5;
  };
  EXPECT_EQ(samples("v,c\n1,a\n2,a\n3,b\n4,b\n", classes),
            "[data] the training part must hold at least two classes of 'c'. Received: 1. "
            "Try: another [split], or the column of the classes.");
  EXPECT_EQ(
      samples("v,c\n1,a\n2,b\n3,c\n4,b\n", classes),
      "[data] every class of 'c' must occur in the training part. Received: 'c' at t.csv:4. Try: another [split].");
}

TEST(BadWeights, Negative) {
  EXPECT_EQ(samples("v,w\n1,1\n2,-3\n", [](Recipe& r) { r.weight = "w"; }),
            "[data] weights 'w' must not be negative. Received: -3 at t.csv:3. Try: 0 for rows that must not count.");
}

// ---- .npy and .npz ----

std::string npy(const std::string& header, const std::string& data = "") {
  std::string bytes = std::string("\x93NUMPY\1\0", 8);
  bytes += static_cast<char>(header.size() & 255);
  bytes += static_cast<char>(header.size() >> 8);
  return bytes + header + data;
}
std::string load(const std::string& bytes) {
  return message([&] { io::parse_npy(bytes, "x.npy"); });
}
std::string dict(const std::string& descr, const std::string& order = "False", const std::string& shape = "(2,)") {
  return "{'descr': '" + descr + "', 'fortran_order': " + order + ", 'shape': " + shape + ", }\n";
}

TEST(BadNpy, DtypesAndOrder) {
  EXPECT_EQ(load(npy(dict(">f8"))),
            "[npy] x.npy: the array must be little-endian. Received: dtype '>f8'. "
            "Try: array.astype(array.dtype.newbyteorder('<')).");
  EXPECT_EQ(load(npy(dict("|O"))),
            "[npy] x.npy: the array must be of numbers. Received: Python objects. Try: array.astype('float64').");
  EXPECT_EQ(load(npy(dict("<U5"))),
            "[npy] x.npy: the array must be of numbers. Received: texts (dtype '<U5'). Try: save the table as CSV.");
  EXPECT_EQ(load(npy(dict("<c16"))),
            "[npy] x.npy: the array must be of floats or of integers that fit i64. Received: dtype '<c16'. "
            "Try: array.astype('float64').");
  EXPECT_EQ(load(npy(dict("<f8", "True", "(2, 3)"))),
            "[npy] x.npy: the array must be in C order. Received: Fortran order. Try: numpy.ascontiguousarray(array).");
}

TEST(BadNpy, CutOffAndLies) {
  EXPECT_EQ(load(npy(dict("<f8"), std::string(15, '\0'))),
            "[npy] x.npy: an array of shape (2,) must hold 16 bytes. Received: 15: the file is cut off. "
            "Try: numpy.save the array again.");
  EXPECT_EQ(load(npy(dict("<f8"), std::string(17, '\0'))),
            "[npy] x.npy: an array of shape (2,) must hold 16 bytes. Received: 17: more follows. "
            "Try: numpy.save the array again.");
  EXPECT_EQ(load(npy(dict("<f8", "False", "(4611686018427387904, 8)"))),
            "[npy] x.npy: the array must be one that fits a file. Received: shape (4611686018427387904, 8). "
            "Try: numpy.save the array again.");
  EXPECT_EQ(load("PNG"),
            "[npy] x.npy: the file must be .npy. Received: another file. Try: numpy.save the array again.");
  EXPECT_EQ(
      load(npy(dict("<f8")).substr(0, 40)),
      "[npy] x.npy: the file must be whole. Received: an end within the header. Try: numpy.save the array again.");
  EXPECT_EQ(load(npy("{'descr': '<f8', 'shape': (2,), }")),
            "[npy] x.npy: the header must be a dictionary of descr, fortran_order and shape. Received: ''. "
            "Try: numpy.save the array again.");
}

TEST(BadNpz, Archives) {
  const auto load_archive = [](const std::string& bytes) { return message([&] { io::parse_npz(bytes, "x.npz"); }); };
  EXPECT_EQ(load_archive("text"),
            "[npz] x.npz: the file must be an .npz archive. Received: another file. "
            "Try: numpy.savez the arrays again.");
  EXPECT_EQ(load_archive("PK\x03\x04"),
            "[npz] x.npz: the archive must be whole. Received: one that is damaged or cut "
            "off. Try: numpy.savez the arrays again.");
}

TEST(BadPreparation, Texts) {
  const auto parse = [](const std::string& text) { return message([&] { Preparation::parse(text, "p.json"); }); };
  EXPECT_EQ(parse("not"),
            "[preparation] p.json must be JSON. Received: another text. Try: train again: the file is "
            "damaged.");
  constexpr std::size_t deep = 200000;  // as many would overflow the stack where they are copied or printed
  EXPECT_EQ(parse(std::string(deep, '[') + std::string(deep, ']')), parse("not"));
  EXPECT_EQ(parse("{}"),
            "[preparation] p.json: it must have 'format'. Received: {}. Try: train again: the file does not "
            "hold together.");
  const std::string good =
      Samples(*open_csv_text("v\n1\n2\n3\n4\n", "t.csv"), recipe_of([](Recipe&) {})).preparation().json();
  std::string bad = good;
  bad.replace(bad.find("\"v\""), 3, "\"w\"");
  EXPECT_NE(parse(bad).find("must fit together: inputs, scales and classes"), std::string::npos) << parse(bad);
}

TEST(BadMemory, AFolderThatIsNotThere) {
  EXPECT_EQ(message([] {
              Samples(*open_csv_text("v\n1\n2\n", "t.csv"), recipe_of([](Recipe&) {}),
                      {.bytes = 0, .folder = "/nonexistent"});
            }),
            "[data] a folder for temporary files must be writable. Received: /nonexistent (No such file or directory). "
            "Try: TMPDIR=<a folder with room>, or a larger [data] memory_mb.");
}

}  // namespace
}  // namespace hotloop::data
