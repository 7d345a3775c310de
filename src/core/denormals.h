// Numbers below the normal range, with which some processors compute many times more slowly.
#pragma once

#include <cmath>
#include <concepts>
#include <cstdint>

namespace hotloop {

// While one lives, its thread counts them as 0 with their sign, as operands and as results of f32 and f64 arithmetic (x86-64: FTZ and DAZ of
// MXCSR; AArch64: FZ of FPCR). Afterwards its floating-point environment is what it was before. Changing it takes a processor tens of cycles, so
// that a thread that is in the mode already stays as it is.
class DenormalsAsZero {
 public:
  explicit DenormalsAsZero(bool is_on) {
    if (!is_on) return;
    before_ = control();
    changed_ = (before_ & flushing) != flushing;
    if (changed_) set_control(before_ | flushing);
  }
  ~DenormalsAsZero() {
    if (changed_) set_control(before_);
  }
  DenormalsAsZero(const DenormalsAsZero&) = delete;
  DenormalsAsZero& operator=(const DenormalsAsZero&) = delete;

#if defined(__x86_64__)
  using Control = std::uint32_t;
  static constexpr Control flushing = 1u << 15 | 1u << 6;
  static Control control() { return __builtin_ia32_stmxcsr(); }

 private:
  static void set_control(Control value) { __builtin_ia32_ldmxcsr(value); }
#elif defined(__aarch64__)
  using Control = std::uint64_t;
  static constexpr Control flushing = std::uint64_t{1} << 24;
  static Control control() {
    Control value;
    asm volatile("mrs %0, fpcr" : "=r"(value)::"memory");
    return value;
  }

 private:
  static void set_control(Control value) { asm volatile("msr fpcr, %0" ::"r"(value) : "memory"); }
#else
  using Control = std::uint32_t;
  static constexpr Control flushing = 0;  // no such mode: compile() refuses the option
  static Control control() { return 0; }

 private:
  static void set_control(Control) {}
#endif

 public:
  static constexpr bool is_possible = flushing != 0;

 private:
  bool changed_ = false;
  Control before_ = 0;
};

// Whether arithmetic of this thread met a denormal as an operand while one lives: a flag of MXCSR, which stays up once it is. AArch64 has one for such operands
// only where they count as 0, and no processor there that they keep long.
class DenormalWatch {
 public:
#if defined(__x86_64__)
  DenormalWatch() { __builtin_ia32_ldmxcsr(before_ & ~denormal_operand); }
  ~DenormalWatch() { __builtin_ia32_ldmxcsr(before_ | (met() ? denormal_operand : 0)); }
  bool met() const { return (__builtin_ia32_stmxcsr() & denormal_operand) != 0; }

 private:
  static constexpr std::uint32_t denormal_operand = 1u << 1;
  const std::uint32_t before_ = __builtin_ia32_stmxcsr();
#else
  DenormalWatch() = default;
  bool met() const { return false; }
#endif
 public:
  DenormalWatch(const DenormalWatch&) = delete;
  DenormalWatch& operator=(const DenormalWatch&) = delete;
};

// What arithmetic of this thread takes x for: a zero where it is a denormal and they count so. For functions of the C library, which read bits.
template <std::floating_point T> T as_operand(T x) { return x == 0 ? std::copysign(T{0}, x) : x; }

}  // namespace hotloop
