#include "schedule/dot_plan.h"

#include <algorithm>
#include <functional>

#include "core/index.h"
#include "hotloop/error.h"
#include "ir/op_def.h"
#include "schedule/dot_factors.h"

namespace hotloop {

using ir::OpKind;
using kernel::Extent;

DotShape shape_of(const Node& dot) {
  DotShape s;
  const auto ints = [&](const char* name) {
    const auto& v = dot.attrs.integers(name);
    return std::vector<int>(v.begin(), v.end());
  };
  s.lhs_batch = ints("lhs_batch");
  s.rhs_batch = ints("rhs_batch");
  s.lhs_contract = ints("lhs_contract");
  s.rhs_contract = ints("rhs_contract");
  const auto free_axes = [](Value v, const std::vector<int>& batch, const std::vector<int>& contract) {
    std::vector<int> axes;
    for (int i = 0; i < v.rank(); ++i)
      if (std::ranges::find(batch, i) == batch.end() && std::ranges::find(contract, i) == contract.end())
        axes.push_back(i);
    return axes;
  };
  s.lhs_free = free_axes(dot.operands[0], s.lhs_batch, s.lhs_contract);
  s.rhs_free = free_axes(dot.operands[1], s.rhs_batch, s.rhs_contract);
  return s;
}

namespace {

// The terms of a sum from its beginning: dots one after the other, onto what is no dot or is read elsewhere too, if it begins so.
void collect(Value v, const std::function<bool(Value)>& absorbable, DotPlan& plan) {
  const auto is_dot = [&](Value of) { return ir::is(*of.node, OpKind::Dot) && absorbable(of); };
  if (is_dot(v)) {
    plan.terms.push_back(v.node);
  } else if (v.node->op->name == "add" && absorbable(v) && is_dot(v.node->operands[1])) {
    collect(v.node->operands[0], absorbable, plan);
    plan.terms.push_back(v.node->operands[1].node);
  } else {
    plan.init = v;
  }
}

}  // namespace

bool rows_from_rhs(LoweringContext& context, const DotPlan& plan) {
  const Node& dot = *plan.terms[0];
  const DotShape s = shape_of(dot);
  const auto columns = [&](Value v, const std::vector<int>& axes) {
    std::int64_t n = 1;
    for (int a : axes) {
      const Extent e = context.extent(v, a);
      if (!e.is_static() || context.is_row_axis(v, a)) return std::int64_t{-1};
      n *= e.bound;
    }
    return n;
  };
  const std::int64_t lhs = columns(dot.operands[0], s.lhs_free), rhs = columns(dot.operands[1], s.rhs_free);
  HOTLOOP_CHECK(lhs >= 0 || rhs >= 0, "a dot with the batch on both sides");
  if (lhs < 0) return false;
  if (rhs < 0) return true;
  const std::int64_t lanes = kernel::lanes_of(plan.result.dtype());
  const auto fill = [&](std::int64_t n) {
    return static_cast<double>(n) / static_cast<double>(std::max<std::int64_t>(divided_up(n, lanes), 1) * lanes);
  };
  if (fill(lhs) > fill(rhs) * 1.01) return true;
  if (fill(rhs) > fill(lhs) * 1.01 || rhs > lanes) return false;
  // Both fill vectors, but the columns are one: each number of a row is fetched for a single multiplication. A long sum pays for a result that
  // lies turned, but not for packing the columns anew in each tile.
  const Value left = dot.operands[0];
  const bool is_turned = !s.lhs_contract.empty() && !s.lhs_free.empty() && s.lhs_free.back() < s.lhs_contract.back();
  if (is_turned && context.in_tile() && context.axes().axis_in(left, context.tile_class) >= 0) return false;
  constexpr std::int64_t long_sum = 128;
  const int panel = context.options().target.dot_vectors;
  std::int64_t terms = 1;
  for (const int axis : s.lhs_contract) terms *= dot.operands[0].shape()[axis];
  return lhs >= panel * lanes && terms >= long_sum;
}

std::optional<DotPlan> plan_dot(const Node& node, const std::function<bool(Value)>& absorbable) {
  DotPlan plan;
  plan.result = {const_cast<Node*>(&node), 0};
  if (ir::is(node, OpKind::Dot)) {
    plan.terms.push_back(&node);
    return plan;
  }
  if (node.op->name != "add" || !is_float(plan.result.dtype())) return std::nullopt;
  const Value last = node.operands[1];
  if (!ir::is(*last.node, OpKind::Dot) || !absorbable(last)) return std::nullopt;
  collect(node.operands[0], absorbable, plan);
  plan.terms.push_back(last.node);
  const DotShape first = shape_of(*plan.terms[0]);
  for (const Node* term : plan.terms) {
    const DotShape s = shape_of(*term);
    if (s.lhs_batch.size() != first.lhs_batch.size() || s.lhs_free.size() != first.lhs_free.size()) return std::nullopt;
    if (rounds_factors(*term) != rounds_factors(*plan.terms[0])) return std::nullopt;
  }
  return plan;
}

Storage allocate_dot(LoweringContext& context, const DotPlan& plan, const std::string& name) {
  Storage storage = context.allocate(plan.result, name);
  if (!rows_from_rhs(context, plan)) return storage;
  // [batch..., lhs free..., rhs free...] laid out as [batch..., rhs free..., lhs free...].
  const DotShape s = shape_of(*plan.terms[0]);
  const int nb = static_cast<int>(s.lhs_batch.size()), nl = static_cast<int>(s.lhs_free.size());
  const int rank = plan.result.rank();
  std::int64_t stride = 1;
  const auto assign = [&](int from, int to) {
    for (int i = to - 1; i >= from; --i) {
      storage.strides[static_cast<std::size_t>(i)] = stride;
      stride *= context.extent(plan.result, i).bound;
    }
  };
  assign(nb, nb + nl);
  assign(nb + nl, rank);
  assign(0, nb);
  return storage;
}

}  // namespace hotloop
