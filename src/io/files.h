// Whole files in and out.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>

namespace hotloop::io {

// The bytes of a file. UserError "[where] ..." with the system's reason if it cannot be read.
std::string read_file(const std::filesystem::path& path, const std::string& where);
// Writes to a temporary file in the same folder, flushes it to the disk and renames it over `path`: a reader, or a
// crash, sees the old contents or the new, never a part.
void write_file_atomic(const std::filesystem::path& path, std::string_view bytes, const std::string& where);

}  // namespace hotloop::io
