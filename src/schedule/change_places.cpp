#include "schedule/change_places.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <numeric>
#include <optional>
#include <set>
#include <utility>
#include <variant>
#include <vector>

#include "core/index.h"
#include "schedule/accesses.h"
#include "schedule/registers.h"

namespace hotloop::kernel {
namespace {

constexpr std::int64_t most_turns = 3;       // bodies one after the other
constexpr std::size_t most_statements = 24;  // of a body

// Whether the index goes through all of the buffer's elements, each at one point, and nothing else moves it. Of rows that a tile does not have nobody asks for
// numbers.
bool covers(const Map& map, const Access& access, const Buffer& buffer) {
  if (!access.indirect.empty() || access.index.constant != 0) return false;
  std::vector<Term> terms = access.index.terms;
  std::ranges::sort(terms, {}, &Term::coefficient);
  std::int64_t elements = 1;
  for (const Term& term : terms) {
    const auto dim = std::ranges::find(map.dims, term.var, &Dim::var);
    if (dim == map.dims.end() || term.coefficient != elements) return false;
    elements *= dim->extent.bound;
  }
  std::int64_t points = 1;
  for (const Dim& dim : map.dims) points *= dim.extent.bound;
  return elements == buffer.elements && points == elements;
}

// A buffer that takes up another one's contents: the store that does it.
struct Copy {
  int to, from, store;
};

bool is_copy(const std::vector<Copy>& copies, int store) {
  return std::ranges::find(copies, store, &Copy::store) != copies.end();
}

std::vector<Copy> copies_of(const Program& program, const Map& map) {
  std::vector<Copy> copies;
  if (map.split || map.num_outer != static_cast<int>(map.dims.size())) return copies;
  for (std::size_t i = 0; i < map.instrs.size(); ++i) {
    const Instr& store = map.instrs[i];
    if (store.kind != Instr::Kind::Store || store.args[1] >= 0) continue;
    const Instr& load = map.instrs[at(store.args[0])];
    if (load.kind != Instr::Kind::Load || load.args[0] >= 0 || !(load.access.index == store.access.index)) continue;
    const auto is_store = [](const Instr& in) { return in.kind == Instr::Kind::Store; };
    if (std::any_of(map.instrs.begin(), map.instrs.begin() + store.args[0], is_store)) continue;  // which it may read
    const Buffer &to = program.buffers[at(store.access.buffer)], &from = program.buffers[at(load.access.buffer)];
    if (to.dtype != from.dtype || to.elements != from.elements || !covers(map, store.access, to)) continue;
    copies.push_back({store.access.buffer, load.access.buffer, static_cast<int>(i)});
  }
  return copies;
}

class Places {
 public:
  explicit Places(Program& program) : program_(program), num_uses_(program.buffers.size(), 0) {
    count(program.body, num_uses_);
  }
  void run() { in_block(program_.body); }

 private:
  static void count(const Block& block, std::vector<int>& uses) {
    for_each_statement(block, [&](const auto& statement) {
      for_each_access(statement, [&](const auto& use) { ++uses[at(use.access->buffer)]; });
    });
  }

  void in_block(Block& block) {
    Block all;
    for (Stmt& stmt : block) {
      const auto* loop = std::get_if<For>(&stmt.node);
      if (Block turns = loop != nullptr ? in_turns(*loop) : Block{}; !turns.empty()) {
        append(all, std::move(turns));
        continue;
      }
      for_each_block(stmt, [&](Block& inside) { in_block(inside); });
      all.push_back(std::move(stmt));
    }
    block = std::move(all);
  }

  // The buffer is written as a whole before it is read, and known in the loop alone: what lies there when a step begins is nothing to it. A result
  // is known to the caller, too.
  bool begins_anew(const For& loop, int buffer) const {
    const Space space = program_.buffers[at(buffer)].space;
    if (space != Space::Shared && space != Space::Worker) return false;
    std::vector<int> uses(program_.buffers.size(), 0);
    count(loop.body, uses);
    if (uses[at(buffer)] != num_uses_[at(buffer)]) return false;
    for (const Stmt& stmt : loop.body) {
      bool touches = false;
      for_each_statement(stmt, [&](const auto& statement) {
        for_each_access(statement, [&](const auto& use) { touches = touches || use.access->buffer == buffer; });
      });
      if (!touches) continue;
      const auto* map = std::get_if<Map>(&stmt.node);
      if (map == nullptr || map->num_outer != static_cast<int>(map->dims.size())) return false;
      const auto is_of_it = [&](const Instr& in, Instr::Kind kind) {
        return in.kind == kind && in.access.buffer == buffer;
      };
      return std::ranges::none_of(map->instrs, [&](const Instr& in) { return is_of_it(in, Instr::Kind::Load); }) &&
             std::ranges::any_of(map->instrs, [&](const Instr& in) {
               return is_of_it(in, Instr::Kind::Store) && in.args[1] < 0 &&
                      covers(*map, in.access, program_.buffers[at(buffer)]);
             });
    }
    return false;
  }

