// Graphs for other extents, such as another number of rows.
#pragma once

#include <functional>
#include <memory>

#include "hotloop/graph.h"

namespace hotloop::ir {

// The attributes of a node whose result gets this shape. It may differ along axes that the node makes, or takes whole from its operands.
Attrs resized_attrs(const Node& node, const Shape& shape);

// The graph with values of the shapes that `shape_of` gives; literals keep their first elements.
std::shared_ptr<Graph> resized(const Graph& graph, const std::function<Shape(Value)>& shape_of);

}  // namespace hotloop::ir
