// What lies beyond the steps of a row may be anything: it reaches neither what comes out nor a gradient.
#include <cmath>

#include "hotloop/transforms.h"
#include "nn_testing.h"

namespace hotloop::testing {
namespace {

using namespace nn;

constexpr std::int64_t batch = 2, time = 4, features = 2;
const Array lengths = Array::from<std::int32_t>({4, 2}, {2});

// Finite up to the steps of each row, `padding` behind them.
Array padded(double padding) {
  Array x = uniform(1, {batch, time, features}, DType::F64, -1, 1);
  for (std::int64_t i = (time + 2) * features; i < x.size(); ++i) x.set(i, padding);
  return x;
}

// The sum of the squares of the valid outputs, its gradients by the parameters and by x.
std::vector<Array> trained(const Layer& model, const Array& x, const Backend& backend) {
  const Tree<Array> params = model.init(0, DType::F64), buffers = model.init_buffers(DType::F64);
  const auto p = static_cast<int>(params.num_leaves());
  std::vector<Array> arrays = params.flatten();
  arrays.push_back(x);
  std::vector<int> wanted;
  for (int i = 0; i <= p; ++i) wanted.push_back(i);
  const auto loss = [&](std::span<const Value> in) {
    Context context;
    context.training = true;
    context.lengths = constant(lengths);
    context.buffers = buffers.map([](const Array& a) { return constant(a); });
    Value y = model.apply(params.unflatten(in.first(params.num_leaves())), in[params.num_leaves()], context);
    if (context.lengths.defined()) y = select(valid_steps(y, context.lengths), y, zeros_like(y));
    return std::vector<Value>{sum(square(y))};
  };
  return run_traced(value_and_grad(loss, wanted), arrays, backend);
}

TEST(Padding, ReachesNoGradient) {
  const std::vector<std::pair<const char*, Layer>> models = {
      {"lstm", LSTM(features, 3)},
      {"two lstms, both ways", LSTM(features, 3, {.num_layers = 2, .bidirectional = true})},
      {"gru", GRU(features, 3)},
      {"rnn", RNN(features, 3)},
      {"linear and mean", Sequential(Linear(features, 3), MeanPool())},
      {"norm and max", Sequential(BatchNorm(features), MaxPool())},
      {"convolution both ways", Bidirectional(Conv1d(features, 3, 2))},
      {"residual", Residual(LSTM(features, features))},
      {"last", Sequential(LayerNorm(features), Last(), Linear(features, 1))}};
  for (const Backend& backend : all_backends())
    for (const auto& [name, model] : models) {
      const auto wanted = trained(model, padded(0), backend), found = trained(model, padded(std::nan("")), backend);
      for (std::size_t i = 0; i < wanted.size(); ++i)
        EXPECT_EQ(difference(found[i], wanted[i]), 0) << name << " on " << backend.name << ", " << i;
      for (std::int64_t i = (time + 2) * features; i < batch * time * features; ++i)
        EXPECT_EQ(found.back().at(i), 0) << name << " on " << backend.name;
    }
}

// Its gradient by its weights is that of an average over time of all inputs.
class Averages : public MultiInputModule {
 public:
  Tree<Array> init(const Seed&, DType dtype, Init) const override {
    return {{"scale", Array::full(dtype, {features}, 2)}};
  }
  Value apply_inputs(const Tree<Value>& params, const Tree<Value>& inputs, Context& context) const override {
    const Value x = inputs.is_leaf() ? inputs.leaf() : inputs["series"];
    context.lengths = {};
    return mean(x, {1}) * broadcast_to(params["scale"], {batch, features});
  }
};

TEST(Padding, AModuleOfOnesOwnSeesZeros) {
  const Array zeros = padded(0), nans = padded(std::nan(""));
  const auto run = [&](const Layer& model, const Array& x) {
    return run_traced(
        [&](std::span<const Value> in) {
          Context context;
          context.lengths = constant(lengths);
          return std::vector<Value>{
              model.apply(Tree<Value>{{"scale", in[1]}}, Tree<Value>{{"facts", in[2]}, {"series", in[0]}}, context)};
        },
        {x, Array::full(DType::F64, {features}, 2), Array::full(DType::F64, {batch, 1}, 1)})[0];
  };
  EXPECT_EQ(difference(run(Averages(), nans), run(Averages(), zeros)), 0);
}

TEST(Padding, IsWrittenOnceForAllLayersOfAModel) {
  const Sequential model{LayerNorm(features), LayerNorm(features), LayerNorm(features)};
  const Tree<Array> params = model.init(0, DType::F64);
  std::vector<ValueType> types;
  for (const Array& leaf : params.flatten()) types.push_back(leaf.type());
  types.push_back({DType::F64, {batch, time, features}});
  const auto graph = trace(
      [&](std::span<const Value> in) {
        Context context;
        context.lengths = constant(lengths);
        return std::vector<Value>{model.apply(params.unflatten(in.first(params.num_leaves())), in.back(), context)};
      },
      types);
  int selects = 0;
  for (const auto& node : graph->nodes()) selects += node->op->name == "select";
  EXPECT_EQ(selects, 1);
}

// Lengths are checked where they are numbers; in a program a row has no more steps than there are.
TEST(Padding, ALengthBeyondTheStepsIsAllOfThem) {
  const Array x = Array::from<double>({1, 2, 3, 4, 5, 6}, {2, 3, 1});
  const auto of = [&](const Layer& layer) {
    return run_traced(
        [&](std::span<const Value> in) {
          Context context;
          context.lengths = in[1];
          return std::vector<Value>{layer.apply({}, in[0], context)};
        },
        {x, Array::from<std::int32_t>({7, 0}, {2})})[0];
  };
  EXPECT_EQ(of(Last()).at(0), 3);
  EXPECT_EQ(of(Last()).at(1), 0);
  EXPECT_EQ(of(MeanPool()).at(0), 2);
}

}  // namespace
}  // namespace hotloop::testing
