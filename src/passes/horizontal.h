// Merging nodes that stand side by side into one. The members of a group must not depend on each other, not even
// through other groups; the graph is put into an order in which each group is made at once.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "passes/builder.h"

namespace hotloop::passes {

class Horizontal {
 public:
  struct Group {
    std::vector<const Node*> members;
    std::vector<Value> needs;  // what `emit` reads beside the members' operands
    // Makes the members' results and maps them.
    std::function<void(ir::Rebuild&, Builder&)> emit;
  };

  explicit Horizontal(const Graph& graph);
  bool is_taken(const Node& node) const { return group_of_[static_cast<std::size_t>(node.id)] >= 0; }
  // Whether the nodes could be one group, given those accepted so far.
  bool independent(const std::vector<const Node*>& members, const std::vector<Value>& needs = {}) const;
  void accept(Group group);
  // The graph with all groups merged; null if there are none.
  std::shared_ptr<const Graph> run(const PassOptions& options);

 private:
  const Graph& graph_;
  std::vector<Group> groups_;
  std::vector<int> group_of_;  // by node, -1 for none
};

}  // namespace hotloop::passes
