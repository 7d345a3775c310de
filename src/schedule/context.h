// What lowering knows while it walks the graph: the program under construction and where values lie.
#pragma once

#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "core/index.h"
#include "schedule/axes.h"
#include "schedule/kernel_ir.h"
#include "schedule/schedule.h"
#include "schedule/storage.h"

namespace hotloop {

using ValueKey = std::pair<const Node*, int>;
inline ValueKey key_of(Value v) { return {v.node, v.index}; }

// One axis of a factor of a dot where it is copied from.
struct CopiedAxis {
  kernel::Extent extent;
  std::int64_t stride;  // elements
  bool operator==(const CopiedAxis&) const = default;
};

// How a factor of a Dot is laid out anew: as pairs (see kernel::Dot), or only rounded.
struct Halving {
  int axis = -1;  // the one that is halved; -1: only rounded
  // For dots in blocks, whose halves are filled up with zeros to whole blocks: the axes that are summed over, in the order of the sum, the halved one last; and
  // those that the other factor does not have, the Dot's rows or its columns.
  std::vector<int> contracted = {}, free = {};
  bool of_rows = false;
  bool operator==(const Halving&) const = default;
};

class LoweringContext {
 public:
  LoweringContext(const AxisAnalysis& axes, const ScheduleOptions& options) : axes_(axes), options_(options) {
    program.vars = {"rows"};
  }

  kernel::Program program;

  kernel::Var new_var(const std::string& name);
  int new_buffer(const std::string& name, DType dtype, std::int64_t elements, kernel::Space space);
  const AxisAnalysis& axes() const { return axes_; }
  const ScheduleOptions& options() const { return options_; }

  // Region inputs that stand for a value outside are looked through.
  Value resolve(Value v) const;
  void alias(Value region_input, Value outer) { aliases_[key_of(region_input)] = resolve(outer); }

  // Where v lies: bound storage, a constant, or a strided view of such; nothing if it is in no memory yet.
  std::optional<Storage> find(Value v);
  void bind(Value v, const Storage& storage);  // inside a tile: lost when the tile ends
  bool is_bound(Value v) const;                // in memory of its own, not as a view of something else
  // An input that lies in a layout that only dots read (bound_factors.h), and what it is without.
  struct LaidOut {
    Value matrix;
    ir::FactorLayout layout;
    int buffer = -1, plain = -1;
  };
  void bind_laid_out(const LaidOut& input) { laid_out_.push_back(input); }
  const LaidOut* laid_out(Value v) const;  // null if it is none
  const std::vector<LaidOut>& all_laid_out() const { return laid_out_; }
  // A fresh place for v: in the worker's arena inside a tile, else in the shared one. Row-major, but in a tile by lanes, where the rows of the
  // tile are innermost.
  Storage allocate(Value v, const std::string& name);

  // Run-time extent of an axis where the lowering stands: rows of the tile, rows of the call, or a constant.
  kernel::Extent extent(Value v, int axis) const;
  // Whether the axis holds the rows of a tile that the lowering stands in.
  bool is_row_axis(Value v, int axis) const { return in_tile_ && axes_.axis_class(v, axis) == tile_class; }
  // Memory that v takes, by these extents.
  std::int64_t bytes_of(Value v) const;
  // The number of rows of the whole batch, for extent().
  kernel::Extent total_rows(Value v, int axis) const;
  // Index along an axis of the whole array from an index inside the tile.
  kernel::Affine global_index(Value v, int axis, const kernel::Affine& local) const;
  kernel::Affine local_index(Value v, int axis, const kernel::Affine& global) const;
  // Whether the lowering stands in a tile and the node, a view, shows rows of other tiles than its operand's (a slice along the batch,
  // say): its operand is then whole, and rows are counted from the start of the batch.
  bool crosses_tiles(const Node& view) const;

