// Streams and exports of models of several inputs: each step is that of the whole sequence, to the bit.
#include <cstring>
#include <limits>
#include <random>
#include <tuple>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "arrays.h"
#include "exports.h"
#include "hotloop/error.h"
#include "hotloop/export.h"
#include "hotloop/ops.h"
#include "hotloop/stream.h"
#include "hotloop/train.h"

namespace hotloop {
namespace {

using testing::Exports;
using testing::normal_array;
using testing::target_of;

constexpr std::int64_t T = 6, I = 3, H = 12, ids = 7;

// A series of numbers and one of ids, and facts that have no steps.
class Shop : public nn::MultiInputModule {
 public:
  Tree<Array> init(const nn::Seed& seed, DType dtype, nn::Init init) const override {
    return {{"days", days_.init(seed, dtype, init)},
            {"lstm", lstm_.init(nn::Seed(5), dtype, init)},
            {"head", head_.init(nn::Seed(6), dtype, init)}};
  }
  Tree<Value> initial_state(std::int64_t batch, DType dtype) const override {
    return lstm_.initial_state(batch, dtype);
  }
  Value apply_inputs(const Tree<Value>& params, const Tree<Value>& x, nn::Context& context) const override {
    const Value series = x["of.series"], facts = x["facts"];
    const Value day = days_.apply(params.at("days"), x["of.day"]);
    const Value h = lstm_.apply(params.at("lstm"), concat({series, day}, 2), context);
    const Shape with_facts{h.shape()[0], h.shape()[1], facts.shape()[1]};
    return head_.apply(params.at("head"), concat({h, broadcast(facts, with_facts, {0, 2})}, 2));
  }

