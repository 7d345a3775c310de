// Models of several inputs: training, prediction and errors are those of a model that gets them side by side in one array.
#include <gtest/gtest.h>

#include <atomic>
#include <cstring>
#include <filesystem>
#include <functional>
#include <limits>
#include <utility>

#include "hotloop/hotloop.h"
#include "nn_testing.h"

namespace hotloop::testing {
namespace {

using train::FitOptions;
using train::FitResult;

// What `inner` makes of one array that `join` makes of the inputs.
class Joined : public nn::MultiInputModule {
 public:
  using Join = std::function<Value(const Tree<Value>&)>;
  Joined(nn::Layer inner, Join join) : inner_(std::move(inner)), join_(std::move(join)) {}
  Tree<Array> init(const nn::Seed& seed, DType dtype, nn::Init init) const override {
    return inner_.init(seed, dtype, init);
  }
  Tree<Array> init_buffers(DType dtype) const override { return inner_.init_buffers(dtype); }
  Value apply_inputs(const Tree<Value>& params, const Tree<Value>& inputs, nn::Context& context) const override {
    return inner_.apply(params, join_(inputs), context);
  }

 private:
  nn::Layer inner_;
  Join join_;
};

constexpr std::int64_t num_samples = 37, steps = 6;

Array random(std::uint64_t seed, const Shape& shape) { return nn::uniform(seed, shape, DType::F64, -1, 1); }

// Two floats a step, and a number from 0 to 4.
struct Data {
  Array floats = random(1, {num_samples, steps, 2}), ids{DType::I32, {num_samples, steps}};
  Array together{DType::F64, {num_samples, steps, 3}}, y = random(2, {num_samples, 1});
  Array lengths{DType::I32, {num_samples}}, weights = nn::uniform(3, {num_samples}, DType::F64, 0.5, 1.5);

