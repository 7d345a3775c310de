// A loop of no iteration is what it starts from, and one of one iteration becomes its body: a model that is run one step at a time has no loop, and a sequence of length one is
// scheduled as the feed-forward program that it is. Where it starts from literals other than 0 it stays a loop: what is made of numbers that are known
// (a product with one number everywhere is a sum, tanh of it a literal) has other last bits than the first of several steps.
#include <algorithm>
#include <set>
#include <vector>

#include "core/index.h"
#include "ir/uniform_value.h"
#include "passes/builder.h"
#include "passes/inline_body.h"
#include "passes/pass.h"

namespace hotloop::passes {
namespace {

// By node, whether it depends on no input.
std::vector<bool> literals_of(const Graph& graph) {
  std::vector<bool> literals(graph.nodes().size());
  for (const auto& node : graph.nodes())
    literals[at(node->id)] = node->op->kind != ir::OpKind::Input &&
                             std::ranges::all_of(node->operands, [&](Value v) { return literals[at(v.node->id)]; });
  return literals;
}

// Whether zeros give zeros.
bool keeps_zero(const Node& node) {
  switch (node.op->kind) {
    case ir::OpKind::Reshape:
    case ir::OpKind::Transpose:
    case ir::OpKind::Broadcast:
    case ir::OpKind::Slice:
    case ir::OpKind::Concat:
    case ir::OpKind::Reverse:
    case ir::OpKind::StopGradient: return true;
    case ir::OpKind::Elementwise: break;
    default: return false;
  }
  switch (node.op->scalar) {
    case ir::ScalarOp::Add:
    case ir::ScalarOp::Sub:
    case ir::ScalarOp::Neg:
    case ir::ScalarOp::Abs:
    case ir::ScalarOp::Tanh: return true;
    default: return false;
  }
}

// Whether the step, once it is known what it starts from, computes with numbers other than 0 that are known. Zeros are nothing to the sums that they are
// in.
bool starts_from_numbers(const ir::LoopView& loop, const std::vector<bool>& literals) {
  std::set<const Node*> zeros;
  for (int i = 0; i < loop.num_carry(); ++i) {
    const Value v = loop.carry(i);
    if (!is_float(v.dtype()) || !literals[at(v.node->id)]) continue;
    if (ir::uniform_value(v) != 0.0) return true;
    zeros.insert(loop.carry_in(i).node);
  }
  const auto is_zero = [&](Value v) { return zeros.contains(v.node) || ir::uniform_value(v) == 0.0; };
  const auto is_known = [&](Value v) { return zeros.contains(v.node) || ir::uniform_value(v); };
  for (const auto& node : loop.body().nodes()) {
    if (std::ranges::none_of(node->operands, [&](Value v) { return zeros.contains(v.node); })) continue;
    const bool is_product = node->op->kind == ir::OpKind::Dot || is_scalar_op(node->result(), ir::ScalarOp::Mul);
    if (is_product || (keeps_zero(*node) && std::ranges::all_of(node->operands, is_zero)))
      zeros.insert(node.get());
    else if (std::ranges::all_of(node->operands, is_known))
      return true;
  }
  return false;
}

bool has_no_iteration(const Node& node) {
  return node.op->kind == ir::OpKind::Loop && ir::LoopView(node).length() == 0;
}

bool has_one_iteration(const Node& node) {
  if (node.op->kind != ir::OpKind::Loop) return false;
  const ir::LoopView loop(node);
  return loop.length() == 1 && !loop.until() && !loop.has_trip();
}

void replace_by_start(const Node& node, ir::Rebuild& rebuild, Builder& builder) {
  const ir::LoopView loop(node);
  for (int i = 0; i < loop.num_carry(); ++i) rebuild.map().set(loop.carry_result(i), rebuild(loop.carry(i)));
  for (int i = 0; i < loop.num_ys(); ++i)
    rebuild.map().set(loop.ys_result(i), builder.full(0, loop.ys_result(i).type()));
  rebuild.map().set(loop.count_result(), builder.full(0, loop.count_result().type()));
}

void inline_into(const Node& node, ir::Rebuild& rebuild, Builder& builder) {
  const ir::LoopView loop(node);
  const Graph& body = loop.body();
  ir::ValueMap map(body);
  for (int i = 0; i < loop.num_carry(); ++i) map.set(loop.carry_in(i), rebuild(loop.carry(i)));
  for (int i = 0; i < loop.num_xs(); ++i)
    map.set(loop.xs_in(i), builder.reshape(rebuild(loop.xs(i)), loop.xs_in(i).shape()));
  for (int i = 0; i < loop.num_consts(); ++i) map.set(loop.const_in(i), rebuild(loop.constant(i)));
  inline_body(body, node, map, rebuild);
  for (int i = 0; i < loop.num_carry(); ++i) rebuild.map().set(loop.carry_result(i), map(loop.carry_out(i)));
  for (int i = 0; i < loop.num_ys(); ++i)
    rebuild.map().set(loop.ys_result(i), builder.reshape(map(loop.y_out(i)), loop.ys_result(i).shape()));
  rebuild.map().set(loop.count_result(), builder.full(1, loop.count_result().type()));
}

std::shared_ptr<const Graph> inline_level(const Graph& graph, const PassOptions& options) {
  const auto& nodes = graph.nodes();
  if (std::ranges::none_of(nodes, [](const auto& node) { return has_no_iteration(*node) || has_one_iteration(*node); }))
    return nullptr;
  const std::vector<bool> literals = literals_of(graph);
  const auto runs_once = [&](const Node& node) {
    return has_one_iteration(node) && !starts_from_numbers(ir::LoopView(node), literals);
  };
  if (std::ranges::none_of(nodes, [&](const auto& node) { return has_no_iteration(*node) || runs_once(*node); }))
    return nullptr;
  ir::Rebuild rebuild(graph);
  Builder builder(rebuild.to(), options);
  for (const auto& node : nodes) {
    if (node->op->kind == ir::OpKind::Input) continue;
    if (has_no_iteration(*node))
      replace_by_start(*node, rebuild, builder);
    else if (runs_once(*node))
      inline_into(*node, rebuild, builder);
    else
      rebuild.copy(*node);
  }
  return rebuild.finish();
}

}  // namespace

Pass inline_loops() {
  return {"inline_loops", "a loop of no iteration is what it starts from, one of one its body", true,
          [](const Graph& graph, const PassOptions& options) {
            return rewrite_levels(graph, [&](const Graph& g, const Level&) { return inline_level(g, options); });
          }};
}

}  // namespace hotloop::passes