  // `rows`: the number of rows of this tile, or -1 where all tiles are full. `by_lanes`: rows fill vectors (docs/decisions/0012). `parts`: equal ones
  // of a tile, which sums over its rows go through.
  void enter_tile(kernel::Var row0, kernel::Var rows, std::int64_t tile_rows, bool by_lanes, std::int64_t parts);
  void leave_tile();
  bool in_tile() const { return in_tile_; }
  std::int64_t num_parts() const { return parts_; }
  std::int64_t rows_of_part() const { return whole_tile_rows_ / parts_; }
  // The number of rows of the tile, or -1 where all tiles are full. The last tile may have parts of fewer rows, or none; `rows` is the number of those of
  // part number `part`.
  kernel::Var rows_of_tile() const { return rows_; }
  kernel::Let let_rows_of_part(kernel::Var rows, kernel::Var part) const;
  // One part of the tile: its rows are all that there are until leave_part(). Places that are bound before lie in the whole tile. `rows`: their number, or -1
  // where all parts are full.
  void enter_part(kernel::Var part, kernel::Var rows);
  void leave_part();
  // Of the batch.
  std::int64_t num_tiles() const { return divided_up(axes_.extent(tile_class), tile_rows_); }
  // In a tile by lanes: whether v has so few numbers a row that a point of a statement computes all of them.
  bool is_short_row(Value v) const { return by_lanes_ && has_few_numbers_a_row(v); }
  // Of a short row: whether it has so many numbers that it is turned by a nest, in squares. At a point of its own each number of a row is code of its own,
  // which moves lane by lane what does not lie with the rows innermost.
  bool is_turned_in_squares(Value v) const {
    constexpr std::int64_t few_numbers = 8;
    return is_short_row(v) && v.shape().size() > few_numbers * axes_.extent(tile_class);
  }
  bool has_few_numbers_a_row(Value v) const;  // along the tile class
  bool by_lanes() const { return by_lanes_; }
  // Whether what lies at `place` has the rows of the tile side by side.
  bool has_rows_innermost(Value v, const Storage& place) const;

  int tile_class = -1;

  // Packed weights are made before the outermost loop or grid around their use in which they stay the same. A region is one such
  // loop or grid: buffers from `first_buffer` on are written inside it, as are those of `written`; vars from `first_var` on
  // change inside it.
  struct PackKey {
    Storage source;
    std::int64_t k, n, k_stride, n_stride;
    int buffer;
    std::int64_t panel;  // columns of its panels
  };
  // A factor copied so that its numbers lie in the order of these axes.
  struct CopyKey {
    kernel::Access source;
    std::vector<CopiedAxis> axes;
    int buffer;
  };
  // A factor laid out anew as pairs, or rounded, of a value of this shape.
  struct FactorKey {
    Storage source;
    Shape shape;
    Halving halving;
    Storage made;
  };
  struct Region {
    int first_buffer = 0, first_var = 0;
    std::set<int> written = {};
    bool in_tile = false;  // a loop in a tile: what is made before it belongs to the tile
    std::vector<PackKey> packs = {};
    std::vector<FactorKey> factors = {};
    std::vector<CopyKey> copies = {};
    kernel::Block before = {};  // goes in front of the loop or grid
  };
  std::vector<Region> regions;  // outermost first
  void enter_region() {
    regions.push_back({.first_buffer = static_cast<int>(program.buffers.size()),
                       .first_var = static_cast<int>(program.vars.size()),
                       .in_tile = in_tile_});
  }
  kernel::Block leave_region() {
    kernel::Block before = std::move(regions.back().before);
    regions.pop_back();
    return before;
  }
  int loop_depth = 0;
  // What statements of the current block have laid out anew, which others of it may read.
  std::vector<std::pair<ValueKey, FactorKey>> factors_here;

 private:
  // Moves by times a first row along the tile class, along each axis of it: that of the tile (or its part) in the batch, or of the part in the tile.
  void move_rows(Storage& s, Value v, const kernel::Affine& first) const;
  kernel::Affine first_row() const { return first_of_part_ + kernel::Affine::of(row0_); }
  const AxisAnalysis& axes_;
  const ScheduleOptions& options_;
  std::map<ValueKey, Storage> storage_, tile_storage_;
  std::map<ValueKey, Value> aliases_;
  std::vector<LaidOut> laid_out_;
  bool in_tile_ = false, by_lanes_ = false;
  kernel::Var row0_ = -1, rows_ = -1, whole_rows_ = -1;
  std::int64_t tile_rows_ = 1, whole_tile_rows_ = 1, parts_ = 1;
  kernel::Affine first_of_part_;  // in the tile
};

}  // namespace hotloop
