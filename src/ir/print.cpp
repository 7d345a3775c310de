#include "ir/op_def.h"
namespace hotloop::ir {
std::string print(const Graph& graph) { return graph.name(); }
}  // namespace hotloop::ir
