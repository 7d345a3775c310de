// The CSV reader: what it accepts, and that every refusal names the place.
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <fstream>

#include "hotloop/data.h"
#include "hotloop/error.h"

namespace hotloop::data {
namespace {

std::string message(std::string_view text, const std::vector<std::string>& columns = {}) {
  try {
    parse_csv(text, "t.csv", columns);
  } catch (const UserError& e) {
    return e.what();
  }
  return "accepted";
}

std::vector<double> column(const Table& table, const std::string& name) {
  return {table[name].begin(), table[name].end()};
}

TEST(Csv, ReadsNumbersByName) {
  const Table table = parse_csv("a,b,c\n1,2.5,-3e-2\n+4,.5,1E3\n", "t.csv");
  EXPECT_EQ(table.num_rows(), 2);
  EXPECT_EQ(table.names(), (std::vector<std::string>{"a", "b", "c"}));
  EXPECT_EQ(column(table, "a"), (std::vector<double>{1, 4}));
  EXPECT_EQ(column(table, "b"), (std::vector<double>{2.5, 0.5}));
  EXPECT_EQ(column(table, "c"), (std::vector<double>{-0.03, 1000}));
}

TEST(Csv, ReadsTheNearestDouble) {
  const Table table = parse_csv("a\n0.1\n179769313486231570000e288\n9007199254740993\n5e-324\n", "t.csv");
  EXPECT_EQ(column(table, "a"), (std::vector<double>{0.1, 1.7976931348623157e308, 9007199254740992.0, 5e-324}));
}

TEST(Csv, TakesByteOrderMarkCrLfQuotesAndBlankLines) {
  const Table table = parse_csv("\xEF\xBB\xBF\"a\",\"say \"\"b\"\"\"\r\n\r\n \"x\" , 2\r\n1,3", "t.csv", {"say \"b\""});
  EXPECT_EQ(column(table, "say \"b\""), (std::vector<double>{2, 3}));
}

TEST(Csv, ReadsOnlyTheColumnsAskedFor) {
  const Table table = parse_csv("when,load\n2014-01-01,3\n2014-01-02,4\n", "t.csv", {"load"});
  EXPECT_EQ(table.names(), std::vector<std::string>{"load"});
}

TEST(Csv, OtherSeparators) {
  EXPECT_EQ(column(parse_csv("a;b\n1;2\n", "t.csv", {}, ';'), "b"), std::vector<double>{2});
}

TEST(Csv, MissingColumn) {
  EXPECT_EQ(message("Demand,Temperature\n1,2\n", {"Temprature"}),
            "[csv] t.csv must have the column 'Temprature'. Received: a header with 2 columns. "
            "Try: did you mean 'Temperature'?");
}

TEST(Csv, RaggedRow) {
  EXPECT_EQ(message("a,b\n1,2\n3\n"),
            "[csv] every row must have as many cells as the header, 2. Received: 1 at t.csv:3.");
  EXPECT_EQ(message("a,b\n1,2\n\n3,4,5\n"),
            "[csv] every row must have as many cells as the header, 2. Received: 3 at t.csv:4.");
}

TEST(Csv, TextAndUndefinedNumbers) {
  const std::string remedy =
      ". Try: add 'x1' to missing_values if it stands for a missing value, with missing = \"drop\", \"forward\" or "
      "\"mean\", or mend the "
      "cell or remove the row, or leave the column out, or one_hot for a column of words.";
  EXPECT_EQ(message("a,b\n1,2\n3,x1\n"),
            "[csv] every cell of column 'b' must be a finite number. Received: 'x1' at t.csv:3" + remedy);
  EXPECT_EQ(
      message("a,b\n1,\n"),
      "[csv] every cell of column 'b' must be a finite number. Received: an empty cell at t.csv:2. Try: mend the cell "
      "or remove the row, or leave the column out, or missing = \"drop\", \"forward\" or \"mean\".");
  for (const char* cell : {"nan", "NaN", "NA", "inf", "-inf", "1e999", "1.5.2", "1 2", "0x10", "++1", "\"1\"\"\""})
    EXPECT_NE(message(std::string("b\n") + cell + "\n").find("must be a finite number"), std::string::npos) << cell;
}

TEST(Csv, EmptyFiles) {
  EXPECT_EQ(message(""), "[csv] a table needs a header line and at least one row. Received: an empty file, t.csv.");
  EXPECT_EQ(message("\n\n"), "[csv] a table needs a header line and at least one row. Received: an empty file, t.csv.");
  EXPECT_EQ(message("a,b\n"),
            "[csv] a table needs a header line and at least one row. Received: no row after the header of t.csv.");
}

TEST(Csv, QuotesThatDoNotClose) {
  EXPECT_EQ(message("a\n\"1\n2\n"),
            "[csv] a quoted cell must end with a quote. Received: the end of the file in a cell opened at t.csv:2. "
            "Try: close it, or write \"\" for a quote within a cell.");
  EXPECT_EQ(message("a\n\"1\"2\n"),
            "[csv] a closing quote must end the cell. Received: more text after it at t.csv:2. "
            "Try: write \"\" for a quote within the cell.");
}

TEST(Csv, NamesTwice) {
  EXPECT_EQ(message("a,b,a\n1,2,3\n"), "[csv] column names must differ. Received: 'a' twice at t.csv:1.");
}

TEST(Csv, LineNumbersCountNewlinesInQuotes) {
  EXPECT_NE(message("a,b\n1,\"x\ny\"\n3\n", {"a"}).find("t.csv:4"), std::string::npos);
}

TEST(Csv, FileThatIsNotThere) {
  try {
    read_csv("/nonexistent/t.csv");
    FAIL();
  } catch (const UserError& e) {
    EXPECT_STREQ(e.what(),
                 "[csv] the file must be readable. Received: /nonexistent/t.csv (No such file or directory). "
                 "Try: check the path; relative ones start at the working directory.");
  }
}

// Of several columns such a line is none.
TEST(Csv, AnEmptyLineOfOneColumnIsAnEmptyCell) {
  const std::unique_ptr<RowSource> source = open_csv_text("a\n1\n\n3\r\n\r\n\n", "t.csv");
  source->select({{.name = "a", .may_be_missing = true}});
  RowBlock block;
  ASSERT_TRUE(source->next(block));
  ASSERT_EQ(block.num_rows, 5);
  for (const std::size_t row : {1, 3, 4}) EXPECT_TRUE(std::isnan(block.columns[0][row])) << row;
  EXPECT_EQ(block.columns[0][2], 3);
  EXPECT_EQ(block.lines, (std::vector<std::int64_t>{2, 3, 4, 5, 6}));
  EXPECT_FALSE(source->next(block));
  EXPECT_EQ(parse_csv("a,b\n1,2\n\n3,4\n", "t.csv").num_rows(), 2);
}

TEST(Csv, LinesThatEndInCrAlone) {
  EXPECT_EQ(message("a,b\r1,2\r3,4\r"),
            "[csv] t.csv must have lines that end in LF or CR LF. Received: lines that end in CR alone. "
            "Try: tr '\\r' '\\n' < t.csv > lines.csv.");
}

TEST(Csv, AQuoteAfterABlank) {
  EXPECT_NE(message("a,b\n1, \"0.84\"\n").find("Try: no blank before the quote, or no quotes around a number."),
            std::string::npos);
}

std::string refused_times(const std::string& cells, const CsvOptions& options = {}) {
  const std::unique_ptr<RowSource> source = open_csv_text("t\n" + cells, "t.csv", options);
  source->select({{.name = "t", .kind = ColumnKind::Time}});
  try {
    for (RowBlock block; source->next(block);) {
    }
  } catch (const UserError& e) {
    return e.what();
  }
  return "accepted";
}

TEST(Csv, TimesThatCannotBeMeant) {
  EXPECT_EQ(refused_times("1704067200000\n"),
            "[csv] every time of column 't' must lie in the years 0 to 9999. "
            "Received: 1704067200000 at t.csv:2, which is 1.70407e+12 s since 1970. Try: time_unit = \"ms\".");
  EXPECT_EQ(refused_times("1704067200000\n", {.time_unit = 1e-3}), "accepted");
  EXPECT_NE(refused_times("1704067200000000000\n").find("time_unit = \"ns\""), std::string::npos);
  EXPECT_EQ(refused_times("20240130\n20240131\n20240201\n"),
            "[csv] times of column 't' that are numbers must be a time since 1970. "
            "Received: dates without separators, 20240201 say. "
            "Try: 2024-02-01, as pandas.to_datetime(column, format=\"%Y%m%d\") writes them.");
  // A counter of seconds that passes through such numbers, and one that only begins with them.
  EXPECT_EQ(refused_times("20240131\n20240132\n"), "accepted");
  EXPECT_EQ(refused_times("20240131\n20243731\n"), "accepted");
}

TEST(Csv, ASourceKeepsItsText) {
  const auto text = [] { return "a\n" + std::string(100, '0') + "7\n8\n"; };
  const std::unique_ptr<RowSource> source = open_csv_text(text(), "t.csv");
  source->select({{.name = "a"}});
  RowBlock block;
  ASSERT_TRUE(source->next(block));
  EXPECT_EQ(block.columns[0], (std::vector<double>{7, 8}));
}

}  // namespace
}  // namespace hotloop::data
