// How the axes of one input run through a program: the cheap half of finding a Jacobian's zeros.
//
// Along an axis of the input a value is aligned if element i of it, along an axis of its own, depends on element i of the
// input only: a batch axis is, until something sums over it, shifts it or normalises by it. If an output is aligned the
// Jacobian is block-diagonal there.
#pragma once

#include <span>
#include <vector>

#include "ir/rewrite.h"

namespace hotloop::ir {

// What one value has of the input's axes. Dependence means a derivative that may differ from zero: integers and what
// stop_gradient() gives do not depend.
struct AxisFlow {
  static constexpr int mixed = -1;
  // Aligned with the iterations of a loop around the value: step - depth, depth counted from the outermost loop.
  static constexpr int step = -2;

  bool depends = false;
  std::vector<int> axes;  // for each axis of the input: the value's axis aligned with it, mixed, or a step

  bool operator==(const AxisFlow&) const = default;
};

// The flow of an input itself, of `rank` axes.
AxisFlow flow_of_input(int rank);
AxisFlow join(const AxisFlow& a, const AxisFlow& b);

// Through one node without regions, to its (one) result.
AxisFlow flow_through(const Node& node, std::span<const AxisFlow> operands);
// Through a graph, to its outputs. `depth` is the number of loops around it.
std::vector<AxisFlow> flow_through(const Graph& graph, std::span<const AxisFlow> inputs, int depth = 0);

// What an element of xs is to a loop's body, and what a y of the body is to ys.
AxisFlow flow_of_element(const AxisFlow& stacked, int depth);
AxisFlow flow_of_stack(const AxisFlow& element, int depth);
// A carry at the end of an iteration, as the next one finds it.
AxisFlow flow_of_carry(const AxisFlow& carry, int depth);

}  // namespace hotloop::ir
