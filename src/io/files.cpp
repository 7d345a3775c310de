#include "io/files.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <list>
#include <random>

#include "hotloop/error.h"

namespace hotloop::io {
namespace {

namespace fs = std::filesystem;

std::string remedy_for(int reason) {
  switch (reason) {
    case ENOENT:
    case ENOTDIR: return "check the path; relative ones start at the working directory";
    case ENOSPC:
    case EDQUOT:
    case EFBIG: return "free some space, or write to another disk; what was there before is unchanged";
    case EACCES:
    case EPERM:
    case EROFS: return "a folder that you may write to";
    default: return "";
  }
}

[[noreturn]] void fail(const std::string& where, const std::string& requirement, const fs::path& path, int reason) {
  throw UserError(where, requirement, path.string() + " (" + std::strerror(reason) + ")", remedy_for(reason));
}

class Descriptor {
 public:
  explicit Descriptor(int fd) : fd_(fd) {}
  ~Descriptor() {
    if (fd_ >= 0) ::close(fd_);
  }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  int get() const { return fd_; }
  // Some file systems report only here that the disk was full.
  bool close() { return ::close(std::exchange(fd_, -1)) == 0; }

 private:
  int fd_;
};

// The folder that holds what is named by a path without a slash behind.
fs::path parent_of(const fs::path& path) { return path.has_parent_path() ? path.parent_path() : fs::path("."); }

// Sets `name` to one in the folder that was free, and gives what make(name) does: -1 if it fails. mkostemp and mkdtemp would make what its
// owner alone may read; made with the modes of any file and folder, the system takes off what the umask says, which no thread can ask for
// without changing it for all.
template <class Make> int make_temporary(const fs::path& folder, std::string& name, const Make& make) {
  const std::string prefix = (folder / temporary_prefix).string();
  for (int attempts_left = 100;;) {
    name = prefix + std::to_string(std::random_device{}());
    const int made = make(name.c_str());
    if (made >= 0 || errno != EEXIST || --attempts_left == 0) return made;
  }
}

// What stat() finds at a path, as messages call it.
std::string_view kind_of(mode_t mode) {
  if (S_ISDIR(mode)) return "a folder";
  if (S_ISFIFO(mode)) return "a pipe";
  if (S_ISSOCK(mode)) return "a socket";
  return "a device";
}

// The path at the end of links, which may lead to a file that is not there yet.
fs::path linked_file(fs::path path) {
  constexpr int most_links = 40;  // as many as Linux follows
  std::error_code none;
  for (int i = 0; i < most_links && fs::is_symlink(path, none); ++i)
    path = path.parent_path() / fs::read_symlink(path, none);
  return path;
}

// The same, of a file that is made or replaced. In place of a pipe or a device there would be a regular file.
fs::path replaceable_file(const fs::path& path, const std::string& where) {
  const fs::path file = linked_file(path);
  struct stat there {};
  if (::stat(file.c_str(), &there) == 0 && !S_ISREG(there.st_mode))
    throw UserError(where, "what is replaced must be a regular file",
                    file.string() + " (" + std::string(kind_of(there.st_mode)) + ")",
                    S_ISDIR(there.st_mode) ? "a name in it" : "another name");
  return file;
}

int make_temporary_folder(const fs::path& folder, std::string& name) {
  return make_temporary(folder, name, [](const char* path) { return ::mkdir(path, 0777); });
}

int create_file(const char* path) { return ::open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666); }

// The functions below return 0 or errno.

int sync_folder(const fs::path& folder) {
  Descriptor descriptor(::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (descriptor.get() < 0) return errno;
  // Some file systems have no such operation, and then nothing to flush either.
  return ::fsync(descriptor.get()) == 0 || errno == EINVAL ? 0 : errno;
}

int write_whole(int fd, std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t count = ::write(fd, bytes.data(), bytes.size());
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return errno;
    bytes.remove_prefix(static_cast<std::size_t>(count));
  }
  return 0;
}

int sync_and_close(Descriptor& file) { return ::fsync(file.get()) == 0 && file.close() ? 0 : errno; }

}  // namespace

