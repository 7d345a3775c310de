// GFLOP/s of the Dot micro-kernels and ns an element of some Maps, one thread, the best of many short runs, in
// time of this thread, which other programs stretch less.
//   dot_bench [target] [--ir]            target: avx512, avx2, portable; default: the best this machine runs
//   dot_bench [target] [--ir] M N K...   products of these shapes alone, A as it lies in a step and as it lies over many
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <string>

#include "kernel_builder.h"
#include "schedule/column_walk.h"
#include "schedule/lower_math.h"

using namespace hotloop;
using namespace hotloop::kernel;

namespace {

bool print_source = false;

// Of this thread: other programs may run in between.
double cpu_seconds() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_nsec) * 1e-9;
}

struct Timing {
  double seconds = 0, compile_ms = 0;
  std::size_t code_bytes = 0;
};

// The fastest call; calls are grouped so that a group takes some tens of microseconds.
Timing time_program(const Program& program, std::int64_t rows = 1) {
  const auto kernel = compile_llvm(program, {.keep_source = print_source, .cache_dir = {}});
  double compile_ms = kernel->compile_ms;
  for (int i = 0; i < 10; ++i) compile_ms = std::min(compile_ms, compile_llvm(program)->compile_ms);
  if (print_source) std::printf("%s\n", kernel->source.c_str());
  std::vector<Array> arrays;
  std::vector<void*> arguments, results;
  const auto add = [&](const std::vector<ValueType>& types, std::vector<void*>& pointers) {
    for (const ValueType& type : types) {
      arrays.push_back(Array::full(type.dtype, type.shape, 0.5));
      pointers.push_back(arrays.back().raw());
    }
  };
  add(program.arguments, arguments);
  add(program.results, results);
  Array shared = Array::full(DType::F64, Shape{program.shared_bytes / 8 + 8}, 0);
  Array scratch = Array::full(DType::F64, Shape{program.worker_bytes / 8 + 8}, 0);
  const std::int32_t cancel = 0;
  KernelContext context{};
  context.arguments = arguments.data();
  context.results = results.data();
  context.shared = static_cast<std::byte*>(shared.raw());
  context.scratch = static_cast<std::byte*>(scratch.raw());
  context.rows = rows;
  context.num_workers = 1;
  context.cancel = &cancel;
  const auto seconds = [&](int calls) {
    const double start = cpu_seconds();
    for (int i = 0; i < calls; ++i) kernel->function()(&context);
    return (cpu_seconds() - start) / calls;
  };
  double best = seconds(1);
  const int calls = std::clamp(static_cast<int>(40e-6 / std::max(1e-8, seconds(3))), 1, 1000);
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(2);
  for (int repeat = 0; repeat < 2000 && std::chrono::steady_clock::now() < end; ++repeat)
    best = std::min(best, seconds(calls));
  return {best, compile_ms, kernel->code_bytes};
}

struct Shape3 {
  const char* what;
  std::int64_t m, n, k;
  bool packed = true, a_transposed = false;
  DType dtype = DType::F32;
  bool run_time_m = false;
};

void bench_dot(const Target& target, const Shape3& s) {
  ProgramBuilder p(target, s.m);
  const std::int64_t lanes = lanes_of(s.dtype), columns = (s.n + lanes - 1) / lanes * lanes;
  const int a = p.argument(s.dtype, s.m * s.k), b = p.argument(s.dtype, s.k * columns),
            c = p.result(s.dtype, s.m * s.n);
  Dot dot;
  dot.dtype = s.dtype;
  dot.m = {s.m, s.run_time_m ? rows_var : -1};
  dot.n = {s.n, -1};
  dot.segments.push_back({at(a),
                          at(b),
                          s.a_transposed ? 1 : s.k,
                          1,
                          {{{s.k, -1}, s.a_transposed ? s.m : 1, s.n}},
                          s.packed ? panel_columns(target, {s.dtype, dot.m, s.n, s.k, true}) : 0});
  dot.c = at(c);
  dot.c_m = s.n;
  p.add(dot);
  const Timing t = time_program(p.build(), s.m);
  const double flops = 2.0 * static_cast<double>(s.m * s.n * s.k);
  std::printf("dot  %-34s %s [%3ld x %4ld x K%-4ld] %8.1f GFLOP/s  %9.2f us  compile %5.1f ms  %6zu bytes\n", s.what,
              std::string(name_of(s.dtype)).c_str(), s.m, s.n, s.k, flops / t.seconds * 1e-9, t.seconds * 1e6,
              t.compile_ms, t.code_bytes);
}

