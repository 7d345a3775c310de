#include "ode/registry.h"

#include "core/plugins.h"

namespace hotloop::ode {

std::span<const SolverDef> all_solvers() {
  static const std::vector<SolverDef> table = gather_plugins(solver_files());
  return table;
}

const SolverDef& solver_def(std::string_view name) { return find_plugin(all_solvers(), name, "solver"); }

Solver make_solver(const std::string& name, const std::map<std::string, Setting>& settings) {
  const SolverDef& def = solver_def(name);
  return def.make(Config(def.name, def.parameters, settings));
}

std::span<const AdjointDef> all_adjoints() {
  static const std::vector<AdjointDef> table = gather_plugins(adjoint_files());
  return table;
}

const AdjointDef& adjoint_def(std::string_view name) { return find_plugin(all_adjoints(), name, "adjoint"); }

Adjoint make_adjoint(const std::string& name, const std::map<std::string, Setting>& settings) {
  const AdjointDef& def = adjoint_def(name);
  return def.make(Config(def.name, def.parameters, settings));
}

}  // namespace hotloop::ode
