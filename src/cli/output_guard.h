// What a command may write to, so that nothing is lost to its output.
#pragma once

#include <filesystem>
#include <span>
#include <string>

namespace hotloop::cli {

// Whether the path, followed through all links or only those on its way, lies below the folder.
bool lies_in(const std::filesystem::path& path, const std::filesystem::path& folder);

// UserError "[where] ..." unless the file can be written: none of the inputs, under whatever name, nothing but a regular file, which would be
// replaced, and another file only where that is wanted.
void check_output_file(const std::string& where, const std::filesystem::path& out,
                       std::span<const std::filesystem::path> inputs, bool overwrite);

}  // namespace hotloop::cli
