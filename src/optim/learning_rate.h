// The learning rate inside an update rule: the schedule, the step count it needs, and their place in the rule's state.
#pragma once

#include <string>

#include "hotloop/optim.h"

namespace hotloop::optim {

class LearningRate {
 public:
  // `counts`: the rule needs the step count even if the learning rate is constant.
  LearningRate(const std::string& where, const Schedule& schedule, bool counts = false);

  // What a rule's state begins with: "step" if anything needs it, "schedule" if the schedule has a state.
  Tree<Array> init() const;

  // The learning rate of one step, and that beginning of the next state.
  class Now {
   public:
    Now(const Schedule& schedule, const Tree<Value>& state);
    Value operator()(DType dtype) const;  // the learning rate
    Value step() const { return step_; }  // i32, counting this one: 1 in the first step
    const Tree<Value>& next() const { return next_; }

   private:
    const Schedule& schedule_;
    Value step_, before_;
    Tree<Value> schedule_state_, next_;
  };
  Now now(const Tree<Value>& state) const { return Now(schedule_, state); }

  // The rule's state with its schedule told of `value`.
  Tree<Value> observe(const Tree<Value>& state, Value value) const;
  bool observes() const { return !schedule_.init().empty(); }

 private:
  Schedule schedule_;
  bool counts_;
};

}  // namespace hotloop::optim
