#include "schedule/desugar.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <optional>
#include <set>
#include <span>
#include <vector>

#include "hotloop/error.h"
#include "hotloop/ops.h"
#include "ir/op_def.h"
#include "schedule/replaced_parts.h"

namespace hotloop {
namespace {

using ValueMap = std::map<std::pair<const Node*, int>, Value>;

Value mapped_to(const ValueMap& mapped, Value v) { return mapped.at({v.node, v.index}); }

// The axes of the lanes lead in everything that has them.
Value broadcast_lanes(Value lanes, const Shape& shape) {
  std::vector<std::int64_t> axes(static_cast<std::size_t>(lanes.rank()));
  std::iota(axes.begin(), axes.end(), 0);
  return broadcast(lanes, shape, axes);
}

// A body whose finished lanes keep what they carry. Nothing else that it computes for them is seen.
class FrozenBody {
 public:
  FrozenBody(const Graph& body, const Graph& until, std::size_t num_carry, std::size_t num_xs)
      : body_(body), until_(until), num_carry_(num_carry), num_xs_(num_xs), keeps_(num_carry) {
    for (std::size_t i = 0; i < num_carry; ++i) keeps_[i] = find_updates(i);
  }

  std::shared_ptr<Graph> graph();

  // Lanes that have finished: of the loop whose body is copied.
  Value done() const { return done_; }
  // Whether a dynamic_update writes into a carry: for finished lanes it then writes what is there.
  bool is_kept(const Node& update) const { return updates_.contains(&update); }
  // Whether the loop's lanes finish with these.
  bool holds_back(const Node& loop) const {
    return loop.regions.size() > 1 && has_lanes_first(loop.regions[1]->outputs()[0].shape());
  }

 private:
  const Shape& done_shape() const { return until_.outputs()[0].shape(); }

  // Whether carry i becomes itself with parts replaced, also by loops that this one holds back: a table then is not copied for its lanes' sake.
  bool find_updates(std::size_t i) {
    std::vector<const Node*> found;
    Value v = body_.outputs()[i];
    while (v != body_.inputs()[i]) {
      const Node& node = *v.node;
      const std::optional<std::size_t> replaced = replaced_operand(v);
      const bool is_update = ir::is(node, ir::OpKind::DynamicUpdate);
      if (!replaced || !(is_update ? has_lanes_first(node.operands[1].shape()) : holds_back(node))) return false;
      if (is_update) found.push_back(&node);
      v = node.operands[*replaced];
    }
    updates_.insert(found.begin(), found.end());
    return true;
  }
  bool has_lanes_first(const Shape& shape) const {
    if (shape.rank() < done_shape().rank()) return false;
    for (int i = 0; i < done_shape().rank(); ++i)
      if (shape[i] != done_shape()[i]) return false;
    return true;
  }

