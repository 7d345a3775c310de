// Differential equations that several tests solve. The same formulas stand in scripts/record_ode.py.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "hotloop/ode.h"
#include "hotloop/ops.h"

namespace hotloop::testing {

inline Array vector_of(const std::vector<double>& values) {
  return Array::from(values, {static_cast<std::int64_t>(values.size())});
}

struct Problem {
  ode::Field field;
  double t0, t1;
  std::vector<double> y0;
};

// A field on one leaf (n,), written on its components.
using Components = std::vector<Value>;
inline ode::Field on_components(std::function<Components(Value t, const Components& y)> fn) {
  return [fn](Value t, const Tree<Value>& y, const Tree<Value>&) {
    Components parts;
    for (std::int64_t i = 0; i < y.leaf().shape()[0]; ++i) parts.push_back(take(y.leaf(), 0, i));
    return Tree<Value>(stack(fn(t, parts), 0));
  };
}

inline const std::map<std::string, Problem>& problems() {
  static const std::map<std::string, Problem> table = {
      {"decay",
       {[](Value, const Tree<Value>& y, const Tree<Value>&) { return Tree<Value>(-y.leaf()); }, 0, 5, {1, -2}}},
      {"oscillator",
       {on_components([](Value, const Components& y) {
          return Components{y[1], -4 * y[0]};
        }),
        0,
        6,
        {1, 0.5}}},
      {"lotka_volterra",
       {on_components([](Value, const Components& y) {
          return Components{1.5 * y[0] - y[0] * y[1], y[0] * y[1] - 3 * y[1]};
        }),
        0,
        10,
        {1, 1}}},
      {"lorenz",
       {on_components([](Value, const Components& y) {
          return Components{10 * (y[1] - y[0]), y[0] * (28 - y[2]) - y[1], y[0] * y[1] - 8.0 / 3 * y[2]};
        }),
        0,
        2,
        {1, 0, 0}}},
      {"van_der_pol",
       {on_components([](Value, const Components& y) {
          return Components{y[1], 5 * (1 - square(y[0])) * y[1] - y[0]};
        }),
        0,
        12,
        {2, 0}}},
      {"forced",
       {[](Value t, const Tree<Value>& y, const Tree<Value>&) {
          return Tree<Value>(cos(3 * t) * y.leaf() - 0.1 * y.leaf() * y.leaf());
        },
        0,
        8,
        {0.7}}},
      {"backwards",
       {on_components([](Value t, const Components& y) {
          return Components{y[1], -sin(y[0]) - 0.1 * t * y[1]};
        }),
        3,
        -1,
        {0.4, 0.1}}},
  };
  return table;
}
inline const Problem& problem(const std::string& name) { return problems().at(name); }

// Air pollution: 25 reactions of 20 species (Verwer 1994). args: the rate constants (25), as pollution_rates().
inline Array pollution_rates() {
  return vector_of({0.35,  26.6,  12300,   0.00086, 0.00082, 15000,   0.00013, 24000, 16500, 9000,   0.022, 12000, 1.88,
                    16300, 4.8e6, 0.00035, 0.0175,  1e8,     4.44e11, 1240,    2.1,   5.78,  0.0474, 1780,  3.12});
}
inline Tree<Value> pollution(Value, const Tree<Value>& y, const Tree<Value>& args) {
  struct Reaction {
    std::vector<int> meeting;                     // one species, or two
    std::vector<std::pair<int, double>> changes;  // of species, from 0
  };
  static const std::vector<Reaction> reactions = {
      {{0}, {{0, -1}, {1, 1}, {2, 1}}},
      {{1, 3}, {{1, -1}, {3, -1}, {0, 1}}},
      {{4, 1}, {{4, -1}, {1, -1}, {5, 1}, {0, 1}}},
      {{6}, {{6, -1}, {4, 2}, {7, 1}}},
      {{6}, {{6, -1}, {7, 1}}},
      {{6, 5}, {{6, -1}, {5, -1}, {4, 1}, {7, 1}}},
      {{8}, {{8, -1}, {4, 1}, {7, 1}, {9, 1}}},
      {{8, 5}, {{8, -1}, {5, -1}, {10, 1}}},
      {{10, 1}, {{10, -1}, {1, -1}, {0, 1}, {9, 1}, {11, 1}}},
      {{10, 0}, {{10, -1}, {0, -1}, {12, 1}}},
      {{12}, {{12, -1}, {10, 1}, {0, 1}}},
      {{9, 1}, {{9, -1}, {1, -1}, {13, 1}, {0, 1}}},
      {{13}, {{13, -1}, {6, 1}, {4, 1}}},
      {{0, 5}, {{0, -1}, {5, -1}, {14, 1}}},
      {{2}, {{2, -1}, {3, 1}}},
      {{3}, {{3, -1}, {15, 1}}},
      {{3}, {{3, -1}, {2, 1}}},
      {{15}, {{15, -1}, {5, 2}}},
      {{15}, {{15, -1}, {2, 1}}},
      {{16, 5}, {{16, -1}, {5, -1}, {17, 1}, {4, 1}}},
      {{18}, {{18, -1}, {1, 1}}},
      {{18}, {{18, -1}, {2, 1}, {0, 1}}},
      {{0, 3}, {{0, -1}, {3, -1}, {18, 1}}},
      {{18, 0}, {{18, -1}, {0, -1}, {19, 1}}},
      {{19}, {{19, -1}, {18, 1}, {0, 1}}},
  };
  Array first(DType::I32, {25}), second(DType::I32, {25}), stoichiometry = Array::zeros(DType::F64, {20, 25});
  for (std::int64_t r = 0; r < 25; ++r) {
    const Reaction& reaction = reactions[static_cast<std::size_t>(r)];
    first.set(r, reaction.meeting[0]);
    second.set(r, reaction.meeting.size() > 1 ? reaction.meeting[1] : 20);  // 20: no second one
    for (const auto& [species, change] : reaction.changes) stoichiometry.set(25 * species + r, change);
  }
  const Value parts[] = {y.leaf(), constant(1, DType::F64, {1})};
  const Value species = concat(parts, 0);
  const Value rates = args.leaf() * gather(species, constant(first), 0) * gather(species, constant(second), 0);
  return Tree<Value>(matmul(constant(stoichiometry), rates));
}

// Stiff ones, from t = 0; their ends are recorded by scripts/record_scipy_ode.py.
inline const std::map<std::string, ode::Field>& stiff_problems() {
  static const std::map<std::string, ode::Field> table = {
      {"robertson", on_components([](Value, const Components& y) {
         const Value fast = 1e4 * y[1] * y[2], faster = 3e7 * square(y[1]);
         return Components{fast - 0.04 * y[0], 0.04 * y[0] - fast - faster, faster};
       })},
      {"van_der_pol_1000", on_components([](Value, const Components& y) {
         return Components{y[1], 1000 * (1 - square(y[0])) * y[1] - y[0]};
       })},
      {"hires", on_components([](Value, const Components& y) {
         const Value meeting = 280 * y[5] * y[7];
         return Components{-1.71 * y[0] + 0.43 * y[1] + 8.32 * y[2] + 0.0007,
                           1.71 * y[0] - 8.75 * y[1],
                           -10.03 * y[2] + 0.43 * y[3] + 0.035 * y[4],
                           8.32 * y[1] + 1.71 * y[2] - 1.12 * y[3],
                           -1.745 * y[4] + 0.43 * y[5] + 0.43 * y[6],
                           0.69 * y[3] + 1.71 * y[4] - 0.43 * y[5] + 0.69 * y[6] - meeting,
                           meeting - 1.81 * y[6],
                           1.81 * y[6] - meeting};
       })},
      {"orego", on_components([](Value, const Components& y) {
         return Components{77.27 * (y[1] + y[0] * (1 - 8.375e-6 * y[0] - y[1])), (y[2] - (1 + y[0]) * y[1]) / 77.27,
                           0.161 * (y[0] - y[2])};
       })},
      {"pollution", [](Value t, const Tree<Value>& y,
                       const Tree<Value>&) { return pollution(t, y, Tree<Value>(constant(pollution_rates()))); }},
  };
  return table;
}

}  // namespace hotloop::testing
