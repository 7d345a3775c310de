#include "backends/llvm/object_cache.h"

#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "core/hash.h"

namespace hotloop::codegen {

namespace fs = std::filesystem;

namespace {

constexpr std::string_view magic = "hotloop object 1\n";

// The directory exists, is ours, and nobody else may enter it.
bool make_private(const std::string& directory) {
  std::error_code error;
  fs::create_directories(fs::path(directory).parent_path(), error);
  ::mkdir(directory.c_str(), 0700);
  struct stat status {};
  if (::lstat(directory.c_str(), &status) != 0 || !S_ISDIR(status.st_mode) || status.st_uid != ::geteuid())
    return false;
  return (status.st_mode & 077) == 0 || ::chmod(directory.c_str(), 0700) == 0;
}

}  // namespace

std::string ObjectCache::path_of(const std::string& key) const { return directory_ + "/" + hash128(key) + ".o"; }

// An entry: magic line, the key's hash, the checksum of what follows (32 digits each, and a newline), the object.
std::optional<std::string> ObjectCache::find(const std::string& key) const {
  if (!make_private(directory_)) return std::nullopt;
  std::ifstream file(path_of(key), std::ios::binary);
  if (!file) return std::nullopt;
  std::ostringstream bytes;
  bytes << file.rdbuf();
  const std::string entry = bytes.str();
  const std::size_t header = magic.size() + 65;
  if (entry.size() < header || entry.compare(0, magic.size(), magic) != 0) return std::nullopt;
  const std::string_view rest(entry.data() + header, entry.size() - header);
  if (entry.compare(magic.size(), 65, hash128(key) + hash128(rest) + "\n") != 0) return std::nullopt;
  return std::string(rest);
}

bool ObjectCache::insert(const std::string& key, std::string_view object) const {
  if (!make_private(directory_)) return false;
  static std::atomic<unsigned> serial{0};
  const std::string path = path_of(key);
  const std::string draft = path + "." + std::to_string(::getpid()) + "." + std::to_string(serial++);
  {
    std::ofstream file(draft, std::ios::binary);
    file << magic << hash128(key) << hash128(object) << '\n' << object;
    if (!file.flush()) {
      std::error_code ignored;
      fs::remove(draft, ignored);
      return false;
    }
  }
  std::error_code error;
  fs::rename(draft, path, error);
  if (error) fs::remove(draft, error);
  return !error;
}

}  // namespace hotloop::codegen
