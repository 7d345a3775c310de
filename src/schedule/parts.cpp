#include "schedule/parts.h"

#include <cstdint>
#include <numeric>
#include <variant>

#include "schedule/accesses.h"

namespace hotloop::kernel {
namespace {

constexpr std::int64_t part_size = 64;  // statements, those inside others counted along

std::int64_t num_statements(const Stmt& statement) {
  std::int64_t total = 0;
  for_each_statement(statement, [&](const auto&) { ++total; });
  return total;
}

}  // namespace

std::vector<Part> parts_of(const Block& block) {
  std::vector<std::int64_t> sizes;
  for (const Stmt& statement : block) sizes.push_back(num_statements(statement));
  if (std::accumulate(sizes.begin(), sizes.end(), std::int64_t{0}) <= 2 * part_size) return {{0, block.size(), false}};
  std::vector<Part> parts;
  std::size_t begin = 0;
  std::int64_t size = 0;
  const auto end_part = [&](std::size_t end) {
    if (begin < end) parts.push_back({begin, end, size >= part_size / 2});
    begin = end;
    size = 0;
  };
  for (std::size_t i = 0; i < block.size(); ++i) {
    // What a Let reads is known to the statements after it; what is long in itself is cut inside.
    const bool apart = sizes[i] > part_size || std::holds_alternative<Let>(block[i].node);
    if (apart || size + sizes[i] > part_size) end_part(i);
    if (apart) {
      parts.push_back({i, i + 1, false});
      begin = i + 1;
    } else {
      size += sizes[i];
    }
  }
  end_part(block.size());
  return parts;
}

}  // namespace hotloop::kernel
