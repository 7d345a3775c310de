// The safetensors format: 8 bytes little-endian header length, a JSON object, then the tensors' bytes without holes.
#include <algorithm>
#include <cstring>
#include <limits>
#include <set>

#include "core/nearest.h"
#include "core/utf8.h"
#include "hotloop/error.h"
#include "hotloop/io.h"
#include "io/files.h"
#include "io/json.h"

namespace hotloop::io {
namespace {

using Json = nlohmann::ordered_json;
constexpr std::uint64_t max_header_bytes = 100'000'000;  // the limit of the reference implementation
constexpr const char* metadata_key = "__metadata__";

std::string format_name(DType dtype) {
  switch (dtype) {
    case DType::Bool: return "BOOL";
    case DType::I32: return "I32";
    case DType::U32: return "U32";
    case DType::I64: return "I64";
    case DType::F32: return "F32";
    case DType::F64: break;
  }
  return "F64";
}

class Reader {
 public:
  Reader(std::string_view bytes, const std::string& source) : bytes_(bytes), source_(source) {}

  Checkpoint read() {
    std::uint64_t length = 0;
    if (bytes_.size() < sizeof length) fail("8 bytes of header length", std::to_string(bytes_.size()) + " bytes");
    for (int i = 7; i >= 0; --i) length = length << 8 | static_cast<unsigned char>(bytes_[static_cast<std::size_t>(i)]);
    if (length > max_header_bytes || length > bytes_.size() - sizeof length)
      fail("a header inside the file, of at most 100 MB",
           begins_as_text() ? "text that begins with " + shown(bytes_.substr(0, bytes_.find_first_of("\r\n")))
                            : "a header length of " + std::to_string(length));
    const std::string_view text = bytes_.substr(sizeof length, length);
    data_ = bytes_.substr(sizeof length + length);
    if (!text.starts_with('{')) fail("a JSON object as header", "something else");

    const Json header = parse_json(text);
    Checkpoint out;
    for (const auto& [name, entry] : header.items()) {
      if (name == metadata_key)
        read_metadata(entry, out);
      else
        out.tensors.emplace_back(name, read_tensor(name, entry));
    }
    check_coverage();
    return out;
  }

 private:
  [[noreturn]] void fail(const std::string& requirement, const std::string& received) const {
    throw UserError("safetensors", source_ + " must have " + requirement, received,
                    "write the checkpoint again; this file is damaged or of another format");
  }

  bool begins_as_text() const {
    return std::ranges::all_of(bytes_.substr(0, 30),
                               [](char c) { return (c >= ' ' && c <= '~') || c == '\n' || c == '\r' || c == '\t'; });
  }

  Json parse_json(std::string_view text) const {
    // The library keeps the last of two equal keys; the format forbids them, and an attacker may use them.
    std::vector<std::set<std::string>> keys;
    std::string duplicate;
    const auto watch = [&](int, Json::parse_event_t event, Json& value) {
      if (event == Json::parse_event_t::object_start) keys.emplace_back();
      if (event == Json::parse_event_t::object_end) keys.pop_back();
      if (event == Json::parse_event_t::key && !keys.back().insert(value.get<std::string>()).second)
        duplicate = value.get<std::string>();
      return true;
    };
    Json header;
    try {
      header = io::parse_json<Json>(text, watch);
    } catch (const Json::exception& e) {
      fail("a header of valid JSON", e.what());
    }
    if (!duplicate.empty()) fail("every name once in its header", "'" + duplicate + "' twice");
    return header;
  }

  void read_metadata(const Json& entry, Checkpoint& out) const {
    if (!entry.is_object()) fail("an object of strings as __metadata__", shown_json(entry));
    for (const auto& [key, value] : entry.items()) {
      if (!value.is_string()) fail("an object of strings as __metadata__", "'" + key + "': " + shown_json(value));
      out.metadata[key] = value.get<std::string>();
    }
  }

