#include "data/row_store.h"

#include <fcntl.h>
#include <unistd.h>
#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>

#include "hotloop/error.h"

namespace hotloop::data {
namespace {

constexpr std::size_t chunk_bytes = std::size_t{1} << 18;

std::filesystem::path temporary_folder(const MemoryOptions& options) {
  if (!options.folder.empty()) return options.folder;
  const char* set = std::getenv("TMPDIR");
  return set != nullptr && *set != '\0' ? set : "/tmp";
}

// A file that nobody else can see and that goes with the process.
int open_unlinked(const std::filesystem::path& folder) {
  int fd = ::open(folder.c_str(), O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
  if (fd >= 0) return fd;
  std::string name = (folder / "hotloop.XXXXXX").string();
  fd = ::mkostemp(name.data(), O_CLOEXEC);
  if (fd >= 0) ::unlink(name.c_str());
  return fd;
}

}  // namespace

bool MemoryBudget::take(std::size_t bytes) {
  if (bytes > options_.bytes - std::min(options_.bytes, used_)) return false;
  used_ += bytes;
  return true;
}

RowStore::RowStore(std::size_t row_bytes, std::shared_ptr<MemoryBudget> budget)
    : row_bytes_(std::max<std::size_t>(1, row_bytes)), budget_(std::move(budget)) {}

RowStore::~RowStore() {
  if (fd_ >= 0) ::close(fd_);
  budget_->give(chunks_.size() * rows_per_chunk() * row_bytes_);
}

std::size_t RowStore::rows_per_chunk() const { return std::max<std::size_t>(1, chunk_bytes / row_bytes_); }

void RowStore::write(std::int64_t first, std::int64_t count, const void* rows) {
  const auto begin = static_cast<std::size_t>(first), end = begin + static_cast<std::size_t>(count);
  const std::size_t per_chunk = rows_per_chunk();
  while (fd_ < 0 && chunks_.size() * per_chunk < end) {
    if (budget_->take(per_chunk * row_bytes_))
      chunks_.push_back(std::make_unique<std::byte[]>(per_chunk * row_bytes_));
    else
      move_to_file();
  }
  num_rows_ = std::max(num_rows_, first + count);
  const auto* from = static_cast<const std::byte*>(rows);
  if (fd_ >= 0) return write_file(begin * row_bytes_, static_cast<std::size_t>(count) * row_bytes_, from);
  for (std::size_t row = begin; row < end;) {
    const std::size_t n = std::min(end - row, per_chunk - row % per_chunk);
    std::memcpy(chunks_[row / per_chunk].get() + row % per_chunk * row_bytes_, from, n * row_bytes_);
    from += n * row_bytes_;
    row += n;
  }
}

void RowStore::read(std::int64_t first, std::int64_t count, void* rows) const {
  HOTLOOP_CHECK(first >= 0 && count >= 0 && first + count <= num_rows_, "rows outside of a store");
  auto* out = static_cast<std::byte*>(rows);
  if (fd_ < 0) {
    const auto begin = static_cast<std::size_t>(first), end = begin + static_cast<std::size_t>(count);
    const std::size_t per_chunk = rows_per_chunk();
    for (std::size_t row = begin; row < end;) {
      const std::size_t n = std::min(end - row, per_chunk - row % per_chunk);
      std::memcpy(out, chunks_[row / per_chunk].get() + row % per_chunk * row_bytes_, n * row_bytes_);
      out += n * row_bytes_;
      row += n;
    }
    return;
  }
  std::uint64_t offset = static_cast<std::uint64_t>(first) * row_bytes_;
  for (std::size_t left = static_cast<std::size_t>(count) * row_bytes_; left > 0;) {
    const ssize_t n = ::pread(fd_, out, left, static_cast<off_t>(offset));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) fail("the temporary file must be readable");
    if (n == 0) {  // a row that was never written, at the end
      std::memset(out, 0, left);
      return;
    }
    out += n;
    offset += static_cast<std::uint64_t>(n);
    left -= static_cast<std::size_t>(n);
  }
}

void RowStore::move_to_file() {
  fd_ = open_unlinked(temporary_folder(budget_->options()));
  if (fd_ < 0) fail("a folder for temporary files must be writable");
  const std::size_t bytes = rows_per_chunk() * row_bytes_;
  for (std::size_t i = 0; i < chunks_.size(); ++i) {
    write_file(i * bytes, bytes, chunks_[i].get());
    chunks_[i].reset();
  }
  budget_->give(chunks_.size() * bytes);
  chunks_.clear();
}

void RowStore::write_file(std::uint64_t offset, std::size_t bytes, const void* from) {
  const auto* at = static_cast<const std::byte*>(from);
  while (bytes > 0) {
    const ssize_t n = ::pwrite(fd_, at, bytes, static_cast<off_t>(offset));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) fail("the disk must have room for a temporary file");
    at += n;
    offset += static_cast<std::uint64_t>(n);
    bytes -= static_cast<std::size_t>(n);
  }
}

void RowStore::fail(const char* requirement) const {
  const int reason = errno;
  throw UserError("data", requirement,
                  temporary_folder(budget_->options()).string() + " (" + std::strerror(reason) + ")",
                  "TMPDIR=<a folder with room>, or a larger [data] memory_mb");
}

}  // namespace hotloop::data
