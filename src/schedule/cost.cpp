#include "schedule/cost.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <set>
#include <type_traits>
#include <vector>

#include "core/index.h"
#include "schedule/accesses.h"
#include "schedule/footprint.h"

namespace hotloop::kernel {
namespace {

constexpr double ns_per_cycle = 0.25;
constexpr double statement_ns = 4;  // a call of an outlined function, its loops' first and last iterations

class Estimate {
 public:
  Estimate(const Program& program, std::int64_t rows, int num_workers, const TeamCost& team)
      : program_(program),
        rows_(std::min(rows, program.max_rows)),
        num_workers_(num_workers),
        team_(team),
        registers_(program.target.vector_registers) {}

  double of(const Block& block) const {
    double ns = 0;
    for (const Stmt& stmt : block) ns += std::visit([this](const auto& s) { return of(s); }, stmt.node);
    return ns;
  }

 private:
  std::int64_t points(const Extent& extent) const { return extent.var == rows_var ? rows_ : extent.bound; }

  // Cycles of an instruction on a logical vector (or on one element, for lanes 1).
  double cycles(const Instr& instr, const Map& map, int lanes) const {
    constexpr double slow_op = 10, random_word = 30;
    const double wide = lanes == 1 ? 1 : registers_;
    switch (instr.kind) {
      case Instr::Kind::Const: return 0;
      case Instr::Kind::Load:
      case Instr::Kind::Store: {
        if (lanes == 1) return 0.5;
        if (!instr.access.indirect.empty()) return lanes;
        const Var along = map.dims[static_cast<std::size_t>(map.vector_dim)].var;
        const std::int64_t stride = instr.access.index.coefficient(along);
        return stride == 0 || stride == 1 ? wide : lanes;
      }
      case Instr::Kind::Op: break;
      default: return wide;
    }
    if (instr.op == ScalarOp::Div || instr.op == ScalarOp::Sqrt) return slow_op * wide;
    if (instr.op == ScalarOp::Random) return random_word * wide;
    return 0.5 * wide;
  }

  double of(const Map& map) const {
    const int lanes = map.vector_dim < 0 ? 1 : map.lanes();
    double outer = 1, inner = 1;  // vectors
    for (std::size_t d = 0; d < map.dims.size(); ++d) {
      std::int64_t n = points(map.dims[d].extent);
      if (static_cast<int>(d) == map.vector_dim) n = divided_up(n, lanes);
      (static_cast<int>(d) < map.num_outer ? outer : inner) *= static_cast<double>(n);
    }
    double body = 0, finish = 0;
    for (std::size_t i = 0; i < map.instrs.size(); ++i)
      (static_cast<int>(i) < map.body_end ? body : finish) += cycles(map.instrs[i], map, lanes);
    const double ns = (outer * inner * body + outer * finish) * ns_per_cycle;
    return statement_ns + (map.split && !alone_ ? ns / num_workers_ : ns);
  }

  double of(const Dot& dot) const {
    constexpr double fma_per_cycle = 1.5;  // of two, with loads and tails; pairs where the processor multiplies them
    double k = 0;
    for (const DotSegment& segment : dot.segments) {
      double steps = 1;
      for (const KDim& dim : segment.k) steps *= static_cast<double>(points(dim.extent));
      k += steps;
    }
    const int lanes = lanes_of(dot.dtype);
    const double m = static_cast<double>(points(dot.m)), n = static_cast<double>(points(dot.n));
    if (dot.in_blocks) {
      // By measurement (Granite Rapids): a block of B from the second cache beside its product, a block of C, and setting the registers up.
      constexpr double product_ns = 6, sums_ns = 10, begin_ns = 50;
      const double blocks = std::ceil(m / 16) * std::ceil(n / 16);
      return statement_ns + begin_ns + blocks * (k / steps_of_block * product_ns + sums_ns);
    }
    // The shorter way to fill vectors; what is stored costs as well.
    const double vectors = std::min(m * std::ceil(n / lanes), n * std::ceil(m / lanes));
    return statement_ns + vectors * (k + 2) / fma_per_cycle * registers_ * ns_per_cycle;
  }

  double of(const Pack& pack) const {
    const int lanes = lanes_of(pack.dtype);
    const auto vectors = static_cast<double>(pack.k * divided_up(pack.n, lanes));
    const double ns = vectors * (pack.n_stride == 1 ? registers_ : lanes) * ns_per_cycle;
    return statement_ns + (pack.split && !alone_ ? ns / num_workers_ : ns);
  }

  double of(const For& loop) const {
    constexpr std::int64_t few = 16;
    const std::int64_t trips = loop.stop ? std::min(points(loop.trip), few) : points(loop.trip);
    return statement_ns + static_cast<double>(trips) * (of(loop.test) + of(loop.body));
  }

  double of(const Let&) const { return 0; }
  double of(const Barrier&) const { return num_workers_ > 1 ? team_.join_ns : 0; }

  double of(const Single& single) const { return by_one(single.body); }

