#include "schedule/donate.h"

#include <algorithm>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "schedule/accesses.h"
#include "schedule/footprint.h"
#include "schedule/registers.h"

namespace hotloop {
namespace {

using kernel::Access;
using kernel::Affine;
using kernel::Block;
using kernel::Extent;
using kernel::Instr;
using kernel::is_injective;
using kernel::Space;
using kernel::Var;

bool is_store(const Instr& i) { return i.kind == Instr::Kind::Store; }
bool is_load(const Instr& i) { return i.kind == Instr::Kind::Load; }
bool same_place(const Access& a, const Access& b) {
  return a.buffer == b.buffer && a.index == b.index && a.indirect.empty() && b.indirect.empty();
}

struct Touches {
  bool reads_argument = false, writes_result = false, reads_result = false;
  Touches& operator|=(const Touches& other) {
    reads_argument |= other.reads_argument;
    writes_result |= other.writes_result;
    reads_result |= other.reads_result;
    return *this;
  }
  bool any() const { return reads_argument || writes_result || reads_result; }
};

// Follows the program in the order in which statements run, and tells whether every read of the argument comes before the writes of
// the result, or is of the very element that is written next.
class Order {
 public:
  Order(const kernel::Program& program, int argument, int result)
      : program_(program), argument_(argument), result_(result) {}

  bool allows_sharing() {
    block(program_.body, true);
    return sound_;
  }
  // Whether one statement reads the argument and writes the result: the pair of an update.
  bool met() const { return met_; }

 private:
  template <class Stmt> Touches touches_of(const Stmt& stmt) const {
    Touches t;
    kernel::for_each_access(stmt, [&](const kernel::Use& use) {
      t.reads_argument |= use.access->buffer == argument_;
      if (use.access->buffer == result_) (use.writes ? t.writes_result : t.reads_result) = true;
    });
    return t;
  }
  Touches touches_of_all(const Block& statements) const {
    Touches all;
    kernel::for_each_statement(statements, [&](const auto& s) { all |= touches_of(s); });
    return all;
  }

  // A tile may be higher than there are rows.
  std::int64_t most_points(const Extent& extent) const {
    const bool is_tile = grid_ != nullptr && extent.var == grid_->rows;
    return is_tile ? std::min(extent.bound, grid_->total.bound) : extent.bound;
  }

  // Every point reads and writes its own element alone, and reads first.
  bool is_update(const kernel::Map& map) const {
    const Access* place = nullptr;
    bool stored = false;
    for (const Instr& i : map.instrs) {
      if (!is_load(i) && !is_store(i)) continue;
      if (i.access.buffer != argument_ && i.access.buffer != result_) continue;
      if (!i.access.indirect.empty() || (place != nullptr && place->index != i.access.index)) return false;
      if (is_load(i) && i.access.buffer == argument_ && stored) return false;
      place = &i.access;
      stored |= is_store(i);
    }
    std::vector<std::pair<std::int64_t, std::int64_t>> dims;
    for (int d = 0; d < static_cast<int>(map.dims.size()); ++d) {
      const kernel::Dim& dim = map.dims[static_cast<std::size_t>(d)];
      if (d < map.num_outer)
        dims.emplace_back(place->index.coefficient(dim.var), most_points(dim.extent));
      else if (place->index.coefficient(dim.var) != 0)
        return false;
    }
    return is_injective(std::move(dims));
  }
  bool is_update(const kernel::Dot& dot) const {
    for (const kernel::DotSegment& s : dot.segments)
      if (s.a.buffer == argument_ || s.b.buffer == argument_) return false;
    return dot.init && dot.init->buffer == argument_ && dot.init->index == dot.c.index && dot.init->indirect.empty() &&
           dot.c.indirect.empty() && dot.init_m == dot.c_m && dot.init_n == dot.c_n &&
           is_injective({{dot.c_m, most_points(dot.m)}, {dot.c_n, most_points(dot.n)}});
  }
  template <class Stmt> bool is_update(const Stmt&) const { return false; }

  template <class Stmt> void account(const Stmt& stmt) {
    const Touches t = touches_of(stmt);
    if (t.reads_argument && written_) sound_ = false;
    if (t.reads_argument && t.writes_result) {
      met_ = true;
      if (!is_update(stmt)) sound_ = false;
    }
    // Another worker may still be at what it reads, until all have met.
    if (t.writes_result && read_earlier_) sound_ = false;
    written_ |= t.writes_result;
    read_here_ |= t.reads_argument;
  }

