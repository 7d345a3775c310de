// Layers agree with PyTorch and Keras: outputs, final states, and gradients of parameters, input and initial state.
#include <numeric>

#include "hotloop/transforms.h"
#include "nn_testing.h"
#include "parity/recorded.h"

namespace hotloop::testing {
namespace {

class LayerParity : public ::testing::TestWithParam<RecordedCase> {};

struct Prepared {
  nn::Layer layer;
  Tree<Array> params, state, buffers;
  Array x, lengths;
  bool training = false;

  nn::Context context() const {
    nn::Context context;
    context.training = training;
    context.buffers = buffers.map([](const Array& leaf) { return constant(leaf); });
    if (lengths.defined()) context.lengths = constant(lengths);
    // As the layer inside of a model: the other library does not put zeros beyond the lengths, and what it gives there is compared too.
    context.padding_is_zero = lengths.defined();
    return context;
  }
};

Prepared prepare(const RecordedCase& c) {
  const Json& json = c.json();
  const Array x = array_of(json.at("x"), c.dtype);
  Prepared p{nn::make_layer(config_of(json.at("layer")), x.type()),
             tree_of(json.at("params"), c.dtype),
             tree_of(json.at("state"), c.dtype),
             {},
             x,
             {}};
  if (json.contains("buffers")) p.buffers = tree_of(json.at("buffers"), c.dtype);
  if (json.contains("lengths"))
    p.lengths = Array::from(json.at("lengths").get<std::vector<std::int32_t>>(), {x.shape()[0]});
  p.training = json.value("training", false);
  return p;
}

TEST_P(LayerParity, Forward) {
  const RecordedCase& c = GetParam();
  const Prepared p = prepare(c);
  std::vector<Array> arrays = p.params.flatten();
  const std::size_t num_params = arrays.size();
  arrays.push_back(p.x);
  for (const Array& leaf : p.state.flatten()) arrays.push_back(leaf);
  const std::vector<Array> ours = run_traced(
      [&](std::span<const Value> in) {
        nn::Context context = p.context();
        if (!p.state.empty()) context.state = p.state.unflatten(in.subspan(num_params + 1));
        std::vector<Value> out = {p.layer.apply(p.params.unflatten(in.first(num_params)), in[num_params], context)};
        for (const std::optional<Tree<Value>>& tree : {context.state, std::optional(context.buffers)})
          if (tree)
            for (const Value v : tree->flatten()) out.push_back(v);
        return out;
      },
      arrays, backend_named(c.backend));
  EXPECT_LE(difference(ours[0], array_of(c.values().at("y"), c.dtype)), c.tolerance());
  Tree<Array> after = tree_of(c.values().at("final"), c.dtype);
  EXPECT_EQ(after.names(), p.state.names());
  if (c.values().contains("buffers")) {
    const Tree<Array> buffers = tree_of(c.values().at("buffers"), c.dtype);
    for (const auto& [name, leaf] : buffers.children()) after.set(name, leaf);
  }
  ASSERT_EQ(ours.size(), 1 + after.num_leaves());
  for (std::size_t i = 0; i < after.num_leaves(); ++i)
    EXPECT_LE(difference(ours[i + 1], after.flatten()[i]), c.tolerance()) << after.names()[i];
}

TEST_P(LayerParity, Gradient) {
  const RecordedCase& c = GetParam();
  const Prepared p = prepare(c);
  const Array cotangent = array_of(c.json().at("cotangent"), c.dtype);
  std::vector<Array> arrays = p.params.flatten();
  const std::size_t num_params = arrays.size();
  arrays.push_back(p.x);
  for (const Array& leaf : p.state.flatten()) arrays.push_back(leaf);

  const auto loss = [&](std::span<const Value> in) {
    nn::Context context = p.context();
    if (!p.state.empty()) context.state = p.state.unflatten(in.subspan(num_params + 1));
    const Value y = p.layer.apply(p.params.unflatten(in.first(num_params)), in[num_params], context);
    return std::vector<Value>{sum(y * constant(cotangent)), y};
  };
  std::vector<int> wanted(arrays.size());
  std::iota(wanted.begin(), wanted.end(), 0);
  const std::vector<Array> results = run_traced(value_and_grad(loss, wanted), arrays, backend_named(c.backend));

  EXPECT_LE(difference(results[1], array_of(c.values().at("y"), c.dtype)), c.tolerance());
  std::vector<std::string> names;
  for (const std::string& name : p.params.names()) names.push_back("params." + name);
  names.push_back("x");
  for (const std::string& name : p.state.names()) names.push_back("state." + name);
  ASSERT_EQ(results.size(), 2 + names.size());
  for (std::size_t i = 0; i < names.size(); ++i)
    EXPECT_LE(difference(results[2 + i], array_of(c.values().at("grads").at(names[i]), c.dtype)), c.tolerance())
        << names[i];
}

INSTANTIATE_TEST_SUITE_P(Recorded, LayerParity, ::testing::ValuesIn(all_recorded("layers")),
                         [](const auto& info) { return info.param.name(); });

}  // namespace
}  // namespace hotloop::testing
