#include "schedule/footprint.h"

#include <algorithm>
#include <map>

namespace hotloop::kernel {
namespace {

struct Interval {
  std::int64_t low = 0, high = 0;
  void add(std::int64_t stride, std::int64_t extent) {
    const std::int64_t reach = stride * std::max<std::int64_t>(extent - 1, 0);
    (reach < 0 ? low : high) += reach;
  }
};

class Collector {
 public:
  Collector(const Program& program, Var first) : program_(program), first_(first) {}

  void block(const Block& statements) {
    for (const Stmt& stmt : statements) visit(stmt);
  }
  void visit(const Stmt& stmt) {
    std::visit([this](const auto& s) { visit(s); }, stmt.node);
  }
  std::vector<Touch> touches;

 private:
  using Steps = std::vector<std::pair<std::int64_t, std::int64_t>>;

  void add(const Access& access, bool writes, Steps steps = {}) {
    Touch t;
    t.buffer = access.buffer;
    t.writes = writes;
    t.anywhere = !access.indirect.empty();
    t.base.constant = access.index.constant;
    t.steps = std::move(steps);
    for (const Term& term : access.index.terms) {
      if (const auto inner = inner_.find(term.var); inner != inner_.end()) {
        t.base.constant += term.coefficient * inner->second.low;
        t.steps.emplace_back(term.coefficient, inner->second.high - inner->second.low + 1);
      } else if (term.var == first_) {
        t.along = term.coefficient;
      } else {
        t.base = t.base + Affine::of(term.var, term.coefficient);
      }
    }
    touches.push_back(std::move(t));
  }
  void define(Var var, const Extent& extent) { inner_[var] = {0, std::max<std::int64_t>(extent.bound - 1, 0)}; }

  void visit(const Map& map) {
    for (const Dim& d : map.dims) define(d.var, d.extent);
    for (const Instr& i : map.instrs) {
      if (i.kind == Instr::Kind::Load) add(i.access, false);
      if (i.kind == Instr::Kind::Store) add(i.access, true);
    }
  }
  void visit(const Dot& dot) {
    const std::int64_t lanes = lanes_of(dot.dtype), columns = (dot.n.bound + lanes - 1) / lanes * lanes;
    for (const DotSegment& s : dot.segments) {
      Steps a{{s.a_m, dot.m.bound}}, b{{s.b_n, dot.n.bound}};
      std::int64_t depth = 1;
      for (const KDim& k : s.k) {
        a.emplace_back(k.a_stride, k.extent.bound);
        b.emplace_back(k.b_stride, k.extent.bound);
        depth *= k.extent.bound;
      }
      add(s.a, false, a);
      add(s.b, false, s.packed ? Steps{{1, depth * columns}} : b);
    }
    if (dot.init) add(*dot.init, false, {{dot.init_m, dot.m.bound}, {dot.init_n, dot.n.bound}});
    add(dot.c, true, {{dot.c_m, dot.m.bound}, {dot.c_n, dot.n.bound}});
  }
  void visit(const Pack& pack) {
    add(pack.source, false, {{pack.k_stride, pack.k}, {pack.n_stride, pack.n}});
    add({pack.target, 0, {}}, true, {{1, program_.buffers[static_cast<std::size_t>(pack.target)].elements}});
  }
  void visit(const For& loop) {
    define(loop.counter, loop.trip);
    block(loop.test);
    if (loop.stop) add(*loop.stop, false);
    block(loop.body);
  }
  void visit(const Let& let) {
    add(let.source, false);
    inner_[let.var] = {let.low, let.high};
  }
  void visit(const Grid& grid) {
    inner_[grid.block] = {0, grid.num_blocks - 1};
    inner_[grid.row0] = {0, std::max<std::int64_t>(grid.total.bound - 1, 0)};
    block(grid.prologue);
    block(grid.body);
  }
  void visit(const Single& single) { block(single.body); }
  void visit(const Sections& all) {
    for (const Section& section : all.sections) {
      if (section.first >= 0) inner_[section.first] = {0, all.trip - 1};
      block(section.body);
    }
  }
  void visit(const Barrier&) {}

