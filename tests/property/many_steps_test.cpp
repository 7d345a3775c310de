// Training steps in one call and as many calls are the same to the bit: the schedule of a loop of steps (outer_loop_class) cuts the
// batch where that of one step (choose_tile_class) does, and sums over it in the same order.
#include <memory>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "arrays.h"
#include "hotloop/jit.h"
#include "hotloop/losses.h"
#include "hotloop/nn.h"
#include "hotloop/optim.h"
#include "hotloop/train.h"

namespace hotloop::testing {
namespace {

constexpr std::int64_t num_steps = 3;

struct Case {
  std::string model;
  std::int64_t batch, width;
  DType dtype;
};
void PrintTo(const Case& c, std::ostream* out) {
  *out << c.model << " of " << c.width << " units, batch " << c.batch << ", " << name_of(c.dtype);
}

nn::Layer model_of(const Case& c) {
  const std::int64_t w = c.width;
  if (c.model == "linear") return nn::Linear(3, 1);
  if (c.model == "mlp") return nn::Sequential(nn::Linear(3, w), nn::Activation("tanh"), nn::Linear(w, 1));
  if (c.model == "batch_norm")
    return nn::Sequential(nn::Linear(3, w), nn::BatchNorm(w), nn::Activation("tanh"), nn::Linear(w, 1));
  if (c.model == "layer_norm") return nn::Sequential(nn::Linear(3, w), nn::LayerNorm(w), nn::Linear(w, 1));
  if (c.model == "gru") return nn::Sequential(nn::GRU(3, w), nn::Last(), nn::Linear(w, 1));
  if (c.model == "gru_batch_norm") return nn::Sequential(nn::GRU(3, w), nn::Last(), nn::BatchNorm(w), nn::Linear(w, 1));
  return nn::Sequential(nn::LSTM(3, w), nn::Last(), nn::Linear(w, 1));
}

// Whether the loop over steps has its own tiles. One whose steps are too small for that runs on one worker, and sums in the order in
// which the rows lie.
bool steps_are_cut(const Executable& many) {
  const std::string text = many.kernel_text();
  const std::size_t loop = text.find("\n  for "), grid = text.find("\n    grid ");
  return loop != std::string::npos && grid != std::string::npos && loop < grid;
}

class ManySteps : public ::testing::TestWithParam<Case> {};

TEST_P(ManySteps, AreTheStepsOneByOne) {
  const Case& c = GetParam();
  const bool recurrent = c.model.starts_with("gru") || c.model == "lstm";
  const Shape x = recurrent ? Shape{c.batch, 5, 3} : Shape{c.batch, 3}, y{c.batch, 1};
  const std::vector<optim::Optimizer> optimizers = {optim::SGD(0.05), optim::Adam(0.01),
                                                    optim::ClipByNorm(optim::RMSprop(0.01), 1.0)};
  for (std::size_t o = 0; o < optimizers.size(); ++o) {
    SCOPED_TRACE("optimizer " + std::to_string(o));
    const nn::Layer model = model_of(c);
    const Tree<Array> params = model.init(1, c.dtype), state = optimizers[o].init(params);
    const Tree<Array> buffers = model.init_buffers(c.dtype);
    const train::Step step = train::train_step(model, losses::MSE(), optimizers[o], params, state, {c.dtype, x},
                                               {c.dtype, y}, {.buffers = buffers});
    CompileOptions options;
    options.device = "cpu";  // sums over the batch have the device's order
    const Executable one = compile(step.graph(), options);
    const Executable many = compile(train::many_steps(step, num_steps).graph(), options);
    if (recurrent || c.batch * c.width >= 2000) EXPECT_TRUE(steps_are_cut(many));
    if (!steps_are_cut(many)) continue;
    const Array xs = normal_array(x.with_inserted(0, num_steps), c.dtype, 7);
    const Array ys = normal_array(y.with_inserted(0, num_steps), c.dtype, 8);
    const std::vector<Array> at_once = many(step.arguments(params, state, buffers, {.x = xs, .y = ys}));

    const auto part = [&](const Array& all, const Shape& shape, std::int64_t i) {
      Array a(c.dtype, shape);
      std::memcpy(a.raw(), static_cast<const char*>(all.raw()) + static_cast<std::size_t>(i) * a.bytes(), a.bytes());
      return a;
    };
    std::vector<Array> carried = step.arguments(params, state, buffers, {.x = part(xs, x, 0), .y = part(ys, y, 0)});
    for (std::int64_t i = 0; i < num_steps; ++i) {
      carried.resize(step.num_carried());
      carried.push_back(part(xs, x, i));
      carried.push_back(part(ys, y, i));
      carried = one(carried);
      EXPECT_EQ(carried.back().at(0), at_once.back().at(i)) << "the loss of step " << i;
    }
    for (std::size_t i = 0; i < step.num_carried(); ++i)
      EXPECT_TRUE(same_bits(carried[i], at_once[i])) << "output " << i << " " << carried[i].type().str();
  }
}

std::vector<Case> cases() {
  std::vector<Case> all;
  for (const char* model : {"linear", "mlp", "batch_norm", "layer_norm", "gru", "gru_batch_norm", "lstm"})
    for (const std::int64_t batch : {20, 64, 150})
      for (const std::int64_t width : {4, 16, 40}) {
        if (std::string(model) == "linear" && width > 4) continue;
        all.push_back({model, batch, width, (batch + width) % 8 == 0 ? DType::F64 : DType::F32});
      }
  return all;
}

INSTANTIATE_TEST_SUITE_P(All, ManySteps, ::testing::ValuesIn(cases()));

}  // namespace
}  // namespace hotloop::testing
