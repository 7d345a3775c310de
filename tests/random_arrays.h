// Programs of whole arrays put together at random: several inputs of few extents, so that axes meet (square matrices, an axis used twice), whose values are
// used again and again. All that ops.h has for elements, places, sums, products and loops.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <numeric>
#include <random>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "array_writer.h"
#include "hotloop/ops.h"
#include "hotloop/sorting.h"
#include "random_systems.h"

namespace hotloop::testing {

class RandomArrayProgram : public ArrayWriter {
 public:
  using Values = std::span<const Value>;
  using ArrayWriter::ArrayWriter;

  // Inputs of floats, i32 and bool -> results of these.
  std::vector<Value> operator()(Values inputs) {
    for (const Value& v : inputs) {
      pool_of(v).push_back(v);
      if (v.dtype() == dtype_) leaves_.push_back(v);
    }
    for (int i = 0, n = 1 + pick(chance(3) ? 8 : 4); i < n; ++i) {
      const int kind = pick(12);
      if (kind == 0) {
        ints_.push_back(integers(any_shape()));
      } else if (kind == 1) {
        bools_.push_back(condition(any_shape()));
      } else {
        const Value v = step(2);
        if (v.dtype() != dtype_ || !fits(v.shape())) continue;
        floats_.push_back(settled(v));
        if (chance(3)) used_in_many_ways(floats_.back());
      }
    }
    std::vector<Value> results{floats_.back()};
    for (int i = 0, n = pick(3); i < n; ++i) results.push_back(any());
    if (chance(3)) results.push_back(sum(any()));
    if (chance(4) && !ints_.empty()) results.push_back(ints_.back());
    if (chance(6) && !bools_.empty()) results.push_back(bools_.back());
    return results;
  }

 private:
  std::vector<Value>& pool_of(Value v) {
    return v.dtype() == DType::Bool ? bools_ : v.dtype() == DType::I32 ? ints_ : floats_;
  }
  Value any() {
    const auto n = std::ssize(floats_);
    return floats_[static_cast<std::size_t>(chance(2) ? pick(n) : n - 1 - pick(std::min<std::ptrdiff_t>(n, 3)))];
  }
  Shape any_shape() { return any().shape(); }
  Value any_of(int rank) {  // at least
    for (int i = 0; i < 6; ++i)
      if (const Value v = any(); v.rank() >= rank) return v;
    const Value v = any();
    return v.rank() >= rank ? v : fit(v, shape(rank));
  }
  Value matrix() {
    const Value v = any_of(2);
    return v.rank() == 2 ? v : fit(v, {v.shape()[0], v.shape()[v.rank() - 1]});
  }
  Value like_any(const Shape& s) { return chance(7) ? constant_array(s) : fit(any(), s); }
  Value leaf(const Shape& s) { return chance(3) ? constant_array(s) : fit(one_of(leaves_), s); }
  int axis_of(Value v) { return pick(v.rank()); }
  Extents axes_of(Value v) {
    Extents axes;
    for (int a = 0; a < v.rank(); ++a)
      if (chance(2)) axes.push_back(a);
    if (axes.empty()) axes.push_back(pick(v.rank()));
    return axes;
  }
  // Neither too large for what follows nor so small that nothing is seen of it.
  Value settled(Value v) {
    switch (pick(10)) {
      case 0: return tanh(v);
      case 1: return sin(v);
      case 2: return v * 0.7;
      default: return v;
    }
  }

  // Sums of a value, of functions of it and of products with it.
  void used_in_many_ways(Value v) {
    Value total;
    for (int i = 0, n = 2 + pick(2); i < n; ++i) {
      const int way = pick(4);
      const Value part = way == 0                    ? sum(unary(v))
                         : way == 1 && v.rank() == 2 ? sum(product(v))
                         : way == 2 && v.rank() > 0  ? sum(square(reduced(v, axes_of(v))))
                         : v.rank() > 0              ? sum(contraction(v))
                                                     : v;
      total = total.defined() ? total + part : part;
    }
    floats_.push_back(total * (1 / static_cast<double>(v.shape().size())));
  }

