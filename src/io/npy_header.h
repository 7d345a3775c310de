// The header of an .npy file.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "hotloop/array.h"

namespace hotloop::io {

struct NpyHeader {
  std::size_t data_offset = 0;  // of the first element, in the file
  char kind = 'f';              // f, i, u or b
  std::size_t item_bytes = 4;
  Shape shape;
  std::uint64_t data_bytes = 0;

  DType dtype() const;  // that elements are read as
};

// The header at the start of a file of which `bytes` are the first, at most npy_header_bytes.
inline constexpr std::size_t npy_header_bytes = 65536;
NpyHeader parse_npy_header(std::string_view bytes, const std::string& source);
// `count` elements as they are in the file, to elements of header.dtype().
void convert_npy(const NpyHeader& header, const void* from, std::int64_t count, void* to);

}  // namespace hotloop::io
