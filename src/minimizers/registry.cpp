#include "minimizers/registry.h"

#include "core/plugins.h"

namespace hotloop::minimizers {

std::span<const DescentDef> all_descents() {
  static const std::vector<DescentDef> table = gather_plugins(descent_files());
  return table;
}

const DescentDef& descent_def(std::string_view name) { return find_plugin(all_descents(), name, "method"); }

Descent make_descent(const std::string& name, const std::map<std::string, Setting>& settings) {
  const DescentDef& def = descent_def(name);
  return def.make(Config(def.name, def.parameters, settings));
}

std::span<const LeastSquaresDef> all_least_squares() {
  static const std::vector<LeastSquaresDef> table = gather_plugins(least_squares_files());
  return table;
}

const LeastSquaresDef& least_squares_def(std::string_view name) {
  return find_plugin(all_least_squares(), name, "method");
}

LeastSquares make_least_squares(const std::string& name, const std::map<std::string, Setting>& settings) {
  const LeastSquaresDef& def = least_squares_def(name);
  return def.make(Config(def.name, def.parameters, settings));
}

}  // namespace hotloop::minimizers
