#include "schedule/indirect_writes.h"

#include <algorithm>
#include <limits>
#include <numeric>
#include <vector>

#include "core/convert.h"
#include "hotloop/error.h"
#include "ir/op_def.h"
#include "schedule/block.h"
#include "schedule/hand_map.h"
#include "schedule/map_builder.h"

namespace hotloop {

using ir::OpKind;
using ir::ScalarOp;
using kernel::Affine;
using kernel::Block;

namespace {

Storage stored(LoweringContext& context, Value v) {
  const auto s = context.find(v);
  HOTLOOP_CHECK(s.has_value(), "operand of " + std::string("an indirect write") + " is in memory");
  return *s;
}

// A value computed into memory if it is not there yet.
Storage materialised(LoweringContext& context, Value v, Block& block) {
  if (const auto s = context.find(v)) return *s;
  const Storage place = context.allocate(context.resolve(v), "operand");
  const BlockTarget copy{context.resolve(v), place, {}, false};
  append(block, lower_copies(context, {&copy, 1}));
  return place;
}

void copy_to(LoweringContext& context, Value v, const Storage& target, Block& block) {
  const BlockTarget copy{context.resolve(v), target, {}, false};
  append(block, lower_copies(context, {&copy, 1}));
}

// The axes of updates, outermost first. What is added element by element to a few small tables with the same indices (heads with one table of
// relative positions each) goes to one place of each table in turn: the next index often names the place of the last one, whose sum it would wait
// for. Each place gets its updates in the same order.
std::vector<int> order_of_updates(const LoweringContext& context, const Node& node, int after, bool in_vectors) {
  constexpr std::int64_t most_tables =
      8;  // the updates of more may lie in lines that exclude each other from the first cache
  const Value table = node.operands[0], updates = node.operands[2];
  const int axis = static_cast<int>(node.attrs.integer("axis"));
  std::vector<int> order(static_cast<std::size_t>(updates.rank()));
  std::iota(order.begin(), order.end(), 0);
  std::int64_t tables = 1, bytes = static_cast<std::int64_t>(size_of(table.dtype()));
  for (int i = 0; i < axis; ++i) tables *= context.extent(updates, i).bound;
  for (int i = axis; i < table.rank(); ++i) bytes *= table.shape()[i];
  if (!in_vectors && tables <= most_tables && tables * bytes <= context.program.target.l1_bytes)
    std::rotate(order.begin(), order.begin() + axis, order.begin() + after);
  return order;
}

void scatter_add(LoweringContext& context, const Node& node, const Storage& target, bool accumulate, Block& block) {
  const Value indices = node.operands[1], updates = node.operands[2];
  const std::size_t axis = static_cast<std::size_t>(node.attrs.integer("axis"));
  const Storage index_storage = materialised(context, indices, block),
                update_storage = materialised(context, updates, block);
  const Value x = node.operands[0];
  if (!accumulate && context.find(x) != target) copy_to(context, x, target, block);
  // One index after the other, since several may name one place. The elements that one index moves lie in different places: where
  // there are enough to fill a vector, a loop over the indices stands around a map of these.
  const int lanes = ir::num_lane_axes(node.attrs), after = static_cast<int>(axis) + indices.rank() - lanes;
  std::int64_t run = 1;
  for (int i = after; i < updates.rank(); ++i) run *= updates.shape()[i];
  // So do those of different lanes: side by side in memory they fill vectors too, but where each lane's table lies by itself a vector would gather and
  // scatter everything, several times slower than one lane after the other.
  const bool long_run = run >= kernel::lanes_of(updates.dtype()) / 2;
  const bool lanes_side_by_side =
      lanes > 0 && context.by_lanes() && context.axes().axis_in(updates, context.tile_class) == 0;
  const bool in_vectors = long_run || lanes_side_by_side;
  HandMap map(context, "scatter_add");
  std::vector<kernel::For> loops;
  std::vector<Affine> at(static_cast<std::size_t>(updates.rank()));
  for (const int i : order_of_updates(context, node, after, in_vectors)) {
    const kernel::Extent extent = context.extent(updates, i);
    Affine& place = at[static_cast<std::size_t>(i)];
    const bool is_index = i >= static_cast<int>(axis) && i < after;
    if (!in_vectors || !is_index || (extent.is_static() && extent.bound == 1)) {
      place = map.dim(extent);
      continue;
    }
    loops.emplace_back();
    loops.back().counter = context.new_var("update");
    loops.back().trip = extent;
    place = Affine::of(loops.back().counter);
  }
  const auto first = at.begin() + static_cast<std::ptrdiff_t>(axis);
  std::vector<Affine> index_at(at.begin(), at.begin() + lanes);
  index_at.insert(index_at.end(), first, first + indices.rank() - lanes);
  std::vector<Affine> out_at(at.begin(), first);
  out_at.push_back(0);
  out_at.insert(out_at.end(), first + indices.rank() - lanes, at.end());
  const DType id = indices.dtype(), d = updates.dtype();
  const int row = map.load(index_storage, id, index_at);
  const std::int64_t n = node.types[0].shape[static_cast<int>(axis)];
  // Of a dtype that does not reach the end, no index lies beyond it.
  const int below =
      holds(id, n) ? map.op(ScalarOp::Lt, DType::Bool, row, map.constant(id, static_cast<double>(n))) : -1;
  int inside = map.op(ScalarOp::Ge, DType::Bool, row, map.constant(id, 0));
  if (below >= 0) inside = map.op(ScalarOp::And, DType::Bool, below, inside);
  const std::vector<kernel::Indirect> by{{row, target.strides[axis]}};
  const int old = map.load(target, d, out_at, by, inside);
  map.store(target, d, out_at, map.op(ScalarOp::Add, d, old, map.load(update_storage, d, at)), by, inside);
  kernel::Stmt stmt = map.finish(!in_vectors ? -1 : long_run ? map.num_dims() - 1 : 0);
  while (!loops.empty()) {
    kernel::For loop = std::move(loops.back());
    loops.pop_back();
    loop.body.push_back(std::move(stmt));
    stmt = {std::move(loop)};
  }
  block.push_back(std::move(stmt));
}

// What replaces a part is computed where it is written.
void dynamic_update(LoweringContext& context, const Node& node, const Storage& target, Block& block) {
  const Value x = node.operands[0], update = node.operands[1];
  if (context.find(x) != target) copy_to(context, x, target, block);
  MapBuilder builder(context, space_of(context, update));
  builder.add_update(node, target);
  block.push_back({builder.finish("dynamic_update")});
}

void pad_with_gaps(LoweringContext& context, const Node& node, const Storage& target, Block& block) {
  const Value x = node.operands[0];
  const Storage source = materialised(context, x, block), value = materialised(context, node.operands[1], block);
  HandMap all(context, "pad");
  const Value out{const_cast<Node*>(&node), 0};
  const std::vector<Affine> everywhere = all.dims(out);
  all.store(target, x.dtype(), everywhere, all.load(value, x.dtype(), {}));
  block.push_back(all.finish(all.num_dims() - 1));
  const auto& low = node.attrs.integers("low");
  const auto& interior = node.attrs.integers("interior");
  HandMap map(context, "pad_interior");
  const std::vector<Affine> at = map.dims(x);
  std::vector<Affine> to;
  for (std::size_t i = 0; i < at.size(); ++i) to.push_back(at[i] * (interior[i] + 1) + Affine(low[i]));
  map.store(target, x.dtype(), to, map.load(source, x.dtype(), at));
  block.push_back(map.finish(map.num_dims() - 1));
}

ScalarOp combiner_of_place(const Node& node) {
  const bool smallest = node.op->name == "argmin";
  if (node.operands[0].dtype() == DType::Bool) return smallest ? ScalarOp::And : ScalarOp::Or;
  return smallest ? ScalarOp::Min : ScalarOp::Max;
}

// `index` where `value` is the extremum `top` or NaN, else more than any index.
int index_where(HandMap& map, DType d, int value, int top, const Affine& index) {
  int hit = map.op(ScalarOp::Eq, DType::Bool, value, top);
  if (is_float(d)) hit = map.op(ScalarOp::Or, DType::Bool, hit, map.op(ScalarOp::Ne, DType::Bool, value, value));
  const int none = map.constant(DType::I32, std::numeric_limits<std::int32_t>::max());
  return map.op(ScalarOp::Select, DType::I32, hit, map.index(index, DType::I32), none);
}

// The length of blocks into which one long vector falls; 0 where it is looked at twice, as a whole.
std::int64_t block_length(std::int64_t n) {
  constexpr std::int64_t most = 2048, least = 256;
  if (n < 4 * most) return 0;
  std::int64_t length = most;
  while (length >= least && n % length != 0) --length;
  return length >= least ? length : 0;
}

// The same of one long vector in one pass: the extremum of each block, the first block that has the extremum of all, and the place in it.
void place_in_blocks(LoweringContext& context, const Node& node, const Storage& source, const Storage& target,
                     std::int64_t length, Block& block) {
  const Value x = node.operands[0];
  const DType d = x.dtype();
  const std::int64_t count = x.shape().size() / length;
  const ScalarOp combiner = combiner_of_place(node);
  const auto memory = [&](const char* name, DType dtype, std::int64_t elements) {
    const kernel::Space space = context.in_tile() ? kernel::Space::Worker : kernel::Space::Shared;
    return row_major(context.new_buffer(name, dtype, elements, space), {elements});
  };
  const Storage of_blocks = memory("of_blocks", d, count), extremum = memory("extremum", d, 1),
                found = memory("found", DType::I32, 1), vector{source.buffer, source.offset, {1}};
  HandMap all(context, node.op->name);
  const Affine b = all.dim({count, -1});
  const int outer = all.mark_outer();
  const int value = all.load(vector, d, {b * length + all.dim({length, -1})});
  all.end_body();
  all.store(of_blocks, d, {b}, all.reduced(combiner, d, value));
  block.push_back(all.finish(outer));

  HandMap ends(context, node.op->name);
  ends.mark_outer();
  const int of_block = ends.load(of_blocks, d, {ends.dim({count, -1})});
  ends.end_body();
  ends.store(extremum, d, {0}, ends.reduced(combiner, d, of_block));
  block.push_back(ends.finish(0));

  HandMap which(context, node.op->name);
  which.mark_outer();
  const Affine i = which.dim({count, -1});
  const int place = index_where(which, d, which.load(of_blocks, d, {i}), which.load(extremum, d, {0}), i);
  which.end_body();
  which.store(found, DType::I32, {0}, which.reduced(ScalarOp::Min, DType::I32, place));
  block.push_back(which.finish(0));

  HandMap inside(context, node.op->name);
  inside.mark_outer();
  const Affine j = inside.dim({length, -1});
  const int start = inside.load(found, DType::I32, {0});
  const int element = inside.load(vector, d, {j}, {{start, length}});
  const int in_block = index_where(inside, d, element, inside.load(extremum, d, {0}), j);
  inside.end_body();
  const int first = inside.reduced(ScalarOp::Min, DType::I32, in_block);
  const int before = inside.op(ScalarOp::Mul, DType::I32, inside.load(found, DType::I32, {0}),
                               inside.constant(DType::I32, static_cast<double>(length)));
  const std::vector<Affine> nowhere(target.strides.size());
  inside.store(target, DType::I32, nowhere, inside.op(ScalarOp::Add, DType::I32, before, first));
  block.push_back(inside.finish(0));
}

// First the largest or the smallest element (a NaN counts as that), then the smallest index where it stands.
void place_of_extremum(LoweringContext& context, const Node& node, const Storage& target, Block& block) {
  const Value x = node.operands[0];
  const int axis = static_cast<int>(node.attrs.integer("axis"));
  const Storage source = stored(context, x);
  const DType d = x.dtype();
  const Value out{const_cast<Node*>(&node), 0};
  const ScalarOp combiner = combiner_of_place(node);
  if (x.shape().size() == x.shape()[axis] && source.strides[static_cast<std::size_t>(axis)] == 1)
    if (const std::int64_t length = block_length(x.shape().size()); length > 0)
      return place_in_blocks(context, node, source, target, length, block);
  Storage extremum = context.allocate(out, node.op->name == "argmin" ? "smallest" : "largest");
  context.program.buffers[static_cast<std::size_t>(extremum.buffer)].dtype = d;
  for (int phase = 0; phase < 2; ++phase) {
    HandMap map(context, node.op->name);
    std::vector<Affine> at(static_cast<std::size_t>(x.rank())), kept;
    int side_by_side = -1;  // the dim along which numbers are
    for (int i = 0; i < x.rank(); ++i) {
      if (i == axis) continue;
      const auto s = static_cast<std::size_t>(i);
      kept.push_back(at[s] = map.dim(context.extent(x, i)));
      if (source.strides[s] == 1 && x.shape()[i] > 1) side_by_side = map.num_dims() - 1;
    }
    const int outer = map.mark_outer();
    const Affine along = at[static_cast<std::size_t>(axis)] = map.dim(context.extent(x, axis));
    const bool over = map.num_dims() > outer;  // an axis of extent 1 has nothing to reduce
    const int value = map.load(source, d, at);
    if (phase == 0) {
      map.end_body();
      map.store(extremum, d, kept, over ? map.reduced(combiner, d, value) : value);
    } else {
      const int top = map.load(extremum, d, kept);
      const int candidate = index_where(map, d, value, top, along);
      map.end_body();
      map.store(target, DType::I32, kept, over ? map.reduced(ScalarOp::Min, DType::I32, candidate) : candidate);
    }
    if (!over) map.end_body();
    // Along an axis that is contiguous its elements fill the vectors, as those of a sum do: neither of these depends on the order.
    const bool along_lanes = over && source.strides[static_cast<std::size_t>(axis)] == 1 && x.shape()[axis] >= 8;
    block.push_back(map.finish(along_lanes ? outer : side_by_side >= 0 ? side_by_side : outer - 1));
  }
}

}  // namespace

Block lower_indirect_write(LoweringContext& context, const Node& node, const Storage& target, bool accumulate) {
  HOTLOOP_CHECK(!accumulate || ir::is(node, OpKind::ScatterAdd), "only a sum is added to what is there");
  Block block;
  switch (node.op->kind) {
    case OpKind::ScatterAdd: scatter_add(context, node, target, accumulate, block); break;
    case OpKind::DynamicUpdate: dynamic_update(context, node, target, block); break;
    case OpKind::Pad: pad_with_gaps(context, node, target, block); break;
    case OpKind::ArgMax: place_of_extremum(context, node, target, block); break;
    default: throw InternalError(__FILE__, __LINE__, "op " + node.op->name + " has no statement of its own");
  }
  return block;
}

}  // namespace hotloop
