#include "schedule/time_chunks.h"

#include <algorithm>
#include <cstdint>
#include <map>
#include <optional>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

#include "core/index.h"
#include "schedule/accesses.h"
#include "schedule/footprint.h"
#include "schedule/loop_facts.h"

namespace hotloop::kernel {
namespace {

// What a chunk writes and its sums read has room for in the second cache of any processor, beside what else a step needs.
constexpr std::int64_t chunk_bytes = 192 << 10;
// Steps of a product in a chunk, at least, and bytes of what it reads for each byte of its sums: these come and go with each chunk.
constexpr std::int64_t fewest_steps_of_product = 96, bytes_for_one_of_sums = 2;

// Steps from `first` on, so many.
struct Chunk {
  Affine first;
  std::int64_t steps;
};

// Whether the Map does nothing but add sums to what lies where it stores them.
bool only_adds(const Map& map) {
  const auto& instrs = map.instrs;
  const auto is_sum = [&](int reg) {
    return instrs[at(reg)].kind == Instr::Kind::Reduced && combiner(instrs[at(reg)]) == ScalarOp::Add;
  };
  for (const Instr& in : instrs) {
    if (in.kind == Instr::Kind::Reduced && (combiner(in) != ScalarOp::Add || !is_float(in.dtype))) return false;
    if (in.kind != Instr::Kind::Store) continue;
    const Instr& add = instrs[at(in.args[0])];
    if (in.args[1] >= 0 || !in.access.indirect.empty() || add.kind != Instr::Kind::Op || add.op != ScalarOp::Add)
      return false;
    const auto is_there = [&](int reg) {
      const Instr& load = instrs[at(reg)];
      return load.kind == Instr::Kind::Load && load.args[0] < 0 && load.access.buffer == in.access.buffer &&
             load.access.indirect.empty() && load.access.index == in.access.index;
    };
    if (!(is_there(add.args[0]) && is_sum(add.args[1])) && !(is_there(add.args[1]) && is_sum(add.args[0])))
      return false;
    const auto is_read = [&](const Instr& body) {
      return body.kind == Instr::Kind::Load && body.access.buffer == in.access.buffer;
    };
    if (std::any_of(instrs.begin(), instrs.begin() + map.body_end, is_read)) return false;
  }
  return true;
}

// Dim of a Map's sums that counts the steps.
std::optional<int> dim_over(const Map& map, std::int64_t trip) {
  for (int d = map.num_outer; d < static_cast<int>(map.dims.size()); ++d)
    if (map.dims[at(d)].extent == Extent{trip, -1} && d != map.vector_dim) return d;
  return std::nullopt;
}

// Whether the statements of a loop, run one after the other for all of its iterations, leave the same.
bool are_apart(const For& loop) {
  std::vector<std::vector<Touch>> touches;
  for (const Stmt& stmt : loop.body) {
    For alone = loop;
    alone.body = {stmt};
    touches.push_back(touches_of(Stmt{std::move(alone)}));
    for (std::size_t i = 0; i + 1 < touches.size(); ++i)
      if (conflict(touches[i], touches.back())) return false;
  }
  return true;
}

// The sums of a chunk, of a statement that adds up what all steps have, or of a loop of such ones over the parts of a tile.
std::optional<Stmt> chunk_of(const Stmt& stmt, std::int64_t trip, const Chunk& chunk) {
  if (const auto* dot = std::get_if<Dot>(&stmt.node)) {
    if (!starts_from_c(*dot) || dot->pairs || dot->segments.size() != 1 || dot->segments[0].packed())
      return std::nullopt;
    const std::vector<KDim>& k = dot->segments[0].k;
    if (k.empty() || !k[0].extent.is_static() || k[0].extent.bound % trip != 0) return std::nullopt;
    const std::int64_t rows = k[0].extent.bound / trip;  // of a step
    Dot part = *dot;
    DotSegment& segment = part.segments[0];
    segment.k[0].extent.bound = chunk.steps * rows;
    segment.a.index = segment.a.index + chunk.first * (rows * k[0].a_stride);
    segment.b.index = segment.b.index + chunk.first * (rows * k[0].b_stride);
    return Stmt{std::move(part)};
  }
  if (const auto* map = std::get_if<Map>(&stmt.node)) {
    const std::optional<int> d = map->split || !only_adds(*map) ? std::nullopt : dim_over(*map, trip);
    if (!d) return std::nullopt;
    return Stmt{steps_of(*map, *d, chunk.first, {chunk.steps, -1})};
  }
  const For* parts = plain_loop(stmt);
  if (parts == nullptr) return std::nullopt;
  For part{
      .counter = parts->counter, .trip = parts->trip, .reverse = parts->reverse, .test = {}, .stop = {}, .body = {}};
  for (const Stmt& inside : parts->body) {
    const auto* let = std::get_if<Let>(&inside.node);
    auto of_chunk = let != nullptr && let->number ? inside : chunk_of(inside, trip, chunk);
    if (!of_chunk) return std::nullopt;
    part.body.push_back(std::move(*of_chunk));
  }
  if (!are_apart(*parts)) return std::nullopt;
  return Stmt{std::move(part)};
}

class TimeChunks {
 public:
  explicit TimeChunks(Program& program) : program_(program) {}

