// Record batches as a source of rows.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <map>
#include <optional>
#include <utility>

#include "core/print_number.h"
#include "core/utf8.h"
#include "data/cell_reader.h"
#include "data/columns.h"
#include "data/time.h"
#include "hotloop/arrow.h"
#include "hotloop/error.h"

namespace hotloop::data {
namespace {

constexpr std::int64_t block_rows = 4096;
constexpr double missing = std::numeric_limits<double>::quiet_NaN();

// A structure of the interface that is released with its owner.
template <class T> class Owned {
 public:
  Owned() { std::memset(&value_, 0, sizeof value_); }
  explicit Owned(T* from) : Owned() { std::swap(value_, *from); }  // what it was is now released, as the interface asks
  ~Owned() { reset(); }
  Owned(const Owned&) = delete;
  Owned& operator=(const Owned&) = delete;
  void reset() {
    if (value_.release != nullptr) value_.release(&value_);
    value_.release = nullptr;
  }
  T* get() { return &value_; }
  T* operator->() { return &value_; }
  const T* operator->() const { return &value_; }

 private:
  T value_;
};

enum class Storage { Null, Bool, I8, U8, I16, U16, I32, U32, I64, U64, F16, F32, F64, Text32, Text64, TextView };

// How the cells of a column lie in memory, and what they are.
struct Type {
  Storage storage = Storage::Null;
  double seconds = 0;  // of a time: seconds in one unit
  bool is_text() const { return storage >= Storage::Text32; }
  bool is_time() const { return seconds > 0; }
  bool is_integer() const { return storage >= Storage::I8 && storage <= Storage::U64; }
};

// By the format strings of the C data interface; nothing for a type that is neither number, time nor text.
std::optional<Type> type_of(std::string_view format) {
  static constexpr std::pair<std::string_view, Storage> plain[] = {
      {"n", Storage::Null}, {"b", Storage::Bool},   {"c", Storage::I8},     {"C", Storage::U8},
      {"s", Storage::I16},  {"S", Storage::U16},    {"i", Storage::I32},    {"I", Storage::U32},
      {"l", Storage::I64},  {"L", Storage::U64},    {"e", Storage::F16},    {"f", Storage::F32},
      {"g", Storage::F64},  {"u", Storage::Text32}, {"U", Storage::Text64}, {"vu", Storage::TextView}};
  for (const auto& [text, storage] : plain)
    if (format == text) return Type{storage};
  if (format == "tdD") return Type{Storage::I32, 86400};
  if (format == "tdm") return Type{Storage::I64, 1e-3};
  if (format.starts_with("ts") && format.size() >= 4 && format[3] == ':') switch (format[2]) {
      case 's': return Type{Storage::I64, 1};
      case 'm': return Type{Storage::I64, 1e-3};
      case 'u': return Type{Storage::I64, 1e-6};
      case 'n': return Type{Storage::I64, 1e-9};
      default: break;
    }
  return {};
}

std::string type_text(std::string_view format) {
  if (format.starts_with("d:")) return "a decimal";
  if (format.starts_with("+")) return "a nested type";
  if (format.starts_with("tt")) return "a time of day";
  if (format.starts_with("tD")) return "a duration";
  if (format.starts_with("ti")) return "an interval";
  if (format == "z" || format == "Z" || format == "vz" || format.starts_with("w:")) return "bytes";
  return "the Arrow type '" + printable(format) + "'";
}

bool is_set(const void* bits, std::int64_t i) {
  return (static_cast<const std::uint8_t*>(bits)[i / 8] >> (i % 8) & 1) != 0;
}

// IEEE 754 binary16.
double half(std::uint16_t bits) {
  const int exponent = bits >> 10 & 31, fraction = bits & 1023;
  const double magnitude = exponent == 0    ? std::ldexp(fraction, -24)
                           : exponent == 31 ? (fraction ? missing : std::numeric_limits<double>::infinity())
                                            : std::ldexp(1024 + fraction, exponent - 25);
  return bits >> 15 ? -magnitude : magnitude;
}

// The cells of one column of a batch.
struct Cells {
  const ArrowArray* array;
  Type type;
  const Cells* dictionary = nullptr;

  template <class T> T at(std::int64_t i) const { return static_cast<const T*>(array->buffers[1])[array->offset + i]; }

  bool is_null(std::int64_t i) const {
    if (type.storage == Storage::Null) return true;
    if (array->buffers[0] != nullptr && !is_set(array->buffers[0], array->offset + i)) return true;
    return dictionary != nullptr && dictionary->is_null(integer(i));
  }

