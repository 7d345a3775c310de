#include "passes/pipeline.h"

#include <algorithm>
#include <chrono>
#include <map>
#include <set>

#include "core/cancel.h"
#include "core/nearest.h"
#include "hotloop/error.h"

namespace hotloop::passes {

// One file each.
Pass inline_calls();
Pass inline_loops();
Pass fold_extents();
Pass order_sums();
Pass simplify();
Pass simplify_loops();
Pass fold();
Pass cse();
Pass dce();
Pass hoist();
Pass factor_dots();
Pass merge_dots();
Pass merge_sums();
Pass merge_loops();
Pass batch_inputs();
Pass lookup_products();
Pass narrow_dots();
Pass defer_products();
Pass defer_outputs();
Pass remat();
Pass outer_products();
Pass reroll();
Pass round_factors();

namespace {

// Passes that run one after the other, again while they change something, at most `rounds` times.
struct Stage {
  int rounds;
  std::vector<Pass> passes;
  bool knows_bound = true;  // PassOptions::bound
};

const std::vector<Stage>& stages() {
  static const std::vector<Stage> table = {
      // The order of a sum is that of one step, so it is settled while a loop of one iteration is still one. cse takes b + a for a + b: what ordering
      // left behind is gone before.
      {1, {inline_calls(), reroll(), order_sums(), dce(), fold_extents()}},
      // Values before loops: constants known and duplicates gone, the patterns below are easier to see.
      {5, {order_sums(), dce(), simplify(), fold(), cse(), merge_loops(), simplify_loops(), dce()}},
      // Wide dots first: one merged dot is batched, deferred and scheduled in place of four.
      {4, {factor_dots(), dce(), merge_dots(), merge_sums(), order_sums(), dce(), simplify(), hoist(), cse(), dce()}},
      {1, {inline_loops(), batch_inputs(), defer_products(), dce()}},
      // Slopes that loops emit become products of all steps first, then sums by place; what a merged product made of them is not needed any more.
      {3, {lookup_products(), dce(), narrow_dots()}},
      // Only now is it known what the backward loop still reads.
      {4, {simplify(), cse(), simplify_loops(), dce()}},
      {2, {remat(), dce()}},
      {1, {defer_outputs(), dce()}},
      // Of bound weights and what one step computes outside of a loop nothing is merged any more: in a loop of many steps the same stays apart.
      {3, {hoist(), merge_dots(), merge_sums(), simplify(), fold(), cse(), simplify_loops(), dce()}, false},
      {1, {outer_products(), dce()}},
      {1, {round_factors()}},
  };
  return table;
}

bool is_off(const Pass& pass, const PassOptions& options) {
  if (!pass.optional) return false;
  return std::ranges::any_of(options.disabled, [&](const auto& name) { return name == "all" || name == pass.name; });
}

void check_names(const PassOptions& options) {
  for (const std::string& name : options.disabled) {
    if (name == "all") continue;
    std::vector<std::string> names = {"all"};
    for (const Pass& pass : all_passes()) {
      if (pass.optional)
        names.push_back(pass.name);
      else if (pass.name == name)
        throw UserError("passes", "only optional passes can be disabled", name, "leave '" + name + "' out");
    }
    if (std::ranges::find(names, name) == names.end())
      throw UserError("passes", "a disabled pass must exist", name, nearest_hint(name, names));
  }
}

std::int64_t rows_of(const Graph& graph, const PassOptions& options) {
  for (std::size_t i = 0; i < options.batch_axes.size() && i < graph.inputs().size(); ++i)
    if (options.batch_axes[i] >= 0) return graph.inputs()[i].shape()[options.batch_axes[i]];
  return -1;
}

std::shared_ptr<const Graph> copy_of(const Graph& graph) {
  ir::Rebuild rebuild(graph);
  for (const auto& node : graph.nodes())
    if (node->op->kind != ir::OpKind::Input) rebuild.copy(*node);
  return rebuild.finish();
}

}  // namespace

std::span<const Pass> all_passes() {
  static const std::vector<Pass> passes = [] {
    std::vector<Pass> all;
    std::set<std::string> seen;
    for (const Stage& stage : stages())
      for (const Pass& pass : stage.passes)
        if (seen.insert(pass.name).second) all.push_back(pass);
    return all;
  }();
  return passes;
}

std::shared_ptr<const Graph> optimize(const Graph& graph, const PassOptions& options,
                                      std::vector<PassReport>* reports) {
  check_names(options);
  PassOptions full = options;
  full.max_rows = rows_of(graph, options);
  std::shared_ptr<const Graph> now;
  int version = 0;
  std::map<std::string, int> unchanged_at;  // the version a pass last had nothing to do on
  for (const Stage& stage : stages()) {
    if (!stage.knows_bound) full.bound.clear();
    for (int round = 0; round < stage.rounds; ++round) {
      const int before = version;
      for (const Pass& pass : stage.passes) {
        const auto seen = unchanged_at.find(pass.name);
        if (seen != unchanged_at.end() && seen->second == version) continue;
        leave_if_cancelled();
        PassReport report;
        report.name = pass.name;
        if (is_off(pass, full)) {
          report.note = "disabled";
          if (reports && round == 0) reports->push_back(report);
          continue;
        }
        const Graph& current = now ? *now : graph;
        report.nodes_before = report.nodes_after = reports ? ir::count_nodes(current) : 0;
        const auto start = std::chrono::steady_clock::now();
        const std::shared_ptr<const Graph> result = pass.run(current, full);
        report.time_us = std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - start).count();
        report.changed = result != nullptr;
        if (result) {
          try {
            ir::verify(*result);
          } catch (const InternalError& error) {
            throw InternalError(__FILE__, __LINE__, "pass " + pass.name + " broke the graph: " + error.what());
          }
          now = result;
          ++version;
          if (reports) report.nodes_after = ir::count_nodes(*now);
        } else {
          unchanged_at[pass.name] = version;
        }
        if (reports) reports->push_back(report);
      }
      if (version == before) break;
    }
  }
  return now ? now : copy_of(graph);
}

}  // namespace hotloop::passes
