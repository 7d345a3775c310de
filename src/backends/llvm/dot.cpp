// Dots: small ones are emitted where they stand, others as functions, of which alike ones share one.
#include <algorithm>
#include <sstream>

#include "backends/llvm/dot_emitter.h"
#include "backends/llvm/held_values.h"
#include "core/index.h"
#include "hotloop/error.h"
#include "schedule/column_walk.h"
#include "schedule/footprint.h"

namespace hotloop::codegen {

using kernel::Dot;
using kernel::DotSegment;
using kernel::KDim;

using Values = Code::Values;

std::string key_of(const Dot& dot, const kernel::ColumnWalk& walk) {
  std::ostringstream text;
  const auto extent = [](const kernel::Extent& e) { return (e.is_static() ? "" : "?") + std::to_string(e.bound); };
  text << "dot " << name_of(dot.dtype)
       << (dot.in_blocks ? " blocks "
           : dot.pairs   ? " pairs "
                         : " ")
       << extent(dot.m) << ' ' << extent(dot.n) << ' ' << dot.init.has_value() << starts_from_c(dot) << ' '
       << dot.init_m << ' ' << dot.init_n << ' ' << dot.c_m << ' ' << dot.c_n;
  for (const kernel::TileRun& run : walk.runs) text << ' ' << run.width << 'x' << run.end;
  text << (walk.turns ? " turns" : "");
  for (const DotSegment& s : dot.segments) {
    text << "; " << s.a_m << ' ' << s.b_n << ' ' << s.panel;
    for (const KDim& k : s.k) text << ' ' << extent(k.extent) << ',' << k.a_stride << ',' << k.b_stride;
  }
  return text.str();
}

Values dot_arguments(Code& code, const Frame& frame, const Dot& dot, bool turns) {
  Values args{frame.address(code, dot.c)};
  if (dot.init) args.push_back(frame.address(code, *dot.init));
  for (const DotSegment& segment : dot.segments) {
    args.push_back(frame.address(code, segment.a));
    args.push_back(frame.address(code, segment.b));
    for (const KDim& dim : collapsed(segment)) {
      HOTLOOP_CHECK(dim.extent.is_static() || !segment.packed(), "a packed segment has static k");
      if (!dim.extent.is_static()) args.push_back(frame.extent(code, dim.extent));
    }
  }
  for (const kernel::Extent& extent : {dot.m, dot.n})
    if (!extent.is_static()) args.push_back(frame.extent(code, extent));
  if (turns) args.push_back(code.b.CreateTrunc(frame.turn, code.b.getInt1Ty()));
  if (is_long(dot)) args.push_back(frame.cancel);
  return args;
}

// As Maps do: few vectors, and few steps, counted in registers of the machine: the more of them hold sums the fewer hold what is added.
bool stands_in_place(const kernel::Target& target, const Dot& dot, const HeldValues* held) {
  constexpr std::int64_t most_vectors = 24, most_steps = 96;
  if (held == nullptr || !dot.m.is_static() || !dot.n.is_static()) return false;
  const std::int64_t lanes = lanes_for_columns(dot, true);
  const std::int64_t vectors = dot.m.bound * divided_up(dot.n.bound, lanes);
  std::int64_t steps = 0;
  for (const DotSegment& s : dot.segments) {
    steps += vectors * s.depth() * target.vector_registers;
    if (!std::all_of(s.k.begin(), s.k.end(), [](const KDim& k) { return k.extent.is_static(); })) return false;
  }
  return vectors <= most_vectors && steps <= most_steps;
}

void emit_dot(Code& code, const Frame& frame, const Dot& dot, HeldValues* held) {
  HOTLOOP_CHECK(is_float(dot.dtype) && (dot.n.is_static() || dot.m.is_static()),
                "a Dot is of floats, and a call has as many rows, or else as many columns, as it likes");
  if (!dot.in_blocks && dot.n.is_static() && better_transposed(dot))
    return emit_dot(code, frame, transposed(dot), held);
  ModuleState& state = code.state();
  const kernel::ColumnWalk walk =
      dot.in_blocks ? kernel::ColumnWalk() : walk_of(state.program.target, dot, frame.loop_depth > 0);
  const Values args = dot_arguments(code, frame, dot, walk.turns);
  if (!dot.in_blocks && stands_in_place(state.program.target, dot, held)) {
    code.held = held;
    DotEmitter(code, dot, walk, args).emit();
    code.held = nullptr;
    return;
  }
  llvm::Function*& function = state.outlined[key_of(dot, walk)];
  if (function == nullptr) {
    std::vector<llvm::Type*> types;
    for (Value* arg : args) types.push_back(arg->getType());
    function =
        state.create_function("dot_" + dot.name, llvm::FunctionType::get(code.b.getVoidTy(), types, false), false);
    Code inner(state, llvm::BasicBlock::Create(code.context(), "entry", function));
    Values parameters;
    for (llvm::Argument& argument : function->args()) parameters.push_back(&argument);
    if (dot.in_blocks)
      emit_blocks(inner, dot, parameters);
    else
      DotEmitter(inner, dot, walk, parameters).emit();
    inner.b.CreateRetVoid();
  }
  code.b.CreateCall(function, args);
  if (held != nullptr) held->forget(dot.c.buffer);
}

}  // namespace hotloop::codegen
