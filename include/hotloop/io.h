// Checkpoints: named arrays in the safetensors format (https://github.com/huggingface/safetensors).
#pragma once

#include <filesystem>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "hotloop/array.h"

namespace hotloop::io {

struct Checkpoint {
  std::vector<std::pair<std::string, Array>> tensors;  // in the order of the file
  std::map<std::string, std::string> metadata;

  // UserError with the nearest name if there is no such tensor.
  const Array& operator[](std::string_view name) const;
};

// Written to a temporary file beside `path` and renamed into place, so a reader sees the old file or the new one.
// UserError for a tensor name that is used twice or reserved ("__metadata__").
void save_safetensors(const std::filesystem::path& path, const Checkpoint& checkpoint);
// Throws UserError naming the file for anything the format does not allow: a header that is too long, not an object or
// not UTF-8 JSON, a name twice, an unknown dtype, a shape that does not fit its bytes, offsets that overlap, leave a
// hole or lie outside the file. Dtypes without a counterpart here (f16, bf16, 8-bit) are refused by name.
Checkpoint load_safetensors(const std::filesystem::path& path);
// The same from memory; `source` stands for the file's name in messages.
Checkpoint parse_safetensors(std::string_view bytes, const std::string& source);
std::string print_safetensors(const Checkpoint& checkpoint);

}  // namespace hotloop::io
