#include "transforms/argnums.h"

#include "hotloop/error.h"

namespace hotloop::ir {

void check_argnums(const std::string& where, std::span<const Value> inputs, std::span<const int> argnums) {
  for (const int i : argnums) {
    if (i < 0 || i >= static_cast<int>(inputs.size()))
      throw UserError(where, "argnums must be positions of inputs, 0 to " + std::to_string(inputs.size() - 1),
                      std::to_string(i));
    if (!is_float(inputs[static_cast<std::size_t>(i)].dtype()))
      throw UserError(where, "derivatives are taken with respect to f32 or f64 inputs",
                      "input " + std::to_string(i) + " = " + inputs[static_cast<std::size_t>(i)].type().str(),
                      "cast it, or leave it out of argnums");
  }
}

std::vector<bool> argnum_flags(std::size_t size, std::span<const int> argnums) {
  std::vector<bool> wanted(size);
  for (const int i : argnums) wanted[static_cast<std::size_t>(i)] = true;
  return wanted;
}

void check_float_outputs(const std::string& where, std::span<const Value> outputs) {
  for (std::size_t i = 0; i < outputs.size(); ++i)
    if (!is_float(outputs[i].dtype()))
      throw UserError(where, "outputs must be f32 or f64",
                      "output " + std::to_string(i) + " = " + outputs[i].type().str(),
                      "leave it out of what the function returns: whole numbers have no derivative");
}

}  // namespace hotloop::ir
