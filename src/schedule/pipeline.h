// Stacked layers over one row: loops over the same steps of which each takes up, step by step, what the one before made.
#pragma once

#include <cstddef>
#include <optional>
#include <vector>

#include "schedule/footprint.h"
#include "schedule/kernel_ir.h"

namespace hotloop::kernel {

// A statement that one worker would run after the others.
struct Item {
  Stmt stmt;
  std::vector<Touch> touches;
  double ns = 0;
};

struct Pipeline {
  std::size_t begin = 0;                   // items before stay before
  std::vector<std::size_t> before, after;  // items moved in front of the sections and behind them
  Sections sections;
  std::vector<int> section_of;  // of each item, -1 for those outside
};

// The variable has this value from now on: in indices and as an extent.
void set_variable(Block& block, Var var, std::int64_t value);

// The first loops that can follow one another by chunks, and gain by it with so many workers (`join_ns` a round). depends_on[j]: the items
// before j that touch what it writes or write what it touches. New variables go into the program.
std::optional<Pipeline> find_pipeline(Program& program, const std::vector<Item>& items,
                                      const std::vector<std::vector<std::size_t>>& depends_on, int num_workers,
                                      double join_ns);

}  // namespace hotloop::kernel
