// A Dot shared out among the threads of a block.
#pragma once

#include <string>
#include <vector>

#include "backends/render/code_writer.h"

namespace hotloop::render {

class BlockDotWriter : protected CodeWriter {
 protected:
  BlockDotWriter(const kernel::Program& program, const Dialect& dialect, int threads)
      : CodeWriter(program, dialect), threads_(threads) {}

  // The loop around, which counts a variable: what it reads in the next iteration is asked for in this one.
  struct LoopAround {
    kernel::Var counter = -1;
    bool reverse = false;
    std::string has_next;  // an expression
  };

  // Whether threads write what they multiply into near memory first: they must have met before.
  bool stages(const kernel::Dot& dot) const;
  void render_dot(const kernel::Dot& dot);
  // Asks for what the access reads in the next iteration of the innermost loop, if that is elsewhere; `at`: the expression it reads now.
  void ask_ahead(const kernel::Access& access, const std::string& at);
  bool is_far(const kernel::Access& access) const;

  int threads_;
  std::vector<LoopAround> loops_;  // innermost last
  std::int64_t staged_bytes_ = 0;  // of near memory behind the program's own, at most

 private:
  struct Shape;
  struct Staged;
  std::vector<Staged> staged_factors(const kernel::Dot& dot) const;
  void render_staging(const kernel::Dot& dot, const std::vector<Staged>& staged);
  void render_segment(const kernel::Dot& dot, const kernel::DotSegment& segment, const Shape& shape,
                      const Staged& staged);
  bool is_aligned(const kernel::Access& access, std::int64_t numbers) const;
};

}  // namespace hotloop::render
