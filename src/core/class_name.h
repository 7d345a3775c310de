// What a component of a registry is called as a class, in Python and in C++.
#pragma once

#include <string>
#include <string_view>

namespace hotloop {

// "layer_norm": "LayerNorm", "lstm": "LSTM".
std::string class_name(std::string_view name);

}  // namespace hotloop
