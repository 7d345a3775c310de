#include "nn/parameters.h"

#include "hotloop/error.h"

namespace hotloop::nn {

void check_parameters(const std::string& where, const Tree<Value>& params,
                      std::initializer_list<std::pair<const char*, Shape>> shapes) {
  for (const auto& [name, shape] : shapes) {
    if (!params.has(name) || !params[name].defined() || params[name].shape() == shape) continue;
    throw UserError(where, std::string(name) + " must have the shape that init() gives it, " + shape.str(),
                    params[name].type().str(), "the parameters that this model was made or trained with");
  }
}

}  // namespace hotloop::nn