  void block(const Block& statements, bool outside) {
    for (const kernel::Stmt& stmt : statements) {
      if (outside) read_earlier_ |= std::exchange(read_here_, false);
      std::visit([&](const auto& s) { visit(s, outside); }, stmt.node);
    }
  }
  template <class Stmt> void visit(const Stmt& stmt, bool) { account(stmt); }
  void visit(const kernel::Barrier&, bool) { read_earlier_ = read_here_ = false; }
  void visit(const kernel::Single& single, bool) { block(single.body, false); }
  void visit(const kernel::Sections& all, bool) {
    // As if each statement were another worker's. What a round writes, the next one finds.
    for (int round = 0; round < (all.num_rounds() > 1 ? 2 : 1); ++round)
      for (const kernel::Section& section : all.sections) block(section.body, true);
  }
  void visit(const kernel::For& loop, bool outside) {
    // What an iteration writes, the next one finds.
    for (int round = 0; round < (loop.trip.is_static() && loop.trip.bound <= 1 ? 1 : 2); ++round) {
      block(loop.test, outside);
      account(loop);
      block(loop.body, outside);
    }
  }
  void visit(const kernel::Grid& grid, bool) {
    grid_ = &grid;
    tiles(grid);
    grid_ = nullptr;
  }
  void tiles(const kernel::Grid& grid) {
    const Touches before = touches_of_all(grid.prologue), inside = touches_of_all(grid.body);
    const bool reads = before.reads_argument || inside.reads_argument;
    // One tile has no others beside it.
    const bool alone = grid.slots == 0 && grid.total.is_static() && grid.total.bound <= grid.tile_rows;
    if (alone || !reads || !(before.writes_result || inside.writes_result)) {
      block(grid.prologue, false);
      block(grid.body, false);
      return;
    }
    // Tiles run in any order and at once: each must keep to its own rows of both.
    if (written_ || before.any() || grid.slots > 0 || !Rows(*this, grid).are_kept()) sound_ = false;
    block(grid.body, false);
  }

  // Whether all that a grid reads of the argument and writes of the result lies in the rows of its tile.
  class Rows {
   public:
    Rows(const Order& order, const kernel::Grid& grid) : order_(order), grid_(grid) {}
    bool are_kept() {
      block(grid_.body);
      return kept_;
    }

   private:
    void block(const Block& statements) {
      for (const kernel::Stmt& stmt : statements) {
        kernel::for_each_variable(stmt, [&](const kernel::SetVariable& v) {
          if (v.trip != nullptr) extents_[v.var] = *v.trip;
        });
        kernel::for_each_part(
            stmt,
            [&](const kernel::Use& use) {
              const int buffer = use.access->buffer;
              if (buffer == order_.argument_ || buffer == order_.result_) kept_ = kept_ && keeps(use);
            },
            [&](const Block& inside) { block(inside); });
      }
    }
    bool keeps(const kernel::Use& use) {
      const Access& access = *use.access;
      const std::int64_t stride = access.index.coefficient(grid_.row0);
      if (use.panels || !access.indirect.empty() || stride <= 0 || (stride_ && *stride_ != stride)) return false;
      stride_ = stride;
      // What goes round all rows comes back to the same row.
      const std::int64_t round = grid_.total.is_static() ? stride * grid_.total.bound : 0;
      std::int64_t low = round > 0 ? access.index.constant % round : access.index.constant, high = low;
      // Where all tiles are full, a tile's rows are one range of indices; else the last one is shorter, and one dim must be its rows.
      const bool all_full = grid_.total.is_static() && grid_.total.bound % grid_.tile_rows == 0;
      int row_dims = 0;
      const auto add = [&](const Extent& extent, std::int64_t by) {
        if (by != 0 && !all_full && extent.var == grid_.rows) {
          ++row_dims;
          return by == stride;
        }
        if (round > 0 && by % round == 0) return true;
        (by < 0 ? low : high) += by * std::max<std::int64_t>(extent.bound - 1, 0);
        return true;
      };
      for (const kernel::Term& term : access.index.terms) {
        if (term.var == grid_.row0) continue;
        const auto known = extents_.find(term.var);
        if (known == extents_.end() || !add(known->second, term.coefficient)) return false;
      }
      for (const auto& [extent, by] : use.strides)
        if (!add(extent, *by)) return false;
      return row_dims <= 1 && low >= 0 && high < stride * (all_full ? grid_.tile_rows : 1);
    }

