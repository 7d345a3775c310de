#include "schedule/dot_factors.h"

#include <algorithm>
#include <cstdlib>

#include "core/index.h"
#include "hotloop/error.h"
#include "ir/op_def.h"

namespace hotloop {

using ir::ScalarOp;
using kernel::Affine;
using kernel::Extent;
using kernel::Instr;

bool rounds_factors(const Node& dot) { return dot.attrs.has("precision"); }

namespace {

int push(std::vector<Instr>& instrs, Instr instr) {
  instrs.push_back(std::move(instr));
  return static_cast<int>(instrs.size()) - 1;
}

// The bits of an f32 after rounding; the lower half is not yet cleared.
int append_rounded_bits(std::vector<Instr>& instrs, int value) {
  constexpr DType u32 = DType::U32;
  const auto constant = [&](std::uint64_t bits) { return push(instrs, kernel::const_instr(u32, bits)); };
  const auto op = [&](ScalarOp o, DType d, int a, int b = -1, int c = -1) {
    return push(instrs, kernel::op_instr(o, d, a, b, c));
  };
  const int bits = op(ScalarOp::Bitcast, u32, value);
  const int last = op(ScalarOp::And, u32, op(ScalarOp::Shr, u32, bits, constant(16)), constant(1));
  const int rounded = op(ScalarOp::Add, u32, bits, op(ScalarOp::Add, u32, last, constant(0x7fff)));
  const int is_number = op(ScalarOp::Eq, DType::Bool, value, value);
  return op(ScalarOp::Select, u32, is_number, rounded, constant(0x7fc00000));
}

int append_upper_half(std::vector<Instr>& instrs, int bits) {
  const int mask = push(instrs, kernel::const_instr(DType::U32, 0xffff0000u));
  return push(instrs, kernel::op_instr(ScalarOp::And, DType::U32, bits, mask));
}

bool holds(const std::vector<int>& axes, int axis) { return std::ranges::find(axes, axis) != axes.end(); }

// Axes along which the factor moves, in the order in which they lie in memory, and the halved one; of those in blocks without the contracted ones.
std::vector<int> moving_axes(LoweringContext& context, Value v, const Storage& source, const Halving& halving) {
  std::vector<int> axes;
  const auto stride = [&](int axis) { return std::abs(source.strides[static_cast<std::size_t>(axis)]); };
  for (int axis = 0; axis < v.rank(); ++axis) {
    const bool moves = context.extent(v, axis).bound > 1 && stride(axis) != 0;
    if (!holds(halving.contracted, axis) && (axis == halving.axis || moves)) axes.push_back(axis);
  }
  std::ranges::stable_sort(axes, [&](int a, int b) { return stride(a) > stride(b); });
  return axes;
}

// Of dots in blocks: steps of the sum, and how many rows or columns are a panel.
std::int64_t steps_of(LoweringContext& context, Value v, const Halving& halving) {
  std::int64_t steps = 1;
  for (const int axis : halving.contracted) {
    const std::int64_t n = context.extent(v, axis).bound;
    steps *= axis == halving.axis ? half_of(n, true) : n;
  }
  return steps;
}
std::int64_t width_of_panel(const Halving& halving) {
  return halving.of_rows ? kernel::rows_of_blocks : kernel::columns_of_blocks;
}

}  // namespace

int append_rounded(std::vector<Instr>& instrs, int value) {
  const int bits = append_upper_half(instrs, append_rounded_bits(instrs, value));
  return push(instrs, kernel::op_instr(ScalarOp::Bitcast, DType::F32, bits));
}

int append_number_of_pair(std::vector<Instr>& instrs, int pair, bool upper) {
  const int sixteen = upper ? -1 : push(instrs, kernel::const_instr(DType::U32, 16));
  const int bits = upper ? append_upper_half(instrs, pair)
                         : push(instrs, kernel::op_instr(ScalarOp::Shl, DType::U32, pair, sixteen));
  return push(instrs, kernel::op_instr(ScalarOp::Bitcast, DType::F32, bits));
}

std::int64_t half_of(std::int64_t extent, bool in_blocks) {
  const std::int64_t half = (extent + 1) / 2;
  return in_blocks ? divided_up(half, kernel::steps_of_block) * kernel::steps_of_block : half;
}

std::size_t axis_of_panels(const std::vector<Extent>& axes) {
  constexpr std::int64_t short_axis = kernel::rows_of_blocks / 2;
  const auto is_long = [](const Extent& e) { return e.bound >= short_axis; };
  std::size_t chosen = axes.size() - 1;
  for (std::size_t i = 0; i < axes.size(); ++i)
    if (!axes[i].is_static() && is_long(axes[i])) return i;
  if (is_long(axes[chosen])) return chosen;
  for (std::size_t i = axes.size(); i-- > 0;)
    if (axes[i].bound > axes[chosen].bound) chosen = i;
  return chosen;
}

DotFactor place_of_factor(LoweringContext& context, Value v, const Storage& source, const Halving& halving,
                          kernel::Space space) {
  DotFactor made;
  std::vector<std::int64_t>& strides = made.storage.strides;
  strides.assign(static_cast<std::size_t>(v.rank()), 0);
  const bool in_pairs = halving.axis >= 0, in_blocks = !halving.contracted.empty();
  if (in_pairs) made.half = half_of(context.extent(v, halving.axis).bound, in_blocks);
  std::vector<int> axes = moving_axes(context, v, source, halving);
  std::int64_t elements = 1;
  if (in_blocks) {
    std::vector<int> free;
    std::vector<Extent> extents;
    for (const int axis : halving.free) {
      if (context.extent(v, axis) == Extent{1}) continue;
      free.push_back(axis);
      extents.push_back(context.extent(v, axis));
    }
    if (!free.empty()) made.panel_axis = free[axis_of_panels(extents)];
    const std::int64_t steps = steps_of(context, v, halving), width = width_of_panel(halving);
    elements = steps * width;
    if (made.panel_axis >= 0) {
      strides[static_cast<std::size_t>(made.panel_axis)] = steps;
      elements *= divided_up(context.extent(v, made.panel_axis).bound, width);
      std::erase(axes, made.panel_axis);
    }
  }
  for (std::size_t i = axes.size(); i-- > 0;) {
    strides[static_cast<std::size_t>(axes[i])] = elements;
    elements *= axes[i] == halving.axis ? made.half : context.extent(v, axes[i]).bound;
  }
  made.storage.buffer =
      context.new_buffer(in_pairs ? "pairs" : "rounded", in_pairs ? DType::U32 : DType::F32, elements, space);
  return made;
}

namespace {

// The statement that fills a factor, dim by dim from the outermost on.
class FactorMap {
 public:
  FactorMap(LoweringContext& context, Value v, const Storage& source, const Halving& halving, const DotFactor& made)
      : context_(context),
        v_(v),
        source_(source),
        halving_(halving),
        made_(made),
        from_(source.offset),
        to_(made.storage.offset) {
    map_.name = halving.axis >= 0 ? "pairs" : "rounded";
  }

