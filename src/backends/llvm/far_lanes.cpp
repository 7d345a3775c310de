// far_angle, far_turns and far_rem: a comparison and a branch that is not taken, but for a vector with a lane that is far. What such lanes need is one
// function of the module, that goes through them one by one. backends/far_angles.h has the algorithm for angles.
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

// x less its multiples of y where the quotient may have any number of bits: long division, 11 bits of it at a time.
Value* remainder_of(Code& code, Value* x, Value* y) {
  llvm::IRBuilder<>& b = code.b;
  llvm::Type *i64 = b.getInt64Ty(), *f64 = b.getDoubleTy();
  const auto number = [&](std::uint64_t value) { return b.getInt64(value); };
  const auto magnitude = [&](Value* v) { return b.CreateAnd(b.CreateBitCast(v, i64), ~(std::uint64_t{1} << 63)); };
  Value *a = magnitude(x), *c = magnitude(y);
  // As m 2^e, m of 53 bits, fewer below the normal range.
  const auto exponent = [&](Value* bits) {
    Value* field = b.CreateLShr(bits, 52);
    return b.CreateSelect(b.CreateICmpEQ(field, number(0)), number(1), field);
  };
  const auto mantissa = [&](Value* bits) {
    Value* below = b.CreateAnd(bits, (std::uint64_t{1} << 52) - 1);
    Value* is_normal = b.CreateICmpUGE(bits, number(std::uint64_t{1} << 52));
    return b.CreateOr(below, b.CreateSelect(is_normal, number(std::uint64_t{1} << 52), number(0)));
  };
  // Of zero, infinity and NaN there is none; divide by something meanwhile.
  Value* infinity = number(std::uint64_t{0x7ff} << 52);
  Value* is_undefined = b.CreateOr(b.CreateFCmpOEQ(y, llvm::ConstantFP::get(f64, 0)),
                                   b.CreateOr(b.CreateICmpUGE(a, infinity), b.CreateICmpUGT(c, infinity)));
  Value* divisor = b.CreateSelect(is_undefined, number(1), mantissa(c));
  Value* low = exponent(c);
  Value* bits = b.CreateSelect(is_undefined, number(0), b.CreateSub(exponent(a), low));
  Code::Values rest = {b.CreateURem(mantissa(a), divisor)};
  rest = code.loop(number(0), bits, 11, rest, [&](Value* done, const Code::Values& so_far) -> Code::Values {
    Value* step = b.CreateBinaryIntrinsic(llvm::Intrinsic::umin, b.CreateSub(bits, done), number(11));
    return {b.CreateURem(b.CreateShl(so_far[0], step), divisor)};
  });
  // rest 2^(low - 1075), by two factors within the range.
  Value* scale = b.CreateBitCast(b.CreateShl(b.CreateAdd(low, number(2)), 52), f64);
  Value* result = b.CreateFMul(b.CreateUIToFP(rest[0], f64), llvm::ConstantFP::get(f64, 0x1p-54));
  result = b.CreateBinaryIntrinsic(llvm::Intrinsic::copysign, b.CreateFMul(result, scale), x);
  return b.CreateSelect(is_undefined, llvm::ConstantFP::getNaN(f64), result);
}

// Lanes where a function is far from what its formula is good for: which those are, and what there is instead, in f64.
struct Far {
  using Compute = std::function<Value*(Code&, const Code::Values&)>;
  std::string name;
  Compute is_far, value;
};

// void(args..., y, n): y[i] where args[i] are far.
llvm::Function* far_function(Code& code, DType dtype, const Far& far, std::size_t num_args) {
  const std::string name = far.name + "_" + std::string(name_of(dtype));
  llvm::Function*& function = code.state().outlined[name];
  if (function != nullptr) return function;
  std::vector<llvm::Type*> types(num_args + 1, code.b.getPtrTy());
  types.push_back(code.b.getInt64Ty());
  function = code.state().create_function(name, llvm::FunctionType::get(code.b.getVoidTy(), types, false), false);
  function->addFnAttr(llvm::Attribute::Cold);
  Code inner(code.state(), llvm::BasicBlock::Create(code.context(), "entry", function));
  const auto at = [&](std::size_t arg, Value* i) {
    return inner.offset(function->getArg(static_cast<unsigned>(arg)), i, bytes_of(dtype));
  };
  llvm::Type* type = inner.scalar_type(dtype);
  inner.loop(inner.i64(0), function->getArg(static_cast<unsigned>(num_args + 1)), 1, [&](Value* i) {
    Code::Values args, wide;
    for (std::size_t k = 0; k < num_args; ++k) args.push_back(inner.b.CreateLoad(type, at(k, i)));
    inner.when(far.is_far(inner, args), [&] {
      for (Value* arg : args) wide.push_back(inner.b.CreateFPCast(arg, inner.b.getDoubleTy()));
      inner.b.CreateStore(inner.b.CreateFPCast(far.value(inner, wide), type), at(num_args, i));
    });
  });
  inner.b.CreateRetVoid();
  return function;
}

Value* with_far_lanes(Code& code, DType dtype, const Code::Values& args, Value* near, const Far& far) {
  const int lanes = lanes_in(near);
  llvm::Function* function = far_function(code, dtype, far, args.size());
  Value* is_far = far.is_far(code, args);
  return code.when_rarely(lanes == 1 ? is_far : code.b.CreateOrReduce(is_far), near, [&]() -> Value* {
    Code::Values memory;
    for (Value* value : args) memory.push_back(code.stack_room(value->getType(), 1));
    memory.push_back(code.stack_room(near->getType(), 1));
    for (std::size_t k = 0; k < memory.size(); ++k) code.b.CreateStore(k < args.size() ? args[k] : near, memory[k]);
    Value* result = memory.back();
    memory.push_back(code.i64(lanes));
    code.b.CreateCall(function, memory);
    return code.b.CreateLoad(near->getType(), result);
  });
}

Value* absolute(Code& code, Value* x) { return code.b.CreateUnaryIntrinsic(llvm::Intrinsic::fabs, x); }
Value* constant_like(Value* x, double value) { return llvm::ConstantFP::get(x->getType(), value); }

}  // namespace

// Comparisons that are true of NaN.
Value* Code::far_angle(bool wants_turns, DType dtype, Value* x, Value* near) {
  const bool f32 = dtype == DType::F32;
  const auto is_far = [&](Code& code, const Values& a) {
    return code.b.CreateFCmpUGT(absolute(code, a[0]), constant_like(a[0], ir::far_angle(f32)));
  };
  const auto value = [&](Code& code, const Values& a) {
    return far_of(code, a[0], wants_turns, f32 ? 0x1.8p23 : 0x1.8p52);
  };
  return with_far_lanes(*this, dtype, {x}, near, {wants_turns ? "far_turns" : "far_angle", is_far, value});
}

Value* Code::far_rem(DType dtype, Value* x, Value* y, Value* near) {
  const bool f32 = dtype == DType::F32;
  const auto is_far = [&](Code& code, const Values& a) {
    Value* quotient = code.b.CreateFDiv(absolute(code, a[0]), absolute(code, a[1]));
    return code.b.CreateFCmpUGE(quotient, constant_like(quotient, ir::far_quotient(f32)));
  };
  const auto value = [](Code& code, const Values& a) { return remainder_of(code, a[0], a[1]); };
  return with_far_lanes(*this, dtype, {x, y}, near, {"far_rem", is_far, value});
}

}  // namespace hotloop::codegen
