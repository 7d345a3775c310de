#include "ops/rules/starts.h"

#include <algorithm>

#include "hotloop/error.h"
#include "hotloop/ops.h"
#include "ops/rules/arguments.h"
#include "ops/rules/sampling.h"

namespace hotloop::ir {

void check_starts(const InferContext& c, std::size_t first_start, std::span<const std::int64_t> sizes) {
  const std::string where(c.op_name);
  const ValueType& x = c.operands[0];
  require_one_an_axis(where, "sizes", sizes.size(), x);
  for (int i = 0; i < x.shape.rank(); ++i) {
    const std::int64_t size = sizes[static_cast<std::size_t>(i)];
    if (size < 0 || size > x.shape[i])
      throw UserError(where, "the part must fit into the operand on every axis",
                      Shape(std::vector(sizes.begin(), sizes.end())).str() + " of " + x.str());
  }
  const auto starts = c.operands.subspan(first_start);
  const bool fits = starts.size() == sizes.size() && std::ranges::all_of(starts, [](const ValueType& t) {
                      return t == ValueType{DType::I32, {}};
                    });
  if (!fits)
    throw UserError(where, "there must be one i32 scalar start for each axis", types_text(starts) + " for " + x.str(),
                    "cast(start, DType::I32)");
}

std::vector<std::int64_t> clamped_starts(const EvalContext& c, std::size_t first_start, const Shape& shape,
                                         std::span<const std::int64_t> sizes) {
  std::vector<std::int64_t> starts;
  for (int i = 0; i < shape.rank(); ++i) {
    const auto k = static_cast<std::size_t>(i);
    const auto wanted = static_cast<std::int64_t>(c.operands[first_start + k].data<std::int32_t>()[0]);
    starts.push_back(std::clamp<std::int64_t>(wanted, 0, shape[i] - sizes[k]));
  }
  return starts;
}

int num_moving_axes(const Shape& shape, std::span<const std::int64_t> sizes) {
  int n = shape.rank();
  while (n > 0 && sizes[static_cast<std::size_t>(n - 1)] == shape[n - 1]) --n;
  return n;
}

LaneStarts lane_starts(const BatchContext& c, std::size_t first_start) {
  LaneStarts out;
  for (const Batched& start : c.operands.subspan(first_start)) {
    const bool one = start.batched && c.size == 1;
    out.differ = out.differ || (start.batched && !one);
    out.starts.push_back(one ? Batched{reshape(start.value, {}), false} : start);
  }
  return out;
}

Value clamped_start(const Batched& start, std::int64_t extent, std::int64_t size, const Shape& shape) {
  const Value low = maximum(start.value, like(start.value, 0));
  const Value fitting = minimum(low, like(low, static_cast<double>(extent - size)));
  return broadcast(fitting, shape, start.batched ? std::vector<std::int64_t>{0} : std::vector<std::int64_t>{});
}

void append_sample_starts(Rng& rng, const Shape& shape, std::vector<Array>& operands) {
  for (std::int64_t extent : shape.dims())
    operands.push_back(random_array(rng, DType::I32, {}, -1, static_cast<double>(extent)));
}

}  // namespace hotloop::ir