  Value condition(const Shape& s) {
    switch (pick(7)) {
      case 0: return greater(like_any(s), like(leaves_[0], 0.1234567));
      case 1: return less(like_any(s), like_any(s));
      case 2: {
        const Value i = integers(s), j = integers(s);
        return chance(3) ? equal(i, j) : chance(2) ? less_equal(i, j) : not_equal(i, j * 2 + 1);
      }
      case 3: {  // a triangle, or a band
        if (s.rank() < 2) return greater_equal(like_any(s), like_any(s) * 0.3);
        const int a = pick(s.rank()), b = (a + 1 + pick(s.rank() - 1)) % s.rank();
        const Value i = iota(DType::I32, s, a), j = iota(DType::I32, s, b);
        return chance(2) ? less_equal(i, j) : equal(i, j + (pick(3) - 1));
      }
      case 4: {
        const Value c = condition_or(s), d = condition_or(s);
        return chance(3) ? bit_xor(c, d) : chance(2) ? bit_and(c, d) : bit_or(c, logical_not(d));
      }
      default: return condition_or(s);
    }
  }
  Value condition_or(const Shape& s) {
    return bools_.empty() ? less(like_any(s), leaf(s) * 0.6) : fit(one_of(bools_), s);
  }
  // Small ones.
  Value integers(const Shape& s) {
    switch (pick(10)) {
      case 0: return s.rank() == 0 ? cast(rint(like_any(s) * 5.0), DType::I32) : iota(DType::I32, s, pick(s.rank()));
      case 1: return cast(floor(tanh(like_any(s)) * 7.0 + 3.3), DType::I32);
      case 2: return cast(condition_or(s), DType::I32) * (1 + pick(3));
      case 3: {
        const Value v = any_of(1);
        return fit(chance(2) ? argmax(v, axis_of(v)) : argmin(v, axis_of(v)), s);
      }
      case 4: {
        const Value i = one_int(s), j = one_int(s);
        switch (pick(9)) {
          case 0: return rem(i + j, constant(1 + pick(40), DType::I32));
          case 1: return rem(i * j, constant(37, DType::I32));
          case 2: return i / j;
          case 3: return maximum(i, j) - minimum(i, j);
          case 4: return bit_and(i, j) + bit_xor(i, j) * 0;
          case 5: return bit_or(abs(i), bit_and(j, constant(15, DType::I32)));
          case 6: return shift_right(shift_left(i, bit_and(j, constant(7, DType::I32))), constant(2, DType::I32));
          case 7: return select(condition_or(s), i, neg(j));
          default: return sign(i - j) + abs(j);
        }
      }
      case 5: {
        const Value v = any_of(1);
        const int axis = axis_of(v);
        return fit(argsort(v, axis, chance(2)), s);
      }
      case 6: {
        const Value wide = any_of(1);
        const int axis = axis_of(wide);
        return fit(reduce_sum(cast(condition_or(wide.shape()), DType::I32), {axis}), s);
      }
      default: return one_int(s);
    }
  }
  Value one_int(const Shape& s) { return ints_.empty() || chance(4) ? constant_places(s, 9) : fit(one_of(ints_), s); }
  Value places(const Shape& s, std::int64_t n) {
    if (chance(2)) return constant_places(s, n);
    const Value i = integers(s);
    return chance(3) ? i : abs(rem(i, constant(static_cast<double>(n), DType::I32)));
  }

