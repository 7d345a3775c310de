#include "schedule/edges.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <set>
#include <span>
#include <utility>
#include <variant>
#include <vector>

#include "core/index.h"
#include "schedule/accesses.h"
#include "schedule/footprint.h"
#include "schedule/registers.h"

namespace hotloop::kernel {
namespace {

// Points of one dim, from `begin` to `end`.
struct Range {
  std::int64_t begin = 0, end = 0;
};

// A comparison of an index with a number: true from the first point of `dim` on, or up to there.
struct Test {
  std::size_t dim = 0;
  std::int64_t turns_at = 0;
  bool holds_after = false;
  std::optional<bool> within(const Range& range) const {
    if (range.begin >= turns_at) return holds_after;
    if (range.end <= turns_at) return !holds_after;
    return std::nullopt;
  }
};

std::optional<Test> test_of(const Map& map, const Instr& in) {
  if (in.kind != Instr::Kind::Op || (in.op != ScalarOp::Ge && in.op != ScalarOp::Lt)) return std::nullopt;
  const Instr &index = map.instrs[at(in.args[0])], &bound = map.instrs[at(in.args[1])];
  if (index.kind != Instr::Kind::Index || bound.kind != Instr::Kind::Const || index.access.index.terms.size() != 1)
    return std::nullopt;
  if (index.dtype != DType::I32 && index.dtype != DType::I64) return std::nullopt;
  const Term term = index.access.index.terms[0];
  const auto dim = std::ranges::find(map.dims, term.var, &Dim::var);
  if (dim == map.dims.end() || !dim->extent.is_static() || (term.coefficient != 1 && term.coefficient != -1))
    return std::nullopt;
  const std::int64_t number = bound.dtype == DType::I32 ? static_cast<std::int32_t>(bound.bits)
                                                        : static_cast<std::int64_t>(bound.bits),
                     constant = index.access.index.constant;
  // Their difference is to be a number of i64 as well.
  constexpr std::int64_t most = std::int64_t{1} << 61;
  if (std::min(number, constant) < -most || std::max(number, constant) > most) return std::nullopt;
  const std::int64_t room = number - constant;
  // i >= room, or -i >= room, which is i < 1 - room.
  const bool rises = term.coefficient == 1;
  return Test{static_cast<std::size_t>(dim - map.dims.begin()), rises ? room : 1 - room,
              rises == (in.op == ScalarOp::Ge)};
}

// The parts of a dim, in each of which all tests but those at the ends of vectors hold everywhere or nowhere.
std::vector<Range> parts_along(const Map& map, std::size_t d, std::span<const Test> tests) {
  constexpr std::size_t most_edges = 4;
  const std::int64_t extent = map.dims[d].extent.bound, lanes = map.lanes();
  const bool fills = static_cast<int>(d) == map.vector_dim;
  const std::vector<Range> whole = {{0, extent}};
  if (fills && extent <= 2 * lanes) return whole;
  std::set<std::int64_t> edges;
  for (const Test& test : tests) {
    if (test.dim != d || test.turns_at <= 0 || test.turns_at >= extent) continue;
    std::int64_t edge = test.turns_at;
    if (fills) edge = edge * 2 <= extent ? divided_up(edge, lanes) * lanes : edge / lanes * lanes;
    if (edge > 0 && edge < extent) edges.insert(edge);
  }
  if (edges.empty() || edges.size() > most_edges) return whole;
  std::vector<Range> parts;
  std::int64_t begin = 0;
  edges.insert(extent);
  for (const std::int64_t end : edges) parts.push_back({std::exchange(begin, end), end});
  return parts;
}

// The Map over a part of its points, where it knows what its tests give.
Map part_of(const Map& map, std::span<const Range> ranges) {
  Map part = map;
  part.instrs.clear();
  std::vector<int> place(map.instrs.size(), -1);
  std::vector<std::optional<bool>> known(map.instrs.size());
  const auto truth = [&](int reg) { return reg < 0 ? std::optional(true) : known[at(reg)]; };
  for (std::size_t i = 0; i < map.instrs.size(); ++i) {
    const Instr& in = map.instrs[i];
    const auto is_op = [&](ScalarOp op) { return in.kind == Instr::Kind::Op && in.op == op; };
    std::optional<int> same_as;
    if (const auto test = test_of(map, in)) {
      known[i] = test->within(ranges[test->dim]);
    } else if (is_op(ScalarOp::And) && in.dtype == DType::Bool) {
      const auto a = truth(in.args[0]), b = truth(in.args[1]);
      if ((a && !*a) || (b && !*b))
        known[i] = false;
      else if (a)
        same_as = in.args[1];
      else if (b)
        same_as = in.args[0];
    } else if (is_op(ScalarOp::Select)) {
      if (const auto chosen = truth(in.args[0])) same_as = in.args[*chosen ? 1 : 2];
    }
    if (same_as) {
      place[i] = place[at(*same_as)];
      known[i] = known[at(*same_as)];
      continue;
    }
    Instr copy = in;
    renumber(copy, place);
    if (known[i]) copy = const_instr(DType::Bool, *known[i] ? 1 : 0);
    const bool loads = in.kind == Instr::Kind::Load, stores = in.kind == Instr::Kind::Store;
    if (loads || stores) {
      const int which = loads ? 0 : 1;
      const auto wanted = truth(in.args[which]);
      if (wanted && *wanted) copy.args[which] = -1;
      if (wanted && !*wanted && stores) continue;
      if (wanted && !*wanted) copy = const_instr(in.dtype, 0);
    }
    place[i] = static_cast<int>(part.instrs.size());
    part.instrs.push_back(std::move(copy));
  }
  for (std::size_t d = 0; d < ranges.size(); ++d) {
    Dim& dim = part.dims[d];
    if (!dim.extent.is_static()) continue;
    dim.extent.bound = ranges[d].end - ranges[d].begin;
    if (ranges[d].begin == 0) continue;
    for (Instr& in : part.instrs)
      if (has_index(in)) in.access.index = in.access.index + in.access.index.coefficient(dim.var) * ranges[d].begin;
  }
  part.body_end = static_cast<int>(part.instrs.size());
  keep_stores(part, [](int) { return true; });
  return part;
}

// Workers that share out the first dim go over the parts without waiting for each other.
bool may_stand_side_by_side(const std::vector<Map>& parts) {
  std::vector<std::vector<Touch>> touched;
  for (const Map& part : parts) {
    const std::vector<Touch> touches = touches_of(Stmt{part});
    if (std::ranges::any_of(touched, [&](const auto& before) { return conflict(before, touches); })) return false;
    touched.push_back(touches);
  }
  return true;
}

// Its parts one after the other; nothing where it stays whole.
std::vector<Map> parts_of(const Map& map) {
  // A part has so many points on average; of fewer, what each statement costs is more than what it saves.
  constexpr std::size_t fewest_points = 16;
  constexpr std::size_t most_parts = 27, most_instrs = 4096;  // of all parts
  if (map.vector_dim < 0 || map.num_outer != static_cast<int>(map.dims.size())) return {};
  std::vector<Test> tests;
  for (const Instr& in : map.instrs)
    if (const auto test = test_of(map, in)) tests.push_back(*test);
  if (tests.empty()) return {};
  std::size_t points = 1;
  for (const Dim& dim : map.dims) points *= static_cast<std::size_t>(dim.extent.bound);
  std::vector<std::vector<Range>> along(map.dims.size());
  std::size_t count = 1;
  for (std::size_t d = map.dims.size(); d-- > 0;) {
    along[d] = {{0, map.dims[d].extent.bound}};
    if ((map.split && d == 0) || !map.dims[d].extent.is_static()) continue;  // workers share out the first dim
    std::vector<Range> parts = parts_along(map, d, tests);
    const std::size_t all = count * parts.size();
    if (all > most_parts || all * map.instrs.size() > most_instrs || points < all * fewest_points) continue;
    count = all;
    along[d] = std::move(parts);
  }
  if (count == 1) return {};
  std::vector<Map> parts;
  std::vector<Range> ranges(map.dims.size());
  for (std::size_t n = 0; n < count; ++n) {
    std::size_t rest = n;
    for (std::size_t d = map.dims.size(); d-- > 0;) {
      ranges[d] = along[d][rest % along[d].size()];
      rest /= along[d].size();
    }
    parts.push_back(part_of(map, ranges));
  }
  if (map.split && !may_stand_side_by_side(parts)) return {};
  return parts;
}

void cut_in(Block& block) {
  Block all;
  for (Stmt& stmt : block) {
    if (auto* map = std::get_if<Map>(&stmt.node)) {
      std::vector<Map> parts = parts_of(*map);
      for (Map& part : parts) all.push_back({std::move(part)});
      if (!parts.empty()) continue;
    }
    for_each_block(stmt, [](Block& inside) { cut_in(inside); });
    all.push_back(std::move(stmt));
  }
  block = std::move(all);
}

}  // namespace

void cut_at_edges(Program& program) { cut_in(program.body); }

}  // namespace hotloop::kernel
