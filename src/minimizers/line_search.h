// A line search as a state that advances by one evaluation, so that a minimisation is one loop over evaluations and lanes of a batch
// never wait for each other's searches.
//
// J. J. Moré, D. J. Thuente, Line search algorithms with guaranteed sufficient decrease, ACM TOMS 20, 1994, with the constants of MINPACK-2.
// Beside its strong Wolfe conditions the approximate ones hold (W. W. Hager, H. Zhang, A new conjugate gradient method with guaranteed descent
// and an efficient line search, SIAM J. Optim. 16, 2005), which compare slopes: near a minimum values differ by rounding alone.
#pragma once

#include "hotloop/graph.h"

namespace hotloop::minimizers {

struct LineSearchSettings {
  double decrease = 1e-4;  // of what the first slope promises
  double curvature = 0.9;  // how far the slope must fall
  double resolution = 0;   // of the dtype in which values and points are computed
  std::int32_t trials = 20;
};

// A point on the line: everything is an f64 scalar.
struct LinePoint {
  Value step, value, slope;
};

struct LineSearch {
  LinePoint start;        // at step 0
  Value step;             // to be tried next
  LinePoint best, other;  // ends of the interval, the one with the lower value first
  Value is_bracketed;     // bool: a minimum lies between them
  Value is_early;         // bool: no step with enough decrease and a rising slope was seen
  Value width, width_before;
  Value low, high;  // bounds of the next step
  Value limit;      // beyond it the function was not finite
  Value is_last;    // bool: the next trial is one that is known to be better than the start
  Value trials;     // i32

  static LineSearch from(Value value, Value slope, Value first_step);
  template <class F> void visit(F&& f) {
    for (LinePoint* p : {&start, &best, &other}) f(p->step), f(p->value), f(p->slope);
    f(step), f(is_bracketed), f(is_early), f(width), f(width_before), f(low), f(high), f(limit), f(is_last), f(trials);
  }
};

struct SearchVerdict {
  Value accept, give_up;  // bool; neither: go on with `next`
  Value is_good;          // bool: accepted by the conditions, and not as the best there was
  LineSearch next;
};
// What follows from the value and slope at `search.step`.
SearchVerdict advance(const LineSearch& search, Value value, Value slope, const LineSearchSettings& settings);

Value is_finite(Value x);

}  // namespace hotloop::minimizers
