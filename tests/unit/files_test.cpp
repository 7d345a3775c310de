// Files and folders that are written whole.
#include "io/files.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <filesystem>
#include <string>

#include "hotloop/error.h"

namespace {
std::atomic<int> g_num_umasks{0};
}

// In place of the C library's, in this program.
extern "C" mode_t umask(mode_t mask) noexcept {
  ++g_num_umasks;
  return static_cast<mode_t>(syscall(SYS_umask, mask));
}

namespace hotloop::io {
namespace {

namespace fs = std::filesystem;

class Files : public ::testing::Test {
 protected:
  Files() {
    fs::remove_all(folder_);
    fs::create_directory(folder_);
  }
  ~Files() override { fs::remove_all(folder_); }

  int num_entries() const { return static_cast<int>(std::distance(fs::directory_iterator(folder_), {})); }

  const fs::path folder_ = ::testing::TempDir() + "hotloop_files_" + std::to_string(::getpid());
};

unsigned mode_of(const fs::path& path) { return static_cast<unsigned>(fs::status(path).permissions()); }

// The umask is the process's: who sets it, if only to see what it was, sets it for files that other threads make meanwhile.
TEST_F(Files, HaveTheModeThatTheUmaskLeavesAndNeverSetIt) {
  const mode_t before = ::umask(027);
  const int num_umasks = g_num_umasks;
  write_file_atomic(folder_ / "file", "bytes", "test");
  write_folder_atomic(folder_ / "folder", {{"inner", "bytes"}}, "test");
  EXPECT_EQ(g_num_umasks, num_umasks);
  ::umask(before);
  EXPECT_EQ(mode_of(folder_ / "file"), 0640u);
  EXPECT_EQ(mode_of(folder_ / "folder"), 0750u);
  EXPECT_EQ(mode_of(folder_ / "folder" / "inner"), 0640u);
  EXPECT_EQ(read_file(folder_ / "folder" / "inner", "test"), "bytes");
}

TEST_F(Files, ThatAreReplacedLeaveNothingBeside) {
  for (const char* bytes : {"first", "second"}) {
    write_file_atomic(folder_ / "file", bytes, "test");
    EXPECT_EQ(read_file(folder_ / "file", "test"), bytes);
  }
  write_folder_atomic(folder_ / "folder", {{"inner", "bytes"}}, "test");
  EXPECT_EQ(num_entries(), 2);
  const NamedBytes others = {{"other", "others"}};
  EXPECT_THROW(write_folder_atomic(folder_ / "folder", others, "test"), UserError);
  replace_folder_atomic(folder_ / "folder", others, "test");
  EXPECT_EQ(num_entries(), 2);
  EXPECT_EQ(read_file(folder_ / "folder" / "other", "test"), "others");
  EXPECT_FALSE(std::filesystem::exists(folder_ / "folder" / "inner"));
  remove_folder_atomic(folder_ / "folder");
  { AtomicFile(folder_ / "file", "test").write("never committed"); }
  EXPECT_EQ(num_entries(), 1);
  EXPECT_EQ(read_file(folder_ / "file", "test"), "second");
}

}  // namespace
}  // namespace hotloop::io
