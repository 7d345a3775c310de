// Programs of values of any rank put together at random: all families of ops, odd extents, indices that are computed, loops of every kind
// inside one another. What a program holds depends on its seed alone, so that it is the same whenever it is traced.
#pragma once

#include <algorithm>
#include <cstdint>
#include <random>
#include <span>
#include <utility>
#include <vector>

#include "hotloop/ops.h"

namespace hotloop::testing {

class RandomProgram {
 public:
  using Values = std::span<const Value>;

  RandomProgram(std::uint64_t seed, DType dtype, int depth = 2) : rng_(seed), dtype_(dtype), depth_(depth) {}

  // Floats of any shapes, and i32 values at least 0, of any shapes -> three floats of at most `largest` elements.
  std::vector<Value> operator()(Values inputs, std::int64_t largest = 40) {
    for (const Value& v : inputs) (is_float(v.dtype()) ? floats_ : indices_).push_back(v);
    indices_.push_back(iota(DType::I32, {3}, 0));
    for (int i = 0, n = 3 + pick(5); i < n; ++i) floats_.push_back(bounded(step(depth_)));
    return {at_most(floats_.back(), largest), at_most(floats_[floats_.size() - 2], largest), at_most(any(), largest)};
  }

 private:
  static constexpr std::int64_t max_size = 600;

