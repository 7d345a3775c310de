// Nanoseconds an element of the functions of src/schedule/math, on arrays that stay in cache.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <string>

#include "backends/backend.h"
#include "kernel_builder.h"
#include "schedule/lower_math.h"

using namespace hotloop;
using namespace hotloop::kernel;

namespace {

constexpr std::int64_t num_elements = 2048, num_repeats = 400;

Program repeated(ScalarOp op, DType dtype, const Target& target) {
  ProgramBuilder builder(target);
  const int x = builder.argument(dtype, num_elements), y = builder.result(dtype, num_elements);
  const Var repeat = builder.var("repeat"), i = builder.var("i");
  MapBuilder map({{i, {num_elements, -1}}}, 1, 0);
  map.store(dtype, at(y, Affine::of(i)), map.op(op, dtype, map.load(dtype, at(x, Affine::of(i)))));
  For loop;
  loop.counter = repeat;
  loop.trip = {num_repeats, -1};
  loop.body.push_back({map.build()});
  builder.add(Single{{{std::move(loop)}}});
  Program program = builder.build();
  lower_math(program);
  return program;
}

double measure_ns(const Program& program, const CompiledKernel& kernel, DType dtype, double low, double high) {
  Array x(dtype, {num_elements});
  for (std::int64_t i = 0; i < num_elements; ++i) {
    x.set(i, low + (high - low) * static_cast<double>(i * 7919 % num_elements) / static_cast<double>(num_elements));
  }
  std::vector<Array> y{Array(dtype, {num_elements})};
  double best = 1e30;
  for (int round = 0; round < 40; ++round) {
    const auto start = std::chrono::steady_clock::now();
    run_kernel(program, kernel.function(), {x}, y);
    const std::chrono::duration<double, std::nano> time = std::chrono::steady_clock::now() - start;
    best = std::min(best, time.count() / static_cast<double>(num_elements * num_repeats));
  }
  return best;
}

}  // namespace

int main() {
  const Target target = host_target();
  std::printf("target %s, %lld elements, best of 40, ns an element\n", target.name.c_str(),
              static_cast<long long>(num_elements));
  std::printf("%-12s %8s %8s\n", "", "llvm", "c");
  for (const DType dtype : {DType::F32, DType::F64}) {
    for (const ScalarOp op : {ScalarOp::Copy, ScalarOp::Exp, ScalarOp::Expm1, ScalarOp::Log, ScalarOp::Log1p,
                              ScalarOp::Tanh, ScalarOp::Sigmoid}) {
      const double low = op == ScalarOp::Log || op == ScalarOp::Log1p ? 0.01 : -6;
      const Program program = repeated(op, dtype, target);
      const auto in_llvm = compile_llvm(program), in_c = compile_c(program);
      std::printf("%-8s %s %8.4f %8.4f\n", std::string(ir::name_of(op)).c_str(), std::string(name_of(dtype)).c_str(),
                  measure_ns(program, *in_llvm, dtype, low, 6), measure_ns(program, *in_c, dtype, low, 6));
    }
  }
}
