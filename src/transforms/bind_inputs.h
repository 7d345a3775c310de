// Partial evaluation: what depends on some inputs alone is taken out, to be computed once for many calls.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "hotloop/graph.h"

namespace hotloop::ir {

// A graph cut in two: calling `run` on (inputs that are not bound..., results of `prepare` on the bound ones...) gives what the graph gives.
struct BoundGraphs {
  std::shared_ptr<Graph> prepare, run;
};

// Cuts an optimised graph. A loop or call that reads an unbound value stays whole in `run` (what its body could do once has been
// hoisted before). A bound factor of a dot is prepared with the contracted axis first, so that columns are contiguous where the
// dot reads them; a matrix [k, n] on the right-hand side of a dot by panels of `panel(dtype)` columns, if that is not 0 and divides n:
// as [n / panel, k, panel], which `run` reads through reshape(transpose(...)).
BoundGraphs bind_inputs(const Graph& graph, const std::vector<bool>& bound,
                        const std::function<std::int64_t(DType)>& panel = {});

}  // namespace hotloop::ir
