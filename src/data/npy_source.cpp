// Arrays as tables: axis 0 is rows, or samples whose axis 1 is rows.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <optional>

#include "core/print_number.h"
#include "data/cell_reader.h"
#include "data/columns.h"
#include "hotloop/error.h"
#include "hotloop/npy.h"
#include "hotloop/table.h"
#include "io/npy_header.h"
#include "io/reader.h"

namespace hotloop::data {
namespace {

constexpr std::int64_t block_rows = 4096;

// What .npy and .npz share: columns found by name, values checked.
class ArraySource : public RowSource {
 public:
  ArraySource(std::string name, const CsvOptions& options) : name_(std::move(name)), reader_("npy", options) {}
  std::string name() const override { return name_; }
  std::vector<std::string> column_names() const override { return names_; }
  std::span<const std::string> labels(std::size_t request) const override { return reader_.labels(request); }

  void select(const std::vector<ColumnRequest>& requests) override {
    positions_ =
        positions_of(requests, names_, "npy", name_, "arrays with " + std::to_string(names_.size()) + " columns");
    requests_ = requests;
    reader_.start(requests);
  }

 protected:
  // Element `i` of the array, which stands in that row.
  double checked(std::size_t request, const Array& array, std::int64_t i, std::int64_t row) {
    const ColumnRequest& r = requests_[request];
    const double value = array.at(i);
    const auto place = [&] { return " in row " + std::to_string(row) + " of " + name_; };
    if (std::isnan(value) && r.may_be_missing) return value;
    if (!std::isfinite(value))
      throw UserError("npy", "every value of column '" + r.name + "' must be finite", print_number(value) + place(),
                      std::isnan(value) ? "mend the value, or missing = \"drop\", \"forward\" or \"mean\""
                                        : "mend the value or remove the row");
    if (r.kind == ColumnKind::Time) return reader_.time_of_number(request, value, place);
    if (r.kind == ColumnKind::Number) return value;
    // An integer exactly, whatever its size: it may be the number of a customer.
    return reader_.label(request, array.dtype() == DType::I64
                                      ? std::to_string(array.data<std::int64_t>()[static_cast<std::size_t>(i)])
                                      : number_label(value));
  }

  std::string name_;
  std::vector<std::string> names_;
  std::vector<ColumnRequest> requests_;
  std::vector<std::size_t> positions_;  // of the requests among the names
  CellReader reader_;
};

class NpySource : public ArraySource {
 public:
  NpySource(const std::filesystem::path& path, const CsvOptions& options)
      : ArraySource(path.string(), options), file_(path, "npy") {
    std::string start(io::npy_header_bytes, '\0');
    start.resize(file_.read_at(0, start.data(), start.size()));
    header_ = io::parse_npy_header(start, name_);
    if (header_.shape.rank() < 1 || header_.shape.rank() > 2 || header_.shape.size() == 0)
      throw UserError("npy", name_ + " must be an array (rows, columns) that is not empty", header_.shape.str(),
                      "an .npz file for samples (samples, time, features)");
    if (file_.size() != header_.data_offset + header_.data_bytes)
      throw UserError("npy",
                      name_ + ": an array of shape " + header_.shape.str() + " must hold " +
                          std::to_string(header_.data_bytes) + " bytes",
                      std::to_string(file_.size() - header_.data_offset), "numpy.save the array again");
    width_ = header_.shape.rank() == 2 ? header_.shape[1] : 1;
    for (std::int64_t c = 0; c < width_; ++c) names_.push_back(std::to_string(c));
  }

  bool next(RowBlock& block) override {
    const std::int64_t count = std::min(block_rows, header_.shape[0] - at_);
    if (count <= 0) {
      reader_.finish();
      return false;
    }
    const std::size_t row_bytes = static_cast<std::size_t>(width_) * header_.item_bytes;
    std::string raw(static_cast<std::size_t>(count) * row_bytes, '\0');
    file_.read_at(header_.data_offset + static_cast<std::uint64_t>(at_) * row_bytes, raw.data(), raw.size());
    Array values(header_.dtype(), {count, width_});
    io::convert_npy(header_, raw.data(), values.size(), values.raw());
    block.first_row = at_;
    block.num_rows = count;
    block.lines.clear();
    block.columns.assign(requests_.size(), std::vector<double>(static_cast<std::size_t>(count)));
    for (std::size_t c = 0; c < requests_.size(); ++c)
      for (std::int64_t i = 0; i < count; ++i)
        block.columns[c][static_cast<std::size_t>(i)] =
            checked(c, values, i * width_ + static_cast<std::int64_t>(positions_[c]), at_ + i);
    at_ += count;
    return true;
  }

