#include "schedule/block.h"

#include "schedule/block_lowering.h"

namespace hotloop {

using kernel::Block;

namespace {

// With `whole_rows` all numbers of a row are one point.
IndexSpace points_of(const LoweringContext& context, Value v, bool whole_rows) {
  IndexSpace space;
  for (int i = 0; i < v.rank(); ++i)
    if (v.shape()[i] != 1 && (!whole_rows || context.axes().axis_class(v, i) == context.tile_class))
      space.outer.push_back(context.extent(v, i));
  return space;
}

}  // namespace

IndexSpace space_of(const LoweringContext& context, Value v) { return points_of(context, v, context.is_short_row(v)); }

IndexSpace space_of_copy(const LoweringContext& context, Value v, bool turns) {
  return points_of(context, v, context.is_short_row(v) && !(turns && context.is_turned_in_squares(v)));
}

// Addresses of more do not stay in registers, nor what is fetched ahead in the cache, where each vector is another array's; and compilers need time with
// the square of a function's length.
std::size_t most_separate_arrays(const IndexSpace& space) {
  constexpr double many_points = 128;
  return num_points(space) < many_points ? most_arrays : 32;
}

double num_points(const IndexSpace& space) {
  double points = 1;
  for (const auto* dims : {&space.outer, &space.reduced})
    for (const kernel::Extent& e : *dims) points *= static_cast<double>(e.bound);
  return points;
}

kernel::Stmt fill(LoweringContext& context, int buffer, const kernel::Affine& offset, std::int64_t elements,
                  double value) {
  kernel::Map map;
  map.name = "fill";
  map.dims.push_back({context.new_var("i"), {elements, -1}});
  map.num_outer = 1;
  map.vector_dim = 0;
  const DType dtype = context.program.buffers[static_cast<std::size_t>(buffer)].dtype;
  map.instrs = {kernel::const_instr(dtype, bits_of(dtype, value)),
                kernel::store_instr(dtype, {buffer, offset + kernel::Affine::of(map.dims[0].var), {}}, 0)};
  map.body_end = 2;
  return {map};
}

Block lower_copies(LoweringContext& context, std::span<const BlockTarget> copies) {
  Block block;
  std::vector<IndexSpace> spaces;
  for (const BlockTarget& copy : copies) {
    const auto source = context.find(copy.value);
    const bool turns =
        source ? context.has_rows_innermost(copy.value, *source) != context.has_rows_innermost(copy.value, copy.storage)
               : computes_numbers_in_turn(context, copy.value, [&](Value o) { return context.find(o).has_value(); });
    spaces.push_back(space_of_copy(context, copy.value, turns));
  }
  std::vector<bool> done(copies.size());
  for (std::size_t i = 0; i < copies.size(); ++i) {
    if (done[i]) continue;
    MapBuilder builder(context, spaces[i]);
    std::size_t num_arrays = 0;  // read and written
    for (std::size_t j = i; j < copies.size() && num_arrays < most_separate_arrays(spaces[i]); ++j) {
      if (done[j] || !(spaces[j] == spaces[i])) continue;
      builder.add(copies[j].value, &copies[j].storage, false);
      done[j] = true;
      num_arrays += 2;
    }
    block.push_back({builder.finish("copy")});
  }
  return block;
}

Block lower_block(LoweringContext& context, std::span<const Node* const> nodes, std::span<const BlockTarget> targets,
                  std::span<const Value> required) {
  return BlockLowering(context, nodes, targets, required).run();
}

}  // namespace hotloop
