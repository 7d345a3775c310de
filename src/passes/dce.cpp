#include "passes/pass.h"

namespace hotloop::passes {

Pass dce() {
  return {
      "dce", "removes what no output needs: nodes, and carries, xs, consts and ys of loops", true,
      [](const Graph& graph, const PassOptions&) -> std::shared_ptr<const Graph> { return ir::eliminate_dead(graph); }};
}

}  // namespace hotloop::passes
