#include "backends/render/kept_factors.h"

#include <algorithm>
#include <set>
#include <utility>

#include "backends/render/renderer.h"
#include "core/index.h"
#include "schedule/accesses.h"

namespace hotloop::render {

using namespace kernel;

namespace {

KeepingRoom furthest(const KeepingRoom& a, const KeepingRoom& b) {
  return {std::max(a.registers, b.registers), std::max(a.near_bytes, b.near_bytes)};
}

}  // namespace

const LoopFacts& KeptFactorsWriter::facts(const For* loop) {
  const auto found = facts_.find(loop);
  return found != facts_.end() ? found->second : facts_.emplace(loop, facts_of(*loop)).first->second;
}

std::size_t KeptFactorsWriter::outermost_loop(const Access& access) {
  std::size_t from = 0;
  while (from < loops_.size() && !is_fixed(p_, facts(loops_[from].loop), access)) ++from;
  return from;
}

std::int64_t KeptFactorsWriter::registers_to_keep(const For& loop) {
  // Measured on an H100 with LSTMs of 32 to 128 units, whose loops use few arrays (128 take 1 to 3 % less time than 112), and one with
  // normalised layers, whose loops use 39 and 57 (112 take 5 % more than 80).
  constexpr std::int64_t all = 255, of_sums = 108, step = 16, least = 80;
  const auto found = registers_to_keep_.find(&loop);
  if (found != registers_to_keep_.end()) return found->second;
  std::set<int> arrays;
  for_each_statement(loop.body, [&](const auto& s) {
    for_each_access(s, [&](const Use& use) { arrays.insert(use.access->buffer); });
  });
  // A loop keeps the address of each array, which has 64 bits far away and 32 near.
  std::int64_t of_addresses = 0;
  for (const int b : arrays) of_addresses += buffer(b).near ? 1 : 2;
  return registers_to_keep_[&loop] =
             std::clamp((all - of_sums - of_addresses) / step * step, least, most_registers_kept);
}

KeptFactorsWriter::KeptDot KeptFactorsWriter::kept_factors(const Dot& dot) {
  std::vector<bool> stays(dot.segments.size());
  std::size_t loop = 0;
  for (std::size_t i = 0; i < dot.segments.size(); ++i) {
    const DotSegment& s = dot.segments[i];
    if (!may_be_kept(dot, s) || !stays_in_loop(s.b)) continue;
    stays[i] = true;
    loop = std::max(loop, outermost_loop(s.b));
  }
  const bool keeps = std::ranges::find(stays, true) != stays.end();
  const std::string rows = std::to_string(dot.m.bound) + (rows_go_first(dot) ? " rows first" : " rows");
  std::string what = std::to_string(parts_) + " parts, " + rows + " " + std::to_string(dot.n.bound) + " " +
                     std::string(name_of(factor_dtype(dot)));
  for (std::size_t i = 0; i < dot.segments.size(); ++i) {
    const DotSegment& s = dot.segments[i];
    what += ", " + std::to_string(s.depth());
    if (stays[i])
      what += " of " + pointer(s.b) + " by " + std::to_string(s.k[0].b_stride) + " " + std::to_string(s.b_n) + " " +
              std::to_string(s.panel);
  }
  if (keeps)
    if (const auto found = kept_.find(what); found != kept_.end()) return found->second.dot;
  KeepingRoom begin, room;
  if (keeps) {
    begin = begin_in(*loops_[loop].loop);
    room = {registers_to_keep(*loops_[loop].loop) - begin.registers, near_bytes_ - begin.near_bytes};
  }
  room.registers = std::max<std::int64_t>(room.registers, 0);
  room.near_bytes = std::max<std::int64_t>(room.near_bytes, 0) / 16 * 16;
  KeptDot kept{choose_dot_shape(dot, std::max<std::int64_t>(dot.m.bound, 1), threads_, stays, room),
               std::vector<Kept>(dot.segments.size())};
  const KeepingRoom taken = kept_by(dot, kept.shape);
  if (taken.registers == 0 && taken.near_bytes == 0) return kept;
  const auto size = static_cast<std::int64_t>(size_of(factor_dtype(dot)));
  std::int64_t near = near_begin_ + begin.near_bytes;
  for (std::size_t i = 0; i < dot.segments.size(); ++i) {
    kept.segments[i] = {kept.shape.kept[i], "kept" + std::to_string(num_kept_++), near};
    near += near_bytes_of(kept.shape.kept[i].near * dot.n.bound * size);
  }
  keep(std::move(what),
       {loops_[loop].loop, {begin.registers + taken.registers, begin.near_bytes + taken.near_bytes}, kept});
  read_in_front(loops_[loop], dot, kept);
  return kept;
}

KeepingRoom KeptFactorsWriter::in_use() const {
  KeepingRoom end;
  for (const auto& [what, in] : kept_) end = furthest(end, in.end);
  return end;
}

KeepingRoom KeptFactorsWriter::begin_in(const For& loop) const {
  const auto reached = reached_.find(&loop);
  return reached == reached_.end() ? in_use() : furthest(in_use(), reached->second);
}

void KeptFactorsWriter::note_use(const KeepingRoom& end) {
  most_near_kept_ = std::max(most_near_kept_, end.near_bytes);
  for (const LoopAround& around : loops_) reached_[around.loop] = furthest(reached_[around.loop], end);
}

void KeptFactorsWriter::keep(std::string what, KeptIn in) {
  note_use(in.end);
  kept_.emplace(std::move(what), std::move(in));
}

std::int64_t KeptFactorsWriter::near_for_now(std::int64_t bytes) {
  const KeepingRoom begin = in_use();
  note_use({begin.registers, begin.near_bytes + bytes});
  return near_begin_ + begin.near_bytes;
}

std::optional<std::int64_t> KeptFactorsWriter::keep_near(const For& loop, std::int64_t bytes) {
  const KeepingRoom begin = begin_in(loop);
  const std::int64_t end = begin.near_bytes + near_bytes_of(bytes);
  if (end > near_bytes_) return {};
  keep("near " + std::to_string(begin.near_bytes), {&loop, {begin.registers, end}, {}});
  return near_begin_ + begin.near_bytes;
}

void KeptFactorsWriter::leave(const For& loop) {
  std::erase_if(kept_, [&](const auto& entry) { return entry.second.loop == &loop; });
  reached_.erase(&loop);
}

void KeptFactorsWriter::read_in_front(LoopAround& around, const Dot& dot, const KeptDot& kept) {
  const std::string t = type(factor_dtype(dot)), it = index_type();
  const int columns = kept.shape.tile.columns;
  std::string outside = std::exchange(out_, "");
  bool writes_near = false;
  for (std::size_t i = 0; i < dot.segments.size(); ++i) {
    const DotSegment& s = dot.segments[i];
    const Kept& k = kept.segments[i];
    if (k.steps.in_registers > 0) {
      const std::string steps = number(k.steps.in_registers);
      line(t + " " + k.registers + "[" + number(k.steps.in_registers * columns) + "];");
      open("");
      line("const " + it + " ng = hl_block_thread() % " + number(divided_up(dot.n.bound, columns)) + ";");
      write_columns(dot, columns);
      write_right_pointers(dot, s, columns);
      line("HL_UNROLL(" + steps + ")");
      open_loop("k", steps);
      for (int j = 0; j < columns; ++j)
        line(k.registers + "[" + scaled(columns, "k") + " + " + number(j) + "] = *(right" + std::to_string(j) + " + " +
             right_index(dot, s, j, scaled(s.k[0].b_stride, "k"), "k") + ");");
      close();
      close();
    }
    if (k.steps.near > 0) {
      writes_near = true;
      const std::string n = number(dot.n.bound);
      open("");
      line(t + "* const to = (" + t + "*)(near + " + number(k.near_begin) + ");");
      write_first_column(dot);
      // Neighbours in memory by neighbouring threads.
      open("for (" + it + " p = hl_block_thread(); p < " + number(k.steps.near * dot.n.bound) +
           "; p += HL_BLOCK_THREADS)");
      const bool down = !s.packed() && s.k[0].b_stride == 1 && s.b_n != 1;
      const std::string steps = number(k.steps.near);
      const std::string place = down ? "p / " + steps : "p % " + n;
      line("const " + it + " k = p " + (down ? "% " + steps : "/ " + n) +
           ", n0 = " + (parts_ > 1 ? "first_column + " : "") + place + ";");
      write_right_pointers(dot, s, 1);
      const std::string step = "(k + " + number(k.steps.in_registers) + ")";
      line("to[" + scaled(dot.n.bound, "k") + " + " + in_part("n0") + "] = *(right0 + " +
           right_index(dot, s, 0, scaled(s.k[0].b_stride, step), step) + ");");
      close();
      close();
    }
  }
  if (writes_near) line("hl_block_sync();");
  around.before += std::exchange(out_, std::move(outside));
}

// Blocks that have no part read another one's again.
void KeptFactorsWriter::write_first_column(const Dot& dot) {
  if (parts_ == 1) return;
  const std::string rank = parts_ == blocks_ ? "hl_rank()" : "hl_rank() % " + number(parts_);
  line("const " + index_type() + " first_column = " + rank + " * " + number(dot.n.bound) + ";");
}

void KeptFactorsWriter::write_columns(const Dot& dot, int columns) {
  const std::int64_t n = dot.n.bound;
  const bool together = columns_lie_together(dot, columns);
  const std::string groups = number(divided_up(n, columns)), first = parts_ > 1 ? "first_column + " : "";
  write_first_column(dot);
  for (int j = 0; j < columns; ++j) {
    const std::string column = together ? scaled(columns, "ng") + " + " + number(j) : "ng + " + scaled(j, groups);
    const bool may_stray = !together && j > 0 && n % columns != 0;
    line("const " + index_type() + " n" + std::to_string(j) + " = " + first +
         (j == 0      ? (together ? scaled(columns, "ng") : "ng")
          : may_stray ? "(" + column + " < " + number(n) + " ? " + column + " : " + number(n - 1) + ")"
                      : column) +
         ";");
  }
}

void KeptFactorsWriter::write_right_pointers(const Dot& dot, const DotSegment& s, int count) {
  const std::string t = type(factor_dtype(dot)), it = index_type();
  const std::int64_t lanes = lanes_of(dot.dtype), padded = divided_up(dot.n.bound * parts_, lanes) * lanes,
                     panel = s.panel;
  for (int j = 0; j < count; ++j) {
    const std::string at = std::to_string(j), column = "n" + at, first = "f" + at;
    const std::string begin = "const " + t + "* const right" + at + " = " + pointer(s.b) + " + ";
    if (!s.packed()) {
      line(begin + scaled(s.b_n, column) + ";");
    } else if (padded <= panel) {
      line(begin + column + ";");
    } else {
      line("const " + it + " " + first + " = " + column + " / " + number(panel) + " * " + number(panel) + ";");
      line(begin + first + " * " + number(s.depth()) + " + (" + column + " - " + first + ");");
      if (padded % panel != 0)
        line("const " + it + " w" + at + " = " + number(padded) + " - " + first + " < " + number(panel) + " ? " +
             number(padded) + " - " + first + " : " + number(panel) + ";");
    }
  }
}

std::string KeptFactorsWriter::right_index(const Dot& dot, const DotSegment& s, int column, const std::string& index,
                                           const std::string& step) const {
  if (!s.packed()) return index;
  const std::int64_t lanes = lanes_of(dot.dtype), padded = divided_up(dot.n.bound * parts_, lanes) * lanes;
  const std::string width = padded <= s.panel       ? number(padded)
                            : padded % s.panel == 0 ? number(s.panel)
                                                    : "w" + std::to_string(column);
  return "(" + step + ") * " + width;
}

}  // namespace hotloop::render
