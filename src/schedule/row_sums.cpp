#include "schedule/row_sums.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <utility>
#include <variant>
#include <vector>

#include "schedule/accesses.h"
#include "schedule/loop_facts.h"
#include "schedule/map_writer.h"
#include "schedule/registers.h"

namespace hotloop::kernel {
namespace {

// How often each instruction is an argument of another one, or moves one.
std::vector<int> uses_of(const Map& map) {
  std::vector<int> uses(map.instrs.size(), 0);
  for (const Instr& in : map.instrs) {
    for (const int arg : in.args)
      if (arg >= 0) ++uses[at(arg)];
    for (const Indirect& term : in.access.indirect) ++uses[at(term.reg)];
  }
  return uses;
}

bool is_plain(const Instr& in, Instr::Kind kind) {
  const int predicate = in.args[kind == Instr::Kind::Store ? 1 : 0];
  return in.kind == kind && predicate < 0 && in.access.indirect.empty();
}

// The dims of an access one after the other, the last one element by element: through so many elements, none left out; nothing else moves it.
std::optional<std::int64_t> elements_in_order(const Affine& index, const std::vector<Dim>& dims) {
  std::int64_t elements = 1;
  for (std::size_t d = dims.size(); d-- > 0;) {
    const Dim& dim = dims[d];
    if (!dim.extent.is_static()) return std::nullopt;
    if (dim.extent.bound != 1 && index.coefficient(dim.var) != elements) return std::nullopt;
    elements *= dim.extent.bound;
  }
  const auto is_dim = [&](const Term& term) {
    return std::ranges::any_of(dims, [&](const Dim& dim) { return dim.var == term.var; });
  };
  if (index.constant != 0 || !std::ranges::all_of(index.terms, is_dim)) return std::nullopt;
  return elements;
}

// Copies instructions, in any order that keeps what they need before them, under new numbers.
class Rewriter {
 public:
  explicit Rewriter(const Map& map) : from_(map.instrs), place_(map.instrs.size(), -1) {}
  void keep(int i) {
    Instr in = from_[at(i)];
    renumber(in, place_);
    put(i, std::move(in));
  }
  // In place of the i-th.
  void put(int i, Instr in) { place_[at(i)] = add(std::move(in)); }
  int add(Instr in) {
    made_.push_back(std::move(in));
    return size() - 1;
  }
  int place(int i) const { return place_[at(i)]; }
  int size() const { return static_cast<int>(made_.size()); }
  std::vector<Instr> finish() { return std::move(made_); }

 private:
  const std::vector<Instr> from_;
  std::vector<int> place_;
  std::vector<Instr> made_;
};

// One buffer that gathers rows: `buffer[...] = buffer[...] + value` in a Map of the loop.
struct RowSum {
  int buffer, load, add, store, value;
  std::int64_t columns = 0;
  Map* first = nullptr;  // stores 0 before the loop
  int zero = -1;         // its store
  Map* last = nullptr;   // sums the rows after it
  int read = -1;         // its load
  Extent rows = {};      // that it sums
  // Of a tile of several parts, each with a sum of its own: the loop over these, and what counts the rows of a part that may not be full.
  const For* parts = nullptr;
  const Let* count = nullptr;

  std::int64_t num_parts() const { return parts == nullptr ? 1 : parts->trip.bound; }
  std::int64_t elements() const { return columns * num_parts(); }
  bool goes_with(const RowSum& other) const {
    return columns == other.columns && rows.bound == other.rows.bound && num_parts() == other.num_parts() &&
           (count == nullptr) == (other.count == nullptr);
  }
};

class RowSums {
 public:
  explicit RowSums(Program& program) : program_(program), num_uses_(program.buffers.size(), 0) {
    for_each_statement(program.body, [&](const auto& statement) {
      for_each_access(statement, [&](const auto& use) { ++num_uses_[at(use.access->buffer)]; });
    });
  }

  void run() {
    for (Grid* grid : plain_grids(program_)) in_block(grid->body);
  }

 private:
  void in_block(Block& block) {
    for (std::size_t i = 0; i < block.size(); ++i) {
      if (!std::holds_alternative<For>(block[i].node)) continue;
      std::vector<RowSum> found;
      in_loop(std::get<For>(block[i].node).body, block, i, found);
      if (found.empty()) continue;
      for (const RowSum& sum : found) program_.buffers[at(sum.buffer)].elements = sum.elements();
      read_sums(found);
      begin_with_zero(found, block, i);
      std::erase_if(block, [](const Stmt& stmt) {
        const auto* map = std::get_if<Map>(&stmt.node);
        return map != nullptr && map->instrs.empty();
      });
      return in_block(block);  // statements have moved; what is done is found no more
    }
  }