 private:
  io::FileReader file_;
  io::NpyHeader header_;
  std::int64_t width_ = 1, at_ = 0;
};

class NpzSource : public ArraySource {
 public:
  NpzSource(const std::filesystem::path& path, const CsvOptions& options) : ArraySource(path.string(), options) {
    std::vector<std::pair<std::string, Array>> arrays = io::load_npz(path);
    for (const auto& [name, array] : arrays)
      if (array.shape().rank() == 3) steps_ = array.shape()[1];
    for (auto& [name, array] : arrays) {
      const int rank = array.shape().rank();
      if (rank < 1 || rank > 3 || array.size() == 0)
        throw UserError("npz", name_ + ":" + name + " must be (rows), (rows, columns) or (samples, time, features)",
                        array.shape().str(), "reshape it, or leave it out of the archive");
      if (num_samples_ < 0) num_samples_ = array.shape()[0];
      if (array.shape()[0] != num_samples_ || (rank == 3 && array.shape()[1] != steps_))
        throw UserError("npz", name_ + ": arrays must have equally many rows, or samples and steps",
                        "'" + name + "' of shape " + array.shape().str(), "leave it out, or pad it");
      if (steps_ && name == "lengths" && rank == 1)
        read_lengths(array);
      else
        add(name, array);
    }
    if (num_samples_ < 0)
      throw UserError("npz", name_ + " must hold at least one array", "an empty archive",
                      "numpy.savez(path, x=x, y=y)");
    if (steps_) names_.push_back("sample");
    std::vector<std::string> sorted = names_;
    std::ranges::sort(sorted);
    if (const auto twice = std::ranges::adjacent_find(sorted); twice != sorted.end())
      throw UserError("npz", name_ + ": column names must differ", "'" + *twice + "' twice");
  }

  bool next(RowBlock& block) override {
    block.first_row = row_;
    block.lines.clear();
    block.columns.resize(requests_.size());
    for (std::vector<double>& column : block.columns) column.clear();
    std::int64_t count = 0;
    for (; count < block_rows && sample_ < num_samples_; ++count, advance()) {
      for (std::size_t c = 0; c < requests_.size(); ++c) block.columns[c].push_back(cell(c, row_ + count));
    }
    block.num_rows = count;
    row_ += count;
    if (count == 0) reader_.finish();
    return count > 0;
  }

 private:
  struct Column {
    Array array;
    std::int64_t sample_stride = 1, step_stride = 0, offset = 0;
  };

  void add(const std::string& name, const Array& array) {
    const Shape& s = array.shape();
    const std::int64_t features = s.rank() == 3 ? s[2] : 1;
    // With samples of steps, (samples, time) is one value a step and (samples) one a sample.
    if (s.rank() == 2 && (!steps_ || s[1] != *steps_)) return add_columns(name, array, s[1], s[1], 0);
    if (s.rank() == 1) return add_columns(name, array, 0, 1, 0);
    add_columns(name, array, s.rank() == 3 ? features : 0, s[1] * features, features);
  }

  // `count` columns name0, name1, ..., or one of the name alone when count is 0.
  void add_columns(const std::string& name, const Array& array, std::int64_t count, std::int64_t sample_stride,
                   std::int64_t step_stride) {
    for (std::int64_t k = 0; k < std::max<std::int64_t>(1, count); ++k) {
      names_.push_back(count == 0 ? name : name + std::to_string(k));
      columns_.push_back({array, sample_stride, step_stride, k});
    }
  }

  void read_lengths(const Array& array) {
    for (std::int64_t i = 0; i < array.size(); ++i) {
      const double length = array.at(i);
      if (!(length >= 1) || length > static_cast<double>(*steps_) || length != std::floor(length))
        throw UserError("npz", name_ + ":lengths must be integers from 1 to " + std::to_string(*steps_),
                        print_number(length) + " for sample " + std::to_string(i),
                        std::to_string(*steps_) + " for a sample without padding");
      lengths_.push_back(static_cast<std::int64_t>(length));
    }
  }

  // Of the step under way, which is that row.
  double cell(std::size_t request, std::int64_t row) {
    const std::size_t position = positions_[request];
    if (position >= columns_.size()) return checked(request, Array::from<std::int64_t>({sample_}, {1}), 0, row);
    const Column& c = columns_[position];
    return checked(request, c.array, sample_ * c.sample_stride + step_ * c.step_stride + c.offset, row);
  }

  void advance() {
    const std::int64_t steps = !steps_ ? 1 : lengths_.empty() ? *steps_ : lengths_[static_cast<std::size_t>(sample_)];
    if (++step_ < steps) return;
    step_ = 0;
    ++sample_;
  }

  std::vector<Column> columns_;
  std::optional<std::int64_t> steps_;  // of a sample; none: a sample is a row
  std::vector<std::int64_t> lengths_;
  std::int64_t num_samples_ = -1, sample_ = 0, step_ = 0, row_ = 0;
};

}  // namespace

std::unique_ptr<RowSource> open_npy(const std::filesystem::path& path, const CsvOptions& options) {
  return std::make_unique<NpySource>(path, options);
}
std::unique_ptr<RowSource> open_npz(const std::filesystem::path& path, const CsvOptions& options) {
  return std::make_unique<NpzSource>(path, options);
}

std::unique_ptr<RowSource> open_file(const std::filesystem::path& path, const CsvOptions& options) {
  if (path.extension() == ".npy") return open_npy(path, options);
  if (path.extension() == ".npz") return open_npz(path, options);
  return open_csv(path, options);
}

}  // namespace hotloop::data
