// Every op of the registry, compiled by every backend for every target, against its definition.
#include "compiled.h"
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

// One graph per op and dtype holds all its samples, so that a compiler is called once.
TEST_P(CompiledOps, AgreeWithTheirDefinition) {
  const auto& [compiled, dtype] = GetParam();
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
            for (const Value& v : results_of(current_graph().append(def, operands, s.attrs, s.regions)))
              outputs.push_back(v);
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
