// Streams: step by step is the whole sequence, bound weights are laid out once, a step allocates nothing.
#include <cstring>

#include <gtest/gtest.h>

#include "arrays.h"
#include "compiled.h"
#include "hotloop/cancel.h"
#include "hotloop/error.h"
#include "hotloop/ops.h"
#include "hotloop/stream.h"
#include "hotloop/train.h"
#include "streams.h"
#include "user_cells.h"

namespace hotloop {
namespace {

using testing::at_step;
using testing::expect_steps_of;
using testing::normal_array;
using testing::whole;

constexpr std::int64_t T = 7, I = 5, H = 20;

// Counts its steps beside what it computes, in a state that never meets the input.
class CountingCell : public testing::LayerNormLstmCell {
 public:
  using LayerNormLstmCell::LayerNormLstmCell;

  Tree<Value> initial_state(std::int64_t batch, DType dtype) const override {
    return {{"cell", LayerNormLstmCell::initial_state(batch, dtype)}, {"count", nn::zero_state(batch, 1, dtype)}};
  }
  std::pair<Tree<Value>, Value> step(const Tree<Value>& p, const Tree<Value>& state, Value x) const override {
    const auto [next, h] = LayerNormLstmCell::step(p, state.at("cell"), x);
    return {{{"cell", next}, {"count", state["count"] + 1.0}}, h};
  }
};

struct Case {
  std::string name;
  nn::Layer model;
};
std::vector<Case> cases() {
  return {{"lstm", nn::Sequential(nn::LSTM(I, H), nn::Linear(H, 3))},
          {"long_inner_products", nn::Sequential(nn::LSTM(I, 48), nn::Linear(48, 3))},
          {"wide", nn::Sequential(nn::LSTM(I, 48), nn::Linear(48, 40), nn::Linear(40, 3))},
          {"gru", nn::Sequential(nn::GRU(I, H, 2), nn::Linear(H, 3))},
          {"rnn", nn::Sequential(nn::RNN(I, H), nn::Activation("relu"), nn::Linear(H, 3))},
          {"ln_lstm", nn::Sequential(nn::Recurrent(testing::LayerNormLstmCell(I, H)), nn::Linear(H, 3))},
          {"counting", nn::Sequential(nn::Recurrent(CountingCell(I, H)), nn::Linear(H, 3))}};
}

TEST(Stream, IsTheWholeSequenceStepByStep) {
  for (const auto& [name, model] : cases())
    for (const DType dtype : {DType::F32, DType::F64})
      for (const std::int64_t batch : {1, 3, 19}) {
        const Tree<Array> params = model.init(4, dtype);
        const Array x = normal_array({batch, T, I}, dtype, 8);
        const Array expected = whole(model, params, x);
        SCOPED_TRACE(name + " in " + std::string(name_of(dtype)) + ", batch " + std::to_string(batch));
        expect_steps_of(expected, Stream(model, params, I, {.batch = batch}), x);
      }
}

TEST(Stream, ParametersOfAnotherModelAreNamed) {
  const nn::Sequential model(nn::LSTM(1, 16), nn::Linear(16, 1)), other(nn::LSTM(1, 8), nn::Linear(8, 1));
  const auto message = [&](const nn::Layer& params_of) -> std::string {
    try {
      const Stream stream(model, params_of.init(0), 1);
    } catch (const UserError& e) {
      return e.what();
    }
    return "accepted";
  };
  const std::string remedy = ". Try: those that model.init(seed) gave, or that it was trained with.";
  EXPECT_EQ(message(other),
            "[stream] params must be the model's own, 0.weight_ih_l0 = f32[64,1]. Received: f32[32,1]" + remedy);
  EXPECT_EQ(message(nn::Sequential(nn::LSTM(1, 16))),
            "[stream] params must be the model's own, 1.weight = f32[1,16]. Received: no 1.weight" + remedy);
  EXPECT_EQ(message(model), "accepted");
}

// Fresh running means in place of the trained ones would be other numbers without a word.
TEST(Stream, BuffersMustBeGiven) {
  const nn::Sequential model(nn::LSTM(1, 4), nn::BatchNorm(4));
  const Tree<Array> params = model.init(0);
  const auto message = [&](const Tree<Array>& buffers) -> std::string {
    try {
      (void)stream_step(model, params, 1, {.buffers = buffers});
    } catch (const UserError& e) {
      return e.what();
    }
    return "accepted";
  };
  EXPECT_EQ(
      message({}),
      "[stream] buffers must be the model's own, 1.running_mean = f32[4]. Received: no 1.running_mean. Try: buffers = "
      "run.buffers, which training gave with the parameters, or the model's init_buffers().");
  EXPECT_NE(message(nn::Sequential(nn::LSTM(1, 4), nn::BatchNorm(3)).init_buffers()).find("Received: f32[3]"),
            std::string::npos);
  EXPECT_EQ(message(model.init_buffers()), "accepted");
}

// Bound weights of several panels lie in the order in which the target's dots read them.
TEST(Stream, IsTheWholeSequenceOnEveryTarget) {
  constexpr std::int64_t wide = 48;
  for (const testing::Compiled& compiled : testing::all_compiled())
    for (const std::int64_t features : {I, std::int64_t{70}})
      for (const DType dtype : {DType::F32, DType::F64})
        for (const std::int64_t batch : {1, 14}) {
          SCOPED_TRACE(testing::name_of_case(compiled) + " " + std::string(name_of(dtype)) + ", batch " +
                       std::to_string(batch) + ", features " + std::to_string(features));
          const nn::Sequential model(nn::LSTM(features, wide), nn::Linear(wide, 3));
          const Tree<Array> params = model.init(4, dtype);
          const Array x = normal_array({batch, 3, features}, dtype, 8);
          const Stream stream(model, params, features, {.batch = batch, .compile = compiled.options()});
          EXPECT_NE(stream.executable().kernel_text().find("packed"), std::string::npos);
          EXPECT_EQ(stream.executable().kernel_text().find("pack "), std::string::npos);
          expect_steps_of(whole(model, params, x, compiled.options()), stream, x);
        }
}

// Where a sequence is so short that products with the zeros before its first step are all that a layer has of its past, which the
// stream's step does not know to be zeros.
TEST(Stream, IsTheWholeOfAShortSequence) {
  std::vector<Case> models = cases();
  models.push_back({"dilated", nn::Conv1d(I, H, 4, {.dilation = 3})});
  models.push_back({"grouped", nn::Conv1d(I, 2 * I, 3, {.dilation = 2, .groups = I})});
  models.push_back({"few_outputs", nn::Sequential(nn::LSTM(I, H), nn::Conv1d(H, 3, 4, {.dilation = 2}))});
  models.push_back({"narrow", nn::LSTM(I, 2)});
  for (const auto& [name, model] : models)
    for (const std::int64_t steps : {1, 2, 6})
      for (const std::int64_t batch : {1, 3}) {
        const Tree<Array> params = model.init(4);
        const Array x = normal_array({batch, steps, I}, DType::F32, 8);
        const Array expected = whole(model, params, x);
        SCOPED_TRACE(name + ", " + std::to_string(steps) + " steps, batch " + std::to_string(batch));
        expect_steps_of(expected, Stream(model, params, I, {.batch = batch}), x);
      }
}

// The groups of a convolution are not taken for samples where there is one sample alone.
TEST(Stream, IsTheWholeOfAShortSequenceInGroups) {
  constexpr std::int64_t features = 64;
  for (const std::int64_t filters : {4, 32})
    for (const std::int64_t groups : {2, 4})
      for (const std::int64_t steps : {1, 2, 5})
        for (const std::int64_t batch : {1, 3}) {
          SCOPED_TRACE(std::to_string(filters) + " filters in " + std::to_string(groups) + " groups, " +
                       std::to_string(steps) + " steps, batch " + std::to_string(batch));
          const nn::Layer model = nn::Conv1d(features, filters, 3, {.dilation = 2, .groups = groups});
          const Tree<Array> params = model.init(4);
          const Array x = normal_array({batch, steps, features}, DType::F32, 8);
          expect_steps_of(whole(model, params, x), Stream(model, params, features, {.batch = batch}), x);
        }
}

// Products and biases written as users write them: the state's first, each bias where it belongs, x beside its product.
class WrittenOrderCell : public nn::Cell {
 public:
  WrittenOrderCell(std::int64_t inputs, std::int64_t hidden, std::string order)
      : inputs_(inputs), hidden_(hidden), order_(std::move(order)) {}

