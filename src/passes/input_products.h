// What a loop's steps read, multiplied by what stays the same: x_t W. It is known before the loop, so sums begin with it (order_sums),
// and where it is long it is computed for all steps at once (batch_inputs).
#pragma once

#include <vector>

#include "passes/pass.h"

namespace hotloop::passes {

class InputProducts {
 public:
  // `invariant`: of the body's values by ValueIndex, see Level.
  InputProducts(const ir::LoopView& loop, const std::vector<bool>& invariant)
      : loop_(loop), index_(loop_.body()), invariant_(invariant) {}

  // Which operand of the dot is an element of xs, if the other is the same in every iteration; else -1.
  int side(const Node& dot) const;
  // Whether v is an element of xs that holds such products of all steps already, or sums of them.
  bool is_computed(Value v) const;
  // Whether v is such a product, a sum of such and of what stays the same, or a part of these.
  bool is_part(Value v, int depth = 0) const;
  bool is_invariant(Value v) const { return invariant_[static_cast<std::size_t>(index_(v))]; }

 private:
  ir::LoopView loop_;
  ir::ValueIndex index_;
  const std::vector<bool>& invariant_;
};

// v without changes of index: slices, reshapes, transposes.
Value without_views(Value v);
// Whether v is a product, a sum with one among its terms that was viewed, or a view of these.
bool is_product(Value v);

}  // namespace hotloop::passes
