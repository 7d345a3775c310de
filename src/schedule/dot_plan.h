// DotPlan: a dot, or a sum of dots with an optional further term, as one register-tiled Dot statement.
#pragma once

#include <functional>
#include <optional>
#include <vector>

#include "schedule/context.h"

namespace hotloop {

struct DotPlan {
  Value result;                    // the dot's own result, or the add at the top of the sum
  std::vector<const Node*> terms;  // the dots, in order of summation
  std::optional<Value> init;       // what the accumulators start from
};

// The plan whose top is `node` (a dot or an add), if there is one. `absorbable` says whether an operand may disappear into the sum:
// it is in the block and has no other use.
std::optional<DotPlan> plan_dot(const Node& node, const std::function<bool(Value)>& absorbable);

// Statements that compute the plan into `target`; with `accumulate`, added to what is there.
kernel::Block lower_dot(LoweringContext& context, const DotPlan& plan, const Storage& target, bool accumulate);

// Storage for a plan's result in which the statement writes contiguously.
Storage allocate_dot(LoweringContext& context, const DotPlan& plan, const std::string& name);

}  // namespace hotloop
