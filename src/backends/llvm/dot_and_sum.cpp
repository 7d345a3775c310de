// A Dot and a Map beside it that sums what the Dot reads, as the gradient of a bias does beside that of its weight: x^T d and the sum of d over the
// rows. The Dot adds up what passes through its registers (DotEmitter::Summed), in the order in which the Map would, and the Map's end follows. A pass of
// its own waits for each addition, and reads all of it again.
#include <algorithm>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "backends/llvm/dot_emitter.h"
#include "backends/llvm/held_values.h"
#include "backends/llvm/map_nest.h"
#include "schedule/accesses.h"
#include "schedule/footprint.h"
#include "schedule/registers.h"

namespace hotloop::codegen {

using kernel::Dot;
using kernel::Instr;
using kernel::KDim;
using kernel::Map;
using Summed = DotEmitter::Summed;
using Values = Code::Values;

namespace {

// The dims of k as one factor walks them, in as few as can be.
std::vector<KDim> walk_along(std::vector<KDim> dims, std::int64_t KDim::*along) {
  for (KDim& dim : dims) dim.a_stride = dim.b_stride = dim.*along;
  kernel::DotSegment segment;
  segment.k = std::move(dims);
  return collapsed(segment);
}

bool is_plain_load(const Instr& instr) {
  return instr.kind == Instr::Kind::Load && instr.args[0] < 0 && instr.access.indirect.empty();
}

// Which factor's numbers the Map sums, each of a row of sums over the steps of the Dot one after the other.
std::optional<Summed> summed_by(const Map& map, const Dot& dot) {
  if (map.num_outer != 1 || map.vector_dim != 0 || map.dims.size() < 2 || map.body_end != 1 || map.instrs.size() < 3)
    return std::nullopt;
  const Instr &load = map.instrs[0], &sum = map.instrs[1];
  if (!is_plain_load(load) || load.dtype != dot.dtype) return std::nullopt;
  if (sum.kind != Instr::Kind::Reduced || sum.op != ir::ScalarOp::Add || map.instrs[2].kind == Instr::Kind::Reduced)
    return std::nullopt;
  if (dot.segments.size() != 1 || dot.pairs) return std::nullopt;
  const kernel::DotSegment& segment = dot.segments[0];

  kernel::Affine begin = load.access.index;
  std::vector<KDim> of_map;
  for (std::size_t d = 0; d < map.dims.size(); ++d) {
    const std::int64_t stride = begin.coefficient(map.dims[d].var);
    if (d == 0 && stride != 1) return std::nullopt;
    if (d > 0) of_map.push_back({map.dims[d].extent, stride, stride});
    begin = begin.without(map.dims[d].var);
  }
  const auto is_read_alike = [&](const kernel::Access& factor, const kernel::Extent& extent, std::int64_t stride,
                                 std::int64_t KDim::*along) {
    const auto is_same = [&](const KDim& x, const KDim& y) { return x.extent == y.extent && x.*along == y.*along; };
    return load.access.buffer == factor.buffer && factor.indirect.empty() && begin == factor.index && stride == 1 &&
           map.dims[0].extent == extent &&
           std::ranges::equal(walk_along(of_map, along), walk_along(segment.k, along), is_same);
  };
  if (!segment.packed() && is_read_alike(segment.b, dot.n, segment.b_n, &KDim::b_stride)) return Summed::Columns;
  if (is_read_alike(segment.a, dot.m, segment.a_m, &KDim::a_stride)) return Summed::Rows;
  return std::nullopt;
}

// The Dot as it is emitted.
Dot turned(const Dot& dot) { return dot.n.is_static() && better_transposed(dot) ? transposed(dot) : dot; }

// The sums of a Map each with what follows from it, as Maps of their own; nothing where these are not independent.
std::vector<Map> cut_by_sums(const ModuleState& state, const Map& map) {
  const auto at = [&](int i) -> const Instr& { return map.instrs[static_cast<std::size_t>(i)]; };
  const int num_instrs = static_cast<int>(map.instrs.size());
  int finish = map.body_end;
  while (finish < num_instrs && at(finish).kind == Instr::Kind::Reduced) ++finish;
  const int num_sums = finish - map.body_end;
  if (num_sums < 2) return {};
  for (int i = 0; i < map.body_end; ++i)
    if (!is_plain_load(at(i))) return {};
  for (int r = map.body_end; r < finish; ++r)
    if (at(r).args[1] >= 0) return {};

  // By instruction, the sum it follows from; -1: from none.
  std::vector<int> sum_of(map.instrs.size(), -1);
  std::map<int, int> written;  // buffers, by which sum
  for (int i = map.body_end; i < num_instrs; ++i) {
    int& own = sum_of[static_cast<std::size_t>(i)];
    if (i < finish) {
      own = i;
      continue;
    }
    bool several = false;
    const auto follow = [&](int reg) {
      const int from = reg < 0 ? -1 : sum_of[static_cast<std::size_t>(reg)];
      several = several || (own >= 0 && from >= 0 && from != own);
      own = std::max(own, from);
    };
    for (const int arg : at(i).args) follow(arg);
    for (const kernel::Indirect& term : at(i).access.indirect) follow(term.reg);
    if (several) return {};
    if (at(i).kind != Instr::Kind::Store) continue;
    const auto [known, is_new] = written.try_emplace(at(i).access.buffer, own);
    if (own < 0 || (!is_new && known->second != own)) return {};
  }
  // What is read here for the last time may lie where this is written.
  for (const auto& [buffer, sum] : written)
    for (const Instr& instr : map.instrs)
      if (has_index(instr) && instr.kind != Instr::Kind::Index && instr.access.buffer != buffer &&
          kernel::lie_together(state.buffer(instr.access.buffer), state.buffer(buffer)))
        return {};
  std::vector<Map> maps;
  for (int r = map.body_end; r < finish; ++r) {
    Map part = map;
    kernel::keep_stores(part, [&](int i) { return sum_of[static_cast<std::size_t>(i)] == r; });
    // What another sum's end writes is not read here.
    for (const Instr& in : part.instrs) {
      if (in.kind != Instr::Kind::Load) continue;
      const auto write = written.find(in.access.buffer);
      if (write != written.end() && write->second != r) return {};
    }
    maps.push_back(std::move(part));
  }
  return maps;
}

// What comes after the sums, which are read where the Map reads what it sums.
Map end_of(const Map& map) {
  Map end = map;
  end.dims.resize(1);
  Instr sums = map.instrs[0];
  sums.access.index = kernel::Affine::of(map.dims[0].var);
  end.instrs = {std::move(sums)};
  for (std::size_t i = 2; i < map.instrs.size(); ++i) {
    Instr instr = map.instrs[i];
    for (int& arg : instr.args) arg = arg > 0 ? arg - 1 : arg;  // the sum, 1, is 0 now
    for (kernel::Indirect& term : instr.access.indirect) --term.reg;
    end.instrs.push_back(std::move(instr));
  }
  end.body_end = static_cast<int>(end.instrs.size());
  return end;
}

// Whether they may run at once: neither writes what the other one touches, and what is summed is nothing else to the Map.
bool are_apart(const ModuleState& state, const Dot& dot, const Map& map) {
  const auto meet = [&](int a, int b) { return a == b || kernel::lie_together(state.buffer(a), state.buffer(b)); };
  const int summed = map.instrs[0].access.buffer;
  bool apart = true;
  for (std::size_t i = 1; i < map.instrs.size(); ++i)
    if (has_index(map.instrs[i]) && map.instrs[i].access.buffer == summed) apart = false;
  kernel::for_each_access(map, [&](const kernel::Use& of_map) {
    kernel::for_each_access(dot, [&](const kernel::Use& of_dot) {
      if ((of_map.writes || of_dot.writes) && meet(of_map.access->buffer, of_dot.access->buffer)) apart = false;
    });
  });
  return apart;
}

}  // namespace

kernel::Block with_sums_apart(const ModuleState& state, std::span<const kernel::Stmt> statements) {
  kernel::Block all;
  for (std::size_t i = 0; i < statements.size(); ++i) {
    const auto* map = std::get_if<Map>(&statements[i].node);
    std::vector<Map> sums = map != nullptr ? cut_by_sums(state, *map) : std::vector<Map>{};
    // Those that run beside the product before come first, those of the one after it last.
    const auto place_of = [&](const Map& sum) {
      const auto* before = i > 0 ? std::get_if<Dot>(&statements[i - 1].node) : nullptr;
      const auto* after = i + 1 < statements.size() ? std::get_if<Dot>(&statements[i + 1].node) : nullptr;
      if (before != nullptr && summed_by(sum, turned(*before))) return -1;
      return after != nullptr && summed_by(sum, turned(*after)) ? 1 : 0;
    };
    if (std::ranges::none_of(sums, place_of)) {
      if (!all.empty()) all.push_back(statements[i]);
      continue;
    }
    if (all.empty()) all.assign(statements.begin(), statements.begin() + static_cast<std::ptrdiff_t>(i));
    std::ranges::stable_sort(sums, {}, place_of);
    for (Map& sum : sums) all.push_back({std::move(sum)});
  }
  return all;
}

bool emit_dot_and_sum(Code& code, const Frame& frame, const Dot& given, const Map& map, HeldValues* held) {
  const Dot dot = turned(given);
  const std::optional<Summed> summed = summed_by(map, dot);
  ModuleState& state = code.state();
  if (!summed || stands_in_place(state.program.target, dot, held) || !are_apart(state, dot, map)) return false;
  const MapNest nest = normalised(state, end_of(map), false);
  if (!std::ranges::all_of(nest.dims, &LoopDim::is_static) || nest.is_long()) return false;

  const kernel::ColumnWalk walk = walk_of(state.program.target, dot, frame.loop_depth > 0);
  Values args = dot_arguments(code, frame, dot, walk.turns);
  if (!DotEmitter(code, dot, walk, args).may_sum(*summed)) return false;
  const std::size_t of_dot = args.size();
  const int sums = map.instrs[0].access.buffer;
  std::string key = key_of(dot, walk) + (*summed == Summed::Columns ? " and sums of columns" : " and sums of rows");
  for (const AccessGroup& group : nest.groups) {
    key += group.buffer == sums ? " sums" : " other";
    if (group.buffer != sums) args.push_back(frame.address(code, group.buffer, group.outside));
  }
  for (const AccessGroup& group : nest.index_groups) args.push_back(frame.affine(code, group.outside));

  llvm::Function*& function = state.outlined[key + "; " + nest.key()];
  if (function == nullptr) {
    std::vector<llvm::Type*> types;
    for (const Value* arg : args) types.push_back(arg->getType());
    function = state.create_function("dot_" + dot.name + "_and_sum_" + map.name,
                                     llvm::FunctionType::get(code.b.getVoidTy(), types, false), false);
    Code inner(state, llvm::BasicBlock::Create(code.context(), "entry", function));
    Values parameters;
    for (llvm::Argument& argument : function->args()) parameters.push_back(&argument);
    Value* row = inner.stack_row(dot.dtype, map.dims[0].extent.bound);
    Values of_map;
    auto next = parameters.begin() + static_cast<std::ptrdiff_t>(of_dot);
    for (const AccessGroup& group : nest.groups) of_map.push_back(group.buffer == sums ? row : *next++);
    of_map.insert(of_map.end(), next, parameters.end());
    parameters.resize(of_dot);
    DotEmitter(inner, dot, walk, parameters).emit_with_sums(*summed, row);
    emit_nest(inner, nest, of_map);
    inner.b.CreateRetVoid();
  }
  code.b.CreateCall(function, args);
  if (held != nullptr) {
    held->forget(dot.c.buffer);
    for (const Instr& instr : map.instrs)
      if (instr.kind == Instr::Kind::Store) held->forget(instr.access.buffer);
  }
  return true;
}

}  // namespace hotloop::codegen
