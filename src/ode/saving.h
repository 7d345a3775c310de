// What a solve keeps on its way: rows at given times, after steps, and the interpolant.
#pragma once

#include "hotloop/ode.h"

namespace hotloop::ode {

// A step as it was taken, for saving.
struct TakenStep {
  Value t0, t1;  // in s
  Value end;     // where it ended: t1, or an event
  const Leaves& y0;
  const StepResult& result;
  Value keep;        // undefined: always
  Value index;       // i32[]: number of steps accepted before it
  const Leaves& y1;  // after it: result.y1 if it was accepted, else y0
  Value margin;      // within which a time counts as t0
};

// The buffers are part of the loop's carry; each is written a row at a time, in place.
struct Saved {
  Value next;                   // i32[]: the first of `ts` not yet reached
  Leaves at_ts;                 // each leaf (n, ...)
  Value step_times;             // (max_steps,)
  Leaves at_steps;              // each leaf (max_steps, ...)
  Value starts, ends, lengths;  // (max_steps,)
  std::vector<Leaves> coefficients;
};

class Saver {
 public:
  // `direction` as VectorField's. UserError when known ts are no numbers, not sorted, or not within a known [t0, t1].
  Saver(const SaveAt& saveat, const Leaves& y0, Scalar t0, Scalar t1, Scalar direction, DType time_dtype,
        std::int64_t max_steps);

  const Value& times() const { return ts_; }  // in s; undefined without
  bool any() const { return ts_.defined() || saveat_.steps || saveat_.dense; }
  // `end`: where the solve will end. Where that is the start no step is taken, and rows there are y0.
  Saved start(std::size_t interpolant_degree, Value start, Value end) const;
  void save(Saved& saved, const TakenStep& step, const std::string& residuals) const;

  // Rows in the order of SaveAt's fields: times (in t) and leaves.
  std::pair<Value, Leaves> rows(const Saved& saved, const Leaves& y0, Value t0, const Leaves& y1, Value t1) const;

 private:
  Value to_t(Value s) const;
  SaveAt saveat_;
  Leaves y0_;
  bool maybe_nowhere_ = false;  // whether t0 may be t1
  bool maybe_passed_ = false;   // whether ts may be unsorted, or begin before t0
  Scalar direction_;
  DType time_dtype_;
  std::int64_t max_steps_;
  Value ts_;  // in s
};

}  // namespace hotloop::ode
