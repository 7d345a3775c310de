#include "passes/min_cut.h"

#include <algorithm>

#include "core/index.h"

namespace hotloop::passes {

void MinCut::add_edge(int from, int to, std::int64_t capacity) {
  edges_of_[at(from)].push_back(static_cast<int>(edges_.size()));
  edges_.push_back({to, capacity});
  edges_of_[at(to)].push_back(static_cast<int>(edges_.size()));
  edges_.push_back({from, 0});
}

bool MinCut::find_levels(int source, int sink) {
  level_.assign(edges_of_.size(), -1);
  level_[at(source)] = 0;
  std::vector<int> queue = {source};
  for (std::size_t i = 0; i < queue.size(); ++i) {
    for (int e : edges_of_[at(queue[i])]) {
      const Edge& edge = edges_[at(e)];
      if (edge.residual == 0 || level_[at(edge.to)] >= 0) continue;
      level_[at(edge.to)] = level_[at(queue[i])] + 1;
      queue.push_back(edge.to);
    }
  }
  return level_[at(sink)] >= 0;
}

std::int64_t MinCut::push(int node, int sink, std::int64_t limit) {
  if (node == sink) return limit;
  for (std::size_t& i = next_[at(node)]; i < edges_of_[at(node)].size(); ++i) {
    const int e = edges_of_[at(node)][i];
    const int to = edges_[at(e)].to;
    if (edges_[at(e)].residual == 0 || level_[at(to)] != level_[at(node)] + 1) continue;
    const std::int64_t pushed = push(to, sink, std::min(limit, edges_[at(e)].residual));
    if (pushed == 0) continue;
    edges_[at(e)].residual -= pushed;
    edges_[at(e ^ 1)].residual += pushed;
    return pushed;
  }
  return 0;
}

void MinCut::mark_sink_side(int sink) {
  reaches_sink_.assign(edges_of_.size(), false);
  reaches_sink_[at(sink)] = true;
  std::vector<int> stack = {sink};
  while (!stack.empty()) {
    const int node = stack.back();
    stack.pop_back();
    for (int e : edges_of_[at(node)]) {
      const int from = edges_[at(e)].to;
      if (reaches_sink_[at(from)] || edges_[at(e ^ 1)].residual == 0) continue;
      reaches_sink_[at(from)] = true;
      stack.push_back(from);
    }
  }
}

std::int64_t MinCut::solve(int source, int sink) {
  std::int64_t total = 0;
  while (find_levels(source, sink)) {
    next_.assign(edges_of_.size(), 0);
    while (const std::int64_t pushed = push(source, sink, unlimited)) {
      total += pushed;
      if (total >= unlimited) break;
    }
    if (total >= unlimited) break;
  }
  mark_sink_side(sink);
  return total;
}

}  // namespace hotloop::passes