 private:
  nn::Embedding days_{ids, 4};
  nn::LSTM lstm_{I + 4, H};
  nn::Linear head_{H + 2, 2};
};

Tree<ValueType> types(DType dtype, std::int64_t batch, std::int64_t steps = 1) {
  return {{"of", {{"series", ValueType{dtype, {batch, steps, I}}}, {"day", ValueType{DType::I32, {batch, steps}}}}},
          {"facts", ValueType{dtype, {batch, 2}}}};
}

Tree<Array> sequence(DType dtype, std::int64_t batch) {
  Array day(DType::I32, {batch, T});
  for (std::int64_t i = 0; i < day.size(); ++i) day.set(i, static_cast<double>(i * 5 % ids));
  return {{"of", {{"series", normal_array({batch, T, I}, dtype, 3)}, {"day", day}}},
          {"facts", normal_array({batch, 2}, dtype, 4)}};
}

// One step of what has steps, with their axis.
Tree<Array> at(const Tree<Array>& all, std::int64_t t) {
  return map_trees(
      [&](const Array& a, const ValueType& type) {
        if (a.shape().rank() < 2 || a.shape()[1] != T) return a;
        Array step(a.dtype(), type.shape);
        const std::int64_t batch = a.shape()[0], width = a.size() / batch / T;
        for (std::int64_t b = 0; b < batch; ++b)
          for (std::int64_t i = 0; i < width; ++i) step.set(b * width + i, a.at((b * T + t) * width + i));
        return step;
      },
      all, types(all["facts"].dtype(), all["facts"].shape()[0]));
}

std::vector<Array> wanted(const nn::Layer& model, const Tree<Array>& params, const Tree<Array>& x) {
  std::vector<Array> inputs = params.flatten();
  for (const Array& leaf : x.flatten()) inputs.push_back(leaf);
  const train::Step step = train::predict_step(model, params, x.map([](const Array& leaf) { return leaf.type(); }));
  const Array y = compile(step.graph())(inputs)[0];
  std::vector<Array> steps;
  for (std::int64_t t = 0; t < T; ++t) {
    Array one(y.dtype(), {y.shape()[0], y.shape()[2]});
    for (std::int64_t b = 0; b < one.shape()[0]; ++b)
      for (std::int64_t i = 0; i < one.shape()[1]; ++i)
        one.set(b * one.shape()[1] + i, y.at((b * T + t) * one.shape()[1] + i));
    steps.push_back(one);
  }
  return steps;
}

bool same_bits(const Array& a, const Array& b) {
  return a.type() == b.type() && std::memcmp(a.raw(), b.raw(), a.bytes()) == 0;
}

std::vector<const void*> addresses(const Tree<Array>& x) {
  std::vector<const void*> all;
  for (const Array& leaf : x.flatten()) all.push_back(leaf.raw());
  return all;
}

TEST(StreamInputs, AreTheWholeSequenceStepByStep) {
  const nn::Layer model = Shop();
  for (const DType dtype : {DType::F32, DType::F64})
    for (const std::int64_t batch : {1, 3}) {
      const Tree<Array> params = model.init(1, dtype), x = sequence(dtype, batch);
      const std::vector<Array> expected = wanted(model, params, x);
      const Stream stream(model, params, types(dtype, batch), {.batch = batch});
      EXPECT_EQ(stream.inputs().names(), x.names());
      EXPECT_EQ(stream.input_type().str(), ValueType({dtype, {batch, 1, I}}).str());
      Tree<Array> state = stream.initial_state();
      Stream::Voice voice = stream.voice();
      for (std::int64_t t = 0; t < T; ++t) {
        const Tree<Array> step = at(x, t);
        Array y, of_voice(dtype, {batch, 2});
        std::tie(y, state) = stream.step(state, step);
        EXPECT_TRUE(same_bits(y, expected[static_cast<std::size_t>(t)])) << "step " << t;
        voice.step(addresses(step), of_voice.raw());
        EXPECT_TRUE(same_bits(of_voice, y)) << "a voice's step " << t;
      }
    }
}

// An output in the memory of an input, whichever.
TEST(StreamInputs, MayBeWhereTheOutputGoes) {
  const nn::Layer model = Shop();
  const Tree<Array> params = model.init(1), x = sequence(DType::F32, 1);
  const Array expected = wanted(model, params, x)[0];
  const Stream stream(model, params, types(DType::F32, 1));
  for (std::size_t i = 0; i < 3; ++i) {
    std::vector<const void*> inputs;
    std::vector<Array> own;
    for (const Array& leaf : at(x, 0).flatten()) {
      Array room(DType::F32, {8});
      std::memcpy(room.raw(), leaf.raw(), leaf.bytes());
      own.push_back(room);
    }
    for (const Array& a : own) inputs.push_back(a.raw());
    Stream::Voice voice = stream.voice();
    voice.step(inputs, own[i].raw());
    EXPECT_EQ(std::memcmp(own[i].raw(), expected.raw(), expected.bytes()), 0) << "input " << i;
  }
}

// Ids alone, as a language model takes them, and what is one input by name.
TEST(StreamInputs, OneMayBeOfIntegers) {
  const nn::Sequential model(nn::Embedding(ids, 4), nn::GRU(4, H), nn::Linear(H, ids));
  const Tree<Array> params = model.init(1);
  const Array day = sequence(DType::F32, 1)["of.day"];
  const std::vector<Array> expected = wanted(model, params, Tree<Array>(day));
  const ValueType one{DType::I32, {1, 1}};
  for (const Tree<ValueType>& inputs : {Tree<ValueType>(one), Tree<ValueType>{{"letter", one}}}) {
    const Stream stream(model, params, inputs);
    Tree<Array> state = stream.initial_state();
    for (std::int64_t t = 0; t < T; ++t) {
      Array y, letter(DType::I32, {1, 1});
      letter.set(0, day.at(t));
      const Tree<Array> x = inputs.is_leaf() ? Tree<Array>(letter) : Tree<Array>{{"letter", letter}};
      std::tie(y, state) = stream.step(state, x);
      EXPECT_TRUE(same_bits(y, expected[static_cast<std::size_t>(t)])) << "step " << t;
    }
  }
}

template <class Number> void expect_export(DType dtype, const std::string& target) {
  const nn::Layer model = Shop();
  const Tree<Array> params = model.init(1, dtype), x = sequence(dtype, 1);
  const ExportedC files = export_c(model, params, types(dtype, 1), {.name = "net", .target = target});
  StreamOptions options;
  options.compile.target = target_of(files.targets.front());
  const Stream stream(model, params, types(dtype, 1), options);
  for (const bool from_object : {false, true}) {
    Exports<Number> exports(files, from_object);
    void* voice = exports.new_voice();
    ASSERT_EQ(exports.init(voice, nullptr), 0);
    Stream::Voice beside = stream.voice();
    for (std::int64_t t = 0; t < T; ++t) {
      Tree<Array> step = at(x, t);
      // In the last steps the output goes where an input is.
      std::vector<std::vector<Number>> rooms;
      std::vector<const void*> inputs;
      for (const Array& leaf : step.flatten()) {
        rooms.emplace_back(8);
        std::memcpy(rooms.back().data(), leaf.raw(), leaf.bytes());
      }
      rooms.emplace_back(8);
      for (std::size_t i = 0; i < 3; ++i) inputs.push_back(rooms[i].data());
      Number* y = rooms[t < 3 ? 3 : static_cast<std::size_t>(t - 3)].data();
      Number expected[2];
      beside.step(addresses(step), expected);
      // NAME_inputs is a pointer after the other.
      exports.step(voice, reinterpret_cast<const Number*>(inputs.data()), y);
      EXPECT_EQ(std::memcmp(y, expected, sizeof expected), 0)
          << (from_object ? "object" : "source") << ", step " << t << ": " << y[0] << " and " << expected[0];
    }
  }
}

TEST(StreamInputs, AreFieldsInC) {
  expect_export<float>(DType::F32, "host");
  expect_export<double>(DType::F64, "x86-64-v2");
  const nn::Layer model = Shop();
  const std::string header = export_c(model, model.init(1), types(DType::F32, 1), {.name = "shop"}).header;
  const std::string fields =
      "typedef struct shop_inputs {\n  const float* of_series;  // of.series, f32[1,1,3]\n"
      "  const int32_t* of_day;  // of.day, i32[1,1]\n"
      "  const float* facts;  // f32[1,2]\n} shop_inputs;";
  EXPECT_NE(header.find(fields), std::string::npos) << header;
  EXPECT_NE(header.find("shop_step(&voice, &x, y);"), std::string::npos) << header;
  EXPECT_NE(header.find("void shop_step(shop_voice* voice, const shop_inputs* x, float* y);"), std::string::npos);
}

TEST(StreamInputs, WhatDoesNotFitIsNamed) {
  const nn::Layer model = Shop();
  const Tree<Array> params = model.init(1);
  const auto message = [&](const auto& make) -> std::string {
    try {
      make();
    } catch (const UserError& e) {
      return e.what();
    }
    return "accepted";
  };
  EXPECT_EQ(
      message([&] { Stream(model, params, types(DType::F32, 3)); }),
      "[stream] each input of a step must have the batch, 1, as its first axis. Received: of.series = f32[3,1,3]. "
      "Try: StreamOptions::batch for more rows.");
  EXPECT_EQ(message([&] { Stream(model, params, types(DType::F32, 1, 4)); }),
            "[stream] inputs of a step must be a sequence of one step, [batch, 1, ...] of what has steps. Received: "
            "of.series f32[1,4,3], of.day i32[1,4], facts f32[1,2].");
  EXPECT_EQ(message([&] { Stream(model, params, Tree<ValueType>()); }),
            "[stream] there must be an input. Received: a tree without leaves.");
  const Stream stream(model, params, types(DType::F32, 1));
  EXPECT_EQ(message([&] {
              stream.step(stream.initial_state(), normal_array({1, 3}, DType::F32, 1));
            }),
            "[stream] a step takes of.series f32[1,1,3], of.day i32[1,1], facts f32[1,2]. Received: f32[1,3].");
  const std::vector<float> x(3);
  std::vector<float> y(2);
  Stream::Voice voice = stream.voice();
  EXPECT_EQ(message([&] { voice.step(std::span<const float>(x), std::span<float>(y)); }),
            "[stream] a step takes of.series f32[1,1,3], of.day i32[1,1], facts f32[1,2] and gives f32[1,2]. "
            "Received: f32, 3 numbers in and 2 out. Try: step() with the address of each input.");
  const void* const one[] = {x.data()};
  EXPECT_EQ(message([&] { voice.step(one, y.data()); }),
            "[stream] a step takes of.series f32[1,1,3], of.day i32[1,1], facts f32[1,2]. Received: 1 address.");
}

}  // namespace
}  // namespace hotloop
