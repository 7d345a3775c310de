// A loop of one iteration becomes its body: a model that is run one step at a time has no loop, and a sequence of length one is
// scheduled as the feed-forward program that it is.
#include <algorithm>

#include "passes/builder.h"
#include "passes/inline_body.h"
#include "passes/pass.h"

namespace hotloop::passes {
namespace {

bool runs_once(const Node& node) {
  if (node.op->kind != ir::OpKind::Loop) return false;
  const ir::LoopView loop(node);
  return loop.length() == 1 && !loop.until() && !loop.has_trip();
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
  if (std::ranges::none_of(graph.nodes(), [](const auto& node) { return runs_once(*node); })) return nullptr;
  ir::Rebuild rebuild(graph);
  Builder builder(rebuild.to(), options);
  for (const auto& node : graph.nodes()) {
    if (node->op->kind == ir::OpKind::Input) continue;
    if (runs_once(*node))
      inline_into(*node, rebuild, builder);
    else
      rebuild.copy(*node);
  }
  return rebuild.finish();
}

}  // namespace

Pass inline_loops() {
  return {"inline_loops", "a loop of one iteration becomes its body", true,
          [](const Graph& graph, const PassOptions& options) {
            return rewrite_levels(graph, [&](const Graph& g, const Level&) { return inline_level(g, options); });
          }};
}

}  // namespace hotloop::passes
