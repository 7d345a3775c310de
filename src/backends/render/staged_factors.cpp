#include "backends/render/staged_factors.h"

#include <algorithm>
#include <utility>

#include "backends/render/renderer.h"
#include "core/index.h"

namespace hotloop::render {

using namespace kernel;

namespace {

constexpr std::int64_t few_columns = 8;
constexpr std::int64_t most_bytes_now = 16 << 10;

bool has_static_steps(const DotSegment& s) {
  return std::ranges::all_of(s.k, [](const KDim& k) { return k.extent.is_static(); });
}

// Rows of so many numbers, apart enough for words of 16 bytes and other banks.
std::int64_t padded_row(std::int64_t depth, std::size_t size) {
  const std::int64_t widest = 16 / static_cast<std::int64_t>(size);
  return depth % widest == 0 ? depth + widest : depth | 1;
}

// Whether the rows of the left factor lie one after the other without gaps, each along the sum.
bool is_dense(const Dot& dot, const DotSegment& s) {
  std::int64_t stride = 1;
  for (std::size_t d = s.k.size(); d-- > 0; stride *= s.k[d].extent.bound)
    if (s.k[d].a_stride != stride && s.k[d].extent.bound > 1) return false;
  return s.a_m == stride || dot.m.bound == 1;
}

// Whether the Map's stores to the buffer are numbers of the left factor that are not yet written; they are from then on.
bool writes_more(const Map& map, const Dot& dot, const DotSegment& s, std::vector<char>& is_written) {
  const std::int64_t depth = s.depth(), numbers = dot.m.bound * depth;
  std::int64_t points = 1;
  for (int d = 0; d < map.num_outer; ++d) {
    const Dim& dim = map.dims[static_cast<std::size_t>(d)];
    points *= dim.extent.bound;
    if (points > numbers || (!dim.extent.is_static() && dim.extent != dot.m)) return false;
  }
  for (const Instr& in : map.instrs) {
    if (in.kind != Instr::Kind::Store || in.access.buffer != s.a.buffer) continue;
    if (in.args[1] >= 0 || !in.access.indirect.empty() || in.dtype != factor_dtype(dot)) return false;
    const Affine offset = in.access.index + s.a.index * -1;
    std::vector<std::pair<std::int64_t, std::int64_t>> steps;  // coefficient, extent
    std::size_t own = 0;
    for (int d = 0; d < map.num_outer; ++d) {
      const Dim& dim = map.dims[static_cast<std::size_t>(d)];
      const std::int64_t by = offset.coefficient(dim.var);
      own += by != 0;
      if (!dim.extent.is_static() && by != depth) return false;
      steps.emplace_back(by, dim.extent.bound);
    }
    if (own != offset.terms.size()) return false;
    for (std::int64_t p = 0; p < points; ++p) {
      std::int64_t at = offset.constant, rest = p;
      for (const auto& [by, extent] : steps) {
        at += by * (rest % extent);
        rest /= extent;
      }
      if (at < 0 || at >= numbers || is_written[static_cast<std::size_t>(at)]) return false;
      is_written[static_cast<std::size_t>(at)] = 1;
    }
  }
  return true;
}

bool writes(const Stmt& stmt, int buffer) {
  bool found = false;
  for_each_part(
      stmt, [&](const Use& use) { found = found || (use.writes && use.access->buffer == buffer); },
      [&](const Block& inside) {
        found = found || std::ranges::any_of(inside, [&](const Stmt& inner) { return writes(inner, buffer); });
      });
  return found;
}

}  // namespace

StagedFactorsWriter::StagedFactorsWriter(const Program& program, const Dialect& dialect, const WorkerShape& worker)
    : KeptFactorsWriter(program, dialect, worker) {
  constexpr std::int64_t of_its_own = 1 << 10;  // what the language and the meeting of blocks take
  // Which segments of a Dot are staged now, and so which of them have room, is known when the loop around it is.
  for_each_statement(program.body, [&](const auto& s) {
    if constexpr (std::is_same_v<std::decay_t<decltype(s)>, Dot>) {
      Dot full = s;
      make_full(full);
      std::int64_t bytes = 0;
      for (const DotSegment& segment : full.segments) bytes += bytes_now(full, segment);
      most_staged_ = std::max(most_staged_, std::min(bytes, most_bytes_now));
    }
  });
  keep_in(near_begin(), worker.near_room - of_its_own - near_begin());
}

std::int64_t StagedFactorsWriter::bytes_now(const Dot& dot, const DotSegment& s) const {
  if (!is_far(s.a) || dot.n.bound < few_columns || !has_static_steps(s)) return 0;
  const std::size_t size = size_of(factor_dtype(dot));
  return s.depth() == 0 ? 0
                        : near_bytes_of(dot.m.bound * padded_row(s.depth(), size) * static_cast<std::int64_t>(size));
}

StagedFactorsWriter::StagedFactors StagedFactorsWriter::staged_factors(const Dot& dot) const {
  StagedFactors all{std::vector<Staged>(dot.segments.size())};
  if (const auto found = before_begin_.find(statement_); statement_ != nullptr && found != before_begin_.end())
    all.of_segments = found->second;
  for (std::size_t i = 0; i < dot.segments.size(); ++i) {
    if (all.of_segments[i].is_staged()) continue;
    const DotSegment& s = dot.segments[i];
    const std::int64_t bytes = bytes_now(dot, s);
    if (bytes == 0 || all.bytes + bytes > most_bytes_now) continue;
    all.of_segments[i] = {Staged::When::Now, p_.near_bytes + all.bytes,
                          padded_row(s.depth(), size_of(factor_dtype(dot)))};
    all.bytes += bytes;
  }
  return all;
}

std::string StagedFactorsWriter::index_of_step(const std::vector<KDim>& k, bool left, const std::string& step) {
  std::string index, rest = step;
  for (std::size_t d = k.size(); d-- > 0;) {
    const std::string n = extent(k[d].extent), place = d == 0 ? rest : "(" + rest + " % " + n + ")";
    const std::int64_t stride = left ? k[d].a_stride : k[d].b_stride;
    if (stride != 0) index += " + " + scaled(stride, place);
    rest = "(" + rest + " / " + n + ")";
  }
  return index;
}

// The text for number p of a left factor: its place (m, k), and where it comes from.
struct StagedFactorsWriter::Places {
  std::string set, from, count;
};

StagedFactorsWriter::Places StagedFactorsWriter::places_of(const Dot& dot, const DotSegment& s) const {
  const std::string it = index_type(), depth = number(s.depth()), m_end = extent(dot.m);
  // Neighbouring threads read side by side.
  const bool rows_first = s.a_m == 1 && (s.k.empty() || s.k.back().a_stride != 1);
  const std::string at = scaled(s.a_m, "m") + index_of_step(s.k, true, "k");
  return {rows_first ? "const " + it + " m = p % (" + m_end + "), k = p / (" + m_end + ");"
                     : "const " + it + " k = p % " + depth + ", m = p / " + depth + ";",
          "(" + pointer(s.a) + ")[" + at + "]", "(" + m_end + ") * " + depth};
}

void StagedFactorsWriter::render_staging(const Dot& dot, const StagedFactors& staged) {
  const std::string t = type(factor_dtype(dot)), it = index_type();
  for (std::size_t i = 0; i < dot.segments.size(); ++i) {
    const Staged& at = staged.of_segments[i];
    if (at.when != Staged::When::Now) continue;
    const DotSegment& s = dot.segments[i];
    const Places places = places_of(dot, s);
    const std::string to = "to[" + scaled(at.row, "m") + " + k] = ";
    const std::int64_t step = dot.m.bound * s.depth() <= threads_ ? step_ahead(s.a) : 0;
    open("");
    line(t + "* const to = (" + t + "*)(near + " + number(at.begin) + ");");
    if (step != 0) {
      const std::string p = "const " + it + " p = hl_block_thread();\n  if (p < " + places.count + ") { " + places.set;
      const std::string next = carried_register(factor_dtype(dot), "  " + p + " $next = " + places.from + "; }\n");
      line("const " + it + " p = hl_block_thread();");
      open("if (p < " + places.count + ")");
      line(places.set);
      line(to + next + ";");
      line(next_read(next, places.from, step));
    } else {
      open("for (" + it + " p = hl_block_thread(); p < " + places.count + "; p += HL_BLOCK_THREADS)");
      line(places.set);
      line(to + places.from + ";");
    }
    close();
    close();
  }
  line("hl_block_sync();");
}

void StagedFactorsWriter::stage_in_loop(const For& loop) {
  for (std::size_t place = 0; place < loop.body.size(); ++place) {
    const auto* dot = std::get_if<Dot>(&loop.body[place].node);
    if (dot == nullptr || dot->m.bound == 0 || dot->n.bound < few_columns) continue;
    statement_ = &loop.body[place];
    std::vector<Staged> staged(dot->segments.size());
    for (std::size_t i = 0; i < dot->segments.size(); ++i) {
      const DotSegment& s = dot->segments[i];
      if (!is_far(s.a) || !s.a.indirect.empty() || !has_static_steps(s) || s.depth() == 0) continue;
      if (!stage_before(loop, *dot, i, staged[i])) stage_as_written(loop, place, *dot, i, staged[i]);
    }
    before_begin_.emplace(statement_, std::move(staged));
  }
}

// Each thread has a number at most: it carries the one after the next in a register. The last threads do, for the first ones have what small statements
// leave to few.
bool StagedFactorsWriter::stage_before(const For& loop, const Dot& dot, std::size_t segment, Staged& staged) {
  const DotSegment& s = dot.segments[segment];
  const std::int64_t step = step_ahead(s.a), row = padded_row(s.depth(), size_of(factor_dtype(dot)));
  if (step == 0 || dot.m.bound * s.depth() > threads_) return false;
  const auto begin = keep_near(loop, dot.m.bound * row * static_cast<std::int64_t>(size_of(factor_dtype(dot))));
  if (!begin) return false;
  staged = {Staged::When::Before, *begin, row};
  const std::string t = type(factor_dtype(dot)), it = index_type(), counter = var(loop.counter);
  const LoopAround& around = loops_.back();
  const Places places = places_of(dot, s);
  const std::string after_next = loop.reverse ? counter + " > 1" : counter + " + 2 < " + extent(loop.trip);
  constexpr std::int64_t warp = 32;
  const std::int64_t first = threads_ - divided_up(dot.m.bound * s.depth(), warp) * warp;
  const std::string set_p = "const " + it + " p = hl_block_thread()" + (first > 0 ? " - " + number(first) : "") + ";";
  const std::string has_number = (first > 0 ? "p >= 0 && p < " : "p < ") + places.count;
  const auto to = [&](const std::string& value) {
    return "((" + t + "*)(near + " + number(*begin) + "))[" + scaled(row, "m") + " + k] = " + value + ";";
  };
  const std::string next =
      carried_register(factor_dtype(dot), "  " + set_p + "\n  if (" + has_number + ") {\n    " + places.set + "\n    " +
                                              to(places.from) + "\n    if (" + around.has_next + ") $next = (&" +
                                              places.from + ")[" + number(step) + "];\n  }\n");
  loops_.back().before += "hl_block_sync();\n";
  std::string outside = std::exchange(out_, "");
  open("");
  line(set_p);
  open("if (" + has_number + " && " + around.has_next + ")");
  line(places.set);
  line(to(next));
  line("if (" + after_next + ") " + next + " = (&" + places.from + ")[" + number(2 * step) + "];");
  close();
  close();
  next_[statement_] += std::exchange(out_, std::move(outside));
  return true;
}

bool StagedFactorsWriter::stage_as_written(const For& loop, std::size_t place, const Dot& dot, std::size_t segment,
                                           Staged& staged) {
  constexpr std::int64_t most_numbers = 4096;
  const DotSegment& s = dot.segments[segment];
  if (!is_dense(dot, s) || dot.m.bound * s.depth() > most_numbers) return false;
  std::vector<const Stmt*> writers;
  std::vector<char> is_written(static_cast<std::size_t>(dot.m.bound * s.depth()));
  for (std::size_t i = 0; i < loop.body.size(); ++i) {
    if (!writes(loop.body[i], s.a.buffer)) continue;
    const Map* map = std::get_if<Map>(&loop.body[i].node);
    if (map == nullptr || map->split || i >= place || !writes_more(*map, dot, s, is_written)) return false;
    writers.push_back(&loop.body[i]);
  }
  if (std::ranges::find(is_written, 0) != is_written.end()) return false;
  const auto begin = keep_near(loop, dot.m.bound * s.depth() * static_cast<std::int64_t>(size_of(factor_dtype(dot))));
  if (!begin) return false;
  staged = {Staged::When::AsWritten, *begin, s.depth()};
  for (const Stmt* writer : writers) copies_.emplace(writer, Copy{&dot, segment, *begin});
  return true;
}

void StagedFactorsWriter::store_near_too(const Instr& store) {
  const auto [first, last] = copies_.equal_range(statement_);
  for (auto at = first; at != last; ++at) {
    const Copy& copy = at->second;
    const Access& left = copy.dot->segments[copy.segment].a;
    if (left.buffer != store.access.buffer) continue;
    const std::string t = type(factor_dtype(*copy.dot));
    line(store_near(
        "((" + t + "*)(near + " + number(copy.begin) + "))[" + affine(store.access.index + left.index * -1) + "]",
        reg(store.args[0])));
  }
}

void StagedFactorsWriter::end_of_dot() {
  if (const auto found = next_.find(statement_); found != next_.end()) after_meeting_ += found->second;
}

}  // namespace hotloop::render