  std::int64_t integer(std::int64_t i) const {
    switch (type.storage) {
      case Storage::I8: return at<std::int8_t>(i);
      case Storage::U8: return at<std::uint8_t>(i);
      case Storage::I16: return at<std::int16_t>(i);
      case Storage::U16: return at<std::uint16_t>(i);
      case Storage::I32: return at<std::int32_t>(i);
      case Storage::U32: return at<std::uint32_t>(i);
      default: return at<std::int64_t>(i);
    }
  }

  std::string integer_text(std::int64_t i) const {
    if (dictionary != nullptr) return dictionary->integer_text(integer(i));
    return type.storage == Storage::U64 ? std::to_string(at<std::uint64_t>(i)) : std::to_string(integer(i));
  }

  // Of a cell that is no text.
  double number(std::int64_t i) const {
    if (dictionary != nullptr) return dictionary->number(integer(i));
    switch (type.storage) {
      case Storage::Bool: return is_set(array->buffers[1], array->offset + i) ? 1 : 0;
      case Storage::U64: return static_cast<double>(at<std::uint64_t>(i));
      case Storage::F16: return half(at<std::uint16_t>(i));
      case Storage::F32: return at<float>(i);
      case Storage::F64: return at<double>(i);
      default: break;
    }
    // Whole seconds first, so that nanoseconds since 1970 keep what a double can hold.
    const std::int64_t value = integer(i);
    if (!type.is_time() || type.seconds >= 1) return static_cast<double>(value) * (type.is_time() ? type.seconds : 1);
    const auto units = static_cast<std::int64_t>(std::llround(1 / type.seconds));
    return static_cast<double>(value / units) + static_cast<double>(value % units) / static_cast<double>(units);
  }

  std::string_view text(std::int64_t i) const {
    if (dictionary != nullptr) return dictionary->text(integer(i));
    const auto* bytes = static_cast<const char*>(array->buffers[2]);
    if (type.storage == Storage::TextView) return view(i);
    const std::int64_t begin = type.storage == Storage::Text32 ? at<std::int32_t>(i) : at<std::int64_t>(i);
    const std::int64_t end = type.storage == Storage::Text32 ? at<std::int32_t>(i + 1) : at<std::int64_t>(i + 1);
    return {bytes + begin, static_cast<std::size_t>(end - begin)};
  }

 private:
  // 16 bytes a cell: its length, and the text itself if it has at most 12 bytes, else its buffer and place there.
  std::string_view view(std::int64_t i) const {
    const char* cell = static_cast<const char*>(array->buffers[1]) + 16 * (array->offset + i);
    std::int32_t length = 0, buffer = 0, offset = 0;
    std::memcpy(&length, cell, 4);
    if (length <= 12) return {cell + 4, static_cast<std::size_t>(length)};
    std::memcpy(&buffer, cell + 8, 4);
    std::memcpy(&offset, cell + 12, 4);
    return {static_cast<const char*>(array->buffers[2 + buffer]) + offset, static_cast<std::size_t>(length)};
  }
};

class ArrowSource : public RowSource {
 public:
  ArrowSource(ArrowArrayStream* stream, std::string name, const CsvOptions& options)
      : stream_(stream), name_(std::move(name)), reader_("arrow", options) {
    require(stream_->get_schema(stream_.get(), schema_.get()));
    if (std::string_view(schema_->format) != "+s")
      throw UserError("arrow", name_ + " must be a table of named columns", type_text(schema_->format),
                      "a DataFrame, or pyarrow.table({\"name\": values})");
    for (std::int64_t i = 0; i < schema_->n_children; ++i) {
      const char* column = schema_->children[i]->name;
      names_.emplace_back(column == nullptr ? "" : column);
    }
  }

  std::string name() const override { return name_; }
  std::vector<std::string> column_names() const override { return names_; }
  std::span<const std::string> labels(std::size_t request) const override { return reader_.labels(request); }

  void select(const std::vector<ColumnRequest>& requests) override {
    positions_ = positions_of(requests, names_, "arrow", name_, std::to_string(names_.size()) + " other columns");
    std::map<std::string_view, int> counts;
    for (const std::string& name : names_) ++counts[name];
    for (std::size_t i = 0; i < requests.size(); ++i) {
      const ColumnRequest& r = requests[i];
      if (counts[r.name] > 1) throw UserError("arrow", "column names must differ", "'" + r.name + "' twice");
      const ArrowSchema& schema = *schema_->children[positions_[i]];
      const std::string_view format = schema.dictionary != nullptr ? schema.dictionary->format : schema.format;
      const std::optional<Type> type = type_of(format);
      if (!type)
        throw UserError("arrow", "column '" + r.name + "' must hold numbers, times or texts", type_text(format),
                        format.starts_with("d:") ? "cast it to float64" : "leave it out, or cast it");
      if (type->is_text() && r.kind == ColumnKind::Number)
        throw UserError("arrow", "column '" + r.name + "' must hold numbers", "texts",
                        "a one-hot column, or cast it to float64");
    }
    requests_ = requests;
    reader_.start(requests);
  }

