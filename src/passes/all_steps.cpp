#include "passes/all_steps.h"

#include <algorithm>
#include <numeric>
#include <string>
#include <utility>

#include "hotloop/error.h"
#include "passes/dot_sides.h"

namespace hotloop::passes {

using ir::OpKind;

void AllSteps::find_outside() {
  is_outside_.resize(static_cast<std::size_t>(index_.size()));
  for (const auto& node : loop_.body().nodes()) {
    const bool all =
        node->regions.empty() && std::ranges::all_of(node->operands, [&](Value o) { return is_found_outside(o); });
    for (int i = 0; all && i < static_cast<int>(node->types.size()); ++i)
      is_outside_[static_cast<std::size_t>(index_(node->result(i)))] = is_invariant(node->result(i));
  }
}

Value AllSteps::outside(Value v) {
  if (const Value made = outside_.find(v); made.defined()) return made;
  Value made;
  for (int i = 0; i < loop_.num_consts() && !made.defined(); ++i)
    if (loop_.const_in(i) == v) made = outer_(loop_.constant(i));
  if (!made.defined()) {
    HOTLOOP_CHECK(is_found_outside(v), "AllSteps: %" + std::to_string(v.node->id) + " is not found outside the loop");
    std::vector<Value> operands;
    for (const Value& o : v.node->operands) operands.push_back(outside(o));
    made = builder_.make(*v.node->op, std::move(operands), v.node->attrs);
  }
  outside_.set(v, made);
  return made;
}

Value AllSteps::operator()(Value v, const std::function<Value(const Node&)>& compute) {
  if (const Value made = all_.find(v); made.defined()) return made;
  Value made;
  if (const int at = loop_.xs_at(v); at >= 0) {
    made = outer_(loop_.xs(at));
  } else if (is_invariant(v)) {
    const Value fixed = outside(v);
    Axes axes(static_cast<std::size_t>(fixed.rank()));
    std::iota(axes.begin(), axes.end(), 1);
    made = builder_.broadcast(fixed, fixed.shape().with_inserted(0, loop_.length()), axes);
  } else {
    made = compute(*v.node);
  }
  all_.set(v, made);
  return made;
}

Value dot_of_all_steps(Builder& builder, const Node& dot, int side, Value all, Value fixed) {
  Axes contract = dot.attrs.integers(contract_name(side));
  const Axes& other = dot.attrs.integers(contract_name(1 - side));
  for (std::int64_t& axis : contract) ++axis;
  if (side == 0) return builder.dot(all, fixed, contract, other);
  // [free axes of what is fixed..., time, free axes...]: time to the front.
  const Value wide = builder.dot(fixed, all, other, contract);
  Axes order(at(wide.rank()));
  std::iota(order.begin(), order.end(), 0);
  const auto time = order.begin() + (fixed.rank() - static_cast<int>(other.size()));
  std::rotate(order.begin(), time, time + 1);
  return builder.transpose(wide, order);
}

Value of_all_steps(Builder& builder, const Node& node, std::vector<Value> operands, std::int64_t length) {
  const auto with_time = [&](const char* name, std::int64_t first, std::int64_t shift) {
    Axes numbers = node.attrs.integers(name);
    for (std::int64_t& n : numbers) n += shift;
    numbers.insert(numbers.begin(), first);
    return numbers;
  };
  const Shape shape = node.types[0].shape.with_inserted(0, length);
  switch (node.op->kind) {
    case OpKind::Reshape: return builder.reshape(operands[0], shape);
    case OpKind::Transpose: return builder.transpose(operands[0], with_time("permutation", 0, 1));
    case OpKind::Broadcast: return builder.broadcast(operands[0], shape, with_time("axes", 0, 1));
    case OpKind::Slice:
      return builder.slice(operands[0], with_time("start", 0, 0), with_time("stop", length, 0),
                           with_time("step", 1, 0));
    default: return builder.make(*node.op, std::move(operands), node.attrs);
  }
}

}  // namespace hotloop::passes
