// Drawing shapes of few extents, so that axes meet, and taking arrays from one shape to another.
#pragma once

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <random>
#include <utility>
#include <vector>

#include "hotloop/ops.h"

namespace hotloop::testing {

// Shapes of few extents, and what goes from one to another.
class ArrayWriter {
 public:
  using Extents = std::vector<std::int64_t>;

  ArrayWriter(std::uint64_t seed, DType dtype, Extents sizes, std::int64_t most_elements)
      : rng_(seed), dtype_(dtype), sizes_(std::move(sizes)), most_elements_(most_elements) {}

 protected:
  int pick(std::int64_t n) { return static_cast<int>(rng_() % static_cast<std::uint64_t>(n)); }
  bool chance(int one_in) { return pick(one_in) == 0; }
  double number(double low, double high) { return std::uniform_real_distribution<double>(low, high)(rng_); }
  std::int64_t size() { return sizes_[static_cast<std::size_t>(pick(std::ssize(sizes_)))]; }
  bool fits(const Shape& shape) const { return shape.size() <= most_elements_; }
  template <class T> const T& one_of(const std::vector<T>& all) {
    return all[static_cast<std::size_t>(pick(std::ssize(all)))];
  }

  Shape shape(int rank) {
    Shape s;
    for (int i = 0; i < rank; ++i) s.push_back(fits(s) ? size() : 1);
    while (!fits(s)) s[pick(rank)] = 1 + pick(3);
    return s;
  }
  // Numbers that may divide.
  Value constant_array(const Shape& s) {
    Array a(dtype_, s);
    for (std::int64_t i = 0; i < a.size(); ++i) a.set(i, number(0.3, 1.5) * (chance(2) ? 1 : -1));
    return constant(a);
  }
  // Places along an axis of n, few of them beyond its ends.
  Value constant_places(const Shape& s, std::int64_t n) {
    Array a(DType::I32, s);
    const int kind = pick(5), first = pick(n), by = pick(5) - 2;
    for (std::int64_t i = 0; i < a.size(); ++i)
      a.set(i, kind == 0 ? static_cast<double>(first + i * by) : kind == 1 ? pick(n + 4) - 2 : pick(n));
    return constant(a);
  }
  static Extents zeros(Value v) { return Extents(static_cast<std::size_t>(v.rank()), 0); }
  Value cut(Value v, int axis, std::int64_t start, std::int64_t count, std::int64_t step) {
    Extents from = zeros(v), to = v.shape().vec(), by(from.size(), 1);
    const auto at = static_cast<std::size_t>(axis);
    from[at] = start, to[at] = start + (count - 1) * step + 1, by[at] = step;
    return slice(v, from, to, by);
  }
  Value swapped(Value v, int a, int b) {
    Extents order(static_cast<std::size_t>(v.rank()));
    std::iota(order.begin(), order.end(), 0);
    std::swap(order[static_cast<std::size_t>(a)], order[static_cast<std::size_t>(b)]);
    return transpose(v, order);
  }
  Value turned(Value v) {
    Extents order(static_cast<std::size_t>(v.rank()));
    std::iota(order.begin(), order.end(), 0);
    std::ranges::shuffle(order, rng_);
    return transpose(v, order);
  }
  // Two axes of one extent, or (-1, -1).
  std::pair<int, int> equal_axes(Value v) {
    std::vector<std::pair<int, int>> found;
    for (int a = 0; a < v.rank(); ++a)
      for (int b = a + 1; b < v.rank(); ++b)
        if (v.shape()[a] == v.shape()[b] && v.shape()[a] > 1) found.emplace_back(a, b);
    return found.empty() ? std::pair(-1, -1) : one_of(found);
  }

  Value without_axis(Value v, int axis) {
    const std::int64_t n = v.shape()[axis];
    if (v.dtype() == DType::Bool || chance(2)) return take(v, axis, pick(n));
    if (v.dtype() == DType::I32) return reduce_max(v, {axis});
    return chance(3) ? reduce_max(v, {axis}) : reduce_sum(v, {axis}) * (1.0 / static_cast<double>(n));
  }
  Value with_extent(Value v, int axis, std::int64_t n) {
    const std::int64_t has = v.shape()[axis];
    if (has == n) return v;
    Shape wanted = v.shape();
    wanted[axis] = n;
    if (has == 1) return broadcast_to(v, wanted);
    if (has > n) {
      const std::int64_t step = n == 1 ? 1 : 1 + pick((has - 1) / (n - 1));
      if (chance(4)) return gather(v, constant_places({n}, has), axis);
      return cut(v, axis, pick(has - (n - 1) * step), n, step);
    }
    if (n > 3 * has || chance(3)) return gather(v, constant_places({n}, has), axis);
    if (v.dtype() != DType::Bool && chance(3)) {
      Extents low = zeros(v), high = low;
      low[static_cast<std::size_t>(axis)] = pick(n - has + 1);
      high[static_cast<std::size_t>(axis)] = n - has - low[static_cast<std::size_t>(axis)];
      return pad(v, like(v, 1), low, high);
    }
    std::vector<Value> parts{v};
    for (std::int64_t left = n - has; left > 0; left -= has)
      parts.push_back(left >= has ? v : cut(v, axis, 0, left, 1));
    return concat(parts, axis);
  }
  // v in another shape, with as many of its axes kept as there are.
  Value fit(Value v, const Shape& to) {
    if (v.shape() == to) {
      const auto [a, b] = equal_axes(v);
      return a >= 0 && chance(4) ? swapped(v, a, b) : v;
    }
    if (v.shape().size() == to.size() && chance(2)) return reshape(v, to);
    if (v.rank() > 1 && chance(4)) v = turned(v);
    while (v.rank() > to.rank()) {
      int axis = pick(v.rank());
      for (int a = 0; a < v.rank(); ++a)
        if (std::ranges::find(to.dims(), v.shape()[a]) == to.dims().end()) axis = a;
      v = without_axis(v, axis);
    }
    // Which axes of `to` are v's: those that agree in most extents.
    Extents best;
    int most = -1, seen = 0;
    for (unsigned set = 0; set < (1u << to.rank()); ++set) {
      Extents axes;
      for (int a = 0; a < to.rank(); ++a)
        if (set >> a & 1) axes.push_back(a);
      if (std::ssize(axes) != v.rank()) continue;
      int same = 0;
      for (int a = 0; a < v.rank(); ++a)
        same += v.shape()[a] == to[static_cast<int>(axes[static_cast<std::size_t>(a)])];
      seen = same > most ? 1 : seen + (same == most);
      if (same > most || (same == most && chance(seen))) best = axes, most = same;
    }
    for (int a = 0; a < v.rank(); ++a) v = with_extent(v, a, to[static_cast<int>(best[static_cast<std::size_t>(a)])]);
    return v.shape() == to ? v : broadcast(v, to, best);
  }

  std::mt19937_64 rng_;
  DType dtype_;
  Extents sizes_;
  std::int64_t most_elements_;
};

}  // namespace hotloop::testing
