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

  // A loop around statements.
  struct LoopAround {
    kernel::Var counter = -1;
    bool reverse = false;
    std::string first, has_next;  // expressions: the counter of the first iteration, whether another follows
    const kernel::Block* body = nullptr;
    std::string before;  // what is written before the loop: numbers that its first iteration reads
  };

  // Whether threads write what they multiply into near memory first: they must have met before.
  bool stages(const kernel::Dot& dot) const;
  void render_dot(const kernel::Dot& dot);
  // What an access of a statement adds to its index from one iteration of the innermost loop to the next, if a thread may read the next iteration's number
  // in this one: it is far away, the loop writes nothing there but the statement itself, in places of its iteration. Else 0.
  std::int64_t step_ahead(const kernel::Access& access, const void* statement) const;
  // A register for it; `before` sets it for the first iteration, where the counter has its first value.
  std::string carried_register(DType dtype, const std::string& before);
  bool is_far(const kernel::Access& access) const;

  int threads_;
  std::vector<LoopAround> loops_;  // innermost last
  int num_carried_ = 0;
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
