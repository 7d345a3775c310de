// What an executable knows of its program after the passes: for calls, and for explain().
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "ir/arithmetic.h"

namespace hotloop::runtime {

struct ProgramFacts {
  std::string name;
  std::size_t num_nodes = 0;
  std::vector<int> output_batch_axes;   // for each output the axis that has the rows, or -1; empty: rows are fixed
  std::vector<int> in_place;            // for each output the input whose memory it takes over, or -1; empty: none
  std::vector<std::string> pass_lines;  // what the passes changed
  ir::Arithmetic arithmetic;            // of all rows
};

}  // namespace hotloop::runtime
