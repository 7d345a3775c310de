#include "backends/llvm/map_nest.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <set>
#include <sstream>

#include "backends/llvm/nest_dims.h"
#include "hotloop/error.h"
#include "schedule/accesses.h"

namespace hotloop::codegen {

using ir::ScalarOp;
using kernel::Affine;
using kernel::Instr;

namespace {

void drop_dim(MapNest& nest, int dim) {
  const kernel::Var var = nest.dims[static_cast<std::size_t>(dim)].var;
  for (Instr& instr : nest.instrs) {
    if (has_index(instr)) instr.access.index = instr.access.index.without(var);
  }
  nest.dims.erase(nest.dims.begin() + dim);
  if (dim < nest.num_outer) --nest.num_outer;
}

void drop_trivial_dims(MapNest& nest, bool keep_first) {
  for (int d = static_cast<int>(nest.dims.size()) - 1; d >= (keep_first ? 1 : 0); --d) {
    const LoopDim& dim = nest.dims[static_cast<std::size_t>(d)];
    if (!dim.is_static() || dim.extent != 1) continue;
    drop_dim(nest, d);
    if (nest.vector_dim == d) {
      nest.vector_dim = -2;  // lost
    } else if (nest.vector_dim > d) {
      --nest.vector_dim;
    }
  }
  // Any outer dim may fill vectors instead: that changes no order of summation.
  if (nest.vector_dim == -2) nest.vector_dim = nest.num_outer - 1;
}

// Whether all that is reduced may be taken in any order: extremes, and sums that wrap.
bool has_free_order(const MapNest& nest) {
  return std::all_of(nest.instrs.begin() + nest.body_end, nest.instrs.begin() + nest.finish, [](const Instr& reduced) {
    return !is_float(reduced.dtype) || reduced.op == ScalarOp::Max || reduced.op == ScalarOp::Min;
  });
}

bool may_collapse(const MapNest& nest, int d) {
  const LoopDim& outer = nest.dims[static_cast<std::size_t>(d)];
  const LoopDim& inner = nest.dims[static_cast<std::size_t>(d) + 1];
  if (!inner.is_static()) return false;
  const bool both_outer = d + 1 < nest.num_outer;
  const bool both_reduced = d >= nest.num_outer;
  const bool in_order = nest.vector_dim != d && nest.vector_dim != d + 1;
  if (!both_outer && !(both_reduced && (in_order || has_free_order(nest)))) return false;
  return std::all_of(nest.instrs.begin(), nest.instrs.end(), [&](const Instr& instr) {
    const Affine& index = instr.access.index;
    return !has_index(instr) || index.coefficient(outer.var) == index.coefficient(inner.var) * inner.extent;
  });
}

void collapse(MapNest& nest) {
  for (int d = static_cast<int>(nest.dims.size()) - 2; d >= 0; --d) {
    if (!may_collapse(nest, d)) continue;
    LoopDim& outer = nest.dims[static_cast<std::size_t>(d)];
    LoopDim& inner = nest.dims[static_cast<std::size_t>(d) + 1];
    const std::int64_t length = inner.extent;
    for (Instr& instr : nest.instrs) {
      if (has_index(instr)) instr.access.index = instr.access.index.without(outer.var);
    }
    outer.var = inner.var;
    outer.extent *= length;
    outer.factor *= length;
    nest.dims.erase(nest.dims.begin() + d + 1);
    if (d + 1 <= nest.num_outer - 1) --nest.num_outer;
    if (nest.vector_dim > d) --nest.vector_dim;
  }
}

// Whether the elements of a vector lie within few vectors in memory, from which they are moved in registers (Code::gather_by_vectors).
bool is_near(const AccessGroup::Crossed& access, std::int64_t lanes) {
  constexpr std::int64_t most_vectors = 4;
  const std::int64_t rows = (lanes + access.extent - 1) / access.extent;
  return std::abs(access.outer) * rows + std::abs(access.inner) * (access.extent - 1) < most_vectors * lanes;
}

// Rows of a few numbers (the coordinates of many points, say), most of which lie one after the other: then all fill vectors, and what lies otherwise, one
// number a row, one row for all, or a gradient that was computed transposed, is moved or gathered. The pattern repeats after a few vectors.
void cross(MapNest& nest) {
  constexpr std::int64_t most_period = 7;
  const std::size_t last = nest.dims.size() - 1;
  if (nest.dims.size() < 2 || nest.num_outer != static_cast<int>(nest.dims.size())) return;
  if (nest.vector_dim != static_cast<int>(last)) return;
  const LoopDim outer = nest.dims[last - 1], inner = nest.dims[last];
  if (!inner.is_static() || inner.extent * 2 > nest.lanes) return;
  const std::int64_t period = inner.extent / std::gcd<std::int64_t>(inner.extent, nest.lanes);
  if (period > most_period || outer.extent * inner.extent < period * nest.lanes) return;
  int num_even = 0, num_near = 0, num_far = 0, num_strided = 0;
  std::vector<std::optional<AccessGroup::Crossed>> crossed(nest.instrs.size());
  for (std::size_t i = 0; i < nest.instrs.size(); ++i) {
    const Instr& instr = nest.instrs[i];
    if (!has_index(instr)) continue;
    const std::int64_t a = instr.access.index.coefficient(outer.var), b = instr.access.index.coefficient(inner.var);
    if (a == b * inner.extent) {
      ++num_even;
      continue;
    }
    if (instr.kind != Instr::Kind::Load) return;
    crossed[i] = {a, b, inner.extent};
    // What is strided along the rows, or looked up, is gathered number by number either way.
    ++(!instr.access.indirect.empty()     ? num_strided
       : is_near(*crossed[i], nest.lanes) ? num_near
       : std::abs(b) > 1                  ? num_strided
                                          : num_far);
  }
  if (num_near + num_far + num_strided == 0 || num_even <= num_far) return;
  for (std::size_t i = 0; i < nest.instrs.size(); ++i) {
    Instr& instr = nest.instrs[i];
    if (!has_index(instr)) continue;
    instr.access.index = instr.access.index.without(outer.var);
    // Any stride that is not zero: it varies along the dim.
    if (crossed[i]) instr.access.index = instr.access.index.without(inner.var) + Affine::of(inner.var);
  }
  nest.crossed = std::move(crossed);
  nest.period = static_cast<int>(period);
  nest.dims[last].extent *= outer.extent;
  nest.dims[last].extent_var = outer.extent_var;
  nest.dims[last].factor = outer.factor * inner.extent;
  nest.dims.erase(nest.dims.begin() + static_cast<std::ptrdiff_t>(last) - 1);
  --nest.num_outer;
  --nest.vector_dim;
}

int join_group(std::vector<AccessGroup>& groups, const MapNest& nest, std::size_t i, std::int64_t& displacement) {
  const Instr& instr = nest.instrs[i];
  AccessGroup group;
  if (!nest.crossed.empty()) group.crossed = nest.crossed[i];
  group.buffer = instr.access.buffer;
  group.dtype = instr.dtype;
  group.outside = instr.access.index;
  for (const LoopDim& dim : nest.dims) {
    group.coefficients.push_back(instr.access.index.coefficient(dim.var));
    group.outside = group.outside.without(dim.var);
  }
  for (std::size_t g = 0; g < groups.size(); ++g) {
    if (groups[g].buffer != group.buffer || groups[g].dtype != group.dtype) continue;
    if (groups[g].crossed != group.crossed || groups[g].coefficients != group.coefficients ||
        groups[g].outside.terms != group.outside.terms)
      continue;
    displacement = group.outside.constant - groups[g].outside.constant;
    return static_cast<int>(g);
  }
  displacement = 0;
  groups.push_back(std::move(group));
  return static_cast<int>(groups.size()) - 1;
}

// Whether the variable is the first row of tiles with an even number of rows.
bool counts_in_twos(const kernel::Program& program, kernel::Var var) {
  bool found = false;
  kernel::for_each_statement(program.body, [&](const auto& statement) {
    if constexpr (std::is_same_v<std::remove_cvref_t<decltype(statement)>, kernel::Grid>)
      found = found || (statement.row0 == var && statement.tile_rows % 2 == 0);
  });
  return found;
}

// What random words ask of their indices, which have two words a block.
void find_even_indices(MapNest& nest, const kernel::Program& program) {
  for (const Instr& instr : nest.instrs) {
    if (instr.kind != Instr::Kind::Op || instr.op != ScalarOp::Random) continue;
    const auto at = static_cast<std::size_t>(instr.args[0]);
    if (nest.instrs[at].kind != Instr::Kind::Index) continue;
    AccessGroup& group = nest.index_groups[static_cast<std::size_t>(nest.uses[at].group)];
    group.is_even =
        group.outside.constant % 2 == 0 && std::ranges::all_of(group.outside.terms, [&](const kernel::Term& term) {
          return term.coefficient % 2 == 0 || counts_in_twos(program, term.var);
        });
  }
}

void group_accesses(MapNest& nest) {
  nest.uses.resize(nest.instrs.size());
  for (std::size_t i = 0; i < nest.instrs.size(); ++i) {
    const Instr& instr = nest.instrs[i];
    if (!has_index(instr)) continue;
    auto& groups = instr.kind == Instr::Kind::Index ? nest.index_groups : nest.groups;
    nest.uses[i].group = join_group(groups, nest, i, nest.uses[i].displacement);
  }
}

void find_uniform(MapNest& nest) {
  const auto count = static_cast<int>(nest.instrs.size());
  nest.uniform.assign(nest.instrs.size(), false);
  nest.hoistable.assign(nest.instrs.size(), false);
  if (nest.vector_dim < 0) return;
  const bool reduces_vector = nest.vector_dim >= nest.num_outer;
  std::vector<int> stored;  // buffers
  for (int i = 0; i < count; ++i) {
    const Instr& instr = nest.instr(i);
    const auto at = static_cast<std::size_t>(i);
    if (instr.kind == Instr::Kind::Store) stored.push_back(instr.access.buffer);
    if (instr.kind == Instr::Kind::Store) continue;
    bool uniform = instr.kind != Instr::Kind::Reduced || reduces_vector;
    bool hoistable = i < nest.body_end;
    const auto needs = [&](int reg) {
      if (reg < 0 || instr.kind == Instr::Kind::Reduced) return;
      uniform = uniform && nest.uniform[static_cast<std::size_t>(reg)];
      hoistable = hoistable && nest.hoistable[static_cast<std::size_t>(reg)];
    };
    for (const int arg : instr.args) needs(arg);
    if (has_index(instr)) {
      const auto& groups = instr.kind == Instr::Kind::Index ? nest.index_groups : nest.groups;
      const AccessGroup& group = groups[static_cast<std::size_t>(nest.uses[at].group)];
      uniform = uniform && group.coefficients[static_cast<std::size_t>(nest.vector_dim)] == 0;
      for (const kernel::Indirect& term : instr.access.indirect) needs(term.reg);
      // A load after a store of the same point stays after it.
      if (std::find(stored.begin(), stored.end(), instr.access.buffer) != stored.end()) hoistable = false;
    }
    nest.uniform[at] = uniform;
    nest.hoistable[at] = uniform && hoistable;
  }
}

// What the dims go through at a load is longer than its buffer: the rest of it, which the predicate leaves out, may be no memory at all.
std::vector<bool> find_strays(const MapNest& nest, const ModuleState& state) {
  constexpr std::int64_t page = 4096;
  std::vector<bool> strays;
  for (std::size_t i = 0; i < nest.instrs.size(); ++i) {
    const Instr& it = nest.instrs[i];
    std::int64_t bytes = 0;
    if (it.kind == Instr::Kind::Load && it.args[0] >= 0) {
      const AccessGroup& group = nest.groups[static_cast<std::size_t>(nest.uses[i].group)];
      for (std::size_t d = 0; d < nest.dims.size(); ++d)
        bytes += std::abs(group.coefficients[d]) * (nest.dims[d].extent - 1) * bytes_of(it.dtype);
      bytes -= bytes_of(state.buffer(it.access.buffer));
    }
    strays.push_back(bytes > page);
  }
  return strays;
}

// Numbers that lie side by side at each point (the columns of a table): vectors of them are woven together, in place of a scatter for each, or taken
// apart, in place of a gather.
class Weaving {
 public:
  explicit Weaving(const MapNest& nest) : nest_(nest), woven_(nest.instrs.size(), -1) {}

