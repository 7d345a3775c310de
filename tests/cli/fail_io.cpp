// Preloaded into a program under test: its HOTLOOP_FAIL_AT-th operation on files fails or kills it. Counted are what puts
// something on a disk: open to create, mkdir, write (to files), fsync, rename.
//   HOTLOOP_FAIL_HOW=full   from that operation on, whatever needs space fails with ENOSPC
//   HOTLOOP_FAIL_HOW=kill   SIGKILL instead of that operation
#include <dlfcn.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>
#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstdarg>
#include <cstdlib>
#include <string_view>

namespace {

std::atomic<long> counted{0};

// Counts an operation. True if it is to fail for want of space.
bool fails(bool needs_space) {
  const char* at = std::getenv("HOTLOOP_FAIL_AT");
  const char* how = std::getenv("HOTLOOP_FAIL_HOW");
  if (at == nullptr || how == nullptr || ++counted < std::atol(at)) return false;
  if (std::string_view(how) == "kill") kill(getpid(), SIGKILL);
  if (needs_space) errno = ENOSPC;
  return needs_space;
}

template <class F> F* original(const char* name) { return reinterpret_cast<F*>(dlsym(RTLD_NEXT, name)); }

bool is_kind(int fd, mode_t kind) {
  struct stat status {};
  return fstat(fd, &status) == 0 && (status.st_mode & S_IFMT) == kind;
}

int open_counted(const char* symbol, const char* path, int flags, mode_t mode) {
  if ((flags & O_CREAT) != 0) fails(false);
  return original<int(const char*, int, ...)>(symbol)(path, flags, mode);
}

}  // namespace

extern "C" {

ssize_t write(int fd, const void* data, size_t size) {
  if (is_kind(fd, S_IFREG) && fails(true)) return -1;
  return original<ssize_t(int, const void*, size_t)>("write")(fd, data, size);
}

int fsync(int fd) {
  if (fails(!is_kind(fd, S_IFDIR))) return -1;
  return original<int(int)>("fsync")(fd);
}

int rename(const char* from, const char* to) noexcept {
  fails(false);
  return original<int(const char*, const char*)>("rename")(from, to);
}

int mkdir(const char* path, mode_t mode) noexcept {
  if (fails(true)) return -1;
  return original<int(const char*, mode_t)>("mkdir")(path, mode);
}

int open(const char* path, int flags, ...) {
  va_list rest;
  va_start(rest, flags);
  const mode_t mode = (flags & O_CREAT) != 0 ? va_arg(rest, mode_t) : 0;
  va_end(rest);
  return open_counted("open", path, flags, mode);
}

int open64(const char* path, int flags, ...) {
  va_list rest;
  va_start(rest, flags);
  const mode_t mode = (flags & O_CREAT) != 0 ? va_arg(rest, mode_t) : 0;
  va_end(rest);
  return open_counted("open64", path, flags, mode);
}

}  // extern "C"
