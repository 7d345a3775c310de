#include "schedule/kernel_ir.h"

#include <gtest/gtest.h>

#include <cstdlib>

#include "hotloop/error.h"

namespace hotloop::kernel {
namespace {

TEST(Affine, KeepsTermsSortedAndNonZero) {
  const Affine a = Affine::of(3, 4) + Affine::of(1, 2) + 5;
  EXPECT_EQ(a.constant, 5);
  ASSERT_EQ(a.terms.size(), 2u);
  EXPECT_EQ(a.terms[0], (Term{1, 2}));
  EXPECT_EQ(a.terms[1], (Term{3, 4}));
  EXPECT_EQ((a + Affine::of(1, -2)).terms, (std::vector<Term>{{3, 4}}));
  EXPECT_TRUE(Affine::of(2, 0).terms.empty());
  EXPECT_TRUE((a * 0).terms.empty());
  EXPECT_EQ((a * 0).constant, 0);
  EXPECT_EQ(a * 3, Affine::of(1, 6) + Affine::of(3, 12) + 15);
}

TEST(Affine, SubstitutesAndDropsVariables) {
  const Affine a = Affine::of(1, 2) + Affine::of(3, 4) + 5;
  EXPECT_EQ(a.coefficient(3), 4);
  EXPECT_EQ(a.coefficient(2), 0);
  EXPECT_EQ(a.without(1), Affine::of(3, 4) + 5);
  EXPECT_EQ(a.substituted(3, Affine::of(1, 10) + 1), Affine::of(1, 42) + 9);
  EXPECT_EQ(a.substituted(3, Affine::of(1, -1) * 1).coefficient(1), -2);
  EXPECT_EQ((Affine::of(1, 4) + Affine::of(3, 4)).substituted(3, Affine::of(1, -1)), Affine(0));
}

TEST(Target, TilesFitTheRegisters) {
  EXPECT_EQ(target_named("avx512").panel(DType::F32), 64);
  EXPECT_EQ(target_named("avx2").panel(DType::F64), 8);
  EXPECT_EQ(target_named("avx2").dot_rows, 6);
  EXPECT_EQ(target_named("neon").panel(DType::F32), 16);
  EXPECT_TRUE(target_named("neon").has_fma);
  EXPECT_FALSE(target_named("portable").has_fma);
  try {
    target_named("avx51");
    FAIL();
  } catch (const UserError& e) {
    EXPECT_NE(std::string(e.what()).find("avx512"), std::string::npos) << e.what();
  }
}

TEST(Target, EnvironmentOverridesTheHost) {
  const char* old = std::getenv("HOTLOOP_TARGET");
  const std::string before = old ? old : "";
  setenv("HOTLOOP_TARGET", "portable", 1);
  EXPECT_EQ(host_target().name, "portable");
  setenv("HOTLOOP_TARGET", "vax", 1);
  EXPECT_THROW(host_target(), UserError);
  if (old)
    setenv("HOTLOOP_TARGET", before.c_str(), 1);
  else
    unsetenv("HOTLOOP_TARGET");
}

}  // namespace
}  // namespace hotloop::kernel