  Tree<Array> init(const nn::Seed& seed, DType dtype, nn::Init) const override {
    const auto drawn = [&](const std::string& name, const Shape& shape) {
      return nn::uniform(nn::fold_in(seed, name), shape, dtype, -0.3, 0.3);
    };
    return {{"W", drawn("W", {hidden_, inputs_})}, {"U", drawn("U", {hidden_, hidden_})},
            {"V", drawn("V", {hidden_, inputs_})}, {"a", drawn("a", {hidden_})},
            {"b", drawn("b", {hidden_})},          {"gate", drawn("gate", {1, hidden_})},
            {"of_x", drawn("of_x", {1, inputs_})}};
  }
  Tree<Value> initial_state(std::int64_t batch, DType dtype) const override {
    return {{"h", nn::zero_state(batch, hidden_, dtype)}, {"k", nn::zero_state(batch, hidden_, dtype)}};
  }
  std::pair<Tree<Value>, Value> step(const Tree<Value>& p, const Tree<Value>& state, Value x) const override {
    const Value h = state["h"], k = state["k"], xw = nn::linear(x, p["W"]), hu = nn::linear(h, p["U"]);
    Value sum;
    if (order_ == "state first") sum = hu + xw + p["b"];
    if (order_ == "bias first") sum = p["b"] + hu + xw + k;
    if (order_ == "two biases") sum = (xw + p["a"]) + (hu + p["b"]);
    if (order_ == "two inputs") sum = xw + nn::linear(k, p["U"]) + nn::linear(sigmoid(x), p["V"]) + hu + p["a"];
    if (order_ == "used twice") sum = xw + hu + p["b"] + 0.1 * tanh(xw);
    if (order_ == "no bias") sum = hu + xw;
    if (order_ == "number") sum = k + xw + hu + 0.5;
    if (order_ == "few outputs") sum = (xw + hu) * sigmoid(nn::linear(x, p["of_x"]) + nn::linear(h, p["gate"]) + 0.25);
    const Value next = tanh(sum);
    return {{{"h", next}, {"k", 0.5 * k + next}}, next};
  }