  void in_loop(Block& body, Block& around, std::size_t loop, std::vector<RowSum>& found) {
    for (Stmt& stmt : body) {
      for_each_block(stmt, [&](Block& inside) { in_loop(inside, around, loop, found); });
      const auto* map = std::get_if<Map>(&stmt.node);
      if (map == nullptr) continue;
      const std::vector<RowSum> sums = sums_in(*map, around, loop);
      if (sums.empty()) continue;
      sum_rows(stmt, sums);
      found.insert(found.end(), sums.begin(), sums.end());
    }
  }

  // By the width of rows alone, so that it is done or not whatever caches and workers make of the rows of a tile.
  std::vector<RowSum> sums_in(const Map& map, Block& around, std::size_t loop) const {
    const auto num_dims = static_cast<int>(map.dims.size());
    if (map.split || num_dims < 2 || map.num_outer != num_dims || map.vector_dim < 0) return {};
    const std::int64_t lanes = map.lanes(), width = map.dims.back().extent.bound;
    const bool fills_vectors = width * 4 >= divided_up(width, lanes) * lanes * 3;
    if (!fills_vectors) return {};
    const std::vector<int> uses = uses_of(map);
    std::vector<RowSum> sums;
    for (int s = 0; s < static_cast<int>(map.instrs.size()); ++s) {
      auto sum = sum_ending_at(map, uses, s);
      if (sum && find_ends(*sum, map.dims[0], around, loop) && (sums.empty() || sum->goes_with(sums[0])))
        sums.push_back(*sum);
    }
    return sums;
  }

  std::optional<RowSum> sum_ending_at(const Map& map, const std::vector<int>& uses, int store) const {
    constexpr int in_all = 4;  // one store before the loop, a load and a store in it, one load after it
    const Instr& end = map.instrs[at(store)];
    if (!is_plain(end, Instr::Kind::Store) || !is_float(end.dtype) || num_uses_[at(end.access.buffer)] != in_all)
      return std::nullopt;
    if (program_.buffers[at(end.access.buffer)].space != Space::Worker) return std::nullopt;
    const Instr& add = map.instrs[at(end.args[0])];
    if (add.kind != Instr::Kind::Op || add.op != ScalarOp::Add || uses[at(end.args[0])] != 1) return std::nullopt;
    for (const int side : {0, 1}) {
      const int load = add.args[side];
      const Instr& begin = map.instrs[at(load)];
      if (!is_plain(begin, Instr::Kind::Load) || uses[at(load)] != 1 || begin.access.buffer != end.access.buffer)
        continue;
      if (begin.access.index != end.access.index) continue;
      const Var rows = map.dims[0].var;
      const auto columns = elements_in_order(begin.access.index.without(rows), {map.dims.begin() + 1, map.dims.end()});
      if (!columns || begin.access.index.coefficient(rows) != *columns) continue;
      return RowSum{end.access.buffer, load, end.args[0], store, add.args[1 - side], *columns};
    }
    return std::nullopt;
  }

  // The Maps beside the loop that store the zeros and that sum the rows.
  static bool find_ends(RowSum& sum, const Dim& rows, Block& around, std::size_t loop) {
    for (std::size_t i = 0; i < around.size(); ++i) {
      if (auto* map = std::get_if<Map>(&around[i].node)) {
        if (i < loop ? !find_zero(sum, *map) : !find_read(sum, *map, nullptr)) return false;
      } else if (const auto* parts = std::get_if<For>(&around[i].node); parts != nullptr && i > loop) {
        if (parts->stop || !parts->trip.is_static()) continue;
        for (Stmt& stmt : std::get<For>(around[i].node).body)
          if (auto* map = std::get_if<Map>(&stmt.node); map != nullptr && !find_read(sum, *map, parts)) return false;
      }
    }
    if (sum.first == nullptr || sum.last == nullptr || sum.rows.bound < 2) return false;
    if (sum.parts == nullptr) return sum.rows == rows.extent;
    if (sum.rows.bound * sum.num_parts() < rows.extent.bound) return false;
    if (sum.rows.is_static()) return true;
    for (const Stmt& stmt : sum.parts->body)
      if (const auto* let = std::get_if<Let>(&stmt.node); let != nullptr && let->var == sum.rows.var && let->number)
        sum.count = let;
    return sum.count != nullptr;
  }

