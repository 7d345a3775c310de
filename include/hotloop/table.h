// Tables in memory, and sources that give the rows of a table of any size a block at a time.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace hotloop::data {

// What a column's doubles mean: a number, seconds since 1970-01-01T00:00:00Z, or an index into the column's labels.
enum class ColumnKind { Number, Time, Text };

// Named columns, all equally long, in a fixed order. Missing values are NaN, missing texts too.
class Table {
 public:
  // UserError if the name is taken, or the length is not that of the columns already there.
  void add(const std::string& name, std::vector<double> values);
  // Numbers that doubles may have rounded, integers beyond 2^53, with the texts that they are where they stand for labels.
  void add(const std::string& name, std::vector<double> values, std::vector<std::string> texts);
  void add_times(const std::string& name, std::vector<double> seconds);
  void add_texts(const std::string& name, std::span<const std::string> texts);
  bool has(std::string_view name) const;
  // UserError with the nearest name if there is no such column.
  std::span<const double> operator[](std::string_view name) const;
  ColumnKind kind(std::string_view name) const;
  std::span<const std::string> labels(std::string_view name) const;  // of a column of texts
  std::span<const std::string> texts(std::string_view name) const;   // of numbers that were given with them
  std::int64_t num_rows() const { return num_rows_; }
  std::vector<std::string> names() const;

 private:
  struct Column {
    std::string name;
    ColumnKind kind = ColumnKind::Number;
    std::vector<double> values;
    std::vector<std::string> labels = {}, texts = {};
  };
  void add(Column column);
  const Column& column(std::string_view name) const;
  std::vector<Column> columns_;
  std::map<std::string, std::size_t, std::less<>> positions_;
  std::int64_t num_rows_ = 0;
};

// A column that is wanted of a source.
struct ColumnRequest {
  std::string name;
  ColumnKind kind = ColumnKind::Number;
  bool may_be_missing = false;  // a missing value is NaN; else it is an error
  // For messages: whether it is predicted, and the name of a lag that reads it.
  bool is_target = false;
  std::string lag = {};
};

// Some rows one after another.
struct RowBlock {
  std::int64_t first_row = 0, num_rows = 0;  // the first of the source is 0
  std::vector<std::vector<double>> columns;  // [request][row]
  std::vector<std::int64_t> lines;           // of the file, from 1; empty if the source is none of lines
};

// The rows of a table, read once from first to last in memory that does not grow with the table.
class RowSource {
 public:
  virtual ~RowSource() = default;
  virtual std::string name() const = 0;  // for messages: the path of a file
  virtual std::vector<std::string> column_names() const = 0;
  // The columns that next() gives; call it once, before next(). UserError for a column that is not there.
  virtual void select(const std::vector<ColumnRequest>& requests) = 0;
  // The next rows; false when there are no more. UserError naming the place for a cell that is not what was requested.
  virtual bool next(RowBlock& block) = 0;
  // Of a request of kind Text: the texts that indices so far stand for, in order of their first occurrence.
  virtual std::span<const std::string> labels(std::size_t request) const = 0;
  // Row `i` of a block, for messages: "t.csv:12" or "row 11 of the table".
  std::string place(const RowBlock& block, std::int64_t i) const;
};

// In which order the numbers of a date stand: 2014-01-31, 31/01/2014 or 01/31/2014.
enum class DateOrder { YearFirst, DayFirst, MonthFirst };

// How cells are read, of any source that has some of their kind: times that are numbers, times and missing values that are texts. A CSV file has
// a separator too.
struct CsvOptions {
  char separator = ',';
  // Cells that stand for a missing value, where a column may have one.
  std::vector<std::string> missing_values = {"",    "NA",  "N/A",  "n/a",  "#N/A", "<NA>",
                                             "NaN", "nan", "null", "NULL", "None"};
  double time_unit = 1;  // seconds; of times that are given as a number
  DateOrder dates = DateOrder::YearFirst;
};

// Comma-separated values with a header line (RFC 4180: quotes, CRLF; a byte-order mark is skipped), in UTF-8. Read in blocks
// of about a megabyte; the file may be a pipe. UserError naming file, line and column for a missing column, one named
// twice, a row with too many or too few cells, a cell that is no finite number or no time, text that is not UTF-8,
// another separator, a compressed or binary file.
// Times are ISO 8601, "2014-01-31", "2014-01-31T18:30:00.5", with a blank for the T, with "Z", " UTC" or "+01:00" or taken
// as UTC; or such with dates in the order of `dates`, "31/01/2014 18:30", "31.1.2014"; or numbers of `time_unit` since 1970. Numbers that are
// no time of the years 0 to 9999, and columns of numbers that all read as dates, 20140131, are refused.
std::unique_ptr<RowSource> open_csv(const std::filesystem::path& path, const CsvOptions& options = {});
// The same from memory; `name` stands for the file's name in messages. The source keeps the text: move a large one in.
std::unique_ptr<RowSource> open_csv_text(std::string text, const std::string& name, const CsvOptions& options = {});
// The table must outlive the source.
std::unique_ptr<RowSource> open_table(const Table& table, const std::string& name = "the table",
                                      const CsvOptions& options = {});
// An .npy file: (rows, columns) or (rows), columns named "0", "1", ...; read in blocks.
// An .npz file: arrays (rows) are columns of their names, (rows, columns) are columns "x0", "x1", ... of an array x. If any
// is (samples, time, features), each of its steps is a row: (samples, time, ...) gives the steps' columns, (samples) a
// column that is the same on all steps of a sample; the column "sample" counts samples from 0, and an array
// "lengths" (samples) says how many steps of each are there.
std::unique_ptr<RowSource> open_npy(const std::filesystem::path& path, const CsvOptions& options = {});
std::unique_ptr<RowSource> open_npz(const std::filesystem::path& path, const CsvOptions& options = {});
// By the file's suffix: .npy, .npz, else comma-separated values.
std::unique_ptr<RowSource> open_file(const std::filesystem::path& path, const CsvOptions& options = {});

// A whole CSV file of numbers as a table, only `columns` if there are any. Errors as open_csv.
Table read_csv(const std::filesystem::path& path, const std::vector<std::string>& columns = {}, char separator = ',');
Table parse_csv(std::string_view text, const std::string& source, const std::vector<std::string>& columns = {},
                char separator = ',');

}  // namespace hotloop::data