  int pick(int n) { return static_cast<int>(rng_() % static_cast<std::uint64_t>(n)); }
  int pick(std::int64_t n) { return pick(static_cast<int>(n)); }
  std::int64_t extent() {
    constexpr std::int64_t extents[] = {1, 2, 3, 3, 5, 7, 8, 13, 16, 17, 33};
    return extents[pick(11)];
  }
  const Value& one_of(const std::vector<Value>& pool) {
    return pool[static_cast<std::size_t>(pick(static_cast<int>(pool.size())))];
  }
  // Later values more often, so that programs are deep.
  Value any() {
    const int n = static_cast<int>(floats_.size());
    return floats_[static_cast<std::size_t>(pick(2) ? n - 1 - pick(std::min(n, 3)) : pick(n))];
  }
  Value any_index() { return one_of(indices_); }
  Value bounded(Value v) {
    v = at_most(v, max_size);
    switch (pick(4)) {
      case 0: return v;
      case 1: return v * 0.7;
      default: return tanh(v);
    }
  }
  Value flat(Value v) { return reshape(v, {v.shape().size()}); }
  Value at_most(Value v, std::int64_t size) {
    while (v.shape().size() > size) {
      int axis = 0;
      for (int a = 1; a < v.rank(); ++a)
        if (v.shape()[a] > v.shape()[axis]) axis = a;
      const std::int64_t half = (v.shape()[axis] + 1) / 2;
      v = narrow(v, axis, pick(2) ? v.shape()[axis] - half : 0, half);
    }
    return v;
  }
  // v with that extent along an axis: cut, padded, or repeated.
  Value fit(Value v, int axis, std::int64_t extent) {
    const std::int64_t has = v.shape()[axis];
    if (has > extent) return narrow(v, axis, pick(has - extent + 1), extent);
    if (has == extent) return v;
    std::vector<std::int64_t> low(static_cast<std::size_t>(v.rank())), high(low);
    if (pick(2)) {
      const std::int64_t before = pick(extent - has + 1);
      low[static_cast<std::size_t>(axis)] = before, high[static_cast<std::size_t>(axis)] = extent - has - before;
      return pad(v, like(v, 0.25), low, high, low_zero(v));
    }
    std::vector<Value> parts;
    std::int64_t total = 0;
    for (; total < extent; total += has) parts.push_back(pick(2) ? v : v * 0.9);
    return narrow(concat(parts, axis), axis, 0, extent);
  }
  static std::vector<std::int64_t> low_zero(const Value& v) {
    return std::vector<std::int64_t>(static_cast<std::size_t>(v.rank()));
  }
  // v in that shape, by cuts and repeats of a flat view, or axis by axis.
  Value in_shape(Value v, const Shape& shape) {
    if (v.shape() == shape) return v;
    if (v.rank() == 0) return broadcast_to(v, shape);
    if (v.rank() == shape.rank() && pick(2)) {
      for (int a = 0; a < shape.rank(); ++a) v = fit(v, a, shape[a]);
      return v;
    }
    if (shape.rank() > 0 && pick(3) == 0) {  // a broadcast along all axes but one
      const int axis = pick(shape.rank());
      return broadcast(fit(flat(v), 0, shape[axis]), shape, {axis});
    }
    if (shape.rank() == 0) return total(v);
    return reshape(fit(flat(v), 0, shape.size()), shape);
  }
  Value total(Value v) {
    if (v.rank() == 0) return v;
    switch (pick(4)) {
      case 0: return reduce_max(flat(v), {0});
      case 1: return mean(v);
      case 2: return take(flat(v), 0, pick(v.shape().size()));
      default: return sum(v) * 0.2;
    }
  }
  Value any_of_rank(int rank) {
    Value v = any();
    for (int tries = 0; tries < 4 && v.rank() != rank; ++tries) v = any();
    while (v.rank() > rank) v = pick(2) ? reshape(v, merged(v.shape())) : take(v, pick(v.rank()), -1);
    while (v.rank() < rank) {
      if (pick(2) == 0) {
        v = expand_dims(v, pick(v.rank() + 1));
      } else {
        Shape shape = v.shape();
        const int axis = pick(v.rank() + 1);
        std::vector<std::int64_t> axes;
        for (int a = 0; a < v.rank(); ++a) axes.push_back(a < axis ? a : a + 1);
        v = broadcast(v, shape.with_inserted(axis, 1 + pick(3)), axes);
      }
    }
    return at_most(v, max_size);
  }
  static Shape merged(const Shape& shape) {
    std::vector<std::int64_t> extents;
    for (int a = 0; a < shape.rank(); ++a) extents.push_back(shape[a]);
    extents[1] *= extents[0];
    extents.erase(extents.begin());
    return Shape(extents);
  }
  Value any_scalar() { return total(any()); }
  Value any_vector(std::int64_t extent) { return fit(any_of_rank(1), 0, extent); }
  // b so that it broadcasts to a's shape: some of its axes are one element long, or leading ones are missing.
  Value beside(Value a) {
    if (pick(4) == 0) return in_shape(any(), a.shape());
    const int rank = pick(a.rank() + 1);
    std::vector<std::int64_t> extents;
    for (int i = a.rank() - rank; i < a.rank(); ++i) extents.push_back(pick(3) ? a.shape()[i] : 1);
    return in_shape(any(), Shape(extents));
  }
  std::vector<std::int64_t> some_axes(const Value& v) {
    std::vector<std::int64_t> axes;
    for (int a = 0; a < v.rank(); ++a)
      if (pick(2)) axes.push_back(a);
    if (axes.empty() && v.rank() > 0) axes.push_back(pick(v.rank()));
    return axes;
  }
  Value condition(Value v) {  // at thresholds that no simple expression meets
    const Value at = like(v, 0.1234567);
    switch (pick(3)) {
      case 0: return greater(v, at);
      case 1: return less(v, at);
      default: return bit_or(greater(v, at), less(v, like(v, -0.3456712)));
    }
  }
  // Indices at least 0; mostly small.
  Value new_index() {
    const Value v = any_index(), w = any_index();
    const Value n = constant(2 + pick(9), DType::I32), m = constant(1 + pick(4), DType::I32);
    switch (pick(9)) {
      case 0: return rem(v * m + constant(pick(5), DType::I32), n);
      case 1: return v / m;
      case 2: return shift_right(v, constant(1, DType::I32));
      case 3: return bit_xor(v, constant(1 + pick(3), DType::I32));
      case 4: {
        const Value f = any_of_rank(1 + pick(2));
        return argmax(f, pick(f.rank()));
      }
      case 5: return cast(condition(any()), DType::I32) * m;
      case 6: {
        const Value f = flat(v);
        return maximum(f, narrow(concat(std::vector{f, reverse(f, {0})}, 0), 0, f.shape()[0] / 2, f.shape()[0]));
      }
      case 7: return cast(floor(abs(at_most(any(), 40)) * 7.123), DType::I32);
      default: {
        const Value s = reduce_sum(flat(w), {0});
        return rem(s, n);
      }
    }
  }
  Value small_index() { return at_most(any_index(), 12); }
  Value index_scalar() {
    const Value v = any_index();
    return v.rank() == 0 ? v : take(flat(v), 0, pick(v.shape().size()));
  }
  std::vector<Value> starts_of(int rank) {
    std::vector<Value> starts;
    for (int a = 0; a < rank; ++a) starts.push_back(pick(2) ? index_scalar() : constant(pick(3), DType::I32));
    return starts;
  }

