// Every op of the registry against its own definition: shape rule, derivative, transpose and batching.
#include <algorithm>
#include <cstring>
#include <set>

#include "op_checks.h"

namespace hotloop::ir {
namespace {

struct Case {
  std::string op;
  DType dtype;
};

void PrintTo(const Case& c, std::ostream* out) { *out << c.op << " in " << name_of(c.dtype); }

class OpRules : public ::testing::TestWithParam<Case> {
 protected:
  void SetUp() override { RecordProperty("seed", std::to_string(op_test_seed)); }
  const OpDef& def() const { return op(GetParam().op); }
  DType dtype() const { return GetParam().dtype; }
  std::vector<Sample> samples(Rng& rng) const { return def().samples(rng, dtype()); }
  void check_batch(std::int64_t num_lanes);
  Rng rng_{op_test_seed};
};

TEST(OpRegistry, EveryOpIsDescribedAndSampled) {
  for (const OpDef& def : all_ops()) {
    EXPECT_FALSE(def.summary.empty()) << def.name;
    EXPECT_TRUE(def.infer && def.eval) << def.name;
    EXPECT_EQ(def.kind == OpKind::Elementwise, def.scalar != ScalarOp::None && def.kind != OpKind::StopGradient)
        << def.name << ": an elementwise op names its scalar operation";
    if (def.kind == OpKind::Input) continue;
    ASSERT_TRUE(def.samples) << def.name << " has no samples";
    for (DType d : {DType::F32, DType::F64}) {
      Rng rng(op_test_seed);
      EXPECT_FALSE(def.samples(rng, d).empty()) << def.name << " has no samples";
    }
    if (def.num_operands != 0) EXPECT_TRUE(def.batch) << def.name << " has no batch rule";
  }
}

TEST_P(OpRules, ShapeRuleAgreesWithDefinition) {
  for (const Sample& s : samples(rng_)) {
    SCOPED_TRACE(text_of(s));
    const auto graph = graph_of(def(), s);
    verify(*graph);
    const auto results = evaluate(*graph, s.operands);
    ASSERT_EQ(results.size(), graph->outputs().size());
    for (std::size_t i = 0; i < results.size(); ++i)
      EXPECT_EQ(results[i].type().str(), graph->outputs()[i].type().str());
    EXPECT_GE(estimate_flops(node_of(*graph)), 0);
    EXPECT_EQ(print(*parse(print(*graph))), print(*graph));
  }
}

TEST_P(OpRules, SamplesKeepTheirShapes) {
  const auto first = samples(rng_), second = samples(rng_);
  ASSERT_EQ(first.size(), second.size());
  for (std::size_t i = 0; i < first.size(); ++i) EXPECT_EQ(types_of(first[i].operands), types_of(second[i].operands));
}

// The derivative by a central difference of fourth order. f32 rules are held against the f64 ones below.
TEST_P(OpRules, JvpAgreesWithDifferences) {
  if (dtype() != DType::F64) GTEST_SKIP() << "differences are taken in f64";
  if (def().kind == OpKind::StopGradient) GTEST_SKIP() << "its derivative is zero by definition";
  constexpr double h = 5e-4;
  for (const Sample& s : samples(rng_)) {
    const auto graph = graph_of(def(), s);
    for (const auto& subset : float_subsets(s)) {
      SCOPED_TRACE(text_of(s) + ", seed " + std::to_string(op_test_seed));
      std::vector<Array> tangents(s.operands.size());
      for (std::size_t i = 0; i < subset.size(); ++i)
        if (subset[i]) tangents[i] = normal(rng_, s.operands[i].type());
      const auto at = [&](double step) {
        std::vector<Array> moved = s.operands;
        for (std::size_t i = 0; i < moved.size(); ++i)
          if (subset[i]) moved[i] = plus(moved[i], tangents[i], step);
        return evaluate(*graph, moved);
      };
      // The tangent is scaled so that a sample clear of a kink by 0.1 stays clear of it.
      for (Array& t : tangents)
        for (std::int64_t i = 0; t.defined() && i < t.size(); ++i) t.set(i, std::clamp(t.at(i), -2.0, 2.0));
      const auto p1 = at(h), m1 = at(-h), p2 = at(2 * h), m2 = at(-2 * h);
      const auto got = tangents_by_rule(def(), s, tangents);
      for (std::size_t i = 0; i < got.size(); ++i) {
        if (!got[i].defined()) continue;
        Array wanted(got[i].dtype(), got[i].shape());
        double largest = 1;
        for (std::int64_t k = 0; k < wanted.size(); ++k) {
          wanted.set(k, (8 * (p1[i].at(k) - m1[i].at(k)) - (p2[i].at(k) - m2[i].at(k))) / (12 * h));
          largest = std::max(largest, std::fabs(p1[i].at(k)));
        }
        // Rounding of the values over the step, and h^4/30 times a fifth derivative.
        const double tolerance = 2 * largest * epsilon_of(got[i].dtype()) / h + 1e-9;
        EXPECT_TRUE(close(got[i], wanted, tolerance)) << "result " << i;
      }
    }
  }
}

TEST_P(OpRules, JvpInF32AgreesWithF64) {
  if (dtype() != DType::F32 || !has_derivative(def())) GTEST_SKIP() << "for ops with a derivative, in f32";
  for (const Sample& s : samples(rng_)) {
    if (!s.regions.empty()) continue;  // its graphs are f32 throughout
    SCOPED_TRACE(text_of(s) + ", seed " + std::to_string(op_test_seed));
    Sample wide = s;
    std::vector<Array> tangents(s.operands.size()), wide_tangents(s.operands.size());
    for (std::size_t i = 0; i < s.operands.size(); ++i) {
      if (!is_float(s.operands[i].dtype())) continue;
      wide.operands[i] = s.operands[i].cast(DType::F64);
      tangents[i] = normal(rng_, s.operands[i].type());
      wide_tangents[i] = tangents[i].cast(DType::F64);
    }
    const auto got = tangents_by_rule(def(), s, tangents), wanted = tangents_by_rule(def(), wide, wide_tangents);
    for (std::size_t i = 0; i < got.size(); ++i) {
      if (!got[i].defined()) continue;
      EXPECT_TRUE(close(got[i].cast(DType::F64), wanted[i].cast(DType::F64), 100 * epsilon_of(DType::F32)));
    }
  }
}

// Whether the op's results are additive in the operands of `subset`, the others as in the sample.
bool is_additive(const OpDef& def, const Sample& s, const std::vector<bool>& subset, Rng& rng) {
  const auto graph = graph_of(def, s);
  double epsilon = epsilon_of(DType::F64);  // of the coarsest type in play
  for (std::size_t i = 0; i < subset.size(); ++i)
    if (subset[i]) epsilon = std::max(epsilon, epsilon_of(s.operands[i].dtype()));
  for (const Value& v : graph->outputs())
    if (is_float(v.dtype())) epsilon = std::max(epsilon, epsilon_of(v.dtype()));
  for (int trial = 0; trial < 3; ++trial) {
    std::vector<Array> u = s.operands, v = s.operands, sum = s.operands;
    for (std::size_t i = 0; i < subset.size(); ++i) {
      if (!subset[i]) continue;
      u[i] = plus(normal(rng, s.operands[i].type()), u[i], 2);
      v[i] = plus(normal(rng, s.operands[i].type()), v[i], -3);
      sum[i] = plus(u[i], v[i], 1);
    }
    const auto fu = evaluate(*graph, u), fv = evaluate(*graph, v), f = evaluate(*graph, sum);
    for (std::size_t i = 0; i < f.size(); ++i) {
      if (!is_float(f[i].dtype())) continue;
      for (std::int64_t k = 0; k < f[i].size(); ++k) {
        const double scale = 1 + std::fabs(fu[i].at(k)) + std::fabs(fv[i].at(k));
        if (!(std::fabs(f[i].at(k) - fu[i].at(k) - fv[i].at(k)) <= 1e3 * epsilon * scale)) return false;
      }
    }
  }
  return true;
}

bool has_float_result(const OpDef& def, const Sample& s) {
  return std::ranges::any_of(graph_of(def, s)->outputs(), [](Value v) { return is_float(v.dtype()); });
}

// <u, f(v)> = <f^T(u), v> for the operands in `subset`.
void check_transpose(const OpDef& def, const Sample& s, const std::vector<bool>& subset, Rng& rng) {
  const auto primal = graph_of(def, s);
  std::vector<Array> moved = s.operands, inputs;
  for (std::size_t i = 0; i < subset.size(); ++i)
    if (subset[i])
      moved[i] = normal(rng, moved[i].type());
    else
      inputs.push_back(moved[i]);
  std::vector<Array> cotangents(primal->outputs().size());
  for (std::size_t i = 0; i < cotangents.size(); ++i) {
    if (!is_float(primal->outputs()[i].dtype())) continue;
    cotangents[i] = normal(rng, primal->outputs()[i].type());
    inputs.push_back(cotangents[i]);
  }
  std::vector<std::size_t> targets;
  const auto graph = trace(
      [&](std::span<const Value> in) {
        std::size_t next = 0;
        std::vector<Value> operands(subset.size()), given(cotangents.size());
        for (std::size_t i = 0; i < subset.size(); ++i)
          if (!subset[i]) operands[i] = in[next++];
        for (std::size_t i = 0; i < given.size(); ++i)
          if (cotangents[i].defined()) given[i] = in[next++];
        const auto result = def.transpose({node_of(*primal), operands, given});
        EXPECT_EQ(result.size(), operands.size());
        std::vector<Value> outputs;
        for (std::size_t i = 0; i < result.size(); ++i) {
          EXPECT_FALSE(result[i].defined() && !subset[i]) << "a constant operand, " << i << ", has no cotangent";
          if (!subset[i] || !result[i].defined()) continue;
          EXPECT_EQ(result[i].type().str(), s.operands[i].type().str());
          outputs.push_back(result[i]);
          targets.push_back(i);
        }
        // Zero in, zero out.
        const auto none = def.transpose({node_of(*primal), operands, std::vector<Value>(given.size())});
        for (const Value& v : none) EXPECT_FALSE(v.defined()) << "the transpose of zero is not undefined";
        return outputs;
      },
      types_of(inputs));
  verify(*graph);
  const auto pulled = evaluate(*graph, inputs), results = evaluate(*primal, moved);
  double forward = 0, backward = 0, scale = 1;
  DType coarsest = DType::F64;
  for (std::size_t i = 0; i < results.size(); ++i) {
    if (!cotangents[i].defined()) continue;
    forward += inner(cotangents[i], results[i]);
    scale += norm(cotangents[i]) * norm(results[i]);
    if (results[i].dtype() == DType::F32) coarsest = DType::F32;
  }
  for (std::size_t k = 0; k < targets.size(); ++k) {
    backward += inner(pulled[k], moved[targets[k]]);
    if (pulled[k].dtype() == DType::F32) coarsest = DType::F32;
  }
  EXPECT_NEAR(forward, backward, 50 * epsilon_of(coarsest) * scale);
}

// An op that is linear in a set of operands, as its values show, must have a transpose rule that proves it.
TEST_P(OpRules, TransposeIsTheAdjoint) {
  if (!has_derivative(def())) GTEST_SKIP() << "no derivative";
  const auto all = samples(rng_);
  // One degenerate sample may look linear, so an op must be linear in all; with regions each sample is another function.
  std::set<std::pair<std::size_t, std::vector<bool>>> nonlinear;
  const auto group = [&](std::size_t n) { return all[n].regions.empty() ? 0 : n; };
  for (std::size_t n = 0; n < all.size(); ++n)
    for (const auto& subset : float_subsets(all[n]))
      if (has_float_result(def(), all[n]) && !is_additive(def(), all[n], subset, rng_))
        nonlinear.insert({group(n), subset});
  int checked = 0;
  for (std::size_t n = 0; n < all.size(); ++n) {
    const Sample& s = all[n];
    if (!has_float_result(def(), s)) continue;
    for (const auto& subset : float_subsets(s)) {
      if (nonlinear.contains({group(n), subset})) continue;
      SCOPED_TRACE(text_of(s) + ", seed " + std::to_string(op_test_seed));
      ASSERT_TRUE(def().transpose) << def().name << " is linear but has no transpose rule";
      check_transpose(def(), s, subset, rng_);
      ++checked;
    }
  }
  if (def().transpose) EXPECT_GT(checked, 0) << "the transpose rule of " << def().name << " was never used";
}

Array stacked(const std::vector<Array>& lanes) {
  Array out(lanes[0].dtype(), lanes[0].shape().with_inserted(0, static_cast<std::int64_t>(lanes.size())));
  for (std::size_t i = 0; i < lanes.size(); ++i)
    std::memcpy(static_cast<std::byte*>(out.raw()) + i * lanes[i].bytes(), lanes[i].raw(), lanes[i].bytes());
  return out;
}

// Sets of operands to batch: all of them up to three operands, else each alone and all together.
std::vector<std::vector<bool>> batch_subsets(std::size_t n) {
  std::vector<std::vector<bool>> subsets;
  if (n <= 3) {
    for (unsigned bits = 1; bits < 1u << n; ++bits) {
      std::vector<bool> subset;
      for (std::size_t i = 0; i < n; ++i) subset.push_back((bits >> i & 1) != 0);
      subsets.push_back(subset);
    }
    return subsets;
  }
  for (std::size_t i = 0; i < n; ++i) {
    subsets.emplace_back(n, false);
    subsets.back()[i] = true;
  }
  subsets.emplace_back(n, true);
  return subsets;
}

void OpRules::check_batch(std::int64_t num_lanes) {
  std::vector<std::vector<Sample>> lanes;
  for (std::int64_t i = 0; i < num_lanes; ++i) lanes.push_back(samples(rng_));
  for (std::size_t n = 0; n < lanes[0].size(); ++n) {
    const Sample& first = lanes[0][n];
    const auto graph = graph_of(def(), first);
    for (const auto& subset : batch_subsets(first.operands.size())) {
      std::string where = text_of(first) + ", batched:";
      for (bool b : subset) where += b ? " yes" : " no";
      SCOPED_TRACE(where + ", seed " + std::to_string(op_test_seed));
      std::vector<Array> inputs;
      for (std::size_t i = 0; i < subset.size(); ++i) {
        std::vector<Array> each;
        for (const auto& lane : lanes) each.push_back(lane[n].operands[i]);
        inputs.push_back(subset[i] ? stacked(each) : each[0]);
      }
      std::vector<bool> batched;
      const auto batch_graph = trace(
          [&](std::span<const Value> in) {
            std::vector<Batched> operands;
            for (std::size_t i = 0; i < subset.size(); ++i) operands.push_back({in[i], subset[i]});
            std::vector<Value> outputs;
            for (const Batched& b : def().batch({node_of(*graph), operands, num_lanes})) {
              outputs.push_back(b.value);
              batched.push_back(b.batched);
            }
            return outputs;
          },
          types_of(inputs));
      verify(*batch_graph);
      const auto got = evaluate(*batch_graph, inputs);
      ASSERT_EQ(got.size(), graph->outputs().size());
      for (std::size_t lane = 0; lane < lanes.size(); ++lane) {
        std::vector<Array> operands;
        for (std::size_t i = 0; i < subset.size(); ++i) operands.push_back(lanes[subset[i] ? lane : 0][n].operands[i]);
        const auto wanted = evaluate(*graph, operands);
        for (std::size_t i = 0; i < got.size(); ++i) {
          Array part = got[i];
          if (batched[i]) {
            ASSERT_EQ(part.shape(), wanted[i].shape().with_inserted(0, num_lanes));
            part = Array(wanted[i].dtype(), wanted[i].shape());
            std::memcpy(part.raw(), static_cast<const std::byte*>(got[i].raw()) + lane * part.bytes(), part.bytes());
          }
          EXPECT_TRUE(close(part, wanted[i], 8 * epsilon_of(wanted[i].dtype()))) << "lane " << lane << ", result " << i;
        }
      }
    }
  }
}

// Three lanes, and one, which some rules treat by itself.
TEST_P(OpRules, BatchAgreesWithALoopOverLanes) {
  for (const std::int64_t num_lanes : {3, 1}) check_batch(num_lanes);
}

// A NaN in any one float operand shows in some float result.
TEST_P(OpRules, NanPropagates) {
  // C and every array library agree that x^0 and 1^x are 1, whatever x; a selected or overwritten NaN has no influence.
  static const std::set<std::string> excepted = {"select", "pow",   "dynamic_update", "dynamic_slice",
                                                 "gather", "slice", "extent"};
  if (excepted.contains(def().name)) GTEST_SKIP();
  for (const Sample& s : samples(rng_)) {
    const auto graph = graph_of(def(), s);
    if (!s.regions.empty() || !has_float_result(def(), s)) continue;
    for (std::size_t i = 0; i < s.operands.size(); ++i) {
      if (!is_float(s.operands[i].dtype()) || s.operands[i].size() == 0) continue;
      if (def().name == "pad" && i == 1) continue;          // nothing may be padded
      if (def().name == "scatter_add" && i == 2) continue;  // or dropped
      if (def().name == "windows") continue;                // or passed over by the stride
      SCOPED_TRACE(text_of(s) + ", NaN in operand " + std::to_string(i));
      std::vector<Array> operands = s.operands;
      operands[i] = operands[i].clone();
      operands[i].set(static_cast<std::int64_t>(rng_() % static_cast<std::uint64_t>(operands[i].size())),
                      std::numeric_limits<double>::quiet_NaN());
      bool found = false;
      for (const Array& r : evaluate(*graph, operands))
        for (std::int64_t k = 0; k < r.size(); ++k) found |= std::isnan(r.at(k));
      EXPECT_TRUE(found);
    }
  }
}

std::vector<Case> cases() {
  std::vector<Case> result;
  for (const OpDef& def : all_ops())
    if (def.samples)
      for (DType d : {DType::F32, DType::F64}) result.push_back({def.name, d});
  return result;
}

INSTANTIATE_TEST_SUITE_P(Registry, OpRules, ::testing::ValuesIn(cases()),
                         [](const auto& info) { return info.param.op + "_" + std::string(name_of(info.param.dtype)); });

}  // namespace
}  // namespace hotloop::ir
