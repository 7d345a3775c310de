#include "hotloop/npy.h"

#include <algorithm>
#include <bit>
#include <charconv>
#include <cstring>
#include <limits>

#include "core/utf8.h"
#include "hotloop/error.h"
#include "io/files.h"
#include "io/npy_header.h"

static_assert(std::endian::native == std::endian::little, "arrays are copied as they are in the file");

namespace hotloop::io {
namespace {

constexpr std::string_view magic = "\x93NUMPY";

[[noreturn]] void refuse(const std::string& source, const std::string& requirement, const std::string& received,
                         const std::string& remedy = "numpy.save the array again") {
  throw UserError("npy", source + ": " + requirement, received, remedy);
}

// The dictionary of a header, a Python literal: {'descr': '<f8', 'fortran_order': False, 'shape': (3, 4), }.
class HeaderReader {
 public:
  HeaderReader(std::string_view text, const std::string& source) : rest_(text), source_(source) {}

  void read(NpyHeader& header) {
    bool descr = false, order = false, shape = false;
    expect('{');
    while (!skip('}')) {
      const std::string key = quoted();
      expect(':');
      if (key == "descr" && !std::exchange(descr, true))
        read_descr(header);
      else if (key == "fortran_order" && !std::exchange(order, true))
        read_order();
      else if (key == "shape" && !std::exchange(shape, true))
        read_shape(header);
      else
        fail();
      if (!skip(',')) {
        expect('}');
        break;
      }
    }
    blanks();
    if (!rest_.empty() || !descr || !order || !shape) fail();
    if (fortran_ && header.shape.rank() > 1)
      refuse(source_, "the array must be in C order", "Fortran order", "numpy.ascontiguousarray(array)");
  }

 private:
  [[noreturn]] void fail() const {
    refuse(source_, "the header must be a dictionary of descr, fortran_order and shape",
           "'" + printable(rest_.substr(0, 40)) + "'");
  }
  void blanks() {
    while (!rest_.empty() && (rest_[0] == ' ' || rest_[0] == '\n' || rest_[0] == '\t')) rest_.remove_prefix(1);
  }
  bool skip(char c) {
    blanks();
    if (!rest_.starts_with(c)) return false;
    rest_.remove_prefix(1);
    return true;
  }
  void expect(char c) {
    if (!skip(c)) fail();
  }
  bool word(std::string_view w) {
    blanks();
    if (!rest_.starts_with(w)) return false;
    rest_.remove_prefix(w.size());
    return true;
  }
  std::string quoted() {
    blanks();
    if (rest_.empty() || (rest_[0] != '\'' && rest_[0] != '"')) fail();
    const std::size_t end = rest_.find(rest_[0], 1);
    if (end == rest_.npos) fail();
    std::string text(rest_.substr(1, end - 1));
    rest_.remove_prefix(end + 1);
    return text;
  }

  void read_descr(NpyHeader& header) {
    blanks();
    if (rest_.starts_with('['))
      refuse(source_, "the array must be of numbers", "a structured dtype", "save each field as an array of its own");
    const std::string descr = quoted();
    const std::string shown = "dtype '" + printable(descr.substr(0, 40)) + "'";
    if (descr.starts_with('>'))
      refuse(source_, "the array must be little-endian", shown, "array.astype(array.dtype.newbyteorder('<'))");
    if (descr.starts_with("|O"))
      refuse(source_, "the array must be of numbers", "Python objects", "array.astype('float64')");
    if (descr.starts_with("<U") || descr.starts_with("|S"))
      refuse(source_, "the array must be of numbers", "texts (" + shown + ")", "save the table as CSV");
    for (const std::string_view known : {"<f8", "<f4", "<f2", "<i8", "<i4", "<i2", "|i1", "<u4", "<u2", "|u1", "|b1"}) {
      if (descr != known) continue;
      header.kind = known[1];
      header.item_bytes = static_cast<std::size_t>(known[2] - '0');
      return;
    }
    refuse(source_, "the array must be of floats or of integers that fit i64", shown, "array.astype('float64')");
  }

  void read_order() {
    if (word("True"))
      fortran_ = true;
    else if (!word("False"))
      fail();
  }

  void read_shape(NpyHeader& header) {
    expect('(');
    while (!skip(')')) {
      blanks();
      std::int64_t extent = 0;
      const auto [end, error] = std::from_chars(rest_.data(), rest_.data() + rest_.size(), extent);
      if (error != std::errc{} || extent < 0) fail();
      rest_.remove_prefix(static_cast<std::size_t>(end - rest_.data()));
      if (header.shape.rank() == Shape::max_rank)
        refuse(source_, "the array must have at most " + std::to_string(Shape::max_rank) + " axes", "more");
      header.shape.push_back(extent);
      if (!skip(',')) {
        expect(')');
        break;
      }
    }
  }