  // False where the buffer is used in another way.
  static bool find_zero(RowSum& sum, Map& map) {
    for (int k = 0; k < static_cast<int>(map.instrs.size()); ++k) {
      const Instr& in = map.instrs[at(k)];
      if (in.kind != Instr::Kind::Store || in.access.buffer != sum.buffer) continue;
      const Instr& value = map.instrs[at(in.args[0])];
      if (map.split || !is_plain(in, in.kind) || value.kind != Instr::Kind::Const || value.bits != 0) return false;
      sum.first = &map, sum.zero = k;
    }
    return true;
  }
  static bool find_read(RowSum& sum, Map& map, const For* parts) {
    for (int k = 0; k < map.body_end; ++k) {
      const Instr& in = map.instrs[at(k)];
      if (in.kind != Instr::Kind::Load || in.access.buffer != sum.buffer) continue;
      const auto stores = [](const Instr& it) { return it.kind == Instr::Kind::Store; };
      if (map.split || !is_plain(in, in.kind) || uses_of(map)[at(k)] != 1) return false;
      if (map.num_outer + 1 != static_cast<int>(map.dims.size()) || map.vector_dim == map.num_outer) return false;
      if (std::any_of(map.instrs.begin(), map.instrs.begin() + map.body_end, stores)) return false;
      const Dim& rows = map.dims.back();
      Affine index = in.access.index.without(rows.var);
      if (parts != nullptr) {
        if (index.coefficient(parts->counter) != sum.columns * rows.extent.bound) return false;
        index = index.without(parts->counter);
      }
      const auto elements = elements_in_order(index, {map.dims.begin(), map.dims.end() - 1});
      if (elements != sum.columns || in.access.index.coefficient(rows.var) != sum.columns) return false;
      const auto adds = [&](const Instr& it) {
        return it.kind == Instr::Kind::Reduced && it.op == ScalarOp::Add && it.args[0] == k;
      };
      if (std::ranges::none_of(map.instrs, adds)) return false;
      sum.last = &map, sum.read = k, sum.rows = rows.extent, sum.parts = parts;
    }
    return true;
  }

  // The Map of the loop, one for each part in turn.
  void sum_rows(Stmt& stmt, const std::vector<RowSum>& sums) {
    Map map = std::get<Map>(std::move(stmt.node));
    const RowSum& one = sums[0];
    const Dim rows = map.dims[0];
    reduce_rows(map, sums);
    if (one.parts == nullptr) {
      stmt.node = std::move(map);
      return;
    }
    For parts;
    parts.counter = program_.new_var("part");
    parts.trip = one.parts->trip;
    Extent& of_part = map.dims.back().extent;
    of_part = one.rows;
    if (one.count != nullptr) {
      Let count = *one.count;
      count.var = of_part.var = program_.new_var(program_.vars[at(count.var)]);
      count.number = count.number->substituted(one.parts->counter, Affine::of(parts.counter));
      parts.body.push_back({std::move(count)});
    }
    const Affine row = Affine::of(rows.var) + Affine::of(parts.counter, one.rows.bound);
    for_each_index(map, [&](Affine& index) { index = index.substituted(rows.var, row); });
    for (Instr& in : map.instrs)
      if (has_index(in) && is_sum_of(sums, in.access.buffer))
        in.access.index = in.access.index + Affine::of(parts.counter, one.columns);
    parts.body.push_back({std::move(map)});
    stmt.node = std::move(parts);
  }
  static bool is_sum_of(const std::vector<RowSum>& sums, int buffer) {
    return std::ranges::any_of(sums, [&](const RowSum& sum) { return sum.buffer == buffer; });
  }

