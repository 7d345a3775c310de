// Parameters that belong to another layer: a GRU would read an LSTM's as its own.
#pragma once

#include <initializer_list>
#include <string>
#include <utility>

#include "hotloop/graph.h"
#include "hotloop/tree.h"

namespace hotloop::nn {

// UserError for a parameter that has another shape than init() gives it. One that is not in the tree is left to who reads it.
void check_parameters(const std::string& where, const Tree<Value>& params,
                      std::initializer_list<std::pair<const char*, Shape>> shapes);

}  // namespace hotloop::nn
