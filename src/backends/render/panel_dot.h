// Long sums of outer products, as of gradients of weights over all steps of time: both factors lie far away and none is used twice by a thread. Panels of them
// are copied near while those before are multiplied.
#pragma once

#include <cstdint>
#include <optional>

#include "backends/render/staged_factors.h"

namespace hotloop::render {

class PanelDotWriter : protected StagedFactorsWriter {
 protected:
  using StagedFactorsWriter::StagedFactorsWriter;

  struct Panels {
    RegisterTile tile;
    std::int64_t column_groups = 1, rows = 1;      // of a block's threads; of the result, at once
    std::int64_t steps = 1, stages = 2;            // of a panel; panels that are near at once
    std::int64_t left_width = 1, right_width = 1;  // numbers that are copied together
    std::int64_t left_row = 1, right_row = 1;      // numbers of a step
    std::int64_t bytes = 0;
  };
  // Nothing: the Dot is another one, or there is no room.
  std::optional<Panels> panels_of(const kernel::Dot& dot);
  void render_by_panels(const kernel::Dot& dot, const Panels& panels);

  // Whether so many numbers from each index of the access on, and from multiples of so many, are one aligned word.
  static bool is_aligned(const kernel::Access& access, std::int64_t numbers);

 private:
  void render_copies(const kernel::Dot& dot, const Panels& panels);
};

}  // namespace hotloop::render
