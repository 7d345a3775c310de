// A Dot of one row and the Map after it, as the gates of a recurrent step are followed by its cell. Where B comes from the second cache multipliers are idle
// half of the time, and while the Map computes the cache is. So the Dot passes its columns in such an order that what the Map needs
// for a vector of its points is there early (kernel::BlockWalk), and the Map follows block by block. Sums and points are computed as they would be.
#include <algorithm>
#include <optional>
#include <set>
#include <vector>

#include "backends/llvm/dot_emitter.h"
#include "backends/llvm/held_values.h"
#include "backends/llvm/map_nest.h"
#include "schedule/accesses.h"
#include "schedule/footprint.h"

namespace hotloop::codegen {

using kernel::Dot;
using kernel::DotSegment;
using kernel::Instr;
using kernel::KDim;
using kernel::Map;
using Values = Code::Values;

namespace {

// How many equal parts the columns are of, several, if the Map reads one vector of each for each vector of its points; else nothing.
std::optional<std::int64_t> parts_of(const Dot& dot, const Map& map) {
  const std::int64_t lanes = kernel::lanes_of(dot.dtype), n = dot.n.bound;
  if (map.dims.size() != 1 || map.num_outer != 1 || map.vector_dim != 0 || map.lanes() != lanes) return std::nullopt;
  const kernel::Dim& dim = map.dims[0];
  if (!dim.extent.is_static() || dim.extent.bound % lanes != 0 || n % dim.extent.bound != 0) return std::nullopt;
  std::set<std::int64_t> parts;
  for (const Instr& instr : map.instrs) {
    if (!has_index(instr) || instr.access.buffer != dot.c.buffer || instr.kind == Instr::Kind::Index) continue;
    const kernel::Access& access = instr.access;
    if (instr.kind != Instr::Kind::Load || !access.indirect.empty()) return std::nullopt;
    if (access.index.coefficient(dim.var) != 1) return std::nullopt;
    const kernel::Affine from = access.index.without(dim.var) + dot.c.index * -1;
    if (!from.terms.empty() || from.constant < 0 || from.constant % dim.extent.bound != 0 || from.constant >= n)
      return std::nullopt;
    parts.insert(from.constant / dim.extent.bound);
  }
  // What follows a single sum is seldom much work.
  const std::int64_t all = n / dim.extent.bound;
  return all > 1 && static_cast<std::int64_t>(parts.size()) == all ? std::optional(all) : std::nullopt;
}

bool is_dense(const DotSegment& segment) {
  return (segment.packed() || segment.b_n == 1) &&
         std::ranges::all_of(segment.k, [](const KDim& k) { return k.extent.is_static(); });
}

// Whether A is a row of numbers side by side, which is soon copied.
bool is_row(const DotSegment& segment) {
  const std::vector<KDim> k = collapsed(segment);
  return k.size() == 1 && k[0].a_stride == 1;
}

class Writes {
 public:
  Writes(const ModuleState& state, const Map& map) : state_(state) {
    for (const Instr& instr : map.instrs)
      if (instr.kind == Instr::Kind::Store) buffers_.push_back(instr.access.buffer);
  }
  // Whether the Map may write where this buffer lies: what is read for the last time has left its place to others.
  bool reach(int index) const {
    return std::ranges::any_of(buffers_, [&](int written) {
      return written == index || kernel::lie_together(state_.buffer(written), state_.buffer(index));
    });
  }
  const std::vector<int>& buffers() const { return buffers_; }