  // Along an axis, or a piece of one: each point is so many elements of the axis on; gives its number within the axis.
  Affine move(int axis, const Extent& extent, std::int64_t step, std::int64_t written) {
    const bool is_halved = axis == halving_.axis;
    const kernel::Var var = context_.new_var(is_halved ? "k" : "i");
    map_.dims.push_back({var, extent});
    from_ = from_ + Affine::of(var, step * source_.strides[static_cast<std::size_t>(axis)]);
    to_ = to_ + Affine::of(var, written);
    if (is_halved) pair_ = pair_ + Affine::of(var, step);
    return Affine::of(var, step);
  }
  void move(int axis) { move(axis, extent_of(axis), 1, made_.storage.strides[static_cast<std::size_t>(axis)]); }
  // Begins so many elements further on along an axis.
  void begin_at(int axis, std::int64_t first) {
    from_ = from_ + Affine(first * source_.strides[static_cast<std::size_t>(axis)]);
    to_ = to_ + Affine(first * made_.storage.strides[static_cast<std::size_t>(axis)]);
  }
  // Only as far as the axis goes, `at` being the number within it; beyond there are zeros.
  void end_with(int axis, const Affine& at) { ends_.emplace_back(at, context_.extent(v_, axis)); }
  Extent extent_of(int axis) const { return axis == halving_.axis ? Extent{made_.half} : context_.extent(v_, axis); }

  kernel::Map finished() {
    map_.num_outer = static_cast<int>(map_.dims.size());
    map_.vector_dim = map_.num_outer - 1;
    std::vector<Instr>& instrs = map_.instrs;
    if (halving_.axis < 0) {
      const int rounded = append_rounded(instrs, load(0));
      push(instrs, kernel::store_instr(DType::F32, {made_.storage.buffer, to_, {}}, rounded));
    } else {
      const int upper = append_upper_half(instrs, append_rounded_bits(instrs, load(0)));
      const int bits = append_rounded_bits(instrs, load(made_.half));
      const int sixteen = push(instrs, kernel::const_instr(DType::U32, 16));
      const int lower = push(instrs, kernel::op_instr(ScalarOp::Shr, DType::U32, bits, sixteen));
      const int both = push(instrs, kernel::op_instr(ScalarOp::Or, DType::U32, upper, lower));
      push(instrs, kernel::store_instr(DType::U32, {made_.storage.buffer, to_, {}}, both));
    }
    map_.body_end = static_cast<int>(instrs.size());
    return std::move(map_);
  }

