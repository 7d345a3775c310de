// A program of one elementwise function, and its results.
#pragma once

#include <vector>

#include "llvm_backend.h"
#include "schedule/lower_math.h"

namespace hotloop::kernel {

// y = op(x) for n numbers, which are cast to `inside` before and back after.
inline Program elementwise(ScalarOp op, DType dtype, DType inside, std::int64_t n, const Target& target) {
  ProgramBuilder p(target);
  const int x = p.argument(dtype, n), y = p.result(dtype, n);
  const Var i = p.var("i");
  MapBuilder map({{i, {n, -1}}}, 1, n < lanes_of(dtype) ? -1 : 0);
  const int loaded = map.load(dtype, at(x, Affine::of(i)));
  const auto cast = [&](DType to, int reg) { return dtype == inside ? reg : map.op(ScalarOp::Cast, to, reg); };
  map.store(dtype, at(y, Affine::of(i)), cast(dtype, map.op(op, inside, cast(inside, loaded))));
  p.add(Single{{{map.build()}}});
  Program program = p.build();
  lower_math(program);
  verify(program);
  return program;
}
inline Program elementwise(ScalarOp op, DType dtype, std::int64_t n, const Target& target) {
  return elementwise(op, dtype, dtype, n, target);
}

inline Array run(const Program& program, const CompiledKernel& kernel, const Array& x) {
  std::vector<Array> out = {Array(x.dtype(), x.shape())};
  run_kernel(program, kernel.function(), {x}, out);
  return out[0];
}

}  // namespace hotloop::kernel
