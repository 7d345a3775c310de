#include "transforms/bind_inputs.h"

#include <algorithm>
#include <map>
#include <tuple>

#include "hotloop/error.h"
#include "hotloop/ops.h"
#include "ir/rewrite.h"
#include "ir/uniform_value.h"

namespace hotloop::ir {
namespace {

// Values made from nothing, or repeats of others: cheaper to make where they are read than to keep.
bool stays_with_its_reader(const Node& node) {
  return is(node, OpKind::Constant) || is(node, OpKind::Iota) || is(node, OpKind::Broadcast) ||
         is(node, OpKind::Extent);
}

class Binder {
 public:
  Binder(const Graph& graph, const std::vector<bool>& bound, const FactorLayouts& layouts)
      : graph_(graph),
        layout_for_(layouts),
        known_(graph.nodes().size()),
        prepare_(std::make_shared<Graph>("prepare")),
        run_(std::make_shared<Graph>(graph.name())),
        prepared_(graph),
        run_map_(graph) {
    for (std::size_t i = 0; i < bound.size(); ++i) {
      const Value input = graph.inputs()[i];
      const std::string& name = graph.input_name(static_cast<int>(i));
      known_[static_cast<std::size_t>(input.node->id)] = bound[i];
      if (bound[i])
        prepared_.set(input, prepare_->add_input(input.type(), name));
      else
        run_map_.set(input, add_input(input.type(), name));
    }
    for (const auto& node : graph.nodes())  // in topological order
      if (!is(*node, OpKind::Input))
        known_[static_cast<std::size_t>(node->id)] =
            !is_zero_product(*node) && std::ranges::all_of(node->operands, [&](Value v) { return is_known(v); });
  }

  BoundGraphs take() {
    for (const auto& node : graph_.nodes()) {
      if (!is(*node, OpKind::Dot) || is_known({node.get(), 0})) continue;
      for (const Value& v : node->operands)
        if (is_known(v)) step_bytes_ += static_cast<std::int64_t>(v.type().bytes());
    }
    for (const auto& node : graph_.nodes()) {
      if (is(*node, OpKind::Input)) continue;
      if (known_[static_cast<std::size_t>(node->id)]) continue;
      copy_unknown(*node);
    }
    std::vector<Value> outputs;
    for (const Value& v : graph_.outputs()) outputs.push_back(read(v));
    run_->set_outputs(outputs);
    prepare_->set_outputs(prepared_outputs_);
    return {prepare_, run_, std::move(layouts_)};
  }

 private:
  bool is_known(Value v) const { return known_[static_cast<std::size_t>(v.node->id)]; }

  void copy_unknown(const Node& node) {
    const TraceScope scope(*run_);
    if (is(node, OpKind::Dot)) {
      if (const int side = is_known(node.operands[1]) ? 1 : 0; is_known(node.operands[static_cast<std::size_t>(side)]))
        return copy_dot(node, side);
    }
    std::vector<Value> operands;
    for (const Value& v : node.operands) operands.push_back(read(v));
    run_map_.set_results(node, results_of(*copy_node(node, operands)));
  }

  // The bound factor transposed to [batch..., contracted..., free...].
  void copy_dot(const Node& node, int side) {
    const Value factor = node.operands[static_cast<std::size_t>(side)];
    const std::string prefix = side == 0 ? "lhs" : "rhs";
    const auto batch = node.attrs.integers(prefix + "_batch"), contract = node.attrs.integers(prefix + "_contract");
    std::vector<std::int64_t> order = batch;
    order.insert(order.end(), contract.begin(), contract.end());
    for (std::int64_t axis = 0; axis < factor.rank(); ++axis)
      if (std::ranges::find(order, axis) == order.end()) order.push_back(axis);
    Attrs attrs = node.attrs;
    std::vector<std::int64_t> leading(batch.size()), next(contract.size());
    for (std::size_t i = 0; i < batch.size(); ++i) leading[i] = static_cast<std::int64_t>(i);
    for (std::size_t i = 0; i < contract.size(); ++i) next[i] = static_cast<std::int64_t>(batch.size() + i);
    attrs.set(prefix + "_batch", leading);
    attrs.set(prefix + "_contract", next);
    std::vector<Value> operands = {side == 0 ? Value{} : read(node.operands[0]),
                                   side == 1 ? Value{} : read(node.operands[1])};
    operands[static_cast<std::size_t>(side)] = side == 1 && batch.empty() && contract.size() == 1 && factor.rank() == 2
                                                   ? as_read(factor, node.types[0].shape.size(), order)
                                                   : given(factor, order);
    run_map_.set_results(node, results_of(*run_->append(*node.op, operands, attrs, {}, node.generation)));
  }