 private:
  int is_before(const Affine& at, const Extent& end) {
    std::vector<Instr>& instrs = map_.instrs;
    const Affine last = end.is_static() ? Affine(end.bound) : Affine::of(end.var);
    const int left = push(instrs, kernel::index_instr(DType::I32, at + last * -1));
    const int zero = push(instrs, kernel::const_instr(DType::I32, 0));
    return push(instrs, kernel::op_instr(ScalarOp::Lt, DType::Bool, left, zero));
  }
  // Of numbers that lie `first` further on along the halved axis.
  int load(std::int64_t first) {
    std::vector<Instr>& instrs = map_.instrs;
    Affine at = from_;
    int predicate = -1;
    const auto require = [&](int condition) {
      predicate =
          predicate < 0 ? condition : push(instrs, kernel::op_instr(ScalarOp::And, DType::Bool, predicate, condition));
    };
    if (halving_.axis >= 0) {
      const Extent all = context_.extent(v_, halving_.axis);
      at = at + Affine(first * source_.strides[static_cast<std::size_t>(halving_.axis)]);
      if (!all.is_static() || first + made_.half > all.bound) require(is_before(pair_ + Affine(first), all));
    }
    for (const auto& [number, end] : ends_) require(is_before(number, end));
    return push(instrs, kernel::load_instr(DType::F32, {source_.buffer, at, {}}, predicate));
  }

