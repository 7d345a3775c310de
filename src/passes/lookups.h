// Rows of a table at places that the program computes (gather, without lanes): a row-wise function of what is looked up is that function of the
// table, looked up.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>

#include "passes/builder.h"

namespace hotloop::passes {

struct Lookup {
  Value table, places;
  int axis;  // of the table; the axes of the places stand in the result for it

  int num_places_axes() const { return places.rank(); }
  std::int64_t table_rows() const { return table.shape()[axis]; }
  bool is_place(std::int64_t result_axis) const { return result_axis >= axis && result_axis < axis + places.rank(); }
  bool has_place(const Axes& result_axes) const {
    return std::ranges::any_of(result_axes, [&](std::int64_t a) { return is_place(a); });
  }
  // The axis of the table that runs along one of the result which is no place.
  std::int64_t in_table(std::int64_t result_axis) const {
    return result_axis < axis ? result_axis : result_axis - places.rank() + 1;
  }
  bool same_places(const Lookup& other) const { return places == other.places && axis == other.axis; }
};
std::optional<Lookup> lookup_of(Value v);
inline Value look_up(Builder& b, Value table, Value places, int axis) {
  return b.make("gather", {table, places}, {{"axis", static_cast<std::int64_t>(axis)}});
}

// How many rows are looked up. Where calls may bring fewer rows than the program was traced for, an eighth of these count.
std::int64_t num_places(const Shape& places, const PassOptions& options);

// Whether products of `depth` terms are made for a table of so many rows rather than for each of the rows looked up. What depends on it is
// when they are made, never their bits.
bool earns_products_of_table(std::int64_t table_rows, std::int64_t places, std::int64_t depth);
// Whether rows are added up by their places before a product with each, `width` numbers wide, is made. Adding a number to where it
// belongs takes as long as several terms of a product, and blocks of rows have a table of sums each.
bool earns_sums_by_place(std::int64_t table_rows, std::int64_t places, std::int64_t width);

}  // namespace hotloop::passes
