// Lowering of a straight-line list of nodes: decides what lies in memory, fuses the rest into Maps, and emits statements.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <vector>

#include "schedule/context.h"

namespace hotloop {

// A place that must hold a value when the block ends.
struct BlockTarget {
  Value value;
  Storage storage;
  std::optional<Value> overwrites;  // a region input that lies there until then (a loop's carry)
  bool accumulate = false;          // add to what is there (partial sums)
  std::int64_t to_next_part = 0;    // elements: parts of a tile add to sums of their own
};

// Lowers the part of `nodes` (in topological order) that the targets and `required` values (which get storage of their own, bound
// in the context) need.
kernel::Block lower_block(LoweringContext& context, std::span<const Node* const> nodes,
                          std::span<const BlockTarget> targets, std::span<const Value> required);

// One loop node; its operands are in memory. results[i] is where result i goes, if anywhere.
kernel::Block lower_loop(LoweringContext& context, const Node& loop, std::span<const std::optional<Storage>> results);

// Whether every reader of the loop's y is a loop over it that runs as many iterations, as a derivative's backward loop does: then
// what an early end leaves unwritten is never read.
bool read_where_written(const Node& loop, int y);

// How often a loop with a trip count runs, which lies at `place`; of trip counts of lanes `before` finds the largest.
kernel::Let let_trip(LoweringContext& context, const Node& loop, const Storage& place, kernel::Var var,
                     kernel::Block& before);

// Adds one to the i32 scalar at `count`.
kernel::Stmt count_one(LoweringContext& context, const Storage& count);

// Copies of values that are computed or in memory to places, fused by index space.
kernel::Block lower_copies(LoweringContext& context, std::span<const BlockTarget> copies);

// Points of a value's index space: its axes longer than one; of a short row only the axis of the tile.
struct IndexSpace;
IndexSpace space_of(const LoweringContext& context, Value v);
// Of a copy of v. With `turns` short rows of more than a few numbers are a nest: they lie with the rows innermost on one side only, or are computed in turn.
IndexSpace space_of_copy(const LoweringContext& context, Value v, bool turns);

double num_points(const IndexSpace& space);
// How many arrays a map reads and writes: at most, and of those that have nothing to do with one another, as an optimiser's.
inline constexpr std::size_t most_arrays = 256;
std::size_t most_separate_arrays(const IndexSpace& space);

// What v costs at a point of its map, in cost_per_element, with all that is computed for it there and not `stored`.
double cost_of_point(const LoweringContext& context, Value v, const std::function<bool(Value)>& stored);

// By lanes a point computes all numbers of a row, each by code of its own. Where functions make that code long, which compilers need
// time for and caches have no room for, the numbers are computed in turn by the same code, if none of them needs another one's.
bool computes_numbers_in_turn(const LoweringContext& context, Value v, const std::function<bool(Value)>& stored);

// Sets `elements` of a buffer from `offset` on to the same number.
kernel::Stmt fill(LoweringContext& context, int buffer, const kernel::Affine& offset, std::int64_t elements,
                  double value);

}  // namespace hotloop
