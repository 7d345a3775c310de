// The program of one row, where the rows of an output share the input that derivatives are taken of: losses of a batch share the
// parameters, residuals of a table share theta.
//
// Along an axis of the output, row n must read row n alone of everything on the way to it that has rows, and all of x. Then d y[n] / d x
// is the Jacobian of the program of one row, and that of all rows is one batched run of it: as many passes as one row needs.
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "transforms/jacobian_plan.h"

namespace hotloop::ir {

struct RowProgram {
  int axis = 0;  // of the output
  std::int64_t rows = 0;
  std::shared_ptr<const Graph> leaves;  // the inputs -> what does not depend on x, but is read by what does
  std::vector<int> row_axes;            // of each leaf: the axis along which its rows are, -1 for what all rows share
  std::shared_ptr<const Graph> one;  // x, leaves with extent 1 along that axis -> the output with extent 1 along `axis`
};
// For output 0 with respect to input `input`. Nothing if rows are summed, shifted or normalised on the way, or are rows of x too.
std::optional<RowProgram> row_program(const Graph& graph, int input, int axis);

struct RowJacobian {
  RowProgram program;
  JacobianPlan plan;  // of program.one
};

}  // namespace hotloop::ir
