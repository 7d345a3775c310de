// Memory that tells what is written beside it.
#pragma once

#include <cstddef>
#include <cstring>
#include <string>

namespace hotloop::cuda::emulated {

inline std::size_t round_up(std::size_t bytes, std::size_t unit) { return (bytes + unit - 1) / unit * unit; }

std::size_t page_bytes();

// Bytes that end where memory that may not be touched begins, but for their alignment; what lies beside them is known.
class Guarded {
 public:
  Guarded() = default;
  Guarded(std::size_t bytes, std::size_t alignment);
  Guarded(Guarded&& other) noexcept;
  Guarded& operator=(Guarded&& other) noexcept;
  ~Guarded();
  unsigned char* begin() const { return begin_; }
  std::size_t bytes() const { return bytes_; }
  void poison() { std::memset(begin_, 0xff, bytes_); }
  void show(bool visible);
  // "" or how far beside it was written.
  std::string written_beside() const;

 private:
  static constexpr unsigned char beside = 0xa5;
  unsigned char* base_ = nullptr;
  unsigned char* begin_ = nullptr;
  std::size_t bytes_ = 0, inside_ = 0;
};

}  // namespace hotloop::cuda::emulated
