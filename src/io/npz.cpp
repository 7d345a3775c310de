// Zip archives (PKWARE APPNOTE 6.3.9) of .npy files; inflated by zlib.
#include <zlib.h>
#include <algorithm>
#include <bit>
#include <cstring>
#include <optional>

#include "core/utf8.h"
#include "hotloop/error.h"
#include "hotloop/npy.h"
#include "io/files.h"

namespace hotloop::io {
namespace {

constexpr std::uint64_t in_extra_16 = 0xFFFF, in_extra_32 = 0xFFFFFFFF;  // the true value is in a zip64 record

class Archive {
 public:
  Archive(std::string_view bytes, const std::string& source) : bytes_(bytes), source_(source) {}

  std::vector<std::pair<std::string, Array>> arrays() const {
    auto [at, count] = directory();
    std::vector<std::pair<std::string, Array>> all;
    for (std::uint64_t i = 0; i < count; ++i) {
      const Entry entry = read_entry(at);
      at = entry.next;
      std::string name = entry.name;
      if (name.ends_with('/')) continue;
      if (!name.ends_with(".npy")) refuse("every member must be an .npy file", "'" + printable(name) + "'");
      name.resize(name.size() - 4);
      if (std::ranges::find(all, name, &std::pair<std::string, Array>::first) != all.end())
        refuse("names must differ", "'" + printable(name) + "' twice");
      all.emplace_back(name, parse_npy(contents(entry), source_ + ":" + printable(name)));
    }
    return all;
  }

 private:
  struct Entry {
    std::string name;
    std::uint64_t flags = 0, method = 0, crc = 0, packed = 0, size = 0, local = 0, next = 0;
  };

  [[noreturn]] void refuse(const std::string& requirement, const std::string& received) const {
    throw UserError("npz", source_ + ": " + requirement, received, "numpy.savez the arrays again");
  }
  [[noreturn]] void damaged() const { refuse("the archive must be whole", "one that is damaged or cut off"); }

  std::string_view part(std::uint64_t at, std::uint64_t length) const {
    if (at > bytes_.size() || length > bytes_.size() - at) damaged();
    return bytes_.substr(at, length);
  }
  std::uint64_t number(std::uint64_t at, std::uint64_t length) const {
    std::uint64_t value = 0;
    const std::string_view text = part(at, length);
    for (std::size_t i = 0; i < text.size(); ++i)
      value |= static_cast<std::uint64_t>(static_cast<unsigned char>(text[i])) << (8 * i);
    return value;
  }

  // Where the central directory begins, and how many entries it has.
  std::pair<std::uint64_t, std::uint64_t> directory() const {
    if (!bytes_.starts_with("PK")) refuse("the file must be an .npz archive", "another file");
    const std::size_t end = bytes_.rfind("PK\5\6");
    if (end == bytes_.npos) damaged();
    std::uint64_t count = number(end + 10, 2), at = number(end + 16, 4);
    if ((count == in_extra_16 || at == in_extra_32) && end >= 20 && part(end - 20, 4) == "PK\6\7") {
      const std::uint64_t end64 = number(end - 12, 8);
      if (part(end64, 4) != "PK\6\6") damaged();
      count = number(end64 + 32, 8);
      at = number(end64 + 48, 8);
    }
    return {at, count};
  }

  Entry read_entry(std::uint64_t at) const {
    if (part(at, 4) != "PK\1\2") damaged();
    Entry entry;
    entry.flags = number(at + 8, 2);
    entry.method = number(at + 10, 2);
    entry.crc = number(at + 16, 4);
    entry.packed = number(at + 20, 4);
    entry.size = number(at + 24, 4);
    const std::uint64_t name = number(at + 28, 2), extra = number(at + 30, 2), comment = number(at + 32, 2);
    entry.local = number(at + 42, 4);
    entry.name = part(at + 46, name);
    entry.next = at + 46 + name + extra + comment;
    // A zip64 record holds, in this order, those of the values that did not fit.
    for (std::uint64_t field = at + 46 + name, last = field + extra; field + 4 <= last;) {
      const std::uint64_t id = number(field, 2), length = number(field + 2, 2);
      if (id == 1) {
        std::uint64_t value = field + 4;
        for (std::uint64_t* wanted : {&entry.size, &entry.packed, &entry.local})
          if (*wanted == in_extra_32) {
            *wanted = number(value, 8);
            value += 8;
          }
      }
      field += 4 + length;
    }
    return entry;
  }

  std::string contents(const Entry& entry) const {
    if ((entry.flags & 1) != 0) refuse("the archive must not be encrypted", "'" + printable(entry.name) + "' is");
    if (part(entry.local, 4) != "PK\3\4") damaged();
    const std::uint64_t begin = entry.local + 30 + number(entry.local + 26, 2) + number(entry.local + 28, 2);
    const std::string_view packed = part(begin, entry.packed);
    std::string plain;
    if (entry.method == 0)
      plain = packed;
    else if (entry.method == 8)
      plain = inflate_all(packed, entry.size);
    else
      refuse("members must be stored or deflated", "method " + std::to_string(entry.method));
    if (plain.size() != entry.size || checksum(plain) != entry.crc) damaged();
    return plain;
  }

  static std::uint64_t checksum(std::string_view text) {
    uLong crc = ::crc32(0, nullptr, 0);
    while (!text.empty()) {
      const std::string_view piece = text.substr(0, 1 << 30);
      crc = ::crc32(crc, reinterpret_cast<const Bytef*>(piece.data()), static_cast<uInt>(piece.size()));
      text.remove_prefix(piece.size());
    }
    return crc;
  }

  // Grows with what really comes out, so that a size that lies costs nothing.
  std::string inflate_all(std::string_view packed, std::uint64_t size) const {
    z_stream stream{};
    if (::inflateInit2(&stream, -MAX_WBITS) != Z_OK) damaged();
    const std::unique_ptr<z_stream, int (*)(z_stream*)> closer(&stream, ::inflateEnd);
    std::string plain;
    int status = Z_OK;
    while (status == Z_OK && plain.size() <= size) {
      if (stream.avail_in == 0) {
        const std::string_view piece = packed.substr(0, 1 << 30);
        stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(piece.data()));
        stream.avail_in = static_cast<uInt>(piece.size());
        packed.remove_prefix(piece.size());
      }
      char block[1 << 16];
      stream.next_out = reinterpret_cast<Bytef*>(block);
      stream.avail_out = sizeof block;
      status = ::inflate(&stream, Z_NO_FLUSH);
      plain.append(block, sizeof block - stream.avail_out);
    }
    if (status != Z_STREAM_END) damaged();
    return plain;
  }

  std::string_view bytes_;
  const std::string& source_;
};

}  // namespace

std::vector<std::pair<std::string, Array>> parse_npz(std::string_view bytes, const std::string& source) {
  return Archive(bytes, source).arrays();
}

std::vector<std::pair<std::string, Array>> load_npz(const std::filesystem::path& path) {
  return parse_npz(read_file(path, "npz"), path.string());
}

}  // namespace hotloop::io
