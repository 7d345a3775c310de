// A DotPlan as statements: which axes become the rows, the columns and the steps of a Dot, loops around it, and how its factors lie.
#include <algorithm>
#include <tuple>

#include "hotloop/error.h"
#include "ir/op_def.h"
#include "schedule/column_walk.h"
#include "schedule/dot_factors.h"
#include "schedule/dot_plan.h"

namespace hotloop {

using kernel::Affine;
using kernel::Extent;

namespace {

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

std::int64_t elements_of(const std::vector<CopiedAxis>& axes) {
  std::int64_t elements = 1;
  for (const CopiedAxis& axis : axes) elements *= axis.extent.bound;
  return elements;
}

class DotLowering {
 public:
  DotLowering(LoweringContext& context, const DotPlan& plan, const Storage& target, bool accumulate)
      : context_(context), plan_(plan), target_(target), swap_(rows_from_rhs(context, plan)) {
    for (const Node* term : plan.terms) {
      auto panels = swap_ ? std::nullopt : panels_of(context, *term);
      // Those of one Dot are of one width.
      if (panels && std::ranges::any_of(panel_, [&](std::int64_t p) { return p > 0 && p != panels->strides[0]; }))
        panels.reset();
      const auto a = context.find(term->operands[swap_ ? 1 : 0]),
                 b = panels ? panels : context.find(term->operands[swap_ ? 0 : 1]);
      HOTLOOP_CHECK(a && b, "operands of a dot are in memory");
      a_.push_back(*a);
      b_.push_back(*b);
      panel_.push_back(panels ? panels->strides[0] : 0);
    }
    if (accumulate)
      init_ = target;
    else if (plan.init)
      init_ = context.find(*plan.init);
    HOTLOOP_CHECK(!plan.init || (init_ && !accumulate), "the start of a sum of dots is in memory");
  }

  kernel::Block run();
  bool is_narrow() const;
  // Whether a product sums over more separate axes than a statement takes; of pairs, which lie anew, whether it may.
  bool sums_in_loops() const {
    const Node& dot = *plan_.terms[0];
    return (rounds_factors(dot) ? shape_of(dot).lhs_contract.size() : contraction(0).size()) > most_contracted;
  }

 private:
  static constexpr std::size_t most_contracted = 3;  // separate axes, by a statement

  enum class Side { Batch, Rows, Columns };
  std::vector<NestAxis> axes_of(Side side) const;
  std::vector<kernel::KDim> contraction(std::size_t term) const;
  std::size_t unchanged_from(int buffer, const Affine& offset) const;
  std::size_t columns_region(std::size_t term) const {
    return b_region_.empty() ? unchanged_from(b_[term].buffer, b_[term].offset) : b_region_[term];
  }
  std::size_t region_of(const Storage& source) const;
  kernel::Block run_narrow();
  kernel::Block sum_in_loops(kernel::Dot dot);
  std::int64_t near_bytes() const { return context_.options().target.l2_bytes / 4; }  // of copies that a tile makes
  void round_factors(kernel::Block& before);
  Storage rounded(Value v, const Storage& source, int halved, kernel::Block& before, std::size_t& region);
  bool pays_to_copy_before(std::size_t region, FactorReads reads, const std::vector<CopiedAxis>& axes) const;
  std::optional<int> try_copy(const kernel::Access& source, const std::vector<CopiedAxis>& axes,
                              const FactorReads& reads, std::size_t region, kernel::Block& before);
  void make_contiguous(Storage& source, std::int64_t& k_stride, std::int64_t k, std::vector<NestAxis>& axes, bool is_a,
                       kernel::Block& before);
  // The axes of a Dot as a statement: its rows, its columns and the loops around it.
  struct Nest {
    NestAxis rows, columns;
    std::vector<NestAxis> outer;
    std::vector<kernel::Var> counters;  // of the loops
    std::int64_t panel;
  };
  FactorReads reads_of(std::size_t term, const kernel::DotSegment& segment, const Nest& nest, std::size_t loop) const;
  void try_pack(std::size_t term, kernel::DotSegment& segment, const Nest& nest, std::size_t loop,
                kernel::Block& before);
  void copy_columns(std::size_t term, kernel::DotSegment& segment, const Nest& nest,
                    std::vector<kernel::Block>& before);

