// Programs that were compiled before, found on disk by the graph they were made of: who compiles one again runs no pass.
#pragma once

#include <optional>
#include <string>

#include "backends/object_cache.h"
#include "runtime/program_facts.h"
#include "runtime/run_plan.h"
#include "schedule/kernel_ir.h"

namespace hotloop::runtime {

struct KeptProgram {
  ProgramFacts facts;
  RunPlan plan;
  std::string code;  // the name of its code's entry in the same cache
};

// A key of all that code and plan depend on: what `of_graph` tells apart (what programs of one process differ in), the processor, and the library's
// sources.
std::string kept_key(const std::string& of_graph, const kernel::Target& target);

// Nothing if there is no entry, or a damaged one.
std::optional<KeptProgram> find_kept(const codegen::ObjectCache& cache, const std::string& key);
void keep(const codegen::ObjectCache& cache, const std::string& key, const KeptProgram& program);

}  // namespace hotloop::runtime
