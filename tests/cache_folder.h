// A folder of a test's own for the cache on disk, which is off in tests otherwise.
#pragma once

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <string>

namespace hotloop::testing {

class CacheFolder {
 public:
  CacheFolder() {
    std::filesystem::remove_all(path_);
    std::filesystem::create_directory(path_);
    unsetenv("HOTLOOP_CACHE");
    unsetenv("HOTLOOP_CACHE_MB");
    setenv("HOTLOOP_CACHE_DIR", path_.c_str(), 1);
  }
  ~CacheFolder() {
    std::filesystem::remove_all(path_);
    setenv("HOTLOOP_CACHE", "0", 1);
    unsetenv("HOTLOOP_CACHE_DIR");
    unsetenv("HOTLOOP_CACHE_MB");
  }
  CacheFolder(const CacheFolder&) = delete;
  CacheFolder& operator=(const CacheFolder&) = delete;

  const std::filesystem::path& path() const { return path_; }

 private:
  const std::filesystem::path path_ = ::testing::TempDir() + "hotloop_cache_folder_" + std::to_string(::getpid());
};

}  // namespace hotloop::testing