  // Which buffer each of them, home or away, is found in after a step without copies; nothing unless they are back after a few.
  std::optional<std::map<int, int>> roles_after(const For& loop, const std::vector<Copy>& copies) const {
    std::map<int, int> from;  // of a carry
    std::set<int> sources;
    for (const Copy& copy : copies)
      if (!from.try_emplace(copy.to, copy.from).second || !sources.insert(copy.from).second) return std::nullopt;
    std::map<int, int> next = from;
    for (const auto& [to, source] : from) {
      if (sources.contains(to)) continue;
      int last = to;  // along the chain to what only the step computes, which takes the place that became free
      while (from.contains(last)) last = from.at(last);
      if (!begins_anew(loop, last)) return std::nullopt;
      next[last] = to;
    }
    return next;
  }

  // Each worker has its own or nobody has.
  bool lie_alike(const std::map<int, int>& roles) const {
    const auto is_own = [&](const auto& role) { return program_.buffers[at(role.first)].space == Space::Worker; };
    return std::ranges::all_of(roles, is_own) || std::ranges::none_of(roles, is_own);
  }

  // Whether the Map stores anything but the copies into a buffer that changes its role: another role would find it there.
  static bool is_written_beside(const Map& map, const std::vector<Copy>& copies, const std::map<int, int>& roles) {
    for (std::size_t i = 0; i < map.instrs.size(); ++i) {
      const Instr& in = map.instrs[i];
      if (in.kind == Instr::Kind::Store && !is_copy(copies, static_cast<int>(i)) && roles.contains(in.access.buffer))
        return true;
    }
    return false;
  }

  static std::int64_t period(const std::map<int, int>& next) {
    std::int64_t all = 1;
    for (const auto& [first, second] : next) {
      std::int64_t length = 1;
      for (int b = second; b != first; b = next.at(b)) ++length;
      all = std::lcm(all, length);
    }
    return all;
  }

  static bool is_plain(const For& loop) {
    if (loop.stop || !loop.test.empty() || !loop.trip.is_static()) return false;
    std::size_t statements = 0;
    for_each_statement(loop.body, [&](const auto&) { ++statements; });
    return statements <= most_statements;
  }

  // What a Let of the block sets lives on to the end of that, and a copy of the block beside it is to set something of its own.
  void rename_lets(Block& block) {
    for (Stmt& stmt : block) {
      auto* let = std::get_if<Let>(&stmt.node);
      if (let == nullptr) continue;
      const Var own = program_.new_var(program_.vars[at(let->var)]);
      replace_variable(block, let->var, Affine::of(own), [&](Extent& extent) { extent.var = own; });
      let->var = own;
    }
  }

  // The loops in place of this one; nothing where it stays.
  Block in_turns(const For& loop) {
    constexpr std::int64_t fewest_points = 512;  // fewer are copied in a moment
    if (!is_plain(loop) || loop.body.size() < 2) return {};
    const auto* last = std::get_if<Map>(&loop.body.back().node);
    if (last == nullptr) return {};
    const std::vector<Copy> copies = copies_of(program_, *last);
    if (copies.empty() || program_.buffers[at(copies[0].to)].elements < fewest_points) return {};
    const auto next = roles_after(loop, copies);
    if (!next || !lie_alike(*next) || is_written_beside(*last, copies, *next)) return {};
    const std::int64_t turns = period(*next);
    if (turns < 2 || turns > most_turns || loop.trip.bound < 2 * turns) return {};
    const std::int64_t rounds = loop.trip.bound / turns, left = loop.trip.bound % turns;

    For main = loop;
    main.trip = {rounds, -1};
    main.body.clear();
    std::map<int, int> place;  // of a role
    for (const auto& [role, after] : *next) place[role] = role;
    for (std::int64_t k = 0; k < turns; ++k) {
      Block body = loop.body;
      auto& end = std::get<Map>(body.back().node);
      keep_stores(end, [&](int i) { return !is_copy(copies, i); });
      if (end.instrs.empty()) body.pop_back();
      if (k > 0) rename_lets(body);
      for_each_statement(body, [&](auto& statement) {
        for_each_access(statement, [&](const auto& use) {
          if (const auto it = place.find(use.access->buffer); it != place.end()) use.access->buffer = it->second;
        });
        for_each_index(statement, [&](Affine& index) {
          const std::int64_t first = loop.reverse ? left + turns - 1 - k : k;
          index = index.substituted(loop.counter, Affine::of(loop.counter, turns) + Affine(first));
        });
      });
      append(main.body, std::move(body));
      std::map<int, int> after;
      for (const auto& [role, source] : *next) after[role] = place.at(source);
      place = std::move(after);
    }
    Block all;
    all.push_back({std::move(main)});
    if (left > 0) {
      For rest = loop;
      rest.trip = {left, -1};
      if (!loop.reverse)
        for_each_statement(rest.body, [&](auto& statement) {
          for_each_index(statement, [&](Affine& index) {
            index = index.substituted(loop.counter, Affine::of(loop.counter) + Affine(rounds * turns));
          });
        });
      all.push_back({std::move(rest)});
    }
    return all;
  }

  Program& program_;
  std::vector<int> num_uses_;
};

}  // namespace

void change_places(Program& program) { Places(program).run(); }

}  // namespace hotloop::kernel
