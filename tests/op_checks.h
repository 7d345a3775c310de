// What the property tests of the op registry share: a graph around one op, its rules applied, and comparisons.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>
#include <string>
#include <tuple>
#include <vector>

#include "hotloop/graph.h"
#include "hotloop/jit.h"
#include "hotloop/ops.h"
#include "ir/op_def.h"

namespace hotloop::ir {

inline constexpr std::uint64_t op_test_seed = 20240117;

inline double epsilon_of(DType d) {
  return d == DType::F32 ? static_cast<double>(std::numeric_limits<float>::epsilon())
                         : std::numeric_limits<double>::epsilon();
}

inline std::vector<ValueType> types_of(std::span<const Array> arrays) {
  std::vector<ValueType> types;
  for (const Array& a : arrays) types.push_back(a.type());
  return types;
}

inline std::vector<Value> results_of(Node* node) {
  std::vector<Value> results;
  for (int i = 0; i < static_cast<int>(node->types.size()); ++i) results.push_back(node->result(i));
  return results;
}

// operands -> results of one node.
inline std::shared_ptr<Graph> graph_of(const OpDef& def, const Sample& s) {
  return trace(
      [&](std::span<const Value> in) {
        return results_of(current_graph().append(def, {in.begin(), in.end()}, s.attrs, s.regions));
      },
      types_of(s.operands), def.name);
}
inline const Node& node_of(const Graph& graph) { return *graph.nodes().back(); }

// "operands f32[2], i32[]": for messages.
inline std::string text_of(const Sample& s) {
  std::string text = "operands";
  for (const Array& a : s.operands) text += " " + a.type().str();
  return text;
}

// Largest |x| of the float results; 1 at least.
inline double scale_of(const Array& a) {
  double scale = 1;
  for (std::int64_t i = 0; i < a.size(); ++i) scale = std::max(scale, std::fabs(a.at(i)));
  return scale;
}

// Equal types, and elements equal up to tolerance * (largest element); NaN equals NaN. Integers are equal.
inline ::testing::AssertionResult close(const Array& got, const Array& wanted, double tolerance) {
  if (got.type() != wanted.type())
    return ::testing::AssertionFailure() << "types " << got.type().str() << " and " << wanted.type().str();
  const double bound = is_float(wanted.dtype()) ? tolerance * scale_of(wanted) : 0;
  for (std::int64_t i = 0; i < got.size(); ++i) {
    const double a = got.at(i), b = wanted.at(i);
    if (a == b || (std::isnan(a) && std::isnan(b)) || std::fabs(a - b) <= bound) continue;
    return ::testing::AssertionFailure() << "element " << i << " of " << got.type().str() << ": " << a << ", not " << b;
  }
  return ::testing::AssertionSuccess();
}

// Each compiling backend gives what the oracle does.
inline void expect_backends_agree(const std::shared_ptr<const Graph>& graph, const std::vector<Array>& inputs,
                                  double tolerance) {
  const std::vector<Array> oracle = evaluate(*graph, inputs);
  for (const char* backend : {"llvm", "c"}) {
    CompileOptions options;
    options.backend = backend;
    const std::vector<Array> got = compile(graph, options)(inputs);
    for (std::size_t i = 0; i < got.size(); ++i)
      EXPECT_TRUE(close(got[i], oracle[i], tolerance)) << backend << " output " << i;
  }
}

inline double inner(const Array& a, const Array& b) {
  double sum = 0;
  for (std::int64_t i = 0; i < a.size(); ++i) sum += a.at(i) * b.at(i);
  return sum;
}
inline double norm(const Array& a) { return std::sqrt(inner(a, a)); }

// a + factor * b
inline Array plus(const Array& a, const Array& b, double factor) {
  Array out(a.dtype(), a.shape());
  for (std::int64_t i = 0; i < a.size(); ++i) out.set(i, a.at(i) + factor * b.at(i));
  return out;
}

inline Array normal(Rng& rng, const ValueType& type) {
  Array a(type.dtype, type.shape);
  std::normal_distribution<double> unit;
  for (std::int64_t i = 0; i < a.size(); ++i) a.set(i, unit(rng));
  return a;
}

// Sets of the float operands to perturb: each alone, and all together.
inline std::vector<std::vector<bool>> float_subsets(const Sample& s) {
  std::vector<std::vector<bool>> subsets;
  std::vector<bool> all(s.operands.size(), false);
  int count = 0;
  for (std::size_t i = 0; i < s.operands.size(); ++i) {
    if (!is_float(s.operands[i].dtype())) continue;
    std::vector<bool> one(s.operands.size(), false);
    one[i] = all[i] = true;
    subsets.push_back(one);
    ++count;
  }
  if (count > 1) subsets.push_back(all);
  return subsets;
}

inline bool has_derivative(const OpDef& def) { return def.jvp || def.jvp_with_primal; }

// Tangents of the results of `s` along `tangents` (undefined arrays are zero) by the op's own jvp rule. A result the
// rule leaves undefined comes back as zeros; so do all of an op without a rule. Integer results come back undefined.
inline std::vector<Array> tangents_by_rule(const OpDef& def, const Sample& s, std::span<const Array> tangents) {
  const auto primal = graph_of(def, s);
  std::vector<Array> inputs = s.operands;
  for (const Array& t : tangents)
    if (t.defined()) inputs.push_back(t);
  const auto graph = trace(
      [&](std::span<const Value> in) {
        const std::vector<Value> primals(in.begin(), in.begin() + static_cast<std::ptrdiff_t>(s.operands.size()));
        std::vector<Value> given(s.operands.size());
        std::size_t next = s.operands.size();
        for (std::size_t i = 0; i < given.size(); ++i)
          if (tangents[i].defined()) given[i] = in[next++];
        std::vector<Value> outputs, result;
        if (def.jvp_with_primal) {
          std::tie(outputs, result) = def.jvp_with_primal({node_of(*primal), primals, {}, given});
        } else {
          outputs = results_of(current_graph().append(def, primals, s.attrs, s.regions));
          result.resize(outputs.size());
          if (def.jvp) result = def.jvp({node_of(*primal), primals, outputs, given});
        }
        EXPECT_EQ(result.size(), outputs.size());
        for (std::size_t i = 0; i < outputs.size(); ++i) {
          if (!is_float(outputs[i].dtype())) {
            EXPECT_FALSE(result[i].defined()) << "result " << i << " is not a float";
            result[i] = constant(0, outputs[i].dtype(), outputs[i].shape());
          } else if (!result[i].defined()) {
            result[i] = zeros_like(outputs[i]);
          }
        }
        result.insert(result.end(), outputs.begin(), outputs.end());
        return result;
      },
      types_of(inputs));
  verify(*graph);
  std::vector<Array> result = evaluate(*graph, inputs);
  const auto wanted = evaluate(*primal, s.operands);
  for (std::size_t i = 0; i < wanted.size(); ++i)
    EXPECT_TRUE(close(result[wanted.size() + i], wanted[i], 8 * epsilon_of(wanted[i].dtype())))
        << "primal result " << i;
  result.resize(wanted.size());
  for (Array& a : result)
    if (!is_float(a.dtype())) a = Array();
  return result;
}

}  // namespace hotloop::ir
