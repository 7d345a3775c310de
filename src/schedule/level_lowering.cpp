// The levels of a graph as statements: what runs once, grids of tiles, loops that hold both.
#include <algorithm>
#include <functional>
#include <set>

#include "core/cancel.h"
#include "core/index.h"
#include "hotloop/error.h"
#include "ir/op_def.h"
#include "schedule/block.h"
#include "schedule/dot_plan.h"
#include "schedule/lane_copies.h"
#include "schedule/levels.h"
#include "schedule/map_builder.h"
#include "schedule/tile_shape.h"
#include "schedule/visited.h"

namespace hotloop {

using ir::OpKind;
using kernel::Affine;
using kernel::Block;
using kernel::Space;

namespace {

// A level that can compute the value of an output: its own, for a view the one it can first be read from. What a loop in tiles gives
// without the tile axis (a step counter) every block computes: it is copied, from the first block, when they are done.
int output_level(Value v, const Levels& levels, const AxisAnalysis& axes, int tile_class) {
  const int l = levels.level.at(v.node);
  const bool has_tile_axis = axes.axis_in(v, tile_class) >= 0;
  // Views of the batch are copied tile by tile when nothing else says so.
  if (floats(*v.node) && has_tile_axis && !levels.is_region(l) && !axes.couples(*v.node, tile_class)) return l + 1;
  const bool in_tiles = levels.is_region(l) && !levels.outer_loops.contains(v.node);
  if (in_tiles && !has_tile_axis) return l + 1;
  return l;
}

class LevelLowering {
 public:
  LevelLowering(LoweringContext& context, const Graph& graph, const std::vector<LevelOutput>& outputs)
      : context_(context),
        graph_(graph),
        outputs_(outputs),
        levels_(assign_levels(graph, context.axes(), context.tile_class, rows_class())) {
    num_levels_ = levels_.num_levels + 1;
    computed_.resize(static_cast<std::size_t>(num_levels_));
    for (std::size_t i = 0; i < graph.nodes().size(); ++i) {
      const Node* n = graph.nodes()[i].get();
      position_[n] = i;
      if (!ir::is(*n, OpKind::Input) && !floats(*n) && !levels_.outer_loops.contains(n))
        computed_[static_cast<std::size_t>(home(*n))].push_back(n);
    }
    find_crossings();
    crossing_views_.resize(computed_.size());
    for (const auto& [n, index] : crossing_)
      if (floats(*n)) crossing_views_[static_cast<std::size_t>(levels_.level.at(n))].push_back(n);
  }

  Block run() {
    Block program;
    for (int l = 0; l < num_levels_; ++l) {
      leave_if_cancelled();
      if (levels_.is_region(l)) {
        tile_level(l, program);
        // In the order of the graph: that of addresses would be another one in each process, and so would the kernel.
        for (const auto& node : graph_.nodes())
          if (const auto loop = levels_.outer_loops.find(node.get());
              loop != levels_.outer_loops.end() && levels_.level.at(loop->first) == l)
            outer_loop(*loop->first, loop->second, program);
      } else
        single_level(l, program);
    }
    return program;
  }

 private:
  bool is_partial(const Node& n) const { return sums_in_parts(n, context_.axes(), context_.tile_class); }
  // Where the node is computed; a partial sum one level before it is whole.
  int home(const Node& n) const { return levels_.level.at(&n) - (is_partial(n) ? 1 : 0); }
  // The class whose extent is a run-time number; all tiles are cut along it then.
  int rows_class() const { return context_.options().variable_rows ? context_.tile_class : -1; }

  void find_crossings();
  int output_level(Value v) const { return hotloop::output_level(v, levels_, context_.axes(), context_.tile_class); }
  std::vector<const Node*> nodes_at(int level) const;
  std::vector<BlockTarget> output_targets(int level);
  std::optional<Storage> place_of_output(Value v) const;
  void single_level(int level, Block& program);
  void tile_level(int level, Block& program);
  void outer_loop(const Node& loop, int cls, Block& program);
  void append_once(Block block, Block& program, bool for_tiles = false) const;

