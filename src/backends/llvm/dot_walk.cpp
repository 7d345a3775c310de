#include "backends/llvm/dot_walk.h"

#include <algorithm>
#include <bit>
#include <cstdint>
#include <cstdlib>
#include <utility>

#include "backends/llvm/code.h"
#include "core/index.h"

namespace hotloop::codegen {

using kernel::Dot;
using kernel::DotSegment;
using kernel::KDim;

int lanes_for_few(DType dtype, std::int64_t count) {
  constexpr int fewest_bytes = 16;
  const auto lanes = static_cast<int>(std::bit_ceil(static_cast<std::uint64_t>(count)));
  return std::clamp(lanes, fewest_bytes / static_cast<int>(size_of(dtype)), kernel::lanes_of(dtype));
}

int lanes_for_columns(const Dot& dot, bool holds_values) {
  const int whole = kernel::lanes_of(dot.dtype);
  const std::int64_t n = dot.n.bound;
  if (n == 1) return 1;
  if (holds_values || dot.pairs || 2 * n > whole) return whole;
  if (!std::ranges::all_of(dot.segments, [](const DotSegment& s) { return s.packed() || s.b_n == 1; })) return whole;
  return lanes_for_few(dot.dtype, n);
}

bool is_long(const Dot& dot) {
  if (!dot.m.is_static()) return false;
  double products = 0;
  for (const DotSegment& s : dot.segments)
    products += static_cast<double>(dot.m.bound) * static_cast<double>(dot.n.bound) * static_cast<double>(s.depth());
  return products > 1e8;
}

kernel::ColumnWalk walk_of(const kernel::Target& target, const Dot& dot, bool in_loop) {
  const auto is_turned = [&](const DotSegment& s) {
    const KDim k = collapsed(s).back();
    return k.extent.is_static() && pays_to_transpose(dot.dtype, s.b_n, k.b_stride, k.extent.bound);
  };
  const bool any_packed = std::ranges::any_of(dot.segments, [](const DotSegment& s) { return s.packed(); });
  if (any_packed || dot.pairs || dot.n.bound == 1 || !std::ranges::any_of(dot.segments, is_turned))
    return kernel::column_walk(target, dot, in_loop);
  const std::int64_t lanes = kernel::lanes_of(dot.dtype), vectors = divided_up(dot.n.bound, lanes);
  return {.panel = 1, .runs = {{0, vectors, 1}}, .rest = vectors, .turns = false};
}

// Enough multiplications to hide the loop's overhead; a divisor of the extent if there is one. No load may move on by 2 KB or more from one
// iteration to the next where steps lie side by side: on Zen 5 prefetching by the stride of an instruction then halves the rate at which B comes from
// the second cache.
std::int64_t steps_in_body(const kernel::Extent& extent, std::int64_t accumulators, std::int64_t b_step) {
  constexpr std::int64_t most_bytes = 1024;
  std::int64_t most = std::clamp<std::int64_t>((accumulators <= 8 ? 32 : 24) / accumulators, 1, 8);
  if (extent.is_static() && extent.bound <= most) return std::max<std::int64_t>(1, extent.bound);  // no loop at all
  if (const std::int64_t step = std::abs(b_step); step > 0 && step <= most_bytes)
    most = std::clamp<std::int64_t>(most_bytes / step, 1, most);
  if (!extent.is_static()) return std::min<std::int64_t>(most, 4);
  for (std::int64_t u = most; u * 2 > most; --u) {
    if (extent.bound % u == 0) return u;
  }
  return most;
}

std::vector<KDim> collapsed(const DotSegment& segment) {
  std::vector<KDim> dims;
  for (const KDim& dim : segment.k) {
    if (dim.extent == kernel::Extent{}) continue;
    if (!dims.empty() && dim.extent.is_static() && dims.back().extent.is_static()) {
      KDim& outer = dims.back();
      const std::int64_t n = dim.extent.bound;
      if (outer.a_stride == dim.a_stride * n && (segment.packed() || outer.b_stride == dim.b_stride * n)) {
        outer = {kernel::Extent{outer.extent.bound * n}, dim.a_stride, dim.b_stride};
        continue;
      }
    }
    dims.push_back(dim);
  }
  if (dims.empty()) dims.push_back({kernel::Extent{1}, 0, 0});
  return dims;
}

bool has_static_steps(const std::vector<KDim>& k) {
  return std::ranges::all_of(k, [](const KDim& dim) { return dim.extent.is_static() && dim.extent.bound > 0; });
}

// Rows that lie side by side, of a few columns that lie apart: they become the columns, which fill vectors, as they lie. Those of a single column may
// also be turned in squares.
static bool better_as_row(const Dot& dot) {
  if (dot.pairs || dot.m.bound < kernel::lanes_of(dot.dtype)) return false;
  if (dot.c_m != 1 || (dot.init && dot.init_m != 1 && dot.init_m != 0)) return false;
  if (dot.n != kernel::Extent{1})
    return dot.c_n != 1 &&
           std::ranges::all_of(dot.segments, [](const DotSegment& s) { return !s.packed() && s.a_m == 1; });
  return std::ranges::all_of(dot.segments, [&](const DotSegment& s) {
    if (s.packed() || !std::ranges::all_of(s.k, [](const KDim& k) { return k.extent.is_static(); })) return false;
    if (s.a_m == 1) return true;
    const KDim k = collapsed(s).back();
    return pays_to_transpose(dot.dtype, s.a_m, k.a_stride, k.extent.bound);
  });
}

bool better_transposed(const Dot& dot) {
  if (better_as_row(dot)) return true;
  if (dot.m == kernel::Extent{1} && better_as_row(transposed(dot))) return false;
  if (!dot.m.is_static()) return false;
  const bool b_strided = dot.n.bound > 1 && std::any_of(dot.segments.begin(), dot.segments.end(),
                                                        [](const auto& s) { return !s.packed() && s.b_n != 1; });
  const bool narrow = dot.n.bound * 2 <= kernel::lanes_of(dot.dtype) && dot.m.bound > dot.n.bound;
  if (!b_strided && !narrow) return false;
  return std::all_of(dot.segments.begin(), dot.segments.end(), [](const auto& s) { return !s.packed() && s.a_m == 1; });
}

Dot transposed(const Dot& dot) {
  Dot other = dot;
  std::swap(other.m, other.n);
  std::swap(other.init_m, other.init_n);
  std::swap(other.c_m, other.c_n);
  for (DotSegment& segment : other.segments) {
    std::swap(segment.a, segment.b);
    std::swap(segment.a_m, segment.b_n);
    for (KDim& dim : segment.k) std::swap(dim.a_stride, dim.b_stride);
  }
  return other;
}

}  // namespace hotloop::codegen