  Value step(int depth) {
    if (pick(5) == 0) indices_.push_back(at_most(new_index(), 40));
    const int kinds = 27;
    const int loops = depth > 0 ? 9 : 0;
    const int kind = pick(kinds + loops);
    return kind < kinds ? simple(kind) : control(kind - kinds, depth);
  }

  Value simple(int kind) {
    const Value v = any();
    switch (kind) {
      case 0: return v + beside(v);
      case 1: return v * beside(v) - any_scalar();
      case 2: return v / (1.3 + square(beside(v)));
      case 3: {
        const Value w = beside(v);
        switch (pick(4)) {
          case 0: return maximum(v, w * 0.917 + 0.01234);
          case 1: return minimum(w, v * 0.913 - 0.01234);
          case 2: return pow(sigmoid(v) + 0.5, w);
          default: return v - w * 0.3;
        }
      }
      case 4:
        switch (pick(12)) {
          case 0: return sin(v * 1.3) + cos(v);
          case 1: return exp(v * 0.4);
          case 2: return expm1(v * 0.3);
          case 3: return log1p(square(v));
          case 4: return sqrt(square(v) + 0.2);
          case 5: return erf(v);
          case 6: return rsqrt(square(v) + 0.7);
          case 7: return softplus(v);
          case 8: return gelu(v);
          case 9: return clip(v, -0.61237, 0.53711);
          case 10: return abs(v - 0.0371) + sign(v - 0.0123) * 0.2;
          default: return relu(v - 0.01331) + floor(v * 1.731) * 0.1;
        }
      case 5: return sigmoid(v) * 1.5 - 0.3;
      case 6: return select(condition(v), beside(v) * ones_like(v), v * 0.5);
      case 7: return select(condition(beside(v) * ones_like(v)), v, like(v, 0.3) * ones_like(v));
      case 8: return reduce_sum(v, some_axes(v)) * 0.3;
      case 9: return v.rank() == 0 ? v : mean(v, some_axes(v));
      case 10: {
        // Products and extremes of what has no two equal elements by construction.
        const Value w =
            v.rank() == 0 ? v : v + reshape(cast(iota(DType::I32, {v.shape().size()}, 0), dtype_) * 0.0137, v.shape());
        switch (pick(3)) {
          case 0: return reduce_prod(w * 0.2 + 0.9, some_axes(w));
          case 1: return reduce_max(w, some_axes(w));
          default: return reduce_min(w, some_axes(w));
        }
      }
      case 11: return v.rank() == 0 ? softplus(v) : pick(2) ? softmax(v, pick(v.rank())) : logsumexp(v, pick(v.rank()));
      case 12: {
        if (v.rank() == 0) return v;
        const auto axes = some_axes(v);
        Shape kept = v.shape();
        std::vector<std::int64_t> extents;
        for (int a = 0; a < v.rank(); ++a)
          extents.push_back(std::find(axes.begin(), axes.end(), a) == axes.end() ? v.shape()[a] : 1);
        return (v - reshape(mean(v, axes), Shape(extents))) * reshape(rsqrt(variance(v, axes) + 0.1), Shape(extents));
      }
      case 13: {  // another factorisation
        std::int64_t n = v.shape().size();
        std::vector<std::int64_t> extents;
        for (const std::int64_t f : {2, 3, 5, 2})
          if (n % f == 0 && pick(2)) extents.push_back(f), n /= f;
        extents.push_back(n);
        if (extents.size() > 3) extents.resize(3), extents[2] = v.shape().size() / extents[0] / extents[1];
        std::shuffle(extents.begin(), extents.end(), rng_);
        return reshape(v, Shape(extents));
      }
      case 14: {
        const Value w = any_of_rank(2 + pick(2));
        std::vector<std::int64_t> p;
        for (int a = 0; a < w.rank(); ++a) p.push_back(a);
        std::shuffle(p.begin(), p.end(), rng_);
        return transpose(w, p);
      }
      case 15: {
        if (v.rank() == 0) return v;
        std::vector<std::int64_t> start, stop, by;
        for (int a = 0; a < v.rank(); ++a) {
          start.push_back(pick(v.shape()[a]));
          stop.push_back(start.back() + 1 + pick(v.shape()[a] - start.back()));
          by.push_back(1 + pick(3));
        }
        return slice(v, start, stop, by);
      }
      case 16: {
        std::vector<std::int64_t> low, high, inside;
        for (int a = 0; a < v.rank(); ++a)
          low.push_back(pick(3)), high.push_back(pick(2)), inside.push_back(pick(3) ? 0 : 1);
        return pad(v, pick(2) ? like(v, 0.25) : any_scalar(), low, high, inside);
      }
      case 17: {
        if (v.rank() == 0) return stack(std::vector{v, any_scalar(), v * 0.5}, 0);
        const int axis = pick(v.rank());
        std::vector<Value> parts{v};
        for (int i = 0, n = 1 + pick(2); i < n; ++i) {
          std::vector<std::int64_t> extents;
          for (int a = 0; a < v.rank(); ++a) extents.push_back(a == axis ? 1 + pick(4) : v.shape()[a]);
          parts.insert(parts.begin() + pick(2), in_shape(any(), Shape(extents)));
        }
        return concat(parts, axis);
      }
      case 18: return v.rank() == 0 ? v : reverse(v, some_axes(v));
      case 19: {
        const Value w = any_of_rank(1 + pick(2));
        const int axis = pick(w.rank());
        const std::int64_t size = 1 + pick(std::min<std::int64_t>(w.shape()[axis], 4)), dilation = 1 + pick(2);
        if ((size - 1) * dilation + 1 > w.shape()[axis]) return w;
        return windows(w, axis, size, 1 + pick(3), dilation);
      }
      case 20: {  // gather
        const Value w = any_of_rank(1 + pick(2));
        return gather(w, small_index(), pick(w.rank()));
      }
      case 21: {  // each lane has indices of its own
        const Value w = any_of_rank(2 + pick(2));
        const std::int64_t lanes = w.shape()[0], k = 1 + pick(3);
        const Value f = flat(any_index());
        std::vector<Value> parts(static_cast<std::size_t>((lanes * k + f.shape()[0] - 1) / f.shape()[0]), f);
        const Value index = reshape(narrow(concat(parts, 0), 0, 0, lanes * k), {lanes, k});
        if (pick(2)) return gather(w, index, 1, 1);
        std::vector<std::int64_t> extents{lanes, k};
        for (int a = 2; a < w.rank(); ++a) extents.push_back(w.shape()[a]);
        return scatter_add(w, index, in_shape(any(), Shape(extents)), 1, 1);
      }
      case 22: {
        const Value w = any_of_rank(1 + pick(2)), index = small_index();
        const int axis = pick(w.rank());
        std::vector<std::int64_t> extents;
        for (int a = 0; a < axis; ++a) extents.push_back(w.shape()[a]);
        for (int a = 0; a < index.rank(); ++a) extents.push_back(index.shape()[a]);
        for (int a = axis + 1; a < w.rank(); ++a) extents.push_back(w.shape()[a]);
        return scatter_add(w, index, in_shape(any(), Shape(extents)), axis);
      }
      case 23: {
        if (v.rank() == 0) return v;
        std::vector<std::int64_t> sizes;
        for (int a = 0; a < v.rank(); ++a) sizes.push_back(1 + pick(v.shape()[a]));
        const auto starts = starts_of(v.rank());
        if (pick(2)) return dynamic_slice(v, starts, sizes);
        return dynamic_update(v, in_shape(any(), Shape(sizes)), starts);
      }
      case 24: {  // a dot with any axes
        const Value a = any_of_rank(2 + pick(2)), b = any_of_rank(2 + pick(2));
        const int ca = pick(a.rank()), cb = pick(b.rank());
        Value fitted = fit(b, cb, a.shape()[ca]);
        DotAxes axes{{ca}, {cb}, {}, {}};
        if (pick(2)) {
          const int ba = (ca + 1) % a.rank(), bb = (cb + 1) % b.rank();
          fitted = fit(fitted, bb, a.shape()[ba]);
          axes.lhs_batch = {ba}, axes.rhs_batch = {bb};
        }
        return dot(at_most_free(a, axes.lhs_contract, axes.lhs_batch),
                   at_most_free(fitted, axes.rhs_contract, axes.rhs_batch), axes) *
               0.4;
      }
      case 25: {
        const Value a = any_of_rank(1 + pick(2)), b = any_of_rank(2);
        return tanh(matmul(a, fit(b, 0, a.shape()[a.rank() - 1])) * 0.5);
      }
      default: return cast(small_index(), dtype_) * 0.2 + any_scalar();
    }
  }
  // Free axes of at most 6 elements, so that products of tensors stay small.
  Value at_most_free(Value v, const std::vector<std::int64_t>& contract, const std::vector<std::int64_t>& batch) {
    for (int a = 0; a < v.rank(); ++a)
      if (a != contract[0] && (batch.empty() || a != batch[0]) && v.shape()[a] > 6) v = narrow(v, a, 1, 6);
    return v;
  }

