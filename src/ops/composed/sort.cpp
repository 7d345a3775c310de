// Sorting and searching, by networks, digits and bisection: everything has a static shape.
#include <bit>
#include <cmath>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "core/convert.h"
#include "core/index.h"
#include "hotloop/error.h"
#include "hotloop/ops.h"
#include "hotloop/sorting.h"
#include "ops/rules/arguments.h"

namespace hotloop {
namespace {

using Axes = std::vector<std::int64_t>;

// Whether a comes before b: NaN is the largest number.
Value before(Value a, Value b) {
  if (!is_float(a.dtype())) return less(a, b);
  return bit_or(less(a, b), bit_and(equal(a, a), not_equal(b, b)));
}

Value i32(std::int64_t n) { return constant(static_cast<double>(n), DType::I32); }

Value index_vector(const std::vector<std::int32_t>& values) {
  return constant(Array::from(values, {static_cast<std::int64_t>(values.size())}));
}

// The least and the greatest number of a dtype: a conversion ends there.
Value least(DType dtype) { return constant(filled(dtype, {}, -std::numeric_limits<double>::infinity())); }
Value greatest(DType dtype, const Shape& shape = {}) {
  return broadcast_to(constant(filled(dtype, {}, std::numeric_limits<double>::infinity())), shape);
}

// Numbers in place of bools, which have no order.
Value comparable(Value x) { return x.dtype() == DType::Bool ? cast(x, DType::I32) : x; }

// Along a last axis of `shape`, which v has not.
Value repeated(Value v, const Shape& shape) { return broadcast(v, shape, ir::iota_axes(v.rank())); }

// Numbers without NaN, and places that decide between equal ones. A NaN is an infinity whose place is behind those of true ones, or in front
// of them where the largest number is the first.
struct Ordered {
  Value key, place;
};
Ordered in_order(const char* where, Value x, int axis, bool descending) {
  const std::int64_t n = x.shape()[axis];
  if (!holds(DType::I32, n))
    throw UserError(where, "the axis must have at most 2^31 - 1 elements, since positions are i32",
                    "axis " + std::to_string(axis) + " of " + x.type().str(), "reshape() to shorter axes");
  // Unsigned: twice as many places as elements.
  const Value key = comparable(stop_gradient(x)), position = iota(DType::U32, x.shape(), axis);
  if (!is_float(key.dtype())) return {key, position};
  const Value is_number = equal(key, key), behind = position + like(position, static_cast<double>(n));
  return {select(is_number, key, greatest(key.dtype())),
          descending ? select(is_number, behind, position) : select(is_number, position, behind)};
}
Value position_of(Value place, std::int64_t n) {
  const Value extent = like(place, static_cast<double>(n));
  return cast(select(less(place, extent), place, place - extent), DType::I32);
}
Value comes_before(const Ordered& a, const Ordered& b, bool descending) {
  const Value sooner = descending ? greater(a.key, b.key) : less(a.key, b.key);
  return bit_or(sooner, bit_and(equal(a.key, b.key), less(a.place, b.place)));
}

// From so many elements on digits take less time than a network.
constexpr std::int64_t least_by_digits = 256;
constexpr int digit_bits = 8;

int num_digits(DType dtype) { return dtype == DType::Bool ? 1 : static_cast<int>(size_of(dtype)) * 8 / digit_bits; }

// Integers that, their sign bit counted as the highest of an unsigned number, stand in the order wanted.
Value digits_of(Value x, bool descending) {
  const DType dtype = size_of(x.dtype()) == 8 ? DType::I64 : DType::I32;
  const auto number = [dtype](double n) { return constant(n, dtype); };
  const double sign = -std::ldexp(1.0, static_cast<int>(size_of(dtype)) * 8 - 1);
  Value key;
  if (is_float(x.dtype())) {
    const Value bits = bitcast(x, dtype), zero = number(0);
    // Negative numbers the other way round; zeros are equal, and NaNs.
    const auto along = [&](Value v) { return broadcast_to(v, x.shape()); };
    key = select(less(bits, along(zero)), bit_xor(bits, along(greatest(dtype))), bits);
    key = select(equal(x, 0.0), along(zero), key);
    key = select(equal(x, x), key, along(greatest(dtype)));
    key = bit_xor(key, along(number(sign)));
  } else if (x.dtype() == DType::Bool) {
    key = cast(x, dtype);
  } else {
    key = bitcast(x, dtype);
    if (x.dtype() != DType::U32) key = bit_xor(key, broadcast_to(number(sign), x.shape()));
  }
  return descending ? logical_not(key) : key;
}

// The places of numbers in order, digit by digit from the lowest on, equal digits as they were (an LSD radix sort): the numbers with each digit are
// counted, and then every number goes to the next place of its digit. Of a vector, or of each row of a table.
Value order_by_digits(Value key, int digits) {
  const Shape table = key.shape();
  const int axis = table.rank() - 1;  // and how many axes rows have
  constexpr std::int64_t num_values = std::int64_t{1} << digit_bits;
  Shape by_digit = table, one = table;
  by_digit[axis] = num_values, one[axis] = 1;
  const Shape rows = table.without(axis);
  const auto along_first = [&](Value v) { return ir::move_axis(v, axis, 0); };
  Value place = iota(DType::I32, table, axis);
  for (int d = 0; d < digits; ++d) {
    const auto number = [&](double n) { return constant(n, key.dtype(), table); };
    const Value shifted = shift_right(key, number(d * digit_bits));
    const Value digit = cast(bit_and(shifted, number(static_cast<double>(num_values - 1))), DType::I32);
    const Value counts =
        scatter_add(constant(0, DType::I32, by_digit), digit, constant(1, DType::I32, table), axis, axis);
    const auto add_up = [](std::span<const Value> total, std::span<const Value> count) {
      return std::pair(std::vector{total[0] + count[0]}, std::vector{total[0]});
    };
    const Value none[] = {constant(0, DType::I32, rows)}, xs[] = {along_first(counts)};
    const Value firsts = scan(add_up, none, xs).second[0];
    const auto move = [&](std::span<const Value> carry, std::span<const Value> x) {
      const Value at[] = {reshape(dynamic_slice(carry[0], {&x[2], 1}, one.vec()), rows)};
      const auto put = [&](Value whole, Value v) { return dynamic_update(whole, reshape(v, one), at); };
      const Value next = dynamic_update(carry[0], reshape(at[0] + constant(1, DType::I32, rows), one), {&x[2], 1});
      return std::pair(std::vector{next, put(carry[1], x[0]), put(carry[2], x[1])}, std::vector<Value>{});
    };
    const Value carry[] = {ir::move_axis(firsts, 0, axis), constant(0, key.dtype(), table),
                           constant(0, DType::I32, table)};
    const Value elements[] = {along_first(key), along_first(place), along_first(digit)};
    const auto moved = scan(move, carry, elements).first;
    key = moved[1], place = moved[2];
  }
  return place;
}

// Many rows side by side in vectors, few one after the other.
Value argsort_by_digits(Value x, int axis, bool descending) {
  constexpr std::int64_t many_rows = 64;
  const int digits = num_digits(x.dtype()), last = x.rank() - 1;
  const Value key = ir::move_axis(digits_of(x, descending), axis, last);
  const std::int64_t n = x.shape()[axis], rows = x.shape().size() / n;
  const Value table[] = {reshape(key, rows == 1 ? Shape{n} : Shape{rows, n})};
  Value places;
  if (rows == 1 || rows >= many_rows) {
    places = order_by_digits(table[0], digits);
  } else {
    const auto next = [&](std::span<const Value>, std::span<const Value> row) {
      return std::pair(std::vector<Value>{}, std::vector{order_by_digits(row[0], digits)});
    };
    places = scan(next, {}, table).second[0];
  }
  return ir::move_axis(reshape(places, key.shape()), last, axis);
}

}  // namespace

// Short axes by Batcher's odd-even merge sort (1968), which needs no padding: in stage (p, k) element e is compared with e + k if it lies in the
// lower half of a run of 2 k, counted from k mod p, and both lie in one block of 2 p. All elements k further on are one slice of an array with
// room at both ends, so that no element is looked up.
Value argsort(Value x, int axis, bool descending) {
  ir::require_defined("argsort", {&x, 1});
  const int a = static_cast<int>(ir::checked_axis("argsort", axis, x.type()));
  const Shape shape = x.shape();
  const std::int64_t n = shape[a];
  const Ordered ordered = in_order("argsort", x, a, descending);
  if (n < 2 || shape.size() == 0) return iota(DType::I32, shape, a);
  if (n >= least_by_digits) return argsort_by_digits(stop_gradient(x), a, descending);
  const auto size = static_cast<std::int32_t>(n);
  std::vector<std::int32_t> ps, ks;
  std::int32_t longest = 1;
  for (; longest < size; longest *= 2)
    for (std::int32_t k = longest; k > 0; k /= 2) {
      ps.push_back(longest);
      ks.push_back(k);
    }
  const std::int64_t room = longest / 2;
  std::vector<std::int64_t> ends(static_cast<std::size_t>(x.rank()), 0);
  ends[static_cast<std::size_t>(a)] = room;
  const auto stage = [&](std::span<const Value> carry, std::span<const Value> pk) {
    const Shape line{n};
    const Value e = iota(DType::I32, line, 0);
    const auto along = [&](Value v) { return broadcast(v, line, {}); };
    const Value p = pk[0], k = pk[1], one = i32(1);
    const Value first = bit_and(k, p - one), run = along(k + k - one), block = along(p + p - one);
    // The lower element of a comparison, given where it would be.
    const auto lower = [&](Value at) {
      const Value in_run = less(bit_and(at - along(first), run), along(k));
      const Value one_block = equal(bit_or(bit_xor(at, at + along(k)), block), block);
      return bit_and(bit_and(greater_equal(at, along(first)), less(at + along(k), along(i32(n)))),
                     bit_and(in_run, one_block));
    };
    const auto of_all = [&](Value v) { return broadcast(v, shape, {a}); };
    const Value is_lower = of_all(lower(e)), is_upper = of_all(lower(e - along(k)));
    const auto partners = [&](Value v) {
      const Value roomy = pad(v, constant(0, v.dtype()), ends, ends);
      const auto moved = [&](Value by) {
        std::vector<Value> starts(static_cast<std::size_t>(x.rank()), i32(0));
        starts[static_cast<std::size_t>(a)] = by + i32(room);
        return dynamic_slice(roomy, starts, shape.vec());
      };
      return select(is_lower, moved(k), select(is_upper, moved(-k), v));
    };
    const Ordered mine{carry[0], carry[1]}, other{partners(carry[0]), partners(carry[1])};
    // The lower one keeps what comes first, the upper one the other.
    const Value swap = equal(comes_before(other, mine, descending), is_lower);
    return std::pair(std::vector{select(swap, other.key, mine.key), select(swap, other.place, mine.place)},
                     std::vector<Value>{});
  };
  const Value carry[] = {ordered.key, ordered.place}, stages[] = {index_vector(ps), index_vector(ks)};
  return position_of(scan(stage, carry, stages).first[1], n);
}

// The largest of each block of about sqrt(n) elements are found first. Then k times the first of these is taken, and what comes next in its
// block stands for it.
std::pair<Value, Value> top_k(Value x, std::int64_t k, int axis) {
  ir::require_defined("top_k", {&x, 1});
  const int a = static_cast<int>(ir::checked_axis("top_k", axis, x.type())), last = x.rank() - 1;
  const std::int64_t n = x.shape()[a];
  if (k < 0 || k > n)
    throw UserError("top_k", "k must be between 0 and the axis's extent",
                    std::to_string(k) + " of axis " + std::to_string(a) + " of " + x.type().str());
  std::int64_t size = 64;  // the shortest
  while (size * size < n) size *= 2;
  const std::int64_t count = divided_up(n, size), stages = std::bit_width(static_cast<std::uint64_t>(n));
  // In stages of a network, of which there are about stages^2 / 2; a digit takes as long as six.
  const std::int64_t sorting = n < least_by_digits ? stages * stages / 2 : 6 * num_digits(x.dtype());
  if (k == 0 || k * (count + size) > n * sorting) {  // more than what sorting takes
    Axes start(static_cast<std::size_t>(x.rank()), 0), stop = x.shape().vec();
    stop[static_cast<std::size_t>(a)] = k;
    const Value indices = slice(argsort(x, a, true), start, stop);
    return {take_along_axis(x, indices, a), indices};
  }
  const Ordered all = in_order("top_k", ir::move_axis(x, a, last), last, true);
  const Shape rows = all.key.shape().without(last);
  const auto shape_of = [&](std::initializer_list<std::int64_t> inner) {
    Axes extents = rows.vec();
    extents.insert(extents.end(), inner);
    return Shape(extents);
  };
  const auto blocks = [&](Value v, Value none) {
    Axes low(static_cast<std::size_t>(x.rank()), 0), high = low;
    high.back() = count * size - n;
    return reshape(pad(v, none, low, high), shape_of({count, size}));
  };
  const Value nothing = least(all.key.dtype()), nowhere = greatest(DType::U32);
  const Ordered block{blocks(all.key, nothing), blocks(all.place, nowhere)};
  // The first of those along the last axis for which `left` holds, where one does.
  const auto first_of = [&](const Ordered& some, Value left) {
    const int along = some.key.rank() - 1;
    const Value key = reduce_max(select(left, some.key, nothing), {along});
    const Value is_it = bit_and(left, equal(some.key, repeated(key, some.key.shape())));
    return Ordered{key, reduce_min(select(is_it, some.place, nowhere), {along})};
  };
  const auto all_of = [](const Ordered& some) { return constant(1, DType::Bool, some.key.shape()); };
  const auto next = [&](std::span<const Value> carry, std::span<const Value>) {
    const Ordered firsts{carry[0], carry[1]}, found = first_of(firsts, all_of(firsts));
    const Value which = position_of(found.place, n) / static_cast<double>(size);
    const Shape inner = shape_of({size});
    const auto of_it = [&](Value v) { return count == 1 ? reshape(v, inner) : gather(v, which, last, last); };
    const Ordered its{of_it(block.key), of_it(block.place)};
    const Ordered rest =
        first_of(its, comes_before({repeated(found.key, inner), repeated(found.place, inner)}, its, true));
    const Shape outer = firsts.key.shape();
    const Value is_there = equal(iota(DType::I32, outer, last), repeated(which, outer));
    return std::pair(std::vector{select(is_there, repeated(rest.key, outer), firsts.key),
                                 select(is_there, repeated(rest.place, outer), firsts.place)},
                     std::vector{found.place});
  };
  const Ordered firsts = first_of(block, all_of(block));
  const Value carry[] = {firsts.key, firsts.place}, steps[] = {iota(DType::I32, {k}, 0)};
  // The passes' axis is the first.
  const Value indices = position_of(ir::move_axis(scan(next, carry, steps).second[0], 0, a), n);
  return {take_along_axis(x, indices, a), indices};
}

Value sort(Value x, int axis, bool descending) { return take_along_axis(x, argsort(x, axis, descending), axis); }

Value quantile(Value x, Value q, int axis) {
  const Value both[] = {x, q};
  ir::require_defined("quantile", both);
  const int a = static_cast<int>(ir::checked_axis("quantile", axis, x.type()));
  const std::int64_t n = x.shape()[a];
  if (!is_float(x.dtype()) || q.dtype() != x.dtype() || q.rank() > 1 || n == 0)
    throw UserError("quantile", "there must be floats along the axis, and levels of their dtype, one or a vector",
                    x.type().str() + ", " + q.type().str(), "cast()");
  const Value sorted = sort(x, a), at = q * static_cast<double>(n - 1);
  const Value below = floor(stop_gradient(at));
  const auto element = [&](Value position) { return gather(sorted, cast(position, DType::I32), a); };
  // The levels' axis stands where `axis` was.
  const Shape shape = element(below).shape();
  const auto along = [&](Value v) { return broadcast(v, shape, q.rank() == 0 ? Axes{} : Axes{a}); };
  const Value part = along(at - below), low = element(below);
  // Beside an infinity a part of nothing is nothing.
  const Value between = select(equal(part, 0.0), low, low + (element(below + 1.0) - low) * part);
  const Value is_defined = reduce_min(cast(equal(x, x), DType::I32), {a});
  const auto rest = ir::other_axes(shape.rank(), q.rank() == 0 ? Axes{} : Axes{a});
  const Value kept = select(equal(broadcast(is_defined, shape, rest), like(is_defined, 1)), between,
                            like(between, std::numeric_limits<double>::quiet_NaN()));
  return q.rank() == 0 ? kept : ir::move_axis(kept, a, 0);
}

Value median(Value x, int axis) {
  ir::require_defined("median", {&x, 1});
  return quantile(x, constant(0.5, x.dtype()), axis);
}

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
  const int last = x.rank() - 1;
  return ir::move_axis(gather(ir::move_axis(x, a, last), ir::move_axis(indices, a, last), last, last), last, a);
}

}  // namespace hotloop