  LoweringContext& context_;
  const DotPlan& plan_;
  const Storage& target_;
  bool swap_;
  std::vector<Storage> a_, b_;
  std::vector<std::int64_t> panel_;  // columns of the panels that b_ lies in already; 0: it does not
  // Of factors in bfloat16: which contracted axis is halved (see DotFactor), a number in the lists of DotShape, none where they are only rounded;
  // and the region before which b_ is laid out.
  std::vector<std::size_t> halved_, b_region_;
  bool pairs_ = false;
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
    if (pairs_ && halved_[term] == i) d.extent = Extent{(d.extent.bound + 1) / 2};
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
  const auto better = [](const Extent& x, const Extent& than) {
    const auto rank = [](const Extent& e) { return std::tuple(e.is_static(), e.bound % 2 == 0, e.bound); };
    return rank(x) > rank(than);
  };
  pairs_ = true;
  for (const Node* term : plan_.terms) {
    const std::vector<int> axes = shape_of(*term).lhs_contract;
    std::size_t best = axes.size();
    for (std::size_t i = 0; i < axes.size(); ++i) {
      const Extent e = context_.extent(term->operands[0], axes[i]);
      if (e.bound > 1 && (best == axes.size() || better(e, context_.extent(term->operands[0], axes[best])))) best = i;
    }
    pairs_ = pairs_ && best < axes.size();
    halved_.push_back(best);
  }
  for (std::size_t t = 0; t < plan_.terms.size(); ++t) {
    const Node& dot = *plan_.terms[t];
    const DotShape s = shape_of(dot);
    const int lhs = pairs_ ? s.lhs_contract[halved_[t]] : -1, rhs = pairs_ ? s.rhs_contract[halved_[t]] : -1;
    std::size_t of_a = 0, of_b = 0;
    a_[t] = rounded(dot.operands[swap_ ? 1 : 0], a_[t], swap_ ? rhs : lhs, before, of_a);
    b_[t] = rounded(dot.operands[swap_ ? 0 : 1], b_[t], swap_ ? lhs : rhs, before, of_b);
    b_region_.push_back(of_b);
  }
}

// One factor, laid out before the outermost region in which it stays the same; `region` tells which.
Storage DotLowering::rounded(Value v, const Storage& source, int halved, kernel::Block& before, std::size_t& region) {
  region = context_.in_tile() || context_.loop_depth > 0 ? region_of(source) : context_.regions.size();
  for (int axis = 0; axis < v.rank(); ++axis)
    if (!context_.extent(v, axis).is_static()) region = context_.regions.size();
  if (region > 0 && context_.in_tile()) region = context_.regions.size();
  if (region == context_.regions.size()) {
    const auto space = context_.in_tile() ? kernel::Space::Worker : kernel::Space::Shared;
    const DotFactor made = place_of_factor(context_, v, source, halved, space);
    before.push_back({lay_out_factor(context_, v, source, halved, made)});
    return made.storage;
  }
  LoweringContext::Region& outer = context_.regions[region];
  for (const LoweringContext::FactorKey& f : outer.factors)
    if (f.source == source && f.shape == v.shape() && f.halved == halved) return f.made;
  const DotFactor made = place_of_factor(context_, v, source, halved, kernel::Space::Shared);
  outer.before.push_back({lay_out_factor(context_, v, source, halved, made)});
  outer.factors.push_back({source, v.shape(), halved, made.storage});
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

// Whether reads of a factor, done as often as what is in that region is, pay for a copy that is made before it, or where it is read if that is
// their number.
bool DotLowering::pays_to_copy_before(std::size_t region, FactorReads reads,
                                      const std::vector<CopiedAxis>& axes) const {
  constexpr double many_times = 64;  // how often a loop runs is not known here
  if (region < context_.regions.size()) {
    if (context_.loop_depth > 0) reads.times *= many_times;
    if (context_.in_tile() && !context_.regions[region].in_tile)
      reads.times *= static_cast<double>(context_.num_tiles());
  }
  return pays_to_copy(reads, axes);
}

// The buffer of a copy of a factor in the order of these axes, if reading that pays: made before the region in which the factor stays the same, or
// else in `before`.
std::optional<int> DotLowering::try_copy(const kernel::Access& source, const std::vector<CopiedAxis>& axes,
                                         const FactorReads& reads, std::size_t region, kernel::Block& before) {
  if (context_.by_lanes()) return std::nullopt;
  std::vector<LoweringContext::Region>& regions = context_.regions;
  // What is shared by all tiles has static extents.
  const bool is_fixed = std::ranges::all_of(axes, [](const CopiedAxis& x) { return x.extent.is_static(); });
  while (region < regions.size() && !regions[region].in_tile && !is_fixed) ++region;
  const bool is_inside = region == regions.size();
  if (!pays_to_copy_before(region, reads, axes)) return std::nullopt;
  if (!is_inside)
    for (const LoweringContext::CopyKey& made : regions[region].copies)
      if (made.source.buffer == source.buffer && made.source.index == source.index && made.axes == axes)
        return made.buffer;
  const bool of_tile = is_inside ? context_.in_tile() : regions[region].in_tile;
  const int buffer = context_.new_buffer("rows", reads.dtype, elements_of(axes),
                                         of_tile ? kernel::Space::Worker : kernel::Space::Shared);
  (is_inside ? before : regions[region].before).push_back({copy_factor(context_, source, axes, buffer)});
  if (!is_inside) regions[region].copies.push_back({source, axes, buffer});
  return buffer;
}

// Reads a copy of what is read with a stride along k, if it is read often enough.
void DotLowering::make_contiguous(Storage& source, std::int64_t& k_stride, std::int64_t k, std::vector<NestAxis>& axes,
                                  bool is_a, kernel::Block& before) {
  const auto stride_of = [&](NestAxis& axis) -> std::int64_t& { return is_a ? axis.a[0] : axis.b[0]; };
  FactorReads reads{.dtype = plan_.result.dtype(), .stride = k_stride};
  std::vector<CopiedAxis> copied;
  for (NestAxis& axis : axes) {
    if (stride_of(axis) == 0)
      reads.times *= static_cast<double>(axis.extent.bound);
    else
      copied.push_back({axis.extent, stride_of(axis)});
  }
  copied.push_back({{k, -1}, k_stride});
  const std::size_t region = unchanged_from(source.buffer, source.offset);
  const bool is_far = elements_of(copied) * static_cast<std::int64_t>(size_of(reads.dtype)) > near_bytes();
  if (is_far && (region == context_.regions.size() || context_.regions[region].in_tile)) return;
  const auto buffer = try_copy({source.buffer, source.offset, {}}, copied, reads, region, before);
  if (!buffer) return;
  source.buffer = *buffer;
  source.offset = 0;
  k_stride = 1;
  std::int64_t elements = k;
  for (std::size_t i = axes.size(); i-- > 0;) {
    if (stride_of(axes[i]) == 0) continue;
    stride_of(axes[i]) = elements;
    elements *= axes[i].extent.bound;
  }
}

kernel::Block DotLowering::run_narrow() {
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

// How the columns of a term are read in the loops from that one on, and in the statement.
FactorReads DotLowering::reads_of(std::size_t term, const kernel::DotSegment& segment, const Nest& nest,
                                  std::size_t loop) const {
  const kernel::KDim& k = segment.k.back();
  const std::int64_t rows = context_.options().target.dot_rows;
  FactorReads reads;
  reads.dtype = context_.program.buffers[static_cast<std::size_t>(segment.b.buffer)].dtype;
  reads.stride = nest.columns.extent.bound > 1 ? nest.columns.b[term] : 1;
  reads.turned = k.b_stride == 1 && k.extent.is_static();
  reads.times = static_cast<double>((nest.rows.extent.bound + rows - 1) / rows);
  for (std::size_t i = loop; i < nest.outer.size(); ++i)
    if (nest.outer[i].b[term] == 0) reads.times *= static_cast<double>(nest.outer[i].extent.bound);
  return reads;
}

// Packs the columns of a term: what stays the same before the loops and grids around it; strided ones, if that pays, also before each time that they
// are read, in `before`, which stands in the first `loop` loops of the nest.
void DotLowering::try_pack(std::size_t term, kernel::DotSegment& segment, const Nest& nest, std::size_t loop,
                           kernel::Block& before) {
  if (segment.k.size() != 1 || !segment.k[0].extent.is_static()) return;
  const bool repeated = context_.in_tile() || context_.loop_depth > 0;
  const std::int64_t n = nest.columns.extent.bound, b_n = nest.columns.b[term], panel = nest.panel;
  const std::int64_t k = segment.k[0].extent.bound, k_stride = segment.k[0].b_stride;
  const bool is_strided = b_n != 1 && n > 1;
  // Inside the outermost region a pack is made again and again, which strided columns are worth.
  std::vector<LoweringContext::Region>& regions = context_.regions;
  const std::vector<CopiedAxis> axes = {{{k, -1}, k_stride}, {{n, -1}, b_n}};
  const auto pays = [&](std::size_t region) {
    return is_strided && !context_.by_lanes() && pays_to_copy_before(region, reads_of(term, segment, nest, loop), axes);
  };
  std::size_t at = loop > 0 ? regions.size() : columns_region(term);
  if (repeated && at > 0) {
    const bool in_region = at < regions.size() && (regions[at].in_tile ? pays(at) : is_strided);
    if (!in_region) at = regions.size();
    if (at == regions.size() && !pays(at)) return;
  } else if (!repeated) {
    if (!is_strided) return;
    at = regions.size();
  }
  const bool is_inside = at == regions.size();
  Storage source = b_[term];
  source.offset = segment.b.index;
  const DType dtype = context_.program.buffers[static_cast<std::size_t>(source.buffer)].dtype;
  const std::int64_t lanes = kernel::lanes_of(dtype);
  segment.panel = panel;
  if (!is_inside)
    for (const auto& p : regions[at].packs)
      if (p.source == source && p.k == k && p.n == n && p.k_stride == k_stride && p.n_stride == b_n &&
          p.panel == panel) {
        segment.b = {p.buffer, 0, {}};
        return;
      }
  const bool of_tile = is_inside ? context_.in_tile() : regions[at].in_tile;
  const int buffer = context_.new_buffer("packed", dtype, k * ((n + lanes - 1) / lanes * lanes),
                                         of_tile ? kernel::Space::Worker : kernel::Space::Shared);
  kernel::Pack pack;
  pack.source = segment.b;
  pack.k_stride = k_stride;
  pack.n_stride = b_n;
  pack.k = k;
  pack.n = n;
  pack.panel = panel;
  pack.target = buffer;
  pack.dtype = dtype;
  (is_inside ? before : regions[at].before).push_back({pack});
  if (!is_inside) regions[at].packs.push_back({source, k, n, k_stride, b_n, buffer, panel});
  segment.b = {buffer, 0, {}};
}

// Columns of a term that differ from one iteration of the loops around the statement to the next, and are read with a stride: before the loops from
// which on they share lines or are read again, all that these read is copied; before the innermost ones a matrix is packed.
void DotLowering::copy_columns(std::size_t term, kernel::DotSegment& segment, const Nest& nest,
                               std::vector<kernel::Block>& before) {
  constexpr std::int64_t line_bytes = 64;
  const std::vector<NestAxis>& outer = nest.outer;
  const auto bytes =
      static_cast<std::int64_t>(size_of(context_.program.buffers[static_cast<std::size_t>(segment.b.buffer)].dtype));
  const auto moves = [&](std::size_t i) { return outer[i].b[term] != 0; };
  std::size_t last = outer.size();  // loops after the last along which the columns differ
  while (last > 0 && !moves(last - 1)) --last;
  const std::size_t region = columns_region(term);
  const bool is_kept = region < context_.regions.size();
  std::size_t first = last;
  for (std::size_t i = last; i-- > 0;)
    if (is_kept || !moves(i) || std::abs(outer[i].b[term]) * bytes < line_bytes) first = i;
  const auto axes_from = [&](std::size_t from) {
    std::vector<CopiedAxis> axes;
    for (std::size_t i = from; i < last; ++i)
      if (moves(i)) axes.push_back({outer[i].extent, outer[i].b[term]});
    for (const kernel::KDim& k : segment.k) axes.push_back({k.extent, k.b_stride});
    axes.push_back({nest.columns.extent, nest.columns.b[term]});
    return axes;
  };
  const bool is_shared = is_kept && !context_.regions[region].in_tile;
  while (!is_shared && first < last && elements_of(axes_from(first)) * bytes > near_bytes()) ++first;
  const auto read_along = [&](std::size_t from, std::size_t to) {
    for (std::size_t i = from; i < to; ++i)
      if (moves(i)) segment.b.index = segment.b.index + Affine::of(nest.counters[i], outer[i].b[term]);
  };
  read_along(0, first);
  if (first == last) try_pack(term, segment, nest, last, before[last]);
  if (segment.packed()) return;
  const auto buffer = try_copy(segment.b, axes_from(first), reads_of(term, segment, nest, first),
                               first == 0 ? region : context_.regions.size(), before[first]);
  if (!buffer) return read_along(first, last);
  segment.b = {*buffer, 0, {}};
  segment.b_n = 1;
  std::int64_t elements = nest.columns.extent.bound;
  for (std::size_t i = segment.k.size(); i-- > 0;) {
    segment.k[i].b_stride = elements;
    elements *= segment.k[i].extent.bound;
  }
  for (std::size_t i = last; i-- > first;) {
    if (!moves(i)) continue;
    segment.b.index = segment.b.index + Affine::of(nest.counters[i], elements);
    elements *= outer[i].extent.bound;
  }
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
  dot.pairs = pairs_;
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
    segment.panel = panel_[t];
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
  for (std::size_t t = 0; t < plan_.terms.size(); ++t) {
    if (dot.segments[t].packed()) continue;
    if (std::ranges::any_of(outer, [&](const NestAxis& x) { return x.b[t] != 0; }))
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

}  // namespace

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
