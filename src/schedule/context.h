// What lowering knows while it walks the graph: the program under construction and where values lie.
#pragma once

#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "schedule/axes.h"
#include "schedule/kernel_ir.h"
#include "schedule/schedule.h"
#include "schedule/storage.h"

namespace hotloop {

using ValueKey = std::pair<const Node*, int>;
inline ValueKey key_of(Value v) { return {v.node, v.index}; }

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
  // A fresh row-major place for v: in the worker's arena inside a tile, else in the shared one.
  Storage allocate(Value v, const std::string& name);

  // Run-time extent of an axis where the lowering stands: rows of the tile, rows of the call, or a constant.
  kernel::Extent extent(Value v, int axis) const;
  // The number of rows of the whole batch, for extent().
  kernel::Extent total_rows(Value v, int axis) const;
  // Index along an axis of the whole array from an index inside the tile.
  kernel::Affine global_index(Value v, int axis, const kernel::Affine& local) const;

  void enter_tile(kernel::Var row0, kernel::Var rows, std::int64_t tile_rows);
  void leave_tile();
  bool in_tile() const { return in_tile_; }

  int tile_class = -1;

  // Packed weights are made before the outermost loop or grid around their use. Buffers from `first_inner_buffer` on are
  // written inside it, as are those of `loop_written`.
  kernel::Block* hoisted = nullptr;
  int first_inner_buffer = 0, first_inner_var = 0;
  void mark_region(kernel::Block* before) {
    hoisted = before;
    first_inner_buffer = static_cast<int>(program.buffers.size());
    first_inner_var = static_cast<int>(program.vars.size());
  }
  std::multiset<int> loop_written;
  int loop_depth = 0;
  struct PackKey {
    Storage source;
    std::int64_t k, n, k_stride, n_stride;
    int buffer;
  };
  std::vector<PackKey> packs;

 private:
  const AxisAnalysis& axes_;
  const ScheduleOptions& options_;
  std::map<ValueKey, Storage> storage_, tile_storage_;
  std::map<ValueKey, Value> aliases_;
  bool in_tile_ = false;
  kernel::Var row0_ = -1, rows_ = -1;
  std::int64_t tile_rows_ = 1;
};

}  // namespace hotloop