  Data() {
    for (std::int64_t i = 0; i < ids.size(); ++i) {
      ids.set(i, static_cast<double>(i * 7 % 5));
      for (std::int64_t j = 0; j < 2; ++j) together.set(3 * i + j, floats.at(2 * i + j));
      together.set(3 * i + 2, ids.at(i));
    }
    for (std::int64_t i = 0; i < num_samples; ++i) lengths.set(i, static_cast<double>(1 + i % steps));
  }
  data::ArrayDataset one(bool all = true) const {
    return {together, y, all ? lengths : Array(), all ? weights : Array()};
  }
  data::ArrayDataset two(bool all = true) const {
    return {{{"ids", ids}, {"parts", {{"floats", floats}}}}, y, all ? lengths : Array(), all ? weights : Array()};
  }
};

Value join(const Tree<Value>& inputs) {
  const Value floats = inputs["parts.floats"], ids = inputs["ids"];
  return concat({floats, cast(reshape(ids, {ids.shape()[0], ids.shape()[1], 1}), floats.dtype())}, 2);
}

const nn::Sequential one_array(nn::Embedding::of_feature(2, 5, 3), nn::LSTM(5, 4), nn::Dropout(0.2), nn::BatchNorm(4),
                               nn::Last(), nn::Linear(4, 1));
const nn::Layer two_arrays = Joined(one_array, join);

FitOptions options_of(std::int64_t epochs, const char* backend = "interp") {
  FitOptions options{.optimizer = optim::Adam(0.05), .batch_size = 8, .epochs = epochs, .seed = 3};
  options.compile.backend = backend;
  return options;
}

bool same_bits(const Tree<Array>& a, const Tree<Array>& b) {
  const std::vector<Array> x = a.flatten(), y = b.flatten();
  for (std::size_t i = 0; i < x.size(); ++i)
    if (x[i].type() != y[i].type() || std::memcmp(x[i].raw(), y[i].raw(), x[i].bytes()) != 0) return false;
  return x.size() == y.size();
}

TEST(SeveralInputs, TrainAsOneArrayOfThemAll) {
  const Data data;
  for (const bool all : {false, true}) {
    const FitResult one = fit(one_array, data.one(all), data.one(all), options_of(3)),
                    two = fit(two_arrays, data.two(all), data.two(all), options_of(3));
    EXPECT_EQ(one.status, FitResult::Status::Finished) << one.message;
    EXPECT_TRUE(same_bits(one.state.params, two.state.params));
    EXPECT_TRUE(same_bits(one.buffers, two.buffers));
    for (std::size_t i = 0; i < one.history.size(); ++i) {
      EXPECT_EQ(one.history[i].train_loss, two.history[i].train_loss);
      EXPECT_EQ(one.history[i].validation, two.history[i].validation);
    }
    CompileOptions interp;
    interp.backend = "interp";
    EXPECT_TRUE(same_bits(train::predict(one_array, one.params, data.one(all), 5, interp, one.buffers),
                          train::predict(two_arrays, two.params, data.two(all), 5, interp, two.buffers)));
  }
}

TEST(SeveralInputs, CompiledTheyAgreeForAnyStepsACallAndThreads) {
  const Data data;
  const FitResult one = fit(one_array, data.one(), data.one(), options_of(3));
  FitOptions options = options_of(3, "llvm");
  for (const std::int64_t steps_per_call : {1, 3})
    for (const int threads : {1, 2}) {
      options.steps_per_call = steps_per_call;
      options.compile.threads = threads;
      const FitResult two = fit(two_arrays, data.two(), data.two(), options);
      map_trees(
          [](const Array& a, const Array& b) {
            EXPECT_LE(difference(a, b), 1e-10);
            return 0;
          },
          one.state.params, two.state.params);
    }
}

TEST(SeveralInputs, TheFirstLayerOfASequence) {
  const Data data;
  const nn::Sequential split(Joined(nn::Embedding::of_feature(2, 5, 3), join), nn::LSTM(5, 4), nn::Dropout(0.2),
                             nn::BatchNorm(4), nn::Last(), nn::Linear(4, 1));
  const FitResult one = fit(one_array, data.one(), data.one(), options_of(2)),
                  two = fit(split, data.two(), data.two(), options_of(2));
  EXPECT_TRUE(same_bits(one.state.params, two.state.params));
  EXPECT_EQ(split.output_type(data.two().input_types(7)).str(), "f64[7,1]");
  // A layer that takes one array takes a tree of one.
  const data::ArrayDataset named({{"x", data.together}}, data.y, data.lengths, data.weights);
  EXPECT_TRUE(same_bits(one.state.params, fit(one_array, named, named, options_of(2)).state.params));
}

TEST(SeveralInputs, ResumingIsBitwiseTheUninterruptedRun) {
  std::string folder = ::testing::TempDir() + "several_inputsXXXXXX";
  ASSERT_NE(mkdtemp(folder.data()), nullptr);
  const Data data;
  const auto samples = data.two();
  const FitResult whole = fit(two_arrays, samples, samples, options_of(3, "llvm"));
  FitOptions part = options_of(3, "llvm");
  part.checkpoint = {.folder = folder, .every_steps = 2};
  std::atomic<bool> stop{false};
  part.stop = &stop;
  part.on_progress = [&](const train::Progress& p) { stop = p.steps_here >= 7; };
  EXPECT_EQ(fit(two_arrays, samples, samples, part).status, FitResult::Status::Stopped);
  part.on_progress = nullptr;
  stop = false;
  part.resume = std::make_shared<const train::TrainingState>(train::load_checkpoint(train::latest_checkpoint(folder)));
  const FitResult resumed = fit(two_arrays, samples, samples, part);
  EXPECT_TRUE(same_bits(whole.state.params, resumed.state.params));
  EXPECT_TRUE(same_bits(whole.params, resumed.params));
  EXPECT_TRUE(same_bits(whole.state.optimizer_state, resumed.state.optimizer_state));
  std::filesystem::remove_all(folder);
}

TEST(SeveralInputs, TheOneThatIsNotFiniteIsNamed) {
  Data data;
  data.floats = data.floats.clone();
  data.floats.set(100, std::numeric_limits<double>::infinity());
  const FitResult run = fit(two_arrays, data.two(), data.two(), options_of(1));
  EXPECT_EQ(run.status, FitResult::Status::NonFiniteLoss);
  EXPECT_EQ(run.non_finite.tensor.rfind("the input parts.floats of the batch, f64[8,6,2]: 1 of its 96 numbers", 0), 0)
      << run.non_finite.tensor;
  EXPECT_TRUE(run.message.ends_with("Try: fill what is missing in the data, or leave those samples out."))
      << run.message;
}

// A dataset that makes its inputs.
class Made : public data::Dataset {
 public:
  std::int64_t size() const override { return 20; }
  DType dtype() const override { return DType::F32; }
  Shape input_shape() const override { return {2}; }
  Shape target_shape() const override { return {1}; }
  Tree<ValueType> inputs() const override {
    return {{"a", ValueType{DType::F32, {2}}}, {"b", ValueType{DType::I64, {}}}};
  }
  void gather(std::span<const std::int64_t> samples, const data::Batch& batch) const override {
    fill_defaults(samples.size(), batch);
    for (std::size_t i = 0; i < samples.size(); ++i) {
      const auto at = static_cast<float>(samples[i]);
      if (auto* a = static_cast<float*>(batch.input(0))) a[2 * i] = at / 20, a[2 * i + 1] = 1;
      if (auto* b = static_cast<std::int64_t*>(batch.input(1))) b[i] = samples[i] % 2;
      if (auto* y = static_cast<float*>(batch.targets)) y[i] = at / 20 + 3 * static_cast<float>(samples[i] % 2);
    }
  }
};

TEST(SeveralInputs, ADatasetOfOnesOwn) {
  const nn::Layer model = Joined(nn::Linear(3, 1), [](const Tree<Value>& x) {
    return concat({x["a"], cast(reshape(x["b"], {x["b"].shape()[0], 1}), DType::F32)}, 1);
  });
  FitOptions options{.optimizer = optim::Adam(0.1), .batch_size = 6, .epochs = 200};
  const FitResult run = fit(model, Made(), Made(), options);
  EXPECT_LT(run.best_validation, 0.02);
  // With the axis of the steps that lengths count by default: that of the first input with one, here one step for all.
  std::int32_t lengths[] = {0, 0};
  Made().gather(std::vector<std::int64_t>{0, 1}, {.lengths = lengths});
  EXPECT_EQ(lengths[1], 2);
}

TEST(SeveralInputs, LengthsCountTheStepsOfTheFirstSequence) {
  const auto place = [](const std::vector<Shape>& shapes) {
    Tree<ValueType> types;
    for (std::size_t i = 0; i < shapes.size(); ++i) types.set(std::to_string(i), ValueType{DType::F32, shapes[i]});
    return data::timed_input(types);
  };
  EXPECT_EQ(place({{8, 3}, {8, 5, 2}, {8, 9, 2}}), 1u);
  EXPECT_EQ(place({{8}, {8, 3}, {8, 4}}), 1u);
  EXPECT_EQ(place({{8}, {8}}), 0u);
  const Data data;
  std::vector<std::int32_t> lengths(2);
  data.two(false).gather(std::vector<std::int64_t>{0, 1}, {.lengths = lengths.data()});
  EXPECT_EQ(lengths[1], 6);
  const Array too_long = Array::full(DType::I32, {num_samples}, 7);
  EXPECT_EQ(message_of([&] {
              data::ArrayDataset({{"facts", data.y}, {"series", data.floats}}, data.y, too_long);
            }),
            "[dataset] lengths must lie between 0 and the inputs' steps, 6. Received: 7 for sample 0. Try: 6 for a "
            "sample without padding.");
}

TEST(SeveralInputs, Refusals) {
  const Data data;
  EXPECT_EQ(message_of([&] { fit(one_array, data.two(), data.two(), options_of(1)); }),
            "[model] the input must be one array. Received: ids i32[8,6], parts.floats f64[8,6,2]. Try: a module of "
            "your own that takes several, a nn::MultiInputModule, as the first one of the model.");
  EXPECT_EQ(message_of([&] {
              data::ArrayDataset({{"a", data.floats}, {"b", random(1, {36, 2})}}, data.y);
            }),
            "[dataset] inputs and targets must have equally many samples. Received: a f64[37,6,2], b f64[36,2] and "
            "f64[37,1].");
  EXPECT_EQ(message_of([&] {
              data::ArrayDataset({{"a", data.floats.cast(DType::F32)}, {"b", data.ids}}, data.y);
            }),
            "[dataset] inputs and targets that are floats must have the same dtype. Received: a f32[37,6,2], b "
            "i32[37,6] and f64[37,1]. Try: cast one of them.");
  EXPECT_EQ(message_of([&] {
              data::ArrayDataset({{"a", data.floats}, {"b", Array()}}, data.y);
            }),
            "[dataset] inputs and targets must be arrays that are defined. Received: input b = Array(), which has no "
            "memory.");
  EXPECT_EQ(message_of([&] { data::ArrayDataset(Tree<Array>(), data.y); }),
            "[dataset] there must be an input. Received: a tree without leaves. Try: an array, or names with an array "
            "each.");
  EXPECT_EQ(message_of([&] { fit(two_arrays, data.two(), data.one(), options_of(1)); }),
            "[fit] training and validation samples must have the same shapes and dtype. Received: ids i32[6], "
            "parts.floats f64[6,2] and f64[6,3].");
  const std::vector<double> lambdas{1};
  EXPECT_EQ(message_of([&] { train::fit_ridge(data.two(), data.two(), lambdas); }),
            "[dataset] there must be one input, which is no tree. Received: ids i32[1,6], parts.floats f64[1,6,2]. "
            "Try: a dataset of one array.");
  const optim::Adam adam;
  const Tree<Array> params = two_arrays.init(0, DType::F64), state = adam.init(params);
  EXPECT_EQ(message_of([&] {
              train::train_step(two_arrays, losses::MSE(), adam, params, state,
                                {{"ids", ValueType{DType::I32, {7, 6}}}, {"floats", ValueType{DType::F64, {8, 6, 2}}}},
                                {DType::F64, {8, 1}});
            }),
            "[train_step] x and y must have the same number of rows. Received: ids i32[7,6], floats f64[8,6,2] and "
            "f64[8,1].");
  const Tree<ValueType> x = data.two().input_types(4);
  const Tree<Array> buffers = two_arrays.init_buffers(DType::F64);
  const train::Predictor predictor(two_arrays, params, buffers, x, false);
  const data::ArrayDataset swapped({{"parts", {{"floats", data.floats}}}, {"ids", data.ids}}, data.y);
  EXPECT_EQ(predictor(params, buffers, data.two(false)).shape(), (Shape{num_samples, 1}));
  EXPECT_THROW(predictor(params, buffers, swapped), UserError);
}

}  // namespace
}  // namespace hotloop::testing
