// Partial evaluation: what depends on some inputs alone is taken out, to be computed once for many calls.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "hotloop/graph.h"
#include "transforms/factor_layout.h"

namespace hotloop::ir {

// A graph cut in two: calling `run` on (inputs that are not bound..., results of `prepare` on the bound ones...) gives what the graph gives, if it is compiled to
// read those inputs in their layouts.
struct BoundGraphs {
  std::shared_ptr<Graph> prepare, run;
  std::vector<FactorLayout> layouts;  // of the inputs of `run`
};

struct BoundFactor {
  DType dtype;
  std::int64_t k, n;
  std::int64_t rows;        // of the product
  std::int64_t step_bytes;  // of all bound factors that products of `run` read
};
using FactorLayouts = std::function<FactorLayout(const BoundFactor&)>;
// Cuts an optimised graph. A loop or call that reads an unbound value stays whole in `run` (what its body could do once has been
// hoisted before). A bound factor of a dot is prepared with the contracted axis first, so that columns are contiguous where the
// dot reads them, and a matrix [k, n] on the right-hand side of a dot in the layout that `layouts` wants.
BoundGraphs bind_inputs(const Graph& graph, const std::vector<bool>& bound, const FactorLayouts& layouts = {});

}  // namespace hotloop::ir