  const Program& program_;
  Var first_;
  std::map<Var, Interval> inner_;
};

std::int64_t floor_mod(std::int64_t a, std::int64_t b) { return (a % b + b) % b; }

// Of the indices modulo `period`, those that remain: nothing if that may be all of them.
bool remainders(const Touch& t, std::int64_t period, Interval& out) {
  out = {t.base.constant, t.base.constant};
  if (t.along % period != 0) return false;
  for (const auto& [stride, extent] : t.steps)
    if (stride % period != 0) out.add(stride, extent);
  const std::int64_t width = out.high - out.low;
  if (width >= period) return false;
  out.low = floor_mod(out.low, period);
  out.high = out.low + width;
  return true;
}

bool overlap(const Interval& a, const Interval& b, std::int64_t shift = 0) {
  return a.low <= b.high + shift && b.low + shift <= a.high;
}

Interval range_of(const Touch& t) {
  Interval range{t.base.constant, t.base.constant};
  for (const auto& [stride, extent] : t.steps) range.add(stride, extent);
  return range;
}

// Interleaved, as the columns of two matrices side by side are: apart modulo some stride.
bool interleave(const Touch& a, const Touch& b) {
  std::vector<std::int64_t> periods{std::abs(a.along), std::abs(b.along)};
  for (const Touch* t : {&a, &b})
    for (const auto& [stride, extent] : t->steps)
      if (extent > 1) periods.push_back(std::abs(stride));
  return std::ranges::any_of(periods, [&](std::int64_t period) {
    Interval x, y;
    if (period <= 1 || !remainders(a, period, x) || !remainders(b, period, y)) return false;
    return !overlap(x, y) && !overlap(x, y, period) && !overlap(x, y, -period);
  });
}

bool is_empty(const Touch& t) {
  return std::ranges::any_of(t.steps, [](const auto& step) { return step.second <= 0; });
}

}  // namespace

std::vector<Touch> touches_of(const Program& program, const Block& block, Var first) {
  Collector collector(program, first);
  collector.block(block);
  return std::move(collector.touches);
}

std::vector<Touch> touches_of(const Program& program, const Stmt& stmt, Var first) {
  Collector collector(program, first);
  collector.visit(stmt);
  return std::move(collector.touches);
}

bool may_meet(const Touch& a, const Touch& b) {
  if (a.buffer != b.buffer || is_empty(a) || is_empty(b)) return false;
  if (a.anywhere || b.anywhere || a.base.terms != b.base.terms) return true;
  if (a.along == 0 && b.along == 0 && !overlap(range_of(a), range_of(b))) return false;
  return !interleave(a, b);
}

bool conflict(const Touch& a, const Touch& b) { return (a.writes || b.writes) && may_meet(a, b); }

bool conflict(const std::vector<Touch>& a, const std::vector<Touch>& b) {
  return std::ranges::any_of(
      a, [&](const Touch& x) { return std::ranges::any_of(b, [&](const Touch& y) { return conflict(x, y); }); });
}

bool share_memory(const Buffer& a, const Buffer& b) {
  if (a.space != Space::Shared || b.space != Space::Shared) return false;
  return a.offset < b.offset + bytes_of(b) && b.offset < a.offset + bytes_of(a);
}

bool follows_by_chunks(const Touch& b, const Touch& a, std::int64_t chunk, std::int64_t num_chunks, bool reverse) {
  if (!may_meet(a, b) || num_chunks <= 1) return true;
  if (a.anywhere || b.anywhere || a.base.terms != b.base.terms || a.along != b.along || a.along == 0) return false;
  // They meet at along * (first of a - first of b) = (index of b - index of a) without these. b is too early where that first is
  // beyond its own, by a chunk at least.
  const Interval x = range_of(a), y = range_of(b);
  const std::int64_t step = std::abs(a.along) * chunk;
  return (a.along > 0) != reverse ? y.high - x.low < step : y.low - x.high > -step;
}

bool is_injective(std::vector<std::pair<std::int64_t, std::int64_t>> strides_and_extents) {
  std::erase_if(strides_and_extents, [](const auto& d) { return d.second <= 1; });
  std::ranges::sort(strides_and_extents);
  std::int64_t reach = 0;
  for (const auto& [stride, extent] : strides_and_extents) {
    if (stride <= reach) return false;
    reach += stride * (extent - 1);
  }
  return true;
}

}  // namespace hotloop::kernel
