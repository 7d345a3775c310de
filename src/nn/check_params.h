#pragma once

#include <string>

#include "hotloop/nn.h"

namespace hotloop::nn {

enum class Dtypes { Any, OfInit };

// UserError of `where`, naming the first difference, unless `params` has the leaves of model.init() and no others, each of its shape;
// what the initial values of PyTorch and of Keras do not both have (a second bias) may be there or not. Of another shape a bias would
// be broadcast, and a weight give a model of other sizes, without a word. `Dtypes::OfInit`: of its dtype as well.
void check_params(const std::string& where, const Layer& model, const Tree<Array>& params, Dtypes dtypes = Dtypes::Any);

// UserError unless every leaf is an array that is defined.
void check_defined(const std::string& where, const std::string& what, const Tree<Array>& tree);

}  // namespace hotloop::nn
