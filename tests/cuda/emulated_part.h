// What the text of a kernel and the emulator know of each other.
#pragma once

#include <cstdint>

#include "backends/cuda/device.h"

namespace hotloop::cuda::emulated {

// What a kernel's text finds under HL_EMULATED in place of its own part for real devices. Meetings know their line in
// the text.
inline constexpr const char* part_before = R"(#include <stdint.h>
#include <string.h>

#define HL_DEVICE static inline
#define HL_KERNEL extern "C"
#define HL_TABLE static const
#define HL_LIKELY(x) __builtin_expect(!!(x), 1)
__extension__ typedef unsigned __int128 hl_wide;

// Filled in by the emulator whenever it lets a thread go on.
struct hl_emulated {
  int thread, worker, num_workers;
  int blocks, block_threads;  // of a worker; of a block
  unsigned char* const* near_memory;  // of each block of the worker
  void (*sync)(int line);
  void (*block_sync)(int line);
  bool (*any)(bool value, int line);
  uint64_t (*down)(uint64_t bits, int delta, int width, int line);
  bool (*meet)(uint32_t* barrier, const volatile int32_t* cancel, int line);
  void (*copy)(void* to, const void* from, int bytes);
  void (*copies_begun)();
  void (*copies_wait)(int pending);
};
static hl_emulated hl_emulated_now;
extern "C" hl_emulated* hl_emulated_part() { return &hl_emulated_now; }

static inline int hl_thread() { return hl_emulated_now.thread; }
static inline int hl_worker() { return hl_emulated_now.worker; }
static inline int hl_num_workers() { return hl_emulated_now.num_workers; }
static inline int hl_rank() { return hl_emulated_now.thread / hl_emulated_now.block_threads; }
static inline int hl_block_thread() { return hl_emulated_now.thread % hl_emulated_now.block_threads; }
static inline unsigned char* hl_near() { return hl_emulated_now.near_memory[hl_rank()]; }
template <class T, class V> static inline void hl_put(T* at, V value) {
  const T number = value;
  const uint64_t place = (unsigned char*)at - hl_near();
  for (int rank = 0; rank < hl_emulated_now.blocks; ++rank)
    memcpy(hl_emulated_now.near_memory[rank] + place, &number, sizeof number);
}
static inline void hl_sync_at(int line) { hl_emulated_now.sync(line); }
static inline void hl_block_sync_at(int line) { hl_emulated_now.block_sync(line); }
static inline bool hl_any_at(int line, bool value) { return hl_emulated_now.any(value, line); }
static inline bool hl_meet_at(int line, uint32_t* barrier, const volatile int32_t* cancel) {
  return hl_emulated_now.meet(barrier, cancel, line);
}
template <class T> static inline T hl_down_at(int line, T value, int delta, int width) {
  static_assert(sizeof(T) <= sizeof(uint64_t), "hl_down takes one number");
  uint64_t bits = 0;
  memcpy(&bits, &value, sizeof value);
  bits = hl_emulated_now.down(bits, delta, width, line);
  memcpy(&value, &bits, sizeof value);
  return value;
}
// hl_down<T>(...) is not the macro of that name.
template <class T> static inline T hl_down(T value, int delta, int width) { return hl_down_at(0, value, delta, width); }
#define hl_sync() hl_sync_at(__LINE__)
#define hl_block_sync() hl_block_sync_at(__LINE__)
#define hl_any(...) hl_any_at(__LINE__, __VA_ARGS__)
#define hl_meet(...) hl_meet_at(__LINE__, __VA_ARGS__)
#define hl_down(...) hl_down_at(__LINE__, __VA_ARGS__)

#define HL_EMULATED_BUILTIN(NAME)                                                  \
  static inline float hl_##NAME##_f32(float x) { return __builtin_##NAME##f(x); }  \
  static inline double hl_##NAME##_f64(double x) { return __builtin_##NAME(x); }
HL_EMULATED_BUILTIN(fabs)
HL_EMULATED_BUILTIN(floor)
HL_EMULATED_BUILTIN(ceil)
HL_EMULATED_BUILTIN(rint)
HL_EMULATED_BUILTIN(sqrt)
static inline float hl_fma_f32(float a, float b, float c) { return __builtin_fmaf(a, b, c); }
static inline double hl_fma_f64(double a, double b, double c) { return __builtin_fma(a, b, c); }
static inline int hl_clz(uint64_t x) { return x == 0 ? 64 : __builtin_clzll(x); }
static inline uint32_t hl_bits(float x) {
  uint32_t bits;
  memcpy(&bits, &x, sizeof bits);
  return bits;
}
// Off by a unit in the last place either way, and without numbers below the normal ones, as a device's may be.
static inline float hl_reciprocal(float x) {
  const uint32_t exponents = 0x7f800000u, sign = hl_bits(x) & 0x80000000u;
  float y = 1 / x;
  if ((hl_bits(x) & exponents) == 0) y = __builtin_inff();
  uint32_t bits = hl_bits(y);
  if ((bits & exponents) != exponents) bits += (hl_bits(x) * 2654435761u >> 16) % 3 - 1;
  if ((bits & exponents) == 0) bits = 0;
  bits = (bits & 0x7fffffffu) | sign;
  memcpy(&y, &bits, sizeof y);
  return y;
}
// Copies arrive no earlier than somebody waits for them.
template <int N, class T> static inline void hl_copy(T* to, const T* from) {
  const int bytes = N * sizeof(T);
  static_assert(bytes == 4 || bytes == 8 || bytes == 16, "the device copies no such words");
  if ((uint64_t)to % bytes != 0 || (uint64_t)from % bytes != 0) __builtin_trap();
  hl_emulated_now.copy(to, from, bytes);
}
static inline void hl_copies_begun() { hl_emulated_now.copies_begun(); }
template <int pending> static inline void hl_copies_wait() { hl_emulated_now.copies_wait(pending); }
#define HL_UNROLL(N)
)";

inline constexpr const char* part_behind = R"(
#ifndef HL_BLOCKS
#define HL_BLOCKS 1
#define HL_BLOCK_THREADS HL_THREADS
#endif
extern "C" int hl_emulated_threads() { return HL_BLOCK_THREADS; }
extern "C" int hl_emulated_blocks() { return HL_BLOCKS; }
)";

struct Part {  // hl_emulated of the text above
  int thread, worker, num_workers;
  int blocks, block_threads;  // of a worker; of a block
  unsigned char* const* near_memory;
  void (*sync)(int line);
  void (*block_sync)(int line);
  bool (*any)(bool value, int line);
  std::uint64_t (*down)(std::uint64_t bits, int delta, int width, int line);
  bool (*meet)(std::uint32_t* barrier, const volatile std::int32_t* cancel, int line);
  void (*copy)(void* to, const void* from, int bytes);
  void (*copies_begun)();
  void (*copies_wait)(int pending);
};

using KernelFunction = void (*)(KernelArguments);

}  // namespace hotloop::cuda::emulated
