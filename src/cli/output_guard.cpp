#include "cli/output_guard.h"

#include "hotloop/error.h"

namespace hotloop::cli {

namespace fs = std::filesystem;

bool lies_in(const fs::path& path, const fs::path& folder) {
  std::error_code none;
  const fs::path whole = fs::absolute(path, none).lexically_normal();
  for (fs::path at : {fs::weakly_canonical(whole.parent_path(), none), fs::weakly_canonical(whole, none).parent_path()})
    for (; !at.empty(); at = at.parent_path()) {
      if (fs::equivalent(at, folder, none)) return true;
      if (at == at.parent_path()) break;
    }
  return false;
}

void check_output_file(const std::string& where, const fs::path& out, std::span<const fs::path> inputs,
                       bool overwrite) {
  std::error_code none;
  for (const fs::path& input : inputs)
    if (fs::equivalent(out, input, none))
      throw UserError(where, "the output must be another file than the inputs",
                      out.string() + ", which is " + input.string(), "another name");
  const bool there = fs::exists(out, none);
  if (there && !fs::is_regular_file(out, none))
    throw UserError(where, "the output must be a file", out.string(), "another name, or no -o for the standard output");
  if (there && !overwrite)
    throw UserError(where, "the file to write must not exist", out.string(), "another name, or --overwrite");
}

}  // namespace hotloop::cli
