// The lowering of one block, in five steps: what is computed into memory (block_memory.cpp), in which statement (block_slots.cpp), what
// is computed where a carry lies (block_updates.cpp), where the rest lies, and the statements themselves (block_emit.cpp).
#pragma once

#include <map>
#include <optional>
#include <set>
#include <span>
#include <utility>
#include <vector>

#include "schedule/block.h"
#include "schedule/dot_plan.h"
#include "schedule/lane_copies.h"
#include "schedule/map_builder.h"
#include "schedule/visited.h"

namespace hotloop {

// Whether every point of the node's result reads the point of the operand with the same indices.
bool keeps_index(const LoweringContext& context, const Node& node, Value operand);

class BlockLowering {
 public:
  BlockLowering(LoweringContext& context, std::span<const Node* const> nodes, std::span<const BlockTarget> targets,
                std::span<const Value> required)
      : context_(context), nodes_(nodes), targets_(targets.begin(), targets.end()), turned_(context) {
    for (BlockTarget& t : targets_) t.value = context.resolve(t.value);
    for (Value v : required) required_.push_back(context.resolve(v));
    for (const Node* n : nodes) members_.insert(n);
  }

  kernel::Block run() {
    look_through_views();
    find_needed();
    plan_dots();
    choose_memory();
    place();
    settle_overwrites();
    return emit();
  }

 private:
  struct Item {  // something a slot computes
    Value value;
    bool is_copy = false;               // the value exists already and is only copied to the place
    std::optional<std::size_t> target;  // index into targets_ of a further or only place
  };
  struct Slot {
    enum class Kind { Map, Reduction, Dot, Other } kind = Kind::Map;
    IndexSpace space;
    std::vector<Item> items;
    std::map<ValueKey, bool> reads;  // values in memory; true: only at the same point
    double cost = 0;                 // of a map's point, in cost_per_element
  };

  Value result(const Node* n, int i = 0) const { return {const_cast<Node*>(n), i}; }
  bool in_block(Value v) const { return members_.contains(v.node); }
  bool stored(Value v) { return planned_.contains(key_of(v)) || context_.find(v).has_value(); }

  void look_through_views();
  void find_needed();
  void plan_dots();
  void choose_memory();
  void need_memory(Value v);
  void cut_long_chains();
  void shorten_rows();
  double inline_cost(Value v, double enough);
  double inline_cost(Value v, double enough, std::map<ValueKey, double>& known);
  bool lies_in_order(Value v);
  bool lies_somewhere(Value piece);
  std::size_t num_pieces(Value concat, std::size_t most);
  bool is_read_by_pieces(Value concat);
  bool computes_in_turn(Value v) {
    return computes_numbers_in_turn(context_, v, [&](Value o) { return stored(o); });
  }
  bool is_expression(const DotPlan& plan) const;
  bool changes_layout(const BlockTarget& target) const;
  void place();
  int long_functions_before(Value v);
  bool has_room(std::size_t slot, const std::map<ValueKey, bool>& reads, double cost) const;
  std::size_t slot_for_map_of(Value v, const IndexSpace& space, const std::map<ValueKey, bool>& reads, bool finishes);
  // `long_functions`: of the value (long_functions_before), which costs `cost` (cost_of_point). `finish`: the value itself, where it may be computed
  // from the results of reductions as these end.
  std::size_t slot_for_map(const IndexSpace& space, Slot::Kind kind, const std::map<ValueKey, bool>& reads,
                           int long_functions = 0, double cost = 0, std::optional<Value> finish = std::nullopt);
  bool may_finish(Value v);
  using Met = Visited<>;
  using MetAtPoints = Visited<bool>;  // whether at the same point
  bool is_light(Value v, DType dtype, Met& met);
  bool takes_finish(const Slot& slot, const IndexSpace& space, DType dtype) const;
  void collect_reads(Value v, bool same_point, std::map<ValueKey, bool>& reads);
  void collect_reads(Value v, bool same_point, std::map<ValueKey, bool>& reads, MetAtPoints& met);
  std::map<ValueKey, bool> reads_of_definition(Value v);
  std::map<ValueKey, bool> reads_to_compute(Value v);
  void place_definition(Value v);
  void place_copy(std::size_t target);
  void settle_overwrites();
  bool starts_from(Value v, Value start);
  bool updates_in_place(Value v, Value old);
  bool may_overwrite(Value v, Value old);
  std::vector<Value> updates_of(const BlockTarget& target);
  bool reads_elsewhere(Value v, const Node& update, Value table, bool same_point, MetAtPoints& met);
  bool reads_one_of(Value v, const std::set<ValueKey>& values);
  void keep_reads(Value v, const std::set<ValueKey>& written_over, const std::set<ValueKey>& table, Met& met);
  void compute_updates_first();
  void keep_lookups();
  void find_updates();
  Storage allocate_carry(Value v);
  void assign_storage();
  kernel::Block emit();
  const BlockTarget* sum_of_parts(Value v) const;
  void emit_slot(Slot& slot, kernel::Block& block);
  void emit_by_parts(std::span<Slot> slots, kernel::Block& block);
  std::vector<Value> summed_over_rows(const Slot& slot) const;
  bool is_read_elsewhere(Value v, std::size_t slot) const;
  bool is_kept(Value v, std::size_t slot) const;

  LoweringContext& context_;
  std::span<const Node* const> nodes_;
  std::vector<BlockTarget> targets_;
  std::vector<Value> required_;
  std::set<const Node*> members_, needed_;
  std::map<ValueKey, int> uses_;
  std::map<ValueKey, DotPlan> dots_;  // by result
  std::set<ValueKey> absorbed_;       // results that vanish inside a plan
  std::set<ValueKey> planned_;        // values that this block puts into memory
  std::vector<Value> planned_order_;
  std::map<ValueKey, Storage> place_of_;                // fixed places of planned values
  std::map<ValueKey, std::pair<Value, int>> piece_of_;  // value -> concat it is a piece of, which
  std::map<ValueKey, std::size_t> primary_target_;
  std::vector<Slot> slots_;
  std::map<ValueKey, std::size_t> producer_;
  std::map<ValueKey, int> long_functions_;  // of the longest way to a value through its map
  std::vector<std::size_t> late_copies_;    // targets written at the end, from a place of their own
  std::map<ValueKey, Value> table_of_;      // of what is computed where a carry lies: what lies there before
  std::set<ValueKey> comes_last_;           // these, and what follows from them
  TurnedRows turned_;
};

}  // namespace hotloop
