// DETEST: 25 problems that are not stiff, from t = 0 to 20 (Hull, Enright, Fellen, Sedgwick 1972). Their solutions are recorded by
// scripts/record_scipy_ode.py, where the same formulas stand.
#pragma once

#include <string>
#include <vector>

#include "ode_problems.h"

namespace hotloop::testing {

struct Detest {
  std::string name;
  ode::Field field;
  // What the problem makes of the errors of steps: the global error, relative to max(1, |y|), of every explicit solver stays below so many
  // tolerances, from 1e-3 to 1e-9. Within a factor of four of what was measured.
  double amplification = 1;
};

namespace detest {

// y' = a y.
inline ode::Field linear(std::int64_t n, const std::function<double(std::int64_t row, std::int64_t column)>& a) {
  Array matrix = Array::zeros(DType::F64, {n, n});
  for (std::int64_t i = 0; i < n; ++i)
    for (std::int64_t k = 0; k < n; ++k) matrix.set(n * i + k, a(i, k));
  return [matrix](Value, const Tree<Value>& y, const Tree<Value>&) {
    return Tree<Value>(matmul(constant(matrix), y.leaf()));
  };
}

// Radioactive decay: component i becomes i + 1 with rate(i), the last stays.
inline ode::Field chain(const std::function<double(std::int64_t)>& rate) {
  return linear(10, [&](std::int64_t row, std::int64_t column) {
    const double out = column < 9 ? rate(column) : 0;
    return row == column ? -out : row == column + 1 ? out : 0;
  });
}

// A rod that cools at both ends.
inline ode::Field heat(std::int64_t n) {
  return linear(n, [](std::int64_t row, std::int64_t column) {
    return row == column ? -2.0 : std::abs(row - column) == 1 ? 1.0 : 0.0;
  });
}

// Sun and five outer planets: coordinates (3, 5), then velocities.
inline Tree<Value> planets(Value, const Tree<Value>& state, const Tree<Value>&) {
  const Value masses = constant(
      vector_of({0.000954786104043, 0.000285583733151, 0.0000437273164546, 0.0000517759138449, 0.00000277777777778}));
  const Value q = reshape(narrow(state.leaf(), 0, 0, 15), {3, 5}), v = narrow(state.leaf(), 0, 15, 15);
  Array diagonal = Array::zeros(DType::F64, {5, 5});
  for (std::int64_t i = 0; i < 5; ++i) diagonal.set(6 * i, 1);
  const Value same = constant(diagonal);
  const auto cubed = [](Value squares) { return squares * sqrt(squares); };
  const Value near_sun = q / cubed(reduce_sum(square(q), {0}));
  const Value apart = expand_dims(q, 1) - expand_dims(q, 2);  // [axis, j, k]: from j to k
  const Value pull = masses * (apart / (cubed(reduce_sum(square(apart), {0}) + same)) - expand_dims(near_sun, 1));
  const Value others = reduce_sum(pull * (1.0 - same), {2});
  const Value force = 2.95912208286 * (others - (1.00000597682 + masses) * near_sun);
  const Value parts[] = {v, reshape(force, {15})};
  return Tree<Value>(concat(parts, 0));
}

inline Components orbit(Value, const Components& y) {
  const Value r = sqrt(square(y[0]) + square(y[1])), r3 = r * r * r;
  return {y[2], y[3], -y[0] / r3, -y[1] / r3};
}

}  // namespace detest

inline const std::vector<Detest>& detest_problems() {
  using namespace detest;
  static const std::vector<Detest> table = {
      {"A1", on_components([](Value, const Components& y) { return Components{-y[0]}; }), 10},
      {"A2", on_components([](Value, const Components& y) { return Components{-0.5 * y[0] * y[0] * y[0]}; }), 10},
      {"A3", on_components([](Value t, const Components& y) { return Components{y[0] * cos(t)}; }), 100},
      {"A4", on_components([](Value, const Components& y) { return Components{0.25 * y[0] * (1 - 0.05 * y[0])}; }), 10},
      {"A5", on_components([](Value t, const Components& y) { return Components{(y[0] - t) / (y[0] + t)}; }), 200},
      {"B1", on_components([](Value, const Components& y) {
         return Components{2 * (y[0] - y[0] * y[1]), -(y[1] - y[0] * y[1])};
       }),
       1000},
      {"B2", on_components([](Value, const Components& y) {
         return Components{y[1] - y[0], y[0] - 2 * y[1] + y[2], y[1] - y[2]};
       }),
       10},
      {"B3", on_components([](Value, const Components& y) {
         return Components{-y[0], y[0] - square(y[1]), square(y[1])};
       }),
       5},
      {"B4", on_components([](Value, const Components& y) {
         const Value r = sqrt(square(y[0]) + square(y[1]));
         return Components{-y[1] - y[0] * y[2] / r, y[0] - y[1] * y[2] / r, y[0] / r};
       }),
       1000},
      {"B5", on_components([](Value, const Components& y) {
         return Components{y[1] * y[2], -y[0] * y[2], -0.51 * y[0] * y[1]};
       }),
       200},
      {"C1", chain([](std::int64_t) { return 1.0; }), 20},
      {"C2", chain([](std::int64_t i) { return static_cast<double>(i + 1); }), 20},
      {"C3", heat(10), 10},
      {"C4", heat(51), 20},
      {"C5", planets, 1000},
      {"D1", on_components(orbit), 5000},
      {"D2", on_components(orbit), 5000},
      {"D3", on_components(orbit), 5000},
      {"D4", on_components(orbit), 1000},
      {"D5", on_components(orbit), 2000},
      {"E1", on_components([](Value t, const Components& y) {
         return Components{y[1], -(y[1] / (t + 1) + (1 - 0.25 / square(t + 1)) * y[0])};
       }),
       100},
      {"E2", on_components([](Value, const Components& y) {
         return Components{y[1], (1 - square(y[0])) * y[1] - y[0]};
       }),
       200},
      {"E3", on_components([](Value t, const Components& y) {
         return Components{y[1], y[0] * y[0] * y[0] / 6 - y[0] + 2 * sin(2.78535 * t)};
       }),
       1000},
      {"E4", on_components([](Value, const Components& y) {
         return Components{y[1], 0.032 - 0.4 * square(y[1])};
       }),
       10},
      {"E5", on_components([](Value t, const Components& y) {
         return Components{y[1], sqrt(1 + square(y[1])) / (25 - t)};
       }),
       5},
  };
  return table;
}

}  // namespace hotloop::testing