fs::path without_slash(const fs::path& path) {
  return path.has_filename() || !path.has_parent_path() ? path : path.parent_path();
}

void refuse_existing(const fs::path& path, const std::string& where, const std::string& remedy) {
  std::error_code none;
  if (fs::exists(path, none) && !(fs::is_directory(path, none) && fs::is_empty(path, none)))
    throw UserError(where, "the folder to write must not exist", path.string(), remedy);
}

std::string read_file(const fs::path& path, const std::string& where) {
  const Descriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (file.get() < 0) fail(where, "the file must be readable", path, errno);
  std::string bytes;
  char block[1 << 16];
  for (;;) {
    const ssize_t count = ::read(file.get(), block, sizeof block);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) fail(where, "the file must be readable", path, errno);
    if (count == 0) return bytes;
    bytes.append(block, static_cast<std::size_t>(count));
  }
}

AtomicFile::AtomicFile(const fs::path& path, const std::string& where)
    : path_(replaceable_file(path, where)),
      where_(where),
      fd_(make_temporary(parent_of(path_), temporary_, create_file)) {
  if (fd_ < 0) io::fail(where_, "the folder must be writable", path_, errno);
  struct stat there {};
  if (::stat(path_.c_str(), &there) == 0 && ::fchmod(fd_, there.st_mode & 07777) != 0) fail(errno);
}

AtomicFile::~AtomicFile() { discard(); }

void AtomicFile::discard() {
  if (fd_ >= 0) ::close(std::exchange(fd_, -1));
  if (!temporary_.empty()) ::unlink(std::exchange(temporary_, {}).c_str());
}

void AtomicFile::fail(int reason) {
  discard();
  io::fail(where_, "the file must be writable", path_, reason);
}

void AtomicFile::write(std::string_view bytes) {
  if (const int reason = write_whole(fd_, bytes)) fail(reason);
}

void AtomicFile::flush() {
  Descriptor file(std::exchange(fd_, -1));
  if (file.get() < 0) return;
  if (const int reason = sync_and_close(file)) fail(reason);
}

void AtomicFile::commit() {
  flush();
  if (::rename(temporary_.c_str(), path_.c_str()) != 0) fail(errno);
  temporary_.clear();
  // Past the rename the new contents are what readers see; only a power failure could still bring the old ones back.
  if (const int reason = sync_folder(parent_of(path_))) io::fail(where_, "the folder must be writable", path_, reason);
}

void write_file_atomic(const fs::path& path, std::string_view bytes, const std::string& where) {
  AtomicFile file(path, where);
  file.write(bytes);
  file.commit();
}

void replace_files(const fs::path& folder, const NamedBytes& files, std::span<const std::string> obsolete,
                   const std::string& where) {
  std::list<AtomicFile> written;
  for (const auto& [name, bytes] : files) {
    written.emplace_back(folder / name, where).write(bytes);
    written.back().flush();
  }
  std::error_code ignored;
  for (const std::string& name : obsolete) fs::remove(folder / name, ignored);
  for (AtomicFile& file : written) file.commit();
}

namespace {

// A folder beside `path` with the files, put into its place by `place(temporary, path)`, which gives 0 or errno.
template <class Place>
void write_folder(const fs::path& named, const NamedBytes& files, const std::string& where, const Place& place) {
  const fs::path path = without_slash(named);
  std::string temporary;
  if (make_temporary_folder(parent_of(path), temporary) < 0) fail(where, "the folder must be writable", path, errno);
  int reason = 0;
  for (const auto& [name, bytes] : files) {
    if (reason != 0) break;
    Descriptor file(create_file((fs::path(temporary) / name).c_str()));
    reason = file.get() < 0 ? errno : write_whole(file.get(), bytes);
    if (reason == 0) reason = sync_and_close(file);
  }
  if (reason == 0) reason = sync_folder(temporary);
  if (reason == 0) reason = place(temporary, path);
  if (reason != 0) {
    std::error_code ignored;
    fs::remove_all(temporary, ignored);
    // Not an empty folder, which the rename would have replaced.
    if (reason == ENOTEMPTY || reason == EEXIST || reason == ENOTDIR) refuse_existing(path, where);
    fail(where, "the folder must be writable", path, reason);
  }
  if ((reason = sync_folder(parent_of(path))) != 0) fail(where, "the folder must be writable", path, reason);
}

int rename_to(const fs::path& from, const fs::path& to) { return ::rename(from.c_str(), to.c_str()) == 0 ? 0 : errno; }

}  // namespace

