#include "backends/render/dot_shape.h"

#include <algorithm>
#include <limits>

#include "core/index.h"

namespace hotloop::render {

using namespace kernel;

namespace {

// Where a step of a sum finds its right factors.
enum class Right { There, Near, Register };

// What a multiprocessor does in a step of the sum: it reads a row's factor once for all threads of a warp, a column's for each, 32 words at a time. Each of
// its schedulers adds a warp's products one after the other; what a warp waits for it hides behind others.
double cycles_of_step(const RegisterTile& tile, std::int64_t m, std::int64_t n, DType dtype, int threads, Right right) {
  constexpr double warp = 32, schedulers = 4, read_ahead = 4, counting = 1.3, latency = 3, after_a_sum = 4;
  const double words = static_cast<double>(size_of(dtype)) / 4;
  const std::int64_t items = divided_up(m, tile.rows) * divided_up(n, tile.columns),
                     rounds = divided_up(items, threads);
  const double warps = static_cast<double>(std::min<std::int64_t>(items, threads)) / warp;
  const double turns = std::max(1.0, warps / schedulers);
  const bool reads = right != Right::Register;
  const double lines = warps * words * ((reads ? tile.columns : 0) + tile.rows / 8.0);
  const double instructions =
      turns * ((reads ? 1 + counting : 0) + tile.rows / read_ahead + words * tile.rows * tile.columns);
  // What is kept is there when it is wanted: only the sum before is waited for.
  const double waiting = right == Right::There ? instructions + latency / turns : std::max(instructions, after_a_sum);
  return static_cast<double>(rounds) * std::max(lines, waiting);
}

template <class Visit> void for_each_tile(std::int64_t m, std::int64_t n, const Visit& visit) {
  constexpr int most_sums = 32;
  for (const int rows : {1, 2, 3, 4, 6, 8})
    for (const int columns : {1, 2, 4})
      if (rows * columns <= most_sums && (rows == 1 || rows <= m) && (columns == 1 || columns <= n))
        visit(RegisterTile{rows, columns});
}

}  // namespace

std::int64_t near_bytes_of(std::int64_t bytes) { return divided_up(bytes, 16) * 16; }

RegisterTile choose_register_tile(std::int64_t m, std::int64_t n, DType dtype, int threads) {
  RegisterTile best;
  double least = std::numeric_limits<double>::infinity();
  for_each_tile(m, n, [&](const RegisterTile& tile) {
    const double cycles = cycles_of_step(tile, m, n, dtype, threads, Right::There);
    if (cycles >= least) return;
    least = cycles;
    best = tile;
  });
  return best;
}

int parts_of_columns(const Dot& dot, int blocks) {
  while (blocks > 1 && dot.n.bound % blocks != 0) blocks /= 2;
  return blocks;
}

Dot part_of(const Dot& dot, int parts) {
  Dot part = dot;
  part.n.bound /= parts;
  return part;
}

bool has_columns_of_its_own(const Dot& dot, int columns, int threads) {
  if (rows_go_first(dot)) return false;
  const std::int64_t groups = divided_up(dot.n.bound, columns);
  return threads % groups == 0 || groups * dot.m.bound <= threads;
}

DotShape choose_dot_shape(const Dot& dot, std::int64_t m, int threads, const std::vector<bool>& stays,
                          const KeepingRoom& room) {
  // Words of four steps are read of a row.
  constexpr std::int64_t steps_at_once = 4;
  // What no first cache holds comes at the rate of the second one.
  constexpr double first_cache = 128 << 10, bytes_a_cycle = 40;
  const std::int64_t n = dot.n.bound;
  const auto size = static_cast<std::int64_t>(size_of(factor_dtype(dot)));
  const bool may_keep = std::ranges::find(stays, true) != stays.end();
  const auto shaped = [&](const RegisterTile& tile) {
    DotShape shape{tile, std::vector<KeptSteps>(dot.segments.size())};
    const auto cycles = [&](Right right) { return cycles_of_step(tile, m, n, dot.dtype, threads, right); };
    KeepingRoom left = room;
    if (!has_columns_of_its_own(dot, tile.columns, threads)) left.registers = 0;
    const auto whole = [](std::int64_t steps) { return steps / steps_at_once * steps_at_once; };
    double far_steps = 0, bytes = 0;
    for (std::size_t i = 0; i < dot.segments.size(); ++i) {
      const std::int64_t depth = dot.segments[i].depth();
      KeptSteps& kept = shape.kept[i];
      if (stays[i]) {
        const std::int64_t in_register = tile.columns * size / 4;
        kept.in_registers = std::min(depth, left.registers / in_register);
        if (kept.in_registers < depth) kept.in_registers = whole(kept.in_registers);
        kept.near = std::min(depth - kept.in_registers, left.near_bytes / (n * size));
        if (kept.all() < depth) kept.near = whole(kept.near);
        left.registers -= kept.in_registers * in_register;
        left.near_bytes -= near_bytes_of(kept.near * n * size);
      }
      const auto rest = static_cast<double>(depth - kept.all());
      far_steps += rest;
      bytes += rest * static_cast<double>(n * size);
      shape.cycles += static_cast<double>(kept.in_registers) * cycles(Right::Register) +
                      static_cast<double>(kept.near) * cycles(Right::Near);
    }
    double far_cycles = far_steps * cycles(Right::There);
    if (bytes > first_cache) far_cycles += bytes / bytes_a_cycle;
    shape.cycles += far_cycles;
    return shape;
  };
  if (!may_keep) return shaped(choose_register_tile(m, n, dot.dtype, threads));
  DotShape best;
  best.cycles = std::numeric_limits<double>::infinity();
  for_each_tile(m, n, [&](const RegisterTile& tile) {
    if (DotShape shape = shaped(tile); shape.cycles < best.cycles) best = std::move(shape);
  });
  return best;
}

KeepingRoom kept_by(const Dot& dot, const DotShape& shape) {
  const auto size = static_cast<std::int64_t>(size_of(factor_dtype(dot)));
  KeepingRoom room;
  for (const KeptSteps& kept : shape.kept) {
    room.registers += kept.in_registers * shape.tile.columns * size / 4;
    room.near_bytes += near_bytes_of(kept.near * dot.n.bound * size);
  }
  return room;
}

DotSegment merged(DotSegment s, bool dense) {
  if (dense) {
    std::int64_t stride = 1;
    for (std::size_t d = s.k.size(); d-- > 0; stride *= s.k[d].extent.bound) s.k[d].a_stride = stride;
  }
  for (std::size_t d = s.k.size(); d-- > 1;) {
    const KDim inner = s.k[d], outer = s.k[d - 1];
    const std::int64_t n = inner.extent.bound;
    if (!inner.extent.is_static() || !outer.extent.is_static() || outer.a_stride != n * inner.a_stride) continue;
    if (!s.packed() && outer.b_stride != n * inner.b_stride) continue;
    s.k[d - 1] = {{n * outer.extent.bound}, inner.a_stride, inner.b_stride};
    s.k.erase(s.k.begin() + static_cast<std::ptrdiff_t>(d));
  }
  return s;
}

}  // namespace hotloop::render
