#include "schedule/memory_plan.h"

#include <algorithm>
#include <map>
#include <span>
#include <vector>

#include "core/memory.h"
#include "hotloop/error.h"
#include "schedule/accesses.h"
#include "schedule/near_memory.h"
#include "schedule/phases.h"

namespace hotloop {

using kernel::Block;
using kernel::Space;

namespace {

// Positions number the statements in program order; a nest is a loop, a grid, which loops over tiles, or sections and each of them. What stands
// between two barriers and runs at once counts as sections.
struct Nest {
  enum class Kind { Loop, Grid, Sections, Section, Rounds };  // the last: a section of several rounds
  int parent = -1;
  int begin = 0, end = 0;
  Kind kind = Kind::Loop;
};

struct Touch {
  int position;
  int nest;
  bool reads;
};

class Lifetimes {
 public:
  explicit Lifetimes(const kernel::Program& program) : touches_(program.buffers.size()) {
    nests_.push_back({});
    walk(program.body, 0);
    nests_[0].end = position_;
  }

  struct Range {
    int begin = -1, end = -1;
    int sections = -1, section = -1;  // the nest of sections that it lives in, if it does in one alone
    bool meets(const Range& other) const {
      // Sections run at once, whatever comes first in the program.
      if (sections >= 0 && sections == other.sections && section != other.section) return true;
      return begin <= other.end && other.begin <= end;
    }
  };
  Range range(std::size_t buffer, Space space) const {
    const auto& touches = touches_[buffer];
    if (touches.empty()) return {};
    int nest = touches[0].nest;
    for (const Touch& t : touches) nest = common(nest, t.nest);
    // What is read in a loop before it is written there lives from one iteration to the next; shared memory inside a grid
    // is touched by all tiles at once, that of several sections by all of them.
    const auto lives_longer = [&](const Nest& n) {
      switch (n.kind) {
        case Nest::Kind::Grid: return space == Space::Shared;
        case Nest::Kind::Sections:
        case Nest::Kind::Rounds: return true;
        default: return touches[0].reads;
      }
    };
    while (nest != 0 && lives_longer(at(nest))) nest = at(nest).parent;
    Range r{touches[0].position, touches[0].position};
    for (int n = nest; n != 0; n = at(n).parent)
      if (at(n).kind == Nest::Kind::Section || at(n).kind == Nest::Kind::Rounds) {
        r.section = n;
        r.sections = at(n).parent;
      }
    for (const Touch& t : touches) {
      // A touch in an inner loop counts for the whole of the loop just below the common one.
      int inner = t.nest, below = -1;
      while (inner != nest) {
        below = inner;
        inner = at(inner).parent;
      }
      const int begin = below < 0 ? t.position : at(below).begin;
      const int end = below < 0 ? t.position : at(below).end;
      r.begin = std::min(r.begin, begin);
      r.end = std::max(r.end, end);
    }
    return r;
  }

 private:
  const Nest& at(int nest) const { return nests_[static_cast<std::size_t>(nest)]; }
  int common(int a, int b) const {
    while (a != b) {
      int& deeper = depth(a) >= depth(b) ? a : b;
      deeper = at(deeper).parent;
    }
    return a;
  }
  int depth(int nest) const {
    int d = 0;
    for (; nest != 0; nest = at(nest).parent) ++d;
    return d;
  }
  void touch(int buffer, int nest, bool reads) {
    if (buffer >= 0) touches_[static_cast<std::size_t>(buffer)].push_back({position_, nest, reads});
  }
  int open(int parent, Nest::Kind kind) {
    nests_.push_back({parent, position_, position_, kind});
    return static_cast<int>(nests_.size()) - 1;
  }
  void close(int nest) { nests_[static_cast<std::size_t>(nest)].end = position_; }

