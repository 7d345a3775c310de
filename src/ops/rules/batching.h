// Pieces of vmap rules.
#pragma once

#include <vector>

#include "ir/op_def.h"

namespace hotloop::ir {

// The operand with the batch axis leading; an unbatched one is repeated along it.
Value with_batch(const Batched& operand, std::int64_t size);
std::vector<Value> all_with_batch(const BatchContext& c);

// Axis `axis` moved to the front, the others in order.
Value axis_to_front(Value x, std::int64_t axis);
// The leading axis moved to `axis`.
Value front_to_axis(Value x, std::int64_t axis);

// Axes as they count once a batch axis leads.
std::vector<std::int64_t> shifted(std::vector<std::int64_t> axes);
// `values` with `first` in front: a per-axis attribute that gains an entry for the batch axis.
std::vector<std::int64_t> prepended(std::int64_t first, const std::vector<std::int64_t>& values);

// The same op and attributes on operands that all carry the batch axis.
std::vector<Batched> batch_elementwise(const BatchContext& c);

}  // namespace hotloop::ir
