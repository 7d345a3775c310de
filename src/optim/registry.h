// The generated list of optimisers, and how they are built from configuration files.
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

struct OptimizerDef {
  std::string name;
  std::string summary;
  std::vector<Parameter> parameters;
  std::function<Optimizer(const Config&)> make;
};

// Each file src/optim/rules/<name>.cpp defines `std::vector<OptimizerDef> optimizers_<name>()`.
using OptimizerFile = std::vector<OptimizerDef> (*)();
std::vector<OptimizerFile> optimizer_files();  // generated

std::span<const OptimizerDef> all_optimizers();
const OptimizerDef& optimizer_def(std::string_view name);  // UserError with the nearest name if there is none
Optimizer make_optimizer(const std::string& name, const std::map<std::string, Setting>& settings = {});

}  // namespace hotloop::optim