  std::string_view rest_;
  const std::string& source_;
  bool fortran_ = false;
};

// IEEE 754 half precision.
float half_to_float(std::uint16_t h) {
  const std::uint32_t sign = static_cast<std::uint32_t>(h >> 15) << 31, fraction = h & 0x3FF;
  const int exponent = h >> 10 & 31;
  if (exponent == 0) return (sign != 0 ? -1.0f : 1.0f) * static_cast<float>(fraction) * 0x1p-24f;
  const std::uint32_t bits = exponent == 31 ? 0x7F800000 : static_cast<std::uint32_t>(exponent + 112) << 23;
  return std::bit_cast<float>(sign | bits | fraction << 13);
}

template <class From, class To> void copy_as(const void* from, std::int64_t count, void* to) {
  for (std::int64_t i = 0; i < count; ++i) {
    From value;
    std::memcpy(&value, static_cast<const char*>(from) + static_cast<std::size_t>(i) * sizeof value, sizeof value);
    static_cast<To*>(to)[i] = static_cast<To>(value);
  }
}

}  // namespace

DType NpyHeader::dtype() const {
  switch (kind) {
    case 'f': return item_bytes == 8 ? DType::F64 : DType::F32;
    case 'b': return DType::Bool;
    case 'u': return item_bytes == 4 ? DType::U32 : DType::I32;
    default: return item_bytes == 8 ? DType::I64 : DType::I32;
  }
}

NpyHeader parse_npy_header(std::string_view bytes, const std::string& source) {
  if (!bytes.starts_with(magic) || bytes.size() < 10) refuse(source, "the file must be .npy", "another file");
  const auto byte = [&](std::size_t i) { return static_cast<std::size_t>(static_cast<unsigned char>(bytes[i])); };
  const std::size_t version = byte(6), length_bytes = version == 1 ? 2 : 4;
  if (version < 1 || version > 3)
    refuse(source, "the format must be version 1, 2 or 3", "version " + std::to_string(version));
  std::size_t length = 0;
  if (bytes.size() >= 8 + length_bytes)
    for (std::size_t i = 0; i < length_bytes; ++i) length |= byte(8 + i) << (8 * i);
  NpyHeader header;
  header.data_offset = 8 + length_bytes + length;
  if (header.data_offset > npy_header_bytes)
    refuse(source, "the header must be shorter than 64 KB", std::to_string(length) + " bytes");
  if (header.data_offset > bytes.size()) refuse(source, "the file must be whole", "an end within the header");
  HeaderReader(bytes.substr(8 + length_bytes, length), source).read(header);
  std::uint64_t elements = 1;
  for (const std::int64_t extent : header.shape.dims()) {
    if (extent != 0 && elements > std::numeric_limits<std::int64_t>::max() / 16 / static_cast<std::uint64_t>(extent))
      refuse(source, "the array must be one that fits a file", "shape " + header.shape.str());
    elements *= static_cast<std::uint64_t>(extent);
  }
  header.data_bytes = elements * header.item_bytes;
  return header;
}

void convert_npy(const NpyHeader& header, const void* from, std::int64_t count, void* to) {
  const std::size_t n = header.item_bytes;
  if (header.kind == 'f' && n == 2) {
    for (std::int64_t i = 0; i < count; ++i) {
      std::uint16_t half;
      std::memcpy(&half, static_cast<const char*>(from) + 2 * i, 2);
      static_cast<float*>(to)[i] = half_to_float(half);
    }
  } else if (header.kind == 'b') {
    for (std::int64_t i = 0; i < count; ++i)
      static_cast<std::uint8_t*>(to)[i] = static_cast<const std::uint8_t*>(from)[i] != 0;
  } else if (n >= 4) {
    std::memcpy(to, from, static_cast<std::size_t>(count) * n);
  } else if (header.kind == 'i') {
    n == 1 ? copy_as<std::int8_t, std::int32_t>(from, count, to) : copy_as<std::int16_t, std::int32_t>(from, count, to);
  } else {
    n == 1 ? copy_as<std::uint8_t, std::int32_t>(from, count, to)
           : copy_as<std::uint16_t, std::int32_t>(from, count, to);
  }
}

Array parse_npy(std::string_view bytes, const std::string& source) {
  const NpyHeader header = parse_npy_header(bytes.substr(0, npy_header_bytes), source);
  const std::uint64_t held = bytes.size() - header.data_offset;
  if (held != header.data_bytes)
    refuse(source,
           "an array of shape " + header.shape.str() + " must hold " + std::to_string(header.data_bytes) + " bytes",
           std::to_string(held) + (held < header.data_bytes ? ": the file is cut off" : ": more follows"));
  Array array(header.dtype(), header.shape);
  convert_npy(header, bytes.data() + header.data_offset, array.size(), array.raw());
  return array;
}

Array load_npy(const std::filesystem::path& path) { return parse_npy(read_file(path, "npy"), path.string()); }

std::string print_npy(const Array& array) {
  if (!array.defined()) throw UserError("npy", "an array must be defined", "Array(), which has no memory");
  const auto descr = [&] {
    switch (array.dtype()) {
      case DType::Bool: return "|b1";
      case DType::I32: return "<i4";
      case DType::U32: return "<u4";
      case DType::I64: return "<i8";
      case DType::F32: return "<f4";
      case DType::F64: break;
    }
    return "<f8";
  };
  std::string header = std::string("{'descr': '") + descr() + "', 'fortran_order': False, 'shape': (";
  for (const std::int64_t extent : array.shape().dims()) header += std::to_string(extent) + ", ";
  if (array.shape().rank() > 1) header.resize(header.size() - 2);  // a tuple of one keeps its comma
  if (array.shape().rank() == 1) header.resize(header.size() - 1);
  header += "), }";
  // The data begin at a multiple of 64.
  header.append(63 - (magic.size() + 4 + header.size()) % 64, ' ');
  header += '\n';
  std::string out(magic);
  out += {'\1', '\0', static_cast<char>(header.size() & 255), static_cast<char>(header.size() >> 8)};
  out += header;
  return out.append(static_cast<const char*>(array.raw()), array.bytes());
}

void save_npy(const std::filesystem::path& path, const Array& array) {
  write_file_atomic(path, print_npy(array), "npy");
}

}  // namespace hotloop::io
