// while_loop with what its callers inside the library want of it besides the carry.
#pragma once

#include <string>

#include "hotloop/ops.h"

namespace hotloop::ir {

// Runs body while cond is true, at most max_steps times. `where` names the caller in messages, `residuals` is LoopSpec's.
LoopResult bounded_while(const std::string& where, const Predicate& cond, const CarryBody& body,
                         std::span<const Value> init, std::int64_t max_steps, const std::string& residuals = "");

}  // namespace hotloop::ir
