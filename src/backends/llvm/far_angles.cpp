// far_angle and far_turns: one comparison and a branch that is not taken, but for a vector with a lane that is far; what such lanes need is one
// function of the module. backends/far_angles.h has the algorithm.
#include "backends/far_angles.h"

#include <llvm/IR/Intrinsics.h>

#include "backends/llvm/code.h"

namespace hotloop::codegen {
namespace {

using llvm::Intrinsic::fshl;

// The angle or the turns of one double, which is not in the range that needs none of this. `rounding`: that of the turns.
Value* far_of(Code& code, Value* x, bool wants_turns, double rounding) {
  llvm::IRBuilder<>& b = code.b;
  llvm::Type *i64 = b.getInt64Ty(), *i128 = b.getInt128Ty();
  const auto number = [&](std::uint64_t value) { return b.getInt64(value); };
  const auto wide = [&](Value* value) { return b.CreateZExt(value, i128); };
  const auto upper = [&](Value* product) { return b.CreateTrunc(b.CreateLShr(product, 64), i64); };
  const auto joined = [&](Value* left, Value* right, Value* shift) {
    return b.CreateIntrinsic(fshl, {i64}, {left, right, shift});
  };

  llvm::Module& module = code.state().module;
  llvm::GlobalVariable* table = module.getNamedGlobal("inverse_pi");
  if (table == nullptr) {
    auto* data = llvm::ConstantDataArray::get(code.context(), llvm::ArrayRef<std::uint64_t>(backends::inverse_pi));
    table =
        new llvm::GlobalVariable(module, data->getType(), true, llvm::GlobalValue::PrivateLinkage, data, "inverse_pi");
  }

  Value* bits = b.CreateBitCast(x, i64);
  Value* exponent = b.CreateAnd(b.CreateLShr(bits, 52), 0x7ff);
  Value* m = b.CreateOr(b.CreateAnd(bits, (std::uint64_t{1} << 52) - 1), std::uint64_t{1} << 52);
  Value* first = b.CreateSub(exponent, number(backends::first_exponent));
  Value* word = b.CreateGEP(i64, table, b.CreateLShr(first, 6));
  Value* shift = b.CreateAnd(first, 63);
  Value *words[4], *p[3];
  for (unsigned i = 0; i < 4; ++i)
    words[i] = b.CreateAlignedLoad(i64, b.CreateConstGEP1_64(i64, word, i), llvm::Align(8));
  for (int i = 0; i < 3; ++i) p[i] = joined(words[i], words[i + 1], shift);

  Value* low = b.CreateMul(wide(m), wide(p[2]));
  Value* middle = b.CreateAdd(b.CreateMul(wide(m), wide(p[1])), wide(upper(low)));
  Value *r2 = b.CreateTrunc(low, i64), *r1 = b.CreateTrunc(middle, i64);
  Value* r0 = b.CreateAdd(b.CreateMul(m, p[0]), upper(middle));
  Value *head = joined(r0, r1, number(2)), *tail = joined(r1, r2, number(2));
  Value *folded = b.CreateAShr(head, 63), *is_infinite = b.CreateICmpEQ(exponent, number(0x7ff));
  if (wants_turns) {
    Value *n = b.CreateSub(b.CreateLShr(r0, 62), folded), *is_negative = b.CreateICmpSLT(bits, number(0));
    n = b.CreateAnd(b.CreateSelect(is_negative, b.CreateNeg(n), n), 3);
    n = b.CreateFAdd(llvm::ConstantFP::get(x->getType(), rounding), b.CreateSIToFP(n, x->getType()));
    return b.CreateSelect(is_infinite, b.CreateFSub(x, x), n);
  }
  head = b.CreateXor(head, folded);
  tail = b.CreateXor(tail, folded);
  Value* zeros = b.CreateBinaryIntrinsic(llvm::Intrinsic::ctlz, head, b.getFalse());
  Value* product = upper(b.CreateMul(wide(joined(head, tail, zeros)), wide(number(backends::pi_bits))));
  Value* odd_kept = b.CreateOr(b.CreateLShr(product, 1), b.CreateAnd(product, 1));
  Value* scale = b.CreateShl(b.CreateSub(number(1023 - 62), zeros), 52);
  Value* magnitude = b.CreateFMul(b.CreateSIToFP(odd_kept, b.getDoubleTy()), b.CreateBitCast(scale, b.getDoubleTy()));
  Value* sign = b.CreateAnd(b.CreateXor(folded, bits), std::uint64_t{1} << 63);
  Value* y = b.CreateBitCast(b.CreateXor(b.CreateBitCast(magnitude, i64), sign), b.getDoubleTy());
  return b.CreateSelect(is_infinite, b.CreateFSub(x, x), y);
}

Value* is_far(Code& code, DType dtype, Value* x) {
  Value* most =
      code.widen(llvm::ConstantFP::get(code.scalar_type(dtype), ir::far_angle(dtype == DType::F32)), lanes_in(x));
  return code.b.CreateFCmpUGT(code.b.CreateUnaryIntrinsic(llvm::Intrinsic::fabs, x), most);  // or not a number
}

// void(x, y, n): y[i] of all far x[i].
llvm::Function* far_function(Code& code, DType dtype, bool wants_turns) {
  const std::string name = std::string(wants_turns ? "far_turns_" : "far_angle_") + std::string(name_of(dtype));
  llvm::Function*& function = code.state().outlined[name];
  if (function != nullptr) return function;
  llvm::Type* pointer = code.b.getPtrTy();
  auto* type = llvm::FunctionType::get(code.b.getVoidTy(), {pointer, pointer, code.b.getInt64Ty()}, false);
  function = code.state().create_function(name, type, false);
  function->addFnAttr(llvm::Attribute::Cold);
  Code inner(code.state(), llvm::BasicBlock::Create(code.context(), "entry", function));
  const std::int64_t bytes = bytes_of(dtype);
  inner.loop(inner.i64(0), function->getArg(2), 1, [&](Value* i) {
    Value* x = inner.load(dtype, inner.offset(function->getArg(0), i, bytes), 0, 1, nullptr);
    inner.when(is_far(inner, dtype, x), [&] {
      Value* y = far_of(inner, inner.b.CreateFPCast(x, inner.b.getDoubleTy()), wants_turns,
                        dtype == DType::F32 ? 0x1.8p23 : 0x1.8p52);
      inner.store(dtype, inner.b.CreateFPCast(y, x->getType()), inner.offset(function->getArg(1), i, bytes), 0, 1,
                  nullptr);
    });
  });
  inner.b.CreateRetVoid();
  return function;
}

}  // namespace

Value* Code::far_angle(bool wants_turns, DType dtype, Value* x, Value* near) {
  const int lanes = lanes_in(x);
  Value* far = is_far(*this, dtype, x);
  llvm::Function* function = far_function(*this, dtype, wants_turns);
  return when_rarely(lanes == 1 ? far : b.CreateOrReduce(far), near, [&]() -> Value* {
    Value *from = stack_room(x->getType(), 1), *to = stack_room(x->getType(), 1);
    b.CreateStore(x, from);
    b.CreateStore(near, to);
    b.CreateCall(function, {from, to, i64(lanes)});
    return b.CreateLoad(x->getType(), to);
  });
}

}  // namespace hotloop::codegen
