// Pack: copies a matrix into the panels that Dot reads.
#include <sstream>

#include "backends/llvm/code.h"

#include "core/index.h"

namespace hotloop::codegen {

using kernel::Pack;
using Values = Code::Values;

namespace {

// One panel of `vectors` logical vectors, the last with `last_lanes` columns.
void emit_panel(Code& code, const Pack& pack, Value* source, Value* target, int vectors, int last_lanes) {
  const std::int64_t bytes = bytes_of(pack.dtype);
  const int lanes = lanes_of(pack.dtype);
  if (pays_to_transpose(pack.dtype, pack.n_stride, pack.k_stride, pack.k)) {
    const std::int64_t main = pack.k / lanes * lanes;
    const auto squares = [&](std::int64_t begin, std::int64_t end, int count) {
      code.loop(code.i64(begin), code.i64(end), count, [&](Value* k) {
        for (int j = 0; j < vectors; ++j) {
          Value* from = code.offset(code.offset(source, k, bytes), j * lanes * pack.n_stride * bytes);
          Value* to = code.offset(code.offset(target, k, vectors * lanes * bytes), j * lanes * bytes);
          code.copy_transposed(pack.dtype, from, pack.n_stride, j + 1 == vectors ? last_lanes : lanes, count, to,
                               vectors * lanes);
        }
      });
    };
    squares(0, main, lanes);
    if (main < pack.k) squares(main, pack.k, static_cast<int>(pack.k - main));
    return;
  }
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

void emit_pack(Code& code, const Frame& frame, const Pack& pack, bool may_split) {
  ModuleState& state = code.state();
  const bool split = pack.split && may_split;
  const std::int64_t panel = pack.panel, full = pack.n / panel * panel;
  std::ostringstream key;
  key << "pack " << name_of(pack.dtype) << ' ' << pack.k_stride << ' ' << pack.n_stride << ' ' << pack.k << ' '
      << pack.n << ' ' << panel << ' ' << split;
  llvm::Function*& function = state.outlined[key.str()];
  if (function == nullptr) {
    llvm::Type *pointer = code.b.getPtrTy(), *i64 = code.b.getInt64Ty();
    std::vector<llvm::Type*> types{pointer, pointer};
    if (split) types.insert(types.end(), {i64, i64});  // the first column, and the one after the last
    auto* type = llvm::FunctionType::get(code.b.getVoidTy(), types, false);
    function = state.create_function("pack", type, false);
    Code inner(state, llvm::BasicBlock::Create(code.context(), "entry", function));
    Value* source = function->getArg(0);
    Value* target = function->getArg(1);
    Value* begin = split ? function->getArg(2) : inner.i64(0);
    Value* end = split ? function->getArg(3) : inner.i64(pack.n);
    const std::int64_t bytes = bytes_of(pack.dtype);
    const int lanes = lanes_of(pack.dtype);
    Value* end_full = inner.i64(full);
    if (split) end_full = inner.b.CreateBinaryIntrinsic(llvm::Intrinsic::smin, end, end_full);
    inner.loop(begin, end_full, panel, [&](Value* column) {
      emit_panel(inner, pack, inner.offset(source, column, pack.n_stride * bytes),
                 inner.offset(target, column, pack.k * bytes), static_cast<int>(panel) / lanes, lanes);
    });
    if (full < pack.n) {
      const auto rest = static_cast<int>(pack.n - full), vectors = static_cast<int>(divided_up(rest, lanes));
      Value* has_rest =
          inner.b.CreateAnd(inner.b.CreateICmpSLE(begin, inner.i64(full)), inner.b.CreateICmpSGT(end, inner.i64(full)));
      inner.when(has_rest, [&] {
        emit_panel(inner, pack, inner.offset(source, full * pack.n_stride * bytes),
                   inner.offset(target, full * pack.k * bytes), vectors, rest - (vectors - 1) * lanes);
      });
    }
    inner.b.CreateRetVoid();
  }
  Values args{frame.address(code, pack.source), frame.buffer(pack.target)};
  if (split) {
    // As many panels for each worker, one after the other.
    Value* panels = code.i64(divided_up(pack.n, panel));
    Value* all_but_one = code.b.CreateSub(frame.num_workers, code.i64(1));
    Value* share = code.b.CreateUDiv(code.b.CreateAdd(panels, all_but_one), frame.num_workers);
    Value* columns = code.b.CreateMul(share, code.i64(panel));
    Value* begin = code.b.CreateMul(columns, frame.worker);
    Value* end = code.b.CreateAdd(begin, columns);
    args.push_back(begin);
    args.push_back(code.b.CreateBinaryIntrinsic(llvm::Intrinsic::smin, end, code.i64(pack.n)));
  }
  code.b.CreateCall(function, args);
}

}  // namespace hotloop::codegen
