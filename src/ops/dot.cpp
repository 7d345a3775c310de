#include <algorithm>

#include "core/bf16.h"
#include "hotloop/error.h"
#include "hotloop/ops.h"
#include "ops/rules/accumulator.h"
#include "ops/rules/arguments.h"
#include "ops/rules/batching.h"
#include "ops/rules/sampling.h"
#include "ops/rules/walk.h"

namespace hotloop {

namespace ir {
namespace {

using Axes = std::vector<std::int64_t>;

DotAxes axes_of(const Attrs& a) {
  return {a.integers("lhs_contract"), a.integers("rhs_contract"), a.integers("lhs_batch"), a.integers("rhs_batch")};
}

std::string text(const Axes& axes) {
  std::string s;
  for (std::int64_t axis : axes) s += (s.empty() ? "" : ",") + std::to_string(axis);
  return "{" + s + "}";
}

Axes joined(const Axes& a, const Axes& b) {
  Axes result = a;
  result.insert(result.end(), b.begin(), b.end());
  return result;
}

Axes lhs_free(const DotAxes& d, int rank) { return other_axes(rank, joined(d.lhs_contract, d.lhs_batch)); }
Axes rhs_free(const DotAxes& d, int rank) { return other_axes(rank, joined(d.rhs_contract, d.rhs_batch)); }

std::string received_text(std::span<const ValueType> operands, const DotAxes& d) {
  return types_text(operands) + " contracted at " + text(d.lhs_contract) + " and " + text(d.rhs_contract) +
         ", batched at " + text(d.lhs_batch) + " and " + text(d.rhs_batch);
}

// The type of a dot whose axes fit its operands.
ValueType type_of_fitting(std::span<const ValueType> operands, const DotAxes& d) {
  const ValueType &lhs = operands[0], &rhs = operands[1];
  const auto received = [&] { return received_text(operands, d); };
  if (d.lhs_contract.size() != d.rhs_contract.size() || d.lhs_batch.size() != d.rhs_batch.size())
    throw UserError("dot", "contracted and batch axes must come in pairs, one of each operand", received());
  const auto distinct = [&](Axes axes, int rank) {
    std::ranges::sort(axes);
    return std::ranges::adjacent_find(axes) == axes.end() &&
           (axes.empty() || (axes.front() >= 0 && axes.back() < rank));
  };
  if (!distinct(joined(d.lhs_contract, d.lhs_batch), lhs.shape.rank()) ||
      !distinct(joined(d.rhs_contract, d.rhs_batch), rhs.shape.rank()))
    throw UserError("dot", "axes must exist and be named once", received());
  const auto extent = [](const ValueType& t, std::int64_t axis) { return t.shape[static_cast<int>(axis)]; };
  const auto agree = [&](const Axes& a, const Axes& b) {
    for (std::size_t i = 0; i < a.size(); ++i)
      if (extent(lhs, a[i]) != extent(rhs, b[i])) return false;
    return true;
  };
  if (!agree(d.lhs_contract, d.rhs_contract))
    throw UserError("dot", "contracted axes must have the same extents", received(),
                    "transpose() or reshape() an operand");
  if (!agree(d.lhs_batch, d.rhs_batch))
    throw UserError("dot", "batch axes must have the same extents", received(), "transpose() or reshape() an operand");
  Shape shape;
  for (std::int64_t axis : d.lhs_batch) shape.push_back(extent(lhs, axis));
  for (std::int64_t axis : lhs_free(d, lhs.shape.rank())) shape.push_back(extent(lhs, axis));
  for (std::int64_t axis : rhs_free(d, rhs.shape.rank())) shape.push_back(extent(rhs, axis));
  return {lhs.dtype, shape};
}

}  // namespace
}  // namespace ir

namespace {

// An operand with its axes in the order batch, free, contracted, these as one.
Value with_joined_axes(Value x, const std::vector<std::int64_t>& batch, const std::vector<std::int64_t>& contract) {
  std::vector<std::int64_t> used = contract, order = batch;
  used.insert(used.end(), batch.begin(), batch.end());
  const std::vector<std::int64_t> free = ir::other_axes(x.rank(), used);
  order.insert(order.end(), free.begin(), free.end());
  Shape shape;
  for (const std::int64_t axis : order) shape.push_back(x.shape()[static_cast<int>(axis)]);
  std::int64_t joined = 1;
  for (const std::int64_t axis : contract) joined *= x.shape()[static_cast<int>(axis)];
  shape.push_back(joined);
  order.insert(order.end(), contract.begin(), contract.end());
  return reshape(transpose(x, order), shape);
}

Value dot_of_joined(Value lhs, Value rhs, const DotAxes& axes) {
  const Value a = with_joined_axes(lhs, axes.lhs_batch, axes.lhs_contract),
              b = with_joined_axes(rhs, axes.rhs_batch, axes.rhs_contract);
  const std::vector<std::int64_t> batch = ir::iota_axes(static_cast<int>(axes.lhs_batch.size()));
  return dot(a, b,
             {.lhs_contract = {a.rank() - 1}, .rhs_contract = {b.rank() - 1}, .lhs_batch = batch, .rhs_batch = batch});
}

// The primitive is of floats, which processors and rules are made for: integers are multiplied and added up.
Value dot_of_integers(Value lhs, Value rhs, const DotAxes& axes) {
  const ValueType types[] = {lhs.type(), rhs.type()};
  const Shape result = ir::type_of_fitting(types, axes).shape;
  const Value a = with_joined_axes(lhs, axes.lhs_batch, axes.lhs_contract),
              b = with_joined_axes(rhs, axes.rhs_batch, axes.rhs_contract);
  const auto batch = static_cast<int>(axes.lhs_batch.size()), lhs_free = a.rank() - 1 - batch;
  Shape wide_a, wide_b;
  for (int i = 0; i <= result.rank(); ++i) {
    const std::int64_t extent = i < result.rank() ? result[i] : a.shape()[a.rank() - 1];
    const bool in_both = i < batch || i == result.rank();
    wide_a.push_back(in_both || i < batch + lhs_free ? extent : 1);
    wide_b.push_back(in_both || i >= batch + lhs_free ? extent : 1);
  }
  return reduce_sum(reshape(a, wide_a) * reshape(b, wide_b), {result.rank()});
}

}  // namespace

Value dot(Value lhs, Value rhs, const DotAxes& axes) {
  const Value both[] = {lhs, rhs};
  ir::require_defined("dot", both);
  if (lhs.dtype() == rhs.dtype() && is_integer(lhs.dtype())) return dot_of_integers(lhs, rhs, axes);
  // Kernels go along three axes at most; more become one.
  constexpr std::size_t most_axes = 3;
  if (axes.lhs_contract.size() > most_axes && axes.lhs_contract.size() == axes.rhs_contract.size())
    return dot_of_joined(lhs, rhs, axes);
  return ir::append_op("dot", {lhs, rhs},
                       {{"lhs_contract", axes.lhs_contract},
                        {"rhs_contract", axes.rhs_contract},
                        {"lhs_batch", axes.lhs_batch},
                        {"rhs_batch", axes.rhs_batch}});
}

namespace ir {
namespace {

// A dot with other axes but the precision of `like`.
Value dot_as(const Node& like, Value lhs, Value rhs, const DotAxes& axes) {
  const Value made = dot(lhs, rhs, axes);
  if (like.attrs.has("precision")) made.node->attrs.set("precision", like.attrs.get<std::string>("precision"));
  return made;
}

std::vector<ValueType> infer(const InferContext& c) {
  const ValueType &lhs = c.operands[0], &rhs = c.operands[1];
  const DotAxes d = axes_of(c.attrs);
  if (lhs.dtype != rhs.dtype || !is_float(lhs.dtype))
    throw UserError("dot", "both operands must be f32, or both f64", received_text(c.operands, d),
                    "cast() one of them");
  if (c.attrs.has("precision") && (c.attrs.get<std::string>("precision") != "bf16" || lhs.dtype != DType::F32))
    throw UserError("dot", "precision, where it is given, is bf16, of f32 operands",
                    c.attrs.get<std::string>("precision") + " of " + types_text(c.operands),
                    "cast() them to f32, or leave precision out");
  return {type_of_fitting(c.operands, d)};
}

std::vector<Array> eval(const EvalContext& c) {
  const bool rounds = c.node.attrs.has("precision");
  const Array lhs = rounds ? rounded_to_bf16(c.operands[0]) : c.operands[0],
              rhs = rounds ? rounded_to_bf16(c.operands[1]) : c.operands[1];
  const DotAxes d = axes_of(c.node.attrs);
  const Axes lf = lhs_free(d, lhs.shape().rank()), rf = rhs_free(d, rhs.shape().rank());
  const auto ls = strides_of(lhs.shape()), rs = strides_of(rhs.shape());
  Shape contracted;
  for (std::int64_t axis : d.lhs_contract) contracted.push_back(lhs.shape()[static_cast<int>(axis)]);
  const auto at = [](const Axes& axes, const Axes& strides, const Index& index, std::size_t from) {
    std::int64_t flat = 0;
    for (std::size_t i = 0; i < axes.size(); ++i) flat += index[from + i] * strides[static_cast<std::size_t>(axes[i])];
    return flat;
  };
  Array out(lhs.dtype(), c.node.types[0].shape);
  const auto contract = [&]<class T>(T) {
    const auto *a = static_cast<const T*>(lhs.raw()), *b = static_cast<const T*>(rhs.raw());
    auto* r = static_cast<T*>(out.raw());
    for_each_index(out.shape(), [&](const Index& index) {
      const std::size_t nb = d.lhs_batch.size();
      const std::int64_t a0 = at(d.lhs_batch, ls, index, 0) + at(lf, ls, index, nb);
      const std::int64_t b0 = at(d.rhs_batch, rs, index, 0) + at(rf, rs, index, nb + lf.size());
      Accumulator<T> sum = 0;
      for_each_index(contracted, [&](const Index& k) {
        sum += static_cast<Accumulator<T>>(a[a0 + at(d.lhs_contract, ls, k, 0)]) *
               static_cast<Accumulator<T>>(b[b0 + at(d.rhs_contract, rs, k, 0)]);
      });
      *r++ = static_cast<T>(sum);
    });
  };
  if (out.dtype() == DType::F32)
    contract(float{});
  else
    contract(double{});
  return {out};
}

// A contraction written with labels, as in einsum: a label of both operands is a batch axis if it is in the result,
// else contracted. Takes the order of operands that gives the wanted layout; a transpose only if neither does.
struct Labelled {
  Value value;
  Axes labels;
};
Value dot_labelled(const Node& like, const Labelled& a, const Labelled& b, const Axes& out) {
  const auto has = [](const Axes& labels, std::int64_t label) {
    return std::ranges::find(labels, label) != labels.end();
  };
  const auto position = [](const Axes& labels, std::int64_t label) {
    return std::ranges::find(labels, label) - labels.begin();
  };
  const auto plan = [&](const Labelled& l, const Labelled& r, Axes& result) {
    DotAxes d;
    for (std::int64_t label : out) {
      if (!has(l.labels, label) || !has(r.labels, label)) continue;
      d.lhs_batch.push_back(position(l.labels, label));
      d.rhs_batch.push_back(position(r.labels, label));
      result.push_back(label);
    }
    for (std::int64_t label : l.labels) {
      if (has(out, label)) {
        if (!has(r.labels, label)) result.push_back(label);
      } else {
        HOTLOOP_CHECK(has(r.labels, label), "a label that is summed stands in both operands");
        d.lhs_contract.push_back(position(l.labels, label));
        d.rhs_contract.push_back(position(r.labels, label));
      }
    }
    for (std::int64_t label : r.labels)
      if (has(out, label) && !has(l.labels, label)) result.push_back(label);
    return d;
  };
  Axes ab, ba;
  const DotAxes straight = plan(a, b, ab), swapped = plan(b, a, ba);
  if (ab == out) return dot_as(like, a.value, b.value, straight);
  if (ba == out) return dot_as(like, b.value, a.value, swapped);
  Axes permutation;
  for (std::int64_t label : out) permutation.push_back(position(ab, label));
  return transpose(dot_as(like, a.value, b.value, straight), permutation);
}

// Labels of a dot's operands and result: batch, lhs free, rhs free, contracted, counted in this order.
struct Labels {
  Axes lhs, rhs, out;
  Labels(const DotAxes& d, int lhs_rank, int rhs_rank)
      : lhs(static_cast<std::size_t>(lhs_rank)), rhs(static_cast<std::size_t>(rhs_rank)) {
    std::int64_t next = 0;
    const auto name = [](Axes& labels, std::int64_t axis, std::int64_t label) {
      labels[static_cast<std::size_t>(axis)] = label;
    };
    for (std::size_t i = 0; i < d.lhs_batch.size(); ++i, ++next)
      name(lhs, d.lhs_batch[i], next), name(rhs, d.rhs_batch[i], next);
    for (std::int64_t axis : lhs_free(d, lhs_rank)) name(lhs, axis, next++);
    for (std::int64_t axis : rhs_free(d, rhs_rank)) name(rhs, axis, next++);
    out = iota_axes(static_cast<int>(next));
    for (std::size_t i = 0; i < d.lhs_contract.size(); ++i, ++next)
      name(lhs, d.lhs_contract[i], next), name(rhs, d.rhs_contract[i], next);
  }
};

std::vector<AxisLink> links_of(const Node& node) {
  const Labels labels(axes_of(node.attrs), node.operands[0].rank(), node.operands[1].rank());
  std::vector<AxisLink> links;
  for (int k = 0; k < 2; ++k)
    for (int i = 0; i < node.operands[static_cast<std::size_t>(k)].rank(); ++i) {
      const auto to = static_cast<int>((k == 0 ? labels.lhs : labels.rhs)[static_cast<std::size_t>(i)]);
      links.push_back({k, i, to, to < node.types[0].shape.rank() ? AxisUse::Same : AxisUse::Summed});
    }
  return links;
}

std::vector<Value> jvp(const JvpContext& c) {
  const DotAxes d = axes_of(c.node.attrs);
  const Value left = c.tangents[0].defined() ? dot_as(c.node, c.tangents[0], c.primals[1], d) : Value{};
  const Value right = c.tangents[1].defined() ? dot_as(c.node, c.primals[0], c.tangents[1], d) : Value{};
  return {add_or_either(left, right)};
}

std::vector<Value> transpose_rule(const TransposeContext& c) {
  const Value lhs = c.operands[0], rhs = c.operands[1], ct = c.cotangents[0];
  HOTLOOP_CHECK(lhs.defined() || rhs.defined(), "dot is linear in one operand at a time");
  if (!ct.defined()) return {{}, {}};
  const Labels labels(axes_of(c.node.attrs), c.node.operands[0].rank(), c.node.operands[1].rank());
  if (!lhs.defined()) return {dot_labelled(c.node, {ct, labels.out}, {rhs, labels.rhs}, labels.lhs), {}};
  if (!rhs.defined()) return {{}, dot_labelled(c.node, {lhs, labels.lhs}, {ct, labels.out}, labels.rhs)};
  return {{}, {}};
}

// The batch axis of both operands is a batch axis of the dot; that of one operand is a free axis of it.
std::vector<Batched> batch(const BatchContext& c) {
  constexpr std::int64_t lane = -1;
  Labels labels(axes_of(c.node.attrs), c.node.operands[0].rank(), c.node.operands[1].rank());
  if (c.operands[0].batched) labels.lhs = prepended(lane, labels.lhs);
  if (c.operands[1].batched) labels.rhs = prepended(lane, labels.rhs);
  return {{dot_labelled(c.node, {c.operands[0].value, labels.lhs}, {c.operands[1].value, labels.rhs},
                        prepended(lane, labels.out)),
           true}};
}

Sample sample(Rng& rng, DType dtype, const Shape& lhs, const Shape& rhs, const DotAxes& d) {
  return {{random_array(rng, dtype, lhs), random_array(rng, dtype, rhs)},
          {{"lhs_contract", d.lhs_contract},
           {"rhs_contract", d.rhs_contract},
           {"lhs_batch", d.lhs_batch},
           {"rhs_batch", d.rhs_batch}},
          {}};
}

}  // namespace

// `precision` = "bf16": the factors are rounded to bfloat16 (nearest, ties to even), and their products, which f32 holds exactly, added as ever.
// A choice of the compiler's (CompileOptions::dot_precision); derivatives of such a dot are such dots.
std::vector<OpDef> ops_dot() {
  OpDef def;
  def.name = "dot";
  def.summary = "sum of products over pairs of axes; result axes are batch, free of lhs, free of rhs";
  def.kind = OpKind::Dot;
  def.num_operands = 2;
  def.infer = infer;
  def.eval = eval;
  def.axes = links_of;
  def.jvp = jvp;
  def.transpose = transpose_rule;
  def.batch = batch;
  def.flops = [](const Node& node) {
    double flops = 2 * static_cast<double>(node.types[0].shape.size());
    for (std::int64_t axis : node.attrs.integers("lhs_contract"))
      flops *= static_cast<double>(node.operands[0].shape()[static_cast<int>(axis)]);
    return flops;
  };
  def.samples = [](Rng& rng, DType t) {
    return std::vector<Sample>{sample(rng, t, {}, {}, {}),
                               sample(rng, t, {5}, {5}, {{0}, {0}, {}, {}}),
                               sample(rng, t, {3}, {4}, {}),
                               sample(rng, t, {3, 5}, {5, 7}, {{1}, {0}, {}, {}}),
                               sample(rng, t, {3, 5}, {7, 5}, {{1}, {1}, {}, {}}),
                               sample(rng, t, {5, 3}, {5, 7}, {{0}, {0}, {}, {}}),
                               sample(rng, t, {1, 1}, {1, 3}, {{1}, {0}, {}, {}}),
                               sample(rng, t, {2, 3, 5}, {2, 5, 4}, {{2}, {1}, {0}, {0}}),
                               sample(rng, t, {3, 2, 5}, {5, 4, 2}, {{2}, {0}, {1}, {2}}),
                               sample(rng, t, {2, 3, 4, 5}, {4, 2, 3}, {{1, 2}, {2, 0}, {}, {}}),
                               sample(rng, t, {2, 3, 5}, {5}, {{2}, {0}, {}, {}})};
  };
  return {def};
}

}  // namespace ir
}  // namespace hotloop
