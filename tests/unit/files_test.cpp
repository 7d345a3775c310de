// Files and folders that are written whole.
#include "io/files.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
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

// A pipe or a device would become a regular file.
TEST_F(Files, OnlyRegularOnesAreReplaced) {
  const fs::path pipe = folder_ / "pipe", folder = folder_ / "folder", link = folder_ / "link", gone = folder_ / "gone";
  ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
  fs::create_directory(folder);
  fs::create_symlink("pipe", link);
  const auto refusal = [&](const fs::path& path) -> std::string {
    try {
      write_file_atomic(path, "bytes", "test");
    } catch (const UserError& e) {
      return e.what();
    }
    return "written";
  };
  const std::string requirement = "[test] what is replaced must be a regular file. Received: ";
  EXPECT_EQ(refusal(pipe), requirement + pipe.string() + " (a pipe). Try: another name.");
  EXPECT_EQ(refusal(link), requirement + pipe.string() + " (a pipe). Try: another name.");
  EXPECT_EQ(refusal(folder), requirement + folder.string() + " (a folder). Try: a name in it.");
  EXPECT_TRUE(fs::is_fifo(pipe));
  EXPECT_EQ(num_entries(), 3);
  fs::create_symlink("there", gone);  // leads to a file that is made
  EXPECT_EQ(refusal(gone), "written");
  EXPECT_EQ(read_file(folder_ / "there", "test"), "bytes");
}

// Files that belong together are those of one time.
TEST_F(Files, AreReplacedTogetherOrNotAtAll) {
  for (const char* name : {"a", "b", "other", "stays"}) write_file_atomic(folder_ / name, "old", "test");
  fs::create_directory(folder_ / "c");
  EXPECT_THROW(
      replace_files(folder_, {{"a", "new"}, {"b", "new"}, {"c", "new"}}, std::array<std::string, 1>{"other"}, "test"),
      UserError);
  EXPECT_EQ(num_entries(), 5);
  for (const char* name : {"a", "b", "other", "stays"}) EXPECT_EQ(read_file(folder_ / name, "test"), "old") << name;
  replace_files(folder_, {{"a", "new"}, {"b", "new"}}, std::array<std::string, 2>{"other", "b"}, "test");
  EXPECT_EQ(num_entries(), 4);
  for (const char* name : {"a", "b"}) EXPECT_EQ(read_file(folder_ / name, "test"), "new") << name;
  EXPECT_EQ(read_file(folder_ / "stays", "test"), "old");
}

TEST_F(Files, FoldersMayBeNamedWithASlashBehind) {
  const fs::path named = (folder_ / "folder").string() + "/";
  write_folder_atomic(named, {{"inner", "bytes"}}, "test");
  EXPECT_EQ(read_file(folder_ / "folder" / "inner", "test"), "bytes");
  replace_folder_atomic(named, {{"other", "bytes"}}, "test");
  EXPECT_EQ(read_file(folder_ / "folder" / "other", "test"), "bytes");
  EXPECT_EQ(num_entries(), 1);
  remove_folder_atomic(named);
  EXPECT_EQ(num_entries(), 0);
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