    const Order& order_;
    const kernel::Grid& grid_;
    std::map<Var, Extent> extents_;
    std::optional<std::int64_t> stride_;
    bool kept_ = true;
  };

  const kernel::Program& program_;
  int argument_, result_;
  const kernel::Grid* grid_ = nullptr;  // around the statement
  bool sound_ = true, met_ = false;
  bool written_ = false;  // some of the result may be
  // The argument may be read, since the last barrier, by a statement that another worker is still at, and by this one.
  bool read_earlier_ = false, read_here_ = false;
};

// Stores of what lies there already; the argument's copy into a carry is one.
void drop_stores_in_place(Block& statements, int buffer) {
  const auto drops = [&](const kernel::Map& map, const Instr& i) {
    if (!is_store(i) || i.access.buffer != buffer || i.args[0] < 0) return false;
    const Instr& value = map.instrs[static_cast<std::size_t>(i.args[0])];
    return is_load(value) && value.args[0] < 0 && same_place(value.access, i.access);
  };
  kernel::for_each_statement(statements, [&](auto& s) {
    if constexpr (std::is_same_v<std::remove_cvref_t<decltype(s)>, kernel::Map>) {
      const bool alone = std::ranges::count_if(
                             s.instrs, [&](const Instr& i) { return is_store(i) && i.access.buffer == buffer; }) == 1;
      std::vector<int> now(s.instrs.size(), -1);
      std::vector<Instr> kept;
      const int body_end = s.body_end;
      for (int i = 0; i < static_cast<int>(now.size()); ++i) {
        Instr instr = s.instrs[static_cast<std::size_t>(i)];
        if (alone && drops(s, instr)) {
          if (i < body_end) --s.body_end;
          continue;
        }
        now[static_cast<std::size_t>(i)] = static_cast<int>(kept.size());
        kept.push_back(std::move(instr));
      }
      for (Instr& i : kept) kernel::renumber(i, now);
      if (kept.size() < s.instrs.size()) s.instrs = std::move(kept);
    }
  });
}

void drop_empty_maps(Block& statements) {
  std::erase_if(statements, [](kernel::Stmt& stmt) {
    kernel::for_each_block(stmt, drop_empty_maps);
    const auto* map = std::get_if<kernel::Map>(&stmt.node);
    return map != nullptr && std::ranges::none_of(map->instrs, is_store);
  });
}

std::vector<int> buffers_of(const kernel::Program& program, Space space, std::size_t count) {
  std::vector<int> buffers(count, -1);
  for (std::size_t b = 0; b < program.buffers.size(); ++b)
    if (program.buffers[b].space == space)
      buffers[static_cast<std::size_t>(program.buffers[b].index)] = static_cast<int>(b);
  return buffers;
}

}  // namespace

void take_over_arguments(kernel::Program& program, std::span<const int> donated,
                         const std::function<bool(int, int)>& may_share) {
  if (donated.empty()) return;
  program.in_place.assign(program.results.size(), -1);
  const std::vector<int> arguments = buffers_of(program, Space::Argument, program.arguments.size());
  const std::vector<int> results = buffers_of(program, Space::Result, program.results.size());
  std::vector<bool> is_placed(program.arguments.size(), false);
  // Updates first, so that an argument does not go to a result of the same type that another one could only have been updated into.
  for (const bool updates : {true, false})
    for (const int argument : donated) {
      const auto a = static_cast<std::size_t>(argument);
      for (std::size_t r = 0; r < results.size() && !is_placed[a]; ++r) {
        if (program.in_place[r] >= 0 || program.results[r] != program.arguments[a]) continue;
        if (program.results[r].shape.size() == 0 || !may_share(argument, static_cast<int>(r))) continue;
        Order order(program, arguments[a], results[r]);
        if (!order.allows_sharing() || (updates && !order.met())) continue;
        kernel::for_each_statement(program.body, [&](auto& s) {
          kernel::for_each_access(s, [&](const kernel::MutableUse& use) {
            if (use.access->buffer == arguments[a]) use.access->buffer = results[r];
          });
        });
        drop_stores_in_place(program.body, results[r]);
        program.in_place[r] = argument;
        is_placed[a] = true;
      }
    }
  drop_empty_maps(program.body);
}

}  // namespace hotloop
