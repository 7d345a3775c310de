#include "runtime/cache_dir.h"

#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <string_view>
#include <system_error>

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

}  // namespace

std::string disk_cache_dir() {
  if (variable("HOTLOOP_CACHE") == "0") return "";
  const std::filesystem::path dir = wanted_dir();
  if (dir.empty()) return "";
  std::error_code error;
  if (std::filesystem::create_directories(dir, error))
    std::filesystem::permissions(dir, std::filesystem::perms::owner_all, error);
  // Code is loaded from here: nobody else may be able to write it.
  struct stat info {};
  if (error || ::stat(dir.c_str(), &info) != 0 || !S_ISDIR(info.st_mode) || info.st_uid != ::geteuid() ||
      (info.st_mode & (S_IWGRP | S_IWOTH)) != 0)
    return "";
  return dir.string();
}

}  // namespace hotloop::runtime
