// Numbers of a loop's next iteration, read in this one so that no thread waits for them.
#pragma once

#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "backends/render/code_writer.h"
#include "schedule/footprint.h"

namespace hotloop::render {

class ReadAheadWriter : protected CodeWriter {
 protected:
  using CodeWriter::CodeWriter;

  // What the statements of a loop touch, by buffer, if there are no others in it than Maps, Dots and Packs.
  struct Touched {
    bool plain = true;
    std::map<int, std::vector<std::pair<const kernel::Stmt*, kernel::Touch>>> of_buffer;
    std::set<int> written;  // buffers
  };
  // A loop around the statements that are written.
  struct LoopAround {
    const kernel::For* loop = nullptr;
    std::string first,
        has_next;        // expressions: the counter of the first iteration (below 0: none), whether another follows
    std::string before;  // what goes in front of the loop
    std::optional<Touched> touched = {};
  };
  std::vector<LoopAround> loops_;            // innermost last
  const kernel::Stmt* statement_ = nullptr;  // that is being written
  std::string only_if_;                      // the condition under which this writing of it runs; empty: always
  bool extents_stay_ = true;  // those of it, and of the condition, are known in front of the innermost loop

  bool is_far(const kernel::Access& access) const { return !buffer(access.buffer).near; }

  // What the access adds to its index from one iteration of the innermost loop to the next, if a thread may read the next iteration's number in this
  // one: it is far away, how much is read is known in front of the loop, which writes nothing there but the statement itself, in places of its own
  // iteration. Else 0.
  std::int64_t step_ahead(const kernel::Access& access);
  // A register for it. `first_read` sets $next for the first iteration, where the counter's name has that value.
  std::string carried_register(DType dtype, const std::string& first_read);
  // Takes the number at `here` out of the register and reads the next one.
  std::string next_read(const std::string& next, const std::string& here, std::int64_t step) const;

 private:
  static const Touched& touched_in(LoopAround& around);

  int num_carried_ = 0;
};

}  // namespace hotloop::render
