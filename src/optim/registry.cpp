#include "optim/registry.h"

#include "core/plugins.h"

namespace hotloop::optim {
namespace {

const std::vector<OptimizerDef>& table() {
  static const std::vector<OptimizerDef> optimizers = gather_plugins(optimizer_files());
  return optimizers;
}

}  // namespace

std::span<const OptimizerDef> all_optimizers() { return table(); }

const OptimizerDef& optimizer_def(std::string_view name) { return find_plugin(table(), name, "optimizer"); }

Optimizer make_optimizer(const std::string& name, const std::map<std::string, Setting>& settings) {
  const OptimizerDef& def = optimizer_def(name);
  return def.make(Config(def.name, def.parameters, settings));
}

}  // namespace hotloop::optim
