// How far results may be apart that were rounded differently: measured, by errors of a few units in the last place wherever a number is rounded. What a
// comparison decides (a condition, a place in an order, a largest element) is seen to be undecided where such errors turn it.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <iomanip>
#include <limits>
#include <memory>
#include <random>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>

#include "hotloop/ops.h"
#include "ir/op_def.h"
#include "ir/rewrite.h"

namespace hotloop::testing {

inline double rounding_unit(DType dtype) {
  return dtype == DType::F32 ? static_cast<double>(std::numeric_limits<float>::epsilon())
                             : std::numeric_limits<double>::epsilon();
}

// The graph with an error in each result that is rounded, in what is summed, and in its inputs.
inline std::shared_ptr<Graph> with_errors(const Graph& graph, std::mt19937_64& rng, bool is_program = true) {
  const auto wrong = [&](Value v, int most = 6) {
    if (!is_float(v.dtype())) return v;
    std::uniform_int_distribution<int> units(-most, most);
    Array factors(v.dtype(), v.shape());
    for (std::int64_t i = 0; i < factors.size(); ++i) factors.set(i, 1 + units(rng) * rounding_unit(v.dtype()));
    return v * constant(factors);
  };
  const auto is_exact = [](const Node& node) {
    constexpr std::string_view exact[] = {"neg", "abs",    "sign", "floor", "ceil",         "rint",
                                          "max", "select", "min",  "cast",  "stop_gradient"};
    return std::ranges::find(exact, node.op->name) != std::end(exact);
  };
  ir::Rebuild rebuild(graph);
  const TraceScope scope(rebuild.to());
  for (const auto& node : graph.nodes()) {
    const bool sums =
        ir::is(*node, ir::OpKind::Dot) || node->op->name == "reduce_sum" || node->op->name == "reduce_prod";
    if (ir::is(*node, ir::OpKind::Input)) {
      if (is_program) rebuild.map().set({node.get(), 0}, wrong(rebuild({node.get(), 0})));
      continue;
    }
    std::vector<std::shared_ptr<const Graph>> regions = node->regions;
    if (ir::is(*node, ir::OpKind::Loop) || ir::is_plain_call(*node))
      for (auto& region : regions) region = with_errors(*region, rng, false);
    std::vector<Value> operands = rebuild.operands(*node);
    // A long sum has errors of its own, by the order of its terms.
    double terms = 1;
    if (sums) {
      const Shape& from = node->operands[0].shape();
      for (const std::int64_t a : node->attrs.integers(ir::is(*node, ir::OpKind::Dot) ? "lhs_contract" : "axes"))
        terms *= static_cast<double>(from[static_cast<int>(a)]);
    }
    const int units = 6 + static_cast<int>(std::sqrt(terms));
    if (sums)
      for (Value& operand : operands) operand = wrong(operand, units);
    Node* copied = rebuild.to().append(*node->op, operands, node->attrs, regions, node->generation);
    const bool rounds =
        sums || ir::is(*node, ir::OpKind::ScatterAdd) || (ir::is(*node, ir::OpKind::Elementwise) && !is_exact(*node));
    for (int i = 0; i < static_cast<int>(node->types.size()); ++i)
      rebuild.map().set({node.get(), i}, rounds ? wrong(copied->result(i), units) : copied->result(i));
  }
  return rebuild.finish();
}

// The oracle's results, and for each of their elements how far another one may be away; infinite where errors decide.
struct Measured {
  std::vector<Array> results;
  std::vector<std::vector<double>> bounds;
};
inline Measured measured(const Graph& graph, const std::vector<Array>& inputs, std::uint64_t seed) {
  constexpr double infinite = std::numeric_limits<double>::infinity();
  Measured m{ir::evaluate(graph, inputs), {}};
  std::vector<std::vector<double>> moved;
  for (const Array& a : m.results) moved.emplace_back(a.size(), 0.0);
  std::mt19937_64 rng(seed);
  for (int run = 0; run < 3; ++run) {
    const std::vector<Array> other = ir::evaluate(*with_errors(graph, rng), inputs);
    for (std::size_t i = 0; i < other.size(); ++i)
      for (std::size_t e = 0; e < moved[i].size(); ++e) {
        const double a = m.results[i].at(static_cast<std::int64_t>(e)), b = other[i].at(static_cast<std::int64_t>(e));
        if (a == b || (std::isnan(a) && std::isnan(b))) continue;
        const double by = std::isfinite(a) && std::isfinite(b) ? std::fabs(a - b) : infinite;
        moved[i][e] = std::max(moved[i][e], is_float(other[i].dtype()) ? by : infinite);
      }
  }
  for (std::size_t i = 0; i < moved.size(); ++i) {
    // Of one element errors may cancel by chance: what most of the others move by counts as well.
    std::vector<double> sorted = moved[i];
    std::ranges::sort(sorted);
    const double most = sorted.empty() ? 0 : sorted[sorted.size() * 9 / 10];
    for (std::size_t e = 0; e < moved[i].size(); ++e) {
      const double value = std::fabs(m.results[i].at(static_cast<std::int64_t>(e)));
      if (is_float(m.results[i].dtype()))
        moved[i][e] = 6 * moved[i][e] + 6 * (most < infinite ? most : 0) +
                      (std::isfinite(value) ? 24 * value * rounding_unit(m.results[i].dtype()) : 0);
    }
  }
  m.bounds = std::move(moved);
  return m;
}

// What is wrong with results, "" if nothing is, and how many times further away they are than they may be.
struct Difference {
  std::string text;
  double excess = std::numeric_limits<double>::infinity();
};
inline Difference difference(const std::vector<Array>& got, const Measured& wanted) {
  constexpr double infinite = std::numeric_limits<double>::infinity();
  if (got.size() != wanted.results.size()) return {"another number of results"};
  Difference worst{"", 1};
  for (std::size_t i = 0; i < got.size(); ++i) {
    if (got[i].type() != wanted.results[i].type())
      return {"result " + std::to_string(i) + " is " + got[i].type().str()};
    for (std::int64_t e = 0; e < got[i].size(); ++e) {
      const double g = got[i].at(e), w = wanted.results[i].at(e), bound = wanted.bounds[i][static_cast<std::size_t>(e)];
      if (g == w || (std::isnan(g) && std::isnan(w)) || bound == infinite) continue;
      const double by = std::isfinite(g) && std::isfinite(w) && bound > 0 ? std::fabs(g - w) / bound : infinite;
      if (!(by > worst.excess)) continue;
      std::ostringstream text;
      text << std::setprecision(17) << "result " << i << ", element " << e << " of " << got[i].type().str() << ": " << g
           << " in place of " << w << ", which may be wrong by " << bound;
      worst = {text.str(), by};
    }
  }
  return worst;
}

}  // namespace hotloop::testing
