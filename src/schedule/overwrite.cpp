#include "schedule/overwrite.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <list>
#include <map>
#include <optional>
#include <utility>
#include <variant>
#include <vector>

#include "schedule/accesses.h"
#include "schedule/footprint.h"

namespace hotloop::kernel {
namespace {

// What moves an access: the coefficient of a variable, or a stride, and how many values that takes.
struct Step {
  std::int64_t* stride;
  std::int64_t extent;
};

// One statement in the block in which it stands.
struct Place {
  Block* block;
  std::size_t index;
  bool operator==(const Place&) const = default;
};
using Path = std::vector<Place>;  // from the program's body to the statement

struct PlacedUse {
  Access* access = nullptr;
  std::vector<Step> steps;
  Path path;
  const Map* map = nullptr;  // where it is an instruction of one
  int instr = -1;
  bool writes = false;
  bool fixed = false;  // may not move: indirect, predicated, in panels, or along what has no bound
};

class Collector {
 public:
  explicit Collector(Program& program) : uses(program.buffers.size()) { block(program.body); }

  std::vector<std::vector<PlacedUse>> uses;  // by buffer, in program order
  std::vector<std::pair<const Map*, Path>> maps;

 private:
  void block(Block& statements) {
    path_.push_back({&statements, 0});
    for (std::size_t i = 0; i < statements.size(); ++i) {
      path_.back().index = i;
      Stmt& stmt = statements[i];
      for_each_variable(stmt, [&](const SetVariable& v) {
        if (v.trip != nullptr) extents_[v.var] = v.trip->bound;
      });
      const auto* map = std::get_if<Map>(&stmt.node);
      // What decides how statements run stays where it is.
      const bool decides = std::holds_alternative<For>(stmt.node) || std::holds_alternative<Let>(stmt.node);
      for_each_part(
          stmt, [&](const MutableUse& use) { add(use, map, decides); }, [&](Block& inside) { block(inside); });
      if (map != nullptr) maps.emplace_back(map, path_);
    }
    path_.pop_back();
  }

  void add(const MutableUse& use, const Map* map, bool fixed) {
    PlacedUse placed{use.access, {}, path_, map, use.instr, use.writes};
    placed.fixed = fixed || use.predicate >= 0 || use.panels || !use.access->indirect.empty();
    if (use.panels && use.writes) {  // the target of a Pack, which is no access
      panels_.push_back(*use.access);
      placed.access = &panels_.back();
    }
    for (const auto& stride : use.strides) placed.steps.push_back({stride.elements, stride.extent.bound});
    for (Term& term : placed.access->index.terms) {
      const auto known = extents_.find(term.var);
      if (known == extents_.end())
        placed.fixed = true;
      else
        placed.steps.push_back({&term.coefficient, known->second});
    }
    uses[static_cast<std::size_t>(placed.access->buffer)].push_back(std::move(placed));
  }

  Path path_;
  std::map<Var, std::int64_t> extents_;  // of counters
  std::list<Access> panels_;             // stand for the targets of Pack
};

// One digit of the points of a map: how far it moves the element that is read, and the one that is written.
struct Digit {
  std::int64_t from, to, extent;
};

// A load, and a store of the same map or of a later one in the same iteration: the element that was read makes room for what is written.
struct Pair {
  const PlacedUse* load;
  const PlacedUse* store;
  std::vector<Digit> digits;  // the largest `from` first
};

class Overwriter {
 public:
  explicit Overwriter(Program& program) : program_(program), all_(program) {}

  // Makes maps write one buffer into what they read; false if there is none left for which that pays.
  bool run_once() {
    std::map<int, std::vector<Pair>> pairs;  // by the buffer that is written
    for (const auto& [map, path] : all_.maps)
      if (is_in_loop(path)) collect(*map, path, pairs);
    for (const auto& [target, found] : pairs) {
      std::int64_t covered = 0;
      for (const Pair& pair : found) covered += buffer(pair.load->access->buffer).elements;
      // What is not covered lives longer than it did.
      if (found.empty() || covered * 2 < buffer(target).elements) continue;
      for (const Pair& pair : found) move(pair);
      return true;
    }
    return false;
  }

