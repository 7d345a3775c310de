// Misuse of layers, losses and optimisers: each message names what came and what to do.
#include <limits>

#include "hotloop/dataset.h"
#include "hotloop/optim.h"
#include "hotloop/train.h"
#include "nn/registry.h"
#include "nn_testing.h"
#include "optim/registry.h"
#include "user_cells.h"

namespace hotloop::testing {
namespace {

using namespace nn;

std::string apply_message(const Layer& layer, const Array& x, const Tree<Array>& params) {
  return message_of([&] { apply_on(layer, params, x); });
}
std::string apply_message(const Layer& layer, const Array& x) { return apply_message(layer, x, layer.init(0)); }

Array zeros(const Shape& shape, DType dtype = DType::F32) { return Array::zeros(dtype, shape); }

TEST(LayerErrors, SizesMustBePositive) {
  EXPECT_EQ(message_of([] { LSTM(7, -3); }), "[lstm] hidden must be positive. Received: -3.");
  EXPECT_EQ(message_of([] { GRU(0, 3); }), "[gru] inputs must be positive. Received: 0.");
  EXPECT_EQ(message_of([] { LSTM(7, std::numeric_limits<std::int64_t>::max()); }),
            "[lstm] a weight must have at most 2^59 elements. Received: hidden = 9223372036854775807.");
  EXPECT_EQ(message_of([] { Linear(std::int64_t{1} << 40, std::int64_t{1} << 40).init(0); }),
            "[array] an array must have at most 2^59 elements. Received: f32[1099511627776,1099511627776].");
  EXPECT_EQ(message_of([] { RNN(2, 3, 0); }), "[rnn] num_layers must be positive. Received: 0.");
  EXPECT_EQ(message_of([] { Linear(4, 0); }), "[linear] outputs must be positive. Received: 0.");
  EXPECT_EQ(message_of([] { LayerNorm(0); }), "[layer_norm] features must be positive. Received: 0.");
}

TEST(LayerErrors, InputsMustFit) {
  EXPECT_EQ(apply_message(Linear(4, 3), zeros({2, 5})),
            "[linear] the input's last axis must have 4 features. Received: x f32[2,5], weight f32[3,4]. "
            "Try: make the layer with as many inputs as the data has features.");
  EXPECT_EQ(apply_message(LSTM(4, 3), zeros({2, 6, 5})),
            "[lstm] a step's input must be (batch, 4). Received: f32[2,5]. "
            "Try: make the layer with as many inputs as the data has features.");
  EXPECT_EQ(
      apply_message(Sequential(Embedding(9, 4), LSTM(4, 3)), zeros({2, 6, 1})),
      "[lstm] a step's input must be (batch, 4). Received: f32[2,1,4]. Try: (batch, time, features) to the layer; if "
      "an Embedding gives it, ids (batch, time), or feature = 0 for ids that are the first feature.");
  EXPECT_EQ(apply_message(GRU(4, 3), zeros({2, 4})),
            "[recurrent] the input must be a sequence (batch, time, features). Received: f32[2,4]. "
            "Try: add the missing axis, or put recurrent layers before Last.");
  EXPECT_EQ(apply_message(LSTM(4, 3), zeros({2, 6, 4}, DType::F64)),
            "[lstm] input and parameters must have one dtype. Received: f64[2,4] and f32[12,4]. "
            "Try: cast the input, or init the parameters in its dtype.");
  EXPECT_EQ(apply_message(LayerNorm(4), zeros({2, 5})),
            "[layer_norm] weight and bias must have the extent of the input's last axis. "
            "Received: x f32[2,5], weight f32[4], bias f32[4].");
  EXPECT_EQ(apply_message(Last(), zeros({5})),
            "[last] the input must be a sequence (batch, time, ...) of at least one step. Received: f32[5].");
}

// Of another layer, or of one of another size: what a GRU would read of an LSTM's weights are numbers, too.
TEST(LayerErrors, ParametersMustBeTheLayersOwn) {
  const Array x = zeros({2, 6, 4});
  EXPECT_EQ(apply_message(GRU(4, 3), x, LSTM(4, 3).init(0)),
            "[gru] weight_ih must have the shape that init() gives it, (9, 4). Received: f32[12,4]. "
            "Try: the parameters that this model was made or trained with.");
  EXPECT_EQ(apply_message(LSTM(4, 3), x, LSTM(4, 5).init(0)),
            "[lstm] weight_ih must have the shape that init() gives it, (12, 4). Received: f32[20,4]. "
            "Try: the parameters that this model was made or trained with.");
  EXPECT_EQ(apply_message(Linear(4, 3), x, Linear(4, 1).init(0)),
            "[linear] weight must have the shape that init() gives it, (3, 4). Received: f32[1,4]. "
            "Try: the parameters that this model was made or trained with.");
  const std::string must = " must have the shape that init() gives it, ";
  const auto begins = [&](const Layer& layer, const Layer& other, const std::string& text) {
    const std::string message = apply_message(layer, x, other.init(0));
    EXPECT_TRUE(message.starts_with(text)) << message;
  };
  begins(RNN(4, 3), RNN(4, 2), "[rnn] weight_ih" + must + "(3, 4)");
  begins(Conv1d(4, 3, 2), Conv1d(4, 3, 5), "[conv1d] weight" + must + "(3, 4, 2)");
  begins(PReLU(4), PReLU(1), "[prelu] weight" + must + "(4,)");
  begins(Embedding(9, 4), Embedding(9, 2), "[embedding] weight" + must + "(9, 4)");
}

// Names tell the two directions' parameters apart.
TEST(LayerErrors, BothDirectionsOfALayerThatHasBoth) {
  const Layer both = LSTM(4, 3, {.bidirectional = true});
  EXPECT_EQ(message_of([&] { Bidirectional(both).init(0); }),
            "[bidirectional] parameters of the layer must not have names that end in \"_reverse\": so do the other "
            "direction's. Received: 'weight_ih_l0_reverse'. "
            "Try: a layer that runs one way, or another name; or Sequential(the layer) here.");
  const Layer wrapped = Bidirectional(Sequential(both));
  EXPECT_EQ(apply_on(wrapped, wrapped.init(0), zeros({2, 5, 4}))[0].shape(), (Shape{2, 5, 12}));
}

TEST(LayerErrors, ParametersMustBeThere) {
  EXPECT_EQ(
      apply_message(Linear(4, 3), zeros({2, 4}), {{"wieght", zeros({3, 4})}}),
      "[model] the parameters must be the model's own, with weight. Received: no weight. Try: did you mean 'wieght'?");
  EXPECT_EQ(
      apply_message(LSTM(4, 3, 2), zeros({2, 5, 4}), LSTM(4, 3).init(0)),
      "[model] the parameters must be the model's own, with weight_ih_l1. Received: no weight_ih_l1. Try: did you mean "
      "'weight_ih_l0'?");
}

TEST(LayerErrors, NamesAreChecked) {
  const ValueType sequence{DType::F32, {2, 5, 4}};
  EXPECT_EQ(message_of([&] {
              make_layer({"lstn", {}}, sequence);
            }),
            "[layer] the layer must be one that exists. Received: 'lstn'. Try: did you mean 'lstm'?");
  EXPECT_EQ(message_of([&] {
              make_layer({"lstm", {{"hiden", std::int64_t{3}}}}, sequence);
            }),
            "[lstm] every setting must be one that 'lstm' has. Received: 'hiden'. Try: did you mean 'hidden'?");
  EXPECT_EQ(message_of([&] {
              make_layer({"lstm", {}}, sequence);
            }),
            "[lstm] 'hidden' (number of hidden units) must be given. Received: no value. "
            "Try: hidden = 8, or any other whole number without quotes.");
  EXPECT_EQ(message_of([&] {
              make_layer({"lstm", {{"hidden", std::int64_t{3}}}}, {DType::F32, {2, 4}});
            }),
            "[lstm] the input must be a sequence (batch, time, features). Received: f32[2,4]. "
            "Try: put recurrent layers before 'last'.");
  EXPECT_EQ(message_of([] { Activation("tahn"); }),
            "[activation] the function must be one that exists. Received: 'tahn'. Try: did you mean 'tanh'?");
}

// Forgets its cell state after a step.
class ForgetfulCell : public LayerNormLstmCell {
 public:
  using LayerNormLstmCell::LayerNormLstmCell;
  std::pair<Tree<Value>, Value> step(const Tree<Value>& p, const Tree<Value>& state, Value x) const override {
    const auto [next, y] = LayerNormLstmCell::step(p, state, x);
    return {{{"h", next["h"]}}, y};
  }
};

TEST(LayerErrors, ACellMustKeepItsStatesStructure) {
  EXPECT_EQ(apply_message(Recurrent(ForgetfulCell(4, 3)), zeros({2, 5, 4})),
            "[recurrent] a cell's step must give a state as its initial state, h f32[2,3], c f32[2,3]. "
            "Received: h f32[2,3].");
}

TEST(LayerErrors, AGivenStateMustBeTheCells) {
  const Tree<Array> state = {{"h", zeros({1, 3})}, {"c", zeros({1, 3})}};
  EXPECT_EQ(message_of([&] {
              apply_on(LSTM(4, 3), LSTM(4, 3).init(0), zeros({2, 5, 4}), &state);
            }),
            "[recurrent] the given state must be as the cell's initial state, h f32[2,3], c f32[2,3]. "
            "Received: h f32[1,3], c f32[1,3].");
}

TEST(LossErrors, ShapesMustBeEqual) {
  EXPECT_EQ(message_of([] {
              run_traced([](std::span<const Value> in) { return std::vector<Value>{losses::MSE()(in[0], in[1])}; },
                         {zeros({4, 1}), zeros({4})});
            }),
            "[mse] prediction and target must have one shape and dtype. Received: f32[4,1] and f32[4]. "
            "Try: a target of shape (4, 1), y[:, None] in Python.");
  const auto remedy = [](const Shape& prediction, const Shape& target, DType dtype = DType::F32) {
    const std::string message = message_of([&] {
      run_traced([](std::span<const Value> in) { return std::vector<Value>{losses::MSE()(in[0], in[1])}; },
                 {zeros(prediction), zeros(target, dtype)});
    });
    return message.substr(message.find(" Try: ") + 1);
  };
  const std::string last = "Try: the layer Last() in the model, which leaves the last step, ";
  EXPECT_EQ(remedy({4, 9, 2}, {4, 2}), last + "(4, 2).");
  EXPECT_EQ(remedy({4, 9, 1}, {4}), last + "(4, 1), and a target of that shape.");
  EXPECT_EQ(remedy({4, 9, 1}, {4, 9}), "Try: a target of shape (4, 9, 1), y[..., None] in Python.");
  EXPECT_EQ(remedy({4}, {4, 1}), "Try: a target of shape (4,), y[:, 0] in Python.");
  EXPECT_EQ(remedy({4, 2}, {4}), "Try: reshape the target to the model's output.");
  EXPECT_EQ(remedy({4, 2}, {4}, DType::I64), "Try: the loss CrossEntropy, if the target's numbers are classes.");
  EXPECT_EQ(message_of([] { losses::make_loss("msee"); }),
            "[loss] the loss must be one that exists. Received: 'msee'. Try: did you mean 'mse'?");
}

TEST(OptimizerErrors, SettingsAreChecked) {
  EXPECT_EQ(message_of([] { optim::Adam(-1); }),
            "[adam] the learning rate must not be negative. Received: -1. Try: 1e-3 to begin with.");
  EXPECT_EQ(message_of([] { optim::Adam(1e-3, {.beta2 = 1}); }), "[adam] betas must be in [0, 1). Received: 1.");
  EXPECT_EQ(message_of([] { optim::Adam(-1e-9); }),
            "[adam] the learning rate must not be negative. Received: -1e-09. Try: 1e-3 to begin with.");
  EXPECT_EQ(message_of([] { optim::SGD(0.1, 0, true); }),
            "[sgd] nesterov needs momentum. Received: momentum 0. Try: momentum = 0.9.");
  EXPECT_EQ(message_of([] { optim::make_optimizer("adan"); }),
            "[optimizer] the optimizer must be one that exists. Received: 'adan'. Try: did you mean 'adam'?");
}

TEST(TrainErrors, RowsOfInputAndTargetMustAgree) {
  const Linear model(4, 1);
  const Tree<Array> params = model.init(0);
  const optim::SGD sgd(0.1);
  EXPECT_EQ(message_of([&] {
              train::train_step(model, losses::MSE(), sgd, params, sgd.init(params), {DType::F32, {8, 4}},
                                {DType::F32, {7, 1}});
            }),
            "[train_step] x and y must have the same number of rows. Received: f32[8,4] and f32[7,1].");
}

class SilentModule : public Module {
 public:
  Tree<Array> init(const Seed&, DType, Init) const override { return {}; }
  Value apply(const Tree<Value>&, Value, Context&) const override { return {}; }
};

TEST(LayerErrors, AModuleMustGiveAValue) {
  EXPECT_EQ(apply_message(Sequential(SilentModule(), Linear(2, 2)), zeros({2, 2})),
            "[model] the apply() of a module must give a value. Received: Value(), which is none. Try: return what is "
            "computed from x.");
}

TEST(LossErrors, DtypesMustBeEqual) {
  const auto message = [](const Array& target) {
    return message_of([&] {
      run_traced([](std::span<const Value> in) { return std::vector<Value>{losses::MSE()(in[0], in[1])}; },
                 {zeros({4, 1}), target});
    });
  };
  EXPECT_EQ(message(zeros({4}, DType::I32)),
            "[mse] prediction and target must have one shape and dtype. Received: f32[4,1] and i32[4]. Try: a target "
            "of shape (4, 1), y[:, None] in Python, and a target in f32.");
  EXPECT_EQ(message(zeros({4, 1}, DType::I32)),
            "[mse] prediction and target must have one shape and dtype. Received: f32[4,1] and i32[4,1]. Try: a target "
            "in f32.");
}

TEST(LossErrors, ValuesMustBeDefined) {
  EXPECT_EQ(message_of([] {
              run_traced([](std::span<const Value> in) { return std::vector<Value>{losses::MSE()(in[0], {})}; },
                         {zeros({4})});
            }),
            "[mse] every operand must be a value. Received: f32[4], an undefined value.");
  const losses::Loss silent([](Value, Value) { return Value{}; }, "silent");
  EXPECT_EQ(message_of([&] {
              run_traced([&](std::span<const Value> in) { return std::vector<Value>{silent(in[0], in[0])}; },
                         {zeros({4})});
            }),
            "[silent] every operand must be a value. Received: an undefined value.");
}

TEST(DatasetErrors, ArraysMustBeDefined) {
  EXPECT_EQ(message_of([] {
              data::ArrayDataset(zeros({4, 2}), Array());
            }),
            "[dataset] inputs and targets must be arrays that are defined. Received: targets = Array(), which has no "
            "memory.");
}

}  // namespace
}  // namespace hotloop::testing
