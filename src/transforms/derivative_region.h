// Regions that derivatives are taken of, and regions in which they are taken.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "ir/region.h"

namespace hotloop::ir {

// Traces `fn` as the graph that a derivative is taken of: equal steps one after the other are a loop (docs/decisions/0027).
Region trace_for_derivative(const std::string& name, const TracedFunction& fn, std::span<const ValueType> types);

// What `fn` gives for the inputs, traced as a region of its own, so that what a derivative needed for its making alone can go.
std::vector<Value> without_dead_work(const std::string& name, const TracedFunction& fn, std::span<const Value> inputs);

}  // namespace hotloop::ir
