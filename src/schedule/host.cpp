#include "schedule/host.h"

#include <unistd.h>

#if defined(__x86_64__)
#include <cpuid.h>
#endif
#if defined(__x86_64__) && defined(__linux__)
#include <sys/syscall.h>
#endif

#include <algorithm>

namespace hotloop::kernel {
namespace {

// AMX with bfloat16. Its registers are large, and a process has them once it has asked the system for them.
bool has_matrix_registers() {
#if defined(__x86_64__) && defined(__linux__) && defined(SYS_arch_prctl)
  static const bool granted = [] {
    constexpr unsigned amx_bf16 = 1u << 22, amx_tile = 1u << 24;  // of leaf 7, in edx
    constexpr long request_permission = 0x1023, tile_data = 18;   // ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA
    unsigned a = 0, b = 0, c = 0, d = 0;
    if (__get_cpuid_count(7, 0, &a, &b, &c, &d) == 0) return false;
    if ((d & amx_bf16) == 0 || (d & amx_tile) == 0) return false;
    return syscall(SYS_arch_prctl, request_permission, tile_data) == 0;
  }();
  return granted;
#else
  return false;
#endif
}

}  // namespace

bool host_multiplies_pairs() {
#if defined(__x86_64__)
  return host_runs("avx512") && __builtin_cpu_supports("avx512bf16") && !__builtin_cpu_is("intel");
#else
  return false;
#endif
}

std::int64_t host_l1_bytes() { return std::max<std::int64_t>(0, sysconf(_SC_LEVEL1_DCACHE_SIZE)); }
std::int64_t host_l2_bytes() { return std::max<std::int64_t>(0, sysconf(_SC_LEVEL2_CACHE_SIZE)); }

bool host_halves_vectors() {
#if defined(__x86_64__)
  return host_runs("avx512") && __builtin_cpu_is("amdfam19h");
#else
  return false;
#endif
}

bool host_has_near_l3() {
#if defined(__x86_64__)
  return __builtin_cpu_is("amd");
#else
  return false;
#endif
}

bool host_runs(const std::string& target) {
#if defined(__x86_64__)
  // The levels of the x86-64 psABI: -v4 and -v3 are what backends compile for.
  if (target == "avx512") {
    return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
           __builtin_cpu_supports("avx512cd") && __builtin_cpu_supports("avx512dq") &&
           __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("fma");
  }
  if (target == "amx") return host_runs("avx512") && has_matrix_registers();
  if (target == "avx2") {
    return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("bmi2");
  }
#elif defined(__aarch64__)
  if (target == "neon") return true;  // part of the architecture, with its fused multiply-add
#endif
  return target == "portable";
}

}  // namespace hotloop::kernel
