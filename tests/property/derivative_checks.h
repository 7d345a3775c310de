// Checks of a function against the definition of its derivatives, by the oracle in f64.
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <string>
#include <vector>

#include "hotloop/ops.h"
#include "hotloop/transforms.h"
#include "ir/op_def.h"

namespace hotloop::testing {

using Arrays = std::vector<Array>;

inline std::vector<ValueType> types_of(const Arrays& arrays) {
  std::vector<ValueType> types;
  for (const Array& a : arrays) types.push_back(a.type());
  return types;
}

inline Arrays evaluate(const Function& fn, const Arrays& inputs) {
  const auto graph = trace(fn, types_of(inputs));
  ir::verify(*graph);
  return ir::evaluate(*graph, inputs);
}

inline Array random_like(std::mt19937_64& rng, const ValueType& type, double low = -1, double high = 1) {
  std::uniform_real_distribution<double> uniform(low, high);
  Array a(type.dtype, type.shape);
  for (std::int64_t i = 0; i < a.size(); ++i) a.set(i, is_float(type.dtype) ? uniform(rng) : 0);
  return a;
}

// Non-zero only for floats.
inline Arrays directions(std::mt19937_64& rng, const Arrays& at) {
  Arrays all;
  for (const Array& a : at) all.push_back(random_like(rng, a.type()));
  return all;
}

inline Arrays shifted(const Arrays& at, const Arrays& direction, double step) {
  Arrays all;
  for (std::size_t i = 0; i < at.size(); ++i) {
    all.push_back(at[i].clone());
    for (std::int64_t k = 0; is_float(at[i].dtype()) && k < at[i].size(); ++k)
      all[i].set(k, at[i].at(k) + step * direction[i].at(k));
  }
  return all;
}

inline double inner(const Arrays& a, const Arrays& b) {
  double sum = 0;
  for (std::size_t i = 0; i < a.size(); ++i)
    for (std::int64_t k = 0; is_float(a[i].dtype()) && k < a[i].size(); ++k) sum += a[i].at(k) * b[i].at(k);
  return sum;
}

inline void expect_close(const Arrays& a, const Arrays& b, double tolerance, const std::string& what) {
  ASSERT_EQ(a.size(), b.size()) << what;
  for (std::size_t i = 0; i < a.size(); ++i) {
    ASSERT_EQ(a[i].type(), b[i].type()) << what << ", output " << i;
    for (std::int64_t k = 0; k < a[i].size(); ++k) {
      const double x = a[i].at(k), y = b[i].at(k);
      ASSERT_LE(std::abs(x - y), tolerance * (1 + std::abs(y)))
          << what << ", output " << i << ", element " << k << ": " << x << " and " << y;
    }
  }
}

// fn's output tangents along the second half of the inputs; zero for integers.
inline Function jvp_of(const Function& fn) {
  return [fn](std::span<const Value> v) {
    const std::size_t n = v.size() / 2;
    std::vector<Value> tangents;
    for (std::size_t i = 0; i < n; ++i) tangents.push_back(is_float(v[i].dtype()) ? v[n + i] : Value{});
    auto [outputs, result] = jvp(fn, v.first(n), tangents);
    for (std::size_t i = 0; i < result.size(); ++i)
      if (!result[i].defined()) result[i] = zeros_like(outputs[i]);
    return result;
  };
}

inline Arrays joined(Arrays a, const Arrays& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

inline void check_jvp(const Function& fn, const Arrays& at, std::mt19937_64& rng, const std::string& what) {
  const double step = 1e-5;
  const Arrays direction = directions(rng, at);
  const Arrays forward = evaluate(jvp_of(fn), joined(at, direction));
  const Arrays high = evaluate(fn, shifted(at, direction, step)), low = evaluate(fn, shifted(at, direction, -step));
  Arrays difference;
  for (std::size_t i = 0; i < high.size(); ++i) {
    difference.push_back(Array::zeros(high[i].dtype(), high[i].shape()));
    for (std::int64_t k = 0; is_float(high[i].dtype()) && k < high[i].size(); ++k)
      difference[i].set(k, (high[i].at(k) - low[i].at(k)) / (2 * step));
  }
  expect_close(forward, difference, 1e-6, what + ": jvp and finite difference");
}

inline void check_vjp(const Function& fn, const Arrays& at, std::mt19937_64& rng, const std::string& what) {
  const Arrays direction = directions(rng, at);
  const Arrays tangents = evaluate(jvp_of(fn), joined(at, direction));
  const Arrays linear = evaluate(
      [&](std::span<const Value> v) {
        const std::size_t n = at.size();
        std::vector<Value> given;
        for (std::size_t i = 0; i < n; ++i) given.push_back(is_float(v[i].dtype()) ? v[n + i] : Value{});
        return linearize(fn, v.first(n)).second(given);
      },
      joined(at, direction));
  expect_close(linear, tangents, 1e-10, what + ": linearize and jvp");
  const Arrays cotangents = directions(rng, tangents);
  const Arrays back = evaluate(
      [&](std::span<const Value> v) {
        const std::size_t n = at.size();
        auto [outputs, pullback] = vjp(fn, v.first(n));
        std::vector<Value> given(v.begin() + static_cast<std::ptrdiff_t>(n), v.end());
        return pullback(given);
      },
      joined(at, cotangents));
  const double forward_inner = inner(cotangents, tangents), back_inner = inner(back, direction);
  ASSERT_LE(std::abs(forward_inner - back_inner), 1e-9 * (1 + std::abs(forward_inner)))
      << what << ": vjp and jvp disagree, " << back_inner << " and " << forward_inner;
}

// A scalar that depends on every float output of fn, by smooth weights.
inline Function scalar_of(const Function& fn) {
  return [fn](std::span<const Value> v) {
    Value total;
    double weight = 0.7;
    for (const Value& y : fn(v)) {
      if (!is_float(y.dtype())) continue;
      const Value part = sum(sin(y) + y * y * 0.3) * weight;
      total = total.defined() ? total + part : part;
      weight += 0.4;
    }
    return std::vector{total};
  };
}

inline std::vector<int> float_inputs(const Arrays& at) {
  std::vector<int> all;
  for (std::size_t i = 0; i < at.size(); ++i)
    if (is_float(at[i].dtype())) all.push_back(static_cast<int>(i));
  return all;
}

// vmap over the flagged inputs, against the function applied to one element after another.
inline void check_vmap(const Function& fn, const Arrays& at, const std::vector<int>& in_axes, std::int64_t size,
                       std::mt19937_64& rng, const std::string& what) {
  Arrays batched;
  std::vector<Arrays> elements(static_cast<std::size_t>(size), at);
  for (std::size_t i = 0; i < at.size(); ++i) {
    if (in_axes[i] < 0) {
      batched.push_back(at[i]);
      continue;
    }
    // Elements are the sample itself, moved a little; the axis is the leading one here, and moved by the caller's choice below.
    Array all(at[i].dtype(), at[i].shape().with_inserted(0, size));
    for (std::int64_t b = 0; b < size; ++b) {
      Array one = shifted({at[i]}, {random_like(rng, at[i].type(), -0.1, 0.1)}, 1)[0];
      for (std::int64_t k = 0; k < one.size(); ++k) all.set(b * one.size() + k, one.at(k));
      elements[static_cast<std::size_t>(b)][i] = one;
    }
    batched.push_back(all);
  }
  std::vector<int> leading;
  for (const int axis : in_axes) leading.push_back(axis < 0 ? -1 : 0);
  const Arrays mapped = evaluate(vmap(fn, leading), batched);
  Arrays looped;
  for (std::int64_t b = 0; b < size; ++b) {
    const Arrays one = evaluate(fn, elements[static_cast<std::size_t>(b)]);
    for (std::size_t i = 0; i < one.size(); ++i) {
      if (b == 0) looped.push_back(Array(one[i].dtype(), one[i].shape().with_inserted(0, size)));
      for (std::int64_t k = 0; k < one[i].size(); ++k) looped[i].set(b * one[i].size() + k, one[i].at(k));
    }
  }
  expect_close(mapped, looped, 1e-12, what + ": vmap and a loop");
}

// Everything a differentiable function must satisfy, to second order.
inline void check_derivatives(const Function& fn, const Arrays& at, std::mt19937_64& rng, const std::string& what,
                              int order = 2) {
  check_jvp(fn, at, rng, what);
  check_vjp(fn, at, rng, what);
  if (order < 2 || ::testing::Test::HasFatalFailure()) return;
  const Function gradient = grad(scalar_of(fn), float_inputs(at));
  check_jvp(gradient, at, rng, what + ", gradient");
  check_vjp(gradient, at, rng, what + ", gradient");
  if (order > 2) check_jvp(grad(scalar_of(gradient), float_inputs(at)), at, rng, what + ", gradient of gradient");
}

}  // namespace hotloop::testing
