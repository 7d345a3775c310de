#include "io/files.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>
#include <cerrno>
#include <cstring>

#include "hotloop/error.h"

namespace hotloop::io {
namespace {

[[noreturn]] void fail(const std::string& where, const std::string& requirement, const std::filesystem::path& path) {
  const std::string reason = std::strerror(errno);
  throw UserError(where, requirement, path.string() + " (" + reason + ")",
                  errno == ENOENT ? "check the path; relative ones start at the working directory" : "");
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

 private:
  int fd_;
};

}  // namespace

std::string read_file(const std::filesystem::path& path, const std::string& where) {
  const Descriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (file.get() < 0) fail(where, "the file must be readable", path);
  std::string bytes;
  char block[1 << 16];
  for (;;) {
    const ssize_t count = ::read(file.get(), block, sizeof block);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) fail(where, "the file must be readable", path);
    if (count == 0) return bytes;
    bytes.append(block, static_cast<std::size_t>(count));
  }
}

void write_file_atomic(const std::filesystem::path& path, std::string_view bytes, const std::string& where) {
  std::string temporary = path.string() + ".XXXXXX";
  bool complete = false;
  {
    const Descriptor file(::mkostemp(temporary.data(), O_CLOEXEC));
    if (file.get() < 0) fail(where, "the folder must be writable", path);
    while (!bytes.empty()) {
      const ssize_t count = ::write(file.get(), bytes.data(), bytes.size());
      if (count < 0 && errno == EINTR) continue;
      if (count < 0) break;
      bytes.remove_prefix(static_cast<std::size_t>(count));
    }
    // mkstemp gives 0600; a result file is as readable as one made by open().
    const mode_t mask = ::umask(0);
    ::umask(mask);
    complete = bytes.empty() && ::fchmod(file.get(), 0666 & ~mask) == 0 && ::fsync(file.get()) == 0;
  }
  if (!complete || ::rename(temporary.c_str(), path.c_str()) != 0) {
    const int reason = errno;
    ::unlink(temporary.c_str());
    errno = reason;
    fail(where, "the file must be writable", path);
  }
}

}  // namespace hotloop::io