  void run() {
    for (Grid* grid : plain_grids(program_)) in_block(grid->body);
  }

 private:
  void in_block(Block& block) {
    for (std::size_t i = 0; i < block.size(); ++i) {
      const For* loop = plain_loop(block[i]);
      if (loop == nullptr) continue;
      const std::vector<std::size_t> sums = sums_after(block, i);
      const std::int64_t steps = sums.empty() ? 0 : steps_of_chunk(block, i, sums);
      if (steps == 0) continue;
      Block all = in_chunks(block, i, sums, steps);
      for (auto s = sums.rbegin(); s != sums.rend(); ++s) block.erase(block.begin() + static_cast<std::ptrdiff_t>(*s));
      block.erase(block.begin() + static_cast<std::ptrdiff_t>(i));
      const std::size_t count = all.size();
      block.insert(block.begin() + static_cast<std::ptrdiff_t>(i), std::make_move_iterator(all.begin()),
                   std::make_move_iterator(all.end()));
      i += count - 1;
    }
  }

  // Of the statements after the loop, those that may be cut into chunks with it and read what it writes.
  std::vector<std::size_t> sums_after(const Block& block, std::size_t begin) {
    const For& loop = *plain_loop(block[begin]);
    const std::int64_t trip = loop.trip.bound;
    const Var first = program_.new_var("first");
    const Chunk one{Affine::of(first), 1};
    const std::vector<Touch> of_loop = touches_of(Stmt{steps_of(loop, one.first, {one.steps, -1})}, first);
    std::vector<Touch> before = of_loop, between;
    std::vector<std::size_t> sums;
    // Cut into single steps, they meet only what is of the same step, or of one that came before: then so in any chunks.
    const auto follows = [&](const Touch& b, const Touch& a) {
      return (!a.writes && !b.writes) || follows_by_chunks(b, a, 1, trip, loop.reverse);
    };
    const auto reads_of = [&](const Touch& b) {
      return !b.writes && b.along != 0 &&
             std::ranges::any_of(of_loop, [&](const Touch& a) { return a.writes && a.buffer == b.buffer; });
    };
    for (std::size_t i = begin + 1; i < block.size(); ++i) {
      if (std::holds_alternative<Let>(block[i].node)) break;  // what follows may count by it
      const auto part = chunk_of(block[i], trip, one);
      const std::vector<Touch> touches = part ? touches_of(*part, first) : std::vector<Touch>{};
      const bool fits = part && std::ranges::any_of(touches, reads_of) && !conflict(touches_of(block[i]), between) &&
                        std::ranges::all_of(touches, [&](const Touch& b) {
                          return std::ranges::all_of(before, [&](const Touch& a) { return follows(b, a); });
                        });
      if (!fits) {
        const std::vector<Touch> all = touches_of(block[i]);
        between.insert(between.end(), all.begin(), all.end());
        continue;
      }
      sums.push_back(i);
      before.insert(before.end(), touches.begin(), touches.end());
    }
    program_.vars.pop_back();
    return sums;
  }

