// Which part of a table a row, or a series, belongs to.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "hotloop/data.h"

namespace hotloop::data {

enum class Part : std::uint8_t { Train, Validation, Test };

// A pseudorandom permutation of 0..n-1, evaluated at one place without a table: a Feistel network of Philox rounds over the next
// power of four, walked until it falls below n (Black, Rogaway, "Ciphers with arbitrary finite domains", 2002).
std::int64_t permuted(std::int64_t i, std::int64_t n, std::uint64_t seed);

// What is known of a table when it is split. A unit is what goes to a part as a whole: a row, or a series.
struct SplitFacts {
  std::int64_t num_units = 0;
  std::span<const std::int64_t> series_rows;  // rows of each group; units are rows
  double validation_time = 0, test_time = 0;  // By::Time with a time column: where these parts begin
  std::span<const std::string> group_labels;  // By::Group
  std::span<const std::string> split_labels;  // By::Column
  bool by_time = false;                       // the two times are there
};

struct SplitUnit {
  std::int64_t unit = 0;       // its number among all
  std::int64_t in_series = 0;  // its number in its series
  std::size_t series = 0;
  double time = 0, group = 0, label = 0;  // label: index into split_labels
};

// UserError for groups and labels that the table does not have.
std::function<Part(const SplitUnit&)> make_split(const Split& split, const SplitFacts& facts);

// Where the parts of `num_units` in order begin: validation, test.
std::pair<std::int64_t, std::int64_t> cuts(const Split& split, std::int64_t num_units);

}  // namespace hotloop::data