 private:
  const ModuleState& state_;
  std::vector<int> buffers_;
};

// Whether only one statement reads what the Dot gives: the Map.
bool is_read_once(const kernel::Program& program, int buffer) {
  const kernel::Space space = program.buffers[static_cast<std::size_t>(buffer)].space;
  if (space != kernel::Space::Shared && space != kernel::Space::Worker) return false;
  int readers = 0;
  kernel::for_each_statement(program.body, [&](const auto& statement) {
    bool reads = false;
    kernel::for_each_access(statement,
                            [&](const auto& use) { reads = reads || (!use.writes && use.access->buffer == buffer); });
    readers += reads ? 1 : 0;
  });
  return readers == 1;
}

// The blocks of a Map are the same code at other addresses.
Map block_of(Map map, std::int64_t points) {
  map.dims[0].extent = kernel::Extent{points};
  return map;
}

// A copy on the stack.
Value* copied(Code& code, DType dtype, Value* from, std::int64_t count) {
  const std::int64_t lanes = kernel::lanes_of(dtype);
  Value* room = code.stack_row(dtype, count);
  for (std::int64_t first = 0; first < count; first += lanes) {
    Value* mask = first + lanes <= count ? nullptr : code.tail_mask(static_cast<int>(lanes), code.i64(count - first));
    Value* row = code.load(dtype, code.offset(from, first * bytes_of(dtype)), 1, static_cast<int>(lanes), mask);
    code.store(dtype, row, code.offset(room, first * bytes_of(dtype)), 1, static_cast<int>(lanes), nullptr);
  }
  return room;
}

}  // namespace

bool emit_dot_and_map(Code& code, const Frame& frame, const Dot& dot, const Map& map, HeldValues* held) {
  ModuleState& state = code.state();
  const kernel::Target& target = state.program.target;
  const auto parts = parts_of(dot, map);
  if (!parts || !dot.m.is_static() || dot.m.bound != 1 || dot.c_n != 1 || dot.init_n > 1 || dot.pairs) return false;
  if (!std::ranges::all_of(dot.segments, is_dense) || better_transposed(dot) || is_long(dot)) return false;
  const std::int64_t lanes = kernel::lanes_of(dot.dtype);
  // A cycle holds more than one instruction, which wait for each other.
  constexpr double cycles_an_instruction = 0.7;
  const int weight = normalised(state, block_of(map, lanes), false).body_weight();
  const bool in_loop = frame.loop_depth > 0;
  const auto walk = block_walk(target, dot, in_loop, *parts, cycles_an_instruction * weight);
  if (!walk) return false;
  const MapNest nest = normalised(state, block_of(map, walk->width * lanes), false);
  if (!std::ranges::all_of(nest.dims, &LoopDim::is_static) || nest.dims.size() != 1 || nest.is_long()) return false;

  // What the Map writes the Dot may still read. Its row is copied then; other things seldom meet.
  const Writes writes(state, map);
  if (writes.reach(dot.c.buffer) || (dot.init && writes.reach(dot.init->buffer))) return false;
  std::vector<bool> copies;
  for (const DotSegment& segment : dot.segments) {
    copies.push_back(writes.reach(segment.a.buffer));
    if (writes.reach(segment.b.buffer) || (copies.back() && !is_row(segment))) return false;
  }
  // A tile's sums, if nobody else reads them: a row in memory drives out as much of B. Where the Map's group that reads them begins among them.
  std::optional<std::int64_t> first_sum;
  for (const AccessGroup& group : nest.groups)
    if (group.buffer == dot.c.buffer && is_read_once(state.program, dot.c.buffer))
      first_sum = (group.outside + dot.c.index * -1).constant;

  kernel::ColumnWalk columns = kernel::column_walk(target, dot, in_loop);
  columns.turns = true;
  Values args = dot_arguments(code, frame, dot, true);
  const std::size_t of_dot = args.size();
  for (const AccessGroup& group : nest.groups) args.push_back(frame.address(code, group.buffer, group.outside));
  for (const AccessGroup& group : nest.index_groups) args.push_back(frame.affine(code, group.outside));

  std::string key = key_of(dot, columns) + " by blocks of " + std::to_string(walk->width);
  for (const bool copy : copies) key += copy ? " copied" : " in place";
  if (first_sum) key += " in registers from " + std::to_string(*first_sum);
  // Which groups take the sums: the Map's own key knows no buffers.
  for (const AccessGroup& group : nest.groups) key += group.buffer == dot.c.buffer ? " sums" : " other";
  llvm::Function*& function = state.outlined[key + "; " + nest.key()];
  if (function == nullptr) {
    std::vector<llvm::Type*> types;
    for (Value* arg : args) types.push_back(arg->getType());
    function = state.create_function("dot_" + dot.name + "_and_map_" + map.name,
                                     llvm::FunctionType::get(code.b.getVoidTy(), types, false), false);
    Code inner(state, llvm::BasicBlock::Create(code.context(), "entry", function));
    Values parameters;
    for (llvm::Argument& argument : function->args()) parameters.push_back(&argument);
    const Values of_map(parameters.begin() + static_cast<std::ptrdiff_t>(of_dot), parameters.end());
    parameters.resize(of_dot);
    std::size_t at = dot.init ? 2 : 1;
    for (std::size_t s = 0; s < copies.size(); ++s, at += 2)  // a and b of each: all extents are static
      if (copies[s]) parameters[at] = copied(inner, dot.dtype, parameters[at], dot.segments[s].depth());
    if (first_sum) parameters[0] = inner.stack_row(dot.dtype, dot.n.bound);
    DotEmitter(inner, dot, columns, parameters).emit_by_blocks(*walk, first_sum.has_value(), [&](Value* block) {
      Values moved;
      Value* point = inner.b.CreateMul(block, inner.i64(lanes));
      for (std::size_t i = 0; i < of_map.size(); ++i) {
        const bool is_address = i < nest.groups.size();
        const AccessGroup& group = is_address ? nest.groups[i] : nest.index_groups[i - nest.groups.size()];
        if (first_sum && is_address && group.buffer == dot.c.buffer) {
          moved.push_back(inner.offset(parameters[0], *first_sum * bytes_of(dot.dtype)));
          continue;
        }
        const std::int64_t step = group.coefficients[0];
        moved.push_back(is_address ? inner.offset(of_map[i], point, step * bytes_of(group.dtype))
                                   : inner.b.CreateAdd(of_map[i], inner.b.CreateMul(point, inner.i64(step))));
      }
      emit_nest(inner, nest, moved);
    });
    inner.b.CreateRetVoid();
  }
  code.b.CreateCall(function, args);
  if (held != nullptr) {
    held->forget(dot.c.buffer);
    for (const int buffer : writes.buffers()) held->forget(buffer);
  }
  return true;
}

}  // namespace hotloop::codegen