  // The worker with the most to do in each round.
  double of(const Sections& all) const {
    std::vector<double> chunk_ns;
    for (const Section& section : all.sections) chunk_ns.push_back(by_one(section.body));
    const std::int64_t rounds = all.num_rounds();
    double ns = num_workers_ > 1 ? static_cast<double>(rounds - 1) * team_.join_ns : 0;
    for (std::int64_t round = 0; round < rounds; ++round) {
      std::vector<double> busy(static_cast<std::size_t>(num_workers_));
      for (std::size_t i = 0; i < chunk_ns.size(); ++i) {
        const std::int64_t chunk = round - all.sections[i].delay;
        if (chunk >= 0 && chunk < all.num_chunks())
          busy[static_cast<std::size_t>(runner_of_section(static_cast<std::int64_t>(i), num_workers_))] += chunk_ns[i];
      }
      ns += *std::ranges::max_element(busy);
    }
    return ns;
  }

  // The worker with the most tiles.
  double of(const Grid& grid) const {
    const std::int64_t tiles = divided_up(points(grid.total), grid.tile_rows);
    const std::int64_t blocks = divided_up(tiles, grid.tiles_per_block);  // others run their prologue alone
    const std::int64_t rounds = divided_up(blocks, num_workers_);
    const std::int64_t most_tiles = std::min(tiles, rounds * grid.tiles_per_block);
    const std::int64_t prologues = divided_up(grid.num_blocks, num_workers_);
    return static_cast<double>(prologues) * by_one(grid.prologue) + static_cast<double>(most_tiles) * of_tile(grid);
  }

  // Where rows stream, a round for each time that they fill the slots.
  double of_tile(const Grid& grid) const {
    if (grid.slots == 0) return by_one(grid.body);
    const For& rounds = std::get<For>(grid.body.back().node);
    return static_cast<double>(divided_up(grid.tile_rows, grid.slots)) * by_one(rounds.body);
  }

  double by_one(const Block& block) const {
    Estimate inner = *this;
    inner.alone_ = true;
    return inner.of(block);
  }

  const Program& program_;
  std::int64_t rows_;
  int num_workers_;
  TeamCost team_;
  double registers_;  // hardware vectors of a logical one
  bool alone_ = false;
};

// What of the shared arena several workers touch. Grids and split maps deal out anything; a program that has sections says more.
class Exchange {
 public:
  Exchange(const Program& program, int num_workers) : program_(program), num_workers_(num_workers) {
    block(program.body, everybody);
  }
  double ns(const TeamCost& team) const {
    if (!any_sections_) return team.shared_ns_per_byte * static_cast<double>(program_.shared_bytes);
    double total = 0;
    for (const auto& [buffer, workers] : workers_) {
      const Buffer& b = program_.buffers[static_cast<std::size_t>(buffer)];
      if (b.space != Space::Shared) continue;
      const auto bytes = static_cast<double>(bytes_of(b));
      const bool is_divided = workers.contains(everybody);
      if (in_grids_.contains(buffer))
        total += team.shared_ns_per_byte * bytes;
      else if (workers.size() > (is_divided ? 2U : 1U))
        total += team.passed_ns_per_byte * bytes;
      else if (is_divided)  // each keeps a share
        total += team.passed_ns_per_byte * bytes * (num_workers_ - 1) / num_workers_;
    }
    return total;
  }

 private:
  static constexpr std::int64_t everybody = -1;
  void touch(const Block& statements, std::int64_t worker) {
    for (const Touch& t : touches_of(statements)) workers_[t.buffer].insert(worker);
  }
  void block(const Block& statements, std::int64_t worker) {
    for (const Stmt& stmt : statements) {
      if (const auto* single = std::get_if<Single>(&stmt.node)) {
        touch(single->body, 0);
      } else if (const auto* all = std::get_if<Sections>(&stmt.node)) {
        any_sections_ = true;
        for (std::size_t i = 0; i < all->sections.size(); ++i)
          touch(all->sections[i].body, runner_of_section(static_cast<std::int64_t>(i), num_workers_));
      } else if (const auto* loop = std::get_if<For>(&stmt.node)) {
        for_each_part(
            *loop, [&](const Use& use) { workers_[use.access->buffer].insert(worker); },
            [&](const Block& inside) { block(inside, worker); });
      } else {
        for (const Touch& t : touches_of(stmt)) {
          workers_[t.buffer].insert(worker);
          if (std::holds_alternative<Grid>(stmt.node)) in_grids_.insert(t.buffer);
        }
      }
    }
  }

  const Program& program_;
  int num_workers_;
  bool any_sections_ = false;
  std::map<int, std::set<std::int64_t>> workers_;  // by buffer
  std::set<int> in_grids_;
};

}  // namespace

double estimate_time_ns(const Program& program, std::int64_t rows, int num_workers, const TeamCost& team) {
  const double together = num_workers > 1 ? team.wake_ns + Exchange(program, num_workers).ns(team) : 0;
  return together + Estimate(program, rows, num_workers, team).of(program.body);
}

double estimate_ns(const Program& program, const Block& block) {
  return Estimate(program, program.max_rows, 1, {}).of(block);
}

int best_num_workers(const Program& program, std::int64_t rows, int most, const TeamCost& team) {
  constexpr double worth_it = 0.9;  // estimates are rough, and cores have other work
  int best = 1;
  double least = estimate_time_ns(program, rows, 1, team) * worth_it;
  for (int workers = 2; workers <= most; ++workers) {
    // With many cores not every number is tried: rounds of blocks change seldom.
    if (workers > 8 && workers % 4 != 0 && workers != most) continue;
    if (const double ns = estimate_time_ns(program, rows, workers, team); ns < least) {
      best = workers;
      least = ns;
    }
  }
  return best;
}

}  // namespace hotloop::kernel
