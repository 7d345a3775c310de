// Products with powers of two: by one instruction where a target has it, by two factors elsewhere, with the same bits.
#include <array>
#include <cmath>
#include <limits>

#include "core/denormals.h"
#include "elementwise.h"

namespace hotloop::kernel {
namespace {

Array run(const Program& program, const CompiledKernel& kernel, const Array& x, bool flushes) {
  const DenormalsAsZero mode(flushes);
  return run(program, kernel, x);
}

// Where results are of every size, down to denormals and past both ends.
Array numbers(DType dtype, std::int64_t n) {
  std::mt19937_64 random(5);
  const double most = dtype == f32 ? 110 : 760, infinity = std::numeric_limits<double>::infinity();
  const std::array specials = {0.0, -0.0, infinity, -infinity, std::numeric_limits<double>::quiet_NaN(), 1e30, -1e30};
  Array x(dtype, {n});
  for (std::int64_t i = 0; i < n; ++i) {
    const double any = std::uniform_real_distribution<double>(-most, most)(random);
    const auto which = static_cast<std::size_t>(i % 41);
    x.set(i, n > 41 && which < specials.size() ? specials[which] : any);
  }
  return x;
}

TEST(Ldexp, WideVectorsHaveItAndItTakesFewerInstructions) {
  const auto count = [](const char* target) {
    const Program program = elementwise(ScalarOp::Exp, f32, 64, target_named(target));
    const auto& map = std::get<Map>(std::get<Single>(program.body.front().node).body.front().node);
    return std::ranges::count_if(map.instrs, [](const Instr& in) { return in.kind == Instr::Kind::Op; });
  };
  EXPECT_NE(print(elementwise(ScalarOp::Exp, f32, 64, target_named("avx512"))).find("ldexp"), std::string::npos);
  EXPECT_LE(count("avx512") + 8, count("avx2"));
}

// Of vectors of all widths, and of numbers alone: what exp is, and what ends in an exponential.
TEST(Ldexp, TargetsAndBackendsAgreeToTheBit) {
  for (const ScalarOp op : {ScalarOp::Exp, ScalarOp::Erfc}) {
    for (const auto& [dtype, inside] : {std::pair{f32, f32}, {f64, f64}, {f32, f64}, {f64, f32}}) {
      for (const std::int64_t n : {1, 3, 8, 20, 5000}) {
        const Array x = numbers(dtype, n);
        std::vector<std::pair<std::string, std::array<Array, 2>>> all;
        for (const std::string& name : runnable_targets()) {
          if (name == "portable") continue;  // which has no fma
          const Program program = elementwise(op, dtype, inside, n, target_named(name));
          const auto results = [&](const CompiledKernel& kernel) {
            return std::array{run(program, kernel, x, false), run(program, kernel, x, true)};
          };
          all.emplace_back(name + ", llvm", results(*compile_llvm(program)));
          all.emplace_back(name + ", c", results(*compile_c(program)));
        }
        for (std::size_t k = 1; k < all.size(); ++k) {
          for (const std::size_t flushes : {0u, 1u}) {
            for (std::int64_t i = 0; i < n; ++i) {
              const double a = all[0].second[flushes].at(i), b = all[k].second[flushes].at(i);
              ASSERT_TRUE(std::isnan(a) ? std::isnan(b)
                                        : std::bit_cast<std::int64_t>(a) == std::bit_cast<std::int64_t>(b))
                  << name_of(dtype) << ' ' << ir::name_of(op) << " of " << x.at(i) << ", " << n << " numbers"
                  << (flushes == 1 ? ", flushed" : "") << ": " << a << " (" << all[0].first << ") is not " << b << " ("
                  << all[k].first << ")";
            }
          }
        }
      }
    }
  }
}

}  // namespace
}  // namespace hotloop::kernel
