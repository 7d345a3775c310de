// Every op of the registry, compiled by every backend for every target, against its definition.
#include "compiled.h"
#include "hotloop/ops.h"
#include "op_checks.h"

namespace hotloop::ir {
namespace {

struct Case {
  testing::Compiled compiled;
  DType dtype;
};
void PrintTo(const Case& c, std::ostream* out) {
  testing::PrintTo(c.compiled, out);
  *out << " in " << name_of(c.dtype);
}

class CompiledOps : public ::testing::TestWithParam<Case> {};

// Where the op stands: in the program, or in the body of a loop that runs to its length, or of one that ends before it.
enum class Place { Straight, Loop, UntilLoop };

// The op's results on operands, of which the first with floats differs from iteration to iteration, so that nothing can leave the loop.
std::vector<Value> looped(const OpDef& def, const Sample& sample, std::span<const Value> operands, bool ends_early) {
  LoopSpec spec;
  spec.length = 3;
  spec.carry = {constant(0, DType::I32)};
  spec.consts.assign(operands.begin(), operands.end());
  std::vector<ValueType> types = {spec.carry[0].type()};
  for (const Value& v : operands) types.push_back(v.type());
  spec.body = trace(
      [&](std::span<const Value> in) {
        std::vector<Value> at(in.begin() + 1, in.end());
        for (Value& v : at)
          if (is_float(v.dtype())) {
            v = v * (1 + 0.0625 * cast(in[0], v.dtype()));
            break;
          }
        std::vector<Value> outputs = {in[0] + 1};
        for (const Value& v : results_of(current_graph().append(def, at, sample.attrs, sample.regions)))
          outputs.push_back(v);
        return outputs;
      },
      types);
  if (ends_early)
    spec.until =
        trace([](std::span<const Value> in) { return std::vector<Value>{greater_equal(in[0], in[0] * 0 + 2)}; }, types);
  return loop(spec).ys;
}

// One graph per op and dtype holds all its samples, so that a compiler is called once.
void expect_agreement(const Case& tested, Place place) {
  const auto& [compiled, dtype] = tested;
  for (const OpDef& def : all_ops()) {
    if (def.kind == OpKind::Input || !def.samples) continue;
    SCOPED_TRACE(def.name);
    Rng rng(op_test_seed);
    const std::vector<Sample> samples = def.samples(rng, dtype);
    std::vector<Array> arrays;
    for (const Sample& s : samples) arrays.insert(arrays.end(), s.operands.begin(), s.operands.end());
    const auto graph = trace(
        [&](std::span<const Value> in) {
          std::vector<Value> outputs;
          std::size_t next = 0;
          for (const Sample& s : samples) {
            const auto from = in.begin() + static_cast<std::ptrdiff_t>(next);
            const std::vector<Value> operands(from, from + static_cast<std::ptrdiff_t>(s.operands.size()));
            next += s.operands.size();
            const std::vector<Value> results =
                place == Place::Straight ? results_of(current_graph().append(def, operands, s.attrs, s.regions))
                                         : looped(def, s, operands, place == Place::UntilLoop);
            outputs.insert(outputs.end(), results.begin(), results.end());
          }
          return outputs;
        },
        types_of(arrays), def.name);
    const std::vector<Array> wanted = evaluate(*graph, arrays);
    std::vector<Array> got;
    try {
      got = compile(graph, compiled.options())(arrays);
    } catch (const std::exception& e) {
      ADD_FAILURE() << e.what();
      continue;
    }
    ASSERT_EQ(got.size(), wanted.size());
    const double tolerance = (dtype == DType::F32 ? 8 : 16) * epsilon_of(dtype);
    for (std::size_t i = 0; i < got.size(); ++i) EXPECT_TRUE(close(got[i], wanted[i], tolerance)) << "result " << i;
  }
}

TEST_P(CompiledOps, AgreeWithTheirDefinition) { expect_agreement(GetParam(), Place::Straight); }
TEST_P(CompiledOps, AgreeInALoop) { expect_agreement(GetParam(), Place::Loop); }
TEST_P(CompiledOps, AgreeInALoopThatEndsEarly) { expect_agreement(GetParam(), Place::UntilLoop); }

std::vector<Case> cases() {
  std::vector<Case> all;
  for (const auto& c : testing::all_compiled())
    for (const DType d : {DType::F32, DType::F64}) all.push_back({c, d});
  return all;
}

INSTANTIATE_TEST_SUITE_P(All, CompiledOps, ::testing::ValuesIn(cases()), [](const auto& info) {
  return testing::name_of_case(info.param.compiled) + "_" + std::string(name_of(info.param.dtype));
});

}  // namespace
}  // namespace hotloop::ir
