// A Dot shared out among the threads of a block.
#pragma once

#include <string>

#include "backends/render/code_writer.h"

namespace hotloop::render {

class BlockDotWriter : protected CodeWriter {
 protected:
  BlockDotWriter(const kernel::Program& program, const Dialect& dialect, int threads)
      : CodeWriter(program, dialect), threads_(threads) {}

  void render_dot(const kernel::Dot& dot);

  int threads_;

 private:
  struct Shape;
  void render_segment(const kernel::Dot& dot, const kernel::DotSegment& segment, const Shape& shape);
  bool is_aligned(const kernel::Access& access, std::int64_t numbers) const;
};

}  // namespace hotloop::render
