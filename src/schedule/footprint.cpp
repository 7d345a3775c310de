#include "schedule/footprint.h"

#include <algorithm>
#include <map>

#include "schedule/accesses.h"

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
  explicit Collector(Var first) : first_(first) {}

  void block(const Block& statements) {
    for (const Stmt& stmt : statements) visit(stmt);
  }
  void visit(const Stmt& stmt) {
    for_each_variable(stmt, [&](const SetVariable& v) { inner_[v.var] = {v.low, v.high}; });
    for_each_part(
        stmt, [&](const Use& use) { add(use); }, [&](const Block& inside) { block(inside); });
  }
  std::vector<Touch> touches;

 private:
  void add(const Use& use) {
    const Access& access = *use.access;
    Touch t;
    t.buffer = access.buffer;
    t.writes = use.writes;
    t.anywhere = !access.indirect.empty();
    t.base.constant = access.index.constant;
    for (const auto& stride : use.strides) t.steps.emplace_back(*stride.elements, stride.extent.bound);
    if (use.panels) t.steps.emplace_back(1, *use.panels);
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

std::vector<Touch> touches_of(const Block& block, Var first) {
  Collector collector(first);
  collector.block(block);
  return std::move(collector.touches);
}

std::vector<Touch> touches_of(const Stmt& stmt, Var first) {
  Collector collector(first);
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

bool lie_together(const Buffer& a, const Buffer& b) {
  if (a.space != b.space || a.near != b.near || (a.space != Space::Shared && a.space != Space::Worker)) return false;
  return a.offset < b.offset + bytes_of(b) && b.offset < a.offset + bytes_of(a);
}

bool share_memory(const Buffer& a, const Buffer& b) { return a.space == Space::Shared && lie_together(a, b); }

bool starts_from_c(const Dot& dot) {
  return dot.init && dot.init->buffer == dot.c.buffer && dot.init->index == dot.c.index && dot.init_m == dot.c_m &&
         dot.init_n == dot.c_n;
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
