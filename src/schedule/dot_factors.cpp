#include "schedule/dot_factors.h"

#include <algorithm>
#include <cstdlib>

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

// Axes along which the factor moves, in the order in which they lie in memory, and the halved one.
std::vector<int> moving_axes(LoweringContext& context, Value v, const Storage& source, int halved) {
  std::vector<int> axes;
  const auto stride = [&](int axis) { return std::abs(source.strides[static_cast<std::size_t>(axis)]); };
  for (int axis = 0; axis < v.rank(); ++axis)
    if (axis == halved || (context.extent(v, axis).bound > 1 && stride(axis) != 0)) axes.push_back(axis);
  std::ranges::stable_sort(axes, [&](int a, int b) { return stride(a) > stride(b); });
  return axes;
}

}  // namespace

int append_rounded(std::vector<Instr>& instrs, int value) {
  const int bits = append_upper_half(instrs, append_rounded_bits(instrs, value));
  return push(instrs, kernel::op_instr(ScalarOp::Bitcast, DType::F32, bits));
}

DotFactor place_of_factor(LoweringContext& context, Value v, const Storage& source, int halved, kernel::Space space) {
  DotFactor made;
  made.storage.strides.assign(static_cast<std::size_t>(v.rank()), 0);
  if (halved >= 0) made.half = (context.extent(v, halved).bound + 1) / 2;
  const std::vector<int> axes = moving_axes(context, v, source, halved);
  std::int64_t elements = 1;
  for (std::size_t i = axes.size(); i-- > 0;) {
    made.storage.strides[static_cast<std::size_t>(axes[i])] = elements;
    elements *= axes[i] == halved ? made.half : context.extent(v, axes[i]).bound;
  }
  made.storage.buffer =
      context.new_buffer(halved >= 0 ? "pairs" : "rounded", halved >= 0 ? DType::U32 : DType::F32, elements, space);
  return made;
}

kernel::Map lay_out_factor(LoweringContext& context, Value v, const Storage& source, int halved,
                           const DotFactor& made) {
  kernel::Map map;
  map.name = halved >= 0 ? "pairs" : "rounded";
  Affine from = source.offset, to = made.storage.offset;
  kernel::Var pair = -1;
  for (const int axis : moving_axes(context, v, source, halved)) {
    const kernel::Var var = context.new_var(axis == halved ? "k" : "i");
    map.dims.push_back({var, axis == halved ? Extent{made.half} : context.extent(v, axis)});
    from = from + Affine::of(var, source.strides[static_cast<std::size_t>(axis)]);
    to = to + Affine::of(var, made.storage.strides[static_cast<std::size_t>(axis)]);
    if (axis == halved) pair = var;
  }
  map.num_outer = static_cast<int>(map.dims.size());
  map.vector_dim = map.num_outer - 1;
  std::vector<Instr>& instrs = map.instrs;
  const auto load = [&](std::int64_t first) {
    Affine at = from;
    int predicate = -1;
    if (pair >= 0) {
      const Extent all = context.extent(v, halved);
      at = at + Affine(first * source.strides[static_cast<std::size_t>(halved)]);
      if (!all.is_static() || first + made.half > all.bound) {  // beyond the end there are zeros
        const Affine end = all.is_static() ? Affine(all.bound) : Affine::of(all.var);
        const int left = push(instrs, kernel::index_instr(DType::I32, Affine::of(pair) + Affine(first) + end * -1));
        const int zero = push(instrs, kernel::const_instr(DType::I32, 0));
        predicate = push(instrs, kernel::op_instr(ScalarOp::Lt, DType::Bool, left, zero));
      }
    }
    return push(instrs, kernel::load_instr(DType::F32, {source.buffer, at, {}}, predicate));
  };
  if (halved < 0) {
    const int rounded = append_rounded(instrs, load(0));
    push(instrs, kernel::store_instr(DType::F32, {made.storage.buffer, to, {}}, rounded));
  } else {
    const int upper = append_upper_half(instrs, append_rounded_bits(instrs, load(0)));
    const int bits = append_rounded_bits(instrs, load(made.half));
    const int sixteen = push(instrs, kernel::const_instr(DType::U32, 16));
    const int lower = push(instrs, kernel::op_instr(ScalarOp::Shr, DType::U32, bits, sixteen));
    const int both = push(instrs, kernel::op_instr(ScalarOp::Or, DType::U32, upper, lower));
    push(instrs, kernel::store_instr(DType::U32, {made.storage.buffer, to, {}}, both));
  }
  map.body_end = static_cast<int>(instrs.size());
  return map;
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