 private:
  const std::vector<PlacedUse>& uses_of(int buffer) const { return all_.uses[static_cast<std::size_t>(buffer)]; }
  const Buffer& buffer(int b) const { return program_.buffers[static_cast<std::size_t>(b)]; }

  static bool is_in_loop(const Path& path) {
    return std::ranges::any_of(path, [](const Place& p) { return std::holds_alternative<For>(at(p).node); });
  }
  static const Stmt& at(const Place& place) { return (*place.block)[place.index]; }

  // Pairs of what the map stores step by step with what it, or a map before it in the same iteration, loads step by step.
  void collect(const Map& map, const Path& path, std::map<int, std::vector<Pair>>& pairs) {
    const Var counter = innermost_counter(path);
    const auto moves = [&](const PlacedUse& use) { return !use.fixed && use.access->index.coefficient(counter) > 0; };
    std::vector<const PlacedUse*>& loads = loads_[path.back().block];
    std::vector<const PlacedUse*> stores;
    for_each_access(map, [&](const Use& seen) {
      for (const PlacedUse& use : uses_of(seen.access->buffer))
        if (use.access == seen.access && moves(use)) (use.writes ? stores : loads).push_back(&use);
    });
    if (map.num_outer != static_cast<int>(map.dims.size()) || map.split) return;
    for (const PlacedUse* store : stores) {
      std::vector<Pair>& found = pairs[store->access->buffer];
      for (const PlacedUse* load : loads) {
        if (is_taken(load->access->buffer, pairs)) continue;
        if (auto pair = pair_of(map, path, *load, *store)) {
          found.push_back(std::move(*pair));
          break;
        }
      }
    }
  }

  static Var innermost_counter(const Path& path) {
    Var counter = -1;
    for (const Place& p : path)
      if (const auto* loop = std::get_if<For>(&at(p).node)) counter = loop->counter;
    return counter;
  }

  // Each buffer moves once, and not into one that moves.
  static bool is_taken(int old, const std::map<int, std::vector<Pair>>& pairs) {
    return std::ranges::any_of(pairs, [&](const auto& of_target) {
      return std::ranges::any_of(
          of_target.second, [&](const Pair& p) { return p.load->access->buffer == old || of_target.first == old; });
    });
  }

  std::optional<Pair> pair_of(const Map& map, const Path& path, const PlacedUse& load, const PlacedUse& store) const {
    const int old = load.access->buffer, target = store.access->buffer;
    const Buffer &x = buffer(old), &y = buffer(target);
    if (old == target || x.dtype != y.dtype || x.space != y.space) return std::nullopt;
    if (x.space != Space::Worker && x.space != Space::Shared) return std::nullopt;
    const bool at_same_point = load.map == &map;
    if ((at_same_point && load.instr > store.instr) || load.access->index.constant != 0) return std::nullopt;
    const auto level = last_read_and_first_written(path, old, target);
    if (!level || (x.space == Space::Shared && !by_one_worker(path, *level))) return std::nullopt;
    const auto digits = digits_of(map, path, *level, load, store);
    if (!digits) return std::nullopt;
    Pair pair{&load, &store, *digits};
    // Nothing else may be written where a later point reads.
    const Touch place = touch_of(store);
    for (const PlacedUse& other : uses_of(target))
      if (&other != &store && other.writes && may_meet(place, touch_of(other))) return std::nullopt;
    for (const PlacedUse& use : uses_of(old)) {
      if (!rewritten(pair, use, [](std::int64_t&, std::int64_t) {})) return std::nullopt;
      const bool meanwhile = use.path[*level].index == path[*level].index && (&use != &load || !at_same_point);
      if (meanwhile && !comes_before(use, path, *level, load)) return std::nullopt;
    }
    return pair;
  }