  static void reduce_rows(Map& map, const std::vector<RowSum>& sums) {
    std::set<int> moved;
    for (const RowSum& sum : sums) moved.insert({sum.load, sum.add, sum.store});
    Rewriter made(map);
    for (int i = 0; i < static_cast<int>(map.instrs.size()); ++i)
      if (!moved.contains(i)) made.keep(i);
    map.body_end = made.size();
    for (const RowSum& sum : sums)
      made.put(sum.store, reduced_instr(ScalarOp::Add, map.instrs[at(sum.store)].dtype, made.place(sum.value)));
    const Var rows = map.dims[0].var;
    for (const RowSum& sum : sums) {
      const Instr& in = map.instrs[at(sum.load)];
      const Access place{sum.buffer, in.access.index.without(rows), {}};
      const int before = made.add(load_instr(in.dtype, place));
      const int after = made.add(op_instr(ScalarOp::Add, in.dtype, before, made.place(sum.store)));
      made.add(store_instr(in.dtype, place, after));
    }
    map.instrs = made.finish();
    std::rotate(map.dims.begin(), map.dims.begin() + 1, map.dims.end());
    --map.num_outer;
    map.vector_dim = map.num_outer - 1;
  }

  // What was summed after the loop is there.
  static void read_sums(const std::vector<RowSum>& found) {
    std::map<Map*, std::map<int, const RowSum*>> reads;
    for (const RowSum& sum : found) reads[sum.last][sum.read] = &sum;
    for (const auto& [map, loads] : reads) {
      Rewriter made(*map);
      const int num_instrs = static_cast<int>(map->instrs.size());
      const auto is_sum = [&](int i) {
        const Instr& in = map->instrs[at(i)];
        return in.kind == Instr::Kind::Reduced && loads.contains(in.args[0]);
      };
      int finish = map->body_end;
      bool sums_more = false;
      for (; finish < num_instrs && map->instrs[at(finish)].kind == Instr::Kind::Reduced; ++finish)
        sums_more = sums_more || !is_sum(finish);
      for (int i = 0; i < map->body_end && sums_more; ++i)
        if (!loads.contains(i)) made.keep(i);
      const int body_end = made.size();
      for (int i = map->body_end; i < finish; ++i)
        if (!is_sum(i)) made.keep(i);
      const Var rows = map->dims.back().var;
      for (int i = map->body_end; i < finish; ++i) {
        if (!is_sum(i)) continue;
        const int read = map->instrs[at(i)].args[0];
        const RowSum& sum = *loads.at(read);
        Affine index = map->instrs[at(read)].access.index.without(rows);
        if (sum.parts != nullptr)
          index = index.without(sum.parts->counter) + Affine::of(sum.parts->counter, sum.columns);
        made.put(i, load_instr(map->instrs[at(read)].dtype, {sum.buffer, std::move(index), {}}));
      }
      for (int i = finish; i < num_instrs; ++i) made.keep(i);
      map->instrs = made.finish();
      map->body_end = sums_more ? body_end : static_cast<int>(map->instrs.size());
      if (!sums_more) map->dims.pop_back();
    }
  }

  // Takes the zeros out of the Maps that stored them, and puts one in front of the loop for all sums of as many elements: of a tile with fewer rows than
  // parts those Maps would not reach the sums of parts without rows.
  void begin_with_zero(const std::vector<RowSum>& found, Block& block, std::size_t loop) {
    std::map<Map*, std::set<int>> zeros;
    std::map<std::int64_t, std::vector<const RowSum*>> by_elements;
    for (const RowSum& sum : found) {
      zeros[sum.first].insert(sum.zero);
      by_elements[sum.elements()].push_back(&sum);
    }
    std::map<int, DType> dtypes;
    for (const auto& [map, stores] : zeros) {
      for (const int i : stores) dtypes[map->instrs[at(i)].access.buffer] = map->instrs[at(i)].dtype;
      keep_stores(*map, [&](int i) { return !stores.contains(i); });
    }
    Block fills;
    for (const auto& [elements, sums] : by_elements) {
      MapWriter fill(program_, "fill", elements);
      std::map<DType, int> zero;
      for (const RowSum* sum : sums) {
        const DType dtype = dtypes.at(sum->buffer);
        if (!zero.contains(dtype)) zero[dtype] = fill.constant(dtype, 0);
        fill.store(sum->buffer, fill.point(), dtype, zero[dtype]);
      }
      fills.push_back({fill.finish()});
    }
    block.insert(block.begin() + static_cast<std::ptrdiff_t>(loop), fills.begin(), fills.end());
  }

  Program& program_;
  std::vector<int> num_uses_;  // accesses, by buffer
};

}  // namespace

void sum_rows_in_loops(Program& program) { RowSums(program).run(); }

}  // namespace hotloop::kernel
