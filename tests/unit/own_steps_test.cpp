// Streams of modules of one's own: with their state they are the whole sequence, without it they are refused.
#include <gtest/gtest.h>

#include <functional>
#include <new>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "arrays.h"
#include "hotloop/cancel.h"
#include "hotloop/error.h"
#include "hotloop/export.h"
#include "hotloop/functions.h"
#include "hotloop/nn.h"
#include "hotloop/stream.h"
#include "hotloop/structured_jit.h"

namespace hotloop {
namespace {

using testing::normal_array;

// A series beside a number of a store; the recurrent layer's state is handed on, or is not.
struct OfStores : nn::MultiInputModule {
  enum class State { Kept, None, NotHandedOn };
  explicit OfStores(State state) : kept(state) {}
  Tree<Array> init(const nn::Seed& seed, DType dtype, nn::Init init) const override {
    return {{"lstm", lstm.init(nn::fold_in(seed, "lstm"), dtype, init)},
            {"store", store.init(nn::fold_in(seed, "store"), dtype, init)},
            {"head", head.init(nn::fold_in(seed, "head"), dtype, init)}};
  }
  Value apply_inputs(const Tree<Value>& p, const Tree<Value>& x, nn::Context& context) const override {
    nn::Context of_series;
    if (context.state && kept == State::Kept) of_series.state = context.state->at("lstm");
    const Value last = nn::Last().apply({}, lstm.apply(p.at("lstm"), x["series"], of_series));
    if (context.state && kept == State::Kept) context.state->set("lstm", *of_series.state);
    return head.apply(p.at("head"), concat({last, store.apply(p.at("store"), x["store"])}, 1));
  }
  Tree<Value> initial_state(std::int64_t batch, DType dtype) const override {
    if (kept == State::None) return {};
    return {{"lstm", lstm.initial_state(batch, dtype)}};
  }
  State kept;
  nn::LSTM lstm{2, 8};
  nn::Embedding store{3, 2};
  nn::Linear head{10, 1};
};

Tree<ValueType> types(std::int64_t steps) {
  return {{"series", ValueType{DType::F32, {1, steps, 2}}}, {"store", ValueType{DType::I32, {1}}}};
}

// A sum over all steps, in one of two ways.
struct Mixes : nn::Module {
  Tree<Array> init(const nn::Seed&, DType, nn::Init) const override { return {}; }
  Value apply(const Tree<Value>&, Value x, nn::Context&) const override {
    return x + broadcast_to(mean(x, {1}), x.shape());
  }
};
struct Scales : nn::Module {
  Tree<Array> init(const nn::Seed&, DType dtype, nn::Init) const override {
    return {{"factor", Array::full(dtype, {}, 0)}};
  }
  Value apply(const Tree<Value>& p, Value x, nn::Context&) const override { return x * p["factor"] + sin(x); }
};

void expect_refused(const std::string& received, const std::function<void()>& f) {
  try {
    f();
    ADD_FAILURE() << "nothing was thrown";
  } catch (const UserError& e) {
    const std::string what = e.what();
    EXPECT_NE(what.find("[stream] apply() of a module of one's own must treat each step alone"), std::string::npos)
        << what;
    EXPECT_NE(what.find(received), std::string::npos) << what;
  }
}

TEST(OwnSteps, WithTheirStateAreTheWholeSequence) {
  const nn::Layer model{OfStores(OfStores::State::Kept)};
  const Tree<Array> params = model.init(3);
  const Stream stream(model, params, types(1));
  constexpr std::int64_t steps = 5;
  const Array series = normal_array({1, steps, 2}, DType::F32, 4), store = Array::from({std::int32_t{2}}, {1});
  const auto whole = jit([&](const Tree<Value>& p, const Tree<Value>& x) { return model.apply(p, x); });
  Tree<Array> state = stream.initial_state();
  for (std::int64_t t = 0; t < steps; ++t) {
    Array step(DType::F32, {1, 1, 2}), until(DType::F32, {1, t + 1, 2});
    for (std::int64_t i = 0; i < 2; ++i) step.set(i, series.at(2 * t + i));
    for (std::int64_t i = 0; i < until.size(); ++i) until.set(i, series.at(i));
    const auto [y, next] = stream.step(state, Tree<Array>{{"series", step}, {"store", store}});
    state = next;
    EXPECT_EQ(y.at(0), whole(params, Tree<Array>{{"series", until}, {"store", store}}).at(0)) << t;
  }
}

TEST(OwnSteps, WithoutItAreRefused) {
  for (const auto state : {OfStores::State::None, OfStores::State::NotHandedOn}) {
    const nn::Layer model{OfStores(state)};
    const Tree<Array> params = model.init(3);
    expect_refused("OfStores, which gives other numbers for step 28", [&] { Stream(model, params, types(1)); });
    expect_refused("OfStores", [&] { export_c(model, params, types(1), {.name = "stores"}); });
  }
}

// Of more than one step it throws.
struct OneStep : nn::Module {
  explicit OneStep(std::function<void()> refuse) : refuse(std::move(refuse)) {}
  Tree<Array> init(const nn::Seed&, DType, nn::Init) const override { return {}; }
  Value apply(const Tree<Value>&, Value x, nn::Context&) const override {
    if (x.shape()[1] > 1) refuse();
    return sin(x);
  }
  std::function<void()> refuse;
};

TEST(OwnSteps, WhatTheyThrowForASequenceIsTold) {
  const auto stream = [](std::function<void()> refuse) {
    const nn::Layer model{OneStep(std::move(refuse))};
    Stream(model, model.init(0), 2);
  };
  expect_refused("OneStep, which takes no sequence of 29 steps: one at a time. Try: ",
                 [&] { stream([] { throw std::runtime_error("one at a time"); }); });
  expect_refused("OneStep, which takes no sequence of 29 steps: [one] there must be one step, not several. Try: ",
                 [&] { stream([] { throw UserError("one", "there must be one step", "several", "fewer"); }); });
  // What is no fault of the module's is not told as one.
  EXPECT_THROW(stream([] { throw Cancelled(); }), Cancelled);
  EXPECT_THROW(stream([] { throw std::bad_alloc(); }), std::bad_alloc);
  EXPECT_THROW(stream([] { throw InternalError("file", 1, "what"); }), InternalError);
}

TEST(OwnSteps, ThatMixTimeAreRefusedInsideOthersToo) {
  const nn::Sequential model{nn::LSTM(2, 4), nn::Residual(Mixes()), nn::Linear(4, 1)};
  expect_refused("Mixes, which gives other numbers for step", [&] { Stream(model, model.init(0), 2); });
  const nn::Sequential fine{nn::LSTM(2, 4), Scales(), nn::MeanPool()};
  EXPECT_EQ(Stream(fine, fine.init(0), 2).output_type().shape, Shape({1, 4}));
}

// What belongs to another model is named in full.
TEST(Models, NameTheParametersThatTheyMiss) {
  const nn::Sequential model{nn::Linear(2, 2), nn::Linear(2, 2)};
  const Tree<Array> params = nn::Linear(2, 2).init(0, DType::F64);
  try {
    jit([&](const Tree<Value>& p, Value x) { return model.apply(p, x); })(params, normal_array({3, 2}, DType::F64, 1));
    ADD_FAILURE() << "nothing was thrown";
  } catch (const UserError& e) {
    EXPECT_NE(std::string(e.what()).find("with 0.weight. Received: no 0.weight."), std::string::npos) << e.what();
  }
}

}  // namespace
}  // namespace hotloop
