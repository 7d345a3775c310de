#include "core/print_number.h"
#include "core/resolution.h"
#include "hotloop/error.h"
#include "hotloop/ops.h"
#include "ode/norm.h"

#include <limits>

namespace hotloop::ode {
namespace {

// State: 1 / scaled error of the last accepted step and of the one before.
class PidRule : public StepSizeRule {
 public:
  PidRule(Tolerance rtol, Tolerance atol, const PIDOptions& options)
      : rtol_(std::move(rtol)), atol_(std::move(atol)), options_(options) {
    const auto require = [](bool condition, const std::string& what, double received) {
      if (!condition) throw UserError("ode.PID", what, print_number(received));
    };
    require(options.factormin > 0 && options.factormin <= 1, "factormin must be in (0, 1]", options.factormin);
    require(options.factormax >= 1, "factormax must be at least 1", options.factormax);
    require(options.safety > 0 && options.safety <= 1, "safety must be in (0, 1]", options.safety);
    if (options.dtmin) require(*options.dtmin > 0, "dtmin must be positive", *options.dtmin);
    if (options.dtmax) require(*options.dtmax > 0, "dtmax must be positive", *options.dtmax);
  }

  bool is_adaptive() const override { return true; }

  std::pair<Value, Leaves> start(const VectorField& field, Value t0, const Leaves& y0, Value dt0,
                                 int error_order) const override {
    rtol_.check("rtol", field.like());
    atol_.check("atol", field.like());
    const DType dtype = field.time_dtype();
    Value dt = dt0.defined() ? dt0 : initial_step(field, t0, y0, error_order, rtol_, atol_);
    if (options_.dtmax) dt = minimum(dt, constant(*options_.dtmax, dtype));
    if (options_.dtmin) dt = maximum(dt, constant(*options_.dtmin, dtype));
    return {t0 + dt, {constant(1, dtype), constant(1, dtype)}};
  }

  Leaves tolerance(const Leaves& y) const override { return error_sizes(magnitudes(y), rtol_, atol_); }

  Proposal propose(const VectorField& field, const Attempt& in) const override {
    const DType dtype = field.time_dtype();
    const auto number = [&](double x) { return constant(x, dtype); };
    Leaves larger;
    for (std::size_t i = 0; i < in.y0.size(); ++i) larger.push_back(maximum(abs(in.y0[i]), abs(in.y1[i])));
    // Where the field is not defined the error is NaN: a reason to try a shorter step, as any large error is, and as it is that a step was not solved.
    const Value raw = scaled_norm(in.error, error_sizes(larger, rtol_, atol_), dtype);
    const Value infinity = number(std::numeric_limits<double>::infinity());
    const auto if_solved = [&](Value v) { return in.failed.defined() ? bit_and(v, logical_not(in.failed)) : v; };
    Proposal next;
    next.finite = less(raw, infinity);
    const Value error = stop_gradient(select(if_solved(next.finite), raw, infinity));
    next.keep = less(error, number(1));
    // By the length that the step had, which may be another than was proposed: a jump cut it short, or one that was cut short is over.
    const Value length = in.t1 - in.t0;
    Value at_dtmin;
    if (options_.dtmin) {
      at_dtmin =
          less_equal(length, number(*options_.dtmin) + (2 * resolution(dtype)) * maximum(abs(in.t0), abs(in.t1)));
      if (options_.force_dtmin) next.keep = bit_or(next.keep, if_solved(at_dtmin));
    }

    Value inverse = 1.0 / error;
    const double order = in.error_order, p = options_.pcoeff, i = options_.icoeff, d = options_.dcoeff;
    Value factor = number(options_.safety);
    const auto multiply = [&](Value base, double exponent) {
      if (exponent != 0) factor = factor * pow(base, number(exponent / order));
    };
    // Within these bounds the factor is decided by its own. Libraries compute powers of zero and infinity number by number, and the error of
    // a trajectory of a batch that has finished is zero.
    multiply(minimum(maximum(inverse, number(1e-30)), number(1e30)), p + i + d);
    multiply(in.state[0], -(p + 2 * d));
    multiply(in.state[1], d);
    // An accepted step is not followed by a shorter one, a rejected one always is.
    const Value least = select(next.keep, number(1), number(options_.factormin));
    const Value most = select(next.keep, number(options_.factormax), number(options_.safety));
    factor = minimum(maximum(factor, least), most);
    Value dt = length * factor;
    // The error of a failed or exact step says nothing about the next two.
    inverse = select(bit_and(less(inverse, infinity), greater(inverse, number(0))), inverse, number(1));
    if (options_.dtmax) dt = minimum(dt, number(*options_.dtmax));
    next.state = {select(next.keep, inverse, in.state[0]), select(next.keep, in.state[0], in.state[1])};
    if (options_.dtmin) {
      const Value dtmin = number(*options_.dtmin);
      // With force a step of that length is rejected only where it was not solved.
      const Value too_long = options_.force_dtmin ? at_dtmin : less(dt, dtmin);
      if (!options_.force_dtmin || in.failed.defined())
        next.result = select(bit_and(too_long, logical_not(next.keep)),
                             constant(static_cast<int>(Result::StepTooSmall), DType::I32),
                             constant(static_cast<int>(Result::Success), DType::I32));
      dt = maximum(select(bit_and(at_dtmin, equal(factor, number(1))), dtmin, dt), dtmin);
    }
    next.t0 = select(next.keep, in.t1, in.t0);
    next.t1 = next.t0 + stop_gradient(dt);
    return next;
  }

 private:
  Tolerance rtol_, atol_;
  PIDOptions options_;
};

}  // namespace

PID::PID(Tolerance rtol, Tolerance atol, const PIDOptions& options)
    : Controller(PidRule(std::move(rtol), std::move(atol), options)) {}

}  // namespace hotloop::ode
