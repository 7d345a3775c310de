// A Dot shared out among the threads of a block.
#pragma once

#include <string>
#include <vector>

#include "backends/render/read_ahead.h"

namespace hotloop::render {

class BlockDotWriter : protected ReadAheadWriter {
 protected:
  BlockDotWriter(const kernel::Program& program, const Dialect& dialect, int threads)
      : ReadAheadWriter(program, dialect), threads_(threads) {}

  // Whether threads write what they multiply into near memory first: they must have met before.
  bool stages(const kernel::Dot& dot) const;
  void render_dot(const kernel::Dot& dot);

  int threads_;
  std::int64_t staged_bytes_ = 0;  // of near memory behind the program's own, at most

 private:
  struct Shape;
  struct Staged;
  struct StagedFactors;
  StagedFactors staged_factors(const kernel::Dot& dot) const;
  void render_staging(const kernel::Dot& dot, const std::vector<Staged>& staged);
  void render_segment(const kernel::Dot& dot, const kernel::DotSegment& segment, const Shape& shape,
                      const Staged& staged);
  bool is_aligned(const kernel::Access& access, std::int64_t numbers) const;
};

}  // namespace hotloop::render
