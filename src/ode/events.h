// Events: where a function of (t, y) crosses zero within a step.
#pragma once

#include "hotloop/ode.h"

namespace hotloop::ode {

// The first crossing of one step.
struct Crossing {
  Value happened;  // bool[]
  Value t;         // in s; the step's end if there is none
  Leaves y;        // there
};

class EventFinder {
 public:
  EventFinder(const std::vector<Event>& events, const VectorField& field, const Tree<Value>& args);
  bool any() const { return !events_.empty(); }
  // The functions at (s, y): what the loop carries.
  Leaves values(Value s, const Leaves& y) const;
  // Looks for crossings from `before` to `after` on the interpolant of a step that was accepted, and applies what the first one
  // changes, or all that are at its place. The derivatives of its time are those of the equation g(t, y(t)) = 0.
  struct Outcome {
    Crossing crossing;
    Value count;       // i32[]: of the events that happened
    Value terminates;  // bool[]
    Leaves y;          // after the event
    Leaves values;     // of the functions there
  };
  Outcome find(const StepInput& step, const StepResult& result, Value accepted, const Leaves& before,
               const Leaves& after) const;

 private:
  Value function(std::size_t i, Value s, const Leaves& y) const;
  // What counts as the function's value right after its own event, in a step of this length; `changed`: the state is another one, undefined if no
  // event changes it.
  Value side_after(std::size_t i, const Outcome& outcome, Value before, Value length, Value changed) const;

  const std::vector<Event>& events_;
  const VectorField& field_;
  const Tree<Value>& args_;
};

}  // namespace hotloop::ode
