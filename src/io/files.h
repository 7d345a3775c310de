// Files and folders that are there whole or not at all.
#pragma once

#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace hotloop::io {

// Where something is being put together before it is renamed into place, names begin with this. What a killed program left
// behind is removed by remove_temporaries().
inline constexpr std::string_view temporary_prefix = ".tmp-";

// The bytes of a file. UserError "[where] ..." with the system's reason if it cannot be read.
std::string read_file(const std::filesystem::path& path, const std::string& where);
// Writes to a temporary file in the same folder, flushes it to the disk, renames it over `path` and flushes the folder: a
// reader, a kill or a power failure sees the old contents or the new, never a part. UserError with the system's reason if
// that fails (a full disk, say); the old contents are then still there. The file that a link leads to is replaced, not the link, and it keeps its
// permissions. What is there and no regular file, such as a device or a folder, is refused.
void write_file_atomic(const std::filesystem::path& path, std::string_view bytes, const std::string& where);

// The same for a file that is written piece by piece. Without commit() nothing of it remains.
class AtomicFile {
 public:
  AtomicFile(const std::filesystem::path& path, const std::string& where);
  ~AtomicFile();
  AtomicFile(const AtomicFile&) = delete;
  AtomicFile& operator=(const AtomicFile&) = delete;

  void write(std::string_view bytes);
  void flush();   // to the disk; then there is no more to write
  void commit();  // flush(), if that was not called, and into place

 private:
  void discard();
  [[noreturn]] void fail(int reason);

  std::filesystem::path path_;
  std::string where_, temporary_;  // empty once it is in place
  int fd_;
};

// UserError if there is something at `path` already, other than an empty folder.
void refuse_existing(const std::filesystem::path& path, const std::string& where,
                     const std::string& remedy = "another name, or remove it");
// A folder's path as its name, "runs/demand" of "runs/demand/". The functions below take both.
std::filesystem::path without_slash(const std::filesystem::path& path);

// The same for a folder of files (name, bytes), which must not be there yet: it appears with all of them at once.
using NamedBytes = std::vector<std::pair<std::string, std::string>>;
void write_folder_atomic(const std::filesystem::path& path, const NamedBytes& files, const std::string& where);
// The same in place of the folder that is there: a reader finds the old files or the new ones. Where the system cannot exchange two folders there is
// none for a moment.
void replace_folder_atomic(const std::filesystem::path& path, const NamedBytes& files, const std::string& where);
// Replaces files of a folder, whose others stay. All are on the disk before the first is replaced: where one cannot be written none is.
// `obsolete`: files that go, if they are there, before the others come.
void replace_files(const std::filesystem::path& folder, const NamedBytes& files, std::span<const std::string> obsolete,
                   const std::string& where);
// Takes a folder away in one step, then deletes what is in it.
void remove_folder_atomic(const std::filesystem::path& path);

// Creates the folder and those above it; whether it was not there. UserError with the system's reason if that cannot be.
bool create_folder(const std::filesystem::path& path, const std::string& where);
// Deletes what interrupted writes left in a folder. Only for one who alone writes there.
void remove_temporaries(const std::filesystem::path& folder);

// UserError that says of a folder that another process has it.
[[noreturn]] void refuse_locked(const std::filesystem::path& folder, const std::string& where);
// Keeps a folder for this process: a second lock fails with UserError until the first is gone, by whatever end.
class FolderLock {
 public:
  FolderLock(const std::filesystem::path& folder, const std::string& where);
  // Of a folder that is made if it is not there, which sets `made`; none if another process has it.
  static std::optional<FolderLock> create(const std::filesystem::path& folder, const std::string& where, bool& made);
  ~FolderLock();
  FolderLock(FolderLock&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  FolderLock& operator=(FolderLock&&) = delete;
  FolderLock(const FolderLock&) = delete;
  FolderLock& operator=(const FolderLock&) = delete;

 private:
  explicit FolderLock(int fd) : fd_(fd) {}

  int fd_;  // -1: of a file system without locks
};

}  // namespace hotloop::io
