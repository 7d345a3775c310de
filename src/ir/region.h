// Regions traced inside another trace.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "hotloop/graph.h"

namespace hotloop::ir {

// A graph and the values of the enclosing trace that it captured, which are its last inputs.
struct Region {
  std::shared_ptr<Graph> graph;
  std::vector<Value> captures;
};
// Traces `fn`, which may use values of the current trace, if there is one.
Region trace_region(const std::string& name, const TracedFunction& fn, std::span<const ValueType> types);

std::vector<ValueType> types_of(std::span<const Value> values);

}  // namespace hotloop::ir