  LoweringContext& context_;
  Value v_;
  const Storage& source_;
  const Halving& halving_;
  const DotFactor& made_;
  kernel::Map map_;
  Affine from_, to_, pair_;
  std::vector<std::pair<Affine, Extent>> ends_;
};

// The statements that fill a factor for dots in blocks. What lies side by side at the source comes last, where it fills vectors, be it steps of the sum or the
// rows or columns of a panel; if it lies otherwise in the panel, squares are turned.
kernel::Block lay_out_in_blocks(LoweringContext& context, Value v, const Storage& source, const Halving& halving,
                                const DotFactor& made) {
  constexpr std::int64_t block = kernel::steps_of_block;
  const int axis = made.panel_axis;
  const std::int64_t width = width_of_panel(halving), steps = steps_of(context, v, halving);
  const auto stride = [&](int of) { return std::abs(source.strides[static_cast<std::size_t>(of)]); };
  const bool steps_apart = axis >= 0 && (stride(halving.axis) == 0 || stride(halving.axis) > stride(axis));
  std::vector<int> outer = moving_axes(context, v, source, halving);
  std::erase(outer, axis);
  const std::vector<int> summed(halving.contracted.begin(), halving.contracted.end() - 1);
  // `count` panels of so many rows or columns, from number `first` on.
  const auto fill = [&](std::int64_t first, std::int64_t count, const Extent& wide) {
    FactorMap map(context, v, source, halving, made);
    for (const int of : outer) map.move(of);
    // Elements of a panel for a step of the sum.
    const std::int64_t lanes = kernel::lanes_of(DType::U32),
                       a_step = halving.of_rows ? kernel::rows_of_blocks : divided_up(wide.bound, lanes) * lanes;
    if (axis >= 0) map.begin_at(axis, first);
    const auto panels = [&] {
      if (axis < 0) return;
      Affine at;
      if (count > 1) at = map.move(axis, Extent{count}, width, width * steps);
      at = at + map.move(axis, wide, 1, halving.of_rows ? block : 1);
      if (const Extent all = context.extent(v, axis); !all.is_static() && wide.is_static()) map.end_with(axis, at);
    };
    if (!steps_apart) panels();
    std::int64_t within = made.half;  // steps of the sum for one along the next axis further out
    std::vector<std::int64_t> strides(summed.size());
    for (std::size_t i = summed.size(); i-- > 0;) {
      strides[i] = within * a_step;
      within *= context.extent(v, summed[i]).bound;
    }
    for (std::size_t i = 0; i < summed.size(); ++i) {
      const Extent all = context.extent(v, summed[i]);
      const Affine at = map.move(summed[i], Extent{all.bound}, 1, strides[i]);
      if (!all.is_static()) map.end_with(summed[i], at);
    }
    if (halving.of_rows) {
      map.move(halving.axis, Extent{made.half / block}, block, block * a_step);
      map.move(halving.axis, Extent{block}, 1, 1);
    } else {
      map.move(halving.axis, Extent{made.half}, 1, a_step);
    }
    if (steps_apart) panels();
    return kernel::Stmt{map.finished()};
  };
  if (axis < 0) return {fill(0, 1, Extent{1})};
  const Extent all = context.extent(v, axis);
  if (!all.is_static()) {
    const std::int64_t count = divided_up(all.bound, width);
    return {count == 1 ? fill(0, 1, all) : fill(0, count, Extent{width})};
  }
  kernel::Block filled;
  if (all.bound >= width) filled.push_back(fill(0, all.bound / width, Extent{width}));
  if (const std::int64_t rest = all.bound % width; rest > 0) filled.push_back(fill(all.bound - rest, 1, Extent{rest}));
  return filled;
}

}  // namespace

kernel::Block lay_out_factor(LoweringContext& context, Value v, const Storage& source, const Halving& halving,
                             const DotFactor& made) {
  if (!halving.contracted.empty()) return lay_out_in_blocks(context, v, source, halving, made);
  FactorMap map(context, v, source, halving, made);
  for (const int axis : moving_axes(context, v, source, halving)) map.move(axis);
  return {{map.finished()}};
}

bool pays_to_copy(const FactorReads& reads, const std::vector<CopiedAxis>& axes) {
  // Cycles for a vector: as it lies, of a square that is turned, by a load for each lane, by shuffles of a few loads. And of a statement.
  constexpr double contiguous = 1, turned = 5, per_load = 1, store = 1, statement = 100;
  constexpr std::int64_t few_loads = 4;
  const std::int64_t lanes = kernel::lanes_of(reads.dtype), stride = std::abs(reads.stride);
  if (stride <= 1) return false;
  const double gathered = per_load * static_cast<double>(stride <= few_loads ? stride : lanes);
  const bool turns = std::ranges::any_of(
      axes, [&](const CopiedAxis& x) { return std::abs(x.stride) == 1 && x.extent.bound >= lanes / few_loads; });
  double elements = 1;
  for (const CopiedAxis& axis : axes) elements *= static_cast<double>(axis.extent.bound);
  const double as_it_is = reads.turned ? std::min(turned, gathered) : gathered;
  const double copying = (turns ? std::min(turned, gathered) : gathered) + store;
  return elements / static_cast<double>(lanes) * (reads.times * (as_it_is - contiguous) - copying) > statement;
}

bool pays_to_pack(const FactorReads& reads, double tiles, std::int64_t bytes, std::int64_t far_bytes) {
  // Cycles for a vector, by measurement (Zen 4): what a pass takes longer over columns as they lie, and packing. What comes from memory is read in bands or
  // parts of the lines as they lie, and would be written there. Squares are turned in registers beside the multiplications, once for up to twelve rows.
  constexpr double apart = 0.25, packing = 4, turned = 0.7, packing_turned = 5;
  const bool is_side_by_side = std::abs(reads.stride) <= 1;
  if (!is_side_by_side && !reads.turned) return true;
  if (bytes > far_bytes) return false;
  return is_side_by_side ? tiles * reads.times * apart > packing : tiles * reads.times * turned > packing_turned;
}

kernel::Map copy_factor(LoweringContext& context, const kernel::Access& source, const std::vector<CopiedAxis>& axes,
                        int buffer) {
  const DType dtype = context.program.buffers[static_cast<std::size_t>(buffer)].dtype;
  kernel::Map copy;
  copy.name = "rows";
  kernel::Access from = source, to{buffer, 0, {}};
  std::int64_t elements = 1;
  for (std::size_t i = axes.size(); i-- > 0;) {
    const kernel::Var var = context.new_var("i");
    copy.dims.insert(copy.dims.begin(), {var, axes[i].extent});
    from.index = from.index + Affine::of(var, axes[i].stride);
    to.index = to.index + Affine::of(var, elements);
    elements *= axes[i].extent.bound;
  }
  copy.num_outer = static_cast<int>(copy.dims.size());
  copy.vector_dim = copy.num_outer - 1;
  copy.instrs = {kernel::load_instr(dtype, from), kernel::store_instr(dtype, to, 0)};
  copy.body_end = 2;
  return copy;
}

}  // namespace hotloop
