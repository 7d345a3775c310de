// What is copied of a dot's factors so that it lies side by side where it is read: packs of columns, rows of inner products.
#include <algorithm>
#include <utility>

#include "schedule/dot_lowering.h"

#include "core/index.h"

namespace hotloop {

using kernel::Affine;

namespace {

std::int64_t elements_of(const std::vector<CopiedAxis>& axes) {
  std::int64_t elements = 1;
  for (const CopiedAxis& axis : axes) elements *= axis.extent.bound;
  return elements;
}

}  // namespace

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

// How the columns of a term are read in the loops from that one on, and in the statement.
FactorReads DotLowering::reads_of(std::size_t term, const kernel::DotSegment& segment, const Nest& nest,
                                  std::size_t loop) const {
  const kernel::KDim& k = segment.k.back();
  const std::int64_t rows = context_.options().target.dot_rows;
  FactorReads reads;
  reads.dtype = context_.program.buffers[static_cast<std::size_t>(segment.b.buffer)].dtype;
  reads.stride = nest.columns.extent.bound > 1 ? nest.columns.b[term] : 1;
  reads.turned = k.b_stride == 1 && k.extent.is_static();
  reads.times = static_cast<double>(divided_up(nest.rows.extent.bound, rows));
  for (std::size_t i = loop; i < nest.outer.size(); ++i)
    if (nest.outer[i].b[term] == 0) reads.times *= static_cast<double>(nest.outer[i].extent.bound);
  return reads;
}

// Whether a pack that is made each time the program is called, by the first worker or all of them, is read often enough outside of loops: each block of
// rows passes over the columns, in each tile.
bool DotLowering::pays_to_pack_once(std::size_t term, const kernel::DotSegment& segment, const Nest& nest) const {
  if (context_.loop_depth > 0 || context_.by_lanes() || pairs_) return true;
  const FactorReads reads = reads_of(term, segment, nest, 0);
  const double tiles = context_.in_tile() ? static_cast<double>(context_.num_tiles()) : 1;
  const std::int64_t bytes =
      segment.k[0].extent.bound * nest.columns.extent.bound * static_cast<std::int64_t>(size_of(reads.dtype));
  return pays_to_pack(reads, tiles, bytes, context_.options().target.far_bytes());
}

// Packs the columns of a term: what stays the same before the loops and grids around it; strided ones, if that pays, also before each time that they
// are read, in `before`, which stands in the first `loop` loops of the nest.
void DotLowering::try_pack(std::size_t term, kernel::DotSegment& segment, const Nest& nest, std::size_t loop,
                           kernel::Block& before) {
  if (segment.k.size() != 1 || !segment.k[0].extent.is_static()) return;
  if (nest.columns.extent.bound == 1) return;  // a pack would hold one number a line
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
  } else {
    if ((!repeated && !is_strided) || !pays_to_pack_once(term, segment, nest)) return;
    if (!repeated) at = regions.size();
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
  const int buffer = context_.new_buffer("packed", dtype, k * divided_up(n, lanes) * lanes,
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

}  // namespace hotloop
