// Right factors of Dots in loops that stay where they are multiplied: in registers of the threads that use them and in near memory, as far as there is room.
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "backends/render/dot_shape.h"
#include "backends/render/read_ahead.h"
#include "schedule/loop_facts.h"

namespace hotloop::render {

class KeptFactorsWriter : protected ReadAheadWriter {
 protected:
  KeptFactorsWriter(const kernel::Program& program, const Dialect& dialect, const WorkerShape& worker)
      : ReadAheadWriter(program, dialect), threads_(worker.threads), blocks_(worker.blocks) {}
  // The part of near memory that may keep factors.
  void keep_in(std::int64_t near_begin, std::int64_t near_bytes) {
    near_begin_ = near_begin;
    near_bytes_ = near_bytes;
  }

  // Of a segment: the first steps are in the array `registers`, [step][column of the thread's tile]; the next from byte `near_begin` of near memory
  // on, [step][column of the dot].
  struct Kept {
    KeptSteps steps;
    std::string registers;
    std::int64_t near_begin = 0;
  };
  struct KeptDot {
    DotShape shape;
    std::vector<Kept> segments;
  };
  // The shape of a part of a Dot, whose kept factors are read in front of a loop around. Dots with the same factors share them.
  KeptDot kept_factors(const kernel::Dot& dot);
  // The first byte of so many of near memory for what stays in a loop; nothing: there is no room.
  std::optional<std::int64_t> keep_near(const kernel::For& loop, std::int64_t bytes);
  // Near memory for one statement alone, behind what is kept: whether there is so much; the first byte.
  bool has_near_room(std::int64_t bytes) const { return in_use().near_bytes + bytes <= near_bytes_; }
  std::int64_t near_for_now(std::int64_t bytes);
  // A loop has been written: what it kept is free again.
  void leave(const kernel::For& loop);

  // The outermost loop around in which the access finds the same numbers in every iteration; the number of loops: none.
  std::size_t outermost_loop(const kernel::Access& access);

  // Whether the innermost loop has iterations enough for keeping, and the access finds the same numbers in all of them.
  bool stays_in_loop(const kernel::Access& access) {
    return outermost_loop(access) < loops_.size() && loops_.back().loop->trip.bound >= fewest_iterations_of_keeping;
  }

  // Whether the extent is the same in all its iterations, and known in front of it.
  bool stays_in_loop(const kernel::Extent& extent) {
    return extent.is_static() || loops_.empty() || !facts(loops_.back().loop).variables.contains(extent.var);
  }

  // The columns n0, n1, ... of group ng; of a part, from `first_column` on.
  static bool columns_lie_together(const kernel::Dot& dot, int columns) {
    return columns > 1 && dot.n.bound % columns == 0;
  }
  void write_columns(const kernel::Dot& dot, int columns);
  void write_first_column(const kernel::Dot& dot);
  // Pointers right0, right1, ... to the columns of a segment's right factor, `count` of them.
  void write_right_pointers(const kernel::Dot& dot, const kernel::DotSegment& segment, int count);
  // What is added to such a pointer for a step of the sum: the place `index` along the dims of k, the step'th in all.
  std::string right_index(const kernel::Dot& dot, const kernel::DotSegment& segment, int column,
                          const std::string& index, const std::string& step) const;

  // The column's place in near memory, among those of the part.
  std::string in_part(const std::string& column) const {
    return parts_ > 1 ? "(" + column + " - first_column)" : column;
  }
  // A number for near memory, of which each block of the worker has a copy; for a buffer, which may be near.
  std::string store_near(const std::string& at, const std::string& value) const {
    return blocks_ > 1 ? "hl_put(&" + at + ", " + value + ");" : at + " = " + value + ";";
  }
  std::string store(int b, const std::string& at, const std::string& value) const {
    return buffer(b).near ? store_near(at, value) : at + " = " + value + ";";
  }

  int threads_, blocks_;             // of a block; of the worker
  int parts_ = 1;                    // into which the columns of the Dot that is written are divided
  std::int64_t most_near_kept_ = 0;  // bytes, at any time

 private:
  struct KeptIn {
    const kernel::For* loop;
    KeepingRoom end;
    KeptDot dot;
  };
  // Registers of a thread that may keep factors while the loop runs: what sums and the addresses of its arrays leave.
  std::int64_t registers_to_keep(const kernel::For& loop);
  // Where what is kept ends, as if registers had places too.
  KeepingRoom in_use() const;
  // Where what is kept from in front of a loop on may begin: behind all that the loop has used so far, for it runs again.
  KeepingRoom begin_in(const kernel::For& loop) const;
  void note_use(const KeepingRoom& end);
  void keep(std::string what, KeptIn in);
  void read_in_front(LoopAround& around, const kernel::Dot& dot, const KeptDot& kept);
  const kernel::LoopFacts& facts(const kernel::For* loop);

  std::int64_t near_begin_ = 0, near_bytes_ = 0;
  std::map<const kernel::For*, KeepingRoom> reached_;  // in each loop around, by all that is in it
  std::map<const kernel::For*, std::int64_t> registers_to_keep_;
  int num_kept_ = 0;
  std::map<const kernel::For*, kernel::LoopFacts> facts_;
  std::map<std::string, KeptIn> kept_;  // by what is multiplied
};

}  // namespace hotloop::render