  // A matrix transposed to [k, n], in the layout in which the dot reads it.
  Value as_read(Value factor, std::int64_t results, const std::vector<std::int64_t>& order) {
    const std::int64_t k = factor.shape()[static_cast<int>(order[0])], n = factor.shape()[static_cast<int>(order[1])];
    const std::int64_t rows = results / std::max<std::int64_t>(n, 1);
    return given(factor, order, layout_for_ ? layout_for_({factor.dtype(), k, n, rows, step_bytes_}) : FactorLayout{});
  }

  // Of the run graph.
  Value add_input(const ValueType& type, const std::string& name, const FactorLayout& layout = {}) {
    layouts_.push_back(layout);
    return run_->add_input(type, name);
  }

  // The value in the run graph: there already, prepared, or made anew.
  Value read(Value v) {
    if (const Value found = run_map_.find(v); found.defined()) return found;
    HOTLOOP_CHECK(is_known(v), "a value is read before it is computed");
    if (!stays_with_its_reader(*v.node)) return given(v, {});
    const TraceScope scope(*run_);
    std::vector<Value> operands;
    for (const Value& operand : v.node->operands) operands.push_back(read(operand));
    run_map_.set_results(*v.node, results_of(*copy_node(*v.node, operands)));
    return run_map_(v);
  }

  // A known value, permuted unless `order` is empty, as an input of the run graph; a matrix may have a layout.
  Value given(Value v, std::vector<std::int64_t> order, const FactorLayout& layout = {}) {
    if (std::ranges::is_sorted(order)) order.clear();
    Value& input = inputs_[{v.node->id, v.index, order, layout}];
    if (input.defined()) return input;
    const TraceScope scope(*prepare_);
    const Value values[] = {v};
    Value result = copy_known(values)[0];
    if (!order.empty()) result = transpose(result, order);
    const ValueType type = result.type();
    if (layout) result = lay_out(result, layout);
    prepared_outputs_.push_back(result);
    return input = add_input(type, "prepared" + std::to_string(prepared_outputs_.size() - 1), layout);
  }

  std::vector<Value> copy_known(std::span<const Value> values) {
    std::vector<Value> copies;
    for (const Value& v : values) {
      if (!prepared_.find(v).defined()) {
        const std::vector<Value> operands = copy_known(v.node->operands);
        prepared_.set_results(*v.node, results_of(*copy_node(*v.node, operands)));
      }
      copies.push_back(prepared_(v));
    }
    return copies;
  }

  const Graph& graph_;
  const FactorLayouts& layout_for_;
  std::int64_t step_bytes_ = 0;
  std::vector<bool> known_;  // of each node
  std::shared_ptr<Graph> prepare_, run_;
  ValueMap prepared_, run_map_;
  // (node, result, order, layout) -> input of run
  std::map<std::tuple<int, int, std::vector<std::int64_t>, FactorLayout>, Value> inputs_;
  std::vector<Value> prepared_outputs_;
  std::vector<FactorLayout> layouts_;  // of the inputs of run
};

}  // namespace

BoundGraphs bind_inputs(const Graph& graph, const std::vector<bool>& bound, const FactorLayouts& layouts) {
  HOTLOOP_CHECK(bound.size() == graph.inputs().size(), "bind_inputs: one flag an input");
  return Binder(graph, bound, layouts).take();
}

}  // namespace hotloop::ir
