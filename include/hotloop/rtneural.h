// Models of RTNeural (https://github.com/jatinchowdhury18/RTNeural), a library for neural networks in audio: its JSON files as layers and
// parameters.
//
//   const RtneuralModel imported = load_rtneural("amp.json");
//   Stream stream(imported.model, imported.params, imported.features);
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>

#include "hotloop/nn.h"
#include "hotloop/tree.h"

namespace hotloop {

struct RtneuralModel {
  nn::Layer model;            // (batch, time, features) -> (batch, time, outputs)
  Tree<Array> params;         // with PyTorch's names
  std::int64_t features = 0;  // of the input, the last of the file's in_shape
  std::string toml;           // the layers as a configuration has them: [[model]] tables
};

// dense, time-distributed-dense, gru, lstm, conv1d, prelu, batchnorm and activation, with the activations tanh, relu, sigmoid, softmax and
// elu. The weights of dense or conv1d take in a batchnorm that follows; another one is a conv1d of one step with a group for each feature.
// UserError naming everything that cannot be read, all of it at once, or what is wrong with the file.
RtneuralModel load_rtneural(const std::filesystem::path& path, DType dtype = DType::F32);
// The same from memory; `source` stands for the file's name in messages.
RtneuralModel parse_rtneural(std::string_view text, const std::string& source, DType dtype = DType::F32);

}  // namespace hotloop
