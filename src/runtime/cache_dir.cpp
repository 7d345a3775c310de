#include "runtime/cache_dir.h"

#include <sys/stat.h>
#include <unistd.h>

#include <charconv>
#include <cstdlib>
#include <filesystem>
#include <system_error>

#include "hotloop/error.h"

namespace hotloop::runtime {
namespace {

std::string variable(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

std::filesystem::path wanted_dir() {
  if (const std::string dir = variable("HOTLOOP_CACHE_DIR"); !dir.empty()) return dir;
  if (const std::string dir = variable("XDG_CACHE_HOME"); !dir.empty()) return std::filesystem::path(dir) / "hotloop";
  if (const std::string dir = variable("HOME"); !dir.empty()) return std::filesystem::path(dir) / ".cache" / "hotloop";
  return {};
}

bool make_own(const std::filesystem::path& dir) {
  ::mkdir(dir.c_str(), 0700);
  struct stat info {};
  return ::stat(dir.c_str(), &info) == 0 && S_ISDIR(info.st_mode) && info.st_uid == ::geteuid() &&
         (info.st_mode & (S_IWGRP | S_IWOTH)) == 0;
}

}  // namespace

std::string disk_cache_dir() {
  if (variable("HOTLOOP_CACHE") == "0" || disk_cache_bytes() == 0) return "";
  const std::filesystem::path dir = wanted_dir(), objects = dir / "objects";
  if (dir.empty()) return "";
  std::error_code error;  // seen by what follows
  std::filesystem::create_directories(dir.parent_path(), error);
  return make_own(dir) && make_own(objects) ? objects.string() : "";
}

std::int64_t disk_cache_bytes() {
  constexpr std::int64_t default_megabytes = 256, most_megabytes = std::int64_t{1} << 40;
  const std::string text = variable("HOTLOOP_CACHE_MB");
  if (text.empty()) return default_megabytes << 20;
  std::int64_t megabytes = -1;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), megabytes);
  if (error != std::errc{} || end != text.data() + text.size() || megabytes < 0 || megabytes > most_megabytes)
    throw UserError("cache", "HOTLOOP_CACHE_MB must be a whole number of megabytes", "'" + text + "'",
                    std::to_string(default_megabytes) + ", or 0 for no cache on disk");
  return megabytes << 20;
}

}  // namespace hotloop::runtime
