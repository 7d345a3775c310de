// Instead of src/io/npz.cpp in a portable build (HOTLOOP_PORTABLE).
#include "hotloop/error.h"
#include "hotloop/npy.h"

namespace hotloop::io {
namespace {

[[noreturn]] void refuse(const std::string& source) {
  throw UserError("npz", "needs a build with zlib", source + " in one made with HOTLOOP_PORTABLE=ON", ".npy files");
}

}  // namespace

std::vector<std::pair<std::string, Array>> parse_npz(std::string_view, const std::string& source) { refuse(source); }
std::vector<std::pair<std::string, Array>> load_npz(const std::filesystem::path& path) { refuse(path.string()); }

}  // namespace hotloop::io
