// What a tile by lanes reads of memory that has another layout, again and again or row by row: copied once, with the rows of the tile side by side.
// What a sum over these rows reads is turned the other way round.
#pragma once

#include <map>
#include <span>
#include <utility>
#include <vector>

#include "schedule/block.h"

namespace hotloop {

// The copies, for the beginning of a tile that computes `nodes`; the values are bound to them.
kernel::Block copy_rows_innermost(LoweringContext& context, std::span<const Node* const> nodes);

// In a tile by lanes the numbers of a row lie apart. A sum over the rows, as of a weight's gradient, has its results in lanes and goes from row to row:
// each of these vectors would be gathered. It reads a copy in which the numbers of a row lie side by side, one for all sums of a block.
class TurnedRows {
 public:
  explicit TurnedRows(LoweringContext& context) : context_(context) {}

  // Before a statement that reads `factors`: copies that are not there yet, at the end of `block`; the values are bound to them until release().
  void bind(std::span<const Value> factors, kernel::Block& block);
  void release();

 private:
  bool is_turned(Value v, const Storage& place) const;

  LoweringContext& context_;
  std::map<ValueKey, Storage> copies_;
  std::vector<std::pair<Value, Storage>> bound_;  // and where they lie otherwise
};

}  // namespace hotloop
