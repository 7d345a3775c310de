#include "cuda/guarded.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <new>
#include <string>
#include <utility>

namespace hotloop::cuda::emulated {

std::size_t page_bytes() {
  static const auto bytes = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
  return bytes;
}

Guarded::Guarded(std::size_t bytes, std::size_t alignment) : bytes_(bytes) {
  const std::size_t page = page_bytes();
  inside_ = round_up(std::max<std::size_t>(bytes, 1), std::max(page, alignment));
  base_ = static_cast<unsigned char*>(
      mmap(nullptr, inside_ + 2 * page, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0));
  if (base_ == MAP_FAILED) throw std::bad_alloc();
  show(true);
  std::memset(base_ + page, beside, inside_);
  begin_ = base_ + page + inside_ - round_up(bytes, alignment);
  poison();
}

Guarded::Guarded(Guarded&& other) noexcept { *this = std::move(other); }

Guarded& Guarded::operator=(Guarded&& other) noexcept {
  std::swap(base_, other.base_);
  std::swap(begin_, other.begin_);
  std::swap(bytes_, other.bytes_);
  std::swap(inside_, other.inside_);
  return *this;
}

Guarded::~Guarded() {
  if (base_ != nullptr) munmap(base_, inside_ + 2 * page_bytes());
}

void Guarded::show(bool visible) {
  if (mprotect(base_ + page_bytes(), inside_, visible ? PROT_READ | PROT_WRITE : PROT_NONE) != 0) {
    throw std::bad_alloc();
  }
}

std::string Guarded::written_beside() const {
  const unsigned char* const first = base_ + page_bytes();
  for (const unsigned char* at = begin_; at-- > first;) {
    if (*at != beside) return std::to_string(begin_ - at) + " bytes before";
  }
  for (const unsigned char* at = begin_ + bytes_; at < first + inside_; ++at) {
    if (*at != beside) return std::to_string(at - begin_ - static_cast<std::ptrdiff_t>(bytes_)) + " bytes behind";
  }
  return "";
}

}  // namespace hotloop::cuda::emulated
