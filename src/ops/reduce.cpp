#include <algorithm>
#include <cmath>
#include <limits>

#include "hotloop/error.h"
#include "hotloop/ops.h"
#include "ops/rules/accumulator.h"
#include "ops/rules/arguments.h"
#include "ops/rules/axes.h"
#include "ops/rules/batching.h"
#include "ops/rules/elementwise.h"
#include "ops/rules/movement.h"
#include "ops/rules/sampling.h"
#include "ops/rules/walk.h"

namespace hotloop {
namespace ir {
namespace {

Value append_reduce(std::string_view name, Value x, const std::vector<std::int64_t>& axes) {
  require_defined(name, {&x, 1});
  const auto checked = checked_axes(name, axes, x.type());
  return checked.empty() ? x : append_op(name, {x}, {{"axes", checked}});
}

template <class T> constexpr T lowest_of() {
  return std::numeric_limits<T>::has_infinity ? -std::numeric_limits<T>::infinity() : std::numeric_limits<T>::lowest();
}
template <class T> constexpr T highest_of() {
  return std::numeric_limits<T>::has_infinity ? std::numeric_limits<T>::infinity() : std::numeric_limits<T>::max();
}

struct Sum {
  template <class A> static constexpr A identity() { return 0; }
  template <class A> A operator()(A a, A b) const {
    return wrapping(a, b, [](auto x, auto y) { return x + y; });
  }
};
struct Product {
  template <class A> static constexpr A identity() { return 1; }
  template <class A> A operator()(A a, A b) const {
    return wrapping(a, b, [](auto x, auto y) { return x * y; });
  }
};
// A NaN wins: it is neither smaller nor larger, so "not (b <= a)" takes it, and it is never let go.
struct Largest {
  template <class A> static constexpr A identity() { return lowest_of<A>(); }
  template <class A> A operator()(A a, A b) const { return a != a || b <= a ? a : b; }
};
struct Smallest {
  template <class A> static constexpr A identity() { return highest_of<A>(); }
  template <class A> A operator()(A a, A b) const { return a != a || a <= b ? a : b; }
};

template <class F> auto eval_reduce(F f) {
  return [f](const EvalContext& c) -> std::vector<Array> {
    const Array& x = c.operands[0];
    const ValueType& type = c.node.types[0];
    const auto kept = other_axes(x.shape().rank(), c.node.attrs.integers("axes"));
    const auto strides = strides_of(type.shape);
    Array out(type.dtype, type.shape);
    visit_dtype(type.dtype, [&](auto tag) {
      using T = decltype(tag);
      using A = Accumulator<T>;
      // The extremes of bool are false and true, not those of the byte that holds it.
      const A start =
          type.dtype == DType::Bool ? static_cast<A>(F::template identity<A>() != 0) : F::template identity<A>();
      std::vector<A> sums(static_cast<std::size_t>(out.size()), start);
      const auto* element = static_cast<const T*>(x.raw());
      for_each_index(x.shape(), [&](const Index& index) {
        std::int64_t flat = 0;
        for (std::size_t i = 0; i < kept.size(); ++i) flat += index[static_cast<std::size_t>(kept[i])] * strides[i];
        A& sum = sums[static_cast<std::size_t>(flat)];
        sum = f(sum, static_cast<A>(*element++));
      });
      for (std::int64_t i = 0; i < out.size(); ++i)
        static_cast<T*>(out.raw())[i] = static_cast<T>(sums[static_cast<std::size_t>(i)]);
    });
    return {out};
  };
}

Value repeated(Value reduced, const Shape& shape, const std::vector<std::int64_t>& axes) {
  return broadcast(reduced, shape, other_axes(shape.rank(), axes));
}

// The mean tangent of the elements that attain the extreme.
std::vector<Value> jvp_extreme(const JvpContext& c) {
  const Value x = c.primals[0], t = c.tangents[0];
  if (!t.defined()) return {{}};
  const auto& axes = c.node.attrs.integers("axes");
  // The extreme of nothing is a constant.
  if (std::ranges::any_of(axes, [&](std::int64_t axis) { return x.shape()[static_cast<int>(axis)] == 0; })) return {{}};
  const Value attained = equal(x, repeated(c.outputs[0], x.shape(), axes));
  const Value count = reduce_sum(cast(attained, x.dtype()), axes);
  return {div(reduce_sum(select(attained, t, like(t, 0)), axes), count)};
}

// Products of the elements and their tangent by a tree of pairs, (ab)' = a'b + ab': exact with zeros among them.
std::vector<Value> jvp_product(const JvpContext& c) {
  if (!c.tangents[0].defined()) return {{}};
  const auto& axes = c.node.attrs.integers("axes");
  const Shape& shape = c.primals[0].shape();
  std::vector<std::int64_t> permutation = axes;
  std::int64_t n = 1;
  for (std::int64_t axis : axes) n *= shape[static_cast<int>(axis)];
  for (std::int64_t axis : other_axes(shape.rank(), axes)) permutation.push_back(axis);
  const Shape rows = c.outputs[0].shape().with_inserted(0, n);
  Value x = reshape(transpose(c.primals[0], permutation), rows);
  Value t = reshape(transpose(c.tangents[0], permutation), rows);
  if (n == 0) return {{}};
  while (n > 1) {
    const std::int64_t half = n / 2;
    const Value a = narrow(x, 0, 0, half), b = narrow(x, 0, half, half);
    const Value ta = narrow(t, 0, 0, half), tb = narrow(t, 0, half, half);
    Value product = a * b, tangent = ta * b + a * tb;
    if (n % 2 == 1) {
      product = concat(std::vector{product, narrow(x, 0, n - 1, 1)}, 0);
      tangent = concat(std::vector{tangent, narrow(t, 0, n - 1, 1)}, 0);
    }
    x = product, t = tangent, n = half + n % 2;
  }
  return {reshape(t, c.outputs[0].shape())};
}

std::vector<Sample> samples(Rng& rng, DType dtype, bool takes_bool) {
  struct Form {
    Shape shape;
    std::vector<std::int64_t> axes;
  };
  const Form forms[] = {{{1}, {0}},       {{7}, {0}},          {{3, 5}, {1}}, {{3, 5}, {0}},
                        {{3, 5}, {0, 1}}, {{2, 1, 3}, {0, 2}}, {{3, 4}, {}}};
  std::vector<Sample> result;
  for (const Form& form : forms) result.push_back({{random_array(rng, dtype, form.shape)}, {{"axes", form.axes}}, {}});
  for (DType d : {DType::I32, DType::U32, DType::I64, DType::Bool})
    if (takes_bool || d != DType::Bool)
      result.push_back(
          {{random_array(rng, d, {2, 9}, d == DType::U32 ? 0 : -3, 4)}, {{"axes", std::vector<std::int64_t>{1}}}, {}});
  return result;
}

template <class F> OpDef reduction(const std::string& name, const std::string& summary, bool takes_bool, F f) {
  OpDef def;
  def.name = name;
  def.summary = summary;
  def.kind = OpKind::Reduce;
  def.num_operands = 1;
  def.infer = [takes_bool](const InferContext& c) {
    const ValueType& x = c.operands[0];
    if (x.dtype == DType::Bool && !takes_bool)
      throw UserError(std::string(c.op_name), "the operand must be numbers", x.str(), "cast(x, DType::I32)");
    const auto& axes = c.attrs.integers("axes");
    if (checked_axes(c.op_name, axes, x) != axes)
      throw UserError(std::string(c.op_name), "axes must be increasing and not negative", "other axes for " + x.str());
    Shape shape;
    for (std::int64_t axis : other_axes(x.shape.rank(), axes)) shape.push_back(x.shape[static_cast<int>(axis)]);
    return std::vector<ValueType>{{x.dtype, shape}};
  };
  def.eval = eval_reduce(f);
  def.axes = [](const Node& node) { return axes_without(node, node.attrs.integers("axes"), AxisUse::Mixed); };
  def.batch = [](const BatchContext& c) {
    const auto axes = shifted(c.node.attrs.integers("axes"));
    return std::vector<Batched>{{append_reduce(c.node.op->name, c.operands[0].value, axes), true}};
  };
  def.flops = [](const Node& node) { return static_cast<double>(node.operands[0].shape().size()); };
  def.samples = [takes_bool](Rng& rng, DType dtype) { return ir::samples(rng, dtype, takes_bool); };
  return def;
}

}  // namespace

std::vector<OpDef> ops_reduce() {
  OpDef sum = reduction("reduce_sum", "sum along axes, which disappear; 0 for none", false, Sum{});
  sum.axes = [](const Node& node) { return axes_without(node, node.attrs.integers("axes"), AxisUse::Summed); };
  sum.jvp = apply_to_tangent;
  sum.transpose = transpose_of_one([](Value ct, const TransposeContext& c) {
    return repeated(ct, c.node.operands[0].shape(), c.node.attrs.integers("axes"));
  });
  OpDef max = reduction("reduce_max", "largest along axes, which disappear; NaN if there is one; -inf for none", true,
                        Largest{});
  max.jvp = jvp_extreme;
  OpDef min = reduction("reduce_min", "smallest along axes, which disappear; NaN if there is one; inf for none", true,
                        Smallest{});
  min.jvp = jvp_extreme;
  OpDef product = reduction("reduce_prod", "product along axes, which disappear; 1 for none", false, Product{});
  product.jvp = jvp_product;
  return {sum, max, min, product};
}

}  // namespace ir

Value reduce_sum(Value x, const std::vector<std::int64_t>& axes) { return ir::append_reduce("reduce_sum", x, axes); }
Value reduce_max(Value x, const std::vector<std::int64_t>& axes) { return ir::append_reduce("reduce_max", x, axes); }
Value reduce_min(Value x, const std::vector<std::int64_t>& axes) { return ir::append_reduce("reduce_min", x, axes); }
Value reduce_prod(Value x, const std::vector<std::int64_t>& axes) { return ir::append_reduce("reduce_prod", x, axes); }

}  // namespace hotloop