  // 0: the loop stays whole.
  std::int64_t steps_of_chunk(const Block& block, std::size_t begin, const std::vector<std::size_t>& sums) {
    const For& loop = *plain_loop(block[begin]);
    const std::int64_t trip = loop.trip.bound;
    const std::vector<Touch> of_loop = touches_of(block[begin]);
    // Of one part of a tile, which orders of sums may depend on.
    std::int64_t rows = 0, sum_bytes = 0;  // the first: of a step in the products
    std::map<int, std::int64_t> read;      // bytes of a step that the loop writes, by buffer
    const auto of_dot = [&](const Dot& dot) {
      const DotSegment& segment = dot.segments[0];
      const auto size = static_cast<std::int64_t>(size_of(dot.dtype)), all_rows = segment.depth() / trip;
      rows = std::max(rows, all_rows);
      sum_bytes += dot.m.bound * dot.n.bound * size;
      for (const auto& [factor, width] : {std::pair{&segment.a, dot.m.bound}, std::pair{&segment.b, dot.n.bound}}) {
        const auto is_there = [&](const Touch& t) { return t.writes && t.buffer == factor->buffer; };
        if (!std::ranges::any_of(of_loop, is_there)) continue;
        std::int64_t& bytes = read[factor->buffer];
        bytes = std::max(bytes, all_rows * width * size);
      }
    };
    for (const std::size_t i : sums) {
      const auto visit = [&](const auto& statement) {
        if constexpr (std::is_same_v<std::decay_t<decltype(statement)>, Dot>) of_dot(statement);
      };
      for_each_statement(block[i], visit);
    }
    std::int64_t step_bytes = 0;
    for (const auto& [buffer, bytes] : read) step_bytes += bytes;
    if (step_bytes == 0 || bytes_for_one_of_sums * sum_bytes > chunk_bytes) return 0;
    const std::int64_t most = chunk_bytes / step_bytes, fewest = divided_up(fewest_steps_of_product, rows);
    if (most >= trip || most < fewest) return 0;
    const std::int64_t even = divided_up(trip, divided_up(trip, most));
    // Rather all chunks of one length.
    for (std::int64_t steps = most; steps >= std::max(fewest, even / 2); --steps)
      if (trip % steps == 0) return steps;
    return even;
  }

  Block in_chunks(const Block& block, std::size_t begin, const std::vector<std::size_t>& sums, std::int64_t steps) {
    const For& loop = *plain_loop(block[begin]);
    const std::int64_t trip = loop.trip.bound, left = trip % steps;
    const auto chunk = [&](const Chunk& of) {
      Block body;
      body.push_back({steps_of(loop, of.first, {of.steps, -1})});
      for (const std::size_t i : sums) body.push_back(*chunk_of(block[i], trip, of));
      return body;
    };
    For chunks;
    chunks.counter = program_.new_var("chunk");
    chunks.trip = {trip / steps, -1};
    chunks.reverse = loop.reverse;
    chunks.body = chunk({Affine::of(chunks.counter, steps), steps});
    Block all, rest = left > 0 ? chunk({Affine(trip - left), left}) : Block{};
    if (loop.reverse) append(all, std::move(rest));
    all.push_back({std::move(chunks)});
    if (!loop.reverse) append(all, std::move(rest));
    return all;
  }

  Program& program_;
};

}  // namespace

void sum_by_chunks(Program& program) { TimeChunks(program).run(); }

}  // namespace hotloop::kernel
