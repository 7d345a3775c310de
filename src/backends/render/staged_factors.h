// Left factors of Dots that lie far away, written into near memory: every column reads them again, and far away each step of a sum would wait.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "backends/render/kept_factors.h"
#include "schedule/accesses.h"

namespace hotloop::render {

class StagedFactorsWriter : protected KeptFactorsWriter {
 protected:
  StagedFactorsWriter(const kernel::Program& program, const Dialect& dialect, const WorkerShape& worker);

  // Of a segment: rows of `depth` numbers that are `row` apart, at an address in near memory, of which each block of a worker has a copy.
  struct Staged {
    enum class When : std::uint8_t {
      Never,
      Now,        // by all threads of each block, in front of the Dot
      Before,     // in the iteration before, while others compute something else
      AsWritten,  // by the Map that computes them
    };
    When when = When::Never;
    std::int64_t begin = 0, row = 0;  // bytes of near memory; elements
    bool is_staged() const { return when != When::Never; }
  };
  // Of each segment, and the room that those take which are staged now.
  struct StagedFactors {
    std::vector<Staged> of_segments;
    std::int64_t bytes = 0;
  };
  StagedFactors staged_factors(const kernel::Dot& dot) const;
  // Whether threads write near in front of the Dot.
  bool stages_now(const kernel::Dot& dot) const { return staged_factors(dot).bytes > 0; }
  void render_staging(const kernel::Dot& dot, const StagedFactors& staged);

  // At the beginning of a loop's body: which of its Dots find their factors near before they begin.
  void stage_in_loop(const kernel::For& loop);
  // After a store of a Map: the same number for the Dot that multiplies it.
  void store_near_too(const kernel::Instr& store);
  // What is to be written after the next meeting: factors of the next iteration. Empties it.
  std::string take_after_meeting() { return std::exchange(after_meeting_, ""); }
  // The statement whose Dot is written ends: what it read near may be replaced after the next meeting.
  void end_of_dot();

  // What place `step` along all of k, a name or in brackets, adds to the index of the left or the right factor: " + stride * place" of each dim.
  static std::string index_of_step(const std::vector<kernel::KDim>& k, bool left, const std::string& step);

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

  std::int64_t near_begin() const { return p_.near_bytes + (most_staged_ + 63) / 64 * 64; }

 private:
  // What staging a segment's factor now takes; 0: it is not staged.
  std::int64_t bytes_now(const kernel::Dot& dot, const kernel::DotSegment& segment) const;
  struct Places;
  Places places_of(const kernel::Dot& dot, const kernel::DotSegment& segment) const;
  bool stage_before(const kernel::For& loop, const kernel::Dot& dot, std::size_t segment, Staged& staged);
  bool stage_as_written(const kernel::For& loop, std::size_t place, const kernel::Dot& dot, std::size_t segment,
                        Staged& staged);

  std::int64_t most_staged_ = 0;                                     // bytes, at once and now
  std::map<const kernel::Stmt*, std::vector<Staged>> before_begin_;  // of Dots in loops
  std::map<const kernel::Stmt*, std::string> next_;  // of Dots: what stages the next iteration's factors
  struct Copy {
    const kernel::Dot* dot;
    std::size_t segment;
    std::int64_t begin;
  };
  std::multimap<const kernel::Stmt*, Copy> copies_;  // of Maps
  std::string after_meeting_;
};

}  // namespace hotloop::render
