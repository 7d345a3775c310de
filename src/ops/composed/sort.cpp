// Sorting and searching, by networks and bisection: everything has a static shape.
#include <bit>
#include <utility>
#include <vector>

#include "core/convert.h"
#include "hotloop/error.h"
#include "hotloop/ops.h"
#include "hotloop/sorting.h"
#include "ops/rules/arguments.h"
#include "ops/rules/lanes.h"

namespace hotloop {
namespace {

// Whether a comes before b: NaN is the largest number.
Value before(Value a, Value b) {
  if (!is_float(a.dtype())) return less(a, b);
  return bit_or(less(a, b), bit_and(equal(a, a), not_equal(b, b)));
}

Value i32(std::int64_t n) { return constant(static_cast<double>(n), DType::I32); }

Value index_vector(const std::vector<std::int32_t>& values) {
  return constant(Array::from(values, {static_cast<std::int64_t>(values.size())}));
}

// Numbers in place of bools, which have no order.
Value comparable(Value x) { return x.dtype() == DType::Bool ? cast(x, DType::I32) : x; }

}  // namespace

// Batcher's odd-even merge sort (1968), which needs no padding: in stage (p, k) element e is compared with e + k if it lies in the
// lower half of a run of 2 k, counted from k mod p, and both lie in one block of 2 p. Positions travel along and decide between equals,
// which makes it stable.
Value argsort(Value x, int axis, bool descending) {
  ir::require_defined("argsort", {&x, 1});
  const int a = static_cast<int>(ir::checked_axis("argsort", axis, x.type()));
  const std::int64_t n = x.shape()[a];
  if (!holds(DType::I32, n))
    throw UserError("argsort", "the axis must have at most 2^31 - 1 elements, since positions are i32",
                    "axis " + std::to_string(a) + " of " + x.type().str(), "reshape() to shorter axes");
  const Value positions = iota(DType::I32, x.shape(), a);
  if (n < 2) return positions;
  std::vector<std::int32_t> ps, ks;
  for (std::int64_t p = 1; p < n; p *= 2)
    for (std::int64_t k = p; k > 0; k /= 2) {
      ps.push_back(static_cast<std::int32_t>(p));
      ks.push_back(static_cast<std::int32_t>(k));
    }
  const auto stage = [&](std::span<const Value> carry, std::span<const Value> pk) {
    const Shape line{n};
    const Value e = iota(DType::I32, line, 0);
    const auto along = [&](Value v) { return broadcast(v, line, {}); };
    const Value p = pk[0], k = pk[1], one = i32(1), size = along(i32(n));
    const Value first = bit_and(k, p - one), run = along(k + k - one), block = along(p + p - one);
    // The lower element of a comparison, given where it would be.
    const auto lower = [&](Value at) {
      const Value in_run = less(bit_and(at - along(first), run), along(k));
      const Value one_block = equal(bit_or(bit_xor(at, at + along(k)), block), block);
      return bit_and(bit_and(greater_equal(at, along(first)), less(at + along(k), size)), bit_and(in_run, one_block));
    };
    const Value is_lower = lower(e), is_upper = lower(e - along(k));
    const Value partner = select(is_lower, e + along(k), select(is_upper, e - along(k), e));
    const Value key = carry[0], position = carry[1];
    const Value other_key = gather(key, partner, a), other_position = gather(position, partner, a);
    const Value sooner = descending ? before(key, other_key) : before(other_key, key);
    const Value later = descending ? before(other_key, key) : before(key, other_key);
    const Value tie = bit_and(logical_not(later), less(other_position, position));
    // The lower one keeps what comes first, the upper one the other.
    const Value swap = equal(bit_or(sooner, tie), broadcast(is_lower, x.shape(), {a}));
    return std::pair(std::vector{select(swap, other_key, key), select(swap, other_position, position)},
                     std::vector<Value>{});
  };
  const Value carry[] = {comparable(stop_gradient(x)), positions}, stages[] = {index_vector(ps), index_vector(ks)};
  return scan(stage, carry, stages).first[1];
}

Value sort(Value x, int axis, bool descending) { return take_along_axis(x, argsort(x, axis, descending), axis); }

Value searchsorted(Value sorted, Value values, bool right) {
  const Value both[] = {sorted, values};
  ir::require_defined("searchsorted", both);
  if (sorted.rank() != 1 || sorted.dtype() != values.dtype())
    throw UserError("searchsorted", "there must be a sorted vector, and values of its dtype",
                    sorted.type().str() + ", " + values.type().str(), "cast(), or vmap() for several vectors");
  const std::int64_t n = sorted.shape()[0];
  if (!holds(DType::I32, n))
    throw UserError("searchsorted", "the sorted vector must have at most 2^31 - 1 elements, since positions are i32",
                    sorted.type().str());
  const Value none = constant(0, DType::I32, values.shape());
  if (n == 0) return none;
  const Value keys = comparable(stop_gradient(sorted)), wanted = comparable(stop_gradient(values));
  // `found` elements are known to come before; steps are powers of two.
  std::vector<std::int32_t> steps;
  for (auto step = static_cast<std::int32_t>(std::bit_floor(static_cast<std::uint64_t>(n))); step > 0; step /= 2)
    steps.push_back(step);
  const auto bisect = [&](std::span<const Value> found, std::span<const Value> step) {
    const Value next = found[0] + broadcast_to(step[0], values.shape());
    const Value key = gather(keys, next - 1.0, 0);
    const Value comes = right ? logical_not(before(wanted, key)) : before(key, wanted);
    const Value inside = less_equal(next, broadcast_to(i32(n), values.shape()));
    return std::pair(std::vector{select(bit_and(inside, comes), next, found[0])}, std::vector<Value>{});
  };
  const Value carry[] = {none}, xs[] = {index_vector(steps)};
  return scan(bisect, carry, xs).first[0];
}

Value take_along_axis(Value x, Value indices, int axis) {
  const Value both[] = {x, indices};
  ir::require_defined("take_along_axis", both);
  const int a = static_cast<int>(ir::checked_axis("take_along_axis", axis, x.type()));
  if (indices.rank() != x.rank() || indices.shape().without(a) != x.shape().without(a) || !is_integer(indices.dtype()))
    throw UserError("take_along_axis", "indices must be integers of x's shape but for the axis",
                    x.type().str() + ", " + indices.type().str(), "broadcast_to()");
  // The axis last: each row has indices of its own.
  std::vector<std::int64_t> order = ir::iota_axes(x.rank()), back(order.size());
  order.erase(order.begin() + a);
  order.push_back(a);
  for (std::size_t i = 0; i < order.size(); ++i)
    back[static_cast<std::size_t>(order[i])] = static_cast<std::int64_t>(i);
  const int last = x.rank() - 1;
  return transpose(gather(transpose(x, order), transpose(indices, order), last, last), back);
}

}  // namespace hotloop