  bool next(RowBlock& block) override {
    while (batch_->release == nullptr || at_ == batch_->length) {
      batch_.reset();
      require(stream_->get_next(stream_.get(), batch_.get()));
      if (batch_->release == nullptr) {
        reader_.finish();
        return false;
      }
      at_ = 0;
    }
    const std::int64_t count = std::min(block_rows, batch_->length - at_);
    block.first_row = row_;
    block.num_rows = count;
    block.lines.clear();
    block.columns.resize(requests_.size());
    for (std::size_t c = 0; c < requests_.size(); ++c) read_column(c, count, block.columns[c]);
    at_ += count;
    row_ += count;
    return true;
  }

 private:
  void require(int status) {
    if (status == 0) return;
    const char* reason = stream_->get_last_error(stream_.get());
    throw UserError("arrow", "the rows of " + name_ + " must be readable",
                    reason == nullptr ? "error " + std::to_string(status) : std::string(reason));
  }

  void read_column(std::size_t c, std::int64_t count, std::vector<double>& out) {
    const ArrowSchema& schema = *schema_->children[positions_[c]];
    const ArrowArray& array = *batch_->children[positions_[c]];
    Cells dictionary{}, cells{&array, type_of(schema.format).value_or(Type{})};
    if (schema.dictionary != nullptr) {
      dictionary = {array.dictionary, *type_of(schema.dictionary->format)};
      cells.dictionary = &dictionary;
    }
    const Type& type = schema.dictionary != nullptr ? dictionary.type : cells.type;
    out.resize(static_cast<std::size_t>(count));
    for (std::int64_t k = 0; k < count; ++k) {
      const std::int64_t i = batch_->offset + at_ + k;
      const bool null = cells.is_null(i) ||
                        (batch_->n_buffers > 0 && batch_->buffers[0] != nullptr && !is_set(batch_->buffers[0], i));
      double& cell = out[static_cast<std::size_t>(k)];
      cell = null ? missing : value(c, cells, type, i, row_ + k);
      check(requests_[c], cell, null, row_ + k);
    }
  }

  double value(std::size_t c, const Cells& cells, const Type& type, std::int64_t i, std::int64_t row) {
    const auto place = [&] { return " in row " + std::to_string(row) + " of " + name_; };
    if (type.is_text()) return reader_.text(c, cells.text(i), place);
    const double number = cells.number(i);
    const ColumnKind kind = requests_[c].kind;
    if (kind == ColumnKind::Number || !std::isfinite(number)) return number;
    if (kind == ColumnKind::Time) return type.is_time() ? number : reader_.time_of_number(c, number, place);
    if (type.is_time()) return reader_.label(c, print_time(number));
    // Exactly, whatever its size: it may be the number of a customer.
    return reader_.label(c, type.is_integer() ? cells.integer_text(i) : number_label(number));
  }

  void check(const ColumnRequest& r, double value, bool null, std::int64_t row) const {
    if (std::isfinite(value) || (std::isnan(value) && r.may_be_missing)) return;
    throw UserError("arrow", "every value of column '" + r.name + "' must be " + (null ? "there" : "finite"),
                    (null ? "null" : print_number(value)) + " in row " + std::to_string(row) + " of " + name_,
                    std::isnan(value) ? "mend the value, or missing = \"drop\", \"forward\" or \"mean\""
                                      : "mend the value or remove the row");
  }

  Owned<ArrowArrayStream> stream_;
  std::string name_;
  Owned<ArrowSchema> schema_;
  Owned<ArrowArray> batch_;
  std::vector<std::string> names_;
  std::vector<ColumnRequest> requests_;
  std::vector<std::size_t> positions_;  // of the requests among the columns
  CellReader reader_;
  std::int64_t at_ = 0, row_ = 0;  // in the batch, of the source
};

}  // namespace

std::unique_ptr<RowSource> open_arrow(ArrowArrayStream* stream, const std::string& name, const CsvOptions& options) {
  return std::make_unique<ArrowSource>(stream, name, options);
}

}  // namespace hotloop::data