void write_folder_atomic(const fs::path& path, const NamedBytes& files, const std::string& where) {
  write_folder(path, files, where, rename_to);
}

void replace_folder_atomic(const fs::path& path, const NamedBytes& files, const std::string& where) {
  std::string old;
  write_folder(path, files, where, [&](const fs::path& made, const fs::path& place) {
    if (::renameat2(AT_FDCWD, made.c_str(), AT_FDCWD, place.c_str(), RENAME_EXCHANGE) == 0) {
      old = made;
      return 0;
    }
    if (errno != EINVAL && errno != ENOSYS) return errno;
    remove_folder_atomic(place);
    return rename_to(made, place);
  });
  std::error_code ignored;
  if (!old.empty()) fs::remove_all(old, ignored);
}

void remove_folder_atomic(const fs::path& named) {
  const fs::path path = without_slash(named);
  std::string temporary;
  std::error_code ignored;
  if (make_temporary_folder(parent_of(path), temporary) < 0) return;  // a folder too many does no harm
  ::rename(path.c_str(), (fs::path(temporary) / "removed").c_str());
  fs::remove_all(temporary, ignored);
}

bool create_folder(const fs::path& path, const std::string& where) {
  std::error_code error;
  const bool made = fs::create_directories(path, error);
  if (error) fail(where, "the folder must be one that can be made", path, error.value());
  return made;
}

void remove_temporaries(const fs::path& folder) {
  std::error_code ignored;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder, ignored))
    if (entry.path().filename().string().starts_with(temporary_prefix)) fs::remove_all(entry.path(), ignored);
}

namespace {

int open_folder(const fs::path& folder) { return ::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC); }

// Whether the lock on an open folder is this process's now. A file system without locks is no reason not to run: then it is closed.
bool lock_folder(int& fd) {
  if (::flock(fd, LOCK_EX | LOCK_NB) == 0) return true;
  const int reason = errno;
  ::close(std::exchange(fd, -1));
  return reason != EWOULDBLOCK;
}

bool is_at(int fd, const fs::path& path) {
  struct stat open {
  }, there{};
  return ::fstat(fd, &open) == 0 && ::stat(path.c_str(), &there) == 0 && open.st_dev == there.st_dev &&
         open.st_ino == there.st_ino;
}

}  // namespace

void refuse_locked(const fs::path& folder, const std::string& where) {
  throw UserError(where, "a run must be written by one program at a time", folder.string() + " is in use",
                  "wait for the other one to end, or another folder");
}

FolderLock::FolderLock(const fs::path& folder, const std::string& where) : fd_(open_folder(folder)) {
  if (fd_ < 0) fail(where, "the folder must be readable", folder, errno);
  if (!lock_folder(fd_)) refuse_locked(folder, where);
}

std::optional<FolderLock> FolderLock::create(const fs::path& folder, const std::string& where, bool& made) {
  for (;;) {
    made = create_folder(folder, where);
    int fd = open_folder(folder);
    // One that had it may have removed it at its end, before it was opened or after.
    if (fd < 0 && errno == ENOENT) continue;
    if (fd < 0) fail(where, "the folder must be readable", folder, errno);
    if (!lock_folder(fd)) return std::nullopt;
    FolderLock lock(fd);
    if (fd < 0 || is_at(fd, folder)) return lock;
  }
}

FolderLock::~FolderLock() {
  if (fd_ >= 0) ::close(fd_);
}

}  // namespace hotloop::io
