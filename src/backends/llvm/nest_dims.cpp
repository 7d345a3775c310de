#include "backends/llvm/nest_dims.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>

namespace hotloop::codegen {

using kernel::Instr;

namespace {

bool moves(const Instr& instr) { return instr.kind == Instr::Kind::Load || instr.kind == Instr::Kind::Store; }

std::int64_t stride_along(const MapNest& nest, int dim, const Instr& instr) {
  return instr.access.index.coefficient(nest.dims[static_cast<std::size_t>(dim)].var);
}

bool is_stored_before(const MapNest& nest, std::size_t i) {
  return std::any_of(nest.instrs.begin(), nest.instrs.begin() + static_cast<std::ptrdiff_t>(i), [&](const Instr& it) {
    return it.kind == Instr::Kind::Store && it.access.buffer == nest.instrs[i].access.buffer;
  });
}

// Whether the i-th instruction may move whole squares of `rows` and `columns`.
bool moves_squares(const MapNest& nest, std::size_t i, int rows, int columns) {
  const Instr& it = nest.instrs[i];
  const int predicate = it.kind == Instr::Kind::Load ? it.args[0] : it.args[1];
  if (predicate >= 0 || lanes_of(it.dtype) != nest.lanes) return false;
  if (it.kind == Instr::Kind::Load && is_stored_before(nest, i)) return false;
  // A square is read once, before the loops over what is summed.
  for (int d = nest.num_outer; d < static_cast<int>(nest.dims.size()); ++d)
    if (stride_along(nest, d, it) != 0) return false;
  return pays_to_transpose(it.dtype, stride_along(nest, rows, it), stride_along(nest, columns, it),
                           std::min<std::int64_t>(nest.dims[static_cast<std::size_t>(columns)].extent, nest.lanes));
}

std::vector<bool> squares_of(const MapNest& nest, int rows, int columns) {
  std::vector<bool> squares;
  for (std::size_t i = 0; i < nest.instrs.size(); ++i)
    squares.push_back(moves(nest.instrs[i]) && moves_squares(nest, i, rows, columns));
  return squares;
}

// Of as many points as a vector has lanes, in accesses of whole vectors; columns -1 for none.
double cost_of(const MapNest& nest, int rows, int columns) {
  constexpr double a_gather = 20, near_numbers = 5,
                   a_turn = 6;  // the last: moves between registers, to memory and back
  const double points = static_cast<double>(nest.dims[static_cast<std::size_t>(rows)].extent), lanes = nest.lanes;
  const double filled = std::ceil(points / lanes) * lanes / points;  // vectors with empty lanes
  const auto share_of_square = [&](const Instr& it) {  // each row is an access more, each row that is written two
    const std::int64_t extent = nest.dims[static_cast<std::size_t>(columns)].extent;
    return a_turn + (it.kind == Instr::Kind::Store ? 2 : 1) * lanes / std::min(static_cast<double>(extent), lanes);
  };
  double cost = 0;
  for (std::size_t i = 0; i < nest.instrs.size(); ++i) {
    const Instr& it = nest.instrs[i];
    if (!moves(it)) continue;
    const std::int64_t stride = std::abs(stride_along(nest, rows, it));
    if (stride <= 1)
      cost += filled;
    else if (columns >= 0 && moves_squares(nest, i, rows, columns))
      cost += filled * share_of_square(it);
    else
      cost += stride <= 4 ? near_numbers : a_gather;
  }
  return cost;
}

}  // namespace

void deal_lanes(MapNest& nest) {
  if (nest.vector_dim < nest.num_outer || nest.num_outer == 0) return;
  const auto gathers = [&](int dim) {
    return std::ranges::count_if(nest.instrs, [&](const Instr& it) {
      const std::int64_t stride = moves(it) ? stride_along(nest, dim, it) : 0;
      return stride != 0 && stride != 1;
    });
  };
  int best = nest.vector_dim;
  std::int64_t fewest = gathers(best);
  for (int d = 0; d < nest.num_outer; ++d) {
    const LoopDim& dim = nest.dims[static_cast<std::size_t>(d)];
    if (dim.dealt || dim.extent * 2 < nest.lanes || gathers(d) >= fewest) continue;
    best = d;
    fewest = gathers(d);
  }
  if (best == nest.vector_dim) return;
  nest.dealt_dim = nest.vector_dim;
  nest.vector_dim = best;
}

void choose_square(MapNest& nest) {
  constexpr double worth_it = 1.5;
  if (nest.dealt_dim >= 0 || nest.period > 1 || nest.lanes < 8) return;
  if (nest.vector_dim < 0 || nest.vector_dim >= nest.num_outer) return;
  // Along which dims places that are looked up are neighbours is not known here.
  if (std::ranges::any_of(nest.instrs, [](const Instr& it) { return moves(it) && !it.access.indirect.empty(); }))
    return;
  int best_rows = -1, best_columns = -1;
  double least = cost_of(nest, nest.vector_dim, -1) / worth_it;
  for (int rows = 0; rows < nest.num_outer; ++rows)
    for (int columns = 0; columns < nest.num_outer; ++columns) {
      if (rows == columns || !nest.dims[static_cast<std::size_t>(columns)].is_static()) continue;
      if (nest.dims[static_cast<std::size_t>(rows)].extent < nest.lanes) continue;
      const std::vector<bool> squares = squares_of(nest, rows, columns);
      if (std::ranges::find(squares, true) == squares.end()) continue;
      const double cost = cost_of(nest, rows, columns);
      if (cost >= least) continue;
      least = cost;
      best_rows = rows;
      best_columns = columns;
    }
  if (best_columns < 0) return;
  nest.vector_dim = best_rows;
  nest.square_dim = best_columns;
  nest.squares = squares_of(nest, best_rows, best_columns);
}

}  // namespace hotloop::codegen
