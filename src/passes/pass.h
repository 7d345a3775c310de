// A pass: a named rewrite of graphs that keeps their meaning.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "hotloop/graph.h"
#include "ir/rewrite.h"

namespace hotloop::passes {

struct PassOptions {
  std::vector<std::string> disabled;  // names of optional passes, or "all"
  // The executable takes fewer rows than the graph was traced for; input i has its batch at axis batch_axes[i], -1 for none.
  bool variable_rows = false;
  std::vector<int> batch_axes;
  // Inputs that stay the same over many calls (one flag an input; empty: none): work on them alone is done once.
  std::vector<bool> bound;
  bool rounds_factors = false;  // of f32 dots, to bfloat16
  bool flush_denormals = false;

  std::int64_t max_rows = -1;  // rows the graph was traced for; optimize() fills it in

  // Whether an axis of this extent may hold a variable number of rows.
  bool may_vary(std::int64_t extent) const { return variable_rows && (max_rows < 0 || extent == max_rows); }
};

struct Pass {
  std::string name;
  std::string summary;   // one line for explain() and the docs
  bool optional = true;  // a program without it is still right, only slower
  // The rewritten graph; null when there was nothing to do.
  std::function<std::shared_ptr<const Graph>(const Graph&, const PassOptions&)> run;
};

// A graph on its own level: the whole program, or the body of a loop, whose inputs then are carries, xs and consts.
struct Level {
  const Node* loop = nullptr;  // null at the outermost level and inside a call
  // For each value of the graph, by ValueIndex: the same in every iteration; outside loops, in every call (see PassOptions::bound).
  std::vector<bool> invariant;
};

using LevelRewrite = std::function<std::shared_ptr<const Graph>(const Graph&, const Level&)>;
// Applies `rewrite` to every region, innermost first, then to the graph itself. Null when nothing changed.
// `bound`: see PassOptions.
std::shared_ptr<const Graph> rewrite_levels(const Graph& graph, const LevelRewrite& rewrite,
                                            const std::vector<bool>& bound = {});

// What is the same in every iteration of the loop whose body this is: consts, and what depends on nothing else.
std::vector<bool> invariant_values(const Graph& body, const ir::LoopView& loop);

// Where v belongs when values are laid side by side: in the order of the weights they meet in dots, as the graph around
// the loop has them. So the gradients of gates come in the order of the gates, whichever pass arranges them.
std::pair<int, int> place_of_partner(Value v, const Level& level, const ir::ValueIndex& index, const ir::Uses& uses);

}  // namespace hotloop::passes
