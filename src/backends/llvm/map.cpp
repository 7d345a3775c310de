// Map: a loop nest with straight-line code. The nest is normalised (trivial dims dropped, adjacent dims collapsed),
// then emitted once as a function of base pointers, so that equal nests at different addresses share their code; or, if it is
// small and runs in a loop, in place, where it finds in registers what statements before it computed.
#include "backends/llvm/held_values.h"
#include "backends/llvm/map_nest.h"

namespace hotloop::codegen {

using kernel::Instr;
using kernel::Map;

namespace {

using Values = Code::Values;

Value* dim_extent(Code& code, const Frame& frame, const LoopDim& dim) {
  if (dim.extent_var < 0) return code.i64(dim.extent);
  return code.b.CreateMul(frame.vars[static_cast<std::size_t>(dim.extent_var)], code.i64(dim.factor));
}

// Emitted in place a statement costs code at each of its places, and saves a call and its way through memory.
bool is_small(const MapNest& nest) {
  constexpr std::int64_t most_points = 32, most_instructions = 160;
  std::int64_t vectors = 1;
  for (std::size_t d = 0; d < nest.dims.size(); ++d) {
    if (!nest.dims[d].is_static()) return false;
    const bool fills = static_cast<int>(d) == nest.vector_dim;
    vectors *= fills ? (nest.dims[d].extent + nest.lanes - 1) / nest.lanes : nest.dims[d].extent;
    if (vectors > most_points) return false;
  }
  return vectors * nest.body_weight() <= most_instructions;
}

}  // namespace

void emit_map(Code& code, const Frame& frame, const Map& map, bool may_split, HeldValues* held) {
  bool split = map.split && may_split;
  if (split && (map.num_outer == 0 || map.dims[0].extent == kernel::Extent{})) {
    code.when(code.b.CreateICmpEQ(frame.worker, code.i64(0)), [&] { emit_map(code, frame, map, false); });
    if (held != nullptr) held->clear();
    return;
  }
  if (held != nullptr && !split) {
    const MapNest nest = normalised(code.state(), map, split, true);
    if (is_small(nest)) {
      Values arguments;
      for (const AccessGroup& group : nest.groups)
        arguments.push_back(frame.address(code, group.buffer, group.outside));
      for (const AccessGroup& group : nest.index_groups) arguments.push_back(frame.affine(code, group.outside));
      code.held = held;
      emit_nest(code, nest, arguments);
      code.held = nullptr;
      return;
    }
  }
  const MapNest nest = normalised(code.state(), map, split);
  const std::string key = nest.key();
  ModuleState& state = code.state();
  llvm::Function*& function = state.outlined[key];
  if (function == nullptr) {
    std::vector<llvm::Type*> types(nest.groups.size(), code.b.getPtrTy());
    types.insert(types.end(), nest.index_groups.size(), code.b.getInt64Ty());
    for (const LoopDim& dim : nest.dims) {
      if (!dim.is_static()) types.push_back(code.b.getInt64Ty());
    }
    if (nest.is_long()) types.push_back(code.b.getPtrTy());
    function =
        state.create_function("map_" + map.name, llvm::FunctionType::get(code.b.getVoidTy(), types, false), false);
    Code inner(state, llvm::BasicBlock::Create(code.context(), "entry", function));
    Values arguments;
    for (llvm::Argument& argument : function->args()) arguments.push_back(&argument);
    emit_nest(inner, nest, arguments);
    inner.b.CreateRetVoid();
  }

  // Where this worker's share of dim 0 begins and how long it is.
  Value* begin = nullptr;
  Value* count = nullptr;
  if (split) {
    Value* n = dim_extent(code, frame, nest.dims[0]);
    const std::int64_t align = nest.vector_dim == 0 ? nest.lanes : 1;
    Value* chunk =
        code.b.CreateUDiv(code.b.CreateAdd(n, code.b.CreateSub(frame.num_workers, code.i64(1))), frame.num_workers);
    chunk = code.b.CreateAnd(code.b.CreateAdd(chunk, code.i64(align - 1)), code.i64(-align));
    begin = code.b.CreateMul(chunk, frame.worker);
    count = code.b.CreateBinaryIntrinsic(llvm::Intrinsic::smin, chunk, code.b.CreateSub(n, begin));
  }
  const auto call = [&] {
    Values args;
    const auto share = [&](std::int64_t coefficient) { return code.b.CreateMul(begin, code.i64(coefficient)); };
    for (const AccessGroup& group : nest.groups) {
      Value* index = frame.affine(code, group.outside);
      if (split) index = code.b.CreateAdd(index, share(group.coefficients[0]));
      args.push_back(code.offset(frame.buffer(group.buffer), index, bytes_of(group.dtype)));
    }
    for (const AccessGroup& group : nest.index_groups) {
      Value* index = frame.affine(code, group.outside);
      args.push_back(split ? code.b.CreateAdd(index, share(group.coefficients[0])) : index);
    }
    for (std::size_t d = 0; d < nest.dims.size(); ++d) {
      const LoopDim& dim = nest.dims[d];
      if (!dim.is_static()) args.push_back(split && d == 0 ? count : dim_extent(code, frame, dim));
    }
    if (nest.is_long()) args.push_back(frame.cancel);
    code.b.CreateCall(function, args);
  };
  if (split) {
    code.when(code.b.CreateICmpSGT(count, code.i64(0)), call);
  } else {
    call();
  }
  if (held == nullptr) return;
  for (const Instr& instr : map.instrs)
    if (instr.kind == Instr::Kind::Store) held->forget(instr.access.buffer);
}

}  // namespace hotloop::codegen
