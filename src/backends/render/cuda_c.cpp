// The words of CUDA C++ that blocks of threads are written in.
#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <map>
#include <string>

#include "backends/render/block_writer.h"
#include "backends/render/cuda_c.h"
#include "backends/render/dialect.h"
#include "schedule/accesses.h"

namespace hotloop::render {
namespace {

constexpr std::string_view device_part = R"(#ifndef HL_EMULATED
typedef signed char int8_t;
typedef unsigned char uint8_t;
typedef int int32_t;
typedef unsigned int uint32_t;
typedef long long int64_t;
typedef unsigned long long uint64_t;
#define INT32_MIN (-2147483647 - 1)
#define INT32_MAX 2147483647
#define UINT32_MAX 4294967295u
#define INT64_C(x) x##LL
#define UINT64_C(x) x##ULL
#define INT64_MAX INT64_C(9223372036854775807)
#define INT64_MIN (-INT64_MAX - 1)
#define HL_KERNEL extern "C" __global__ __launch_bounds__(HL_BLOCK_THREADS, 1)
#define HL_TABLE __device__ const
#define HL_LIKELY(X) __builtin_expect((X), 1)
typedef unsigned __int128 hl_wide;
static inline int hl_block_thread() { return threadIdx.x; }
static inline void hl_block_sync() { __syncthreads(); }
#if HL_BLOCKS == 1
static inline int hl_thread() { return threadIdx.x; }
static inline int hl_worker() { return blockIdx.x; }
static inline int hl_num_workers() { return gridDim.x; }
static inline void hl_sync() { __syncthreads(); }
static inline bool hl_any(bool x) { return __syncthreads_or(x); }
#else
// The blocks of a worker are a cluster.
static inline int hl_rank() {
  int rank;
  asm("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
  return rank;
}
static inline int hl_thread() { return hl_rank() * HL_BLOCK_THREADS + threadIdx.x; }
static inline int hl_worker() { return blockIdx.x / HL_BLOCKS; }
static inline int hl_num_workers() { return gridDim.x / HL_BLOCKS; }
static inline void hl_sync() {
  asm volatile("barrier.cluster.arrive.release;\n\tbarrier.cluster.wait.acquire;" ::: "memory");
}
// A number at the same place of each block's shared memory.
template <class T, class V> static inline void hl_put(T* at, V value) {
  const T number = value;
  const unsigned here = (unsigned)__cvta_generic_to_shared(at);
#pragma unroll
  for (int rank = 0; rank < HL_BLOCKS; ++rank) {
    unsigned there;
    asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(there) : "r"(here), "r"(rank));
    if constexpr (sizeof(T) == 1)
      asm volatile("st.shared::cluster.u8 [%0], %1;" ::"r"(there), "r"((unsigned)number) : "memory");
    else if constexpr (sizeof(T) == 4)
      asm volatile("st.shared::cluster.u32 [%0], %1;" ::"r"(there), "r"(*(const unsigned*)&number) : "memory");
    else
      asm volatile("st.shared::cluster.u64 [%0], %1;" ::"r"(there), "l"(*(const unsigned long long*)&number) : "memory");
  }
}
static inline bool hl_any(bool x) {
  __shared__ int blocks[HL_BLOCKS];
  const bool here = __syncthreads_or(x);
  if (threadIdx.x == 0) hl_put(&blocks[hl_rank()], here);
  hl_sync();
  bool any = false;
  for (int rank = 0; rank < HL_BLOCKS; ++rank) any |= blocks[rank] != 0;
  hl_sync();
  return any;
}
#endif
template <class T> static inline T hl_down(T value, int delta, int width) {
  const unsigned group = width == 32 ? 0xffffffffu : ((1u << width) - 1) << (threadIdx.x & 31 & ~(width - 1));
  return __shfl_down_sync(group, value, delta, width);
}
// The compiler would ask for the address wherever it is used, and wait; added to a number that it does not know, it stays in a register.
static inline unsigned char* hl_near() {
  extern __shared__ __align__(128) unsigned char hl_near_bytes[];
  unsigned zero;
  asm volatile("mov.u32 %0, 0;" : "=r"(zero));
  return hl_near_bytes + zero;
}
// All threads of all workers meet, which run at once. barrier[0] counts workers, barrier[1] how often they have met.
static inline bool hl_meet(uint32_t* barrier, const volatile int32_t* cancel) {
  __shared__ int left;
  hl_sync();
  if (hl_thread() == 0) {
    volatile uint32_t* const turn = barrier + 1;
    const uint32_t before = *turn;
    int leaves = 0;
    __threadfence();
    if (atomicAdd(barrier, 1u) == hl_num_workers() - 1) {
      barrier[0] = 0;
      __threadfence();
      *turn = before + 1;
    } else {
      while (*turn == before)
        if (*cancel != 0) {
          leaves = 1;
          break;
        }
    }
#if HL_BLOCKS == 1
    left = leaves;
#else
    hl_put(&left, leaves);
#endif
    __threadfence();
  }
  hl_sync();
#if HL_BLOCKS > 1
  __threadfence();
#endif
  return left != 0;
}
static inline float hl_fabs_f32(float x) { return fabsf(x); }
static inline double hl_fabs_f64(double x) { return fabs(x); }
static inline float hl_floor_f32(float x) { return floorf(x); }
static inline double hl_floor_f64(double x) { return floor(x); }
static inline float hl_ceil_f32(float x) { return ceilf(x); }
static inline double hl_ceil_f64(double x) { return ceil(x); }
static inline float hl_rint_f32(float x) { return rintf(x); }
static inline double hl_rint_f64(double x) { return rint(x); }
static inline float hl_sqrt_f32(float x) { return __fsqrt_rn(x); }
static inline double hl_sqrt_f64(double x) { return __dsqrt_rn(x); }
static inline float hl_fma_f32(float a, float b, float c) { return __fmaf_rn(a, b, c); }
static inline double hl_fma_f64(double a, double b, double c) { return __fma_rn(a, b, c); }
// To within a unit in the last place.
static inline float hl_reciprocal(float x) {
  float y;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}
static inline uint32_t hl_bits(float x) { return __float_as_uint(x); }
static inline int hl_clz(uint64_t x) { return __clzll(x); }
// Numbers on their way from far to near memory; begun together, waited for together, in turn: until all but the last `pending` groups are there.
template <int N, class T> static inline void hl_copy(T* to, const T* from) {
#if __CUDA_ARCH__ >= 800
  const unsigned near = (unsigned)__cvta_generic_to_shared(to);
  if constexpr (N * sizeof(T) == 16)
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(near), "l"(from) : "memory");
  else
    asm volatile("cp.async.ca.shared.global [%0], [%1], %2;" ::"r"(near), "l"(from), "n"((int)(N * sizeof(T))) : "memory");
#else
  for (int i = 0; i < N; ++i) to[i] = from[i];
#endif
}
#if __CUDA_ARCH__ >= 800
static inline void hl_copies_begun() { asm volatile("cp.async.commit_group;" ::: "memory"); }
template <int pending> static inline void hl_copies_wait() { asm volatile("cp.async.wait_group %0;" ::"n"(pending) : "memory"); }
#else
static inline void hl_copies_begun() {}
template <int pending> static inline void hl_copies_wait() {}
#endif
#define HL_PRAGMA(X) _Pragma(#X)
#define HL_UNROLL(N) HL_PRAGMA(unroll N)
#ifdef HL_TICKS
extern "C" __device__ int printf(const char*, ...);
__device__ long long hl_ticks[HL_TICKS];
#define HL_BEGIN_TICKS                                          \
  const bool hl_counts = hl_worker() == 0 && hl_thread() == 0;  \
  long long hl_before = clock64();                              \
  if (hl_counts)                                                \
    for (int i = 0; i < HL_TICKS; ++i) hl_ticks[i] = 0;
#define HL_TICK(I)                                              \
  if (hl_counts) {                                              \
    const long long now = clock64();                            \
    hl_ticks[I] += now - hl_before;                             \
    hl_before = clock64();                                      \
  }
#define HL_PRINT_TICKS(I, NAME) \
  if (hl_counts) printf("%12lld cycles  %s\n", hl_ticks[I], NAME)
#endif
#endif
// a / b, rounded to nearest, unless a step on the way leaves the range of normal numbers: then `usual` becomes false. The language's own division jumps
// to code for such numbers, once for each, so that no two of them run side by side. (Markstein 1990: the residue of a quotient is exact, and
// corrects it to the nearest by a reciprocal that is off by half a unit.) Zero, infinity and NaN, and a divisor of which the reciprocal is none of
// these numbers, end in a quotient that is not usual. So do divisors just below a power of two: their reciprocals lie half way between two numbers
// but for less than what the step that corrects them sees, so that one may be off by more.
static inline float hl_quotient(float a, float b, bool& usual) {
  constexpr float small = 0x1p-100f, large = 0x1p100f;
  float y = hl_reciprocal(b);
  y = hl_fma_f32(hl_fma_f32(-b, y, 1), y, y);
  float q = a * y;
  q = hl_fma_f32(hl_fma_f32(-b, q, a), y, q);
  q = hl_fma_f32(hl_fma_f32(-b, q, a), y, q);
  usual &= (hl_bits(b) & 0x7ffff8u) != 0x7ffff8u;
  usual &= (hl_fabs_f32(a) > small) & (hl_fabs_f32(q) > small) & (hl_fabs_f32(q) < large);
  return q;
}
typedef struct {
  unsigned char* const* arguments;
  unsigned char* const* results;
  unsigned char* shared;
  unsigned char* scratch;
  int64_t scratch_stride;
  int64_t rows;
  const volatile int32_t* cancel;
  uint32_t* barrier;
} hl_context;
// Numbers side by side, read at once.
template <class T, int N> struct alignas(sizeof(T) * N) hl_pack {
  T of[N];
};
template <int N, class T> static inline hl_pack<T, N> hl_read(const T* at) {
#ifdef HL_EMULATED
  if ((uint64_t)at % sizeof(hl_pack<T, N>) != 0) __builtin_trap();
#endif
  return *reinterpret_cast<const hl_pack<T, N>*>(at);
}
)";

