// The generated lists of solvers and adjoints, and how they are built from configuration files.
#pragma once

#include <functional>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/config.h"
#include "hotloop/ode.h"

namespace hotloop::ode {

struct SolverDef {
  std::string name;
  std::string summary;
  std::vector<Parameter> parameters;
  std::function<Solver(const Config&)> make;
};

// Each file src/ode/solvers/<name>.cpp defines `std::vector<SolverDef> solvers_<name>()`.
using SolverFile = std::vector<SolverDef> (*)();
std::vector<SolverFile> solver_files();  // generated

std::span<const SolverDef> all_solvers();
const SolverDef& solver_def(std::string_view name);
Solver make_solver(const std::string& name, const std::map<std::string, Setting>& settings = {});

struct AdjointDef {
  std::string name;
  std::string summary;
  std::vector<Parameter> parameters;
  std::function<Adjoint(const Config&)> make;
};

// Each file src/ode/adjoints/<name>.cpp defines `std::vector<AdjointDef> adjoints_<name>()`.
using AdjointFile = std::vector<AdjointDef> (*)();
std::vector<AdjointFile> adjoint_files();  // generated

std::span<const AdjointDef> all_adjoints();
const AdjointDef& adjoint_def(std::string_view name);
Adjoint make_adjoint(const std::string& name, const std::map<std::string, Setting>& settings = {});

}  // namespace hotloop::ode
