// A Dot shared out among the threads of a block.
#pragma once

#include <string>
#include <vector>

#include "backends/render/kept_factors.h"
#include "schedule/accesses.h"

namespace hotloop::render {

class BlockDotWriter : protected KeptFactorsWriter {
 protected:
  // `near_room`: bytes of near memory that a block may have.
  BlockDotWriter(const kernel::Program& program, const Dialect& dialect, int threads, std::int64_t near_room);

  // A sum over as many rows as a full tile has is a loop of known length, which is worth code of its own. Leaves the statement that it is then, and
  // gives the condition; empty: there are no other rows.
  template <class Statement> static std::string make_full(Statement& s) {
    constexpr std::int64_t most_rows = 8;
    std::string is_full;
    kernel::for_each_extent(s, [&](kernel::Extent& e) {
      if (e.is_static() || e.bound > most_rows) return;
      const std::string condition = extent(e) + " == " + std::to_string(e.bound);
      if (is_full.find(condition) == std::string::npos) is_full += (is_full.empty() ? "" : " && ") + condition;
      e.var = -1;
    });
    return is_full;
  }

  // Whether threads write what they multiply into near memory first: they must have met before.
  bool stages(const kernel::Dot& dot) const;
  void render_dot(const kernel::Dot& dot);
  // Of near memory: the program's own, then factors that are staged, then those that are kept.
  std::int64_t near_bytes() const { return near_begin() + (most_near_kept_ + 63) / 64 * 64; }

 private:
  struct Staged;
  struct StagedFactors;
  // Where the right factors of a part of a segment's steps are.
  struct Part;
  struct Groups;
  StagedFactors staged_factors(const kernel::Dot& dot) const;
  std::int64_t near_begin() const { return p_.near_bytes + (most_staged_ + 63) / 64 * 64; }
  void render_staging(const kernel::Dot& dot, const std::vector<Staged>& staged);
  void render_segment(const kernel::Dot& dot, const kernel::DotSegment& segment, const KeptDot& kept, const Kept& steps,
                      const Staged& staged);
  static Groups groups_of(const kernel::DotSegment& segment, std::int64_t steps, int numbers, std::int64_t ahead);
  void render_part(const kernel::Dot& dot, const kernel::DotSegment& segment, const RegisterTile& tile,
                   const Staged& staged, const Part& part);
  bool is_aligned(const kernel::Access& access, std::int64_t numbers) const;

  std::int64_t most_staged_ = 0;  // bytes
};

}  // namespace hotloop::render
