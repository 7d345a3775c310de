// Short rows (docs/decisions/0012): all numbers of a row at one point of a Map, and sums within a row as expressions.
#include <algorithm>
#include <bit>
#include <set>

#include "hotloop/error.h"
#include "ir/op_def.h"
#include "schedule/block.h"
#include "schedule/dot_factors.h"
#include "schedule/map_builder.h"

namespace hotloop {

using ir::OpKind;
using ir::ScalarOp;
using kernel::Affine;

ScalarOp combiner_of(const Node& reduce) {
  const std::string& name = reduce.op->name;
  if (reduce.types[0].dtype == DType::Bool)
    return name == "reduce_max" || name == "reduce_sum" ? ScalarOp::Or : ScalarOp::And;
  if (name == "reduce_sum") return ScalarOp::Add;
  if (name == "reduce_prod") return ScalarOp::Mul;
  return name == "reduce_max" ? ScalarOp::Max : ScalarOp::Min;
}

std::vector<DotProduct> products_of(const Node& dot, const std::vector<Affine>& index) {
  const DotShape s = shape_of(dot);
  const Value lhs = dot.operands[0], rhs = dot.operands[1];
  DotProduct first{std::vector<Affine>(static_cast<std::size_t>(lhs.rank())),
                   std::vector<Affine>(static_cast<std::size_t>(rhs.rank()))};
  const auto set = [](std::vector<Affine>& at, int axis, const Affine& to) { at[static_cast<std::size_t>(axis)] = to; };
  std::size_t next = 0;
  for (std::size_t i = 0; i < s.lhs_batch.size(); ++i, ++next) {
    set(first.lhs, s.lhs_batch[i], index[next]);
    set(first.rhs, s.rhs_batch[i], index[next]);
  }
  for (int axis : s.lhs_free) set(first.lhs, axis, index[next++]);
  for (int axis : s.rhs_free) set(first.rhs, axis, index[next++]);
  std::vector<DotProduct> products = {first};
  for (std::size_t i = 0; i < s.lhs_contract.size(); ++i) {
    std::vector<DotProduct> more;
    for (const DotProduct& p : products)
      for (std::int64_t k = 0; k < lhs.shape()[s.lhs_contract[i]]; ++k) {
        more.push_back(p);
        set(more.back().lhs, s.lhs_contract[i], Affine(k));
        set(more.back().rhs, s.rhs_contract[i], Affine(k));
      }
    products = std::move(more);
  }
  return products;
}

// Lanes of a reduction statement over numbers of this dtype alone.
static std::int64_t reduction_lanes(DType d) { return kernel::lanes_of(size_of(d) < 4 ? DType::F32 : d); }

bool depends_on_lanes(const Node& reduce) {
  const std::optional<int> axis = axis_over_lanes(reduce);
  if (!axis || reduce.operands[0].shape()[*axis] <= kernel::lanes_of(DType::F64)) return false;
  return std::ranges::any_of(reduce.attrs.integers("axes"), [&](std::int64_t a) {
    return a != *axis && reduce.operands[0].shape()[static_cast<int>(a)] > 1;
  });
}

bool has_long_weights(const LoweringContext& context, const Node& dot) {
  constexpr std::int64_t half_a_vector = 8;
  const DotShape s = shape_of(dot);
  const auto longest = [](Value v, const std::vector<int>& axes) {
    std::int64_t extent = 1;
    for (int axis : axes) extent = std::max(extent, v.shape()[axis]);
    return extent;
  };
  // Half a vector is filled well enough by a long sum.
  const auto is_long = [&](Value v, const std::vector<int>& columns, const std::vector<int>& summed) {
    if (context.axes().axis_in(v, context.tile_class) >= 0) return false;
    const std::int64_t filled = longest(v, columns);
    return filled > half_a_vector || (filled == half_a_vector && longest(v, summed) > half_a_vector);
  };
  return is_long(dot.operands[0], s.lhs_free, s.lhs_contract) || is_long(dot.operands[1], s.rhs_free, s.rhs_contract);
}

bool is_short_dot(const LoweringContext& context, const Node& dot) {
  // By weights that fill vectors a Dot statement takes fewer instructions; otherwise there is nothing better.
  constexpr std::int64_t most_products_by_long_weights = 64, most_products = 1000;
  const Value out{const_cast<Node*>(&dot), 0};
  if (!context.has_few_numbers_a_row(out) || rounds_factors(dot)) return false;  // those are added up in pairs
  const DotShape s = shape_of(dot);
  std::int64_t products = out.shape().size() / context.axes().extent(context.tile_class);
  for (int axis : s.lhs_contract) {
    const std::int64_t terms = dot.operands[0].shape()[axis];
    if (terms >= shortest_inner_product) return false;  // alone it may be summed over lanes
    products *= terms;
  }
  return products <= (has_long_weights(context, dot) ? most_products_by_long_weights : most_products) &&
         std::ranges::all_of(dot.operands, [&](Value v) {
           return context.axes().axis_in(v, context.tile_class) < 0 || context.has_few_numbers_a_row(v);
         });
}

bool computes_rows(const Node& node) {
  return ir::is(node, OpKind::Elementwise) || ir::is(node, OpKind::Reduce) || ir::is(node, OpKind::Concat) ||
         ir::is(node, OpKind::Dot);
}

bool turns_in_a_copy(const LoweringContext& context, Value v) {
  return context.is_turned_in_squares(v) && context.bytes_of(v) <= context.options().target.l1_bytes;
}

// Whether fn holds for v's node and all that is computed with it.
template <class F>
static bool all_computed(const LoweringContext& context, Value v, const std::function<bool(Value)>& stored, F fn) {
  std::set<const Node*> seen;
  std::vector<Value> work = {v};
  while (!work.empty()) {
    const Node& node = *work.back().node;
    work.pop_back();
    if (!seen.insert(&node).second) continue;
    if (!fn(node)) return false;
    if (ir::is(node, OpKind::Loop) || ir::is(node, OpKind::Extent)) continue;
    for (Value o : node.operands)
      if (o = context.resolve(o); !stored(o)) work.push_back(o);
  }
  return true;
}

double cost_of_point(const LoweringContext& context, Value v, const std::function<bool(Value)>& stored) {
  double cost = 0;
  all_computed(context, v, stored, [&](const Node& node) {
    cost += ir::is(node, OpKind::Elementwise) ? node.op->cost_per_element : 1;
    return true;
  });
  return cost;
}

bool computes_numbers_in_turn(const LoweringContext& context, Value v, const std::function<bool(Value)>& stored) {
  constexpr double most_row_cost = 1000;
  if (!context.is_turned_in_squares(v)) return false;
  const std::int64_t numbers = v.shape().size() / context.axes().extent(context.tile_class);
  if (static_cast<double>(numbers) * cost_of_point(context, v, stored) <= most_row_cost) return false;
  return all_computed(context, v, stored, [&](const Node& node) {
    switch (node.op->kind) {
      case OpKind::Constant:
      case OpKind::Iota:
      case OpKind::Extent:
      case OpKind::Elementwise: return true;
      case OpKind::Reshape: return stored(context.resolve(node.operands[0]));
      default: return is_strided_view(node) && !context.crosses_tiles(node);
    }
  });
}

std::vector<MapBuilder::Index> MapBuilder::outer_indices(Value v) const {
  if (!context_.is_short_row(v) || outer_.size() > 1) return {outer_index(v)};
  HOTLOOP_CHECK(outer_.size() == 1, "a short row in a map of another index space");
  std::vector<Index> all = {Index{}};
  for (int i = 0; i < v.rank(); ++i) {
    const bool is_rows = context_.axes().axis_class(v, i) == context_.tile_class;
    std::vector<Index> longer;
    for (const Index& index : all)
      for (std::int64_t k = 0; k < (is_rows ? 1 : v.shape()[i]); ++k) {
        longer.push_back(index);
        longer.back().push_back(is_rows ? outer_[0] : Affine(k));
      }
    all = std::move(longer);
  }
  return all;
}

// As a Dot statement would: from the plan's start, one fma after the other.
int MapBuilder::emit_short_dot(const DotPlan& plan, const Index& index, int predicate) {
  const DType d = plan.result.dtype();
  int sum = plan.init ? emit(*plan.init, index, predicate) : constant(d, 0);
  for (const Node* term : plan.terms)
    for (const DotProduct& p : products_of(*term, index)) {
      const int a = emit(term->operands[0], p.lhs, predicate), b = emit(term->operands[1], p.rhs, predicate);
      sum = op(ScalarOp::Fma, d, a, b, sum);
    }
  return sum;
}

// As a reduction statement would: from the identity, one after the other, or over lanes whose halves are combined in the end.
int MapBuilder::emit_short_reduction(Value v, const Index& index, int predicate) {
  const Value x = v.node->operands[0];
  const ScalarOp combine = combiner_of(*v.node);
  const auto add = [&](int sum, int number) {
    if (sum < 0 && combine == ScalarOp::Add) sum = constant(v.dtype(), 0);  // which makes a zero of a negative zero
    return sum < 0 ? number : op(combine, v.dtype(), sum, number);
  };
  std::vector<std::int64_t> axes = v.node->attrs.integers("axes");
  std::ranges::sort(axes);
  const std::optional<int> lanes = axis_over_lanes(*v.node);
  std::vector<Index> points = {index};
  for (std::int64_t axis : axes) {
    std::vector<Index> more;
    for (const Index& point : points)
      for (std::int64_t k = 0; k < x.shape()[static_cast<int>(axis)]; ++k) {
        more.push_back(point);
        more.back().insert(more.back().begin() + axis, Affine(k));
      }
    points = std::move(more);
  }
  if (points.empty()) {  // its identity, as the op defines it
    const std::vector<Array> nothing = {Array(x.dtype(), x.shape())};
    const Array identity = v.node->op->eval({*v.node, nothing, ir::evaluate})[0];
    return constant(v.dtype(), identity.at(0));
  }
  const std::int64_t most_lanes = reduction_lanes(v.dtype());
  std::vector<int> sums(lanes ? static_cast<std::size_t>(std::min(x.shape()[*lanes], most_lanes)) : 1, -1);
  for (const Index& point : points) {
    const std::int64_t lane = lanes ? point[static_cast<std::size_t>(*lanes)].constant % most_lanes : 0;
    int& sum = sums[static_cast<std::size_t>(lane)];
    sum = add(sum, emit(x, point, predicate));
  }
  // The lanes beyond the axis hold the identity.
  for (std::size_t half = std::bit_ceil(sums.size()) / 2; half > 0; half /= 2)
    for (std::size_t l = 0; l < half && l + half < sums.size(); ++l)
      sums[l] = op(combine, v.dtype(), sums[l], sums[l + half]);
  return sums[0];
}

}  // namespace hotloop
