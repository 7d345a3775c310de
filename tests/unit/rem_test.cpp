// Remainders of floats are exact, whatever the quotient, on every target and by every backend.
#include <bit>
#include <cmath>
#include <limits>

#include "llvm_backend.h"
#include "schedule/lower_math.h"

namespace hotloop::kernel {
namespace {

template <class T> Program remainders(std::int64_t n, const Target& target) {
  const DType dtype = dtype_of<T>();
  ProgramBuilder p(target);
  const int x = p.argument(dtype, n), y = p.argument(dtype, n), z = p.result(dtype, n);
  const Var i = p.var("i");
  MapBuilder map({{i, {n, -1}}}, 1, n < lanes_of(dtype) ? -1 : 0);
  const auto operand = [&](int buffer) { return map.load(dtype, at(buffer, Affine::of(i))); };
  map.store(dtype, at(z, Affine::of(i)), map.op(ScalarOp::Rem, dtype, operand(x), operand(y)));
  p.add(Single{{{map.build()}}});
  Program program = p.build();
  lower_math(program);
  verify(program);
  return program;
}

template <class T> void expect_exact(const std::vector<T>& x, const std::vector<T>& y) {
  const auto n = static_cast<std::int64_t>(x.size());
  for (const std::string& name : hotloop::kernel::runnable_targets()) {
    const Program program = remainders<T>(n, target_named(name));
    for (const auto& kernel : {compile_llvm(program), compile_c(program)}) {
      std::vector<Array> out = {Array(dtype_of<T>(), {n})};
      run_kernel(program, kernel->function(), {Array::from(x, {n}), Array::from(y, {n})}, out);
      const auto z = std::as_const(out[0]).data<T>();
      for (std::size_t i = 0; i < x.size(); ++i) {
        const T wanted = std::fmod(x[i], y[i]);
        if (std::isnan(wanted)) {
          EXPECT_TRUE(std::isnan(z[i])) << name << ", " << x[i] << " by " << y[i];
        } else {
          EXPECT_TRUE(z[i] == wanted && std::signbit(z[i]) == std::signbit(wanted))
              << name << ", " << x[i] << " by " << y[i] << ": " << z[i] << ", not " << wanted;
        }
      }
    }
  }
}

// Quotients near whole numbers of all sizes, and numbers of any exponents.
template <class T> void check_random() {
  using Limits = std::numeric_limits<T>;
  std::mt19937_64 random(4);
  const auto unit = [&] { return static_cast<T>(std::uniform_real_distribution<double>(1, 2)(random)); };
  const auto exponent = [&](int least, int most) {
    return least + static_cast<int>(random() % static_cast<unsigned>(most - least));
  };
  for (const std::size_t n : {1u, 5u, 3000u}) {
    std::vector<T> x, y;
    for (std::size_t i = 0; i < n; ++i) {
      const int kind = static_cast<int>(i % 4);
      T b = std::ldexp(unit(),
                       kind == 3 ? exponent(Limits::min_exponent - 20, Limits::max_exponent - 1) : exponent(-3, 3));
      const T quotient = std::floor(std::ldexp(unit(), exponent(0, kind == 1 ? Limits::digits + 4 : 12)));
      T a = kind == 0   ? quotient * b
            : kind == 3 ? std::ldexp(unit(), exponent(Limits::min_exponent - 20, Limits::max_exponent))
                        : quotient * b;
      if (kind == 0 && i % 8 == 4) a = std::nextafter(a, T(0));
      x.push_back(i % 3 == 0 ? -a : a);
      y.push_back(i % 5 == 0 ? -b : b);
    }
    expect_exact(x, y);
  }
}

TEST(Rem, IsExact) {
  check_random<float>();
  check_random<double>();
}

template <class T> void check_ends() {
  using Limits = std::numeric_limits<T>;
  std::vector<T> numbers, x, y;
  for (const T v : {T(0), Limits::denorm_min(), Limits::min() / 3, Limits::min(), T(0.1), T(1), T(3), T(1e10),
                    Limits::max(), Limits::infinity(), Limits::quiet_NaN()}) {
    numbers.push_back(v);
    numbers.push_back(-v);
  }
  for (const T a : numbers)
    for (const T b : numbers) {
      x.push_back(a);
      y.push_back(b);
    }
  expect_exact(x, y);
}

TEST(Rem, OfZerosInfinitiesNaNsAndDenormals) {
  check_ends<float>();
  check_ends<double>();
}

}  // namespace
}  // namespace hotloop::kernel
