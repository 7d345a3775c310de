#include "hotloop/losses.h"

#include "nn/registry.h"
#include "nn_testing.h"

namespace hotloop::testing {
namespace {

double value_of(const losses::Loss& loss, const Array& prediction, const Array& target) {
  return run_traced([&](std::span<const Value> in) { return std::vector<Value>{loss(in[0], in[1])}; },
                    {prediction, target})[0]
      .at(0);
}

TEST(Losses, MeansOverAllElements) {
  const Array prediction = Array::from<double>({1, 2, 3, 4, 5, 6}, {3, 2}),
              target = Array::from<double>({0, 2, 5, 4, 5, 5}, {3, 2});
  EXPECT_DOUBLE_EQ(value_of(losses::MSE(), prediction, target), (1 + 4 + 1) / 6.0);
  EXPECT_DOUBLE_EQ(value_of(losses::MAE(), prediction, target), (1 + 2 + 1) / 6.0);
  EXPECT_FLOAT_EQ(static_cast<float>(value_of(losses::MSE(), prediction.cast(DType::F32), target.cast(DType::F32))),
                  1.0f);
}

TEST(Losses, AnyFunctionIsALoss) {
  const losses::Loss cubes([](Value a, Value b) { return sum(abs(a - b) * square(a - b)); }, "cubes");
  EXPECT_EQ(value_of(cubes, Array::from<double>({1, 4}, {2}), Array::from<double>({0, 2}, {2})), 9);
}

TEST(LossRegistry, EveryLossIsZeroForAPerfectPrediction) {
  const Array y = nn::uniform(1, {4, 3}, DType::F64, -1, 1);
  for (const losses::LossDef& def : losses::all_losses()) {
    EXPECT_FALSE(def.summary.empty()) << def.name;
    EXPECT_EQ(value_of(losses::make_loss(def.name), y, y), 0) << def.name;
  }
}

}  // namespace
}  // namespace hotloop::testing
