// Lookups at places that are known while a graph is built: views, which no index is computed for.
#include <gtest/gtest.h>

#include <functional>

#include "hotloop/graph.h"
#include "hotloop/ops.h"
#include "hotloop/transforms.h"
#include "ir/op_def.h"
#include "op_checks.h"
#include "ops/rules/affine_places.h"
#include "ops/rules/arguments.h"
#include "ops/rules/walk.h"

namespace hotloop {
namespace {

Value ints(std::int64_t n, const Shape& shape = {}) { return constant(static_cast<double>(n), DType::I32, shape); }
Value count(const Shape& shape, int axis) { return iota(DType::I32, shape, axis); }

// As NumPy's negative places, and clamped: what take() makes of an index.
Value wrapped(Value i, std::int64_t n) {
  const Value from_end = select(less(i, 0), i + static_cast<double>(n), i);
  return maximum(minimum(from_end, static_cast<double>(n - 1)), 0);
}

// k, k + 1, ..., k - 1 and 0, k, 2 k, ... modulo n: a rotation, and another order.
Value numbered(std::int64_t n, const std::function<std::int64_t(std::int64_t)>& place) {
  Array list(DType::I32, Shape{n});
  for (std::int64_t i = 0; i < n; ++i) list.set(i, static_cast<double>(place(i)));
  return constant(list);
}
Value rotated(std::int64_t n, std::int64_t k) {
  return numbered(n, [&](std::int64_t i) { return (i + k) % n; });
}
Value shuffled(std::int64_t n, std::int64_t k) {
  return numbered(n, [&](std::int64_t i) { return i * k % n; });
}

struct Lookup {
  const char* name;
  std::function<Value()> places;
  bool is_view;
};

std::vector<Lookup> lookups() {
  const Shape grid{6, 5};
  return {{"one", [] { return ints(3); }, true},
          {"same", [] { return ints(3, {4}); }, true},
          {"all", [] { return count({20}, 0); }, true},
          {"strided", [] { return count({6}, 0) * 3 + 2; }, true},
          {"backwards", [] { return 19 - count({20}, 0) * 2 + 19; }, false},
          {"backwards_inside", [] { return 19 - count({9}, 0) * 2; }, true},
          {"from_the_end", [] { return wrapped(count({5}, 0) - 5, 20); }, true},
          {"windows", [grid] { return wrapped(count(grid, 0) + count(grid, 1), 20); }, true},
          {"strided_windows", [grid] { return count(grid, 0) * 2 + 2 * count(grid, 1); }, true},
          {"windows_backwards", [grid] { return 4 - count(grid, 1) + 2 * count(grid, 0); }, true},
          {"both_backwards", [grid] { return 19 - count(grid, 1) - 2 * count(grid, 0); }, true},
          {"repeated", [grid] { return count(grid, 0) * 2; }, true},
          {"unit_axes",
           [] {
             return reshape(count({6}, 0) + 1, {1, 6, 1});
           },
           true},
          {"turned",
           [grid] {
             return transpose(count(grid, 0) + 3 * count(grid, 1), {1, 0});
           },
           true},
          {"constant",
           [] {
             return constant(Array::from<std::int32_t>({3, 6, 9, 12}, Shape{4}));
           },
           true},
          {"uneven",
           [] {
             return constant(Array::from<std::int32_t>({3, 6, 9, 13}, Shape{4}));
           },
           false},
          {"beyond", [] { return count({25}, 0); }, false},
          {"before", [] { return count({5}, 0) - 1; }, false},
          {"some_from_the_end", [] { return wrapped(count({5}, 0) - 2, 20); }, false},
          {"three_axes",
           [] {
             const Shape s{3, 2, 2};
             return count(s, 0) + 3 * count(s, 1) + 7 * count(s, 2);
           },
           false},
          {"cut", [] { return slice(count({20}, 0), {3}, {17}, {2}); }, true},
          {"turned_round", [] { return reverse(count({6}, 0) + 4, {0}); }, true},
          {"rotated", [] { return rotated(20, 7); }, true},
          {"beyond_in_runs",
           [] {
             return constant(Array::from<std::int32_t>({15, 16, 17, 18, 19, 25, -1, 1, 2, 3, 4}, Shape{11}));
           },
           true},
          {"few_of_many",
           [] {
             return constant(Array::from<std::int32_t>({3, 9, 10}, Shape{3}));
           },
           false},
          {"many_runs", [] { return shuffled(20, 7); }, false},
          {"remainder", [] { return rem(count({20}, 0), ints(7, {20})); }, false}};
}

TEST(AffinePlaces, AreWhatTheNumbersAre) {
  for (const Lookup& lookup : lookups()) {
    SCOPED_TRACE(lookup.name);
    std::optional<ir::AffinePlaces> places;
    const auto graph = trace(
        [&](std::span<const Value>) {
          const Value v = lookup.places();
          places = ir::affine_places(v);
          return std::vector<Value>{v};
        },
        std::vector<ValueType>{});
    const Array numbers = ir::evaluate(*graph, std::vector<Array>{})[0];
    if (!places) continue;
    const auto strides = ir::strides_of(numbers.shape());
    double low = numbers.at(0), high = low;
    for (std::int64_t i = 0; i < numbers.size(); ++i) {
      std::int64_t wanted = places->offset, rest = i;
      for (std::size_t axis = 0; axis < strides.size(); ++axis) {
        wanted += rest / strides[axis] * places->strides[axis];
        rest %= strides[axis];
      }
      ASSERT_EQ(numbers.at(i), static_cast<double>(wanted));
      low = std::min(low, numbers.at(i));
      high = std::max(high, numbers.at(i));
    }
    EXPECT_EQ(static_cast<double>(ir::lowest(*places, numbers.shape())), low);
    EXPECT_EQ(static_cast<double>(ir::highest(*places, numbers.shape())), high);
  }
}

TEST(AffinePlaces, LookUpsThereAreViews) {
  for (const Shape& shape : {Shape{20}, Shape{20, 3}, Shape{2, 20, 3}})
    for (const Lookup& lookup : lookups()) {
      const ValueType type{DType::F64, shape};
      SCOPED_TRACE(lookup.name + std::string(" of ") + type.str());
      const int axis = shape.rank() == 3 ? 1 : 0;
      const auto looked_up = [&](bool known) {
        return [&, known](std::span<const Value> in) -> std::vector<Value> {
          const Value places = lookup.places();
          if (known) return {gather(in[0], places, axis)};
          return {ir::append_op("gather", {in[0], places}, {{"axis", std::int64_t{axis}}})};
        };
      };
      const std::vector<ValueType> types{type};
      const auto graph = trace(looked_up(true), types);
      EXPECT_EQ(graph->str().find(" gather(") == std::string::npos, lookup.is_view) << graph->str();
      Array x(DType::F64, shape);
      for (std::int64_t i = 0; i < x.size(); ++i) x.set(i, 0.5 * static_cast<double>(i));
      const Array got = ir::evaluate(*graph, std::vector{x})[0],
                  wanted = ir::evaluate(*trace(looked_up(false), types), std::vector{x})[0];
      ASSERT_EQ(got.shape(), wanted.shape());
      for (std::int64_t i = 0; i < got.size(); ++i) ASSERT_EQ(got.at(i), wanted.at(i));
    }
}

// The way back from a known list is a look-up too, if it takes no place twice; and the same numbers in any case.
TEST(AffinePlaces, GradientsOfKnownLists) {
  struct List {
    const char* name;
    std::int64_t extent;
    std::vector<std::int32_t> places;
    bool adds;  // number by number
  };
  const std::vector<List> lists = {
      {"coordinates", 3, {1, 2, 0}, false}, {"some", 5, {4, 0, 3}, false},
      {"beyond", 5, {9, 0, -2}, true},      {"twice", 4, {2, 2, 1, 0}, true},
      {"few_of_many", 12, {7, 2, 3}, true}, {"two_runs", 18, {12, 13, 14, 15, 16, 17, 3, 4, 5, 6, 7, 8}, false}};
  for (const List& list : lists)
    for (const int axis : {0, 1, 2}) {
      SCOPED_TRACE(list.name + std::string(" along axis ") + std::to_string(axis));
      const auto length = static_cast<std::int64_t>(list.places.size());
      std::vector<std::int64_t> dims{2, 2, 3}, given = dims;
      dims[static_cast<std::size_t>(axis)] = list.extent;
      given[static_cast<std::size_t>(axis)] = length;
      Array places(DType::I32, Shape{length});
      for (std::int64_t i = 0; i < length; ++i) places.set(i, list.places[static_cast<std::size_t>(i)]);
      Array x(DType::F64, Shape(dims)), weights(DType::F64, Shape(given));
      for (std::int64_t i = 0; i < x.size(); ++i) x.set(i, 0.25 * static_cast<double>(i) - 2);
      for (std::int64_t i = 0; i < weights.size(); ++i) weights.set(i, 1.5 - 0.125 * static_cast<double>(i));
      const auto gradient = [&](bool known) {
        return trace(
            [&, known](std::span<const Value> in) -> std::vector<Value> {
              const auto loss = [&](std::span<const Value> at) -> std::vector<Value> {
                const Value taken = gather(at[0], known ? constant(places) : in[2], axis);
                return {reduce_sum(tanh(taken) * in[1], {0, 1, 2})};
              };
              return grad(loss, {0})(in.first(1));
            },
            std::vector<ValueType>{x.type(), weights.type(), places.type()});
      };
      const std::vector<Array> in{x, weights, places};
      const auto graph = gradient(true);
      EXPECT_EQ(graph->str().find(" scatter_add(") != std::string::npos, list.adds) << graph->str();
      const Array got = ir::evaluate(*graph, in)[0], wanted = ir::evaluate(*gradient(false), in)[0];
      ASSERT_EQ(got.shape(), wanted.shape());
      for (std::int64_t i = 0; i < got.size(); ++i) ASSERT_EQ(got.at(i), wanted.at(i)) << i;
    }
}

}  // namespace
}  // namespace hotloop
