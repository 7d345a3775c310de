#include "data/split.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <utility>

#include "core/nearest.h"
#include "core/philox.h"
#include "data/cell_reader.h"
#include "hotloop/error.h"

namespace hotloop::data {

std::int64_t permuted(std::int64_t i, std::int64_t n, std::uint64_t seed) {
  std::uint32_t half_bits = 1;
  while (half_bits < 31 && (std::uint64_t{1} << (2 * half_bits)) < static_cast<std::uint64_t>(n)) ++half_bits;
  const std::uint32_t mask = (std::uint32_t{1} << half_bits) - 1;
  const std::array<std::uint32_t, 2> key{static_cast<std::uint32_t>(seed), static_cast<std::uint32_t>(seed >> 32)};
  auto value = static_cast<std::uint64_t>(i);
  do {
    auto left = static_cast<std::uint32_t>(value >> half_bits), right = static_cast<std::uint32_t>(value) & mask;
    for (std::uint32_t round = 0; round < 10; ++round) {
      const std::uint32_t next = left ^ (philox4x32({right, round, half_bits, 0x53504C54}, key)[0] & mask);
      left = right;
      right = next;
    }
    value = static_cast<std::uint64_t>(left) << half_bits | right;
  } while (value >= static_cast<std::uint64_t>(n));
  return static_cast<std::int64_t>(value);
}

std::pair<std::int64_t, std::int64_t> cuts(const Split& split, std::int64_t num_units) {
  // A fraction like 0.7 of 17520 must not lose a row to rounding.
  const auto row_of = [&](double fraction) {
    return std::min(num_units, static_cast<std::int64_t>(std::floor(fraction * static_cast<double>(num_units) + 1e-6)));
  };
  return {row_of(split.train), row_of(split.train + split.validation)};
}

namespace {

Part part_of(std::int64_t i, std::pair<std::int64_t, std::int64_t> cut) {
  return i < cut.first ? Part::Train : i < cut.second ? Part::Validation : Part::Test;
}

std::vector<Part> parts_of_groups(const Split& split, std::span<const std::string> labels) {
  const std::vector<std::string> known(labels.begin(), labels.end());
  std::vector<Part> parts(labels.size(), Part::Train);
  const bool named = !split.validation_groups.empty() || !split.test_groups.empty();
  for (const auto& [names, part] :
       {std::pair(&split.validation_groups, Part::Validation), std::pair(&split.test_groups, Part::Test)})
    for (const std::string& name : *names) {
      const auto it = std::ranges::find(known, text_label(name));
      if (it == known.end())
        throw UserError("split", "every group must be one that the table has", "'" + name + "'",
                        nearest_hint(name, known));
      parts[static_cast<std::size_t>(it - known.begin())] = part;
    }
  if (named) return parts;
  const auto n = static_cast<std::int64_t>(labels.size());
  // At least one group in every part that is wanted, if there are enough of them.
  auto cut = cuts(split, n);
  if (n >= 3 && split.validation > 0 && split.train + split.validation < 1) {
    cut.first = std::clamp<std::int64_t>(cut.first, 1, n - 2);
    cut.second = std::clamp<std::int64_t>(cut.second, cut.first + 1, n - 1);
  }
  for (std::int64_t i = 0; i < n; ++i) parts[static_cast<std::size_t>(i)] = part_of(permuted(i, n, split.seed), cut);
  return parts;
}

}  // namespace

std::function<Part(const SplitUnit&)> make_split(const Split& split, const SplitFacts& facts) {
  const auto cut = cuts(split, facts.num_units);
  const std::int64_t n = facts.num_units;
  switch (split.by) {
    case Split::By::Group:
      return [parts = parts_of_groups(split, facts.group_labels)](const SplitUnit& u) {
        return parts[static_cast<std::size_t>(u.group)];
      };
    case Split::By::Random:
      return [=, seed = split.seed](const SplitUnit& u) { return part_of(permuted(u.unit, n, seed), cut); };
    case Split::By::Column: {
      std::vector<Part> parts;
      for (const std::string& label : facts.split_labels) {
        const std::vector<std::string> known = {"train", "validation", "test"};
        const auto it = std::ranges::find(known, label);
        if (it == known.end())
          throw UserError("split", "column '" + split.column + "' must hold \"train\", \"validation\" and \"test\"",
                          "'" + label + "'", nearest_hint(label, known));
        parts.push_back(static_cast<Part>(it - known.begin()));
      }
      const bool draw = std::ranges::find(parts, Part::Validation) == parts.end();
      const auto limit = static_cast<std::int64_t>(std::floor(split.validation * static_cast<double>(n) + 1e-6));
      return [=, seed = split.seed](const SplitUnit& u) {
        const Part part = parts[static_cast<std::size_t>(u.label)];
        return draw && part == Part::Train && permuted(u.unit, n, seed) < limit ? Part::Validation : part;
      };
    }
    case Split::By::None: return [](const SplitUnit&) { return Part::Train; };  // the others are its copies
    case Split::By::Time: break;
  }
  if (facts.by_time)
    return [v = facts.validation_time, t = facts.test_time](const SplitUnit& u) {
      return u.time < v ? Part::Train : u.time < t ? Part::Validation : Part::Test;
    };
  if (facts.series_rows.size() <= 1) return [=](const SplitUnit& u) { return part_of(u.unit, cut); };
  std::vector<std::pair<std::int64_t, std::int64_t>> each;
  for (const std::int64_t rows : facts.series_rows) each.push_back(cuts(split, rows));
  return [each = std::move(each)](const SplitUnit& u) { return part_of(u.in_series, each[u.series]); };
}

}  // namespace hotloop::data
