// A DotPlan as statements: which axes become the rows, the columns and the steps of a Dot, loops around it, and how its factors lie.
#include <algorithm>
#include <numeric>
#include <tuple>

#include "core/index.h"
#include "hotloop/error.h"
#include "ir/op_def.h"
#include "schedule/column_walk.h"
#include "schedule/dot_lowering.h"

namespace hotloop {

using kernel::Affine;
using kernel::Extent;

namespace {

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

}  // namespace

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

// The contracted axes, numbers in the lists of DotShape, in the order in which their products are added up.
std::vector<std::size_t> DotLowering::order_of_sum(std::size_t term) const {
  std::vector<std::size_t> order(shape_of(*plan_.terms[term]).lhs_contract.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  if (in_blocks_)
    std::ranges::rotate(order.begin() + static_cast<std::ptrdiff_t>(halved_[term]),
                        order.begin() + static_cast<std::ptrdiff_t>(halved_[term]) + 1, order.end());
  return order;
}

// Of the factor that supplies the rows, or the other one.
Halving DotLowering::halving(std::size_t term, bool of_rows) const {
  const DotShape s = shape_of(*plan_.terms[term]);
  const bool is_lhs = of_rows != swap_;
  const std::vector<int>& contracted = is_lhs ? s.lhs_contract : s.rhs_contract;
  Halving halving;
  if (pairs_) halving.axis = contracted[halved_[term]];
  if (in_blocks_) {
    for (const std::size_t i : order_of_sum(term)) halving.contracted.push_back(contracted[i]);
    halving.free = is_lhs ? s.lhs_free : s.rhs_free;
    halving.of_rows = of_rows;
  }
  return halving;
}

std::vector<kernel::KDim> DotLowering::contraction(std::size_t term) const {
  const Node& dot = *plan_.terms[term];
  const DotShape s = shape_of(dot);
  const auto& a_axes = swap_ ? s.rhs_contract : s.lhs_contract;
  const auto& b_axes = swap_ ? s.lhs_contract : s.rhs_contract;
  std::vector<kernel::KDim> k;
  for (const std::size_t i : order_of_sum(term)) {
    kernel::KDim d;
    d.extent = context_.extent(dot.operands[swap_ ? 1 : 0], a_axes[i]);
    d.a_stride = a_[term].strides[static_cast<std::size_t>(a_axes[i])];
    d.b_stride = b_[term].strides[static_cast<std::size_t>(b_axes[i])];
    if (pairs_ && halved_[term] == i) d.extent = Extent{half_of(d.extent.bound, in_blocks_)};
    if (in_blocks_) d.extent = Extent{d.extent.bound};  // filled up with zeros
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
  return k;
}

// The first region from outside in which what lies there stays the same; their number if it changes in all.
std::size_t DotLowering::unchanged_from(int buffer, const Affine& offset) const {
  const std::vector<LoweringContext::Region>& regions = context_.regions;
  const auto space = context_.program.buffers[static_cast<std::size_t>(buffer)].space;
  const bool made_outside = space == kernel::Space::Argument || space == kernel::Space::Constant;
  std::size_t at = regions.size();
  while (at > 0) {
    const LoweringContext::Region& region = regions[at - 1];
    const bool outer_index =
        std::ranges::all_of(offset.terms, [&](const kernel::Term& t) { return t.var < region.first_var; });
    if (!outer_index || region.written.contains(buffer) || !(made_outside || buffer < region.first_buffer)) break;
    --at;
  }
  return at;
}

// The same of regions outside of tiles, for what is made before them and shared.
std::size_t DotLowering::region_of(const Storage& source) const {
  const std::vector<LoweringContext::Region>& regions = context_.regions;
  const std::size_t at = unchanged_from(source.buffer, source.offset);
  return at < regions.size() && regions[at].in_tile ? regions.size() : at;
}

// Lays the factors out anew, rounded to bfloat16: in pairs along a contracted axis, if each term has one.
void DotLowering::round_factors(kernel::Block& before) {
  in_blocks_ = context_.options().target.multiplies_blocks;
  // Whether all tiles have as many rows may depend on the machine, and must not decide: pairs are of an axis of the batch only where there is no other. In blocks
  // they are of the axis that leaves least of a block empty.
  const auto rank = [&](Value v, int axis) {
    const Extent e = context_.extent(v, axis);
    const double filled =
        static_cast<double>(e.bound) / static_cast<double>(divided_up(e.bound, 2 * kernel::steps_of_block));
    const bool may_vary = !e.is_static() || context_.is_row_axis(v, axis);
    return in_blocks_ ? std::tuple(true, filled, e.bound)
                      : std::tuple(!may_vary, static_cast<double>(e.bound % 2 == 0), e.bound);
  };
  pairs_ = true;
  for (const Node* term : plan_.terms) {
    const Value v = term->operands[0];
    const std::vector<int> axes = shape_of(*term).lhs_contract;
    std::size_t best = axes.size();
    for (std::size_t i = 0; i < axes.size(); ++i)
      if (context_.extent(v, axes[i]).bound > 1 && (best == axes.size() || rank(v, axes[i]) > rank(v, axes[best])))
        best = i;
    pairs_ = pairs_ && best < axes.size();
    halved_.push_back(best);
  }
  in_blocks_ = in_blocks_ && pairs_;
  for (std::size_t t = 0; t < plan_.terms.size(); ++t) {
    const Node& dot = *plan_.terms[t];
    std::size_t a_region = 0, b_region = 0;
    a_[t] = rounded(dot.operands[swap_ ? 1 : 0], a_[t], halving(t, true), before, a_region);
    if (b_in_pairs_[t])
      b_region = unchanged_from(b_[t].buffer, b_[t].offset);
    else
      b_[t] = rounded(dot.operands[swap_ ? 0 : 1], b_[t], halving(t, false), before, b_region);
    b_region_.push_back(b_region);
  }
}

// One factor, laid out before the outermost region in which it stays the same; `region` tells which.
Storage DotLowering::rounded(Value v, const Storage& source, const Halving& halving, kernel::Block& before,
                             std::size_t& region) {
  region = context_.in_tile() || context_.loop_depth > 0 ? region_of(source) : context_.regions.size();
  for (int axis = 0; axis < v.rank(); ++axis)
    if (!context_.extent(v, axis).is_static()) region = context_.regions.size();
  if (region > 0 && context_.in_tile()) region = context_.regions.size();
  using Key = LoweringContext::FactorKey;
  const auto is_same = [&](const Key& f) { return f.source == source && f.shape == v.shape() && f.halving == halving; };
  if (region == context_.regions.size()) {
    auto& here = context_.factors_here;
    for (const auto& [value, f] : here)
      if (value == key_of(v) && is_same(f)) return f.made;
    const auto space = context_.in_tile() ? kernel::Space::Worker : kernel::Space::Shared;
    const DotFactor made = place_of_factor(context_, v, source, halving, space);
    append(before, lay_out_factor(context_, v, source, halving, made));
    here.emplace_back(key_of(v), Key{source, v.shape(), halving, made.storage});
    return made.storage;
  }
  LoweringContext::Region& outer = context_.regions[region];
  for (const Key& f : outer.factors)
    if (is_same(f)) return f.made;
  const DotFactor made = place_of_factor(context_, v, source, halving, kernel::Space::Shared);
  append(outer.before, lay_out_factor(context_, v, source, halving, made));
  outer.factors.push_back({source, v.shape(), halving, made.storage});
  return made.storage;
}

// A few long inner products, as of a layer with few outputs. In a Dot each would be one chain of additions, and most lanes
// empty; as reductions their lanes run along k. Which it is decides the order of summation, so it must not depend on the batch, nor on the
// number of steps of a sequence: a step alone gives the bits of that step among others. So the outputs of the weights decide: of the
// factor that belongs to no sample, or, where nobody named the batch, of the second one, as in x @ W. Where neither factor is
// shared, what is of one sample counts.
bool DotLowering::is_narrow() const {
  const std::int64_t lanes = kernel::lanes_of(plan_.result.dtype()), long_enough = shortest_inner_product;
  const Node& dot = *plan_.terms[0];
  if (plan_.terms.size() != 1 || !is_float(plan_.result.dtype())) return false;
  const DotShape s = shape_of(dot);
  const Value lhs = dot.operands[0], rhs = dot.operands[1];
  if (s.lhs_contract.size() != 1 || lhs.shape()[s.lhs_contract[0]] < long_enough) return false;
  // Of one vector alone, as of 16 numbers, a single output: several run beside each other in a Dot.
  const std::int64_t few = lhs.shape()[s.lhs_contract[0]] > lanes ? 4 : 1;
  const auto is_batch = [&](Value v, int axis) {
    return context_.tile_class >= 0 && context_.axes().axis_class(v, axis) == context_.tile_class;
  };
  if (is_batch(lhs, s.lhs_contract[0])) return false;
  const auto of_samples = [&](Value v) {
    for (int axis = 0; axis < v.rank(); ++axis)
      if (is_batch(v, axis)) return true;
    return false;
  };
  // Whether the numbers of the other factor lie side by side along the sum. Those of a sum over the samples of a gradient do not: its results lie side by
  // side, and lanes are theirs. A matrix that is the same in all iterations and multiplies a vector from the right is laid out anew (make_contiguous).
  const auto sums_last_axis = [&](Value v, const std::vector<int>& free, int contracted) {
    return std::ranges::all_of(free, [&](int axis) { return axis < contracted || v.shape()[axis] == 1; });
  };
  const auto outputs = [&](Value v, const std::vector<int>& axes, bool without_batch) {
    std::int64_t n = 1;
    for (int axis : axes)
      if (!without_batch || !is_batch(v, axis)) n *= v.shape()[axis];
    return n;
  };
  const bool lhs_last = sums_last_axis(lhs, s.lhs_free, s.lhs_contract[0]),
             rhs_last = sums_last_axis(rhs, s.rhs_free, s.rhs_contract[0]);
  const auto is_kept = [&](const Storage& factor) { return region_of(factor) < context_.regions.size(); };
  const auto is_few = [&](std::int64_t n, bool other_last, const Storage& other) {
    return n <= few && (other_last || (n == 1 && is_kept(other)));
  };
  const Storage &of_left = swap_ ? b_[0] : a_[0], &of_right = swap_ ? a_[0] : b_[0];
  // Where nobody named the batch, whatever axis is tiled may be one of the second factor. A vector on the right, as in W @ h, is the sample:
  // where a loop keeps W, it is packed for one chain of additions for all outputs, unless these are so few that inner products, each
  // with lanes to combine, take less. A product that is computed once reads W as it lies (its last bits then differ from those in a loop).
  if (context_.options().batch_axes.empty() && s.rhs_batch.empty()) {
    if (!s.rhs_free.empty()) return is_few(outputs(rhs, s.rhs_free, false), lhs_last, of_left);
    if (!is_kept(of_left)) return lhs_last;
    const std::int64_t k = lhs.shape()[s.lhs_contract[0]], combining = 32, latency = 64;
    return outputs(lhs, s.lhs_free, false) * (k + combining) <= latency * k;
  }
  const std::int64_t of_lhs = outputs(lhs, s.lhs_free, true), of_rhs = outputs(rhs, s.rhs_free, true);
  bool left = of_samples(lhs), right = of_samples(rhs);
  // The axis of a batch of one may be lost where it was moved. Groups of a convolution, which are no samples, come first in the weights and behind the
  // samples' axes in the other factor.
  const auto first = [](const std::vector<int>& batch) { return std::ranges::find(batch, 0) != batch.end(); };
  if (left == right && context_.options().batch_axes.empty() && first(s.lhs_batch) != first(s.rhs_batch)) {
    left = !first(s.lhs_batch);
    right = !left;
  }
  if (left == right)
    return (of_lhs <= few && of_rhs <= few) || ((of_lhs <= few || of_rhs <= few) && lhs_last && rhs_last);
  return left ? is_few(of_rhs, lhs_last, of_left) : is_few(of_lhs, rhs_last, of_right);
}

kernel::Block DotLowering::run_narrow() {
  HOTLOOP_CHECK(panel_[0] == 0 && !b_in_pairs_[0], "inner products read factors as they are");
  std::vector<NestAxis> axes = axes_of(Side::Batch);
  for (const Side side : {Side::Rows, Side::Columns})
    for (const NestAxis& axis : axes_of(side)) axes.push_back(axis);
  const Node& dot = *plan_.terms[0];
  const DotShape s = shape_of(dot);
  const int lhs = s.lhs_contract[0], rhs = s.rhs_contract[0];
  const std::int64_t k = dot.operands[0].shape()[lhs];
  Storage a = a_[0], b = b_[0];
  std::int64_t a_k = a.strides[static_cast<std::size_t>(swap_ ? rhs : lhs)],
               b_k = b.strides[static_cast<std::size_t>(swap_ ? lhs : rhs)];
  kernel::Block block;
  make_contiguous(a, a_k, k, axes, true, block);
  make_contiguous(b, b_k, k, axes, false, block);

  kernel::Map map;
  map.name = "inner_products";
  kernel::Access at_a{a.buffer, a.offset, {}}, at_b{b.buffer, b.offset, {}}, at_c{target_.buffer, target_.offset, {}},
      at_init;
  if (init_) at_init = {init_->buffer, init_->offset, {}};
  const auto move = [&](kernel::Access& access, kernel::Var var, std::int64_t stride) {
    if (stride != 0) access.index = access.index + Affine::of(var, stride);
  };
  for (const NestAxis& axis : axes) {
    const kernel::Var var = context_.new_var("i");
    map.dims.push_back({var, axis.extent});
    move(at_a, var, axis.a[0]);
    move(at_b, var, axis.b[0]);
    move(at_c, var, axis.c);
    if (init_) move(at_init, var, axis.init);
  }
  map.num_outer = static_cast<int>(map.dims.size());
  const kernel::Var var = context_.new_var("k");
  map.dims.push_back({var, {k, -1}});
  map.vector_dim = map.num_outer;
  move(at_a, var, a_k);
  move(at_b, var, b_k);
  const auto push = [&](kernel::Instr::Kind kind, ir::ScalarOp op, int x, int y, kernel::Access access = {}) {
    kernel::Instr instr;
    instr.kind = kind;
    instr.op = op;
    instr.dtype = plan_.result.dtype();
    instr.args[0] = x;
    instr.args[1] = y;
    instr.access = std::move(access);
    map.instrs.push_back(std::move(instr));
    return static_cast<int>(map.instrs.size()) - 1;
  };
  using Kind = kernel::Instr::Kind;
  int x = push(Kind::Load, ir::ScalarOp::None, -1, -1, at_a);
  int y = push(Kind::Load, ir::ScalarOp::None, -1, -1, at_b);
  if (rounds_factors(dot)) {
    x = append_rounded(map.instrs, x);
    y = append_rounded(map.instrs, y);
  }
  map.body_end = static_cast<int>(map.instrs.size());
  int result = push(Kind::Reduced, ir::ScalarOp::Fma, x, y);
  if (init_) {
    const int start = push(Kind::Load, ir::ScalarOp::None, -1, -1, at_init);
    result = push(Kind::Op, ir::ScalarOp::Add, start, result);
  }
  push(Kind::Store, ir::ScalarOp::None, result, -1, at_c);
  block.push_back({map});
  return block;
}

// A product over more axes than a statement takes: loops over the outermost of them, each step of which goes on from what is there. That is the order of
// one statement.
kernel::Block DotLowering::sum_in_loops(kernel::Dot dot) {
  HOTLOOP_CHECK(dot.segments.size() == 1, "it stands alone");
  kernel::DotSegment& segment = dot.segments[0];
  kernel::Map start;
  start.name = "start";
  kernel::Access from = dot.init.value_or(dot.c), to = dot.c;
  for (const auto& [extent, c, init] : {std::tuple(dot.m, dot.c_m, dot.init_m), {dot.n, dot.c_n, dot.init_n}}) {
    const kernel::Var var = context_.new_var("i");
    start.dims.push_back({var, extent});
    to.index = to.index + Affine::of(var, c);
    from.index = from.index + Affine::of(var, init);
  }
  start.num_outer = 2;
  start.vector_dim = 1;
  start.instrs = {dot.init ? kernel::load_instr(dot.dtype, from) : kernel::const_instr(dot.dtype, 0),
                  kernel::store_instr(dot.dtype, to, 0)};
  start.body_end = 2;
  const bool starts_there = dot.init && dot.init->buffer == dot.c.buffer && dot.init->index == dot.c.index;
  dot.init = dot.c;
  dot.init_m = dot.c_m;
  dot.init_n = dot.c_n;
  std::vector<kernel::For> loops;
  while (segment.k.size() > most_contracted) {
    kernel::For loop;
    loop.counter = context_.new_var("k");
    loop.trip = segment.k[0].extent;
    segment.a.index = segment.a.index + Affine::of(loop.counter, segment.k[0].a_stride);
    segment.b.index = segment.b.index + Affine::of(loop.counter, segment.k[0].b_stride);
    segment.k.erase(segment.k.begin());
    loops.push_back(std::move(loop));
  }
  kernel::Block block{{std::move(dot)}};
  for (auto loop = loops.rbegin(); loop != loops.rend(); ++loop) {
    loop->body = std::move(block);
    block.clear();
    block.push_back({std::move(*loop)});
  }
  if (!starts_there) block.insert(block.begin(), {std::move(start)});
  return block;
}

kernel::Block DotLowering::run() {
  if (is_narrow()) return run_narrow();
  kernel::Block before;
  if (rounds_factors(*plan_.terms[0])) round_factors(before);
  std::vector<NestAxis> rows = axes_of(Side::Rows), columns = axes_of(Side::Columns), outer = axes_of(Side::Batch);
  // Of a factor in blocks: along its panels rows, or columns, are as far apart as there are steps, and along other axes farther.
  const auto has_panels = [&](const NestAxis& axis) {
    const std::int64_t steps = contraction(0)[0].extent.bound;
    return axis.a[0] == steps || axis.b[0] == steps;
  };
  // The statement takes one axis of rows and one of columns; others become loops around it.
  const auto take = [&](std::vector<NestAxis>& axes, auto better) {
    NestAxis chosen;
    chosen.a.assign(plan_.terms.size(), 0);
    chosen.b = chosen.a;
    if (axes.empty()) return chosen;
    const auto it = in_blocks_ ? std::ranges::find_if(axes, has_panels) : std::ranges::max_element(axes, better);
    HOTLOOP_CHECK(it != axes.end(), "one axis of a factor in blocks is cut into panels");
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
  dot.pairs = pairs_;
  dot.in_blocks = in_blocks_;
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
  for (std::size_t t = 0; t < plan_.terms.size(); ++t) {
    kernel::DotSegment segment;
    segment.a = {a_[t].buffer, a_[t].offset, {}};
    segment.b = {b_[t].buffer, b_[t].offset, {}};
    segment.a_m = m.a[t];
    segment.b_n = n.b[t];
    segment.k = contraction(t);
    segment.panel = in_blocks_ ? kernel::columns_of_blocks : panel_[t];
    dot.segments.push_back(std::move(segment));
  }
  kernel::ProductShape shape = kernel::shape_of(dot, context_.loop_depth > 0);
  shape.parts = plan_.parts;
  const std::int64_t panel = dot.panel() > 0 ? dot.panel() : kernel::panel_columns(context_.options().target, shape);
  // Loops over the remaining axes, innermost last, and what is done before each of them, and before the statement.
  std::vector<kernel::For> loops(outer.size());
  std::vector<kernel::Block> before_loop(outer.size() + 1);
  Nest nest{m, n, outer, {}, panel};
  const auto shift = [&](kernel::Access& access, std::size_t loop, std::int64_t stride) {
    if (stride != 0) access.index = access.index + Affine::of(loops[loop].counter, stride);
  };
  for (std::size_t i = 0; i < outer.size(); ++i) {
    loops[i].counter = context_.new_var("d");
    loops[i].trip = outer[i].extent;
    nest.counters.push_back(loops[i].counter);
    shift(dot.c, i, outer[i].c);
    if (dot.init) shift(*dot.init, i, outer[i].init);
    for (std::size_t t = 0; t < dot.segments.size(); ++t) shift(dot.segments[t].a, i, outer[i].a[t]);
  }
  // By lanes the rows of the tile fill vectors: what a row is multiplied by is read number by number.
  const bool rows_fill_vectors =
      context_.by_lanes() && dot.c_m == 1 && dot.c_n != 1 &&
      std::ranges::all_of(dot.segments, [](const kernel::DotSegment& s) { return s.a_m == 1; });
  for (std::size_t t = 0; t < plan_.terms.size(); ++t) {
    if (dot.segments[t].packed() && !in_blocks_) continue;
    if (rows_fill_vectors || in_blocks_)
      for (std::size_t i = 0; i < outer.size(); ++i) shift(dot.segments[t].b, i, outer[i].b[t]);
    else if (std::ranges::any_of(outer, [&](const NestAxis& x) { return x.b[t] != 0; }))
      copy_columns(t, dot.segments[t], nest, before_loop);
    else
      try_pack(t, dot.segments[t], nest, 0, before);
  }
  kernel::Block block = std::move(before_loop.back());
  if (std::ranges::any_of(dot.segments, [](const kernel::DotSegment& x) { return x.k.size() > most_contracted; }))
    append(block, sum_in_loops(std::move(dot)));
  else
    block.push_back({dot});
  for (std::size_t i = loops.size(); i-- > 0;) {
    loops[i].body = std::move(block);
    block = std::move(before_loop[i]);
    block.push_back({std::move(loops[i])});
  }
  append(before, std::move(block));
  return before;
}

// A sum of dots is one statement, or several in order where not all are added up alike: what a product gives then does not depend on the others,
// and one that was computed before a loop has the bits that it has as part of a sum within.
kernel::Block lower_dot(LoweringContext& context, const DotPlan& plan, const Storage& target, bool accumulate) {
  enum class Kind { Plain, Pairs, Alone };
  const auto kind_of = [&](const Node* term) {
    const DotPlan alone{.result = plan.result, .terms = {term}, .init = {}};
    const DotLowering lowering(context, alone, target, true);
    if (lowering.is_narrow() || lowering.sums_in_loops()) return Kind::Alone;
    const std::vector<int> axes = shape_of(*term).lhs_contract;
    const auto is_long = [&](int axis) { return context.extent(term->operands[0], axis).bound > 1; };
    return rounds_factors(*term) && std::ranges::any_of(axes, is_long) ? Kind::Pairs : Kind::Plain;
  };
  std::vector<Kind> kinds;
  for (const Node* term : plan.terms) kinds.push_back(kind_of(term));
  kernel::Block block;
  for (std::size_t from = 0, to = 0; from < kinds.size(); from = to) {
    for (to = from + 1; kinds[from] != Kind::Alone && to < kinds.size() && kinds[to] == kinds[from];) ++to;
    const auto term = [&](std::size_t i) { return plan.terms.begin() + static_cast<std::ptrdiff_t>(i); };
    const DotPlan part{plan.result, {term(from), term(to)}, from == 0 ? plan.init : std::nullopt, plan.parts};
    append(block, DotLowering(context, part, target, accumulate || from > 0).run());
  }
  return block;
}

}  // namespace hotloop
