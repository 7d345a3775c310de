#include "backends/object_cache.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <vector>

#include "core/hash.h"

namespace hotloop::codegen {

namespace fs = std::filesystem;

namespace {

constexpr std::string_view magic = "hotloop object 1\n";
constexpr std::size_t digits_of_hash = 32;
constexpr std::string_view suffix = ".o";
constexpr std::time_t hour = 3600;
constexpr std::int64_t free_part = 16;  // of the whole, once it was trimmed

// When it was used last, to an hour: more would be a write for each read.
void note_use(const std::string& path) {
  struct stat status {};
  if (::stat(path.c_str(), &status) == 0 && std::time(nullptr) - status.st_mtime > hour)
    ::utimensat(AT_FDCWD, path.c_str(), nullptr, 0);
}

struct File {
  fs::path path;
  std::int64_t bytes, used_ns;
};

// As file systems count them.
std::int64_t bytes_in_blocks(std::int64_t bytes) {
  constexpr std::int64_t block = 4096;
  return (bytes + block - 1) / block * block;
}

}  // namespace

std::string ObjectCache::name_of(const std::string& key) { return hash128(key); }

std::string ObjectCache::path_of_named(const std::string& name) const {
  return directory_ + "/" + name + std::string(suffix);
}

// An entry: magic line, its name, the checksum of what follows (32 digits each, and a newline), the object.
std::optional<std::string> ObjectCache::find_named(const std::string& name) const {
  const std::string path = path_of_named(name);
  std::ifstream file(path, std::ios::binary);
  if (!file) return std::nullopt;
  std::ostringstream bytes;
  bytes << file.rdbuf();
  const std::string entry = bytes.str();
  const std::size_t header = magic.size() + 65;
  if (entry.size() < header || entry.compare(0, magic.size(), magic) != 0) return std::nullopt;
  const std::string_view rest(entry.data() + header, entry.size() - header);
  if (entry.compare(magic.size(), 65, name + hash128(rest) + "\n") != 0) return std::nullopt;
  note_use(path);
  return std::string(rest);
}

bool ObjectCache::insert_named(const std::string& name, std::string_view object) const {
  static std::atomic<unsigned> serial{0};
  const std::string path = path_of_named(name);
  const std::string draft = path + "." + std::to_string(::getpid()) + "." + std::to_string(serial++);
  {
    std::ofstream file(draft, std::ios::binary);
    file << magic << name << hash128(object) << '\n' << object;
    if (!file.flush()) {
      std::error_code ignored;
      fs::remove(draft, ignored);
      return false;
    }
  }
  std::error_code error;
  fs::rename(draft, path, error);
  if (error) {
    fs::remove(draft, error);
    return false;
  }
  // A name, which is a hash, is the die, so that processes of few insertions take part and need to remember nothing.
  const auto sides = static_cast<std::uint64_t>(max_bytes_ / free_part + 1);
  if (fnv1a(name) % sides < static_cast<std::uint64_t>(bytes_in_blocks(std::ssize(object)))) trim();
  return true;
}

void ObjectCache::trim() const {
  std::vector<File> files;
  std::int64_t bytes = 0;
  std::error_code error;
  for (fs::directory_iterator at(directory_, error), end; !error && at != end; at.increment(error)) {
    const std::string name = at->path().filename().string();
    struct stat status {};
    if (name.find(suffix) != digits_of_hash || ::lstat(at->path().c_str(), &status) != 0 || !S_ISREG(status.st_mode))
      continue;
    const bool is_draft = name.size() > digits_of_hash + suffix.size();
    std::error_code ignored;
    if (is_draft && std::time(nullptr) - status.st_mtime > hour) fs::remove(at->path(), ignored);
    if (is_draft) continue;
    files.push_back(
        {at->path(), bytes_in_blocks(status.st_size), status.st_mtim.tv_sec * 1'000'000'000 + status.st_mtim.tv_nsec});
    bytes += files.back().bytes;
  }
  if (bytes <= max_bytes_) return;
  std::ranges::sort(files, {}, &File::used_ns);
  for (auto file = files.begin(); file != files.end() && bytes > max_bytes_ - max_bytes_ / free_part; ++file) {
    fs::remove(file->path, error);
    bytes -= file->bytes;
  }
}

}  // namespace hotloop::codegen
