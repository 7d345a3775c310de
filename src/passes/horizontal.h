// Merging nodes that stand side by side into one. The members of a group must not depend on each other, not even
// through other groups; the graph is put into an order in which each group is made at once.
#pragma once

#include <functional>
#include <memory>
#include <set>
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

  // A group that grows: what may join it is known from what its members read and what reads them, each found once.
  class Growing {
   public:
    // Of nodes among `candidates`.
    Growing(const Horizontal& merge, const std::vector<const Node*>& candidates);
    // Adds the node, unless it would depend on a member or a member on it.
    bool add(const Node* node);

   private:
    const Horizontal& merge_;
    std::size_t first_, last_;             // positions of the candidates: no way between them leaves these
    std::set<const Node*> above_, below_;  // what members depend on, what depends on members
  };

  explicit Horizontal(const Graph& graph);
  bool is_taken(const Node& node) const { return group_of_[static_cast<std::size_t>(node.id)] >= 0; }
  // Whether the nodes could be one group, given those accepted so far.
  bool independent(const std::vector<const Node*>& members, const std::vector<Value>& needs = {}) const;
  void accept(Group group);
  // The graph with all groups merged; null if there are none.
  std::shared_ptr<const Graph> run(const PassOptions& options);

 private:
  // A unit is a node by itself, or a group.
  std::size_t unit_of(const Node* node) const;
  std::vector<const Node*> members_of(std::size_t unit) const;
  std::vector<Value> inputs_of(std::size_t unit) const;
  std::size_t position_of(const Node* node) const { return position_[unit_of(node)]; }

  const Graph& graph_;
  std::vector<Group> groups_;
  std::vector<int> group_of_;                      // by node, -1 for none
  std::vector<std::vector<const Node*>> readers_;  // by node
  // An order in which every unit comes after what it reads, kept up as groups are accepted: a search for dependences goes no further
  // than it. Places that merging left over hold no_unit.
  static constexpr std::size_t no_unit = static_cast<std::size_t>(-1);
  std::vector<std::size_t> order_;
  std::vector<std::size_t> position_;  // by unit
};

}  // namespace hotloop::passes
