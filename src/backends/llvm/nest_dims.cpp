#include "backends/llvm/nest_dims.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <optional>
#include <set>
#include <span>
#include <utility>

#include "core/index.h"

namespace hotloop::codegen {

using kernel::Instr;

namespace {

bool moves(const Instr& instr) { return instr.kind == Instr::Kind::Load || instr.kind == Instr::Kind::Store; }

std::int64_t stride_along(const MapNest& nest, int dim, const Instr& instr) {
  return instr.access.index.coefficient(nest.dims[static_cast<std::size_t>(dim)].var);
}

constexpr std::int64_t far_apart = 1 << 20;  // as a stride: no two numbers are near each other

bool is_stored_before(const MapNest& nest, std::size_t i) {
  const int buffer = nest.instrs[i].access.buffer;
  return std::ranges::any_of(std::span(nest.instrs).first(i), [&](const Instr& it) {
    return it.kind == Instr::Kind::Store && it.access.buffer == buffer;
  });
}

// By instruction, whether what it computes is the same at all points along the dims.
std::vector<bool> same_along(const MapNest& nest, const std::vector<int>& dims) {
  std::set<int> stored;
  for (const Instr& it : nest.instrs)
    if (it.kind == Instr::Kind::Store) stored.insert(it.access.buffer);
  std::vector<bool> same;
  for (std::size_t i = 0; i < nest.instrs.size(); ++i) {
    const Instr& it = nest.instrs[i];
    const auto is_same = [&](int reg) { return reg < 0 || same[static_cast<std::size_t>(reg)]; };
    bool here =
        static_cast<int>(i) < nest.body_end && it.kind != Instr::Kind::Store && std::ranges::all_of(it.args, is_same);
    const auto stays = [&](int dim) { return stride_along(nest, dim, it) == 0; };
    if (it.kind == Instr::Kind::Load || it.kind == Instr::Kind::Index) here = here && std::ranges::all_of(dims, stays);
    if (it.kind == Instr::Kind::Load) here = here && !stored.contains(it.access.buffer);
    for (const kernel::Indirect& term : it.access.indirect) here = here && is_same(term.reg);
    same.push_back(here);
  }
  return same;
}

bool is_looked_up(const Instr& it, const std::vector<bool>& same) {
  return std::ranges::any_of(it.access.indirect,
                             [&](const kernel::Indirect& term) { return !same[static_cast<std::size_t>(term.reg)]; });
}

// What is tried: the dims along which squares have their rows and their columns (-1 for no squares), and what is the same along these.
struct Trial {
  Trial(const MapNest& nest, int rows_dim, int columns_dim)
      : rows(rows_dim), columns(columns_dim), by_column(same_along(nest, {rows})) {
    if (columns < 0) return;
    std::vector<int> within = {columns};  // a row: what is summed, too
    for (int d = nest.num_outer; d < static_cast<int>(nest.dims.size()); ++d) within.push_back(d);
    by_row = same_along(nest, within);
  }
  int rows, columns;
  std::vector<bool> by_column, by_row;
};

// Whether the i-th instruction may move whole squares. Its rows lie anywhere, and may be left out; what says where and whether is the same for a row.
bool moves_squares(const MapNest& nest, std::size_t i, const Trial& trial) {
  const Instr& it = nest.instrs[i];
  const int predicate = it.kind == Instr::Kind::Load ? it.args[0] : it.args[1];
  if (lanes_of(it.dtype) != nest.lanes || is_looked_up(it, trial.by_row)) return false;
  if (predicate >= 0 && !trial.by_row[static_cast<std::size_t>(predicate)]) return false;
  if (it.kind == Instr::Kind::Load && is_stored_before(nest, i)) return false;
  // A square is read once, before the loops over what is summed.
  for (int d = nest.num_outer; d < static_cast<int>(nest.dims.size()); ++d)
    if (stride_along(nest, d, it) != 0) return false;
  const std::int64_t stride = is_looked_up(it, trial.by_column) ? far_apart : stride_along(nest, trial.rows, it);
  const std::int64_t extent = nest.dims[static_cast<std::size_t>(trial.columns)].extent;
  return pays_to_transpose(it.dtype, stride, stride_along(nest, trial.columns, it),
                           std::min<std::int64_t>(extent, nest.lanes));
}

std::vector<bool> squares_of(const MapNest& nest, const Trial& trial) {
  std::vector<bool> squares;
  for (std::size_t i = 0; i < nest.instrs.size(); ++i)
    squares.push_back(moves(nest.instrs[i]) && moves_squares(nest, i, trial));
  return squares;
}

// Of as many points as a vector has lanes, in accesses of whole vectors.
double cost_of(const MapNest& nest, const Trial& trial, bool masks_freely) {
  constexpr double a_gather = 20, near_numbers = 5, a_masked_store = 10;
  constexpr double a_turn = 6;  // moves between registers, to memory and back
  const double points = static_cast<double>(nest.dims[static_cast<std::size_t>(trial.rows)].extent), lanes = nest.lanes;
  const double filled = std::ceil(points / lanes) * lanes / points;  // vectors with empty lanes
  // Each row is an access more, each row that is written or is looked up two.
  const auto share_of_square = [&](const Instr& it) {
    const std::int64_t extent = nest.dims[static_cast<std::size_t>(trial.columns)].extent;
    const bool twice = it.kind == Instr::Kind::Store || !it.access.indirect.empty();
    return a_turn + (twice ? 2 : 1) * lanes / std::min(static_cast<double>(extent), lanes);
  };
  const auto waits_for_mask = [&](std::size_t i) {
    const Instr& it = nest.instrs[i];
    return it.kind == Instr::Kind::Store && it.args[1] >= 0 && !masks_freely && !nest.blends[i];
  };
  double cost = 0;
  for (std::size_t i = 0; i < nest.instrs.size(); ++i) {
    const Instr& it = nest.instrs[i];
    if (!moves(it)) continue;
    const std::int64_t stride =
        is_looked_up(it, trial.by_column) ? far_apart : std::abs(stride_along(nest, trial.rows, it));
    if (stride <= 1)
      cost += waits_for_mask(i) ? a_masked_store : filled;
    else if (trial.columns >= 0 && moves_squares(nest, i, trial))
      cost += filled * share_of_square(it);
    else
      cost += stride <= 4 ? near_numbers : a_gather;
  }
  return cost;
}

}  // namespace

void deal_lanes(MapNest& nest) {
  if (nest.vector_dim < nest.num_outer || nest.num_outer == 0) return;
  // In the body, then in what follows a sum, once for all that it takes in.
  const auto gathers = [&](int dim) {
    std::pair<int, int> count;
    for (std::size_t i = 0; i < nest.instrs.size(); ++i) {
      const std::int64_t stride = moves(nest.instrs[i]) ? stride_along(nest, dim, nest.instrs[i]) : 0;
      if (stride != 0 && stride != 1) ++(static_cast<int>(i) < nest.body_end ? count.first : count.second);
    }
    return count;
  };
  int best = nest.vector_dim;
  std::pair<int, int> fewest = gathers(best);
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

void choose_square(MapNest& nest, bool masks_freely) {
  constexpr double worth_it = 1.5;
  // What crosses rows has its vectors laid out already.
  if (nest.dealt_dim >= 0 || !nest.crossed.empty() || nest.lanes < 8) return;
  if (nest.vector_dim < 0 || nest.vector_dim >= nest.num_outer || nest.num_outer < 2) return;
  std::optional<Trial> best;
  double least = cost_of(nest, Trial(nest, nest.vector_dim, -1), masks_freely) / worth_it;
  for (int rows = 0; rows < nest.num_outer; ++rows)
    for (int columns = 0; columns < nest.num_outer; ++columns) {
      if (rows == columns || !nest.dims[static_cast<std::size_t>(columns)].is_static()) continue;
      if (nest.dims[static_cast<std::size_t>(rows)].extent < nest.lanes) continue;
      const Trial trial(nest, rows, columns);
      const std::vector<bool> squares = squares_of(nest, trial);
      if (std::ranges::find(squares, true) == squares.end()) continue;
      const double cost = cost_of(nest, trial, masks_freely);
      if (cost >= least) continue;
      least = cost;
      best = trial;
    }
  if (!best) return;
  nest.vector_dim = best->rows;
  nest.square_dim = best->columns;
  nest.squares = squares_of(nest, *best);
  nest.by_row = best->by_row;
}

bool sums_short_rows(const MapNest& nest) {
  constexpr std::int64_t longest = 8;
  const int rows = nest.vector_dim, numbers = rows + 1;
  if (rows < nest.num_outer || nest.dealt_dim >= 0 || numbers + 1 != static_cast<int>(nest.dims.size())) return false;
  const LoopDim& row = nest.dims[static_cast<std::size_t>(numbers)];
  if (nest.lanes == 1 || !row.is_static() || row.extent < 2 || row.extent > longest) return false;
  for (int i = 0; i < nest.body_end; ++i) {
    const Instr& it = nest.instr(i);
    if (!has_index(it)) continue;
    if (it.kind != Instr::Kind::Load || it.args[0] >= 0 || !it.access.indirect.empty()) return false;
    const AccessGroup& group = nest.groups[static_cast<std::size_t>(nest.uses[static_cast<std::size_t>(i)].group)];
    const std::int64_t by_number = group.coefficients[static_cast<std::size_t>(numbers)];
    if (by_number < 0 || by_number > 1) return false;
    if (group.coefficients[static_cast<std::size_t>(rows)] != by_number * row.extent) return false;
  }
  for (int r = nest.body_end; r < nest.finish; ++r) {
    if (nest.instr(r).dtype == DType::Bool) return false;  // bits, which are moved one by one
    for (const int arg : nest.instr(r).args)
      if (arg >= 0 && nest.uniform[static_cast<std::size_t>(arg)]) return false;
  }
  return true;
}

MapNest by_numbers(MapNest nest, const ModuleState& state) {
  const auto rows = static_cast<std::size_t>(nest.vector_dim);
  for (AccessGroup& group : nest.groups) group.coefficients[rows] = group.coefficients[rows + 1];
  nest.derive(state);
  return nest;
}

bool passes_rows_once(const MapNest& nest) {
  const bool sums_columns = nest.vector_dim < nest.num_outer && nest.finish > nest.body_end;
  if (!sums_columns || nest.lanes == 1 || nest.dealt_dim >= 0) return false;
  return std::ranges::any_of(std::span(nest.instrs).first(static_cast<std::size_t>(nest.body_end)),
                             [](const Instr& it) { return it.kind == Instr::Kind::Store; });
}

int vectors_beside_sums(const MapNest& nest, const ModuleState& state, int weight) {
  constexpr int longest = 256;
  const std::int64_t bytes = nest.lanes * bytes_of(nest.instr(nest.body_end).dtype), sums = nest.finish - nest.body_end;
  const std::int64_t room =
      state.num_registers() * 5 / 8 / std::max<std::int64_t>(bytes / state.register_bytes, 1) / sums;
  const std::int64_t vectors = divided_up(nest.dims[static_cast<std::size_t>(nest.vector_dim)].extent, nest.lanes);
  return static_cast<int>(
      std::max<std::int64_t>(std::min({room, vectors, std::int64_t{longest / std::max(weight, 1)}}), 1));
}

std::vector<bool> accesses_with_room(const MapNest& nest, const ModuleState& state) {
  std::vector<bool> has_room(nest.instrs.size(), false);
  if (nest.vector_dim < 0 || nest.square_dim >= 0) return has_room;
  const LoopDim& rows = nest.dims[static_cast<std::size_t>(nest.vector_dim)];
  if (rows.extent_var < 0 || rows.dealt || rows.extent % nest.lanes != 0) return has_room;
  for (std::size_t i = 0; i < has_room.size(); ++i) {
    const Instr& it = nest.instrs[i];
    if (!moves(it) || !it.access.indirect.empty()) continue;
    const AccessGroup& group = nest.groups[static_cast<std::size_t>(nest.uses[i].group)];
    has_room[i] = group.coefficients[static_cast<std::size_t>(nest.vector_dim)] != 0 &&
                  state.buffer(it.access.buffer).space == kernel::Space::Worker;
  }
  return has_room;
}

}  // namespace hotloop::codegen
