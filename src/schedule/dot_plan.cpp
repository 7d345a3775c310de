#include "schedule/dot_plan.h"

#include <algorithm>
#include <functional>

#include "hotloop/error.h"
#include "ir/op_def.h"

namespace hotloop {

using ir::OpKind;
using kernel::Affine;
using kernel::Extent;

namespace {

struct DotShape {
  std::vector<int> lhs_batch, rhs_batch, lhs_free, rhs_free, lhs_contract, rhs_contract;
};

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

// Collects the leaves of a tree of adds in order; false where it holds more than one term that is no dot.
bool collect(Value v, const std::function<bool(Value)>& absorbable, DotPlan& plan) {
  if (ir::is(*v.node, OpKind::Dot) && absorbable(v)) {
    plan.terms.push_back(v.node);
    return true;
  }
  if (v.node->op->name == "add" && absorbable(v)) {
    DotPlan attempt = plan;
    if (collect(v.node->operands[0], absorbable, attempt) && collect(v.node->operands[1], absorbable, attempt)) {
      plan = attempt;
      return true;
    }
  }
  if (plan.init) return false;
  plan.init = v;
  return true;
}

// One axis of the loop nest around a dot: extent and strides in every operand.
struct NestAxis {
  Extent extent;
  std::vector<std::int64_t> a, b;  // one a term
  std::int64_t c = 0, init = 0;
};

bool mergeable(const NestAxis& outer, const NestAxis& inner) {
  if (!outer.extent.is_static() || !inner.extent.is_static()) return false;
  const std::int64_t n = inner.extent.bound;
  for (std::size_t i = 0; i < outer.a.size(); ++i)
    if (outer.a[i] != inner.a[i] * n || outer.b[i] != inner.b[i] * n) return false;
  return outer.c == inner.c * n && outer.init == inner.init * n;
}

void merge_axes(std::vector<NestAxis>& axes) {
  std::erase_if(axes, [](const NestAxis& x) { return x.extent.is_static() && x.extent.bound == 1; });
  for (std::size_t i = 0; i + 1 < axes.size();)
    if (mergeable(axes[i], axes[i + 1])) {
      axes[i + 1].extent.bound *= axes[i].extent.bound;
      axes.erase(axes.begin() + static_cast<std::ptrdiff_t>(i));
    } else {
      ++i;
    }
}

// Whether the right-hand side should supply the rows: columns must be static and fill vectors.
bool should_swap(LoweringContext& context, const DotPlan& plan) {
  const Node& dot = *plan.terms[0];
  const DotShape s = shape_of(dot);
  const auto columns = [&](Value v, const std::vector<int>& axes) {
    std::int64_t n = 1;
    for (int a : axes) {
      const Extent e = context.extent(v, a);
      if (!e.is_static()) return std::int64_t{-1};
      n *= e.bound;
    }
    return n;
  };
  const std::int64_t lhs = columns(dot.operands[0], s.lhs_free), rhs = columns(dot.operands[1], s.rhs_free);
  HOTLOOP_CHECK(lhs >= 0 || rhs >= 0, "a dot with the batch on both sides");
  if (lhs < 0) return false;
  if (rhs < 0) return true;
  const auto fill = [&](std::int64_t n) {
    const std::int64_t lanes = kernel::lanes_of(plan.result.dtype());
    return static_cast<double>(n) / static_cast<double>(std::max<std::int64_t>((n + lanes - 1) / lanes, 1) * lanes);
  };
  return fill(lhs) > fill(rhs) * 1.01;
}

}  // namespace

std::optional<DotPlan> plan_dot(const Node& node, const std::function<bool(Value)>& absorbable) {
  DotPlan plan;
  plan.result = {const_cast<Node*>(&node), 0};
  if (ir::is(node, OpKind::Dot)) {
    plan.terms.push_back(&node);
    return plan;
  }
  if (node.op->name != "add" || !is_float(plan.result.dtype())) return std::nullopt;
  if (!collect(node.operands[0], absorbable, plan) || !collect(node.operands[1], absorbable, plan)) return std::nullopt;
  if (plan.terms.empty()) return std::nullopt;
  const DotShape first = shape_of(*plan.terms[0]);
  for (const Node* term : plan.terms) {
    const DotShape s = shape_of(*term);
    if (s.lhs_batch.size() != first.lhs_batch.size() || s.lhs_free.size() != first.lhs_free.size()) return std::nullopt;
  }
  return plan;
}

Storage allocate_dot(LoweringContext& context, const DotPlan& plan, const std::string& name) {
  Storage storage = context.allocate(plan.result, name);
  if (!should_swap(context, plan)) return storage;
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

namespace {

class DotLowering {
 public:
  DotLowering(LoweringContext& context, const DotPlan& plan, const Storage& target, bool accumulate)
      : context_(context), plan_(plan), target_(target), swap_(should_swap(context, plan)) {
    for (const Node* term : plan.terms) {
      const auto a = context.find(term->operands[swap_ ? 1 : 0]), b = context.find(term->operands[swap_ ? 0 : 1]);
      HOTLOOP_CHECK(a && b, "operands of a dot are in memory");
      a_.push_back(*a);
      b_.push_back(*b);
    }
    if (accumulate)
      init_ = target;
    else if (plan.init)
      init_ = context.find(*plan.init);
    HOTLOOP_CHECK(!plan.init || (init_ && !accumulate), "the start of a sum of dots is in memory");
  }

  kernel::Block run();

 private:
  enum class Side { Batch, Rows, Columns };
  std::vector<NestAxis> axes_of(Side side) const;
  std::vector<kernel::KDim> contraction(std::size_t term) const;
  bool try_pack(std::size_t term, kernel::DotSegment& segment, std::int64_t n, std::int64_t b_n, kernel::Block& before);

  LoweringContext& context_;
  const DotPlan& plan_;
  const Storage& target_;
  bool swap_;
  std::vector<Storage> a_, b_;
  std::optional<Storage> init_;
};

std::vector<NestAxis> DotLowering::axes_of(Side side) const {
  const DotShape first = shape_of(*plan_.terms[0]);
  const std::size_t nb = first.lhs_batch.size(), nl = first.lhs_free.size();
  const bool is_lhs = side == Side::Rows ? !swap_ : swap_;  // which side of the node supplies a free axis
  const std::size_t begin = side == Side::Batch ? 0 : is_lhs ? nb : nb + nl;
  const std::size_t end = side == Side::Batch ? nb : is_lhs ? nb + nl : target_.strides.size();
  std::vector<NestAxis> axes;
  for (std::size_t o = begin; o < end; ++o) {
    NestAxis axis;
    axis.extent = context_.extent(plan_.result, static_cast<int>(o));
    axis.c = target_.strides[o];
    if (init_) axis.init = init_->strides[o];
    for (std::size_t t = 0; t < plan_.terms.size(); ++t) {
      const DotShape s = shape_of(*plan_.terms[t]);
      const auto stride = [&](const Storage& storage, const std::vector<int>& list) {
        return storage.strides[static_cast<std::size_t>(list[o - begin])];
      };
      axis.a.push_back(side == Side::Batch  ? stride(a_[t], swap_ ? s.rhs_batch : s.lhs_batch)
                       : side == Side::Rows ? stride(a_[t], swap_ ? s.rhs_free : s.lhs_free)
                                            : 0);
      axis.b.push_back(side == Side::Batch     ? stride(b_[t], swap_ ? s.lhs_batch : s.rhs_batch)
                       : side == Side::Columns ? stride(b_[t], swap_ ? s.lhs_free : s.rhs_free)
                                               : 0);
    }
    axes.push_back(axis);
  }
  merge_axes(axes);
  return axes;
}

std::vector<kernel::KDim> DotLowering::contraction(std::size_t term) const {
  const Node& dot = *plan_.terms[term];
  const DotShape s = shape_of(dot);
  const auto& a_axes = swap_ ? s.rhs_contract : s.lhs_contract;
  const auto& b_axes = swap_ ? s.lhs_contract : s.rhs_contract;
  std::vector<kernel::KDim> k;
  for (std::size_t i = 0; i < a_axes.size(); ++i) {
    kernel::KDim d;
    d.extent = context_.extent(dot.operands[swap_ ? 1 : 0], a_axes[i]);
    d.a_stride = a_[term].strides[static_cast<std::size_t>(a_axes[i])];
    d.b_stride = b_[term].strides[static_cast<std::size_t>(b_axes[i])];
    if (d.extent.is_static() && d.extent.bound == 1) continue;
    if (!k.empty() && k.back().extent.is_static() && d.extent.is_static() &&
        k.back().a_stride == d.a_stride * d.extent.bound && k.back().b_stride == d.b_stride * d.extent.bound) {
      d.extent.bound *= k.back().extent.bound;
      k.back() = d;
      continue;
    }
    k.push_back(d);
  }
  if (k.empty()) k.push_back({{1, -1}, 0, 0});
  HOTLOOP_CHECK(k.size() <= 3, "a dot contracts at most three separate axes");
  return k;
}

bool DotLowering::try_pack(std::size_t term, kernel::DotSegment& segment, std::int64_t n, std::int64_t b_n,
                           kernel::Block& before) {
  if (segment.k.size() != 1 || !segment.k[0].extent.is_static()) return false;
  const bool repeated = context_.in_tile() || context_.loop_depth > 0;
  const Storage& source = b_[term];
  const auto space = context_.program.buffers[static_cast<std::size_t>(source.buffer)].space;
  const bool outer_index =
      std::ranges::all_of(source.offset.terms, [&](const kernel::Term& t) { return t.var < context_.first_inner_var; });
  const bool invariant = outer_index && space != kernel::Space::Worker &&
                         !context_.loop_written.contains(source.buffer) &&
                         (space == kernel::Space::Argument || space == kernel::Space::Constant ||
                          source.buffer < context_.first_inner_buffer);
  if (repeated ? !invariant : b_n == 1 || n == 1) return false;
  const std::int64_t k = segment.k[0].extent.bound, k_stride = segment.k[0].b_stride;
  if (repeated)
    for (const auto& p : context_.packs)
      if (p.source == source && p.k == k && p.n == n && p.k_stride == k_stride && p.n_stride == b_n) {
        segment.b = {p.buffer, 0, {}};
        return segment.packed = true;
      }
  const std::int64_t lanes = kernel::lanes_of(plan_.result.dtype());
  const int buffer =
      context_.new_buffer("packed", plan_.result.dtype(), k * ((n + lanes - 1) / lanes * lanes),
                          context_.in_tile() && !repeated ? kernel::Space::Worker : kernel::Space::Shared);
  kernel::Pack pack;
  pack.source = {source.buffer, source.offset, {}};
  pack.k_stride = k_stride;
  pack.n_stride = b_n;
  pack.k = k;
  pack.n = n;
  pack.target = buffer;
  pack.dtype = plan_.result.dtype();
  (repeated ? *context_.hoisted : before).push_back({pack});
  if (repeated) context_.packs.push_back({source, k, n, k_stride, b_n, buffer});
  segment.b = {buffer, 0, {}};
  return segment.packed = true;
}

kernel::Block DotLowering::run() {
  std::vector<NestAxis> rows = axes_of(Side::Rows), columns = axes_of(Side::Columns), outer = axes_of(Side::Batch);
  // The statement takes one axis of rows and one of columns; others become loops around it.
  const auto take = [&](std::vector<NestAxis>& axes, auto better) {
    NestAxis chosen;
    chosen.a.assign(plan_.terms.size(), 0);
    chosen.b = chosen.a;
    if (axes.empty()) return chosen;
    const auto it = std::ranges::max_element(axes, better);
    chosen = *it;
    axes.erase(it);
    outer.insert(outer.end(), axes.begin(), axes.end());
    return chosen;
  };
  const NestAxis m = take(rows, [](const NestAxis& x, const NestAxis& y) {
    return std::pair(!x.extent.is_static(), x.extent.bound) < std::pair(!y.extent.is_static(), y.extent.bound);
  });
  const NestAxis n = take(columns, [](const NestAxis& x, const NestAxis& y) {
    return std::pair(x.b[0] == 1, x.extent.bound) < std::pair(y.b[0] == 1, y.extent.bound);
  });
  HOTLOOP_CHECK(n.extent.is_static(), "columns of a dot are static");

  kernel::Dot dot;
  dot.name = plan_.result.graph()->name() + "." + std::to_string(plan_.result.node->id);
  dot.dtype = plan_.result.dtype();
  dot.m = m.extent;
  dot.n = n.extent;
  dot.c = {target_.buffer, target_.offset, {}};
  dot.c_m = m.c;
  dot.c_n = n.c;
  if (init_) {
    dot.init = kernel::Access{init_->buffer, init_->offset, {}};
    dot.init_m = m.init;
    dot.init_n = n.init;
  }
  kernel::Block before;
  for (std::size_t t = 0; t < plan_.terms.size(); ++t) {
    kernel::DotSegment segment;
    segment.a = {a_[t].buffer, a_[t].offset, {}};
    segment.b = {b_[t].buffer, b_[t].offset, {}};
    segment.a_m = m.a[t];
    segment.b_n = n.b[t];
    segment.k = contraction(t);
    const bool nested = std::ranges::any_of(outer, [&](const NestAxis& x) { return x.b[t] != 0; });
    if (!nested) try_pack(t, segment, n.extent.bound, n.b[t], before);
    dot.segments.push_back(std::move(segment));
  }
  kernel::Block block;
  // Loops over the remaining axes, innermost last.
  std::vector<kernel::For> loops;
  for (const NestAxis& axis : outer) {
    kernel::For loop;
    loop.counter = context_.new_var("d");
    loop.trip = axis.extent;
    const auto shift = [&](kernel::Access& access, std::int64_t stride) {
      if (stride != 0) access.index = access.index + Affine::of(loop.counter, stride);
    };
    shift(dot.c, axis.c);
    if (dot.init) shift(*dot.init, axis.init);
    for (std::size_t t = 0; t < dot.segments.size(); ++t) {
      shift(dot.segments[t].a, axis.a[t]);
      shift(dot.segments[t].b, axis.b[t]);
    }
    loops.push_back(std::move(loop));
  }
  block.push_back({dot});
  while (!loops.empty()) {
    kernel::For loop = std::move(loops.back());
    loops.pop_back();
    loop.body = std::move(block);
    block.clear();
    block.push_back({std::move(loop)});
  }
  before.insert(before.end(), std::make_move_iterator(block.begin()), std::make_move_iterator(block.end()));
  return before;
}

}  // namespace

kernel::Block lower_dot(LoweringContext& context, const DotPlan& plan, const Storage& target, bool accumulate) {
  return DotLowering(context, plan, target, accumulate).run();
}

}  // namespace hotloop