  std::vector<int> find() {
    if (nest_.vector_dim < 0) return std::move(woven_);
    for (int i = 0; i < static_cast<int>(nest_.instrs.size()); ++i) {
      const Instr& it = nest_.instr(i);
      const bool reads = it.kind == Instr::Kind::Load, writes = it.kind == Instr::Kind::Store;
      // What is read after a store may be what was written, and the other way round.
      if (writes) close(loads_);
      if (reads || i == nest_.body_end) close(stores_);
      if (i == nest_.body_end) close(loads_);
      const int predicate = reads ? it.args[0] : it.args[1];
      if ((reads || writes) && predicate < 0 && it.access.indirect.empty())
        (reads ? loads_ : stores_)[nest_.uses[static_cast<std::size_t>(i)].group].push_back(i);
    }
    close(loads_);
    close(stores_);
    return std::move(woven_);
  }

 private:
  using Members = std::map<int, std::vector<int>>;  // by group
  std::int64_t place(int i) const { return nest_.uses[static_cast<std::size_t>(i)].displacement; }
  void close(Members& members) {
    constexpr std::int64_t most = 8;
    for (const auto& [group, all] : members) {
      const AccessGroup& access = nest_.groups[static_cast<std::size_t>(group)];
      const std::int64_t stride = access.coefficients[static_cast<std::size_t>(nest_.vector_dim)];
      if (stride < 2 || stride > most || static_cast<std::int64_t>(all.size()) != stride || access.crossed) continue;
      std::set<std::int64_t> places;
      for (const int i : all) places.insert(place(i));
      if (static_cast<std::int64_t>(places.size()) != stride || *places.rbegin() - *places.begin() != stride - 1)
        continue;
      const int one = &members == &loads_ ? all.front() : all.back();
      for (const int i : all) woven_[static_cast<std::size_t>(i)] = one;
    }
    members.clear();
  }

