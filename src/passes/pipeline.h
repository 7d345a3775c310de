// The passes in order.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "passes/pass.h"

namespace hotloop::passes {

// What one run of a pass did.
struct PassReport {
  std::string name;
  double time_us = 0;
  bool changed = false;
  int nodes_before = 0, nodes_after = 0;  // regions included
  std::string note;                       // why it did not run, if it did not
};

// Runs the pipeline; the graph is verified after every pass that changed it. UserError for an unknown name in `disabled`.
std::shared_ptr<const Graph> optimize(const Graph& graph, const PassOptions& options,
                                      std::vector<PassReport>* reports = nullptr);

// Every pass once, in the order of first use.
std::span<const Pass> all_passes();

}  // namespace hotloop::passes