  Value unary(Value v) {
    switch (pick(30)) {
      case 0: return neg(v);
      case 1: return abs(v);
      case 2: return sign(v) * 0.4 + v;
      case 3: return floor(v * 3.0) * 0.2;
      case 4: return ceil(v * 2.5) * 0.3;
      case 5: return rint(v * 3.5) * 0.2 + v;
      case 6: return sqrt(abs(v) + 0.1);
      case 7: return exp(minimum(v, 1.5));
      case 8: return expm1(minimum(v * 0.5, 1.0));
      case 9: return log(abs(v) + 0.2);
      case 10: return log1p(square(v));
      case 11: return sin(v);
      case 12: return cos(v);
      case 13: return tanh(v);
      case 14: return sigmoid(v);
      case 15: return erf(v);
      case 16: return erfinv(tanh(v) * 0.9);
      case 17: return relu(v);
      case 18: return softplus(v);
      case 19: return gelu(v);
      case 20: return rsqrt(square(v) + 0.2);
      case 21: return reciprocal(abs(v) + 0.4);
      case 22: return clip(v, -0.8, 0.9);
      case 23: return cast(cast(v, dtype_ == DType::F32 ? DType::F64 : DType::F32), dtype_);
      case 24: return v + stop_gradient(v * 0.5);
      case 25: return lgamma(abs(v) + 0.6);
      case 26: return digamma(abs(v) + 0.8) * 0.3;
      case 27: return erfc(v);
      case 28: return log_ndtr(v) * 0.2;
      default: return square(v) * 0.5;
    }
  }
  Value binary(Value a, Value b) {
    switch (pick(13)) {
      case 0:
      case 1: return a + b;
      case 2:
      case 3: return a - b;
      case 4:
      case 5: return a * b;
      case 6: return a / leaf(a.shape());
      case 7: return a / (square(b) + 0.3);
      case 8: return maximum(a, b);
      case 9: return minimum(a, b);
      case 10: return pow(abs(a) + 0.2, clip(b, -2, 2));
      case 11: return rem(a * 3.0, abs(b) + 0.5);
      default: return select(condition(a.shape()), a, b);
    }
  }
  Value reduced(Value v, const Extents& axes) {
    double n = 1;
    for (const std::int64_t a : axes) n *= static_cast<double>(v.shape()[static_cast<int>(a)]);
    switch (pick(9)) {
      case 0: return reduce_max(v, axes);
      case 1: return reduce_min(v, axes);
      case 2: return reduce_prod(v * 0.1 + 1.0, axes);
      case 3: return mean(v, axes);
      case 4: return variance(v, axes);
      case 5: return reduce_sum(v / leaf(v.shape()), axes) * (1 / std::sqrt(n));
      case 6: return reduce_sum(v * like_any(v.shape()), axes) * (1 / std::sqrt(n));
      default: return reduce_sum(v, axes) * (1 / std::sqrt(n));
    }
  }
  Value flat(Value v) { return reshape(v, {v.shape().size()}); }

