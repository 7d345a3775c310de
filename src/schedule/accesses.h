// What a kernel statement touches, one visitor for all: its reads and writes, with what moves them, the blocks inside it, the variables that
// it sets, its indices and extents. A pass that asks for these asks here, so that none overlooks an access that another one sees.
//
// A statement (Map, Dot, ... or Stmt) or Block that is passed const is visited const; else the visitor may change what it is given.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

#include "core/index.h"
#include "schedule/kernel_ir.h"

namespace hotloop::kernel {

// What a statement adds to an index beside the variables in it: `elements` for each of `extent` points.
template <class Int> struct BasicStride {
  Extent extent;
  Int* elements;
};

template <class A> struct BasicUse {
  using Int = std::conditional_t<std::is_const_v<A>, const std::int64_t, std::int64_t>;
  A* access;
  DType dtype;
  bool writes;
  std::vector<BasicStride<Int>> strides{};
  // In the layout of Pack: how many elements from the index on, in place of strides. The access to the target of a Pack is made up for the
  // visit: only its buffer is kept of what a visitor writes there.
  std::optional<std::int64_t> panels{};
  // Of a Map: the instruction, and the register of its predicate; -1 for none. A store leaves what was there where that is false.
  int instr = -1, predicate = -1;
};
using Use = BasicUse<const Access>;
using MutableUse = BasicUse<Access>;

// A variable that a statement sets, with its range; `trip` where it counts the points of an extent.
struct SetVariable {
  Var var;
  std::int64_t low, high;
  const Extent* trip = nullptr;
};

namespace detail {

template <class S, class T> inline constexpr bool is = std::is_same_v<std::remove_const_t<S>, T>;
template <class S, class T> using like = std::conditional_t<std::is_const_v<S>, const T, T>;

template <class M, class F> void each_access_of_map(M& map, const F& f) {
  // All points of a vector read before they write.
  for (const bool writes : {false, true})
    for (std::size_t i = 0; i < map.instrs.size(); ++i) {
      auto& in = map.instrs[i];
      if (in.kind != (writes ? Instr::Kind::Store : Instr::Kind::Load)) continue;
      f(BasicUse<like<M, Access>>{.access = &in.access,
                                  .dtype = in.dtype,
                                  .writes = writes,
                                  .instr = static_cast<int>(i),
                                  .predicate = in.args[writes ? 1 : 0]});
    }
}

template <class D, class F> void each_access_of_dot(D& dot, const F& f) {
  using U = BasicUse<like<D, Access>>;
  const DType factor = factor_dtype(dot);
  const std::int64_t lanes = lanes_of(dot.dtype), columns = divided_up(dot.n.bound, lanes) * lanes;
  for (auto& s : dot.segments) {
    U a{.access = &s.a, .dtype = factor, .writes = false, .strides = {{dot.m, &s.a_m}}};
    U b{.access = &s.b, .dtype = factor, .writes = false, .strides = {{dot.n, &s.b_n}}};
    for (auto& k : s.k) {
      a.strides.push_back({k.extent, &k.a_stride});
      b.strides.push_back({k.extent, &k.b_stride});
    }
    if (s.packed()) {
      b.strides.clear();
      b.panels = s.depth() * columns;
    }
    if (dot.in_blocks) {
      a.strides.clear();
      a.panels = s.depth() * divided_up(dot.m.bound, rows_of_blocks) * rows_of_blocks;
    }
    f(std::move(a));
    f(std::move(b));
  }
  if (dot.init)
    f(U{.access = &*dot.init,
        .dtype = dot.dtype,
        .writes = false,
        .strides = {{dot.m, &dot.init_m}, {dot.n, &dot.init_n}}});
  f(U{.access = &dot.c, .dtype = dot.dtype, .writes = true, .strides = {{dot.m, &dot.c_m}, {dot.n, &dot.c_n}}});
}

template <class P, class F> void each_access_of_pack(P& pack, const F& f) {
  using U = BasicUse<like<P, Access>>;
  f(U{.access = &pack.source,
      .dtype = pack.dtype,
      .writes = false,
      .strides = {{{pack.k}, &pack.k_stride}, {{pack.n}, &pack.n_stride}}});
  const std::int64_t lanes = lanes_of(pack.dtype);
  Access target{.buffer = pack.target, .index = 0, .indirect = {}};
  f(U{.access = &target, .dtype = pack.dtype, .writes = true, .panels = pack.k * divided_up(pack.n, lanes) * lanes});
  if constexpr (!std::is_const_v<P>) pack.target = target.buffer;
}

}  // namespace detail

// Calls on_access(use) for what the statement itself reads and writes and on_block(block) for the blocks in it, in the order in which they run;
// what one statement reads comes before what it writes.
template <class S, class OnAccess, class OnBlock>
void for_each_part(S& statement, const OnAccess& on_access, const OnBlock& on_block) {
  using namespace detail;
  if constexpr (is<S, Stmt>) {
    std::visit([&](auto& s) { for_each_part(s, on_access, on_block); }, statement.node);
  } else if constexpr (is<S, Map>) {
    each_access_of_map(statement, on_access);
  } else if constexpr (is<S, Dot>) {
    each_access_of_dot(statement, on_access);
  } else if constexpr (is<S, Pack>) {
    each_access_of_pack(statement, on_access);
  } else if constexpr (is<S, For>) {
    on_block(statement.test);
    if (statement.stop)
      on_access(BasicUse<like<S, Access>>{.access = &*statement.stop, .dtype = DType::Bool, .writes = false});
    on_block(statement.body);
  } else if constexpr (is<S, Let>) {
    if (!statement.number)
      on_access(BasicUse<like<S, Access>>{.access = &statement.source, .dtype = statement.dtype, .writes = false});
  } else if constexpr (is<S, Grid>) {
    on_block(statement.prologue);
    on_block(statement.body);
  } else if constexpr (is<S, Single>) {
    on_block(statement.body);
  } else if constexpr (is<S, Sections>) {
    for (auto& section : statement.sections) on_block(section.body);
  } else {
    static_assert(is<S, Barrier>);
  }
}

// What the statement itself reads and writes.
template <class S, class F> void for_each_access(S& statement, const F& f) {
  for_each_part(statement, f, [](auto&) {});
}
// The blocks in a statement.
template <class S, class F> void for_each_block(S& statement, const F& f) {
  for_each_part(
      statement, [](const auto&) {}, f);
}

// Calls f(statement), by its own type, for a statement, or all of a block, and for those inside it.
template <class S, class F> void for_each_statement(S& where, const F& f) {
  if constexpr (detail::is<S, Block>) {
    for (auto& stmt : where) for_each_statement(stmt, f);
  } else {
    std::visit(f, where.node);
    for_each_block(where, [&](auto& inside) { for_each_statement(inside, f); });
  }
}

// Into how many blocks of tiles a batch falls, at most: so many workers have some.
inline std::int64_t num_tile_blocks(const Program& program) {
  std::int64_t blocks = 0;
  for_each_statement(program.body, [&](const auto& s) {
    if constexpr (std::is_same_v<std::decay_t<decltype(s)>, Grid>) blocks = std::max(blocks, s.num_blocks);
  });
  return blocks;
}

// Calls f(SetVariable) for the variables that the statement sets, for itself and what is in it; those of Let live on after it.
template <class F> void for_each_variable(const Stmt& statement, const F& f) {
  const auto counter = [&](Var var, const Extent& trip) {
    f(SetVariable{var, 0, std::max<std::int64_t>(trip.bound - 1, 0), &trip});
  };
  if (const auto* map = std::get_if<Map>(&statement.node)) {
    for (const Dim& dim : map->dims) counter(dim.var, dim.extent);
  } else if (const auto* loop = std::get_if<For>(&statement.node)) {
    counter(loop->counter, loop->trip);
  } else if (const auto* let = std::get_if<Let>(&statement.node)) {
    f(SetVariable{let->var, let->low, let->high});
  } else if (const auto* grid = std::get_if<Grid>(&statement.node)) {
    f(SetVariable{grid->block, 0, grid->num_blocks - 1});
    f(SetVariable{grid->row0, 0, std::max<std::int64_t>(grid->total.bound - 1, 0)});
    f(SetVariable{grid->rows, 1, grid->tile_rows});
  } else if (const auto* all = std::get_if<Sections>(&statement.node)) {
    for (const Section& section : all->sections) {
      if (section.first >= 0) f(SetVariable{section.first, 0, std::max<std::int64_t>(all->trip - 1, 0)});
      if (section.steps >= 0) f(SetVariable{section.steps, 1, all->chunk});
    }
  }
}

// Calls f(index) for each index of the statement itself: those of its accesses, and of a Map and a Let those that it computes with.
template <class S, class F> void for_each_index(S& statement, const F& f) {
  if constexpr (detail::is<S, Stmt>) {
    std::visit([&](auto& s) { for_each_index(s, f); }, statement.node);
  } else {
    for_each_access(statement, [&](const auto& use) { f(use.access->index); });
    if constexpr (detail::is<S, Map>)
      for (auto& in : statement.instrs)
        if (in.kind == Instr::Kind::Index) f(in.access.index);
    if constexpr (detail::is<S, Let>)
      if (statement.number) f(*statement.number);
  }
}

// Calls f(extent) for each extent of the statement itself.
template <class S, class F> void for_each_extent(S& statement, const F& f) {
  using namespace detail;
  if constexpr (is<S, Stmt>) {
    std::visit([&](auto& s) { for_each_extent(s, f); }, statement.node);
  } else if constexpr (is<S, Map>) {
    for (auto& dim : statement.dims) f(dim.extent);
  } else if constexpr (is<S, Dot>) {
    f(statement.m);
    f(statement.n);
    for (auto& segment : statement.segments)
      for (auto& k : segment.k) f(k.extent);
  } else if constexpr (is<S, For>) {
    f(statement.trip);
  } else if constexpr (is<S, Grid>) {
    f(statement.total);
  }
}

// Puts `by` in the place of a variable in all indices of a block; replace(extent) is called for each extent that it counts.
template <class F> void replace_variable(Block& block, Var var, const Affine& by, const F& replace) {
  for_each_statement(block, [&](auto& statement) {
    for_each_index(statement, [&](Affine& index) { index = index.substituted(var, by); });
    for_each_extent(statement, [&](Extent& extent) {
      if (extent.var == var) replace(extent);
    });
  });
}

}  // namespace hotloop::kernel
