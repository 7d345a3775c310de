#include <algorithm>

#include "hotloop/error.h"
#include "ir/op_def.h"
#include "schedule/block.h"
#include "schedule/hand_map.h"

namespace hotloop {

using ir::ScalarOp;
using kernel::Affine;
using kernel::Block;

namespace {

std::vector<const Node*> nodes_of(const Graph& graph) {
  std::vector<const Node*> nodes;
  for (const auto& n : graph.nodes())
    if (!ir::is(*n, ir::OpKind::Input)) nodes.push_back(n.get());
  return nodes;
}

// Adds one to each count, but to those of lanes that are done.
kernel::Stmt count_up(HandMap& map, const std::vector<Affine>& at, const Storage& count,
                      const std::optional<Storage>& done) {
  const int before = map.load(count, DType::I32, at);
  int more = map.constant(DType::I32, 1);
  if (done) {
    const int is_done = map.load(*done, DType::Bool, at);
    more = map.op(ScalarOp::Select, DType::I32, is_done, map.constant(DType::I32, 0), more);
  }
  map.store(count, DType::I32, at, map.op(ScalarOp::Add, DType::I32, before, more));
  return map.finish(map.num_dims() - 1);
}

// All of v, which lies at `place`, combined into one number.
kernel::Stmt combine(LoweringContext& context, const char* name, ScalarOp op, Value v, const Storage& place,
                     const Storage& target) {
  HandMap map(context, name);
  int number = map.load(place, v.dtype(), map.dims(v));
  if (map.num_dims() > 0) {
    map.end_body();
    number = map.reduced(op, v.dtype(), number);
  }
  map.store(target, v.dtype(), {}, number);
  return map.finish(map.num_dims() - 1);
}

// Zeros everywhere: iterations that do not run leave them.
kernel::Stmt clear(LoweringContext& context, Value v, const Storage& place) {
  kernel::Map map;
  map.name = "clear";
  kernel::Access at{place.buffer, place.offset, {}};
  for (int a = 0; a < v.rank(); ++a) {
    map.dims.push_back({context.new_var("i"), context.extent(v, a)});
    at.index = at.index + Affine::of(map.dims.back().var, place.strides[static_cast<std::size_t>(a)]);
  }
  map.num_outer = static_cast<int>(map.dims.size());
  map.vector_dim = kernel::contiguous_dim(map, at);
  map.instrs = {kernel::const_instr(v.dtype(), bits_of(v.dtype(), 0)), kernel::store_instr(v.dtype(), at, 0)};
  map.body_end = 2;
  return {map};
}

// The last operand of `consumer` counts how many iterations of `loop` ran, in the lane that ran most.
bool runs_as_often(const Node& consumer, const Node& loop) {
  if (!ir::is(consumer, ir::OpKind::Loop) || !consumer.attrs.flag("has_trip")) return false;
  Value trip = consumer.operands.back();
  if (trip.node->op->name == "reduce_max") trip = trip.node->operands[0];
  return trip == Value{const_cast<Node*>(&loop), static_cast<int>(loop.types.size()) - 1};
}

}  // namespace

bool read_where_written(const Node& loop, int y) {
  if (loop.attrs.flag("reverse") || loop.attrs.flag("has_trip")) return false;
  const Value ys{const_cast<Node*>(&loop), static_cast<int>(loop.attrs.integer("num_carry")) + y};
  const Graph& graph = *ys.graph();
  if (std::ranges::find(graph.outputs(), ys) != graph.outputs().end()) return false;
  for (const auto& node : graph.nodes())
    for (std::size_t i = 0; i < node->operands.size(); ++i) {
      if (node->operands[i] != ys) continue;
      if (!runs_as_often(*node, loop)) return false;
      const auto first_xs = static_cast<std::size_t>(node->attrs.integer("num_carry"));
      if (i < first_xs || i >= first_xs + static_cast<std::size_t>(node->attrs.integer("num_xs"))) return false;
    }
  return true;
}

namespace {

// Short rows that each iteration reads are laid out with the rows innermost first.
void copy_short_rows(LoweringContext& context, std::span<const Value> values, Block& block) {
  std::vector<BlockTarget> copies;
  for (const Value& operand : values) {
    const Value v = context.resolve(operand);
    if (!context.is_short_row(v)) continue;
    const auto place = context.find(v);
    if (place && !context.has_rows_innermost(v, *place)) copies.push_back({v, context.allocate(v, "rows"), {}, false});
  }
  append(block, lower_copies(context, copies));
  for (const BlockTarget& copy : copies) context.bind(copy.value, copy.storage);
}

}  // namespace

kernel::Let let_trip(LoweringContext& context, const Node& loop, const Storage& place, kernel::Var var, Block& before) {
  const Value trip = loop.operands.back();
  kernel::Let let{var, {place.buffer, place.offset, {}}, trip.dtype(), 0, loop.attrs.integer("length")};
  if (trip.rank() == 0) return let;
  const Storage most{
      context.new_buffer("trip", trip.dtype(), 1, context.in_tile() ? kernel::Space::Worker : kernel::Space::Shared),
      0,
      {}};
  before.push_back(combine(context, "most_iterations", ScalarOp::Max, trip, place, most));
  let.source = {most.buffer, 0, {}};
  return let;
}

kernel::Stmt count_one(LoweringContext& context, const Storage& count) {
  HandMap map(context, "count");
  return count_up(map, {}, count, std::nullopt);
}

Block lower_loop(LoweringContext& context, const Node& loop, std::span<const std::optional<Storage>> results) {
  const auto count_of = [&](const char* name) { return static_cast<std::size_t>(loop.attrs.integer(name)); };
  const std::size_t num_carry = count_of("num_carry"), num_xs = count_of("num_xs"), num_consts = count_of("num_consts");
  const Graph& body = *loop.regions[0];
  const Graph* until = loop.regions.size() > 1 ? loop.regions[1].get() : nullptr;
  const bool has_trip = loop.attrs.flag("has_trip");
  const std::int64_t length = loop.attrs.integer("length");
  const std::size_t num_ys = body.outputs().size() - num_carry;
  const auto result = [&](std::size_t i) { return Value{const_cast<Node*>(&loop), static_cast<int>(i)}; };

  Block block;
  context.enter_region();

  // Carries live at the place of the final carry.
  std::vector<BlockTarget> initial;
  std::vector<Storage> carry;
  for (std::size_t i = 0; i < num_carry; ++i) {
    carry.push_back(results[i] ? *results[i] : context.allocate(result(i), "carry"));
    const Value start = context.resolve(loop.operands[i]);
    if (context.find(start) != carry[i]) initial.push_back({start, carry[i], {}, false});
  }
  append(block, lower_copies(context, initial));

  kernel::For statement;
  statement.counter = context.new_var("t");
  statement.trip = {length, -1};
  statement.reverse = loop.attrs.flag("reverse");
  std::optional<kernel::Let> let;
  if (has_trip) {
    const Value trip = loop.operands.back();
    const auto at = context.find(trip);
    HOTLOOP_CHECK(at.has_value(), "trip is in memory");
    statement.trip.var = context.new_var("trip");
    let = let_trip(context, loop, *at, statement.trip.var, block);
  }
  const Affine t = Affine::of(statement.counter);

  std::vector<BlockTarget> targets;
  std::set<int> written;
  for (std::size_t i = 0; i < num_carry; ++i) {
    context.bind(body.inputs()[i], carry[i]);
    written.insert(carry[i].buffer);
    if (context.resolve(body.outputs()[i]) != body.inputs()[i])
      targets.push_back({body.outputs()[i], carry[i], body.inputs()[i], false});
  }
  for (std::size_t i = 0; i < num_xs; ++i) {
    const auto x = context.find(loop.operands[num_carry + i]);
    HOTLOOP_CHECK(x.has_value(), "xs of a loop are in memory");
    Storage slice = *x;
    slice.offset = slice.offset + t * slice.strides[0];
    slice.strides.erase(slice.strides.begin());
    context.bind(body.inputs()[num_carry + i], slice);
  }
  copy_short_rows(context, std::span(loop.operands).subspan(num_carry + num_xs, num_consts), block);
  for (std::size_t i = 0; i < num_consts; ++i)
    context.alias(body.inputs()[num_carry + num_xs + i], loop.operands[num_carry + num_xs + i]);
  for (std::size_t i = 0; i < num_ys; ++i) {
    const auto& place = results[num_carry + i];
    if (!place) continue;
    if ((until != nullptr || has_trip) && !read_where_written(loop, static_cast<int>(i)))
      block.push_back(clear(context, result(num_carry + i), *place));
    Storage slice = *place;
    slice.offset = slice.offset + t * slice.strides[0];
    slice.strides.erase(slice.strides.begin());
    written.insert(slice.buffer);
    targets.push_back({body.outputs()[num_carry + i], slice, {}, false});
  }
  for (LoweringContext::Region& region : context.regions) region.written.insert(written.begin(), written.end());
  ++context.loop_depth;

  const std::size_t count_index = num_carry + num_ys;
  std::optional<Storage> done;
  if (until != nullptr) {
    for (std::size_t i = 0; i < num_carry; ++i) context.bind(until->inputs()[i], carry[i]);
    for (std::size_t i = 0; i < num_consts; ++i)
      context.alias(until->inputs()[num_carry + i], loop.operands[num_carry + num_xs + i]);
    const Value predicate = until->outputs()[0];
    done = context.allocate(predicate, "done");
    const BlockTarget target{predicate, *done, {}, false};
    const auto nodes = nodes_of(*until);
    statement.test = lower_block(context, nodes, {&target, 1}, {});
    int stop = done->buffer;
    if (predicate.rank() > 0) {
      stop =
          context.new_buffer("stop", DType::Bool, 1, context.in_tile() ? kernel::Space::Worker : kernel::Space::Shared);
      statement.test.push_back(combine(context, "all_done", ScalarOp::And, predicate, *done, {stop, 0, {}}));
    }
    statement.stop = kernel::Access{stop, 0, {}};
  }

  const auto nodes = nodes_of(body);
  statement.body = lower_block(context, nodes, targets, {});
  if (const auto& count = results[count_index]) {
    const Value v = result(count_index);
    block.push_back(clear(context, v, *count));
    HandMap map(context, "count");
    const std::vector<Affine> at = map.dims(v);
    statement.body.push_back(count_up(map, at, *count, v.rank() > 0 ? done : std::nullopt));
  }
  // Side by side: what workers share out between the two would end its scope.
  if (let) block.push_back({*let});
  block.push_back({std::move(statement)});

  --context.loop_depth;
  Block all = context.leave_region();
  append(all, std::move(block));
  return all;
}

}  // namespace hotloop
