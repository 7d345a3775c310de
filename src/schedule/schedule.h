// Graph to kernel IR: axis analysis, levels, fusion, tiling, memory plan.
#pragma once

#include <vector>

#include "hotloop/graph.h"
#include "schedule/kernel_ir.h"
#include "transforms/factor_layout.h"

namespace hotloop {

struct ScheduleOptions {
  kernel::Target target;
  std::vector<int> batch_axes;  // for each input the axis of the batch, or -1; empty: the analysis chooses a tile axis
  bool variable_rows = false;   // the extent of the batch axes is a run-time number
  std::int64_t tile_rows = 0;   // 0: chosen by size
  int num_workers =
      1;  // at most; with several, large updates outside tiles are divided, and what is independent becomes sections
  bool always_sections = false;     // for tests: also where the cost model sees no gain
  bool always_joins_tiles = false;  // for tests: into tiles of several parts, however small the weights are
  int most_side_by_side = 1;        // blocks of a worker of a target that has_blocks()
  std::vector<int> donated;         // inputs whose memory an output may take over
  bool flush_denormals = false;
  std::vector<ir::FactorLayout> layouts;  // of the inputs; empty: none has one
};

// `graph` must have no `call` nodes (the pass inline_calls removes them).
kernel::Program schedule(const Graph& graph, const ScheduleOptions& options);

}  // namespace hotloop
