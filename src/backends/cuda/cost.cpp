#include "backends/cuda/cost.h"

#include <algorithm>
#include <type_traits>
#include <vector>

#include "backends/cuda/side_by_side.h"
#include "backends/render/dot_shape.h"
#include "core/index.h"
#include "core/memory.h"
#include "schedule/accesses.h"
#include "schedule/loop_facts.h"

namespace hotloop::cuda {
namespace {

using namespace kernel;

// In cycles of a multiprocessor, measured on an H100 statement by statement (docs/gpu.md): a block has few threads that wait for one another, so that
// what counts is how long each statement makes the others wait.
class Cycles {
 public:
  Cycles(const Program& program, std::int64_t rows, const DeviceInfo& device, int blocks)
      : program_(program),
        rows_(rows),
        blocks_(blocks),
        workers_(std::max(device.multiprocessors / blocks, 1)),
        near_room_(device.near_bytes) {}

  double of(const Block& block) {
    double cycles = 0;
    for (const Stmt& stmt : block) cycles += std::visit([this](const auto& s) { return of(s); }, stmt.node);
    return cycles;
  }

 private:
  static constexpr int threads = 256;
  static constexpr double a_statement_alone = 60, meeting_of_blocks = 700, an_operation = 5.5, an_operation_more = 4,
                          far = 350, a_barrier = 2500;

  double a_statement() const { return a_statement_alone + (blocks_ > 1 ? meeting_of_blocks : 0); }
  std::int64_t points(const Extent& e) const { return e.var == rows_var ? std::min(e.bound, rows_) : e.bound; }
  bool is_far(const Access& a) const { return !program_.buffers[static_cast<std::size_t>(a.buffer)].near; }

  double of(const Map& map) const {
    std::int64_t outer = 1, inner = 1;
    const int num_dims = static_cast<int>(map.dims.size());
    const bool in_lanes = map.vector_dim >= map.num_outer && map.num_outer < num_dims;
    for (int d = 0; d < num_dims; ++d) {
      const std::int64_t n = points(map.dims[static_cast<std::size_t>(d)].extent);
      if (d < map.num_outer)
        outer *= n;
      else
        inner *= d == map.vector_dim ? divided_up(n, map.lanes()) : n;
    }
    const std::int64_t at_once = blocks_ * threads / (in_lanes ? map.lanes() : 1) * (map.split ? workers_ : 1);
    const std::int64_t rounds = map.vector_dim < 0 ? outer : divided_up(outer, at_once);
    double operations = 0;
    bool waits = false;
    for (const Instr& in : map.instrs) {
      operations += in.kind == Instr::Kind::Op;
      waits = waits || (in.kind == Instr::Kind::Load && is_far(in.access));
    }
    constexpr double loads_at_once = 8;
    const double wait = waits ? far : 0, first = an_operation * operations + wait;
    if (num_dims > map.num_outer) {
      const double a_step = an_operation_more * (operations + 1) + (waits ? far / loads_at_once : 30 / 4.0);
      return a_statement() + static_cast<double>(rounds) * (100 + static_cast<double>(inner) * a_step);
    }
    return a_statement() + first + static_cast<double>(rounds - 1) * (an_operation_more * operations + wait / 4);
  }

  double of(const Dot& whole) const {
    const Dot dot = render::part_of(whole, render::parts_of_columns(whole, blocks_));
    constexpr std::int64_t staged = 17 << 10;  // and what the language takes
    std::vector<bool> stays;
    for (const DotSegment& s : dot.segments)
      stays.push_back(render::may_be_kept(dot, s) && std::ranges::any_of(loops_, [&](const LoopFacts& loop) {
                        return is_fixed(program_, loop, s.b);
                      }));
    const render::KeepingRoom room{render::most_registers_kept,
                                   std::max<std::int64_t>(near_room_ - program_.near_bytes - staged, 0)};
    const render::DotShape shape =
        render::choose_dot_shape(dot, std::max<std::int64_t>(points(dot.m), 1), threads, stays, room);
    double cycles = a_statement() + shape.cycles;
    for (const DotSegment& s : dot.segments) cycles += is_far(s.a) ? far : 60;
    return cycles;
  }

  double of(const Pack& pack) const {
    const std::int64_t at_once = blocks_ * threads * (pack.split ? workers_ : 1);
    return a_statement() + static_cast<double>(divided_up(pack.k * pack.n, at_once)) * far / 4;
  }
  double of(const For& loop) {
    constexpr std::int64_t few = 50;  // iterations that a condition may end
    const std::int64_t trips = loop.stop ? std::min(points(loop.trip), few) : points(loop.trip);
    const bool keeps = loop.trip.bound >= render::fewest_iterations_of_keeping;
    if (keeps) loops_.push_back(facts_of(loop));
    const double cycles = of(loop.test) + of(loop.body) + (loop.stop ? a_statement() : 0);
    if (keeps) loops_.pop_back();
    return static_cast<double>(trips) * cycles;
  }
  double of(const Let&) const { return far; }
  double of(const Grid& grid) {
    const std::int64_t tiles = divided_up(points(grid.total), grid.tile_rows),
                       tile_blocks = std::max<std::int64_t>(
                           divided_up(tiles, std::max<std::int64_t>(grid.tiles_per_block, 1)), 1);
    return static_cast<double>(divided_up(tile_blocks, workers_)) *
           (of(grid.prologue) + static_cast<double>(std::min(tiles, grid.tiles_per_block)) * of(grid.body));
  }
  double of(const Single& single) { return of(single.body); }
  double of(const Sections& all) {
    double cycles = 0;
    for (const Section& s : all.sections) cycles += of(s.body);
    return cycles;
  }
  double of(const Barrier&) const { return workers_ > 1 ? a_barrier : a_statement(); }

  const Program& program_;
  std::int64_t rows_;
  int blocks_;  // of a worker
  int workers_;
  std::int64_t near_room_;
  std::vector<LoopFacts> loops_;  // around
};

}  // namespace

double estimate_cycles(const Program& program, std::int64_t rows, const DeviceInfo& device, int blocks) {
  return Cycles(program, rows, device, blocks).of(program.body);
}

DeviceTime estimate_time(const Program& program, std::int64_t rows, const DeviceInfo& device) {
  constexpr double cycles_per_ns = 1.7, launch = 9000, a_copy = 12000, bytes_per_ns = 10;
  DeviceTime time;
  time.launch_ns = launch;
  time.kernel_ns =
      estimate_cycles(program, rows, device, choose_blocks(program, rows, device, device.blocks_of_worker)) /
      cycles_per_ns;
  time.copies_ns = 2 * a_copy + (total_bytes(program.arguments) + total_bytes(program.results)) / bytes_per_ns;
  return time;
}

double device_bytes(const Program& program) {
  return total_bytes(program.arguments) + total_bytes(program.results) + static_cast<double>(program.shared_bytes) +
         static_cast<double>(program.worker_bytes) * static_cast<double>(program.target.blocks_worth_having);
}

}  // namespace hotloop::cuda
