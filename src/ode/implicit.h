// What implicit solvers share: the state as one vector, its Jacobian, and Newton's method.
#pragma once

#include <functional>

#include "hotloop/ode.h"
#include "ode/linear_solve.h"

namespace hotloop::ode {

// The field on the state as one vector (n,). UserError unless its leaves have one dtype.
class FlatField {
 public:
  FlatField(const VectorField& field, const Leaves& like);
  Value operator()(Value t, Value y) const;
  Value jacobian(Value t, Value y) const;         // (n, n), by forward mode
  Value time_derivative(Value t, Value y) const;  // (n,)
  Value pack(const Leaves& leaves) const;
  Leaves unpack(Value flat) const;
  std::int64_t size() const { return size_; }

 private:
  const VectorField& field_;
  Leaves like_;
  std::int64_t size_ = 0;
};

Value identity(std::int64_t n, DType dtype);  // (n, n)

// z with z = known + scale f(t, z).
struct NewtonSolution {
  // The guess where they did not converge; NaN or infinite only where the field at the guess is.
  Value z;
  // scale f(t, z), to roundings of its own: z - known has those of z, which is all there is to it in a step that is short enough.
  Value increment;
  Value converged;   // bool[]
  Value iterations;  // i32[]
};
// What counts as an error of one in z, (n,).
using NewtonTolerance = std::function<Value(Value z)>;
// Newton's method with the given matrix I - scale J for all iterations, until a correction is small beside the tolerance, or as small as rounding
// lets it become. `guess` is one of the increment. The derivative is that of the equation, with the Jacobian at the solution.
NewtonSolution newton(const FlatField& field, Value t, Value scale, Value known, Value guess, Value matrix,
                      const Factors& factors, const NewtonTolerance& tolerance);
// A step's, for a z that is reached from its y0: error control measures by the larger of the two as well.
NewtonTolerance newton_tolerance(const FlatField& field, const StepInput& step);

}  // namespace hotloop::ode