  // Any contraction of two values, one of which is made to have the axes.
  Value contraction(Value a) {
    DotAxes axes;
    Shape wanted;
    std::int64_t contracted = 1, kept = 1;
    for (int i = 0; i < a.rank(); ++i) {
      const int use = pick(4);
      if (use == 0) {
        axes.lhs_batch.push_back(i), axes.rhs_batch.push_back(wanted.rank());
      } else if (use < 3) {
        axes.lhs_contract.push_back(i), axes.rhs_contract.push_back(wanted.rank());
        contracted *= a.shape()[i];
      } else {
        kept *= a.shape()[i];
        continue;
      }
      wanted.push_back(a.shape()[i]);
    }
    for (int i = 0, n = pick(3); i < n && wanted.rank() < 5; ++i) {
      const std::int64_t extent = size();
      if (kept * extent * wanted.size() <= most_flops && wanted.size() * extent <= most_elements_)
        wanted.push_back(extent);
    }
    if (kept * wanted.size() > most_flops) return square(a);
    // Its axes in another order.
    Extents order(static_cast<std::size_t>(wanted.rank()));
    std::iota(order.begin(), order.end(), 0);
    if (chance(2)) std::ranges::shuffle(order, rng_);
    Shape lies;
    for (const std::int64_t o : order) lies.push_back(wanted[static_cast<int>(o)]);
    for (auto* list : {&axes.rhs_batch, &axes.rhs_contract})
      for (std::int64_t& axis : *list) axis = std::ranges::find(order, axis) - order.begin();
    const Value b = like_any(lies);
    if (a.shape().size() / contracted * (b.shape().size() / contracted) > most_elements_ * contracted) return square(a);
    return dot(a, b, axes) * (1 / std::sqrt(static_cast<double>(contracted)));
  }
  Value product(Value a) {
    const Value t = transpose(a, {1, 0});
    const std::int64_t m = a.shape()[0], n = a.shape()[1];
    const double by_m = 1 / std::sqrt(static_cast<double>(m)), by_n = 1 / std::sqrt(static_cast<double>(n));
    switch (pick(8)) {
      case 0: return m * m * n <= most_flops ? matmul(a, t) * by_n : a;
      case 1: return m * n * n <= most_flops ? matmul(t, a) * by_m : a;
      case 2: {
        const std::int64_t k = size();
        return m * n * k <= most_flops ? matmul(a, like_any({n, k})) * by_n : a;
      }
      case 3: {
        const std::int64_t k = size();
        return m * n * k <= most_flops ? matmul(t, transpose(like_any({k, m}), {1, 0})) * by_m : a;
      }
      case 4: return matmul(a, like_any({n})) * by_n;
      case 5: return matmul(like_any({m}), a) * by_m;
      case 6: {
        const Value x = like_any({m}), y = like_any({n});
        return expand_dims(x, 1) * expand_dims(y, 0) + a;
      }
      default: {
        const std::int64_t k = size(), batch = 1 + pick(5);
        if (m * n * k * batch > most_flops || batch * std::max(m, n) * k > most_elements_)
          return matmul(a, like_any({n}));
        return matmul(like_any({batch, m, n}), chance(2) ? like_any({n, k}) : like_any({batch, n, k})) * by_n;
      }
    }
  }
  // x[:, None] - x[None, :], along any axis.
  Value pairs() {
    Value x = any_of(1);
    const int axis = axis_of(x);
    const std::int64_t n = x.shape()[axis];
    if (x.shape().size() * n > most_elements_ || x.rank() > 4) {
      x = fit(x, {std::min<std::int64_t>(n, 100)});
      return expand_dims(x, 0) - expand_dims(x, 1);
    }
    const Value a = expand_dims(x, axis), b = expand_dims(x, axis + 1);
    switch (pick(4)) {
      case 0: return a * b;
      case 1: return tanh(a + b);
      case 2: return maximum(a, b) - a;
      default: return b - a;
    }
  }
  Value looked_up() {
    Value v = chance(2) ? any_of(1) : one_of(leaves_);
    if (v.rank() == 0) v = leaf(shape(1 + pick(2)));
    const int axis = chance(2) ? 0 : axis_of(v);
    const std::int64_t n = v.shape()[axis];
    const Shape s = chance(6) ? Shape{} : chance(5) ? shape(2) : Shape{size()};
    if (s.size() * (v.shape().size() / n) > most_elements_) return v;
    const auto rows = [&] { return gather(v, places(s, n), axis); };
    const Value first = rows();
    if (chance(4)) return first;
    const Value second = rows();
    const Value both = chance(4) ? binary(first, rows()) * second : binary(first, second);
    // As distances are: what is short is summed.
    if (both.rank() == 0 || chance(2)) return both;
    return reduced(chance(2) ? both : square(both), {both.rank() - 1});
  }
  // Messages along edges, as springs and graphs have them: what rows of one table have in common, by how far they are apart, goes to one of them.
  Value edges() {
    const Value v = any_of(2);
    const std::int64_t n = v.shape()[0], count = sizes_.back() < 16 ? 64 : sizes_.back();
    if (v.rank() > 3 || count * (v.shape().size() / n) > most_elements_) return v;
    const Value from = places({count}, n), to = places({count}, n);
    const Value difference = binary(gather(v, to, 0), gather(v, from, 0));
    const Value far = reduced(square(difference), {difference.rank() - 1});
    const Value weight = unary(far * like_any(far.shape()));
    const Value message =
        turned_or_not(difference * broadcast_to(expand_dims(weight, weight.rank()), difference.shape()));
    if (message.shape() != difference.shape() || chance(3)) return message;
    return scatter_add(chance(2) ? zeros_like(v) : v, to, message, 0);
  }
  Value turned_or_not(Value v) { return chance(3) ? turned(v) : v; }
  Value moved() {
    const Value v = any_of(1);
    const int axis = axis_of(v);
    const std::int64_t n = v.shape()[axis];
    switch (pick(12)) {
      case 0: return turned(v);
      case 1: {
        const std::int64_t step = 1 + pick(3), count = 1 + pick((n + step - 1) / step);
        return cut(v, axis, pick(n - (count - 1) * step), count, step);
      }
      case 2: return reverse(v, axes_of(v));
      case 3: {
        Shape other = v.shape();
        other[axis] = size();
        const Value parts[] = {v, like_any(other), v};
        if (!fits(other) || v.shape().size() * 3 > most_elements_) return v;
        return concat(
            std::span(parts).subspan(static_cast<std::size_t>(pick(2)), static_cast<std::size_t>(1 + pick(2))), axis);
      }
      case 4: {
        Extents low = zeros(v), high = low, interior = low;
        const auto at = static_cast<std::size_t>(axis);
        low[at] = pick(4), high[at] = pick(4), interior[at] = chance(3) ? 1 + pick(2) : 0;
        return pad(v, like(v, 0.25), low, high, interior);
      }
      case 5: {
        const std::int64_t width = 1 + pick(std::min<std::int64_t>(n, 5)),
                           dilation = (width - 1) * 2 < n ? 1 + pick(2) : 1;
        if (v.rank() > 4 || v.shape().size() * width > most_elements_) return v;
        const Value w = windows(v, axis, width, 1 + pick(3), dilation);
        return chance(3) ? w : reduced(w, {axis + pick(2)});
      }
      case 6:  // two axes as one
        if (axis + 1 < v.rank()) {
          Shape s = v.shape().without(axis);
          s[axis] = n * v.shape()[axis + 1];
          return reshape(v, s);
        }
        return flat(v);
      case 7:  // one as two
        for (const std::int64_t part : {8, 7, 5, 3, 2})
          if (n % part == 0 && v.rank() < 5) {
            Shape s = v.shape().with_inserted(axis, n / part);
            s[axis + 1] = part;
            return reshape(v, s);
          }
        return expand_dims(v, axis);
      case 8: return take(v, axis, pick(n));
      case 9: {  // a block at a place
        Extents sizes;
        std::vector<Value> starts;
        for (int a = 0; a < v.rank(); ++a)
          sizes.push_back(1 + pick(v.shape()[a])),
              starts.push_back(chance(2) ? integers({}) : constant(pick(3), DType::I32));
        if (chance(2)) return dynamic_slice(v, starts, sizes);
        const Value block = like_any(Shape(sizes));
        return dynamic_update(v, block, starts) + v * 0.3;
      }
      case 10: {
        const Shape s{size()};
        if (s.size() * (v.shape().size() / n) > most_elements_) return v;
        Shape updates = v.shape();
        updates[axis] = s[0];
        const Value index = places(s, n);
        return scatter_add(chance(2) ? v : zeros_like(v), index, like_any(updates), axis);
      }
      default: return fit(v, shape(pick(5)));
    }
  }
  Value ordered() {
    const Value v = any_of(1);
    const int axis = axis_of(v);
    const std::int64_t n = v.shape()[axis];
    switch (pick(6)) {
      case 0: return sort(v, axis, chance(2));
      case 1: return take_along_axis(v, places(v.shape(), n), axis);
      case 2: {
        const auto [top, at] = top_k(v, 1 + pick(std::min<std::int64_t>(n, 4)), axis);
        ints_.push_back(at);
        return top;
      }
      case 3: return quantile(v, like(v, number(0.1, 0.9)), axis);
      case 4: return logsumexp(v, axis);
      default: return softmax(v, axis);
    }
  }
  Value running() {
    const Value v = any_of(1), init[] = {fit(any(), v.shape().without(0))};
    const int kind = pick(4);
    ScanOptions options;
    options.reverse = chance(3);
    return scan(
               [&](Values c, Values x) {
                 const Value next = kind == 0   ? c[0] + x[0]
                                    : kind == 1 ? maximum(c[0] * 0.9, x[0])
                                    : kind == 2 ? c[0] * (x[0] * 0.1 + 0.9)
                                                : sin(c[0] + x[0]);
                 return std::pair{std::vector{next}, std::vector{next}};
               },
               init, std::span(&v, 1), options)
        .second[0];
  }