  const MapNest& nest_;
  std::vector<int> woven_;
  Members loads_, stores_;
};

}  // namespace

MapNest normalised(const ModuleState& state, const kernel::Map& map, bool split, bool in_place) {
  MapNest nest;
  nest.num_outer = map.num_outer;
  nest.vector_dim = map.vector_dim;
  nest.instrs = map.instrs;
  nest.body_end = nest.finish = map.body_end;
  while (nest.finish < static_cast<int>(nest.instrs.size()) && nest.instr(nest.finish).kind == Instr::Kind::Reduced) {
    ++nest.finish;
  }
  for (const kernel::Dim& dim : map.dims) {
    nest.dims.push_back({.var = dim.var, .extent = dim.extent.bound, .extent_var = dim.extent.var});
  }
  for (const Instr& instr : nest.instrs) {
    if (instr.kind != Instr::Kind::Load && instr.kind != Instr::Kind::Store) continue;
    HOTLOOP_CHECK(state.buffer(instr.access.buffer).dtype == instr.dtype, "an access has the dtype of its buffer");
  }
  for (const Instr& instr : nest.instrs)
    nest.blends.push_back(instr.kind == Instr::Kind::Store && instr.args[1] >= 0 &&
                          state.blends_stores(instr.access.buffer));
  const bool reduces = map.num_outer < static_cast<int>(map.dims.size());
  if (nest.vector_dim >= 0) {
    nest.lanes = kernel::lanes_of_map(nest.instrs);
    drop_trivial_dims(nest, split);
    collapse(nest);
    if (!split) cross(nest);
    if (nest.vector_dim < 0) nest.lanes = 1;
    deal_lanes(nest);
    if (!split && !in_place) choose_square(nest, state.masks_freely());
  }
  if (split) nest.dims[0].dealt = true;
  // Reduced dims may all have been trivial; their instructions still pass through the accumulator.
  if (reduces && static_cast<int>(nest.dims.size()) == nest.num_outer) {
    nest.dims.push_back({.var = -1, .extent = 1});
  }
  group_accesses(nest);
  find_even_indices(nest, state.program);
  nest.derive(state);
  return nest;
}

void MapNest::derive(const ModuleState& state) {
  has_room = accesses_with_room(*this, state);
  find_uniform(*this);
  strays = find_strays(*this, state);
  woven = Weaving(*this).find();
}

bool MapNest::is_in_place() const {
  const auto same_place = [&](std::size_t load, std::size_t store) {
    return instrs[load].kind == Instr::Kind::Load && instrs[load].access.indirect.empty() &&
           uses[load].group == uses[store].group && uses[load].displacement == uses[store].displacement;
  };
  for (std::size_t i = 0; i < instrs.size(); ++i) {
    if (instrs[i].kind != Instr::Kind::Store || !instrs[i].access.indirect.empty()) continue;
    for (std::size_t j = 0; j < i; ++j)
      if (same_place(j, i)) return true;
  }
  return false;
}

int MapNest::num_masked() const {
  int count = 0;
  for (std::size_t i = 0; i < instrs.size(); ++i) {
    const bool moves = instrs[i].kind == Instr::Kind::Load || instrs[i].kind == Instr::Kind::Store;
    count += moves && !uniform[i] && !has_room[i];
  }
  return count;
}

int MapNest::body_weight() const {
  constexpr int random_word = 40;
  int weight = 0;
  for (std::size_t i = 0; i < instrs.size(); ++i) {
    const Instr& it = instrs[i];
    const bool is_free = it.kind == Instr::Kind::Const || (it.kind == Instr::Kind::Op && it.op == ScalarOp::Bitcast);
    if (is_free || uniform[i]) continue;
    weight += it.kind == Instr::Kind::Op && it.op == ScalarOp::Random ? random_word : 1;
  }
  return weight;
}

std::int64_t MapNest::most_points_unheard() const {
  return std::max((std::int64_t{1} << 21) / std::max(body_weight(), 4), std::int64_t{1} << 13);
}

bool MapNest::is_long() const {
  double points = 1;
  for (const LoopDim& dim : dims) points *= static_cast<double>(dim.extent);
  return points > static_cast<double>(2 * most_points_unheard());
}

std::string MapNest::key() const {
  std::ostringstream text;
  if (is_long()) text << "long ";  // which the extents that are arguments do not tell
  text << "map " << num_outer << ' ' << vector_dim << ' ' << dealt_dim << ' ' << square_dim << ' ' << lanes << ' '
       << body_end;
  for (const LoopDim& dim : dims) text << (dim.is_static() ? " d" + std::to_string(dim.extent) : std::string(" d?"));
  for (const auto* list : {&groups, &index_groups}) {
    for (const AccessGroup& group : *list) {
      text << " g" << name_of(group.dtype);
      for (const std::int64_t c : group.coefficients) text << ',' << c;
      if (group.is_even) text << " even";
      if (group.crossed)
        text << " crossed " << group.crossed->outer << ',' << group.crossed->inner << ',' << group.crossed->extent;
    }
    text << ';';
  }
  for (std::size_t i = 0; i < instrs.size(); ++i) {
    const Instr& it = instrs[i];
    text << '\n' << static_cast<int>(it.kind) << ' ' << ir::name_of(it.op) << ' ' << name_of(it.dtype);
    for (const int arg : it.args) text << ' ' << arg;
    text << ' ' << it.bits << ' ' << uses[i].group << ' ' << uses[i].displacement << ' ' << hoistable[i] << blends[i]
         << has_room[i] << strays[i];
    if (square_dim >= 0) text << squares[i] << by_row[i];
    for (const kernel::Indirect& term : it.access.indirect) text << " r" << term.reg << '*' << term.stride;
  }
  return text.str();
}

}  // namespace hotloop::codegen