  // The depth of the block that holds all uses of both buffers, if there the old one is touched up to the statement with the map, and the
  // new one from that statement on.
  std::optional<std::size_t> last_read_and_first_written(const Path& path, int old, int target) const {
    std::size_t level = path.size() - 1;
    for (const int b : {old, target})
      for (const PlacedUse& use : uses_of(b)) {
        std::size_t same = 0;
        while (same < std::min(level, use.path.size() - 1) && use.path[same] == path[same]) ++same;
        level = std::min(level, same);
      }
    const Place here = path[level];
    // What is first read lives from one iteration of a loop around to the next.
    if (!uses_of(old).front().writes || !uses_of(target).front().writes) return std::nullopt;
    for (const PlacedUse& use : uses_of(old)) {
      const Place there = use.path[level];
      if (there.block != here.block || there.index > here.index) return std::nullopt;
    }
    for (const PlacedUse& use : uses_of(target)) {
      const Place there = use.path[level];
      if (there.block != here.block || there.index < here.index) return std::nullopt;
    }
    return level;
  }

  // Whether another use in the loop reads in the same iteration before the map, and of nothing but the elements of that iteration.
  static bool comes_before(const PlacedUse& use, const Path& path, std::size_t level, const PlacedUse& load) {
    const auto last = static_cast<std::ptrdiff_t>(path.size()) - 1;
    if (use.writes || use.path.size() != path.size() ||
        !std::equal(path.begin(), path.begin() + last, use.path.begin()) ||
        use.path.back().block != path.back().block || use.path.back().index >= path.back().index)
      return false;
    // The counters of the loops move it as they move the load, and what else does stays within one iteration.
    std::int64_t least = std::numeric_limits<std::int64_t>::max(), reach = use.access->index.constant;
    std::vector<const std::int64_t*> counted;
    for (std::size_t i = level; i + 1 < path.size(); ++i) {
      const auto& loop = std::get<For>(at(path[i]).node);
      const std::int64_t stride = load.access->index.coefficient(loop.counter);
      if (use.access->index.coefficient(loop.counter) != stride) return false;
      if (loop.trip.bound > 1) least = std::min(least, stride);
      for (const Term& term : use.access->index.terms)
        if (term.var == loop.counter) counted.push_back(&term.coefficient);
    }
    for (const Step& step : use.steps)
      if (std::ranges::find(counted, step.stride) == counted.end()) reach += *step.stride * (step.extent - 1);
    return reach < least;
  }

  static bool by_one_worker(const Path& path, std::size_t level) {
    bool single = false;
    for (std::size_t i = 0; i < level; ++i) {
      if (std::holds_alternative<Grid>(at(path[i]).node)) return false;
      single = single || std::holds_alternative<Single>(at(path[i]).node);
    }
    return single;
  }

