#include "passes/lookups.h"

#include <algorithm>

namespace hotloop::passes {

std::optional<Lookup> lookup_of(Value v) {
  if (!is_kind(v, ir::OpKind::Gather) || ir::num_lane_axes(v.node->attrs) != 0 || operand(v, 1).rank() == 0) return {};
  return Lookup{operand(v, 0), operand(v, 1), static_cast<int>(v.node->attrs.integer("axis"))};
}

std::int64_t num_places(const Shape& places, const PassOptions& options) {
  constexpr std::int64_t usual_part = 8;
  std::int64_t count = 1;
  for (const std::int64_t extent : places.vec())
    count *= options.may_vary(extent) ? std::max<std::int64_t>(extent / usual_part, 1) : extent;
  return count;
}

bool earns_products_of_table(std::int64_t table_rows, std::int64_t places, std::int64_t depth) {
  constexpr std::int64_t least_depth = 4;  // fewer terms are made as fast as their sum is found
  return depth >= least_depth && 4 * places >= 5 * table_rows;
}

bool earns_sums_by_place(std::int64_t table_rows, std::int64_t places, std::int64_t width) {
  // Fewer are added up by one worker alone (adds_in_parts in schedule/levels.cpp), who then makes the products as well: T35 B20 with 256 letters took 1.69 ms in
  // place of 2.07 on one thread, but of 1.06 on two.
  constexpr std::int64_t places_a_row = 16, terms_a_sum = 8;
  if (places < places_a_row * table_rows) return false;
  return places * (width - terms_a_sum) > table_rows * width;
}

}  // namespace hotloop::passes
