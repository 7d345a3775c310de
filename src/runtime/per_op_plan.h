// A graph as a list of launches, one an op: dispatch "per_op", what frameworks that run op by op do.
//
// Every op that computes is a kernel of its own, compiled alone, with its results in memory. Views (reshape, transpose, broadcast,
// slice, windows) are read by the kernel that uses them, as strided tensors are, and scalar constants are part of it. A loop is run
// by the host: its body's kernels are launched anew in each iteration.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "hotloop/jit.h"
#include "ir/rewrite.h"

namespace hotloop::runtime {

class PerOpPlan {
 public:
  struct Counts {
    std::int64_t kernels = 0;   // ops that compute, regions included
    std::int64_t views = 0;     // ops that cost no kernel
    std::int64_t launches = 0;  // of one call whose loops run to their length
  };

  // `options` are those of each kernel.
  PerOpPlan(std::shared_ptr<const Graph> graph, const CompileOptions& options);
  ~PerOpPlan();
  PerOpPlan(const PerOpPlan&) = delete;
  PerOpPlan& operator=(const PerOpPlan&) = delete;

  std::vector<Array> run(std::span<const Array> inputs) const;
  Counts counts() const;

 private:
  struct Step;

  void add_kernel(const Node& node, std::vector<Value> results);
  void add_loop(const Node& node);
  void materialize(Value v);
  void find_last_uses();
  std::vector<Array> scan(const Step& step, std::span<const Array> operands) const;

  std::shared_ptr<const Graph> graph_;
  CompileOptions options_;
  ir::ValueIndex index_;
  std::vector<Array> constants_;  // by value; undefined where it is no constant in memory
  std::vector<bool> in_memory_;   // by value
  std::vector<std::unique_ptr<Step>> steps_;
  std::int64_t num_views_ = 0;
};

}  // namespace hotloop::runtime
