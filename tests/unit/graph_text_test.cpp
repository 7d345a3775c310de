#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "hotloop/error.h"
#include "hotloop/ops.h"
#include "ir/op_def.h"

namespace hotloop {
namespace {

void expect_round_trip(const std::string& text) {
  const auto graph = ir::parse(text);
  ir::verify(*graph);
  EXPECT_EQ(ir::print(*graph), text);
}

TEST(GraphText, PrintsAsItParses) {
  expect_round_trip(
      "main(%0: f32[2,3] x, %1: f32[3]) {\n"
      "  %2: f32[2,3] = broadcast(%1) {axes=[1], shape=[2,3]}\n"
      "  %3: f32[2,3] = mul(%0, %2) generation 1\n"
      "  %4: f32[2] = reduce_sum(%3) {axes=[1]}\n"
      "  return %4, %3, %4\n"
      "}\n");
}

TEST(GraphText, LiteralsKeepTheirBits) {
  expect_round_trip(
      "main() {\n"
      "  %0: f32[5] = constant() {value=f32[5]{0.1, -0, inf, nan, nan:2143289345}}\n"
      "  %1: f64[2,2] = constant() {value=f64[2,2]{1e-300...}}\n"
      "  %2: i32[3] = constant() {value=i32[3]{-7, 0, 2147483647}}\n"
      "  %3: bool[2] = constant() {value=bool[2]{1, 0}}\n"
      "  %4: u32[] = constant() {value=u32[]{4294967295}}\n"
      "  %5: f32[0] = constant() {value=f32[0]{}}\n"
      "  %6: i64[1] = constant() {value=i64[1]{-9223372036854775808}}\n"
      "  return %0, %1, %2, %3, %4, %5, %6\n"
      "}\n");
}

TEST(GraphText, LiteralsAreReadExactly) {
  const auto graph = ir::parse("main() {\n  %0: f32[3] = constant() {value=f32[3]{0.1, -0, nan}}\n  return %0\n}\n");
  const Array value = ir::evaluate(*graph, {})[0];
  EXPECT_EQ(value.data<float>()[0], 0.1f);
  EXPECT_TRUE(std::signbit(value.data<float>()[1]));
  EXPECT_TRUE(std::isnan(value.data<float>()[2]));
}

TEST(GraphText, NamesThatAreNotWordsAreQuoted) {
  expect_round_trip(
      "\"a graph\"(%0: f32[] \"x, \\\"y\\\"\") {\n"
      "  return %0\n"
      "}\n");
}

TEST(GraphText, TracedGraphsRoundTrip) {
  const ValueType types[] = {{DType::F64, {4, 3}}, {DType::F64, {3, 5}}};
  const auto graph = trace(
      [](std::span<const Value> in) -> std::vector<Value> {
        const Value z = dot(in[0], in[1], {{1}, {0}, {}, {}});
        return {tanh(z) * 2.5 + 1e-3, slice(z, {0, 1}, {4, 4}), cast(z, DType::F32)};
      },
      types);
  const std::string text = ir::print(*graph);
  const auto again = ir::parse(text);
  ir::verify(*again);
  EXPECT_EQ(ir::print(*again), text);
}

TEST(GraphText, RegionsRoundTrip) {
  expect_round_trip(
      "main(%0: f32[4], %1: f32[6,4], %2: f32[4]) {\n"
      "  %3: f32[4], %4: f32[6,4], %5: i32[] = loop(%0, %1, %2) {has_trip=false, length=6, num_carry=1, num_consts=1, "
      "num_xs=1, residuals=\"save\", reverse=false} {\n"
      "    body(%0: f32[4] h, %1: f32[4], %2: f32[4]) {\n"
      "      %3: f32[4] = mul(%0, %2)\n"
      "      %4: f32[4] = add(%3, %1)\n"
      "      return %4, %3\n"
      "    }\n"
      "  }\n"
      "  return %3, %4\n"
      "}\n");
}

void expect_parse_error(const std::string& text, const std::string& part) {
  try {
    ir::parse(text);
    ADD_FAILURE() << "parsed: " << text;
  } catch (const UserError& error) {
    EXPECT_NE(std::string(error.what()).find(part), std::string::npos) << error.what();
  }
}

TEST(GraphText, ErrorsNameTheLine) {
  expect_parse_error("main() {\n  %0: f32[] = nonsense()\n  return\n}\n", "nonsense");
  expect_parse_error("main(%0: f32[2]) {\n  %1: f32[3] = neg(%0)\n  return %1\n}\n",
                     "[parse, line 2] the types must be those that neg infers, f32[2]");
  expect_parse_error("main(%0: f32[2]) {\n  return %1\n}\n",
                     "[parse, line 2] a value must be defined before it is used");
  expect_parse_error("main(%0: f32[2]) {\n  %2: f32[2] = neg(%0)\n  return %0\n}\n", "numbered in order");
  expect_parse_error("main(%0: f32[2]) {\n  return %0\n", "'}' must stand here");
  expect_parse_error("main() {\n  return\n}\nx", "nothing may follow");
  expect_parse_error("main(%0: f99[2]) {\n  return\n}\n", "f99");
}

std::shared_ptr<Graph> small() {
  return ir::parse("main(%0: f32[2]) {\n  %1: f32[2] = neg(%0)\n  %2: f32[2] = add(%0, %1)\n  return %2\n}\n");
}

void expect_broken(const Graph& graph, const std::string& part) {
  try {
    ir::verify(graph);
    ADD_FAILURE() << "verified:\n" << ir::print(graph);
  } catch (const InternalError& error) {
    EXPECT_NE(std::string(error.what()).find(part), std::string::npos) << error.what();
  }
}

TEST(Verify, AcceptsAGoodGraph) { ir::verify(*small()); }

TEST(Verify, RejectsBrokenOrder) {
  const auto graph = small();
  graph->nodes()[1]->operands[0] = graph->nodes()[2]->result();
  expect_broken(*graph, "every operand must be a result of an earlier node of this graph");
}

TEST(Verify, RejectsForeignValues) {
  const auto graph = small(), other = small();
  graph->nodes()[1]->operands[0] = other->inputs()[0];
  expect_broken(*graph, "every operand must be a result of an earlier node of this graph");
  const auto third = small();
  third->set_outputs({other->outputs()[0]});
  expect_broken(*third, "output 0 must be a value of this graph");
}

TEST(Verify, RejectsTypesThatAreNotInferred) {
  const auto graph = small();
  graph->nodes()[2]->types[0].shape = {3};
  expect_broken(*graph, "its types are (f32[3]), but (f32[2]) is inferred");
}

TEST(Verify, RejectsOperandsThatDoNotFit) {
  const auto graph = small();
  graph->nodes()[1]->types[0].shape = {3};
  expect_broken(*graph, "node 1 (neg)");
}

TEST(Verify, RejectsRegionsWhoseTypesDoNotFit) {
  const auto graph = ir::parse(
      "main(%0: f32[4], %1: f32[6,4]) {\n"
      "  %2: f32[4], %3: i32[] = loop(%0, %1) {has_trip=false, length=6, num_carry=1, num_consts=0, num_xs=1, "
      "residuals=\"save\", reverse=false} {\n"
      "    body(%0: f32[4], %1: f32[4]) {\n      %2: f32[4] = add(%0, %1)\n      return %2\n    }\n  }\n  return "
      "%2\n}\n");
  Node& loop = *graph->nodes()[2];
  const auto keep = loop.regions[0];
  loop.regions[0] = ir::parse("body(%0: f32[4], %1: f32[3]) {\n  return %0\n}\n");
  expect_broken(*graph, "the body's inputs must have types (f32[4], f32[4]), not (f32[4], f32[3])");
  loop.regions[0] = ir::parse("body(%0: f32[4], %1: f32[4]) {\n  return\n}\n");
  expect_broken(*graph, "the body must return every carry");
  loop.regions[0] = keep;
  loop.attrs.set("length", std::int64_t{5});
  expect_broken(*graph, "xs must have the length of the loop");
}

TEST(Verify, LooksInsideRegions) {
  const auto graph = ir::parse(
      "main(%0: f32[4]) {\n"
      "  %1: f32[4], %2: i32[] = loop(%0) {has_trip=false, length=6, num_carry=1, num_consts=0, num_xs=0, "
      "residuals=\"save\", reverse=false} {\n"
      "    body(%0: f32[4]) {\n      %1: f32[4] = neg(%0)\n      return %1\n    }\n  }\n  return %1\n}\n");
  const Graph& body = *graph->nodes()[1]->regions[0];
  body.nodes()[1]->id = 7;
  expect_broken(*graph, "graph 'body', node 7 (neg): its id must be its position, 1");
}

}  // namespace
}  // namespace hotloop
