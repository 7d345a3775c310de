// Pack: copies a matrix into the panels that Dot reads.
#include <sstream>

#include "backends/llvm/code.h"

namespace hotloop::codegen {

using kernel::Pack;

namespace {

// One panel of `vectors` logical vectors, the last with `last_lanes` columns.
void emit_panel(Code& code, const Pack& pack, Value* source, Value* target, int vectors, int last_lanes) {
  const std::int64_t bytes = bytes_of(pack.dtype);
  const int lanes = lanes_of(pack.dtype);
  code.loop(code.i64(0), code.i64(pack.k), 1, [&](Value* k) {
    Value* from = code.offset(source, k, pack.k_stride * bytes);
    Value* to = code.offset(target, k, vectors * lanes * bytes);
    for (int j = 0; j < vectors; ++j) {
      const bool tail = j + 1 == vectors && last_lanes < lanes;
      Value* mask = tail ? code.tail_mask(lanes, code.i64(last_lanes)) : nullptr;
      Value* pointer = code.offset(from, j * lanes * pack.n_stride * bytes);
      Value* value = code.load(pack.dtype, pointer, pack.n_stride, lanes, pack.n_stride == 0 ? nullptr : mask);
      if (tail && pack.n_stride == 0) value = code.b.CreateSelect(mask, value, code.zero(pack.dtype, lanes));
      code.store(pack.dtype, value, code.offset(to, j * lanes * bytes), 1, lanes, nullptr);
    }
  });
}

}  // namespace

void emit_pack(Code& code, const Frame& frame, const Pack& pack) {
  ModuleState& state = code.state();
  std::ostringstream key;
  key << "pack " << name_of(pack.dtype) << ' ' << pack.k_stride << ' ' << pack.n_stride << ' ' << pack.k << ' '
      << pack.n;
  llvm::Function*& function = state.outlined[key.str()];
  if (function == nullptr) {
    llvm::Type* pointer = code.b.getPtrTy();
    auto* type = llvm::FunctionType::get(code.b.getVoidTy(), {pointer, pointer}, false);
    function = state.create_function("pack", type, false);
    Code inner(state, llvm::BasicBlock::Create(code.context(), "entry", function));
    Value* source = function->getArg(0);
    Value* target = function->getArg(1);
    const std::int64_t bytes = bytes_of(pack.dtype);
    const int lanes = lanes_of(pack.dtype);
    const std::int64_t panel = state.program.target.panel(pack.dtype), full = pack.n / panel * panel;
    inner.loop(inner.i64(0), inner.i64(full), panel, [&](Value* column) {
      emit_panel(inner, pack, inner.offset(source, column, pack.n_stride * bytes),
                 inner.offset(target, column, pack.k * bytes), static_cast<int>(panel) / lanes, lanes);
    });
    if (full < pack.n) {
      const auto rest = static_cast<int>(pack.n - full), vectors = (rest + lanes - 1) / lanes;
      emit_panel(inner, pack, inner.offset(source, full * pack.n_stride * bytes),
                 inner.offset(target, full * pack.k * bytes), vectors, rest - (vectors - 1) * lanes);
    }
    inner.b.CreateRetVoid();
  }
  code.b.CreateCall(function, {frame.address(code, pack.source), frame.buffer(pack.target)});
}

}  // namespace hotloop::codegen
