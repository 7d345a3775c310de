// Which elements statements touch: enough to tell that two of them have nothing to do with each other.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "schedule/kernel_ir.h"

namespace hotloop::kernel {

// The elements at base + along * first + sum of stride * (0..extent-1): a superset of what is touched.
struct Touch {
  int buffer = -1;
  bool writes = false;
  bool anywhere = false;  // indices that are computed
  Affine base;            // variables of statements around, the same for all that are compared
  std::int64_t along = 0;
  std::vector<std::pair<std::int64_t, std::int64_t>> steps;  // stride, extent
};

// What the statements touch; `first` is the variable that `along` counts, or -1.
std::vector<Touch> touches_of(const Block& block, Var first = -1);
std::vector<Touch> touches_of(const Stmt& stmt, Var first = -1);

// Whether they may touch the same element, at the same values of the variables around, whatever `first` is in either. False is a proof.
bool may_meet(const Touch& a, const Touch& b);

// Whether one writes what the other may touch.
bool conflict(const Touch& a, const Touch& b);
bool conflict(const std::vector<Touch>& a, const std::vector<Touch>& b);

// Whether different buffers are at the same place of an arena, once memory is planned; of the shared one, which all workers see.
bool lie_together(const Buffer& a, const Buffer& b);
bool share_memory(const Buffer& a, const Buffer& b);

// Whether accumulators start from what lies at C: the Dot adds to it.
bool starts_from_c(const Dot& dot);

// Where `first` runs over multiples of `chunk`: whether b, at any of them, can meet a only in the same chunk or in one that comes
// before it, in the order of rising `first` or, `reverse`, of falling.
bool follows_by_chunks(const Touch& b, const Touch& a, std::int64_t chunk, std::int64_t num_chunks, bool reverse);

// Whether distinct points have distinct indices: each stride steps over all that the smaller ones reach.
bool is_injective(std::vector<std::pair<std::int64_t, std::int64_t>> strides_and_extents);

}  // namespace hotloop::kernel