template <class Body> void bench_map(const Target& target, const char* what, std::int64_t rows, std::int64_t n,
                                     int num_outer, int vector_dim, bool columns_first, const Body& body) {
  ProgramBuilder p(target);
  const Var r = p.var("r"), i = p.var("i");
  std::vector<Dim> dims{{r, {rows, -1}}, {i, {n, -1}}};
  if (columns_first) std::swap(dims[0], dims[1]);
  MapBuilder m(dims, num_outer, vector_dim);
  body(p, m, r, i);
  p.add(m.build());
  Program program = p.build();
  lower_math(program);
  const Timing t = time_program(program);
  std::printf("map  %-34s     [%3ld x %4ld]         %8.3f ns/element  %9.2f us  compile %5.1f ms  %6zu bytes\n", what,
              rows, n, t.seconds * 1e9 / static_cast<double>(rows * n), t.seconds * 1e6, t.compile_ms, t.code_bytes);
}

}  // namespace

int main(int argc, char** argv) {
  Target target = host_target();
  std::vector<std::int64_t> extents;
  for (int i = 1; i < argc; ++i) {
    if (std::strcmp(argv[i], "--ir") == 0) {
      print_source = true;
    } else if (const std::int64_t extent = std::atoll(argv[i]); extent > 0) {
      extents.push_back(extent);
    } else {
      target = target_named(argv[i]);
    }
  }
  std::printf("target %s\n", target.name.c_str());
  for (std::size_t i = 0; i + 3 <= extents.size(); i += 3) {
    for (const DType dtype : {DType::F32, DType::F64}) {
      bench_dot(target, {"A by rows", extents[i], extents[i + 1], extents[i + 2], false, false, dtype});
      bench_dot(target, {"A by rows, B packed", extents[i], extents[i + 1], extents[i + 2], true, false, dtype});
      bench_dot(target, {"A by columns", extents[i], extents[i + 1], extents[i + 2], false, true, dtype});
      bench_dot(target, {"A by columns, B packed", extents[i], extents[i + 1], extents[i + 2], true, true, dtype});
    }
  }
  if (!extents.empty()) return 0;
  const Shape3 shapes[] = {
      {"gates: [x; h] W", 12, 256, 72},
      {"gates, run-time rows", 12, 256, 72, true, false, DType::F32, true},
      {"gates, H32 I10", 12, 128, 42},
      {"gates, H128", 12, 512, 136},
      {"dh: dz R^T", 12, 64, 256},
      {"dh, H32", 12, 32, 128},
      {"dh, H128", 12, 128, 512},
      {"dW: x^T dz over steps, unpacked", 72, 256, 600, false, true},
      {"dW, H32", 42, 128, 600, false, true},
      {"dW of slopes, H32", 128, 32, 600, false, true},
      {"dW of slopes, H64", 256, 64, 400, false, true},
      {"dW of slopes, H64, few steps", 256, 64, 100, false, true},
      {"dW, H128", 512, 128, 1200, false, true},
      {"dW, H256", 1024, 256, 1200, false, true},
      {"dW, H512", 2048, 512, 1200, false, true},
      {"one row", 1, 256, 72},
      {"three rows", 3, 256, 72},
      {"eight rows", 8, 256, 72},
      {"head: H32 to 1, packed", 12, 1, 32},
      {"head: H32 to 1", 12, 1, 32, false},
      {"odd columns, H50", 12, 200, 60},
      {"gates, f64", 12, 256, 72, true, false, DType::F64},
      {"dW, f64", 72, 256, 600, false, true, DType::F64},
      {"dW of slopes, H32, f64", 128, 32, 600, false, true, DType::F64},
      {"dW of slopes, H64, f64", 256, 64, 400, false, true, DType::F64},
      {"dW of slopes, H128, f64", 512, 128, 800, false, true, DType::F64},
  };
  for (const Shape3& shape : shapes) bench_dot(target, shape);

  constexpr DType f32 = DType::F32;
  for (const std::int64_t n : {32, 64, 50}) {
    bench_map(target, "z = fma(x, y, bias)", 12, n, 2, 1, false, [n](ProgramBuilder& p, MapBuilder& m, Var r, Var i) {
      const Affine flat = Affine::of(r, n) + Affine::of(i);
      const int x = m.load(f32, at(p.argument(f32, 12 * n), flat)), y = m.load(f32, at(p.argument(f32, 12 * n), flat));
      const int bias = m.load(f32, at(p.argument(f32, n), Affine::of(i)));
      m.store(f32, at(p.result(f32, 12 * n), flat), m.op(ScalarOp::Fma, f32, x, y, bias));
    });
  }
  // As in a training step: the gates' residuals overwrite their pre-activations.
  bench_map(target, "LSTM cell, forward", 12, 64, 2, 1, false, [](ProgramBuilder& p, MapBuilder& m, Var r, Var i) {
    const int z = p.result(f32, 12 * 256), c = p.argument(f32, 12 * 64);
    const Affine flat = Affine::of(r, 64) + Affine::of(i), wide = Affine::of(r, 256) + Affine::of(i);
    int gate[4];
    for (int g = 0; g < 4; ++g) {
      gate[g] = m.op(g == 2 ? ScalarOp::Tanh : ScalarOp::Sigmoid, f32, m.load(f32, at(z, wide + g * 64)));
    }
    const int c2 =
        m.op(ScalarOp::Fma, f32, gate[1], m.load(f32, at(c, flat)), m.op(ScalarOp::Mul, f32, gate[0], gate[2]));
    const int tanh_c = m.op(ScalarOp::Tanh, f32, c2);
    for (int g = 0; g < 4; ++g) m.store(f32, at(z, wide + g * 64), gate[g]);
    for (const int v : {c2, tanh_c, m.op(ScalarOp::Mul, f32, gate[3], tanh_c)}) {
      m.store(f32, at(p.result(f32, 12 * 64), flat), v);
    }
  });
  for (const ScalarOp op : {ScalarOp::Exp, ScalarOp::Tanh, ScalarOp::Sigmoid, ScalarOp::Log}) {
    const std::string name(ir::name_of(op));
    bench_map(target, name.c_str(), 8, 256, 2, 1, false, [op](ProgramBuilder& p, MapBuilder& m, Var r, Var i) {
      const Affine flat = Affine::of(r, 256) + Affine::of(i);
      const int x = m.load(f32, at(p.argument(f32, 8 * 256), flat));
      m.store(f32, at(p.result(f32, 8 * 256), flat), m.op(op, f32, x));
    });
  }
  bench_map(target, "adam over parameters", 64, 256, 2, 1, false, [](ProgramBuilder& p, MapBuilder& m, Var r, Var i) {
    const Affine flat = Affine::of(r, 256) + Affine::of(i);
    const std::int64_t size = 64 * 256;
    const int g = m.load(f32, at(p.argument(f32, size), flat)), w = m.load(f32, at(p.argument(f32, size), flat));
    const int mu = m.load(f32, at(p.argument(f32, size), flat)), nu = m.load(f32, at(p.argument(f32, size), flat));
    const int mu2 = m.op(ScalarOp::Fma, f32, mu, m.constant(0.9f), m.op(ScalarOp::Mul, f32, g, m.constant(0.1f)));
    const int gg = m.op(ScalarOp::Mul, f32, m.op(ScalarOp::Mul, f32, g, g), m.constant(0.001f));
    const int nu2 = m.op(ScalarOp::Fma, f32, nu, m.constant(0.999f), gg);
    const int root = m.op(ScalarOp::Add, f32, m.op(ScalarOp::Sqrt, f32, nu2), m.constant(1e-8f));
    const int step = m.op(ScalarOp::Mul, f32, m.op(ScalarOp::Div, f32, mu2, root), m.constant(1e-3f));
    m.store(f32, at(p.result(f32, size), flat), m.op(ScalarOp::Sub, f32, w, step));
    m.store(f32, at(p.result(f32, size), flat), mu2);
    m.store(f32, at(p.result(f32, size), flat), nu2);
  });
  bench_map(target, "column sums (bias gradient)", 600, 256, 1, 0, true,
            [](ProgramBuilder& p, MapBuilder& m, Var r, Var i) {
              const int x = m.load(f32, at(p.argument(f32, 600 * 256), Affine::of(r, 256) + Affine::of(i)));
              m.store(f32, at(p.result(f32, 256), Affine::of(i)), m.reduced(ScalarOp::Add, f32, x));
            });
  bench_map(target, "row sums and squares (LayerNorm)", 12, 192, 1, 1, false,
            [](ProgramBuilder& p, MapBuilder& m, Var r, Var i) {
              const int x = m.load(f32, at(p.argument(f32, 12 * 192), Affine::of(r, 192) + Affine::of(i)));
              const int square = m.op(ScalarOp::Mul, f32, x, x);
              const int sum = m.reduced(ScalarOp::Add, f32, x), squares = m.reduced(ScalarOp::Add, f32, square);
              m.store(f32, at(p.result(f32, 12), Affine::of(r)), sum);
              m.store(f32, at(p.result(f32, 12), Affine::of(r)), squares);
            });
  bench_map(target, "copy [T, rows, I] to tiles", 12, 8, 2, 1, false,
            [](ProgramBuilder& p, MapBuilder& m, Var r, Var i) {
              const int x = m.load(f32, at(p.argument(f32, 12 * 400), Affine::of(r, 400) + Affine::of(i)));
              m.store(f32, at(p.result(f32, 12 * 8), Affine::of(r, 8) + Affine::of(i)), x);
            });
  bench_map(target, "transpose", 64, 256, 2, 1, false, [](ProgramBuilder& p, MapBuilder& m, Var r, Var i) {
    const int x = m.load(f32, at(p.argument(f32, 64 * 256), Affine::of(i, 64) + Affine::of(r)));
    m.store(f32, at(p.result(f32, 64 * 256), Affine::of(r, 256) + Affine::of(i)), x);
  });
  return 0;
}
