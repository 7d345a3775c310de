#include <string>

#include "backends/render/dialect.h"

namespace hotloop::render {
namespace {

constexpr std::string_view prelude = R"(#include <stdbool.h>
#include <stdint.h>
#include <string.h>

typedef struct {
  void* const* arguments;
  void* const* results;
  unsigned char* shared;
  unsigned char* scratch;
  int64_t rows;
  int64_t worker, num_workers;
  void (*barrier)(void*);
  void* team;
  const int32_t* cancel;
  int64_t turn;
} hl_context;

// Of numbers in memory that holds numbers of one type after those of another.
typedef int32_t __attribute__((may_alias)) hl_shared_i32;
typedef uint32_t __attribute__((may_alias)) hl_shared_u32;
typedef int64_t __attribute__((may_alias)) hl_shared_i64;
typedef float __attribute__((may_alias)) hl_shared_f32;
typedef double __attribute__((may_alias)) hl_shared_f64;

#define HL_BUILTIN(NAME)                                                         \
  static inline float hl_##NAME##_f32(float x) { return __builtin_##NAME##f(x); } \
  static inline double hl_##NAME##_f64(double x) { return __builtin_##NAME(x); }
HL_BUILTIN(fabs) HL_BUILTIN(floor) HL_BUILTIN(ceil) HL_BUILTIN(rint) HL_BUILTIN(sqrt)
static inline float hl_fma_f32(float a, float b, float c) { return __builtin_fmaf(a, b, c); }
static inline double hl_fma_f64(double a, double b, double c) { return __builtin_fma(a, b, c); }
#define HL_LIKELY(X) __builtin_expect(X, 1)
#define HL_PRAGMA(X) _Pragma(#X)
#define HL_UNROLL(N) HL_PRAGMA(GCC unroll N)
__extension__ typedef unsigned __int128 hl_wide;
static inline int hl_clz(uint64_t x) { return __builtin_clzll(x); }

)";

}  // namespace

const Dialect& plain_c() {
  static const std::string with_functions = std::string(prelude) + common_functions();
  static const Dialect dialect{
      .name = "C",
      .types = {"bool", "int32_t", "uint32_t", "int64_t", "float", "double"},
      .shared_types = {"", "hl_shared_i32", "hl_shared_u32", "hl_shared_i64", "hl_shared_f32", "hl_shared_f64"},
      .bool_memory = "uint8_t",
      .index_type = "int64_t",
      .constant_data = "static const __attribute__((aligned(64), unused))",
      .prelude = with_functions,
      .kernel_open = "void hotloop_kernel(const hl_context* ctx) {\n",
      .kernel_name = "hotloop_kernel",
      .part_open = "static __attribute__((noinline)) bool ",
      .context = "ctx",
      .context_type = "const hl_context*",
      .argument = "ctx->arguments[$i]",
      .result = "ctx->results[$i]",
      .shared = "(ctx->shared + $o)",
      .scratch = "(ctx->scratch + $o)",
      .rows = "ctx->rows",
      .worker = "ctx->worker",
      .num_workers = "ctx->num_workers",
      .barrier = "if (ctx->num_workers > 1) ctx->barrier(ctx->team);",
      .cancelled = "__builtin_expect(*(const volatile int32_t*)ctx->cancel != 0, 0)",
      .independent_loop = "#pragma GCC ivdep",
      .rolled_loop = "#pragma GCC unroll 1",
      .one_by_one = "__asm__ volatile(\"\");",
      .hide = "__asm__(\"\" : \"+r\"($r));",
      .float_suffix = "f",
      .spellings = common_spellings(),
  };
  return dialect;
}

}  // namespace hotloop::render
