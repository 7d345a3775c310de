#include "io/reader.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>
#include <cerrno>
#include <cstring>

#include "hotloop/error.h"

namespace hotloop::io {
namespace {

[[noreturn]] void fail(const std::string& where, const std::filesystem::path& path) {
  const int reason = errno;
  throw UserError(where, "the file must be readable", path.string() + " (" + std::strerror(reason) + ")",
                  reason == ENOENT ? "check the path; relative ones start at the working directory" : "");
}

}  // namespace

FileReader::FileReader(std::filesystem::path path, std::string where)
    : path_(std::move(path)), where_(std::move(where)), fd_(::open(path_.c_str(), O_RDONLY | O_CLOEXEC)) {
  if (fd_ < 0) fail(where_, path_);
}

FileReader::~FileReader() {
  if (fd_ >= 0) ::close(fd_);
}

std::size_t FileReader::read(void* out, std::size_t size) {
  std::size_t done = 0;
  while (done < size) {
    const ssize_t count = ::read(fd_, static_cast<char*>(out) + done, size - done);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) fail(where_, path_);
    if (count == 0) break;
    done += static_cast<std::size_t>(count);
  }
  return done;
}

std::size_t FileReader::read_at(std::uint64_t offset, void* out, std::size_t size) const {
  std::size_t done = 0;
  while (done < size) {
    const ssize_t count = ::pread(fd_, static_cast<char*>(out) + done, size - done, static_cast<off_t>(offset + done));
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) fail(where_, path_);
    if (count == 0) break;
    done += static_cast<std::size_t>(count);
  }
  return done;
}

std::uint64_t FileReader::size() const {
  struct stat info {};
  if (::fstat(fd_, &info) != 0) fail(where_, path_);
  return S_ISREG(info.st_mode) ? static_cast<std::uint64_t>(info.st_size) : 0;
}

}  // namespace hotloop::io