  Value system() {
    const Value m = matrix();
    const std::int64_t n = std::min<std::int64_t>(m.shape()[0], 12), steps = 1 + pick(5);
    if (chance(2)) return of_system(fit(m, {n, n}), pick(5));
    const auto [rest, rows] = eliminated(m, places({steps}, m.shape()[0]), places({steps}, m.shape()[1]));
    return chance(3) && fits(rows.shape()) ? rows : rest;
  }

  // Steps of a population whose members look at what others were, as swarms and cellular automata do; many enough for tiles.
  Value population() {
    const std::int64_t members = 100 + pick(700), numbers = 1 + pick(16), steps = 2 + pick(3);
    const Shape shape{members, numbers};
    const Value init[] = {leaf(shape)}, weights = leaf({numbers, numbers});
    const int kind = pick(4);
    const bool mixes = chance(2), gives_sums = !chance(3);
    const std::int64_t who = pick(members);
    ScanOptions options;
    options.length = steps;
    auto [carry, ys] = scan(
        [&](Values c, Values) {
          const Value h = c[0], one = narrow(h, 0, who, 1);
          const Value other = kind == 0   ? reverse(h, {0})
                              : kind == 1 ? broadcast_to(one, shape)
                              : kind == 2 ? reverse(broadcast_to(one, shape) * h, {0})
                                          : take_along_axis(h, places(shape, members), 0);
          const Value next = tanh(h * 0.5 + other * 0.4);
          const Value y = sum(h, {1});
          return std::pair{std::vector{mixes ? matmul(next, weights * 0.3) : next},
                           gives_sums ? std::vector{y} : std::vector<Value>{}};
        },
        init, {}, options);
    return gives_sums && chance(3) ? ys[0] : sum(carry[0], {0});
  }

