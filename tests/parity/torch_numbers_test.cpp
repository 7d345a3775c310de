// What Generator::Torch draws from a seed is what PyTorch draws from it (scripts/record_torch_numbers.py).
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <memory>

#include "hotloop/fit.h"
#include "hotloop/init.h"
#include "nn/torch_generator.h"
#include "parity/recorded.h"

namespace hotloop::testing {
namespace {

nn::Layer model_of(const Json& model) {
  std::vector<nn::LayerConfig> stack;
  for (const Json& layer : model.at("layers")) stack.push_back(config_of(layer));
  const Shape shape(model.at("x").get<std::vector<std::int64_t>>());
  return nn::make_model(stack, {model.contains("integers") ? DType::I32 : DType::F32, shape});
}

// The largest difference of any element, and how many elements are not the same.
struct Difference {
  double largest = 0;
  std::int64_t count = 0;
};
Difference compare(const Array& ours, const Array& theirs) {
  EXPECT_EQ(ours.shape(), theirs.shape());
  Difference out;
  for (std::int64_t i = 0; i < ours.size(); ++i) {
    const double difference = std::abs(ours.at(i) - theirs.at(i));
    out.largest = std::max(out.largest, difference);
    out.count += difference != 0;
  }
  return out;
}

TEST(TorchNumbers, InitialParameters) {
  for (const Json& model : recorded("torch_numbers").at("models")) {
    const nn::Layer layer = model_of(model);
    const bool has_normal = model.contains("integers");
    for (const Json& draw : model.at("draws"))
      for (DType dtype : {DType::F32, DType::F64}) {
        const std::string what =
            model.at("name").get<std::string>() + " " + draw.at("seed").dump() + " " + std::string(name_of(dtype));
        const nn::Seed seed(draw.at("seed").get<std::uint64_t>(), nn::Generator::Torch);
        const Tree<Array> ours = layer.init(seed, dtype), again = layer.init(seed, dtype);
        const Tree<Array> theirs = tree_of(draw.at(std::string(name_of(dtype))), dtype);
        ASSERT_EQ(ours.num_leaves(), theirs.num_leaves()) << what;
        for (const std::string& name : theirs.names()) {
          const Difference difference = compare(ours[name], theirs[name]);
          const bool normal = has_normal && name == "0.weight";
          if (dtype == DType::F32 && !normal) EXPECT_EQ(difference.count, 0) << what << " " << name;
          EXPECT_LE(difference.largest, dtype == DType::F32 ? 1e-6 : 4e-16) << what << " " << name;
          EXPECT_EQ(compare(ours[name], again[name]).count, 0) << what << " " << name << ": init is a pure function";
        }
      }
  }
}

TEST(TorchNumbers, OrdersOfSamples) {
  for (const Json& order : recorded("torch_numbers").at("orders")) {
    nn::TorchGenerator generator(order.at("seed").get<std::uint64_t>());
    for (const Json& permutation : order.at("permutations")) {
      const auto theirs = permutation.get<std::vector<std::int64_t>>();
      EXPECT_EQ(generator.permutation(std::ssize(theirs)), theirs) << order.at("seed");
    }
  }
}

// A whole fit: parameters, then an order for each epoch, also of one that was interrupted and goes on.
TEST(TorchNumbers, AFitFollowsPyTorchs) {
  const Json& wanted = recorded("torch_numbers").at("training");
  const data::ArrayDataset samples(array_of(wanted.at("x"), DType::F64), array_of(wanted.at("y"), DType::F64));
  const nn::Linear model(3, 2);
  train::FitOptions options;
  options.loss = losses::MSE();
  options.optimizer = optim::SGD(wanted.at("learning_rate").get<double>());
  options.batch_size = wanted.at("batch_size").get<std::int64_t>();
  options.epochs = wanted.at("epochs").get<std::int64_t>();
  options.seed = wanted.at("seed").get<std::uint64_t>();
  options.generator = nn::Generator::Torch;
  const Tree<Array> theirs = tree_of(wanted.at("params"), DType::F64);
  const train::FitResult whole = train::fit(model, samples, samples, options);
  for (const std::string& name : theirs.names())
    EXPECT_LE(compare(whole.state.params[name], theirs[name]).largest, 1e-14) << name;

  std::atomic<bool> stop{false};
  train::FitOptions first = options, second = options;
  first.stop = &stop;
  first.on_progress = [&](const train::Progress& p) { stop = p.epoch == 2 && p.step == 1; };
  const train::FitResult half = train::fit(model, samples, samples, first);
  ASSERT_EQ(half.state.epoch, 2);
  second.resume = std::make_shared<const train::TrainingState>(half.state);
  const train::FitResult resumed = train::fit(model, samples, samples, second);
  for (const std::string& name : theirs.names())
    EXPECT_EQ(compare(whole.state.params[name], resumed.state.params[name]).count, 0) << name;
  second.generator = nn::Generator::Philox;
  EXPECT_THROW(train::fit(model, samples, samples, second), UserError);
}

TEST(TorchNumbers, KerasDefaultsAreRefused) {
  EXPECT_THROW(nn::Linear(3, 2).init({0, nn::Generator::Torch}, DType::F32, nn::Init::Keras), UserError);
  EXPECT_THROW(nn::generator_from_name("numpy"), UserError);
}

}  // namespace
}  // namespace hotloop::testing
