#include <algorithm>

#include "hotloop/error.h"
#include "hotloop/ops.h"
#include "ops/rules/arguments.h"
#include "ops/rules/axes.h"
#include "ops/rules/batching.h"
#include "ops/rules/movement.h"
#include "ops/rules/sampling.h"
#include "ops/rules/walk.h"

namespace hotloop {

Value pad(Value x, Value value, const std::vector<std::int64_t>& low, const std::vector<std::int64_t>& high,
          const std::vector<std::int64_t>& interior) {
  const auto between = interior.empty() ? std::vector<std::int64_t>(low.size(), 0) : interior;
  return ir::append_op("pad", {x, value}, {{"low", low}, {"high", high}, {"interior", between}});
}

namespace ir {
namespace {

struct Padding {
  const std::vector<std::int64_t>&low, &high, &interior;
  explicit Padding(const Attrs& a)
      : low(a.integers("low")), high(a.integers("high")), interior(a.integers("interior")) {}
};

std::vector<ValueType> infer(const InferContext& c) {
  const ValueType &x = c.operands[0], &value = c.operands[1];
  const Padding p(c.attrs);
  require_one_an_axis("pad", "low", p.low.size(), x);
  require_one_an_axis("pad", "high", p.high.size(), x);
  require_one_an_axis("pad", "interior", p.interior.size(), x);
  if (value != ValueType{x.dtype, {}})
    throw UserError("pad", "the padding value must be a scalar of the operand's dtype", types_text(c.operands),
                    "like(x, 0)");
  Shape shape;
  for (int i = 0; i < x.shape.rank(); ++i) {
    const auto k = static_cast<std::size_t>(i);
    if (p.low[k] < 0 || p.high[k] < 0 || p.interior[k] < 0)
      throw UserError("pad", "amounts of padding must not be negative",
                      "low " + std::to_string(p.low[k]) + ", high " + std::to_string(p.high[k]) + ", interior " +
                          std::to_string(p.interior[k]) + " on axis " + std::to_string(i) + " of " + x.str(),
                      "slice()");
    shape.push_back(p.low[k] + x.shape[i] + std::max<std::int64_t>(x.shape[i] - 1, 0) * p.interior[k] + p.high[k]);
  }
  return {{x.dtype, shape}};
}

std::vector<Array> eval(const EvalContext& c) {
  const Array &x = c.operands[0], &value = c.operands[1];
  const Padding p(c.node.attrs);
  const auto strides = strides_of(c.node.types[0].shape);
  Array out = rearranged(value, c.node.types[0].shape, [](const Index&) { return 0; });
  const std::size_t width = size_of(x.dtype());
  const auto* from = static_cast<const std::byte*>(x.raw());
  for_each_index(x.shape(), [&](const Index& index) {
    std::int64_t flat = 0;
    for (std::size_t i = 0; i < index.size(); ++i) flat += (p.low[i] + index[i] * (p.interior[i] + 1)) * strides[i];
    std::memcpy(static_cast<std::byte*>(out.raw()) + static_cast<std::size_t>(flat) * width, from, width);
    from += width;
  });
  return {out};
}

std::vector<Value> jvp(const JvpContext& c) {
  if (!c.tangents[0].defined() && !c.tangents[1].defined()) return {{}};
  const Padding p(c.node.attrs);
  return {pad(or_zeros(c.tangents[0], c.primals[0].type()), or_zeros(c.tangents[1], c.primals[1].type()), p.low, p.high,
              p.interior)};
}

// Where the padded array holds elements of x.
Value is_inside(const Shape& x, const std::vector<std::int64_t>& low, const std::vector<std::int64_t>& high,
                const std::vector<std::int64_t>& interior) {
  return pad(constant(1, DType::Bool, x), constant(0, DType::Bool), low, high, interior);
}

std::vector<Value> transpose_rule(const TransposeContext& c) {
  const Value ct = c.cotangents[0];
  if (!ct.defined()) return {{}, {}};
  const Padding p(c.node.attrs);
  const Shape& shape = c.node.operands[0].shape();
  std::vector<std::int64_t> stop, step;
  for (int i = 0; i < shape.rank(); ++i) {
    const auto k = static_cast<std::size_t>(i);
    step.push_back(p.interior[k] + 1);
    stop.push_back(p.low[k] + (shape[i] == 0 ? 0 : (shape[i] - 1) * step[k] + 1));
  }
  std::vector<Value> result(2);
  if (!c.operands[0].defined()) result[0] = slice(ct, p.low, stop, step);
  // Not as the difference of all and what is x's, in which small sums vanish beside large ones.
  if (!c.operands[1].defined()) result[1] = sum(select(is_inside(shape, p.low, p.high, p.interior), like(ct, 0), ct));
  return result;
}

std::vector<Batched> batch(const BatchContext& c) {
  const Padding p(c.node.attrs);
  const auto low = prepended(0, p.low), high = prepended(0, p.high), interior = prepended(0, p.interior);
  if (!c.operands[1].batched) return {{pad(c.operands[0].value, c.operands[1].value, low, high, interior), true}};
  // Each lane has a padding value of its own: pad a mask beside x, and choose.
  const Value x = with_batch(c.operands[0], c.size), value = c.operands[1].value;
  const Value padded = pad(x, like(x, 0), low, high, interior);
  return {{select(is_inside(x.shape(), low, high, interior), padded, broadcast(value, padded.shape(), {0})), true}};
}

Sample sample(Rng& rng, DType dtype, const Shape& shape, const std::vector<std::int64_t>& low,
              const std::vector<std::int64_t>& high, const std::vector<std::int64_t>& interior) {
  return {{random_array(rng, dtype, shape), random_array(rng, dtype, {})},
          {{"low", low}, {"high", high}, {"interior", interior}},
          {}};
}

}  // namespace

std::vector<OpDef> ops_pad() {
  OpDef def = movement_op("pad", "x with copies of a scalar before, after and between its elements", OpKind::Pad, 2);
  def.infer = infer;
  def.eval = eval;
  def.axes = [](const Node& node) {
    std::vector<AxisLink> links;
    link_part(links, node, 0);
    return links;
  };
  def.jvp = jvp;
  def.transpose = transpose_rule;
  def.batch = batch;
  def.samples = [](Rng& rng, DType dtype) {
    return std::vector<Sample>{sample(rng, dtype, {}, {}, {}, {}),
                               sample(rng, dtype, {3}, {1}, {2}, {0}),
                               sample(rng, dtype, {1}, {0}, {1}, {4}),
                               sample(rng, dtype, {3, 5}, {0, 2}, {1, 0}, {2, 1}),
                               sample(rng, dtype, {2, 1, 3}, {1, 0, 0}, {0, 3, 0}, {0, 0, 1}),
                               sample(rng, DType::I32, {3}, {1}, {1}, {1})};
  };
  return {def};
}

}  // namespace ir
}  // namespace hotloop