  // The digits of all elements that the statement at `level` visits: by counters of loops and by dims, those of one map by themselves, those of
  // two in the order of their strides. Nothing where two points meet, or where there is no loop: values that pass from map to map are the
  // memory plan's affair.
  static std::optional<std::vector<Digit>> digits_of(const Map& map, const Path& path, std::size_t level,
                                                     const PlacedUse& load, const PlacedUse& store) {
    const Affine &from = load.access->index, &to = store.access->index;
    std::vector<Digit> digits;
    std::size_t used_by_load = 0, used_by_store = 0;
    bool has_loop = false;
    const auto add = [&](Var read, Var written, const Extent& extent) {
      const Digit d{from.coefficient(read), to.coefficient(written), extent.bound};
      used_by_load += d.from != 0;
      used_by_store += d.to != 0;
      if (d.extent > 1) digits.push_back(d);
    };
    for (std::size_t i = level; i + 1 < path.size(); ++i) {
      const auto* loop = std::get_if<For>(&at(path[i]).node);
      if (loop == nullptr) return std::nullopt;
      add(loop->counter, loop->counter, loop->trip);
      has_loop = has_loop || loop->trip.bound > 1;
    }
    if (load.map == &map) {
      for (const Dim& d : map.dims) add(d.var, d.var, d.extent);
    } else {
      const auto by_stride = [](std::vector<Dim> dims, const Affine& index) {
        std::ranges::stable_sort(dims, std::greater<>(), [&](const Dim& d) { return index.coefficient(d.var); });
        return dims;
      };
      const std::vector<Dim> read = by_stride(load.map->dims, from), written = by_stride(map.dims, to);
      if (read.size() != written.size()) return std::nullopt;
      for (std::size_t i = 0; i < read.size(); ++i) {
        if (read[i].extent != written[i].extent) return std::nullopt;
        add(read[i].var, written[i].var, read[i].extent);
      }
    }
    if (!has_loop || used_by_load != from.terms.size() || used_by_store != to.terms.size()) return std::nullopt;
    std::vector<std::pair<std::int64_t, std::int64_t>> read, written;
    for (const Digit& d : digits) {
      read.emplace_back(d.from, d.extent);
      written.emplace_back(d.to, d.extent);
    }
    if (!is_injective(std::move(read)) || !is_injective(std::move(written))) return std::nullopt;
    std::ranges::sort(digits, std::greater<>(), &Digit::from);
    // Elements side by side stay so.
    if (digits.empty() || (digits.back().from == 1) != (digits.back().to == 1)) return std::nullopt;
    return digits;
  }

  static Touch touch_of(const PlacedUse& use) {
    Touch t;
    t.buffer = use.access->buffer;
    t.writes = use.writes;
    t.anywhere = use.fixed;
    t.base = use.access->index.constant;
    for (const Step& s : use.steps) t.steps.emplace_back(*s.stride, s.extent);
    return t;
  }

  // Calls set(stride, new stride) for what moves the use, once each of its strides is found to count in one digit, and no digit to exceed
  // its range; the first is the constant of its index.
  template <class F> static bool rewritten(const Pair& pair, const PlacedUse& use, const F& set) {
    if (use.fixed) return false;
    std::vector<std::int64_t> room;
    for (const Digit& d : pair.digits) room.push_back(d.extent - 1);
    std::vector<std::pair<std::int64_t*, std::int64_t>> strides;
    std::int64_t rest = use.access->index.constant, constant = pair.store->access->index.constant;
    if (rest < 0) return false;
    for (std::size_t d = 0; d < pair.digits.size(); ++d) {
      const std::int64_t digit = rest / pair.digits[d].from;
      constant += digit * pair.digits[d].to;
      room[d] -= digit;
      rest -= digit * pair.digits[d].from;
    }
    if (rest != 0) return false;
    strides.emplace_back(&use.access->index.constant, constant);
    for (const Step& step : use.steps) {
      if (*step.stride == 0 || step.extent <= 1) continue;
      std::size_t d = 0;
      while (d < pair.digits.size() && *step.stride % pair.digits[d].from != 0) ++d;
      if (*step.stride < 0 || d == pair.digits.size()) return false;
      const std::int64_t factor = *step.stride / pair.digits[d].from;
      room[d] -= factor * (step.extent - 1);
      strides.emplace_back(step.stride, factor * pair.digits[d].to);
    }
    if (std::ranges::any_of(room, [](std::int64_t r) { return r < 0; })) return false;
    for (const auto& [stride, value] : strides) set(*stride, value);
    return true;
  }

  void move(const Pair& pair) {
    const int target = pair.store->access->buffer;
    for (const PlacedUse& use : uses_of(pair.load->access->buffer)) {
      rewritten(pair, use, [](std::int64_t& stride, std::int64_t value) { stride = value; });
      use.access->buffer = target;
    }
  }

  Program& program_;
  Collector all_;
  std::map<const Block*, std::vector<const PlacedUse*>> loads_;  // of the maps seen so far
};

}  // namespace

void overwrite_last_reads(Program& program) {
  while (Overwriter(program).run_once()) {
  }
}

}  // namespace hotloop::kernel
