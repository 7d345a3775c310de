// What wrappers around an optimiser share: what they do not change is the inner one's.
#pragma once

#include <utility>

#include "optim/registry.h"

namespace hotloop::optim {

// A wrapper whose state is the inner optimiser's. One with a state of its own overrides what concerns it.
class Wrapper : public UpdateRule {
 public:
  explicit Wrapper(Optimizer inner) : inner_(std::move(inner)) {}

  Tree<Array> init(const Tree<Array>& params) const override { return inner_.init(params); }
  Tree<Value> traced_init(const Tree<Value>& params) const override { return inner_.traced_init(params); }
  Tree<Value> observe(const Tree<Value>& state, Value value) const override { return inner_.observe(state, value); }
  bool observes() const override { return inner_.observes(); }
  Tree<Array> evaluated(const Tree<Array>& params, const Tree<Array>& state) const override {
    return inner_.evaluated(params, state);
  }
  Tree<Value> traced_evaluated(const Tree<Value>& params, const Tree<Value>& state) const override {
    return inner_.traced_evaluated(params, state);
  }

 protected:
  const Optimizer& inner() const { return inner_; }

 private:
  Optimizer inner_;
};

}  // namespace hotloop::optim
