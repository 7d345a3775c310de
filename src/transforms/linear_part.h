// What of a split graph is linear, copied to where it runs.
#pragma once

#include <functional>
#include <optional>
#include <vector>

#include "ops/rules/lane_axes.h"
#include "transforms/split.h"

namespace hotloop::ir {

// How the linear part comes by a known value it reads.
enum class Source {
  Given,  // it is at hand where the linear part runs
  Copy,   // computed again there, from its own operands
};

// Of factors in lanes (or, without lanes, at a point) that take no part in an iteration: all of them are one there, or those alone that are not
// finite (zero, or one where they divide).
struct Guard {
  Value active;  // bool, of the lanes' shape, in the current graph
  bool all = true;
};

// A side of a select that decides on all elements at once, or on those of a lane.
struct Side {
  Value condition;  // bool, of rank 0 or one for each lane of the batch
  bool holds = true;
  bool operator==(const Side&) const = default;
};

// Copies the linear part of a split graph into the current graph. `map` holds what is given; known values that are not given
// are computed again. Nodes copied so gain a generation unless they are cheap.
struct LinearPart {
  const Split& split;
  std::vector<Value> outputs;  // what is wanted; known ones among them are read as well
  // Which known values are the same in all iterations of a loop: finite in one of them, they are so in those that a select leaves out, and stay as they
  // are there. Where the select's condition is such a value as well, there may be no iteration that has a meaning.
  std::function<bool(Value)> invariant = {};
  const LaneAxes* lanes = nullptr;    // of a batch, in each value
  std::vector<Side> used_where = {};  // by known conditions: outputs are wanted on all of these sides alone
  int generations = 1;                // that known values gain

  // The known values that linear nodes and outputs read, in order. `given` says how each value is come by; of a copied one the
  // operands are read in turn.
  std::vector<Value> reads(const std::function<Source(Value)>& source) const;
  // What a select or a guard leaves out is guarded where it is a factor, in regions too: what these are given they compute with.
  std::vector<Value> copy(ValueMap& map, const std::optional<Guard>& guard = {}) const;
};

}  // namespace hotloop::ir
