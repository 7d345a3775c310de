// The generated lists of optimisers, schedules and wrappers, and how they are built from configuration files.
#pragma once

#include <functional>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/config.h"
#include "hotloop/optim.h"

namespace hotloop::optim {

// One entry of a configuration: `type` and the settings beside it.
struct ComponentConfig {
  std::string type;
  std::map<std::string, Setting> settings = {};
};

struct ScheduleDef {
  std::string name;
  std::string summary;
  std::vector<Parameter> parameters;
  std::function<ScheduleFactor(const Config&)> make;
};

struct OptimizerDef {
  std::string name;
  std::string summary;
  std::vector<Parameter> parameters;  // among them "learning_rate", which `make` gets as a schedule
  std::function<Optimizer(const Config&, const Schedule& learning_rate)> make;
};

struct WrapperDef {
  std::string name;
  std::string summary;
  std::vector<Parameter> parameters;
  std::function<Optimizer(const Config&, Optimizer inner)> make;
};

// Each file src/optim/rules/<name>.cpp defines `std::vector<OptimizerDef> optimizers_<name>()`; a file of src/optim/schedules
// `std::vector<ScheduleDef> schedules_<name>()`; one of src/optim/wrappers `std::vector<WrapperDef> wrappers_<name>()`.
using OptimizerFile = std::vector<OptimizerDef> (*)();
using ScheduleFile = std::vector<ScheduleDef> (*)();
using WrapperFile = std::vector<WrapperDef> (*)();
std::vector<OptimizerFile> optimizer_files();  // generated
std::vector<ScheduleFile> schedule_files();    // generated
std::vector<WrapperFile> wrapper_files();      // generated

std::span<const OptimizerDef> all_optimizers();
std::span<const ScheduleDef> all_schedules();
std::span<const WrapperDef> all_wrappers();
// UserError with the nearest name if there is none.
const OptimizerDef& optimizer_def(std::string_view name);
const ScheduleDef& schedule_def(std::string_view name);
const WrapperDef& wrapper_def(std::string_view name);

ScheduleFactor make_schedule(const ComponentConfig& config);
// The optimiser with the schedules' factors on its learning rate, inside the wrappers, the last one outermost.
Optimizer make_optimizer(const std::string& name, const std::map<std::string, Setting>& settings = {},
                         std::span<const ComponentConfig> schedules = {},
                         std::span<const ComponentConfig> wrappers = {});

}  // namespace hotloop::optim