 private:
  std::int64_t inputs_, hidden_;
  std::string order_;
};

// Two layers that read the same sequence, outputs side by side.
class Beside : public nn::Module {
 public:
  Beside(nn::Layer first, nn::Layer second) : first_(std::move(first)), second_(std::move(second)) {}
  Tree<Array> init(const nn::Seed& seed, DType dtype, nn::Init init) const override {
    return {{"first", first_.init(nn::fold_in(seed, "first"), dtype, init)},
            {"second", second_.init(nn::fold_in(seed, "second"), dtype, init)}};
  }
  Value apply(const Tree<Value>& params, Value x, nn::Context& context) const override {
    nn::Context first = context, second = context;
    if (context.state) first.state = context.state->at("first"), second.state = context.state->at("second");
    const Value outputs[] = {first_.apply(params.at("first"), x, first), second_.apply(params.at("second"), x, second)};
    if (context.state) context.state = Tree<Value>{{"first", *first.state}, {"second", *second.state}};
    return concat(outputs, 2);
  }
  Tree<Value> initial_state(std::int64_t batch, DType dtype) const override {
    return {{"first", first_.initial_state(batch, dtype)}, {"second", second_.initial_state(batch, dtype)}};
  }

 private:
  nn::Layer first_, second_;
};

std::vector<Case> wide_cases(std::int64_t wide) {
  std::vector<Case> models = {
      {"lstm", nn::Sequential(nn::LSTM(wide, H), nn::Linear(H, 3))},
      {"lstm_of_one", nn::LSTM(wide, 1)},
      {"gru", nn::Sequential(nn::GRU(wide, H), nn::Linear(H, 3))},
      {"gru_of_three", nn::GRU(wide, 3)},
      {"rnn", nn::RNN(wide, H)},
      {"rnn_of_one", nn::RNN(wide, 1)},
      {"rnn_of_four", nn::RNN(wide, 4)},
      {"stacked_lstm", nn::LSTM(wide, 64, 2)},
      {"stacked_gru", nn::GRU(wide, 65, 2)},
      {"ln_lstm", nn::Recurrent(testing::LayerNormLstmCell(wide, H))},
      {"coupled", nn::Recurrent(testing::CoupledTwoSpeedCell(wide, H))},
      {"beside", nn::Layer(std::make_shared<const Beside>(nn::LSTM(wide, H), nn::GRU(wide, 24)))}};
  for (const char* order :
       {"state first", "bias first", "two biases", "two inputs", "used twice", "no bias", "number", "few outputs"})
    models.push_back({order, nn::Recurrent(WrittenOrderCell(wide, 24, order))});
  return models;
}

// Long products with the inputs leave the loop over a whole sequence; a step sums in the order in which both together do.
TEST(Stream, OfManyFeaturesIsTheWholeSequenceStepByStep) {
  struct Sizes {
    std::int64_t wide, batch, steps;
    DType dtype;
  };
  const Sizes all[] = {{5, 3, T, DType::F32},   {64, 1, T, DType::F32},   {64, 3, T, DType::F64},
                       {64, 19, 1, DType::F32}, {80, 19, T, DType::F32},  {80, 1, T, DType::F64},
                       {128, 3, T, DType::F32}, {128, 19, 2, DType::F64}, {200, 1, T, DType::F32},
                       {200, 3, T, DType::F64}};
  for (const auto& [wide, batch, steps, dtype] : all)
    for (const auto& [name, model] : wide_cases(wide)) {
      // One step is no loop, and unbound weights do not lie side by side there: a product of one output then stays by itself.
      if (steps == 1 && name == "few outputs") continue;
      const Tree<Array> params = model.init(4, dtype);
      const Array x = normal_array({batch, steps, wide}, dtype, 8);
      SCOPED_TRACE(name + " of " + std::to_string(wide) + " features in " + std::string(name_of(dtype)) + ", " +
                   std::to_string(steps) + " steps, batch " + std::to_string(batch));
      expect_steps_of(whole(model, params, x), Stream(model, params, wide, {.batch = batch}), x);
    }
}

// Short ones of one or two rows too. Cells of whole vectors may follow their gates block by block (llvm_dot_and_map_test.cpp), by other blocks in a step alone.
TEST(Stream, OfOneRowAndManyWeightsIsTheWholeSequenceStepByStep) {
  constexpr std::int64_t wide = 9;
  for (const std::int64_t hidden : {64, 68}) {
    const Case models[] = {{"lstm", nn::LSTM(wide, hidden)},
                           {"gru", nn::GRU(wide, hidden)},
                           {"stacked_lstm", nn::LSTM(wide, hidden, 2)},
                           {"ln_lstm", nn::Recurrent(testing::LayerNormLstmCell(wide, hidden))},
                           {"two inputs", nn::Recurrent(WrittenOrderCell(wide, hidden + 24, "two inputs"))},
                           {"used twice", nn::Recurrent(WrittenOrderCell(wide, hidden + 56, "used twice"))}};
    for (const DType dtype : {DType::F32, DType::F64})
      for (const std::int64_t batch : {1, 2})
        for (const auto& [name, model] : models) {
          const Tree<Array> params = model.init(4, dtype);
          const Array x = normal_array({batch, T, wide}, dtype, 8);
          SCOPED_TRACE(name + " of " + std::to_string(hidden) + " in " + std::string(name_of(dtype)) + ", batch " +
                       std::to_string(batch));
          expect_steps_of(whole(model, params, x), Stream(model, params, wide, {.batch = batch}), x);
        }
  }
}

// Their factors rounded, they are multiplied in pairs, of which a product of one has none.
TEST(Stream, OfManyFeaturesInBfloat16IsTheWholeSequence) {
  for (const std::int64_t wide : {5, 80})
    for (const auto& [name, model] : wide_cases(wide)) {
      const Tree<Array> params = model.init(4);
      const Array x = normal_array({3, T, wide}, DType::F32, 8);
      CompileOptions options;
      options.dot_precision = "bf16";
      SCOPED_TRACE(name + " of " + std::to_string(wide) + " features");
      expect_steps_of(whole(model, params, x, options), Stream(model, params, wide, {.batch = 3, .compile = options}),
                      x);
    }
}

// How often an op stands in the body of the first loop of the program that runs a whole sequence.
std::size_t count_in_loop(const nn::Layer& model, std::int64_t batch, std::int64_t steps, std::int64_t features,
                          const std::string& op) {
  const train::Step step = train::predict_step(model, model.init(4), {DType::F32, {batch, steps, features}});
  const std::string graph = compile(step.graph()).graph_text();
  const auto loop = graph.find("loop("), end = graph.find("return", loop);
  EXPECT_NE(end, std::string::npos) << graph;
  std::size_t found = 0;
  for (std::size_t at = graph.find(op, loop); at < end; at = graph.find(op, at + 1)) ++found;
  return found;
}

// One product of all steps, which starts from the bias; in the loop one that goes on from there. Other additions there: that of the cell.
TEST(Stream, ProductsOfAllStepsTakeTheBiasAlong) {
  EXPECT_EQ(count_in_loop(nn::LSTM(64, H), 3, T, 64, "= dot("), 1U);
  EXPECT_EQ(count_in_loop(nn::LSTM(64, H), 3, T, 64, "= add("), 2U);
}

// One row does little with the weights that a step reads: where they leave the first cache, short products with the inputs leave the loop as well.
TEST(Stream, ShortProductsOfOneRowLeaveTheLoopWhereWeightsAreMany) {
  const auto dots = [](std::int64_t hidden, std::int64_t features, std::int64_t batch, std::int64_t steps) {
    return count_in_loop(nn::LSTM(features, hidden), batch, steps, features, "= dot(");
  };
  EXPECT_EQ(dots(64, 8, 1, 100), 1U);
  EXPECT_EQ(dots(64, 8, 2, 100), 1U);
  EXPECT_EQ(dots(64, 8, 3, 100), 2U) << "enough rows";
  EXPECT_EQ(dots(32, 8, 1, 100), 2U) << "20 KB of weights stay";
  EXPECT_EQ(dots(64, 7, 1, 100), 2U) << "shorter than what it saves";
  EXPECT_EQ(dots(64, 8, 1, 10000), 2U) << "10 MB, which come from memory";
  EXPECT_EQ(dots(64, 32, 1, 10000), 1U) << "less than the weights it spares";
}

TEST(Stream, AVoiceKeepsItsStateAndReturnsToTheInitialOne) {
  const nn::Sequential model(nn::LSTM(I, H), nn::Last(), nn::Linear(H, 1));
  const Tree<Array> params = model.init(1);
  const Stream stream(model, params, I);
  Stream::Voice first = stream.voice(), second = stream.voice();
  std::vector<float> x(I, 0.5F), y(1), other(1), again(1);
  first.step(x, y);
  const float at_start = y[0];
  first.step(x, y);
  EXPECT_NE(y[0], at_start);
  second.step(x, other);
  EXPECT_EQ(other[0], at_start);
  first.reset();
  first.step(x, again);
  EXPECT_EQ(again[0], at_start);
}

// Who makes steps in real time could neither begin one again nor wait: what tells programs to end early does not reach voices.
TEST(Stream, VoicesAreNotCancelled) {
  const nn::Sequential model(nn::LSTM(I, H), nn::Linear(H, 1));
  StreamOptions options;
  for (const std::string& backend : {options.compile.backend, std::string("interp")}) {
    options.batch = 64;  // tiles, between which programs look
    options.compile.backend = backend;
    const Stream stream(model, model.init(1), I, options);
    Stream::Voice voice = stream.voice(), other = stream.voice();
    const std::vector<float> x(64 * I, 0.5F);
    std::vector<float> y(64, -7), wanted(64, -7);
    for (int t = 0; t < 3; ++t) {
      other.step(x, wanted);
      if (t == 1) request_cancel();
      voice.step(x, y);
      clear_cancel();
      EXPECT_EQ(y, wanted) << backend << " step " << t;
    }
  }
}

// As audio is processed: the numbers that come in are the ones that go out.
TEST(Stream, AStepMayWriteOverItsInput) {
  // A product of several tiles of columns reads its row again after it has written some of them.
  constexpr std::int64_t width = 256;
  const Case models[] = {
      {"lstm", nn::LSTM(width, width)}, {"gru", nn::GRU(width, width)}, {"linear", nn::Linear(width, width)}};
  for (const auto& [name, model] : models) {
    SCOPED_TRACE(name);
    const Stream stream(model, model.init(1), width);
    Stream::Voice apart = stream.voice(), in_place = stream.voice();
    std::vector<float> x(width), y(width), both(width);
    for (int t = 0; t < 5; ++t) {
      for (std::size_t i = 0; i < x.size(); ++i)
        x[i] = both[i] = static_cast<float>((static_cast<int>(i) * 7 + t * 5) % 11 - 5) / 4;
      apart.step(x, y);
      in_place.step(both, both);
      ASSERT_EQ(both, y) << "step " << t;
    }
  }
}

TEST(Stream, TakesItsOwnCopyOfTheWeights) {
  const nn::Sequential model(nn::Linear(I, 2));
  Tree<Array> params = model.init(1);
  const Stream stream(model, params, I);
  const Array x = normal_array({1, I}, DType::F32, 3);
  const Array before = stream.step(stream.initial_state(), x).first;
  for (const Array& leaf : params.flatten()) std::memset(const_cast<void*>(leaf.raw()), 0, leaf.bytes());
  const Array after = stream.step(stream.initial_state(), x).first;
  EXPECT_EQ(std::memcmp(before.raw(), after.raw(), before.bytes()), 0);
}

// The two projections are one dot with the weights as it wants them: nothing is packed, transposed or joined in a step.
TEST(Stream, AStepReadsWeightsAsTheyLie) {
  const nn::Sequential model(nn::LSTM(I, H), nn::Linear(H, 3));
  const Stream stream(model, model.init(0), I);
  const std::string kernel = stream.executable().kernel_text();
  EXPECT_EQ(kernel.find("pack "), std::string::npos) << kernel;
  const std::size_t first_dot = kernel.find(" dot ");
  EXPECT_NE(first_dot, std::string::npos);
  EXPECT_LT(first_dot, kernel.find(" map ")) << "nothing is laid out before: " << kernel;
  EXPECT_EQ(stream.executable().graph_text().find("concat("), std::string::npos);
}

// The gates go from the dot to their activations in registers: one function, in which nothing is read that it stored as a vector.
TEST(Stream, AStepOfASmallCellIsOneFunction) {
  const nn::Sequential model(nn::LSTM(8, 16), nn::Linear(16, 1));
  StreamOptions options;
  options.compile.backend = "llvm";
  options.compile.target = "avx512";
  options.compile.keep_source = true;
  if (kernel::runnable_targets().back() != "avx512") GTEST_SKIP() << "vectors of 16 are AVX-512's";
  const std::string source = Stream(model, model.init(0), 8, options).executable().source();
  const auto count = [&](const std::string& what) {
    std::size_t found = 0;
    for (std::size_t at = source.find(what); at != std::string::npos; at = source.find(what, at + 1)) ++found;
    return found;
  };
  EXPECT_EQ(count("\ndefine "), 1u);
  // Biases, weights (all eight inputs at once, a loop over h, four at a time), c, and the weights of the output.
  EXPECT_EQ(count("load <16 x float>"), 4u + 8 * 4 + 4 * 4 + 1 + 1) << source;
}

TEST(Stream, RefusesWhatDoesNotFit) {
  const nn::Sequential model(nn::LSTM(I, H));
  const Stream stream(model, model.init(0), I);
  Stream::Voice voice = stream.voice();
  std::vector<float> x(I + 1), y(H);
  EXPECT_THROW(voice.step(x, y), UserError);
  std::vector<double> x64(I), y64(H);
  EXPECT_THROW(voice.step(x64, y64), UserError);
  EXPECT_THROW(stream.step({}, Array(DType::F32, {1, I})), UserError);
  EXPECT_THROW(Stream(model, model.init(0), I + 1), UserError);
  EXPECT_THROW(Stream(model, model.init(0), 0), UserError);
  for (const nn::Layer& both :
       {nn::Layer(nn::Bidirectional(nn::LSTM(I, H))), nn::Layer(nn::LSTM(I, H, {.bidirectional = true}))}) {
    try {
      Stream(both, both.init(0), I);
      ADD_FAILURE() << "a reversed direction was streamed";
    } catch (const UserError& error) {
      EXPECT_NE(std::string(error.what()).find("must read the sequence forward"), std::string::npos) << error.what();
    }
  }
}

TEST(CompileBound, GivesWhatTheWholeProgramGives) {
  // Bound: a batch of matrices with the contracted axis last, a vector that is only broadcast, one input that is an output as it is.
  const TracedFunction fn = [](std::span<const Value> in) {
    const Value product = dot(in[0], in[1], {{2}, {2}, {0}, {0}});
    return std::vector<Value>{tanh(product + in[2]) * exp(in[2]), in[2]};
  };
  const std::vector<Array> inputs = {normal_array({2, 3, 4}, DType::F64, 1), normal_array({2, 5, 4}, DType::F64, 2),
                                     normal_array({5}, DType::F64, 3)};
  std::vector<ValueType> types;
  for (const Array& a : inputs) types.push_back(a.type());
  const auto graph = trace(fn, types);
  const std::vector<Array> wanted = compile(graph)(inputs);
  for (const char* backend : {"llvm", "interp"}) {
    CompileOptions options;
    options.backend = backend;
    const Executable bound = compile_bound(graph, std::vector<Array>{{}, inputs[1], inputs[2]}, options);
    ASSERT_EQ(bound.input_types().size(), 1U);
    const std::vector<Array> got = bound(std::vector<Array>{inputs[0]});
    ASSERT_EQ(got.size(), 2U);
    for (std::size_t i = 0; i < 2; ++i)
      for (std::int64_t k = 0; k < wanted[i].size(); ++k)
        EXPECT_NEAR(got[i].at(k), wanted[i].at(k), 1e-14) << backend << " " << i << " " << k;

    // Other values of what is bound, and the program that was there before stays as it is.
    const std::vector<Array> other = {inputs[0], normal_array({2, 5, 4}, DType::F64, 4),
                                      normal_array({5}, DType::F64, 5)};
    const Executable again = rebind(bound, std::vector<Array>{other[1], other[2]});
    const Executable fresh = compile_bound(graph, std::vector<Array>{{}, other[1], other[2]}, options);
    const Array mine = again(std::vector<Array>{other[0]})[0], theirs = fresh(std::vector<Array>{other[0]})[0];
    EXPECT_EQ(std::memcmp(mine.raw(), theirs.raw(), mine.bytes()), 0) << backend;
    EXPECT_EQ(std::memcmp(bound(std::vector<Array>{inputs[0]})[0].raw(), got[0].raw(), got[0].bytes()), 0) << backend;
    EXPECT_THROW(rebind(bound, std::vector<Array>{other[1]}), UserError);
  }
  EXPECT_THROW(rebind(compile(graph), {}), UserError);
}

TEST(Stream, ACopyOfAVoiceIsAVoiceOfItsOwn) {
  const nn::Sequential model(nn::LSTM(1, 8), nn::Linear(8, 1));
  const Stream stream(model, model.init(0), 1);
  const std::vector<float> xs = {0.5f, -1, 2, 0.25f};
  const auto run = [&](Stream::Voice& voice, std::size_t from) {
    std::vector<float> ys;
    for (std::size_t i = from; i < xs.size(); ++i) {
      float y = 0;
      voice.step(std::span(&xs[i], 1), std::span(&y, 1));
      ys.push_back(y);
    }
    return ys;
  };
  std::vector<Stream::Voice> voices(2, stream.voice());
  const std::vector<float> alone = run(voices[0], 0);
  EXPECT_EQ(run(voices[1], 0), alone);

  // From the state where it was made, after an odd number of steps as well.
  Stream::Voice voice = stream.voice();
  float y = 0;
  voice.step(std::span(xs).first(1), std::span(&y, 1));
  Stream::Voice copy = voice, assigned = stream.voice();
  assigned = copy;
  const std::vector<float> rest(alone.begin() + 1, alone.end());
  EXPECT_EQ(run(voice, 1), rest);
  EXPECT_EQ(run(copy, 1), rest);
  Stream::Voice moved = std::move(assigned);
  EXPECT_EQ(run(moved, 1), rest);
  copy.reset();
  EXPECT_EQ(run(copy, 0), alone);
}

TEST(Stream, OutputsHaveTheModelsAxesButTime) {
  const auto shape = [](const nn::Layer& model, std::int64_t batch) {
    return Stream(model, model.init(0), 3, {.batch = batch}).output_type().shape;
  };
  for (const std::int64_t batch : {1, 5})
    for (const std::int64_t outputs : {1, 2}) {
      EXPECT_EQ(shape(nn::Sequential(nn::LSTM(3, 4), nn::Last(), nn::Linear(4, outputs)), batch),
                (Shape{batch, outputs}));
      EXPECT_EQ(shape(nn::Sequential(nn::LSTM(3, 4), nn::Linear(4, outputs)), batch), (Shape{batch, outputs}));
      EXPECT_EQ(shape(nn::Sequential(nn::Flatten(), nn::Linear(3, outputs)), batch), (Shape{batch, outputs}));
    }
}

TEST(Stream, ParametersThatWouldBeBroadcastAreRefused) {
  const auto message = [](const nn::Layer& model, const std::string& name, const Array& leaf) -> std::string {
    Tree<Array> params = model.init(0);
    if (params.has(name))
      params[name] = leaf;
    else
      params.set(name, leaf);
    try {
      const Stream stream(model, params, 3);
    } catch (const UserError& e) {
      return e.what();
    }
    return "accepted";
  };
  const nn::Sequential linear(nn::Linear(3, 8)), lstm(nn::LSTM(3, 8));
  const std::string own = "[stream] params must be the model's own, ",
                    remedy = ". Try: those that model.init(seed) gave, or that it was trained with.";
  EXPECT_EQ(message(linear, "0.bias", Array::full(DType::F32, {1}, 5)),
            own + "0.bias = f32[8]. Received: f32[1]" + remedy);
  EXPECT_EQ(message(linear, "0.bias", Array::scalar(5.0f)), own + "0.bias = f32[8]. Received: f32[]" + remedy);
  EXPECT_EQ(message(lstm, "0.bias_ih_l0", Array::full(DType::F32, {1}, 5)),
            own + "0.bias_ih_l0 = f32[32]. Received: f32[1]" + remedy);
  EXPECT_EQ(message(linear, "7", Array::scalar(5.0f)), own + "which has no 7. Received: 7 = f32[]" + remedy);
  EXPECT_EQ(message(linear, "0.weight", Array()),
            "[stream] params must be arrays that are defined. Received: 0.weight = Array(), which has no memory.");
  // As Keras has it: one bias.
  const Stream stream(lstm, lstm.init(0, DType::F32, nn::Init::Keras), 3);
  EXPECT_EQ(stream.output_type().shape, (Shape{1, 8}));
}

}  // namespace
}  // namespace hotloop
