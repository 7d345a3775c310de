// A graph for fewer batch rows than it was traced for.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "hotloop/graph.h"
#include "schedule/axes.h"

namespace hotloop::runtime {

// Finds the axes of all values that hold the rows of the batch. The batch must be the first axis of inputs and outputs,
// and every operation must treat its rows alone or sum over them (UserError), which is what kernels with a variable
// number of rows can do as well.
class RowSpecializer {
 public:
  // `graph` must have no calls.
  RowSpecializer(const Graph& graph, const std::vector<int>& batch_axes);

  const std::vector<int>& output_axes() const { return output_axes_; }  // 0 or -1, for each output
  std::shared_ptr<const Graph> with_rows(std::int64_t rows) const;

 private:
  std::shared_ptr<const Graph> graph_;
  AxisAnalysis axes_;
  int class_;
  std::vector<int> output_axes_;
};

}  // namespace hotloop::runtime
