// The cases on which every form of a Jacobian is compared with the dense one: jacobian_structure_test.cpp holds the tests, other files add cases.
#pragma once

#include <memory>
#include <ostream>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "derivative_checks.h"
#include "hotloop/jacobian.h"

namespace hotloop::testing {

using Values = std::span<const Value>;
using Pairs = std::vector<std::pair<int, int>>;

inline ValueType f64(std::initializer_list<std::int64_t> shape) { return {DType::F64, Shape(shape)}; }

// A function of one result.
template <class F> Function one_result(F fn) {
  return [fn](Values v) { return std::vector<Value>{fn(v)}; };
}

struct JacobianCase {
  std::string name;
  Function fn;
  std::vector<ValueType> inputs;
  Pairs paired;                  // expected
  std::int64_t most_passes = 0;  // expected at most
  bool exact = true;             // the pattern holds no element that is zero at a random point
  JacobianMode mode = JacobianMode::Auto;
};
inline void PrintTo(const JacobianCase& c, std::ostream* out) { *out << c.name; }

// x[B, T, I], w[I + H, H] -> all hidden states (B, T, H), time-major inside.
inline std::vector<Value> recurrent(Values v) {
  const Value xs[] = {transpose(v[0], {1, 0, 2})};
  const Value init[] = {constant(0, DType::F64, {v[0].shape()[0], v[1].shape()[1]})};
  const auto ys = scan(
                      [&](Values h, Values x) {
                        const Value parts[] = {x[0], h[0]};
                        const Value next = tanh(matmul(concat(parts, 1), v[1]));
                        return std::pair{std::vector{next}, std::vector{next}};
                      },
                      init, xs)
                      .second;
  return {transpose(ys[0], {1, 0, 2})};
}

class JacobianStructures : public ::testing::TestWithParam<JacobianCase> {
 protected:
  void SetUp() override {
    std::mt19937_64 rng(1);
    for (const ValueType& t : GetParam().inputs) at_.push_back(random_like(rng, t, 0.2, 1.2));
  }
  // Evaluates what `read` takes from the Jacobian, and keeps its structure.
  Arrays evaluated(const std::function<std::vector<Value>(const Jacobian&, Values)>& read, const Arrays& more = {},
                   JacobianOptions options = {}) {
    if (GetParam().mode != JacobianMode::Auto) options.mode = GetParam().mode;
    return evaluate(
        [&](Values v) {
          const Jacobian j = jacobian(GetParam().fn, options)(v.first(at_.size()));
          structure_ = j.shared_structure();
          return read(j, v.subspan(at_.size()));
        },
        joined(at_, more));
  }
  Arrays at_;
  std::shared_ptr<const JacobianStructure> structure_;
};

}  // namespace hotloop::testing
