// MapBuilder: one Map statement from the expressions of several values over one index space.
#pragma once

#include <map>
#include <optional>
#include <set>
#include <tuple>
#include <utility>
#include <vector>

#include "schedule/context.h"
#include "schedule/dot_plan.h"

namespace hotloop {

// Index space of a Map: extents of the axes that are longer than one; outer axes, then reduced ones.
struct IndexSpace {
  std::vector<kernel::Extent> outer, reduced;
  bool of_a_part = false;  // of the tile
  bool operator==(const IndexSpace&) const = default;
};

class MapBuilder {
 public:
  using Dots = std::map<ValueKey, DotPlan>;

  // `short_dots`: values that are sums of short dots, by lanes.
  MapBuilder(LoweringContext& context, const IndexSpace& space, const Dots* short_dots = nullptr);

  // Computes v at each point and, if asked, stores it at `target`. v's axes longer than one are the outer dims; of a short row all numbers
  // are computed at a point.
  // With `compute`, v itself is computed from its operands even though it is bound to memory.
  void add(Value v, const Storage* target, bool compute);
  // A dynamic_update's second operand into its place in `target`, where the first one lies.
  void add_update(const Node& node, const Storage& target);
  // A reduction node over the whole space; `accumulate` adds to what is at the target.
  void add_reduction(Value v, const Storage* target, bool accumulate);
  // What is computed from reductions of this map, at each of their results.
  void add_finish(Value v, const Storage* target) {
    finishes_.push_back({v, target ? std::optional(*target) : std::nullopt});
  }

  kernel::Map finish(const std::string& name);

 private:
  using Index = std::vector<kernel::Affine>;
  struct MemoKey {
    ValueKey value;
    std::vector<std::pair<std::int64_t, std::vector<std::pair<int, std::int64_t>>>> index;
    int predicate;
    auto operator<=>(const MemoKey&) const = default;
  };

  MemoKey memo_key(Value v, const Index& index, int predicate) const;
  // The index of v at a point; of a short row one index for each of its numbers.
  std::vector<Index> outer_indices(Value v) const;
  Index outer_index(Value v) const;
  int push(kernel::Instr instr);
  int constant(DType dtype, double value);
  int op(ir::ScalarOp op, DType dtype, int a, int b = -1, int c = -1);
  int integer_index(const kernel::Affine& index, DType dtype);
  // The smallest and largest value of an index over the points of the map, as far as its dims tell.
  std::pair<std::int64_t, std::int64_t> range_of(const kernel::Affine& index) const;
  // index >= bound, or index < bound, of an index into an axis of `extent`; once for all that ask.
  int compare_index(ir::ScalarOp test, const kernel::Affine& index, std::int64_t bound, std::int64_t extent);
  int load(const Storage& storage, DType dtype, const Index& index, int predicate,
           std::vector<kernel::Indirect> indirect = {});
  void store(const Storage& storage, DType dtype, const Index& index, int value,
             std::vector<kernel::Indirect> indirect = {}, int predicate = -1);
  int emit(Value v, const Index& index, int predicate);          // looks memory up first
  int emit_compute(Value v, const Index& index, int predicate);  // from the operands
  // Where a dynamic_slice or dynamic_update whose starts are the operands from `first` on begins: the part of `part` in `whole`, in the
  // lane of `index`.
  std::vector<kernel::Indirect> starts_of(const Node& node, std::size_t first, const Shape& part, const Storage& whole,
                                          const Index& index, int predicate);
  int emit_clamped(Value index_value, const Index& index, int predicate, std::int64_t high);
  int emit_view(Value v, const Index& index, int predicate);
  int emit_random_bits(Value v, const Index& index, int predicate);
  int emit_short_dot(const DotPlan& plan, const Index& index, int predicate);
  int emit_short_reduction(Value v, const Index& index, int predicate);

  LoweringContext& context_;
  const Dots* short_dots_;
  kernel::Map map_;
  std::vector<kernel::Affine> outer_,
      reduced_;  // where a point is along the dims; 0 along those of one row, which the map has not
  std::map<MemoKey, int> memo_;
  std::set<ValueKey> computed_;  // here: in memory only when the map has run
  std::map<std::pair<DType, std::uint64_t>, int> constants_;
  std::map<std::tuple<ir::ScalarOp, std::int64_t, MemoKey>, int> comparisons_;
  struct PendingReduction {
    Value value;
    int reg;
    std::optional<Storage> target;
    bool accumulate;
  };
  struct PendingFinish {
    Value value;
    std::optional<Storage> target;
  };
  struct PendingStore {
    Storage target;
    DType dtype;
    Index index;
    int reg;
    std::vector<kernel::Indirect> indirect = {};
    int predicate = -1;
  };
  std::vector<PendingReduction> reductions_;
  std::vector<PendingFinish> finishes_;
  std::vector<PendingStore> pending_stores_;
};

// Whether a node with short rows computes all numbers of a row at one point, and reads its operands so.
bool computes_rows(const Node& node);
// Whether what such a node reads or writes is turned in a copy of its own: one more pass, which should not leave the first cache.
bool turns_in_a_copy(const LoweringContext& context, Value v);

// What combines the numbers of a reduction.
ir::ScalarOp combiner_of(const Node& reduce);
// The axis of the operand along which lanes run, if any: the innermost long one, where the axes within it hold few elements together, those that are summed
// and those that are left over. It follows from shape and dtype alone, not from what is outside: a sample is summed alike alone and in a batch.
std::optional<int> axis_over_lanes(const Node& reduce);
// Whether the order of such a sum depends on how many lanes its statement has, which is for the widest number that the statement touches.
bool depends_on_lanes(const Node& reduce);

// Bit pattern of `value` in `dtype`, zero-extended.
std::uint64_t bits_of(DType dtype, double value);

}  // namespace hotloop