  LoweringContext& context_;
  const Graph& graph_;
  const std::vector<LevelOutput>& outputs_;
  Levels levels_;
  int num_levels_ = 0;
  std::vector<std::vector<const Node*>> computed_;  // at each level
  std::map<const Node*, std::size_t> position_;     // in the graph
  std::set<ValueKey> crossing_;                     // computed at one level, read at another
  std::vector<std::vector<const Node*>> crossing_views_;
  struct PendingSum {
    Value value;
    Storage partial;  // of block 0
    std::int64_t elements, num_blocks;
  };
  std::vector<PendingSum> pending_;
};

void LevelLowering::find_crossings() {
  // Leaves that are computed, through anything that floats.
  Visited<int> met;
  const auto visit = [&](auto&& self, Value v, int reader) -> void {
    if (!met.is_first(v, reader)) return;
    if (!floats(*v.node)) {
      if (levels_.level.at(v.node) != reader) crossing_.insert(key_of(v));
      return;
    }
    if (ir::is(*v.node, OpKind::Extent)) return;
    // From a tile, a reshape that mixes the rows of all tiles can be read only where it lies in memory.
    if (levels_.is_region(reader) && ir::is(*v.node, OpKind::Reshape) && context_.tile_class >= 0 &&
        context_.axes().couples(*v.node, context_.tile_class))
      crossing_.insert(key_of(v));
    for (const Value& o : v.node->operands) self(self, o, reader);
  };
  for (const auto& node : graph_.nodes())
    if (!floats(*node))
      for (const Value& v : node->operands) visit(visit, v, home(*node));
  for (const Value& v : graph_.outputs())
    if (floats(*v.node) || output_level(v) != levels_.level.at(v.node)) visit(visit, v, output_level(v));
}

// What the level computes and the views and constants that it reads, in the order of the graph.
std::vector<const Node*> LevelLowering::nodes_at(int level) const {
  std::vector<const Node*> nodes = computed_[static_cast<std::size_t>(level)];
  std::set<const Node*> seen;
  const std::function<void(const Node*)> visit = [&](const Node* n) {
    if (!floats(*n) || ir::is(*n, OpKind::Input) || levels_.level.at(n) > level || !seen.insert(n).second) return;
    nodes.push_back(n);
    for (const Value& v : n->operands) visit(v.node);
  };
  for (std::size_t i = 0, n = nodes.size(); i < n; ++i)
    for (const Value& v : nodes[i]->operands) visit(v.node);
  for (const Value& v : graph_.outputs())
    if (output_level(v) == level) visit(v.node);
  for (const Node* n : crossing_views_[static_cast<std::size_t>(level)]) visit(n);
  std::ranges::sort(nodes, {}, [&](const Node* n) { return position_.at(n); });
  return nodes;
}

std::vector<BlockTarget> LevelLowering::output_targets(int level) {
  std::vector<BlockTarget> targets;
  for (std::size_t i = 0; i < outputs_.size(); ++i) {
    const Value v = graph_.outputs()[i];
    if (!outputs_[i].storage || output_level(v) != level || levels_.outer_loops.contains(v.node)) continue;
    Storage place = *outputs_[i].storage;
    const int axis = context_.in_tile() ? context_.axes().axis_in(v, context_.tile_class) : -1;
    if (axis >= 0) {
      const Affine row0 = context_.global_index(v, axis, 0);
      place.offset = place.offset + row0 * place.strides[static_cast<std::size_t>(axis)];
    }
    targets.push_back({v, place, outputs_[i].overwrites, false});
  }
  return targets;
}

// Statements outside tiles: large maps are shared by the workers, as are large packs which all of them read `for_tiles`; the rest is run by the
// first one. (Packs that one worker reads are better made by it: make_sections.) What can run at once join_phases puts together.
void LevelLowering::append_once(Block block, Block& program, bool for_tiles) const {
  const std::int64_t worth_splitting = context_.options().target.has_blocks() ? 1 << 10 : 1 << 14;
  kernel::Single single;
  const auto flush = [&] {
    if (single.body.empty()) return;
    program.push_back({std::move(single)});
    program.push_back({kernel::Barrier{}});
    single = {};
  };
  for (kernel::Stmt& stmt : block) {
    auto* map = std::get_if<kernel::Map>(&stmt.node);
    std::int64_t points = 1;
    if (map != nullptr)
      for (const auto& d : map->dims) points *= d.extent.bound;
    const bool ordered = map != nullptr && map->vector_dim < 0;
    auto* pack = std::get_if<kernel::Pack>(&stmt.node);
    const bool by_blocks = context_.options().target.has_blocks();
    if (pack != nullptr && (by_blocks || (for_tiles && pack->n > context_.program.target.panel(pack->dtype))))
      points = pack->k * pack->n;
    if (((map != nullptr && !ordered && map->num_outer > 0) || pack != nullptr) && context_.options().num_workers > 1 &&
        points >= worth_splitting) {
      flush();
      (map != nullptr ? map->split : pack->split) = true;
      program.push_back(std::move(stmt));
      program.push_back({kernel::Barrier{}});
    } else {
      single.body.push_back(std::move(stmt));
    }
  }
  flush();
}

// Where a sum may be added up since it is an output that lies there by itself, row-major.
std::optional<Storage> LevelLowering::place_of_output(Value v) const {
  for (std::size_t i = 0; i < outputs_.size(); ++i) {
    const LevelOutput& output = outputs_[i];
    if (graph_.outputs()[i] == v && output.storage && !output.overwrites &&
        output.storage->strides == row_major(output.storage->buffer, v.shape()).strides)
      return output.storage;
  }
  return std::nullopt;
}

void LevelLowering::single_level(int level, Block& program) {
  Block block;
  // Sums of the grid before: block after block, in order.
  for (const PendingSum& sum : pending_) {
    Storage whole = sum.partial;
    if (sum.num_blocks > 1) {
      kernel::Map map;
      map.name = "sum_blocks";
      const DType d = sum.value.dtype();
      map.dims.push_back({context_.new_var("i"), {sum.elements, -1}});
      map.num_outer = 1;
      map.vector_dim = 0;
      const Affine at = Affine::of(map.dims[0].var);
      const bool in_a_loop = sum.num_blocks > 16;
      if (in_a_loop) {
        map.dims.push_back({context_.new_var("b"), {sum.num_blocks, -1}});
        const Affine in_block = Affine::of(map.dims[1].var, sum.elements);
        map.instrs = {kernel::load_instr(d, {sum.partial.buffer, at + in_block, {}}),
                      kernel::reduced_instr(ir::ScalarOp::Add, d, 0)};
        map.body_end = 1;
      }
      for (std::int64_t b = 0; !in_a_loop && b < sum.num_blocks; ++b) {
        map.instrs.push_back(kernel::load_instr(d, {sum.partial.buffer, at + Affine(b * sum.elements), {}}));
        if (b == 0) continue;
        const int last = static_cast<int>(map.instrs.size()) - 1;
        map.instrs.push_back(kernel::op_instr(ir::ScalarOp::Add, d, last - 1, last));
      }
      if (const auto result = place_of_output(sum.value); result && result->strides == sum.partial.strides)
        whole = *result;
      else
        whole.buffer = context_.new_buffer("sum", d, sum.elements, Space::Shared);
      map.instrs.push_back(
          kernel::store_instr(d, {whole.buffer, whole.offset + at, {}}, static_cast<int>(map.instrs.size()) - 1));
      if (!in_a_loop) map.body_end = static_cast<int>(map.instrs.size());
      block.push_back({map});
    }
    context_.bind(sum.value, whole);
  }
  pending_.clear();
  std::vector<Value> required;
  const auto nodes = nodes_at(level);
  for (const Node* n : nodes)
    if (!floats(*n))
      for (int i = 0; i < static_cast<int>(n->types.size()); ++i)
        if (crossing_.contains({n, i})) required.push_back({const_cast<Node*>(n), i});
  auto targets = output_targets(level);
  std::erase_if(targets, [&](const BlockTarget& t) {  // the only block has added up there
    return context_.is_bound(t.value) && context_.find(t.value) == t.storage;
  });
  append(block, lower_block(context_, nodes, targets, required));
  // Reshapes that tiles read, where they are not another view of what is in memory by now.
  std::vector<Value> copied;
  for (const Node* n : nodes)
    if (floats(*n) && crossing_.contains({n, 0}) && levels_.level.at(n) == level) {
      const Value v{const_cast<Node*>(n), 0};
      if (!context_.find(v)) copied.push_back(v);
    }
  if (!copied.empty()) append(block, lower_block(context_, nodes, {}, copied));
  append_once(std::move(block), program);
}

void LevelLowering::tile_level(int level, Block& program) {
  const auto nodes = nodes_at(level);
  const bool any =
      std::ranges::any_of(nodes, [](const Node* n) { return !floats(*n); }) || !output_targets(level).empty();
  if (!any) return;
  kernel::Grid grid;
  const std::int64_t rows = context_.axes().extent(context_.tile_class);
  grid.total = {rows, context_.options().variable_rows ? kernel::rows_var : -1};
  const TileShape shape = choose_tile_shape(context_, graph_, nodes);
  grid.tile_rows = shape.rows;
  // Blocks are of parts, each of which is a tile unless tiles hold several: several parts of one block, or each of them a block's.
  const std::int64_t parts = divided_up(rows, shape.rows / shape.parts),
                     parts_a_block = divided_up(parts, shape.most_blocks),
                     sums_a_tile = parts_a_block == 1 ? shape.parts : 1;
  grid.tiles_per_block = divided_up(parts_a_block, shape.parts);
  grid.num_blocks = divided_up(divided_up(rows, shape.rows), grid.tiles_per_block);
  const std::int64_t num_sums = grid.num_blocks * sums_a_tile;
  const int first_var = static_cast<int>(context_.program.vars.size());
  grid.block = context_.new_var("block");
  grid.row0 = context_.new_var("row0");
  grid.rows = context_.new_var("tile_rows");

  // What other levels read of this one lies in the shared arena, whole.
  std::vector<std::pair<Value, Storage>> shared;
  std::map<ValueKey, std::int64_t> own_size;
  for (const Node* n : nodes)
    if (!floats(*n) && !is_partial(*n))
      for (int i = 0; i < static_cast<int>(n->types.size()); ++i)
        if (crossing_.contains({n, i})) {
          const Value v{const_cast<Node*>(n), i};
          shared.emplace_back(v, context_.allocate(v, "whole"));
          // Without the tile axis it is the same number in every tile, but a loop's carry is computed in place: each block has its own, of
          // which the first is read later.
          auto& buffer = context_.program.buffers[static_cast<std::size_t>(shared.back().second.buffer)];
          if (context_.axes().axis_in(v, context_.tile_class) < 0) {
            own_size[key_of(v)] = buffer.elements;
            buffer.elements *= grid.num_blocks;
          }
        }

  std::vector<BlockTarget> partials;
  for (const Node* n : nodes) {
    if (!is_partial(*n)) continue;
    const Value v{const_cast<Node*>(n), 0};
    const auto plan = plan_dot(*n, [](Value) { return false; });
    const std::int64_t elements = v.shape().size();
    const auto result = num_sums == 1 && !(plan && rows_from_rhs(context_, *plan)) ? place_of_output(v) : std::nullopt;
    Storage place = result ? *result
                    : plan ? allocate_dot(context_, *plan, "partial")
                           : context_.allocate(v, "partial");
    if (num_sums > 1) context_.program.buffers[static_cast<std::size_t>(place.buffer)].elements = elements * num_sums;
    pending_.push_back({v, place, elements, sums_a_tile > 1 ? parts : num_sums});
    const bool is_whole = parts == 1 && grid.total.is_static() && !ir::is(*n, OpKind::ScatterAdd);
    const Affine at =
        grid.num_blocks > 1 ? place.offset + Affine::of(grid.block, elements * sums_a_tile) : place.offset;
    if (!is_whole) grid.prologue.push_back(fill(context_, place.buffer, at, elements * sums_a_tile, 0));
    place.offset = at;
    partials.push_back({v, place, {}, !is_whole, sums_a_tile > 1 ? elements : 0});
  }

  context_.enter_region();
  context_.regions.back().first_var = first_var;
  for (const auto& [v, place] : shared) context_.regions.back().written.insert(place.buffer);
  context_.enter_tile(grid.row0, shape.all_full ? -1 : grid.rows, grid.tile_rows, shape.by_lanes, shape.parts);
  std::vector<BlockTarget> targets = output_targets(level);
  for (const auto& [v, place] : shared) {
    Storage at = place;
    if (const int axis = context_.axes().axis_in(v, context_.tile_class); axis >= 0)
      at.offset = at.offset + Affine::of(grid.row0, at.strides[static_cast<std::size_t>(axis)]);
    else
      at.offset = at.offset + Affine::of(grid.block, own_size.at(key_of(v)));
    targets.push_back({v, at, {}, false});
  }
  targets.insert(targets.end(), partials.begin(), partials.end());
  if (shape.by_lanes) grid.body = copy_rows_innermost(context_, nodes);
  append(grid.body, lower_block(context_, nodes, targets, {}));
  context_.leave_tile();
  for (const auto& [v, place] : shared) context_.bind(v, place);
  append_once(context_.leave_region(), program, parts > shape.parts);
  program.push_back({std::move(grid)});
  program.push_back({kernel::Barrier{}});
}

// When something is done: each level has its statements, then its outer loops. One number for each, in the order of execution.
int place_of_statements(int level) { return 2 * level; }
int place_of_loops(int level) { return 2 * level + 1; }

// Where an input is read for the last time; it may be overwritten by statements there and later, whose blocks see to the order among them. A view that shows a
// tile rows of others is read until all tiles are done. An output that is the input, or a view of it, is a copy, made where outputs of its level are.
int last_reader(const Graph& graph, const Levels& levels, const AxisAnalysis& axes, int cls, Value input) {
  int last = 0;
  Visited<int, bool> met;
  const auto reads = [&](auto&& self, Value v, int level, bool when_tiles_are_done) -> void {
    if (!met.is_first(v, level, when_tiles_are_done)) return;
    if (v == input) last = std::max(last, when_tiles_are_done ? place_of_loops(level) : place_of_statements(level));
    if (v == input || !floats(*v.node) || ir::is(*v.node, OpKind::Extent)) return;
    const bool from_other_tiles = levels.is_region(level) && axes.couples(*v.node, cls);
    for (const Value& o : v.node->operands) self(self, o, level, when_tiles_are_done || from_other_tiles);
  };
  for (const auto& n : graph.nodes())
    if (!floats(*n))
      for (const Value& v : n->operands)
        reads(reads, v, levels.level.at(n.get()), levels.outer_loops.contains(n.get()));
  for (const Value& v : graph.outputs())
    if (floats(*v.node)) reads(reads, v, output_level(v, levels, axes, cls), false);
  return last;
}

// A loop at program level: every worker runs it, its body is cut into levels of its own.
void LevelLowering::outer_loop(const Node& loop, int cls, Block& program) {
  const auto count_of = [&](const char* name) { return static_cast<std::size_t>(loop.attrs.integer(name)); };
  const std::size_t num_carry = count_of("num_carry"), num_xs = count_of("num_xs"), num_consts = count_of("num_consts");
  const Graph& body = *loop.regions[0];
  const std::size_t num_ys = body.outputs().size() - num_carry;
  const auto result = [&](std::size_t i) { return Value{const_cast<Node*>(&loop), static_cast<int>(i)}; };
  // What a loop begins with may be views of views; a reshape among them that merges axes has to be in memory itself.
  const auto operands = [&](std::span<const BlockTarget> copies) {
    std::set<const Node*> views;
    const std::function<void(Value)> visit = [&](Value v) {
      if (!floats(*v.node) || ir::is(*v.node, OpKind::Input) || context_.find(v) || !views.insert(v.node).second)
        return;
      for (const Value& o : v.node->operands) visit(o);
    };
    for (const BlockTarget& copy : copies) visit(copy.value);
    if (std::ranges::none_of(views, [](const Node* n) { return ir::is(*n, OpKind::Reshape); }))
      return lower_copies(context_, copies);
    std::vector<const Node*> nodes(views.begin(), views.end());
    std::ranges::sort(nodes, {}, [&](const Node* n) { return position_.at(n); });
    return lower_block(context_, nodes, copies, {});
  };
  const auto in_memory = [&](Value v, Block& before) {
    if (const auto s = context_.find(v)) return *s;
    const Storage place = context_.allocate(v, "operand");
    const BlockTarget copy{v, place, {}, false};
    append(before, operands({&copy, 1}));
    context_.bind(v, place);
    return place;
  };

  Block before, after;
  std::vector<Storage> places;  // of the results
  for (std::size_t i = 0; i < loop.types.size(); ++i) {
    places.push_back(context_.allocate(result(i), "carry"));
    for (std::size_t o = 0; o < outputs_.size(); ++o)
      if (graph_.outputs()[o] == result(i) && outputs_[o].storage && !outputs_[o].overwrites) {
        places.back() = *outputs_[o].storage;
        break;
      }
  }
  std::vector<BlockTarget> initial;
  for (std::size_t i = 0; i < num_carry; ++i) initial.push_back({loop.operands[i], places[i], {}, false});
  append(before, operands(initial));

  kernel::For statement;
  statement.counter = context_.new_var("step");
  statement.trip = {loop.attrs.integer("length"), -1};
  statement.reverse = loop.attrs.flag("reverse");
  std::optional<kernel::Let> let;
  if (loop.attrs.flag("has_trip")) {
    const Storage trip = in_memory(loop.operands.back(), before);
    statement.trip.var = context_.new_var("trip");
    let = let_trip(context_, loop, trip, statement.trip.var, before);
  }
  const Affine step = Affine::of(statement.counter);
  const auto at_step = [&](Storage s) {
    s.offset = s.offset + step * s.strides[0];
    s.strides.erase(s.strides.begin());
    return s;
  };
  for (std::size_t i = 0; i < num_carry; ++i) context_.bind(body.inputs()[i], places[i]);
  for (std::size_t i = 0; i < num_xs; ++i)
    context_.bind(body.inputs()[num_carry + i], at_step(in_memory(loop.operands[num_carry + i], before)));
  for (std::size_t i = 0; i < num_consts; ++i) {
    const Value outer = loop.operands[num_carry + num_xs + i];
    in_memory(outer, before);
    context_.alias(body.inputs()[num_carry + num_xs + i], outer);
  }

  const int outer_class = context_.tile_class;
  context_.tile_class = cls;
  const Levels body_levels = assign_levels(body, context_.axes(), cls, rows_class());
  std::vector<LevelOutput> outputs(body.outputs().size());
  std::vector<BlockTarget> moves;
  for (std::size_t i = 0; i < num_carry; ++i) {
    const Value v = body.outputs()[i], old = body.inputs()[i];
    if (v == old) continue;
    const bool in_place =
        !floats(*v.node) && !body_levels.outer_loops.contains(v.node) &&
        last_reader(body, body_levels, context_.axes(), cls, old) <= place_of_statements(body_levels.level.at(v.node));
    if (in_place) {
      outputs[i] = {places[i], old};
      continue;
    }
    const Storage next = context_.allocate(v, "next");
    outputs[i] = {next, std::nullopt};
    // A value of its own to copy from, since the output may be a view of an old carry.
    context_.bind(result(i), next);
    moves.push_back({result(i), places[i], {}, false});
  }
  for (std::size_t i = 0; i < num_ys; ++i) {
    const Storage& ys = places[num_carry + i];
    if ((loop.regions.size() > 1 || let) && !read_where_written(loop, static_cast<int>(i)))
      before.push_back(fill(context_, ys.buffer, ys.offset, result(num_carry + i).shape().size(), 0));
    outputs[num_carry + i] = {at_step(ys), std::nullopt};
  }
  if (loop.regions.size() > 1) {
    const Graph& until = *loop.regions[1];
    for (std::size_t i = 0; i < num_carry; ++i) context_.bind(until.inputs()[i], places[i]);
    for (std::size_t i = 0; i < num_consts; ++i)
      context_.alias(until.inputs()[num_carry + i], loop.operands[num_carry + num_xs + i]);
    const Storage stop = context_.allocate(until.outputs()[0], "stop");
    std::vector<const Node*> nodes;
    for (const auto& n : until.nodes())
      if (!ir::is(*n, OpKind::Input)) nodes.push_back(n.get());
    const BlockTarget target{until.outputs()[0], stop, {}, false};
    append_once(lower_block(context_, nodes, {&target, 1}, {}), statement.test);
    statement.stop = kernel::Access{stop.buffer, stop.offset, {}};
  }
  statement.body = lower_levels(context_, body, outputs);
  context_.tile_class = outer_class;
  append_once(lower_copies(context_, moves), statement.body);

  const Storage& count = places.back();
  before.push_back(fill(context_, count.buffer, count.offset, 1, 0));
  append_once({count_one(context_, count)}, statement.body);
  append_once(std::move(before), program);
  if (let) program.push_back({*let});
  program.push_back({std::move(statement)});
  for (std::size_t i = 0; i < loop.types.size(); ++i) context_.bind(result(i), places[i]);
  // Results that are wanted in further places.
  std::vector<BlockTarget> further;
  for (std::size_t o = 0; o < outputs_.size(); ++o) {
    const Value v = graph_.outputs()[o];
    if (v.node == &loop && outputs_[o].storage && !(*outputs_[o].storage == places[static_cast<std::size_t>(v.index)]))
      further.push_back({v, *outputs_[o].storage, {}, false});
  }
  append_once(lower_copies(context_, further), program);
}

}  // namespace

Block lower_levels(LoweringContext& context, const Graph& graph, const std::vector<LevelOutput>& outputs) {
  return LevelLowering(context, graph, outputs).run();
}

}  // namespace hotloop