  const Graph &body_, &until_;
  std::size_t num_carry_, num_xs_;
  std::vector<bool> keeps_;  // by carry
  std::set<const Node*> updates_;
  Value done_;
};

// Copies the nodes of `graph` into the current graph; `mapped` holds its inputs on entry.
std::vector<Value> copy_nodes(const Graph& graph, ValueMap& mapped, const FrozenBody* frozen = nullptr);

// Frozen lanes: where the predicate holds, carries keep their old value and ys are zero.
std::shared_ptr<Graph> FrozenBody::graph() {
  auto result = std::make_shared<Graph>(body_.name());
  TraceScope scope(*result);
  std::vector<Value> inputs;
  for (const Value& v : body_.inputs()) inputs.push_back(result->add_input(v.type()));
  ValueMap in_until, in_body;
  for (std::size_t i = 0; i < until_.inputs().size(); ++i)
    in_until[{until_.inputs()[i].node, 0}] = inputs[i < num_carry_ ? i : i + num_xs_];
  for (std::size_t i = 0; i < inputs.size(); ++i) in_body[{body_.inputs()[i].node, 0}] = inputs[i];
  done_ = copy_nodes(until_, in_until)[0];
  std::vector<Value> outputs = copy_nodes(body_, in_body, this);
  for (std::size_t i = 0; i < outputs.size(); ++i) {
    if (i < num_carry_ && keeps_[i]) continue;
    const Value mask = broadcast_lanes(done_, outputs[i].shape());
    outputs[i] = select(mask, i < num_carry_ ? inputs[i] : zeros_like(outputs[i]), outputs[i]);
  }
  result->set_outputs(outputs);
  return result;
}

std::shared_ptr<Graph> copy(const Graph& graph) {
  auto result = std::make_shared<Graph>(graph.name());
  TraceScope scope(*result);
  ValueMap mapped;
  for (std::size_t i = 0; i < graph.inputs().size(); ++i)
    mapped[{graph.inputs()[i].node, 0}] =
        result->add_input(graph.inputs()[i].type(), graph.input_name(static_cast<int>(i)));
  result->set_outputs(copy_nodes(graph, mapped));
  return result;
}

// The region with one more input, the lanes that have finished further out; a predicate holds for these as well.
std::shared_ptr<const Graph> with_outer_lanes(const Graph& region, const ValueType& lanes, bool is_predicate) {
  auto result = std::make_shared<Graph>(region.name());
  TraceScope scope(*result);
  ValueMap mapped;
  for (const Value& v : region.inputs()) mapped[{v.node, 0}] = result->add_input(v.type());
  const Value done = result->add_input(lanes);
  std::vector<Value> outputs = copy_nodes(region, mapped);
  if (is_predicate) outputs[0] = bit_or(outputs[0], broadcast_lanes(done, outputs[0].shape()));
  result->set_outputs(outputs);
  return result;
}

// The operands, attributes and regions that a node is copied with.
struct NodeParts {
  std::vector<Value> operands;
  Attrs attrs;
  std::vector<std::shared_ptr<const Graph>> regions;
};

// A loop inside a frozen body does not run for lanes that have finished.
void hold_back(const Node& loop, Value done, NodeParts& parts) {
  const std::int64_t num_consts = loop.attrs.integer("num_consts");
  parts.operands.insert(parts.operands.end() - (loop.attrs.flag("has_trip") ? 1 : 0), done);
  parts.attrs.set("num_consts", num_consts + 1);
  if (parts.attrs.has("laned")) {
    auto laned = parts.attrs.integers("laned");
    laned.push_back((std::int64_t{1} << done.rank()) - 1);
    parts.attrs.set("laned", laned);
  }
  parts.regions[0] = with_outer_lanes(*parts.regions[0], done.type(), false);
  parts.regions[1] = with_outer_lanes(*parts.regions[1], done.type(), true);
}

bool is_read(const Graph& graph, Value v) {
  return std::ranges::find(graph.outputs(), v) != graph.outputs().end() ||
         std::ranges::any_of(graph.nodes(), [&](const auto& node) {
           return std::ranges::find(node->operands, v) != node->operands.end();
         });
}

// The trip counts of the lanes, if the loop runs as often as the lane that wants most and the others let the rest pass: it need not know of
// lanes that run elsewhere.
std::optional<Value> trip_of_lanes(const Graph& graph, const Node& loop) {
  if (!ir::is(loop, ir::OpKind::Loop) || !loop.attrs.flag("has_trip") || !loop.attrs.has("idles")) return std::nullopt;
  const Node& most = *loop.operands.back().node;
  const Value count{const_cast<Node*>(&loop), static_cast<int>(loop.types.size()) - 1};
  if (most.op->name != "reduce_max" || most.types[0].shape.rank() > 0 || is_read(graph, count)) return std::nullopt;
  return most.operands[0];
}

// Nodes that nothing reads once loops know the trip counts of their lanes.
std::set<const Node*> unread_maxima(const Graph& graph) {
  std::map<const Node*, int> readers, trips;
  for (const Value& v : graph.outputs()) ++readers[v.node];
  for (const auto& node : graph.nodes()) {
    for (const Value& v : node->operands) ++readers[v.node];
    if (trip_of_lanes(graph, *node)) ++trips[node->operands.back().node];
  }
  std::set<const Node*> unread;
  for (const auto& [most, number] : trips)
    if (readers.at(most) == number) unread.insert(most);
  return unread;
}

// One number everywhere.
bool is_fill(const Node& node) { return ir::is(node, ir::OpKind::Broadcast) && node.operands[0].rank() == 0; }

std::vector<Value> copy_nodes(const Graph& graph, ValueMap& mapped, const FrozenBody* frozen) {
  Graph& target = current_graph();
  const std::set<const Node*> unread = unread_maxima(graph);
  for (const auto& node : graph.nodes()) {
    if (ir::is(*node, ir::OpKind::Input) || unread.contains(node.get())) continue;
    NodeParts parts{{}, node->attrs, {}};
    std::vector<Value> read = node->operands;
    if (const auto trip = trip_of_lanes(graph, *node)) read.back() = *trip;
    // Each reader of a number that is everywhere has it for itself: the axes of what reads it, rows here and weights of the same extents
    // there, have nothing to do with one another.
    for (const Value& v : read)
      parts.operands.push_back(is_fill(*v.node) ? broadcast(mapped_to(mapped, v.node->operands[0]), v.shape(),
                                                            v.node->attrs.integers("axes"))
                                                : mapped_to(mapped, v));
    if (is_fill(*node) && std::ranges::find(graph.outputs(), node->result(0)) == graph.outputs().end()) continue;
    if (frozen != nullptr && frozen->is_kept(*node)) {
      Value& update = parts.operands[1];
      const Value old = dynamic_slice(parts.operands[0], std::span(parts.operands).subspan(2), update.shape().vec());
      update = select(broadcast_lanes(frozen->done(), update.shape()), old, update);
    }
    const bool has_lanes =
        ir::is(*node, ir::OpKind::Loop) && node->regions.size() > 1 && node->regions[1]->outputs()[0].rank() > 0;
    if (has_lanes) {
      parts.regions = node->regions;
      if (frozen != nullptr && frozen->holds_back(*node)) hold_back(*node, frozen->done(), parts);
      FrozenBody body(*parts.regions[0], *parts.regions[1], static_cast<std::size_t>(node->attrs.integer("num_carry")),
                      static_cast<std::size_t>(node->attrs.integer("num_xs")));
      parts.regions = {body.graph(), copy(*parts.regions[1])};
    } else {
      for (const auto& region : node->regions) parts.regions.push_back(copy(*region));
    }
    Node* fresh = target.append(*node->op, parts.operands, parts.attrs, parts.regions, node->generation);
    for (int i = 0; i < static_cast<int>(node->types.size()); ++i) mapped[{node.get(), i}] = fresh->result(i);
  }
  std::vector<Value> outputs;
  for (const Value& v : graph.outputs()) outputs.push_back(mapped_to(mapped, v));
  return outputs;
}

}  // namespace

std::shared_ptr<Graph> desugar(const Graph& graph) { return copy(graph); }

}  // namespace hotloop
