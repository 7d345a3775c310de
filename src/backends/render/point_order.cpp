#include "backends/render/point_order.h"

#include <algorithm>
#include <cstdlib>
#include <set>

namespace hotloop::render {

using namespace kernel;

namespace {

const Dim& dim(const Map& map, int d) { return map.dims[static_cast<std::size_t>(d)]; }

// Whether points of a Map that runs in order touch, of what it writes, nothing in common where they differ along `d`: then order between them is nobody's concern.
bool is_independent(const Map& map, int d) {
  std::set<int> written;
  for (const Instr& in : map.instrs)
    if (in.kind == Instr::Kind::Store) written.insert(in.access.buffer);
  const Var along = dim(map, d).var;
  for (const int b : written) {
    const Access* first = nullptr;
    std::int64_t low = 0, high = 0;
    bool in_range = true, by_remainder = true;
    for (const Instr& in : map.instrs) {
      const bool touches = in.kind == Instr::Kind::Store || in.kind == Instr::Kind::Load;
      if (!touches || in.access.buffer != b) continue;
      const Affine& index = in.access.index;
      if (first == nullptr) first = &in.access;
      const std::int64_t step = first->index.coefficient(along),
                         period = std::max<std::int64_t>(std::abs(step) * dim(map, d).extent.bound, 1);
      if (step == 0 || index.coefficient(along) != step) return false;
      Affine outside = index, outside_first = first->index;
      std::int64_t least = index.constant, most = index.constant;
      for (int other = 0; other < static_cast<int>(map.dims.size()); ++other) {
        const Var v = dim(map, other).var;
        outside = outside.without(v);
        outside_first = outside_first.without(v);
        if (other == d) continue;
        const std::int64_t by = index.coefficient(v),
                           reach = by * std::max<std::int64_t>(dim(map, other).extent.bound - 1, 0);
        (reach < 0 ? least : most) += reach;
        by_remainder = by_remainder && by % period == 0;
      }
      if (outside.terms != outside_first.terms) return false;
      by_remainder = by_remainder && (index.constant - first->index.constant) % period == 0;
      for (const Indirect& i : in.access.indirect) {
        in_range = false;
        by_remainder = by_remainder && i.stride % period == 0;
      }
      low = &in.access == first ? least : std::min(low, least);
      high = &in.access == first ? most : std::max(high, most);
      in_range = in_range && high - low < std::abs(step);
      if (!in_range && !by_remainder) return false;
    }
  }
  return true;
}

}  // namespace

PointOrder order_of(const Map& map) {
  PointOrder order;
  for (int d = map.num_outer - 1; d >= 0; --d) {
    if (map.vector_dim >= 0 || dim(map, d).extent == Extent{1, -1} || is_independent(map, d))
      order.shared.push_back(d);
    else
      order.in_order.insert(order.in_order.begin(), d);
  }
  // Neighbouring threads where vectors would have neighbouring lanes.
  if (map.vector_dim >= 0 && map.vector_dim < map.num_outer) {
    std::erase(order.shared, map.vector_dim);
    order.shared.insert(order.shared.begin(), map.vector_dim);
  }
  return order;
}

}  // namespace hotloop::render