  void walk(const Block& block, int nest) {
    for (std::size_t i = 0; i < block.size();) {
      std::size_t end = i;
      while (end < block.size() && kernel::may_run_beside_others(block[end])) ++end;
      if (end - i > 1) {
        run_at_once(std::span(block).subspan(i, end - i), nest);
        i = end;
      } else {
        step(block[i++], nest);
      }
    }
  }
  void step(const kernel::Stmt& stmt, int nest) {
    ++position_;
    std::visit([&](const auto& s) { visit(s, nest); }, stmt.node);
  }
  void run_at_once(std::span<const kernel::Stmt> statements, int nest) {
    const int together = open(nest, Nest::Kind::Sections);
    const auto add = [&](std::span<const kernel::Stmt> one) {
      const int inner = open(together, Nest::Kind::Section);
      ++alone_;
      for (const kernel::Stmt& stmt : one) step(stmt, inner);
      --alone_;
      ++position_;
      close(inner);
    };
    for (const kernel::Stmt& stmt : statements) {
      if (const auto* all = std::get_if<kernel::Sections>(&stmt.node))
        for (const kernel::Section& section : all->sections) add(section.body);
      else
        add({&stmt, 1});
    }
    close(together);
  }
  void visit(const kernel::For& loop, int nest) {
    const int inner = open(nest, Nest::Kind::Loop);
    const std::vector<int> before = late_;
    walk(loop.test, inner);
    if (loop.stop) read_by_each(loop.stop->buffer, inner);
    walk(loop.body, inner);
    ++position_;
    close(inner);
    // A loop may take no step: where workers meet in it, they do not for what was read in front of it.
    late_.insert(late_.end(), before.begin(), before.end());
    if (loop.stop) read_by_each(loop.stop->buffer, nest);
  }
  void visit(const kernel::Let& let, int nest) {
    kernel::for_each_access(let, [&](const kernel::Use& use) { read_by_each(use.access->buffer, nest); });
  }
  void visit(const kernel::Barrier&, int nest) {
    for (const int buffer : late_) touch(buffer, nest, true);
    late_.clear();
  }
  // Each worker reads it on its own way to what comes next, where others may be already: it is needed until all have met again.
  void read_by_each(int buffer, int nest) {
    touch(buffer, nest, true);
    if (alone_ == 0) late_.push_back(buffer);
  }
  void visit(const kernel::Single& single, int nest) {
    ++alone_;
    walk(single.body, nest);
    --alone_;
  }
  void visit(const kernel::Grid& grid, int nest) {
    const int inner = open(nest, Nest::Kind::Grid);
    ++alone_;
    walk(grid.prologue, inner);
    walk(grid.body, inner);
    --alone_;
    ++position_;
    close(inner);
  }
  void visit(const kernel::Sections& all, int nest) {
    const int together = open(nest, Nest::Kind::Sections);
    // Chunk after chunk, a later round may read what an earlier one left.
    const auto kind = all.num_rounds() > 1 ? Nest::Kind::Rounds : Nest::Kind::Section;
    for (const kernel::Section& section : all.sections) {
      const int inner = open(together, kind);
      ++alone_;
      walk(section.body, inner);
      --alone_;
      ++position_;
      close(inner);
    }
    close(together);
  }
  template <class Statement> void visit(const Statement& statement, int nest) {
    kernel::for_each_part(
        statement,
        [&](const kernel::Use& use) {
          // Where a predicate is false, a store leaves what was there.
          touch(use.access->buffer, nest, !use.writes || use.predicate >= 0);
        },
        [&](const Block& inner) { walk(inner, nest); });
  }

  std::vector<std::vector<Touch>> touches_;
  std::vector<Nest> nests_;
  int position_ = 0;
  int alone_ = 0;          // Singles, Grids and sections around: one worker runs what is in them
  std::vector<int> late_;  // buffers that some workers may still be reading, at the next barrier at the latest
};

// More than any machine has, and few enough that those of all workers can be counted.
constexpr std::int64_t most_bytes = std::int64_t{1} << 52;

struct Request {
  std::size_t buffer;
  Lifetimes::Range range;
  std::int64_t bytes;
};

// An arena, in which what lives at different times may lie at the same place.
class Arena {
 public:
  // The lowest free offset.
  std::int64_t place_of(const Request& r) const {
    std::vector<std::pair<std::int64_t, std::int64_t>> taken;
    for (const Placed& p : placed_)
      if (p.range.meets(r.range)) taken.emplace_back(p.begin, p.end);
    std::ranges::sort(taken);
    std::int64_t at = 0;
    for (const auto& [begin, end] : taken) {
      if (begin - at >= r.bytes) break;
      at = std::max(at, end);
    }
    return at;
  }
  void put(const Request& r, std::int64_t at) {
    placed_.push_back({r.range, at, at + r.bytes});
    bytes_ = std::max(bytes_, at + r.bytes);
  }
  std::int64_t bytes() const { return bytes_; }

 private:
  struct Placed {
    Lifetimes::Range range;
    std::int64_t begin, end;
  };
  std::vector<Placed> placed_;
  std::int64_t bytes_ = 0;
};

// What is read and written most often for its size, as far as it fits.
void place_near(kernel::Program& program, std::vector<Request>& requests) {
  const std::vector<double> uses = kernel::uses_of_an_element(program);
  std::ranges::stable_sort(requests, std::greater<>(), [&](const Request& r) { return uses[r.buffer]; });
  Arena arena;
  std::erase_if(requests, [&](const Request& r) {
    auto& buffer = program.buffers[r.buffer];
    const std::int64_t at = arena.place_of(r);
    buffer.near = at + r.bytes <= program.target.near_bytes;
    if (!buffer.near) return false;
    arena.put(r, at);
    buffer.offset = at;
    return true;
  });
  program.near_bytes = arena.bytes();
}

}  // namespace

void plan_memory(kernel::Program& program) {
  const Lifetimes lifetimes(program);
  for (const Space space : {Space::Shared, Space::Worker}) {
    std::vector<Request> requests;
    for (std::size_t b = 0; b < program.buffers.size(); ++b) {
      auto& buffer = program.buffers[b];
      if (buffer.space != space) continue;
      const auto range = lifetimes.range(b, space);
      if (range.begin < 0) {
        buffer.elements = 0;  // its value stayed in registers
        continue;
      }
      const std::int64_t raw = bytes_of(buffer);
      requests.push_back({b, range, std::max<std::int64_t>((raw + 63) / 64 * 64, 64)});
    }
    if (space == Space::Worker && program.target.near_bytes > 0) place_near(program, requests);
    // Largest first, each at the lowest free offset.
    std::ranges::stable_sort(requests, std::greater<>(), &Request::bytes);
    Arena arena;
    for (const Request& r : requests) {
      const std::int64_t at = arena.place_of(r);
      if (r.bytes > most_bytes - at)
        throw UserError("compile", "what a program keeps in memory must be at most 2^52 bytes",
                        bytes_text(static_cast<double>(at) + static_cast<double>(r.bytes)), "smaller arrays");
      arena.put(r, at);
      program.buffers[r.buffer].offset = at;
    }
    (space == Space::Shared ? program.shared_bytes : program.worker_bytes) = arena.bytes();
  }
}

}  // namespace hotloop