  Value step(int depth) {
    if (chance(25)) return system();
    if (chance(12)) return population();
    switch (pick(depth > 0 ? 43 : 38)) {
      case 0:
      case 1:
      case 2: return unary(any());
      case 3:
      case 4:
      case 5:
      case 6: {
        const Value a = any();
        return binary(a, like_any(a.shape()));
      }
      case 7:
      case 8:
      case 9: {  // with its own transpose
        Value v = any_of(2);
        if (equal_axes(v).first < 0) v = fit(v, {v.shape()[0], v.shape()[0]});
        const auto [a, b] = equal_axes(v);
        return a < 0 || !fits(v.shape()) ? v : binary(v, swapped(v, a, b));
      }
      case 10:
      case 11: return pairs();
      case 12:
      case 13:
      case 14: return looked_up();
      case 15:
      case 16:
      case 17:
      case 18: return moved();
      case 19:
      case 20: return contraction(any_of(1));
      case 21:
      case 22:
      case 23: return product(matrix());
      case 24:
      case 25:
      case 26:
      case 27: {
        const Value v = any_of(1);
        return reduced(v, axes_of(v));
      }
      case 28: {  // what is left of a mean
        const Value v = any_of(1);
        const int axis = axis_of(v);
        return binary(v, broadcast_to(expand_dims(reduced(v, {axis}), axis), v.shape()));
      }
      case 29:
      case 30: return ordered();
      case 31: return running();
      case 32: {
        const Value v = any();
        return select(condition(v.shape()), v, like(v, 0.25));
      }
      case 33: return cast(integers(any_shape()), dtype_) * 0.1;
      case 34: {
        const Shape s = any_shape();
        return select(condition(s), like_any(s), like_any(s));
      }
      case 35:
      case 36:
      case 37: return edges();
      case 38:
      case 39: {  // a few steps, over what may be rows
        const Value x = with_extent(any_of(1), 0, 1 + pick(6));
        const Value init[] = {any(), fit(any(), x.shape().without(0))};
        const Scope scope(*this);
        ScanOptions options;
        options.reverse = chance(3);
        const int use = pick(3);
        auto [carry, ys] = scan(
            [&](Values c, Values now) {
              floats_.insert(floats_.end(), {c[0], c[1], now[0]});
              const Value next = tanh(fit(floating(step(depth - 1)), c[0].shape()) + c[0] * 0.5);
              floats_.push_back(next);
              const Value other = sin(fit(floating(step(depth - 1)), c[1].shape()) + c[1] * 0.4);
              Value y = floating(step(0));
              if (y.shape().size() * x.shape()[0] > most_elements_) y = other;
              return std::pair{std::vector{next, other}, std::vector{tanh(y)}};
            },
            init, std::span(&x, 1), options);
        return use == 0 ? carry[0] : use == 1 ? carry[1] : ys[0];
      }
      case 40: {
        const Value init[] = {fit(abs(rem(integers({}), constant(6, DType::I32))), {}), any(), any()};
        const Scope scope(*this);
        return while_loop([](Values c) { return greater(c[0], like(c[0], 0)); },
                          [&](Values c) {
                            floats_.insert(floats_.end(), {c[1], c[2]});
                            const Value next = tanh(fit(floating(step(depth - 1)), c[1].shape()));
                            return std::vector{c[0] - 1, next, c[2] * 0.7 + fit(next, c[2].shape()) * 0.2};
                          },
                          init, 6)[static_cast<std::size_t>(1 + pick(2))];
      }
      case 41: {
        const Value operands[] = {any()}, yes = greater(fit(any(), {}), like(leaves_[0], 0.1234567));
        const auto branch = [&](bool first) {
          return [&, first](Values o) {
            const Scope scope(*this);
            floats_.push_back(o[0]);
            return std::vector{first ? tanh(fit(floating(step(depth - 1)), o[0].shape())) : o[0] * 0.5};
          };
        };
        return cond(yes, branch(true), branch(false), operands)[0];
      }
      default: {
        const Value operands[] = {any(), any()};
        const Scope scope(*this);
        return checkpoint([&](Values o) {
          floats_.insert(floats_.end(), o.begin(), o.end());
          const Value v = floating(step(depth - 1));
          floats_.push_back(v);
          return std::vector{binary(v, like_any(v.shape()))};
        })(operands)[0];
      }
    }
  }
  Value floating(Value v) { return v.dtype() == dtype_ ? v : cast(v, dtype_); }

  // What a region adds is for the region alone.
  struct Scope {
    explicit Scope(RandomArrayProgram& of) : of(of), floats(of.floats_), ints(of.ints_), bools(of.bools_) {}
    Scope(const Scope&) = delete;
    Scope& operator=(const Scope&) = delete;
    ~Scope() { of.floats_ = floats, of.ints_ = ints, of.bools_ = bools; }
    RandomArrayProgram& of;
    std::vector<Value> floats, ints, bools;
  };

  static constexpr std::int64_t most_flops = 1500000;
  std::vector<Value> floats_, ints_, bools_, leaves_;
};

}  // namespace hotloop::testing
