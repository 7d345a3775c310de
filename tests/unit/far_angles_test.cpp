// Sines and cosines of angles whose multiple of pi / 2 no formula takes off: right to the last places, with the same bits from all backends.
#include <cmath>
#include <limits>

#include "elementwise.h"

namespace hotloop::kernel {
namespace {

struct Known {
  double x, sine, cosine;
};
// By arithmetic of 3,000 bits. The first is the double nearest to a multiple of pi / 2.
constexpr Known known[] = {
    {0x1.6ac5b262ca1ffp+849, 1, -0x1.14ae72e6ba22fp-61},
    {0x1.921fb54442d18p+22, -0x1.1a62633145c07p-32, 1},
    {1e22, -0x1.b453ab76bf397p-1, 0x1.0be2cef01c8f4p-1},
    {std::numeric_limits<double>::max(), 0x1.452fc98b34e97p-8, -0x1.fffe62ecfab75p-1},
    {0x1.0000000000001p+22, 0x1.f34428fb0f136p-1, 0x1.c5e944a3299d3p-3},
};

TEST(FarAngles, AreReducedRightUpToTheLargest) {
  for (const std::string& name : hotloop::kernel::runnable_targets()) {
    const Target target = target_named(name);
    for (const Known& k : known) {
      for (const double sign : {1.0, -1.0}) {
        const auto of = [&](ScalarOp op) {
          const Program program = elementwise(op, f64, 1, target);
          return run(program, *compile_llvm(program), Array::from(std::vector<double>{sign * k.x}, {1})).at(0);
        };
        const auto unit = [](double v) { return std::ldexp(1.0, std::ilogb(v) - 52); };
        EXPECT_NEAR(of(ScalarOp::Sin), sign * k.sine, 1.6 * unit(k.sine)) << name << ' ' << k.x;
        EXPECT_NEAR(of(ScalarOp::Cos), k.cosine, 1.6 * unit(k.cosine)) << name << ' ' << k.x;
      }
    }
  }
}

// Numbers of all sizes, far ones alone among near ones too.
TEST(FarAngles, AllBackendsAgreeToTheBit) {
  std::mt19937_64 random(9);
  for (const std::string& name : hotloop::kernel::runnable_targets()) {
    const Target target = target_named(name);
    for (const DType dtype : {f32, f64}) {
      const int most = dtype == f32 ? 127 : 1023;
      for (const std::int64_t n : {1, 7, 64, 1000}) {
        for (const ScalarOp op : {ScalarOp::Sin, ScalarOp::Cos}) {
          Array x(dtype, {n});
          for (std::int64_t i = 0; i < n; ++i) {
            const int exponent =
                i % 20 == 3 || i % 3 == 0 ? static_cast<int>(random() % static_cast<unsigned>(most)) : 2;
            const double unit = std::uniform_real_distribution<double>(-2, 2)(random);
            x.set(i, i % 50 == 7 ? std::numeric_limits<double>::infinity() : std::ldexp(unit, exponent - (i % 7 == 0)));
          }
          const Program program = elementwise(op, dtype, n, target);
          const Array llvm = run(program, *compile_llvm(program), x), c = run(program, *compile_c(program), x);
          for (std::int64_t i = 0; i < n; ++i) {
            const double wanted = op == ScalarOp::Sin ? std::sin(x.at(i)) : std::cos(x.at(i));
            if (!std::isnan(wanted))
              EXPECT_NEAR(llvm.at(i), wanted, dtype == f32 ? 1e-7 : 3e-16) << name << ", " << x.at(i);
            EXPECT_TRUE(llvm.at(i) == c.at(i) || (std::isnan(wanted) && std::isnan(llvm.at(i)) && std::isnan(c.at(i))))
                << name << ", " << x.at(i) << ": " << llvm.at(i) << " and " << c.at(i);
          }
        }
      }
    }
  }
}

}  // namespace
}  // namespace hotloop::kernel
