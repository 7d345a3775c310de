#include "schedule/levels.h"

#include <algorithm>
#include <set>

#include "hotloop/error.h"
#include "ir/op_def.h"
#include "schedule/map_builder.h"

namespace hotloop {

using ir::OpKind;

bool floats(const Node& node) {
  const bool is_leaf = ir::is(node, OpKind::Input) || ir::is(node, OpKind::Constant) || ir::is(node, OpKind::Iota) ||
                       ir::is(node, OpKind::Extent);
  return is_leaf || is_strided_view(node);
}

namespace {

enum class Role { Once, Rows, Partial };

bool is_zero(Value v) {
  while (ir::is(*v.node, OpKind::Broadcast) || ir::is(*v.node, OpKind::Reshape) || ir::is(*v.node, OpKind::Transpose))
    v = v.node->operands[0];
  if (!ir::is(*v.node, OpKind::Constant)) return false;
  const Array& data = v.node->attrs.get<Array>("value");
  for (std::int64_t i = 0; i < data.size(); ++i)
    if (data.at(i) != 0) return false;
  return true;
}

// Rows added into a table that starts from zero may be added by blocks, into a table each. That pays where the rows bring more numbers
// than these tables hold; else one worker adds them all, in order.
bool adds_in_parts(const Node& scatter) {
  constexpr std::int64_t tables = 16;  // about as many as there are blocks
  const std::int64_t table = scatter.operands[0].shape().size(), updates = scatter.operands[2].shape().size();
  return is_zero(scatter.operands[0]) && table * tables <= updates;
}

// How a node takes part in tiles: not at all, row by row, or by partial sums.
Role role_of(const Node& node, const AxisAnalysis& axes, int cls) {
  if (cls < 0 || !axes.touches(node, cls) || axes.couples(node, cls)) return Role::Once;
  if (!axes.contracts(node, cls)) return Role::Rows;
  if (ir::is(node, OpKind::Loop)) return Role::Once;
  if (ir::is(node, OpKind::ScatterAdd) && !adds_in_parts(node)) return Role::Once;
  return axes.axis_in({const_cast<Node*>(&node), 0}, cls) >= 0 ? Role::Once : Role::Partial;
}

// The tile class of a loop's body, if the loop is one of whole training steps: it cannot be part of a tile itself, but each
// iteration has much to do that can. With a variable number of rows the class can only be theirs, `rows_class`: one run-time extent is
// all that a program has.
int outer_loop_class(const Node& node, const AxisAnalysis& axes, int rows_class) {
  if (!ir::is(node, OpKind::Loop)) return -1;
  if (node.regions.size() > 1 && node.regions[1]->outputs()[0].rank() > 0) return -1;
  const Graph& body = *node.regions[0];
  const int cls = axes.choose_tile_class(body);
  if (cls < 0 || axes.extent(cls) < 16 || (rows_class >= 0 && cls != rows_class)) return -1;
  double inside = 0, all = 0;
  for (const auto& n : body.nodes()) {
    if (floats(*n)) continue;
    const double flops = ir::estimate_flops(*n);
    all += flops;
    if (role_of(*n, axes, cls) != Role::Once) inside += flops;
  }
  // Workers meet after each region: an axis that is summed over again and again, as the width of the layers of one sample is, does
  // not pay, unless there is much to do in between. A batch is summed over at the end, for the gradient; one that is normalised is
  // summed over more often, and cut as in the program of one step all the same, whose sums have that order.
  const int num_regions = (assign_levels(body, axes, cls, rows_class).num_levels + 1) / 2;
  const double worth_a_region = num_regions <= 3 || axes.sums_products(cls) ? 1e4 : 1e5;
  return inside > 0.5 * all && inside > worth_a_region * num_regions ? cls : -1;
}

// Elementwise work outside tiles moves to the level of its first reader when that is outside tiles too: there it is part of the
// reader's map, and nothing waits in memory. (The decay of an optimiser's moments joins the update, for example.)
// Work in tiles that costs no more than to read what it gives moves there, too, if nothing else wants it: an extreme over the rows (of absolute values, of what
// is not finite) is found in one pass.
// A product of matrices that is a term of a sum moves to the sum, whose other terms may be known later: together they are one statement, whose order of
// summation then is that of the same program without what makes it wait.
void sink(const Graph& graph, const AxisAnalysis& axes, int tile_class, Levels& levels) {
  constexpr double no_more_than_reading = 1;
  std::map<const Node*, std::pair<int, int>> reader;  // the lowest and the highest level that reads a node
  const auto read_at = [&](const Node* n, int level) {
    const auto [it, fresh] = reader.try_emplace(n, level, level);
    if (!fresh) it->second = {std::min(it->second.first, level), std::max(it->second.second, level)};
  };
  std::set<const Node*> read_otherwise;  // than by the sum whose term it is
  for (const Value& v : graph.outputs()) {
    read_at(v.node, levels.level.at(v.node));
    read_otherwise.insert(v.node);
  }
  for (std::size_t i = graph.nodes().size(); i-- > 0;) {
    const Node* n = graph.nodes()[i].get();
    int& level = levels.level.at(n);
    const auto it = reader.find(n);
    if (floats(*n)) {
      // A view or constant is read where its readers are, and what it shows is no term of their sums.
      for (const Value& v : n->operands) read_otherwise.insert(v.node);
      if (it != reader.end() && !ir::is(*n, OpKind::Extent))
        for (const int at : {it->second.first, it->second.second})
          for (const Value& v : n->operands) read_at(v.node, at);
      continue;
    }
    if (ir::is(*n, OpKind::Elementwise) && it != reader.end() && it->second.first % 2 == 0) {
      const bool once = role_of(*n, axes, tile_class) == Role::Once && !levels.outer_loops.contains(n);
      const bool read_once = it->second.first == it->second.second && n->op->cost_per_element <= no_more_than_reading;
      if (once || read_once) level = std::max(level, it->second.first);
    }
    const Role role = role_of(*n, axes, tile_class);
    if (ir::is(*n, OpKind::Dot) && role == Role::Rows && it != reader.end() && !read_otherwise.contains(n) &&
        it->second.first == it->second.second && it->second.first % 2 == 1)
      level = std::max(level, it->second.first);
    const bool sums = ir::is(*n, OpKind::Elementwise) && n->op->scalar == ir::ScalarOp::Add;
    for (const Value& v : n->operands) {
      read_at(v.node, level - (role == Role::Partial ? 1 : 0));
      if (!sums) read_otherwise.insert(v.node);
    }
  }
  // Views follow what they show.
  for (const auto& node : graph.nodes())
    if (floats(*node) && !ir::is(*node, OpKind::Extent))
      for (const Value& v : node->operands)
        levels.level.at(node.get()) = std::max(levels.level.at(node.get()), levels.level.at(v.node));
}

}  // namespace

bool sums_in_parts(const Node& node, const AxisAnalysis& axes, int tile_class) {
  return !floats(node) && role_of(node, axes, tile_class) == Role::Partial;
}

Levels assign_levels(const Graph& graph, const AxisAnalysis& axes, int tile_class, int rows_class) {
  Levels result;
  // The first level at which a node has what it reads, as its operands lie.
  const auto first_level = [&](const Node& node, Role role) {
    const bool floating = floats(node), is_outer = result.outer_loops.contains(&node);
    int at = role == Role::Once && !is_outer ? 0 : 1;
    for (const Value& v : node.operands) {
      if (ir::is(node, OpKind::Extent)) break;  // reads no element
      const int from = result.level.at(v.node);
      const bool whole = is_outer || result.outer_loops.contains(v.node);  // no sharing of a region
      if (floating && tile_class >= 0 && axes.couples(node, tile_class))
        at = std::max(at, (from + 1) / 2 * 2);  // rows of other tiles: the operand must be whole
      else if (floating)
        at = std::max(at, whole ? from + 1 : from);  // what shows an outer loop's results is read after it, too
      else if (whole && (role != Role::Once || is_outer))
        at = std::max(at, from % 2 == 1 ? from + 2 : from + 1);
      else if (role == Role::Once)
        at = std::max(at, (from + 1) / 2 * 2);
      else
        at = std::max(at, from % 2 == 1 ? from : from + 1);
    }
    // Sums over the batch are whole at the next even level.
    return role == Role::Partial ? at + 1 : at;
  };
  const auto role = [&](const Node& node) { return floats(node) ? Role::Once : role_of(node, axes, tile_class); };
  for (const auto& node : graph.nodes()) {
    if (role(*node) == Role::Once)
      if (const int outer_class = outer_loop_class(*node, axes, rows_class); outer_class >= 0)
        result.outer_loops[node.get()] = outer_class;
    result.level[node.get()] = first_level(*node, role(*node));
    result.num_levels = std::max(result.num_levels, result.level[node.get()] + 1);
  }
  sink(graph, axes, tile_class, result);
  for (const auto& node : graph.nodes()) {
    // Rows that moved outside of tiles are done there at once.
    const int level = result.level.at(node.get());
    const bool whole = level % 2 == 0 && role(*node) == Role::Rows;
    HOTLOOP_CHECK(level >= first_level(*node, whole ? Role::Once : role(*node)),
                  "'" + node->op->name + "' would read what is not there yet");
  }
  return result;
}

}  // namespace hotloop
