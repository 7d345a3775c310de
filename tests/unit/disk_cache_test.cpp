// Compiled code on disk: whose folder it is, what is found, what is removed when there is too much of it.
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <thread>
#include <vector>

#include "backends/object_cache.h"
#include "cache_folder.h"
#include "hotloop/error.h"
#include "hotloop/hotloop.h"
#include "runtime/cache_dir.h"

namespace hotloop {
namespace {

namespace fs = std::filesystem;
using codegen::ObjectCache;

class DiskCache : public ::testing::Test {
 protected:
  const testing::CacheFolder own;
  const fs::path& folder = own.path();
};

unsigned mode_of(const fs::path& path) { return static_cast<unsigned>(fs::status(path).permissions()); }

std::string dir_in(const fs::path& path) {
  setenv("HOTLOOP_CACHE_DIR", path.c_str(), 1);
  return runtime::disk_cache_dir();
}

fs::path folder_of_mode(const fs::path& path, unsigned mode) {
  fs::create_directory(path);
  fs::permissions(path, static_cast<fs::perms>(mode));
  return path;
}

TEST_F(DiskCache, IsInAFolderOfItsOwn) {
  EXPECT_EQ(dir_in(folder / "a" / "b"), folder / "a" / "b" / "objects");
  EXPECT_EQ(mode_of(folder / "a" / "b"), 0700u);
  EXPECT_EQ(mode_of(folder / "a" / "b" / "objects"), 0700u);
}

TEST_F(DiskCache, LeavesTheModesOfFoldersAsTheyAre) {
  const fs::path open = folder_of_mode(folder / "open", 0755);
  EXPECT_EQ(dir_in(open), open / "objects");
  EXPECT_EQ(mode_of(open), 0755u);
  EXPECT_EQ(mode_of(open / "objects"), 0700u);
  fs::permissions(open / "objects", static_cast<fs::perms>(0750));
  EXPECT_EQ(dir_in(open), open / "objects");
  EXPECT_EQ(mode_of(open / "objects"), 0750u);
}

TEST_F(DiskCache, FollowsLinksToFoldersOfTheUser) {
  const fs::path real = folder_of_mode(folder / "real", 0700), link = folder / "link";
  fs::create_symlink("real", link);
  EXPECT_EQ(dir_in(link), link / "objects");
  EXPECT_TRUE(fs::is_directory(real / "objects"));
}

TEST_F(DiskCache, IsNotWhereOthersCanWrite) {
  EXPECT_EQ(dir_in(folder_of_mode(folder / "group", 0770)), "");
  EXPECT_EQ(dir_in(folder_of_mode(folder / "all", 01777)), "");
  EXPECT_FALSE(fs::exists(folder / "all" / "objects"));
  fs::create_symlink("group", folder / "link");
  EXPECT_EQ(dir_in(folder / "link"), "");
  folder_of_mode(folder / "mine", 0700);
  folder_of_mode(folder / "mine" / "objects", 0777);
  EXPECT_EQ(dir_in(folder / "mine"), "");
  std::ofstream(folder / "file") << "no folder";
  EXPECT_EQ(dir_in(folder / "file"), "");
}

TEST_F(DiskCache, ItsSizeIsAsked) {
  EXPECT_EQ(runtime::disk_cache_bytes(), 256 << 20);
  setenv("HOTLOOP_CACHE_MB", "3", 1);
  EXPECT_EQ(runtime::disk_cache_bytes(), 3 << 20);
  setenv("HOTLOOP_CACHE_MB", "0", 1);
  EXPECT_EQ(dir_in(folder / "none"), "");
  EXPECT_FALSE(fs::exists(folder / "none"));
  for (const char* wrong : {"many", "-1", "1.5", "3 ", "99999999999999999999"}) {
    setenv("HOTLOOP_CACHE_MB", wrong, 1);
    try {
      runtime::disk_cache_bytes();
      ADD_FAILURE() << wrong;
    } catch (const UserError& e) {
      EXPECT_EQ(std::string(e.what()), "[cache] HOTLOOP_CACHE_MB must be a whole number of megabytes. Received: '" +
                                           std::string(wrong) + "'. Try: 256, or 0 for no cache on disk.");
    }
  }
}

// Through compile(): from the folder of another process, as it were.
TEST_F(DiskCache, ServesPrograms) {
  const auto compiled = [](double number) {
    const auto graph = trace([=](std::span<const Value> v) { return std::vector<Value>{tanh(v[0]) * number}; },
                             std::vector<ValueType>{{DType::F32, {7}}});
    return compile(graph).explain();
  };
  fs::create_symlink(folder_of_mode(folder / "real", 0755), folder / "link");
  const std::string objects = dir_in(folder / "link");
  EXPECT_EQ(compiled(3.25).find("from the cache"), std::string::npos);
  ASSERT_FALSE(fs::is_empty(objects));
  for (int i = 0; i < 200; ++i) {  // until the memory has forgotten it
    CompileOptions options;
    options.backend = "interp";
    compile(trace([=](std::span<const Value> v) { return std::vector<Value>{v[0] * (i + 0.5)}; },
                  std::vector<ValueType>{{DType::F32, {7}}}),
            options);
  }
  EXPECT_NE(compiled(3.25).find("from the cache"), std::string::npos);
}

std::vector<std::string> keys(int count) {
  std::vector<std::string> all;
  for (int i = 0; i < count; ++i) all.push_back("key " + std::to_string(i));
  return all;
}

void set_age(const ObjectCache& cache, const std::string& key, std::chrono::hours age) {
  fs::last_write_time(cache.path_of(key), fs::file_time_type::clock::now() - age);
}

std::int64_t bytes_in(const fs::path& folder) {
  std::int64_t bytes = 0;
  for (const auto& file : fs::directory_iterator(folder)) bytes += static_cast<std::int64_t>(file.file_size());
  return bytes;
}

TEST_F(DiskCache, WhatWasNotUsedForLongestIsRemoved) {
  const std::string object(8000, 'o');                   // two blocks
  const ObjectCache cache(folder, std::int64_t{80000});  // nine entries
  const std::vector<std::string> all = keys(10);
  for (const std::string& key : all) ASSERT_TRUE(ObjectCache(folder, std::int64_t{1} << 40).insert(key, object));
  for (std::size_t i = 0; i < all.size(); ++i) set_age(cache, all[i], std::chrono::hours(100 - i));
  EXPECT_TRUE(cache.find(all[0]));  // that is a use
  cache.trim();
  EXPECT_TRUE(cache.find(all[0]));
  EXPECT_FALSE(cache.find(all[1]));
  for (std::size_t i = 2; i < all.size(); ++i) EXPECT_TRUE(cache.find(all[i])) << i;
  cache.trim();  // below the limit nothing goes
  for (std::size_t i = 2; i < all.size(); ++i) EXPECT_TRUE(cache.find(all[i])) << i;
}

TEST_F(DiskCache, TrimsDraftsThatAreOldAndNothingElse) {
  const ObjectCache cache(folder, 0);
  const fs::path old_draft = cache.path_of("a") + ".17.0", draft = cache.path_of("a") + ".18.0",
                 other = folder / "notes.o";
  for (const fs::path& path : {old_draft, draft, other}) std::ofstream(path) << "text";
  for (const fs::path& path : {old_draft, other})
    fs::last_write_time(path, fs::file_time_type::clock::now() - std::chrono::hours(2));
  cache.trim();
  EXPECT_FALSE(fs::exists(old_draft));
  EXPECT_TRUE(fs::exists(draft));
  EXPECT_TRUE(fs::exists(other));
}

// Each thread as a process would: what is found is whole, and the folder stays near its limit without anybody who asks for it.
TEST_F(DiskCache, StaysNearItsLimitUnderManyWriters) {
  constexpr std::int64_t limit = 1 << 20;
  const auto object_of = [](const std::string& key) { return key + std::string(5000 + key.back() * 50u, key.back()); };
  std::vector<std::thread> writers;
  for (int t = 0; t < 4; ++t)
    writers.emplace_back([&, t] {
      for (int i = 0; i < 400; ++i) {
        const ObjectCache cache(folder, limit);
        const std::string key = "key " + std::to_string((i * 7 + t * 13) % 1000);
        EXPECT_TRUE(cache.insert(key, object_of(key)));
        const std::string another = "key " + std::to_string((i * 11 + t) % 1000);
        if (const auto found = cache.find(another)) EXPECT_EQ(*found, object_of(another));
      }
    });
  for (std::thread& t : writers) t.join();
  EXPECT_LE(bytes_in(folder), limit + limit / 2);
  EXPECT_GE(bytes_in(folder), limit / 2);
}

TEST_F(DiskCache, AFolderThatIsGoneIsNoError) {
  const ObjectCache cache(folder / "gone", 1 << 20);
  EXPECT_FALSE(cache.insert("key", "object"));
  EXPECT_FALSE(cache.find("key"));
  cache.trim();
}

}  // namespace
}  // namespace hotloop
