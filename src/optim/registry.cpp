#include "optim/registry.h"

#include "core/plugins.h"

namespace hotloop::optim {

std::span<const OptimizerDef> all_optimizers() {
  static const std::vector<OptimizerDef> table = gather_plugins(optimizer_files());
  return table;
}

std::span<const ScheduleDef> all_schedules() {
  static const std::vector<ScheduleDef> table = gather_plugins(schedule_files());
  return table;
}

std::span<const WrapperDef> all_wrappers() {
  static const std::vector<WrapperDef> table = gather_plugins(wrapper_files());
  return table;
}

const OptimizerDef& optimizer_def(std::string_view name) { return find_plugin(all_optimizers(), name, "optimizer"); }
const ScheduleDef& schedule_def(std::string_view name) { return find_plugin(all_schedules(), name, "schedule"); }
const WrapperDef& wrapper_def(std::string_view name) { return find_plugin(all_wrappers(), name, "wrapper"); }

ScheduleFactor make_schedule(const ComponentConfig& config) {
  const ScheduleDef& def = schedule_def(config.type);
  return def.make(Config(def.name, def.parameters, config.settings));
}

Optimizer make_optimizer(const std::string& name, const std::map<std::string, Setting>& settings,
                         std::span<const ComponentConfig> schedules, std::span<const ComponentConfig> wrappers) {
  const OptimizerDef& def = optimizer_def(name);
  const Config config(def.name, def.parameters, settings);
  std::vector<ScheduleFactor> factors;
  for (const ComponentConfig& schedule : schedules) factors.push_back(make_schedule(schedule));
  Optimizer optimizer = def.make(config, Schedule(config.number("learning_rate"), std::move(factors)));
  for (const ComponentConfig& wrapper : wrappers) {
    const WrapperDef& outer = wrapper_def(wrapper.type);
    optimizer = outer.make(Config(outer.name, outer.parameters, wrapper.settings), std::move(optimizer));
  }
  return optimizer;
}

}  // namespace hotloop::optim
