// RTNeural's models beside what RTNeural gave for them, recorded by data/rtneural/record.py.
#include <gtest/gtest.h>

#include <fstream>
#include <sstream>

#include "compiled.h"
#include "hotloop/error.h"
#include "hotloop/export.h"
#include "hotloop/rtneural.h"
#include "hotloop/stream.h"
#include "test_dir.h"

namespace hotloop {
namespace {

struct Recorded {
  std::vector<std::vector<double>> rows;  // inputs, then outputs
};

Recorded recorded(const std::string& name) {
  Recorded out;
  std::ifstream file(testing::test_dir() + "/data/rtneural/" + name + ".csv");
  for (std::string line; std::getline(file, line);) {
    std::vector<double>& row = out.rows.emplace_back();
    std::istringstream cells(line);
    for (std::string cell; std::getline(cells, cell, ',');) row.push_back(std::stod(cell));
  }
  return out;
}

std::string path_of(const std::string& name) { return testing::test_dir() + "/data/rtneural/" + name + ".json"; }

class Rtneural : public ::testing::TestWithParam<const char*> {};

TEST_P(Rtneural, AStreamGivesItsOutputs) {
  const RtneuralModel imported = load_rtneural(path_of(GetParam()), DType::F64);
  const Recorded known = recorded(GetParam());
  ASSERT_EQ(known.rows.size(), 24u);
  Stream::Voice voice = Stream(imported.model, imported.params, imported.features).voice();
  const auto features = static_cast<std::size_t>(imported.features);
  for (const std::vector<double>& row : known.rows) {
    std::vector<double> y(row.size() - features);
    voice.step(std::span(row).first(features), y);
    for (std::size_t i = 0; i < y.size(); ++i) EXPECT_NEAR(y[i], row[features + i], 1e-10);
  }
}

INSTANTIATE_TEST_SUITE_P(Recorded, Rtneural, ::testing::Values("dense", "lstm", "gru", "conv1d"),
                         [](const auto& info) { return std::string(info.param); });

TEST(RtneuralFiles, LayersAsAConfigurationHasThem) {
  EXPECT_EQ(load_rtneural(path_of("lstm")).toml,
            "[[model]]\ntype = \"lstm\"\nhidden = 5\n\n[[model]]\ntype = \"linear\"\nbias = true\nunits = 1\n");
  EXPECT_EQ(load_rtneural(path_of("gru")).params.names().front(), "0.weight_ih_l0");
}

std::string message_of(const std::string& text) {
  try {
    parse_rtneural(text, "amp.json");
  } catch (const UserError& e) {
    return e.what();
  }
  return "no error";
}

TEST(RtneuralFiles, MistakesAreNamed) {
  EXPECT_EQ(message_of("[]"),
            "[rtneural] amp.json: must be an object with in_shape and layers. Received: array. "
            "Try: a file that RTNeural's model_utils.save_model wrote.");
  const auto with = [](const std::string& layers) {
    return R"({"in_shape": [null, null, 2], "layers": [)" + layers + "]}";
  };
  EXPECT_EQ(message_of(with("")), "[rtneural] amp.json: there must be a layer. Received: none.");
  EXPECT_EQ(message_of(with(R"({"type": "dense", "shape": [null, 1], "weights": [[[1], [2], [3]], [0]]})")),
            "[rtneural] amp.json: layer 1 (dense): weights[0] must have the shape (2, 1). Received: (3, 1).");
  EXPECT_EQ(message_of(with(R"({"type": "dense", "shape": [null, 1], "weights": [[[1], [2, 3]], [0]]})")),
            "[rtneural] amp.json: layer 1 (dense): weights[0] must be rows of equal length. Received: 1 and 2.");
  EXPECT_EQ(message_of(with(R"({"type": "lstm", "shape": [null, 0], "weights": []})")),
            "[rtneural] amp.json: layer 1 (lstm): shape must end in a positive integer. Received: [null,0].");
  EXPECT_EQ(
      message_of(with(
          R"({"type": "conv2d", "shape": [null, 1]}, {"type": "activation", "shape": [2], "activation": "swish"})")),
      "[rtneural] every layer must be one that can be read from amp.json. Received: layer 1 (conv2d); layer 2 "
      "(activation) "
      "with activation swish. Try: dense, gru, lstm, conv1d, prelu, batchnorm and activation.");
}

// Whatever cannot be read is named at once, though what comes before or after does not fit without it.
TEST(RtneuralFiles, AllThatCannotBeReadIsNamed) {
  EXPECT_EQ(
      message_of(R"({"in_shape": [null, null, 1], "layers": [
    {"type": "conv2d", "shape": [null, 8], "weights": []},
    {"type": "dense", "shape": [null, 1], "activation": "swish", "weights": [[[1], [1], [1], [1], [1], [1], [1], [1]], [0]]},
    {"type": "lstm", "activation": "relu", "shape": [null, 2], "weights": []},
    {"type": "conv1d", "shape": [null, 1], "strides": [2], "padding": "same", "weights": []},
    {"type": "flatten", "shape": [null, 1]}]})"),
      "[rtneural] every layer must be one that can be read from amp.json. Received: layer 1 (conv2d); layer 2 "
      "(dense) with activation swish; layer 3 (lstm) with activation relu; layer 4 (conv1d) with strides [2]; "
      "layer 4 (conv1d) with padding \"same\"; layer 5 (flatten). Try: dense, gru, lstm, conv1d, prelu, batchnorm "
      "and activation.");
}

