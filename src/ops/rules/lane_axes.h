// Where the lane axes of a loop are in each value of its body.
#pragma once

#include <memory>
#include <vector>

#include "ir/rewrite.h"

namespace hotloop::ir {

// For one value: the position of each lane axis, or -1 if the value does not have it.
struct Lanes {
  std::vector<int> axes;
  bool known = true;  // false: an op that this analysis does not follow mixes or hides them

  bool any() const;
  bool operator==(const Lanes&) const = default;
};

class LaneAxes {
 public:
  explicit LaneAxes(const Graph& graph, std::vector<Lanes> inputs);
  const Lanes& of(Value v) const { return table_[static_cast<std::size_t>(index_(v))]; }
  // Which lane axes v has, as a mask, if they are in front and in order; else 0.
  std::int64_t leading(Value v) const;
  bool all_lead(Value v) const;
  // `a`, which stands for v, where its lane is active (bool, of the lanes' shape), else `b`. For a value without lanes, or whose
  // lanes are not known, `a`.
  Value select_active(Value v, Value active, Value a, Value b) const;

 private:
  ValueIndex index_;
  std::vector<Lanes> table_;
};

// The lane axes in `body`, a graph with the inputs of the body of `loop`.
LaneAxes find_lane_axes(const Graph& body, const LoopView& loop);

}  // namespace hotloop::ir
