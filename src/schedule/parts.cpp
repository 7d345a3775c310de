#include "schedule/parts.h"

#include <cstddef>
#include <cstdint>
#include <set>
#include <variant>

#include "schedule/accesses.h"

namespace hotloop::kernel {
namespace {

// What makes a function long: statements, those inside others counted along, and buffers, whose addresses live from its beginning on.
constexpr std::int64_t statements_of_part = 64;
constexpr std::size_t buffers_of_part = 128;

struct Size {
  std::int64_t statements = 0;
  std::set<int> buffers;

  void add(const Size& other) {
    statements += other.statements;
    buffers.insert(other.buffers.begin(), other.buffers.end());
  }
  bool exceeds(std::int64_t parts) const {
    return statements > parts * statements_of_part ||
           buffers.size() > static_cast<std::size_t>(parts) * buffers_of_part;
  }
};

Size size_of(const Stmt& statement) {
  Size size;
  for_each_statement(statement, [&](const auto& s) {
    ++size.statements;
    for_each_access(s, [&](const Use& use) { size.buffers.insert(use.access->buffer); });
  });
  return size;
}

bool has_blocks(const Stmt& statement) {
  bool found = false;
  for_each_block(statement, [&](const Block&) { found = true; });
  return found;
}

}  // namespace

std::vector<Part> parts_of(const Block& block) {
  std::vector<Size> sizes;
  Size all;
  for (const Stmt& statement : block) {
    sizes.push_back(size_of(statement));
    all.add(sizes.back());
  }
  if (!all.exceeds(2)) return {{0, block.size(), false}};
  std::vector<Part> parts;
  std::size_t begin = 0;
  Size size;
  const auto end_part = [&](std::size_t end) {
    const bool is_long = size.statements >= statements_of_part / 2 || size.buffers.size() >= buffers_of_part / 2;
    if (begin < end) parts.push_back({begin, end, is_long});
    begin = end;
    size = {};
  };
  for (std::size_t i = 0; i < block.size(); ++i) {
    // What a Let reads is known to the statements after it; what is long in itself is cut inside.
    const bool apart = std::holds_alternative<Let>(block[i].node) || (sizes[i].exceeds(1) && has_blocks(block[i]));
    Size longer = size;
    longer.add(sizes[i]);
    if (apart || longer.exceeds(1)) {
      end_part(i);
      longer = sizes[i];
    }
    if (apart) {
      parts.push_back({i, i + 1, false});
      begin = i + 1;
    } else {
      size = std::move(longer);
    }
  }
  end_part(block.size());
  return parts;
}

}  // namespace hotloop::kernel
