#include "schedule/map_builder.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "core/convert.h"
#include "hotloop/error.h"
#include "ir/op_def.h"
#include "schedule/replaced_parts.h"

namespace hotloop {

using ir::OpKind;
using ir::ScalarOp;
using kernel::Affine;
using kernel::Instr;

std::uint64_t bits_of(DType dtype, double value) {
  std::uint64_t bits = 0;
  visit_dtype(dtype, [&]<class T>(T) {
    const T number = converted<T>(value);
    std::memcpy(&bits, &number, sizeof number);
  });
  return bits;
}

MapBuilder::MapBuilder(LoweringContext& context, const IndexSpace& space, const Dots* short_dots)
    : context_(context), short_dots_(short_dots) {
  const auto add_dim = [&](const kernel::Extent& extent) {
    const kernel::Var var = context_.new_var("i");
    map_.dims.push_back({var, extent});
    return Affine::of(var);
  };
  for (const auto& e : space.outer) outer_.push_back(e.is_static() && e.bound == 1 ? Affine(0) : add_dim(e));
  map_.num_outer = static_cast<int>(map_.dims.size());
  for (const auto& e : space.reduced) reduced_.push_back(add_dim(e));
}

MapBuilder::MemoKey MapBuilder::memo_key(Value v, const Index& index, int predicate) const {
  MemoKey key{key_of(v), {}, predicate};
  for (const Affine& a : index) {
    auto& entry = key.index.emplace_back(a.constant, std::vector<std::pair<int, std::int64_t>>{});
    for (const auto& t : a.terms) entry.second.emplace_back(t.var, t.coefficient);
  }
  return key;
}

MapBuilder::Index MapBuilder::outer_index(Value v) const {
  Index index;
  std::size_t next = 0;
  for (int i = 0; i < v.rank(); ++i) index.push_back(v.shape()[i] == 1 ? Affine(0) : outer_[next++]);
  HOTLOOP_CHECK(next == outer_.size(), "a value of another index space in a map");
  return index;
}

int MapBuilder::push(Instr instr) {
  map_.instrs.push_back(std::move(instr));
  return static_cast<int>(map_.instrs.size()) - 1;
}

int MapBuilder::constant(DType dtype, double value) {
  const std::uint64_t bits = bits_of(dtype, value);
  const auto [it, fresh] = constants_.try_emplace({dtype, bits}, 0);
  if (fresh) it->second = push(kernel::const_instr(dtype, bits));
  return it->second;
}

int MapBuilder::op(ScalarOp scalar, DType dtype, int a, int b, int c) {
  return push(kernel::op_instr(scalar, dtype, a, b, c));
}

int MapBuilder::integer_index(const Affine& index, DType dtype) {
  if (index.terms.empty()) return constant(dtype, static_cast<double>(index.constant));
  const int reg = push(kernel::index_instr(is_float(dtype) ? DType::I64 : dtype, index));
  return is_float(dtype) ? op(ScalarOp::Cast, dtype, reg) : reg;
}

std::pair<std::int64_t, std::int64_t> MapBuilder::range_of(const Affine& index) const {
  std::pair range{index.constant, index.constant};
  for (const auto& term : index.terms) {
    const auto dim = std::ranges::find(map_.dims, term.var, &kernel::Dim::var);
    if (dim == map_.dims.end())
      return {std::numeric_limits<std::int64_t>::min(), std::numeric_limits<std::int64_t>::max()};
    (term.coefficient < 0 ? range.first : range.second) += term.coefficient * (dim->extent.bound - 1);
  }
  return range;
}

int MapBuilder::compare_index(ScalarOp test, const Affine& index, std::int64_t bound, std::int64_t extent) {
  const auto [it, is_new] = comparisons_.try_emplace({test, bound, memo_key({}, {index}, -1)}, 0);
  if (!is_new) return it->second;
  // As many fill a vector as there are numbers of f32, where that is wide enough.
  const DType dtype = extent < (std::int64_t{1} << 30) ? DType::I32 : DType::I64;
  const int at = integer_index(index, dtype);
  return it->second = op(test, DType::Bool, at, constant(dtype, static_cast<double>(bound)));
}

namespace {

kernel::Access access_at(const Storage& storage, const std::vector<Affine>& index,
                         std::vector<kernel::Indirect> indirect) {
  kernel::Access access{storage.buffer, storage.offset, std::move(indirect)};
  for (std::size_t i = 0; i < index.size(); ++i) access.index = access.index + index[i] * storage.strides[i];
  return access;
}

}  // namespace

int MapBuilder::load(const Storage& storage, DType dtype, const Index& index, int predicate,
                     std::vector<kernel::Indirect> indirect) {
  return push(kernel::load_instr(dtype, access_at(storage, index, std::move(indirect)), predicate));
}

void MapBuilder::store(const Storage& storage, DType dtype, const Index& index, int value,
                       std::vector<kernel::Indirect> indirect, int predicate) {
  push(kernel::store_instr(dtype, access_at(storage, index, std::move(indirect)), value, predicate));
}

int MapBuilder::emit(Value v, const Index& index, int predicate) {
  v = context_.resolve(v);
  // One number for all points is the same whether a point is asked for it or not.
  if (std::ranges::all_of(index, [](const Affine& a) { return a.terms.empty(); })) predicate = -1;
  const MemoKey key = memo_key(v, index, predicate);
  if (const auto it = memo_.find(key); it != memo_.end()) return it->second;
  int reg = -1;
  // A constant that is one number at all points stays in a register.
  if (ir::is(*v.node, OpKind::Constant)) {
    const Array& data = v.node->attrs.get<Array>("value");
    std::int64_t at = 0;
    bool is_number = true;
    for (int i = 0; i < v.rank(); ++i) {
      // A tile of one row is one of many.
      const Affine along = context_.global_index(v, i, index[static_cast<std::size_t>(i)]);
      is_number = is_number && (v.shape()[i] == 1 || along.terms.empty());
      at = at * v.shape()[i] + (v.shape()[i] == 1 ? 0 : along.constant);
    }
    // With a predicate, the index may lie outside.
    if (is_number && (data.size() == 1 || predicate < 0)) {
      Instr instr = kernel::const_instr(data.dtype(), 0);
      const std::size_t bytes = size_of(data.dtype());
      std::memcpy(&instr.bits, static_cast<const char*>(data.raw()) + static_cast<std::size_t>(at) * bytes, bytes);
      const auto [it, fresh] = constants_.try_emplace({instr.dtype, instr.bits}, 0);
      if (fresh) it->second = push(instr);
      reg = it->second;
    }
  }
  if (reg < 0) {
    const auto storage = context_.find(v);
    const bool is_view = is_strided_view(*v.node);
    // Views without memory of their own go through their operand: what was computed in this very map is in a register.
    HOTLOOP_CHECK(!computed_.contains(key_of(v)), "a map reads what it computes at another point");
    if (storage && (!is_view || context_.is_bound(v)))
      reg = load(*storage, v.dtype(), index, predicate);
    else
      reg = emit_compute(v, index, predicate);
  }
  memo_[key] = reg;
  return reg;
}

void MapBuilder::add(Value v, const Storage* target, bool compute) {
  v = context_.resolve(v);
  if (compute) computed_.insert(key_of(v));
  for (const Index& index : outer_indices(v)) {
    const MemoKey key = memo_key(v, index, -1);
    int reg = -1;
    if (const auto it = memo_.find(key); it != memo_.end())
      reg = it->second;
    else if (compute)
      memo_[key] = reg = emit_compute(v, index, -1);
    else
      reg = emit(v, index, -1);
    if (target != nullptr) pending_stores_.push_back({*target, v.dtype(), index, reg});
  }
}

void MapBuilder::add_update(const Node& node, const Storage& target) {
  const Value update = context_.resolve(node.operands[1]);
  const auto kept = kept_part(node);
  for (const Index& index : outer_indices(update)) {
    const int keeps = kept ? op(ScalarOp::Not, DType::Bool, emit(kept->mask, index, -1)) : -1;
    pending_stores_.push_back({target, update.dtype(), index, emit(kept ? kept->otherwise : update, index, -1),
                               starts_of(node, 2, update.shape(), target, index, -1), keeps});
  }
}

void MapBuilder::add_reduction(Value v, const Storage* target, bool accumulate) {
  const Value x = v.node->operands[0];
  const auto& axes = v.node->attrs.integers("axes");
  Index index;
  std::size_t outer = 0, reduced = 0;
  for (int i = 0; i < x.rank(); ++i) {
    const bool is_reduced = std::ranges::find(axes, i) != axes.end();
    if (x.shape()[i] == 1)
      index.push_back(Affine(0));
    else
      index.push_back(is_reduced ? reduced_[reduced++] : outer_[outer++]);
  }
  reductions_.push_back({v, emit(x, index, -1), target ? std::optional(*target) : std::nullopt, accumulate});
}

namespace {

// The dim whose points fill vectors: the one along which most accesses are contiguous.
int choose_vector_dim(const kernel::Map& map, int first, int last) {
  int best = -1;
  double best_score = -1e30;
  for (int d = first; d < last; ++d) {
    const kernel::Dim& dim = map.dims[static_cast<std::size_t>(d)];
    double score = 0, accesses = 0;
    for (const Instr& instr : map.instrs) {
      if (instr.kind != Instr::Kind::Load && instr.kind != Instr::Kind::Store) continue;
      const std::int64_t c = instr.access.index.coefficient(dim.var);
      accesses += 1;
      const double weight = instr.kind == Instr::Kind::Store ? 2 : 1;
      score += weight * (c == 1 ? 1.0 : c == 0 ? 0.8 : -3.0);
    }
    // Lanes that would stay empty cost as much as filled ones.
    const double lanes = 16;
    const double n = static_cast<double>(dim.extent.bound);
    const double fill = n / (lanes * std::ceil(n / lanes));
    score = score / std::max(accesses, 1.0) + 1.5 * fill + 0.01 * d;
    if (score > best_score) {
      best_score = score;
      best = d;
    }
  }
  return best;
}

// Neighbouring dims that every access runs through as one become one, so that short rows that lie one after the other fill vectors.
void collapse_dims(kernel::Map& map) {
  for (std::size_t d = 0; d + 1 < map.dims.size();) {
    const kernel::Dim outer = map.dims[d], inner = map.dims[d + 1];
    const std::int64_t n = inner.extent.bound;
    bool as_one = outer.extent.is_static() && inner.extent.is_static();
    for (const Instr& instr : map.instrs) {
      const kernel::Access& access = instr.access;
      const std::int64_t by_outer = access.index.coefficient(outer.var), by_inner = access.index.coefficient(inner.var);
      if (!access.indirect.empty()) as_one = false;
      if (instr.kind == Instr::Kind::Index ? by_outer != 0 || by_inner != 0 : by_outer != by_inner * n) as_one = false;
    }
    if (!as_one) {
      ++d;
      continue;
    }
    for (Instr& instr : map.instrs) instr.access.index = instr.access.index.substituted(outer.var, Affine(0));
    map.dims[d] = {inner.var, kernel::Extent{outer.extent.bound * n, -1}};
    map.dims.erase(map.dims.begin() + static_cast<std::ptrdiff_t>(d) + 1);
    --map.num_outer;
  }
}

}  // namespace

std::optional<int> axis_over_lanes(const Node& reduce) {
  constexpr std::int64_t least = 8, most_within = 8;
  // Vectors of a few numbers would be empty for the most part; those that lie as far apart as there are others between them are gathered.
  const std::int64_t most_kept_within = std::min<std::int64_t>(4, kernel::lanes_of(reduce.operands[0].dtype()) / 2 - 1);
  const Shape& shape = reduce.operands[0].shape();
  const auto& axes = reduce.attrs.integers("axes");
  std::int64_t within = 1, kept_within = 1;
  for (int a = shape.rank() - 1; a >= 0; --a) {
    if (shape[a] == 1) continue;
    if (std::ranges::find(axes, a) == axes.end()) {
      if ((kept_within *= shape[a]) > most_kept_within) break;
    } else if (shape[a] >= least * kept_within) {
      return a;
    } else if ((within *= shape[a]) > most_within) {
      break;
    }
  }
  return std::nullopt;
}

kernel::Map MapBuilder::finish(const std::string& name) {
  map_.name = name;
  map_.body_end = static_cast<int>(map_.instrs.size());
  if (reductions_.empty()) {
    // Stores last: a point may read what another value of this map replaces at the same point.
    for (const PendingStore& s : pending_stores_) store(s.target, s.dtype, s.index, s.reg, s.indirect, s.predicate);
    map_.body_end = static_cast<int>(map_.instrs.size());
    collapse_dims(map_);
    map_.vector_dim = choose_vector_dim(map_, 0, static_cast<int>(map_.dims.size()));
    return std::move(map_);
  }
  const Node& reduce = *reductions_[0].value.node;
  const std::optional<int> axis = axis_over_lanes(reduce);
  const bool over_lanes = !reduced_.empty() && axis;
  map_.vector_dim = map_.num_outer - 1;
  if (over_lanes) {
    ++map_.vector_dim;
    for (const std::int64_t a : reduce.attrs.integers("axes"))
      if (a < *axis && reduce.operands[0].shape()[static_cast<int>(a)] != 1) ++map_.vector_dim;
  }
  if (!over_lanes && context_.by_lanes()) map_.vector_dim = choose_vector_dim(map_, 0, map_.num_outer);
  std::vector<int> results;
  for (const PendingReduction& r : reductions_) {
    results.push_back(push(kernel::reduced_instr(combiner_of(*r.value.node), r.value.dtype(), r.reg)));
  }
  constants_.clear();  // body registers are out of reach in the finish
  comparisons_.clear();
  memo_.clear();
  for (std::size_t i = 0; i < reductions_.size(); ++i) {
    const PendingReduction& r = reductions_[i];
    const Index index = outer_index(r.value);
    int reg = results[i];
    if (r.accumulate) reg = op(ScalarOp::Add, r.value.dtype(), load(*r.target, r.value.dtype(), index, -1), reg);
    if (r.target) store(*r.target, r.value.dtype(), index, reg);
    memo_[memo_key(r.value, index, -1)] = reg;
    computed_.insert(key_of(r.value));
  }
  for (const PendingFinish& f : finishes_) {
    const Index index = outer_index(f.value);
    const int reg = emit_compute(f.value, index, -1);
    memo_[memo_key(f.value, index, -1)] = reg;
    computed_.insert(key_of(f.value));
    if (f.target) pending_stores_.push_back({*f.target, f.value.dtype(), index, reg});
  }
  for (const PendingStore& s : pending_stores_) store(s.target, s.dtype, s.index, s.reg);
  return std::move(map_);
}

}  // namespace hotloop