TEST(RtneuralFiles, AnyNestingOfPrelusOneNumber) {
  const auto with = [](const std::string& weights) {
    return R"({"in_shape": [null, null, 3], "layers": [{"type": "prelu", "shape": [null, 3], "weights": [)" + weights +
           "]}]}";
  };
  for (const char* one : {"0.25", "[0.25]", "[[0.25]]"})
    EXPECT_EQ(parse_rtneural(with(one), "amp.json").params["0.weight"].at(2), 0.25) << one;
  EXPECT_EQ(message_of(with("[1, 2]")),
            "[rtneural] amp.json: layer 1 (prelu): weights[0] must be one number, or 3. Received: (2,).");
}

// The parser takes no stack for what is nested, and messages print it.
TEST(RtneuralFiles, DeepNesting) {
  const std::string open(200000, '['), close(200000, ']');
  for (const char* before : {R"({"layers": [], "in_shape": )", R"({"in_shape": [1], "layers": [)"}) {
    const std::string text = before + open + close + (std::string(before).ends_with('[') ? "]}" : "}");
    EXPECT_EQ(
        message_of(text),
        "[rtneural] amp.json must be JSON. Received: more than 100 levels of nesting. Try: a file that RTNeural's "
        "model_utils.save_model wrote.");
  }
}

// Of what is long, messages show the beginning.
TEST(RtneuralFiles, LongValuesAreCut) {
  std::string numbers = "2";
  for (int i = 0; i < 1000; ++i) numbers += ", 2";
  EXPECT_EQ(
      message_of(R"({"in_shape": [1], "layers": [{"type": "conv1d", "padding": [)" + numbers + "]}]}"),
      "[rtneural] every layer must be one that can be read from amp.json. Received: layer 1 (conv1d) with padding "
      "[2,2,2,2,2,2,2,2,2,2,2,2,2,2,2,2,2,2,2,2,2,2,2,2,2,2,2,2,2,2... Try: dense, gru, lstm, conv1d, prelu, "
      "batchnorm and activation.");
}

TEST(RtneuralFiles, NumbersThatAreNotFinite) {
  const auto with = [](const std::string& layers) {
    return R"({"in_shape": [null, null, 1], "layers": [)" + layers + "]}";
  };
  const std::string big = with(R"({"type": "dense", "shape": [null, 1], "weights": [[[1e39]], [0]]})");
  EXPECT_EQ(message_of(big),
            "[rtneural] amp.json: layer 1 (dense): weight must be finite in f32. Received: inf. "
            "Try: weights within the range of f32, or f64.");
  EXPECT_EQ(parse_rtneural(big, "amp.json", DType::F64).params["0.weight"].at(0), 1e39);
  EXPECT_EQ(
      message_of(with(
          R"({"type": "batchnorm", "shape": [null, 1], "epsilon": 0.001, "weights": [[1], [0], [0.5], [-0.25]]})")),
      "[rtneural] amp.json: layer 1 (batchnorm): variance + epsilon must be positive. Received: -0.249 of feature 0.");
}

TEST(RtneuralFiles, ConvolutionsThatAreNotRtneurals) {
  const auto conv = [](const std::string& more) {
    return R"({"in_shape": [null, null, 1], "layers": [{"type": "conv1d", "shape": [null, null, 1], "kernel_size": [1], "dilation": [1], )" +
           more + R"("weights": [[[[1]]], [0]]}]})";
  };
  EXPECT_EQ(message_of(conv("")), "no error");
  EXPECT_EQ(message_of(conv(R"("strides": [1], "padding": "causal", )")), "no error");
  EXPECT_NE(message_of(conv(R"("strides": [2], )")).find("layer 1 (conv1d) with strides [2]"), std::string::npos);
  EXPECT_NE(message_of(conv(R"("padding": "same", )")).find("layer 1 (conv1d) with padding \"same\""),
            std::string::npos);
}

}  // namespace
}  // namespace hotloop
