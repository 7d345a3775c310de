// Minimum cut of a directed graph with capacities (Dinic 1970: blocking flows over level graphs).
#pragma once

#include <cstdint>
#include <vector>

namespace hotloop::passes {

class MinCut {
 public:
  static constexpr std::int64_t unlimited = std::int64_t{1} << 60;

  explicit MinCut(int num_nodes) : edges_of_(static_cast<std::size_t>(num_nodes)) {}
  void add_edge(int from, int to, std::int64_t capacity);
  // The value of the cut. Afterwards reaches_sink() tells the sides of the minimum cut nearest the sink.
  std::int64_t solve(int source, int sink);
  bool reaches_sink(int node) const { return reaches_sink_[static_cast<std::size_t>(node)]; }

 private:
  struct Edge {
    int to;
    std::int64_t residual;
  };
  bool find_levels(int source, int sink);
  std::int64_t push(int node, int sink, std::int64_t limit);
  void mark_sink_side(int sink);

  std::vector<Edge> edges_;  // edge e and its reverse e ^ 1
  std::vector<std::vector<int>> edges_of_;
  std::vector<int> level_;
  std::vector<std::size_t> next_;
  std::vector<bool> reaches_sink_;
};

}  // namespace hotloop::passes