// 32 bits count all elements, or 64 do. What block_writer says itself is left out.
Dialect cuda_dialect(bool is_small) {
  static const std::string prelude = std::string(device_part) + common_functions();
  return {
      .name = "CUDA C++",
      .types = {"bool", "int32_t", "uint32_t", "int64_t", "float", "double"},
      .bool_memory = "uint8_t",
      .index_type = is_small ? "int32_t" : "int64_t",
      .prelude = prelude,
      .kernel_open = "HL_KERNEL void hotloop_kernel(hl_context ctx) {\n",
      .argument = "ctx.arguments[$i]",
      .result = "ctx.results[$i]",
      .shared = "(ctx.shared + $o)",
      .scratch = "(scratch + $o)",
      .barrier = "if (hl_meet(ctx.barrier, ctx.cancel)) return;",
      .float_suffix = "f",
      .spellings = common_spellings(),
  };
}

// Whether no index, count of points or number of elements comes near what 32 bits count.
bool counts_by_32_bits(const kernel::Program& program) {
  constexpr double most = 1 << 30;
  std::map<kernel::Var, double> largest{{kernel::rows_var, static_cast<double>(program.max_rows)}};
  double found = 0;
  for (const kernel::Buffer& buffer : program.buffers) found = std::max(found, static_cast<double>(buffer.elements));
  const auto note = [&](const auto& self, const kernel::Block& block) -> void {
    for (const kernel::Stmt& stmt : block) {
      kernel::for_each_variable(stmt, [&](const kernel::SetVariable& v) {
        const auto reach = static_cast<double>(std::max(std::abs(v.low), std::abs(v.high)));
        largest[v.var] = std::max(largest[v.var], reach);
      });
      kernel::for_each_part(
          stmt, [](const kernel::Use&) {}, [&](const kernel::Block& inside) { self(self, inside); });
    }
  };
  note(note, program.body);
  kernel::for_each_statement(program.body, [&](const auto& s) {
    kernel::for_each_index(s, [&](const kernel::Affine& index) {
      double reach = std::abs(static_cast<double>(index.constant));
      for (const kernel::Term& t : index.terms) reach += std::abs(static_cast<double>(t.coefficient)) * largest[t.var];
      found = std::max(found, reach);
    });
  });
  return found < most;
}

}  // namespace

BlockText render_cuda(const kernel::Program& program, const CudaOptions& options) {
  const bool is_small = counts_by_32_bits(program);
  static const Dialect narrow = cuda_dialect(true), wide = cuda_dialect(false);
  const auto& [blocks, threads, near_room] = options.worker;
  BlockText result = write_for_blocks(program, is_small ? narrow : wide, options.worker, options.profile);
  // Threads and blocks of a worker, threads of a block.
  std::string counts = "#define HL_THREADS " + std::to_string(blocks * threads) + "\n#define HL_BLOCKS " +
                       std::to_string(blocks) + "\n#define HL_BLOCK_THREADS " + std::to_string(threads) + "\n";
  if (options.profile) counts += "#define HL_TICKS " + std::to_string(result.num_ticks) + "\n";
  result.text = counts + result.text;
  return result;
}

}  // namespace hotloop::render
