// Loops found in straight code, those that derivatives were not taken of.
#include "ops/composed/reroll.h"

#include "passes/pass.h"

namespace hotloop::passes {

Pass reroll() {
  return {"reroll", "equal steps one after the other become a loop", true,
          [](const Graph& graph, const PassOptions& options) -> std::shared_ptr<const Graph> {
            return ir::reroll(graph, [&](std::int64_t extent) { return !options.may_vary(extent); });
          }};
}

}  // namespace hotloop::passes
