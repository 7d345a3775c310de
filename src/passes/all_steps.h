// Values of a loop's body as they are around the loop: what is the same in every iteration, and what is computed of all steps at once.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "passes/builder.h"

namespace hotloop::passes {

class AllSteps {
 public:
  // `invariant`: of the body's values by ValueIndex, see Level.
  AllSteps(const ir::LoopView& loop, const std::vector<bool>& invariant, ir::Rebuild& outer, Builder& builder)
      : loop_(loop),
        index_(loop_.body()),
        invariant_(invariant),
        outer_(outer),
        builder_(builder),
        outside_(loop_.body()),
        all_(loop_.body()) {
    find_outside();
  }

  bool is_invariant(Value v) const { return invariant_[static_cast<std::size_t>(index_(v))]; }
  // Whether v is the same in every iteration and can be computed around the loop: what is not a const itself is cheap, the rest has been hoisted.
  bool is_found_outside(Value v) const { return is_outside_[static_cast<std::size_t>(index_(v))]; }
  Value outside(Value v);
  // v of all steps, time first. `compute` gives what is neither an element of xs, nor invariant, nor known.
  Value operator()(Value v, const std::function<Value(const Node&)>& compute);
  void set(Value v, Value all) { all_.set(v, all); }

 private:
  void find_outside();

  ir::LoopView loop_;
  ir::ValueIndex index_;
  const std::vector<bool>& invariant_;
  ir::Rebuild& outer_;
  Builder& builder_;
  std::vector<bool> is_outside_;  // by ValueIndex
  ir::ValueMap outside_, all_;    // body values -> values of the outer graph
};

// A product of each step, of an operand `side` of all steps and another that stays the same.
Value dot_of_all_steps(Builder& builder, const Node& dot, int side, Value all, Value fixed);

// A change of index or an elementwise operation of each step, on operands of all steps.
Value of_all_steps(Builder& builder, const Node& node, std::vector<Value> operands, std::int64_t length);

}  // namespace hotloop::passes
