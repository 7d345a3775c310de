// How a Jacobian with structure is computed.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "hotloop/jacobian.h"
#include "transforms/pattern.h"

namespace hotloop::ir {

// Seeds and where each stored element is found. Forward passes come out as (paired..., num_rows, forward colours), reverse ones
// as (paired..., reverse colours, num_columns); flattened behind the paired axes and joined in this order, stored element k is
// element places[k]. Without places all elements are stored, in the order in which they come.
struct JacobianCut;
struct RowJacobian;
struct JacobianPlan {
  std::shared_ptr<JacobianStructure> structure;
  std::vector<std::int64_t> column_colours, row_colours;  // empty: no passes of that kind
  std::vector<std::int64_t> places;
  std::shared_ptr<const JacobianCut> cut;   // if any, it is a product and there are no passes of its own
  std::shared_ptr<const RowJacobian> rows;  // if any, it is that of one row, batched; see row_program.h
};

// dy/dx = dy/dv dv/dx, where everything goes through a value v that is narrower than both (vertex elimination: Griewank and
// Walther 2008, chapter 10): reverse passes up to v, forward passes from it on, and one product.
struct JacobianCut {
  std::shared_ptr<const Graph> before;  // inputs -> v
  std::shared_ptr<const Graph> after;   // inputs, v -> y
  JacobianPlan first, second;           // of v with respect to x, of y with respect to v
};
// The narrowest such cut whose blocks go with `structure`, as two graphs; their plans are not made yet. Null if there is none.
std::shared_ptr<JacobianCut> find_cut(const Graph& graph, int input, const JacobianStructure& structure);

// For output 0 of `graph` with respect to input `input`.
// `known`: see find_pattern().
JacobianPlan plan_jacobian(const Graph& graph, int input, const JacobianOptions& options, bool symmetric,
                           std::span<const Array> known = {});

// UserError unless an array of that type fits.
void check_fits(const JacobianStructure& structure, const ValueType& wanted, const std::string& what);
// The same for what is stored whatever is asked for: before anything is computed.
void check_elements_fit(const std::string& where, const JacobianStructure& structure);
// Positions in values() of the stored elements, in the order of sparse().
std::vector<std::int64_t> stored_order(const JacobianStructure& structure);

}  // namespace hotloop::ir
