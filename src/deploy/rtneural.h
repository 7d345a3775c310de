// RTNeural's JSON files, layer by layer: for load_rtneural() and the Python package, which makes layers of its own classes.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "hotloop/tree.h"
#include "nn/registry.h"

namespace hotloop {

struct RtneuralLayer {
  nn::LayerConfig config;
  std::int64_t inputs = 0;  // features of its input
  Tree<Array> params;
};
struct RtneuralFile {
  std::int64_t features = 0;
  std::vector<RtneuralLayer> layers;
};
// UserError as load_rtneural().
RtneuralFile read_rtneural(std::string_view text, const std::string& source, DType dtype);

}  // namespace hotloop