  Value control(int kind, int depth) {
    const char* policies[] = {"", "save", "recompute", "save_if_small"};
    switch (kind) {
      case 0:
      case 1:
      case 2: {  // a scan with carries and outputs of any shapes
        std::vector<Value> init, xs;
        const std::int64_t length = 1 + pick(7);
        for (int i = 0, n = 1 + pick(3); i < n; ++i) init.push_back(at_most(any(), 60));
        for (int i = 0, n = pick(3); i < n; ++i) xs.push_back(fit(any_of_rank(1 + pick(3)), 0, length));
        const bool counts = pick(3) == 0;
        if (counts) init.push_back(index_scalar());
        const ScanOptions options{length, pick(2) == 1, policies[pick(4)]};
        const int num_ys = pick(3), index_xs = pick(4);
        if (index_xs == 0) xs.push_back(iota(DType::I32, {length}, 0));
        auto [carry, ys] = scan([&](Values c, Values x) { return body(c, x, num_ys, depth); }, init, xs, options);
        if (counts) indices_.push_back(carry.back());
        return result_of(carry, ys);
      }
      case 3: {  // as many iterations as a number says, of at most so many
        LoopSpec spec;
        for (int i = 0, n = 1 + pick(2); i < n; ++i) spec.carry.push_back(at_most(any(), 60));
        const Value init[] = {rem(index_scalar(), constant(6, DType::I32)), spec.carry[0], any_scalar()};
        return while_loop([&](Values c) { return greater(c[0], like(c[0], 0)); },
                          [&](Values c) {
                            auto next = body(c.subspan(1), {}, 0, depth).first;
                            next.insert(next.begin(), c[0] - 1);
                            return next;
                          },
                          init, 5 + pick(3))[1];
      }
      case 4: {  // until a number is large enough
        const Value init[] = {any_scalar(), at_most(any(), 60)};
        return while_loop([&](Values c) { return less(abs(c[0]), like(c[0], 3)); },
                          [&](Values c) {
                            auto next = body(c.subspan(1), {}, 0, depth).first;
                            return std::vector{c[0] * 1.1 + 0.713 + tanh(sum(next[0])) * 0.2, next[0]};
                          },
                          init, 7)[1];
      }
      case 5: {
        const Value operands[] = {at_most(any(), 100), any_scalar()};
        const auto branch = [&](int which) {
          return [&, which](Values o) {
            const Scope scope(*this);
            floats_.insert(floats_.end(), o.begin(), o.end());
            return std::vector{which ? in_shape(tanh(step(depth - 1)), o[0].shape()) : o[0] * 0.5 + o[1]};
          };
        };
        return cond(condition(any_scalar()), branch(1), branch(pick(2)), operands)[0];
      }
      case 6: {
        const Value operands[] = {at_most(any(), 100), any()};
        const Scope scope(*this);
        return checkpoint([&](Values o) {
          floats_.insert(floats_.end(), o.begin(), o.end());
          return std::vector{bounded(step(depth - 1))};
        })(operands)[0];
      }
      case 7: {  // a cell: products with what does not change, of a row and of a state
        const std::int64_t t = 1 + pick(6), w = extent(), h = std::min<std::int64_t>(extent(), 17);
        const Value xs[] = {in_shape(any(), {t, std::min<std::int64_t>(w, 13)})};
        const Value in = in_shape(any(), {xs[0].shape()[1], h}) * 0.5, back = in_shape(any(), {h, h}) * 0.3,
                    bias = any_vector(h);
        const Value init[] = {any_vector(h), any_vector(h)};
        const ScanOptions options{-1, pick(2) == 1, policies[pick(3)]};
        auto [carry, ys] = scan(
            [&](Values c, Values x) {
              const Value gate = sigmoid(matmul(x[0], in) + matmul(c[0], back) + bias);
              const Value state = c[1] * gate + tanh(matmul(c[0], back)) * (1.0 - gate);
              return std::pair{std::vector{tanh(state), state}, std::vector{state * gate}};
            },
            init, xs, options);
        return result_of(carry, ys);
      }
      default: {  // rows that are written into a table and read again, as in dynamic programs
        const std::int64_t n = 2 + pick(5), w = std::min<std::int64_t>(extent(), 8);
        const Value rows = in_shape(any(), {n, w}), init[] = {in_shape(any(), {n, w})};
        const Value steps[] = {iota(DType::I32, {n}, 0), rows};
        const bool reversed = pick(2) == 1;
        const int how = pick(3);
        return scan(
                   [&](Values c, Values x) {
                     const Value zero = constant(0, DType::I32), before = maximum(x[0] - 1, zero);
                     const Value from[] = {before, zero}, to[] = {x[0], zero};
                     const Value row = tanh(reshape(dynamic_slice(c[0], from, {1, w}), {w}) + x[1] * 0.5);
                     Value next = dynamic_update(c[0], reshape(row, {1, w}), to);
                     if (how == 1) next = scatter_add(c[0] * 0.9, reshape(x[0], {1}), reshape(row, {1, w}), 0);
                     if (how == 2) next = next + gather(c[0], x[0], 0) * 0.1;
                     return std::pair{std::vector{next}, std::vector<Value>{}};
                   },
                   init, steps, {-1, reversed, ""})
            .first[0];
      }
    }
  }
  std::pair<std::vector<Value>, std::vector<Value>> body(Values c, Values x, int num_ys, int depth) {
    const Scope scope(*this);
    const std::vector<Value> carry(c.begin(), c.end());
    for (const Values& part : {c, x})
      for (const Value& v : part) (is_float(v.dtype()) ? floats_ : indices_).push_back(v);
    for (int i = 0, n = 1 + pick(3); i < n; ++i) floats_.push_back(bounded(step(depth - 1)));
    std::vector<Value> next, ys;
    for (const Value& v : carry) {
      if (!is_float(v.dtype()))
        next.push_back(rem(v * 3 + 1, constant(7, DType::I32)));
      else
        next.push_back(pick(6) == 0 ? in_shape(one_of(carry_floats(carry)), v.shape())
                                    : tanh(in_shape(any(), v.shape()) + v * 0.5));
    }
    for (int i = 0; i < num_ys; ++i) ys.push_back(at_most(pick(2) ? any() : tanh(any()) * 0.9, 60));
    return {next, ys};
  }
  static std::vector<Value> carry_floats(const std::vector<Value>& carry) {
    std::vector<Value> all;
    for (const Value& v : carry)
      if (is_float(v.dtype())) all.push_back(v);
    return all;
  }
  Value result_of(const std::vector<Value>& carry, const std::vector<Value>& ys) {
    for (const Value& v : carry)
      if (is_float(v.dtype()) && pick(2)) floats_.push_back(v);
    for (const Value& v : ys)
      if (pick(2)) floats_.push_back(at_most(v, max_size));
    if (!ys.empty() && pick(2)) return pick(2) ? one_of(ys) : take(one_of(ys), 0, -1);
    return one_of(carry_floats(carry));
  }

  // What a region adds is for the region alone.
  struct Scope {
    explicit Scope(RandomProgram& p) : program(p), floats(p.floats_), indices(p.indices_) {}
    ~Scope() { program.floats_ = floats, program.indices_ = indices; }
    RandomProgram& program;
    std::vector<Value> floats, indices;
  };

  std::mt19937_64 rng_;
  DType dtype_;
  int depth_;
  std::vector<Value> floats_, indices_;
};

}  // namespace hotloop::testing
