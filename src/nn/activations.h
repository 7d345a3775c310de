// Elementwise functions by name, as layers and cells apply them.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "hotloop/graph.h"

namespace hotloop::nn {

using ActivationFunction = std::function<Value(Value)>;
// The function with the default of its parameter, if it has one, or with this one; UserError with the nearest name if there is none.
ActivationFunction activation_function(const std::string& name, std::optional<double> parameter = {});
std::vector<std::string> activation_names();  // in order

}  // namespace hotloop::nn