  Array read_tensor(const std::string& name, const Json& entry) {
    const std::string whose = "for tensor '" + name + "' ";
    if (!entry.is_object() || entry.size() != 3 || !entry.contains("dtype") || !entry.contains("shape") ||
        !entry.contains("data_offsets"))
      fail(whose + "exactly dtype, shape and data_offsets", shown_json(entry));
    const DType dtype = read_dtype(whose, entry["dtype"]);
    const std::vector<std::uint64_t> dims = read_integers(whose + "a shape of non-negative integers", entry["shape"]);
    const std::vector<std::uint64_t> offsets = read_integers(whose + "two data_offsets", entry["data_offsets"]);
    if (offsets.size() != 2 || offsets[0] > offsets[1] || offsets[1] > data_.size())
      fail(whose + "two data_offsets, in order and inside the " + std::to_string(data_.size()) + " bytes of data",
           shown_json(entry["data_offsets"]));
    if (dims.size() > static_cast<std::size_t>(Shape::max_rank))
      fail(whose + "at most " + std::to_string(Shape::max_rank) + " axes", shown_json(entry["shape"]));

    std::uint64_t bytes = size_of(dtype);
    Shape shape;
    for (const std::uint64_t dim : dims) {
      if (dim > static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max()) ||
          (dim != 0 && bytes > std::numeric_limits<std::uint64_t>::max() / dim))
        fail(whose + "a shape whose size can be counted", shown_json(entry["shape"]));
      bytes *= dim;
      shape.push_back(static_cast<std::int64_t>(dim));
    }
    if (bytes != offsets[1] - offsets[0])
      fail(whose + std::to_string(bytes) + " bytes for its dtype and shape", std::to_string(offsets[1] - offsets[0]));
    ranges_.emplace_back(offsets[0], offsets[1]);

    Array array(dtype, shape);
    if (bytes > 0) std::memcpy(array.raw(), data_.data() + offsets[0], bytes);
    if (dtype == DType::Bool)
      for (const std::uint8_t value : array.data<std::uint8_t>())
        if (value > 1) fail(whose + "bools of 0 or 1", std::to_string(value));
    return array;
  }

  DType read_dtype(const std::string& whose, const Json& value) const {
    for (const DType dtype : {DType::Bool, DType::I32, DType::U32, DType::I64, DType::F32, DType::F64})
      if (value.is_string() && value.get<std::string>() == format_name(dtype)) return dtype;
    fail(whose + "a dtype of BOOL, I32, U32, I64, F32 or F64", shown_json(value));
  }

  std::vector<std::uint64_t> read_integers(const std::string& requirement, const Json& value) const {
    std::vector<std::uint64_t> out;
    if (!value.is_array()) fail(requirement, shown_json(value));
    for (const Json& item : value) {
      if (!item.is_number_unsigned()) fail(requirement, shown_json(value));
      out.push_back(item.get<std::uint64_t>());
    }
    return out;
  }

  void check_coverage() {
    std::ranges::sort(ranges_);
    std::uint64_t end = 0;
    for (const auto& [start, stop] : ranges_) {
      if (start != end)
        fail("tensors that follow each other without holes or overlaps",
             "one at " + std::to_string(start) + " after one that ends at " + std::to_string(end));
      end = stop;
    }
    if (end != data_.size())
      fail("no bytes beside its tensors", std::to_string(data_.size() - end) + " bytes after the last");
  }

  std::string_view bytes_, data_;
  const std::string& source_;
  std::vector<std::pair<std::uint64_t, std::uint64_t>> ranges_;
};

}  // namespace

const Array& Checkpoint::operator[](std::string_view name) const {
  std::vector<std::string> names;
  for (const auto& [own, array] : tensors) {
    if (own == name) return array;
    names.push_back(own);
  }
  throw UserError("checkpoint", "the tensor must be there", "'" + std::string(name) + "'", nearest_hint(name, names));
}

std::string print_safetensors(const Checkpoint& checkpoint) {
  Json header = Json::object();
  if (!checkpoint.metadata.empty()) header[metadata_key] = checkpoint.metadata;
  std::uint64_t offset = 0;
  for (const auto& [name, array] : checkpoint.tensors) {
    if (name == metadata_key || header.contains(name))
      throw UserError("safetensors", "tensor names must differ and not be __metadata__", "'" + name + "'");
    header[name] = {{"dtype", format_name(array.dtype())},
                    {"shape", array.shape().vec()},
                    {"data_offsets", {offset, offset + array.bytes()}}};
    offset += array.bytes();
  }
  std::string text = header.dump();
  text.append((8 - text.size() % 8) % 8, ' ');  // the data starts at a multiple of 8, for readers that map the file
  std::string bytes;
  bytes.reserve(8 + text.size() + offset);
  for (int i = 0; i < 8; ++i) bytes += static_cast<char>(static_cast<std::uint64_t>(text.size()) >> (8 * i) & 0xff);
  bytes += text;
  for (const auto& [name, array] : checkpoint.tensors)
    bytes.append(static_cast<const char*>(array.raw()), array.bytes());
  return bytes;
}

void save_safetensors(const std::filesystem::path& path, const Checkpoint& checkpoint) {
  write_file_atomic(path, print_safetensors(checkpoint), "safetensors");
}

Checkpoint parse_safetensors(std::string_view bytes, const std::string& source) { return Reader(bytes, source).read(); }

Checkpoint load_safetensors(const std::filesystem::path& path) {
  const std::string bytes = read_file(path, "safetensors");
  return parse_safetensors(bytes, path.string());
}

}  // namespace hotloop::io
