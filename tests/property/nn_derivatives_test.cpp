// Jacobians, per-sample gradients and Hessian products of layers and of cells that users wrote, compiled.
#include "derivative_checks.h"
#include "hotloop/jacobian.h"
#include "hotloop/jit.h"
#include "hotloop/nn.h"
#include "user_cells.h"

namespace hotloop::testing {
namespace {

using namespace nn;
using Values = std::span<const Value>;

struct Case {
  std::string name;
  Layer layer;
};
void PrintTo(const Case& c, std::ostream* out) { *out << c.name; }

class NnDerivatives : public ::testing::TestWithParam<Case> {
 protected:
  static constexpr std::int64_t batch = 3, steps = 4, features = 2;
  void SetUp() override {
    params_ = GetParam().layer.init(1, DType::F64);
    inputs_ = params_.flatten();
    inputs_.push_back(uniform(2, {batch, steps, features}, DType::F64, -1, 1));
  }
  std::size_t num_params() const { return inputs_.size() - 1; }
  // parameters..., x -> y
  Function fn() const {
    return [this](Values v) {
      return std::vector{GetParam().layer.apply(params_.unflatten(v.first(num_params())), v[num_params()])};
    };
  }
  // parameters..., x of one sample -> a scalar
  Function loss() const {
    return [this](Values v) {
      std::vector<Value> one(v.begin(), v.end());
      one.back() = expand_dims(one.back(), 0);
      return std::vector{sum(sin(fn()(one)[0]))};
    };
  }
  std::vector<int> argnums() const {
    std::vector<int> all;
    for (std::size_t i = 0; i < num_params(); ++i) all.push_back(static_cast<int>(i));
    return all;
  }
  Tree<Array> params_;
  Arrays inputs_;
};

TEST_P(NnDerivatives, JacobiansAreBlockDiagonalOverTheBatch) {
  JacobianOptions options;
  options.argnum = static_cast<int>(num_params());
  std::shared_ptr<const JacobianStructure> structure;
  const Array dense = jit([&](Values v) {
    const Jacobian j = jacobian(fn(), options)(v);
    structure = j.shared_structure();
    return std::vector{j.dense()};
  })(inputs_)[0];
  ASSERT_FALSE(structure->paired.empty()) << structure->explain();
  EXPECT_EQ(structure->paired[0], (std::pair{0, 0})) << structure->explain();
  expect_close({dense}, evaluate(jacfwd(fn(), {options.argnum}), inputs_), 1e-11, "jacobian and jacfwd");
}

TEST_P(NnDerivatives, PerSampleGradientsAreThoseOfTheSamplesAlone) {
  std::vector<int> axes(num_params(), -1);
  axes.push_back(0);
  const Arrays rows = jit(per_sample_grad(loss(), argnums(), axes))(inputs_);
  const auto graph = trace(grad(loss(), argnums()), [&] {
    std::vector<ValueType> types = types_of(inputs_);
    types.back().shape = {steps, features};
    return types;
  }());
  for (std::int64_t sample = 0; sample < batch; ++sample) {
    Arrays one = inputs_;
    one.back() = Array(DType::F64, {steps, features});
    for (std::int64_t i = 0; i < one.back().size(); ++i)
      one.back().set(i, inputs_.back().at(sample * one.back().size() + i));
    const Arrays alone = ir::evaluate(*graph, one);
    for (std::size_t k = 0; k < alone.size(); ++k)
      for (std::int64_t i = 0; i < alone[k].size(); ++i)
        ASSERT_NEAR(rows[k].at(sample * alone[k].size() + i), alone[k].at(i), 1e-12);
  }
}

TEST_P(NnDerivatives, HessianProductsAreSymmetricAndTheDifferenceOfGradients) {
  const Function total = [&](Values v) { return std::vector{sum(sin(fn()(v)[0]))}; };
  const std::size_t n = inputs_.size();
  std::mt19937_64 rng(3);
  const Arrays u = directions(rng, inputs_), v = directions(rng, inputs_);
  const Jit product = jit([&](Values in) { return hvp(total, in.first(n), in.subspan(n)); });
  const Arrays hu = product(joined(inputs_, u)), hv = product(joined(inputs_, v));
  EXPECT_NEAR(inner(u, hv), inner(v, hu), 1e-10 * (1 + std::abs(inner(u, hv))));
  std::vector<int> all = argnums();
  all.push_back(static_cast<int>(num_params()));
  const auto gradient = trace(grad(total, all), types_of(inputs_));
  // Fourth order: a layer norm of three features has large third derivatives.
  const double step = 1e-4;
  const auto moved = [&](double by) { return ir::evaluate(*gradient, shifted(inputs_, v, by * step)); };
  const Arrays p1 = moved(1), m1 = moved(-1), p2 = moved(2), m2 = moved(-2);
  for (std::size_t k = 0; k < hv.size(); ++k)
    for (std::int64_t i = 0; i < hv[k].size(); ++i) {
      const double difference = (8 * (p1[k].at(i) - m1[k].at(i)) - (p2[k].at(i) - m2[k].at(i))) / (12 * step);
      ASSERT_NEAR(hv[k].at(i), difference, 1e-7) << "leaf " << k << ", element " << i;
    }
}

std::vector<Case> cases() {
  return {{"linear", Linear(2, 3)},
          {"lstm", LSTM(2, 3)},
          {"gru", GRU(2, 3)},
          {"rnn", RNN(2, 3)},
          {"layer_norm_lstm", Recurrent(LayerNormLstmCell(2, 3))},
          {"coupled_two_speed", Recurrent(CoupledTwoSpeedCell(2, 3))},
          {"stack", Sequential(LSTM(2, 3, 2), LayerNorm(3), GRU(3, 2), Last(), Linear(2, 2), Activation("gelu"))}};
}

INSTANTIATE_TEST_SUITE_P(All, NnDerivatives, ::testing::ValuesIn(cases()),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace hotloop::testing
