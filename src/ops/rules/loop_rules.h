// The derivative and batching rules of `loop`: each makes another loop.
#pragma once

#include <utility>
#include <vector>

#include "hotloop/ops.h"
#include "ir/op_def.h"

namespace hotloop::ir {

std::pair<std::vector<Value>, std::vector<Value>> jvp_loop(const JvpContext& c);
std::vector<Value> transpose_loop(const TransposeContext& c);
std::vector<Batched> batch_loop(const BatchContext& c);

// Says of a loop what is known of the one that it comes from, with its mask and trip count: iterations beyond a lane's bound change nothing
// of it, and the trip count is the largest bound.
void keep_idling(const Node& from, const LoopResult& to);

// a where `active` (bool, of the lanes' shape) is true, else b, for values with the lane axes in front.
Value select_lanes(Value active, Value a, Value b);

}  // namespace hotloop::ir
