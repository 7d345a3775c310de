#include "ir/rewrite.h"

#include "hotloop/error.h"

namespace hotloop::ir {

ValueIndex::ValueIndex(const Graph& graph) {
  first_.reserve(graph.nodes().size() + 1);
  int n = 0;
  for (const auto& node : graph.nodes()) {
    first_.push_back(n);
    n += static_cast<int>(node->types.size());
  }
  first_.push_back(n);
}

void ValueMap::set_results(const Node& from, std::span<const Value> to) {
  HOTLOOP_CHECK(to.size() == from.types.size(), "one value for each result of " + from.op->name);
  for (std::size_t i = 0; i < to.size(); ++i) set({const_cast<Node*>(&from), static_cast<int>(i)}, to[i]);
}

Value ValueMap::operator()(Value from) const {
  const Value to = find(from);
  HOTLOOP_CHECK(to.defined(), "a value of " + from.node->op->name + " was removed but is still used");
  return to;
}

Uses::Uses(const Graph& graph) : index_(graph) {
  const auto n = static_cast<std::size_t>(index_.size());
  output_.resize(n);
  first_.assign(n + 1, 0);
  for (const Value& v : graph.outputs()) output_[static_cast<std::size_t>(index_(v))] = true;
  for (const auto& node : graph.nodes())
    for (const Value& v : node->operands) ++first_[static_cast<std::size_t>(index_(v)) + 1];
  for (std::size_t i = 0; i < n; ++i) first_[i + 1] += first_[i];
  uses_.resize(static_cast<std::size_t>(first_[n]));
  std::vector<int> next(first_.begin(), first_.end() - 1);
  for (const auto& node : graph.nodes())
    for (std::size_t i = 0; i < node->operands.size(); ++i)
      uses_[static_cast<std::size_t>(next[static_cast<std::size_t>(index_(node->operands[i]))]++)] = {
          node.get(), static_cast<int>(i)};
}

std::span<const Use> Uses::of(Value v) const {
  const auto i = static_cast<std::size_t>(index_(v));
  return std::span(uses_).subspan(static_cast<std::size_t>(first_[i]),
                                  static_cast<std::size_t>(first_[i + 1] - first_[i]));
}

Rebuild::Rebuild(const Graph& from) : from_(from), to_(std::make_shared<Graph>(from.name())), map_(from) {
  for (std::size_t i = 0; i < from.inputs().size(); ++i)
    map_.set(from.inputs()[i], to_->add_input(from.inputs()[i].type(), from.input_name(static_cast<int>(i))));
}

std::vector<Value> Rebuild::operands(const Node& node) const {
  std::vector<Value> mapped;
  mapped.reserve(node.operands.size());
  for (const Value& v : node.operands) mapped.push_back(map_(v));
  return mapped;
}

Node* Rebuild::copy(const Node& node, std::vector<std::shared_ptr<const Graph>> regions) {
  Node* copied = to_->append(*node.op, operands(node), node.attrs, std::move(regions), node.generation);
  for (int i = 0; i < static_cast<int>(node.types.size()); ++i)
    map_.set({const_cast<Node*>(&node), i}, copied->result(i));
  return copied;
}

std::shared_ptr<Graph> Rebuild::finish() {
  std::vector<Value> outputs;
  for (const Value& v : from_.outputs()) outputs.push_back(map_(v));
  to_->set_outputs(std::move(outputs));
  return std::move(to_);
}

LoopView::LoopView(const Node& loop)
    : node_(&loop),
      num_carry_(static_cast<int>(loop.attrs.integer("num_carry"))),
      num_xs_(static_cast<int>(loop.attrs.integer("num_xs"))),
      num_consts_(static_cast<int>(loop.attrs.integer("num_consts"))),
      length_(loop.attrs.integer("length")),
      has_trip_(loop.attrs.flag("has_trip")),
      reverse_(loop.attrs.flag("reverse")) {}

bool LoopView::recomputes() const {
  const std::string& policy = node_->attrs.get<std::string>("residuals");
  return policy.empty() ? until() != nullptr : policy == "recompute";
}

std::int64_t LoopView::laned_carry(int i) const {
  return node_->attrs.has("laned") ? laned(i) : (std::int64_t{1} << num_lane_axes()) - 1;
}

std::int64_t LoopView::laned(int i) const {
  if (!node_->attrs.has("laned")) return 0;
  const auto& flags = node_->attrs.integers("laned");
  HOTLOOP_CHECK(static_cast<int>(flags.size()) == num_carry_ + num_xs_ + num_consts_, "attribute 'laned' of a loop");
  return flags[static_cast<std::size_t>(i)];
}

Node* LoopDraft::append(Graph& to) const {
  Attrs attrs = like.node().attrs;
  attrs.set("num_carry", static_cast<std::int64_t>(carry.size()));
  attrs.set("num_xs", static_cast<std::int64_t>(xs.size()));
  attrs.set("num_consts", static_cast<std::int64_t>(consts.size()));
  attrs.set("has_trip", trip.defined());
  attrs.erase("laned");
  if (!laned.empty()) {
    HOTLOOP_CHECK(laned.size() == carry.size() + xs.size() + consts.size(), "lane flags: one for each operand");
    attrs.set("laned", laned);
  }
  attrs.erase("mask");
  if (!mask.empty()) attrs.set("mask", mask);
  std::vector<Value> operands = carry;
  operands.insert(operands.end(), xs.begin(), xs.end());
  operands.insert(operands.end(), consts.begin(), consts.end());
  if (trip.defined()) operands.push_back(trip);
  std::vector<std::shared_ptr<const Graph>> regions = {body};
  if (until) regions.push_back(until);
  return to.append(*like.node().op, std::move(operands), std::move(attrs), std::move(regions), like.node().generation);
}

Node* copy_node(const Node& node, std::vector<Value> operands, int generation_bump) {
  return current_graph().append(*node.op, std::move(operands), node.attrs, node.regions,
                                node.generation + generation_bump);
}

std::vector<Value> results_of(Node& node) {
  std::vector<Value> results;
  for (int i = 0; i < static_cast<int>(node.types.size()); ++i) results.push_back(node.result(i));
  return results;
}

int count_nodes(const Graph& graph) {
  int n = static_cast<int>(graph.nodes().size());
  for (const auto& node : graph.nodes())
    for (const auto& region : node->regions) n += count_nodes(*region);
  return n;
}

}  // namespace hotloop::ir
