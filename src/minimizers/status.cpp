#include "hotloop/error.h"
#include "hotloop/minimize.h"
#include "hotloop/ops.h"

namespace hotloop::minimizers {

std::string describe(Status status) {
  switch (status) {
    case Status::Gradient: return "converged: the gradient is within its tolerance";
    case Status::Value: return "converged: the last step changed the value by no more than its tolerance";
    case Status::Step: return "converged: steps became shorter than their tolerance";
    case Status::MaxIterations: return "the maximum number of iterations was reached";
    case Status::MaxEvaluations: return "the maximum number of evaluations was reached";
    case Status::Stalled: return "no step was found that makes the value smaller";
    case Status::NonFinite: return "the value or its derivative is infinite or NaN at the start";
  }
  throw UserError("minimize", "a status must be a code of minimizers::Status",
                  std::to_string(static_cast<int>(status)));
}

std::string remedy(Status status) {
  switch (status) {
    case Status::Gradient:
    case Status::Value:
    case Status::Step: return "";
    case Status::MaxIterations:
    case Status::MaxEvaluations:
      return "a larger maximum, looser tolerances, or parameters scaled to a size of about one";
    case Status::Stalled:
      return "f64, where rounding hides the decrease (the gradient's norm tells how near the minimum is), scaled least "
             "squares, where parameters have different units, or a function without jumps and kinks";
    case Status::NonFinite: return "another start, and a look at where the function divides, takes roots or logarithms";
  }
  return "";
}

Value converged(Value status) { return less_equal(status, constant(static_cast<double>(Status::Step), DType::I32)); }

}  // namespace hotloop::minimizers
