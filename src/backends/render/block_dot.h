// A Dot shared out among the blocks of a worker, which have columns each, and the threads of a block.
#pragma once

#include <string>
#include <vector>

#include "backends/render/panel_dot.h"

namespace hotloop::render {

class BlockDotWriter : protected PanelDotWriter {
 protected:
  using PanelDotWriter::PanelDotWriter;

  void render_dot(const kernel::Dot& dot);
  // Whether threads write near in front of it: they must have met before.
  bool writes_near(const kernel::Dot& dot) {
    return stages_now(dot) || panels_of(part_of(dot, parts_of_columns(dot, blocks_)));
  }
  // Of near memory: the program's own, then factors that are staged, then those that are kept.
  std::int64_t near_bytes() const { return near_begin() + (most_near_kept_ + 63) / 64 * 64; }

 private:
  // Where the right factors of a part of a segment's steps are.
  struct Part;
  struct Groups;
  void render_part_of(const kernel::Dot& part, const StagedFactors& staged);
  void render_segment(const kernel::Dot& dot, const kernel::DotSegment& segment, const KeptDot& kept, const Kept& steps,
                      const Staged& staged);
  static Groups groups_of(const kernel::DotSegment& segment, std::int64_t steps, int numbers, std::int64_t ahead);
  void render_part(const kernel::Dot& dot, const kernel::DotSegment& segment, const RegisterTile& tile,
                   const Staged& staged, const Part& part);

  int num_starts_ = 0;
};

}  // namespace hotloop::render
