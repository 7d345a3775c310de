// The scalar operations, on scalars or vectors, exact to the bit on every target. Functions of floats are sequences of them (lower_math).
#include <llvm/IR/Intrinsics.h>
#include <llvm/IR/IntrinsicsX86.h>
#include <cmath>

#include <algorithm>
#include <bit>
#include <cstdint>
#include <string>
#include <vector>

#include "backends/llvm/code.h"
#include "hotloop/error.h"

namespace hotloop::codegen {

using ir::ScalarOp;

namespace {

bool is_signed(DType d) { return d == DType::I32 || d == DType::I64; }

bool is_compare(ScalarOp op) { return op >= ScalarOp::Eq && op <= ScalarOp::Ge; }

}  // namespace

Value* Code::fma(Value* a, Value* c, Value* addend) {
  if (!state_.program.target.has_fma) return b.CreateFAdd(b.CreateFMul(a, c), addend);
  return b.CreateIntrinsic(llvm::Intrinsic::fma, {a->getType()}, {a, c, addend});
}

Value* Code::quotient_of_some_lanes(Value* a, Value* c) {
  return b.CreateConstrainedFPBinOp(llvm::Intrinsic::experimental_constrained_fdiv, a, c, nullptr, "", nullptr,
                                    llvm::RoundingMode::NearestTiesToEven, llvm::fp::ebIgnore);
}

Value* Code::upper_halves(Value* pairs) {
  return b.CreateBitCast(b.CreateAnd(pairs, splat(pairs, 0xffff0000)), type(DType::F32, lanes_in(pairs)));
}

Value* Code::lower_halves(Value* pairs) {
  return b.CreateBitCast(b.CreateShl(pairs, splat(pairs, 16)), type(DType::F32, lanes_in(pairs)));
}

// AVX-512's scalef, which no other target has: lower_math asks for it there alone.
Value* Code::ldexp(DType dtype, Value* x, Value* n) {
  const bool f32 = dtype == DType::F32;
  const int lanes = lanes_in(x), bytes = static_cast<int>(size_of(dtype)), most = 64 / bytes, least = 16 / bytes;
  const auto some_lanes = [&](Value* v, int first, int count) {
    std::vector<int> which(static_cast<std::size_t>(count), -1);
    for (int l = 0; l < count && first + l < lanes; ++l) which[static_cast<std::size_t>(l)] = first + l;
    return b.CreateShuffleVector(v, which);
  };
  if (lanes == 1) {
    const auto alone = [&](Value* v) {
      return b.CreateInsertElement(llvm::PoisonValue::get(type(dtype, least)), v, std::uint64_t{0});
    };
    return b.CreateExtractElement(ldexp(dtype, alone(x), alone(n)), std::uint64_t{0});
  }
  if (lanes > most) {
    const int half = lanes / 2;
    return joined(ldexp(dtype, some_lanes(x, 0, half), some_lanes(n, 0, half)),
                  ldexp(dtype, some_lanes(x, half, half), some_lanes(n, half, half)));
  }
  const int whole = std::max(least, static_cast<int>(std::bit_ceil(static_cast<unsigned>(lanes))));
  if (whole > lanes) {
    return some_lanes(ldexp(dtype, some_lanes(x, 0, whole), some_lanes(n, 0, whole)), 0, lanes);
  }
  using namespace llvm::Intrinsic;
  const llvm::Intrinsic::ID of_f32[] = {x86_avx512_mask_scalef_ps_128, x86_avx512_mask_scalef_ps_256,
                                        x86_avx512_mask_scalef_ps_512};
  const llvm::Intrinsic::ID of_f64[] = {x86_avx512_mask_scalef_pd_128, x86_avx512_mask_scalef_pd_256,
                                        x86_avx512_mask_scalef_pd_512};
  const int which = lanes == most ? 2 : lanes == least ? 0 : 1;
  Values args{x, n, llvm::PoisonValue::get(x->getType()),
              llvm::Constant::getAllOnesValue(b.getIntNTy(std::max(8u, static_cast<unsigned>(lanes))))};
  if (which == 2) args.push_back(b.getInt32(4));  // rounded as the processor is set
  return b.CreateIntrinsic(f32 ? of_f32[which] : of_f64[which], {}, args);
}

Value* Code::fma_pairs(Value* a, Value* c, Value* addend) {
  const int lanes = lanes_in(addend);
  if (state_.multiplies_pairs && lanes == 16) {
    llvm::Type* halves = llvm::FixedVectorType::get(b.getBFloatTy(), 32);
    return b.CreateIntrinsic(llvm::Intrinsic::x86_avx512bf16_dpbf16ps_512, {},
                             {addend, b.CreateBitCast(a, halves), b.CreateBitCast(c, halves)});
  }
  return fma(lower_halves(a), lower_halves(c), fma(upper_halves(a), upper_halves(c), addend));
}

Value* Code::op(ScalarOp op, DType result, DType operand, const Values& given) {
  Values args = given;
  int lanes = 1;
  for (const Value* arg : args) lanes = std::max(lanes, lanes_in(arg));
  for (Value*& arg : args) arg = widen(arg, lanes);
  if (op == ScalarOp::Copy) return args[0];
  if (op == ScalarOp::Select) return b.CreateSelect(args[0], args[1], args[2]);
  if (op == ScalarOp::Cast) return cast(result, operand, args[0]);
  if (op == ScalarOp::Bitcast) return b.CreateBitCast(args[0], type(result, lanes));
  if (is_compare(op)) return compare(op, operand, args[0], args[1]);
  if (result == DType::Bool) return bool_op(op, args);
  return is_float(result) ? float_op(op, result, args) : integer_op(op, result, args);
}

Value* Code::float_op(ScalarOp op, DType dtype, const Values& args) {
  Value* a = args[0];
  llvm::Type* type = a->getType();
  const auto unary = [&](llvm::Intrinsic::ID id) { return b.CreateUnaryIntrinsic(id, a); };
  switch (op) {
    case ScalarOp::Neg: return b.CreateFNeg(a);
    case ScalarOp::Abs: return unary(llvm::Intrinsic::fabs);
    case ScalarOp::Floor: return unary(llvm::Intrinsic::floor);
    case ScalarOp::Ceil: return unary(llvm::Intrinsic::ceil);
    case ScalarOp::Rint: return unary(llvm::Intrinsic::rint);
    case ScalarOp::Sqrt: return unary(llvm::Intrinsic::sqrt);
    case ScalarOp::Add: return b.CreateFAdd(a, args[1]);
    case ScalarOp::Sub: return b.CreateFSub(a, args[1]);
    case ScalarOp::Mul: return b.CreateFMul(a, args[1]);
    case ScalarOp::Div: return b.CreateFDiv(a, args[1]);
    case ScalarOp::Fma: return fma(a, args[1], args[2]);
    case ScalarOp::Sign: {  // zeros keep their sign; NaN stays NaN
      Value* zero = llvm::ConstantFP::get(type, 0.0);
      Value* unit = b.CreateBinaryIntrinsic(llvm::Intrinsic::copysign, llvm::ConstantFP::get(type, 1.0), a);
      return b.CreateSelect(b.CreateFCmpONE(a, zero), unit, a);
    }
    case ScalarOp::Min:
    case ScalarOp::Max: {
      // What minps and maxps do with their operands swapped (the first one at a tie), then NaN of the second one.
      Value* second = args[1];
      Value* better = op == ScalarOp::Min ? b.CreateFCmpOLT(second, a) : b.CreateFCmpOGT(second, a);
      return b.CreateSelect(b.CreateFCmpUNO(second, second), second, b.CreateSelect(better, second, a));
    }
    case ScalarOp::Ldexp: return ldexp(dtype, a, args[1]);
    case ScalarOp::FarAngle:
    case ScalarOp::FarTurns: return far_angle(op == ScalarOp::FarTurns, dtype, a, args[1]);
    case ScalarOp::FarRem: return far_rem(dtype, a, args[1], args[2]);
    default: throw InternalError(__FILE__, __LINE__, "no code for the operation " + std::string(ir::name_of(op)));
  }
}

Value* Code::integer_op(ScalarOp op, DType dtype, const Values& args) {
  Value* a = args[0];
  Value* zero = splat(a, 0);
  const std::int64_t bits = bytes_of(dtype) * 8;
  switch (op) {
    case ScalarOp::Neg: return b.CreateNeg(a);
    case ScalarOp::Abs: return is_signed(dtype) ? b.CreateSelect(b.CreateICmpSLT(a, zero), b.CreateNeg(a), a) : a;
    case ScalarOp::Sign: {
      Value* positive = b.CreateZExt(b.CreateICmpNE(a, zero), a->getType());
      return is_signed(dtype) ? b.CreateSelect(b.CreateICmpSLT(a, zero), splat(a, -1), positive) : positive;
    }
    case ScalarOp::Floor:
    case ScalarOp::Ceil:
    case ScalarOp::Rint: return a;
    case ScalarOp::Not: return b.CreateNot(a);
    case ScalarOp::Add: return b.CreateAdd(a, args[1]);
    case ScalarOp::Sub: return b.CreateSub(a, args[1]);
    case ScalarOp::Mul: return b.CreateMul(a, args[1]);
    case ScalarOp::Fma: return b.CreateAdd(b.CreateMul(a, args[1]), args[2]);
    case ScalarOp::Div:
    case ScalarOp::Rem: return divide(op, dtype, a, args[1]);
    case ScalarOp::And: return b.CreateAnd(a, args[1]);
    case ScalarOp::Or: return b.CreateOr(a, args[1]);
    case ScalarOp::Xor: return b.CreateXor(a, args[1]);
    case ScalarOp::Min:
    case ScalarOp::Max: {
      const auto less = is_signed(dtype) ? llvm::CmpInst::ICMP_SLT : llvm::CmpInst::ICMP_ULT;
      Value* first = b.CreateICmp(less, a, args[1]);
      return op == ScalarOp::Min ? b.CreateSelect(first, a, args[1]) : b.CreateSelect(first, args[1], a);
    }
    case ScalarOp::Shl:
    case ScalarOp::Shr: {
      Value* amount = b.CreateAnd(args[1], splat(a, bits - 1));
      if (op == ScalarOp::Shl) return b.CreateShl(a, amount);
      return is_signed(dtype) ? b.CreateAShr(a, amount) : b.CreateLShr(a, amount);
    }
    default: break;
  }
  HOTLOOP_CHECK(false, "no integer form of " + std::string(ir::name_of(op)));
  return nullptr;
}

// Division by zero gives 0 and leaves the dividend: masked-off lanes divide as well and must not trap.
Value* Code::divide(ScalarOp op, DType dtype, Value* a, Value* c) {
  Value* zero = splat(a, 0);
  Value* by_zero = b.CreateICmpEQ(c, zero);
  if (!is_signed(dtype)) {
    Value* divisor = b.CreateSelect(by_zero, splat(a, 1), c);
    Value* value = op == ScalarOp::Div ? b.CreateUDiv(a, divisor) : b.CreateURem(a, divisor);
    return b.CreateSelect(by_zero, op == ScalarOp::Div ? zero : a, value);
  }
  Value* by_minus_one = b.CreateICmpEQ(c, splat(a, -1));  // the least integer by -1 traps
  Value* divisor = b.CreateSelect(b.CreateOr(by_zero, by_minus_one), splat(a, 1), c);
  if (op == ScalarOp::Rem) return b.CreateSelect(by_zero, a, b.CreateSRem(a, divisor));
  Value* value = b.CreateSelect(by_minus_one, b.CreateNeg(a), b.CreateSDiv(a, divisor));
  return b.CreateSelect(by_zero, zero, value);
}

Value* Code::bool_op(ScalarOp op, const Values& args) {
  switch (op) {
    case ScalarOp::Not: return b.CreateNot(args[0]);
    case ScalarOp::And:
    case ScalarOp::Min:
    case ScalarOp::Mul: return b.CreateAnd(args[0], args[1]);
    case ScalarOp::Or:
    case ScalarOp::Max:
    case ScalarOp::Add: return b.CreateOr(args[0], args[1]);
    case ScalarOp::Xor: return b.CreateXor(args[0], args[1]);
    default: break;
  }
  HOTLOOP_CHECK(false, "no bool form of " + std::string(ir::name_of(op)));
  return nullptr;
}

Value* Code::compare(ScalarOp op, DType operand, Value* a, Value* c) {
  using P = llvm::CmpInst;
  const std::size_t which = static_cast<std::size_t>(op) - static_cast<std::size_t>(ScalarOp::Eq);
  // Eq, Ne, Lt, Le, Gt, Ge; comparisons with NaN are false, but for Ne.
  constexpr P::Predicate floats[] = {P::FCMP_OEQ, P::FCMP_UNE, P::FCMP_OLT, P::FCMP_OLE, P::FCMP_OGT, P::FCMP_OGE};
  constexpr P::Predicate signeds[] = {P::ICMP_EQ, P::ICMP_NE, P::ICMP_SLT, P::ICMP_SLE, P::ICMP_SGT, P::ICMP_SGE};
  constexpr P::Predicate unsigneds[] = {P::ICMP_EQ, P::ICMP_NE, P::ICMP_ULT, P::ICMP_ULE, P::ICMP_UGT, P::ICMP_UGE};
  if (is_float(operand)) return b.CreateFCmp(floats[which], a, c);
  return b.CreateICmp(is_signed(operand) ? signeds[which] : unsigneds[which], a, c);
}

// Float to integer: what does not fit is the lowest or the highest number, NaN is 0.
Value* Code::saturated(DType to, Value* value, llvm::Type* target) {
  const bool with_sign = to != DType::U32;
  if (lanes_in(value) == 1) {
    const auto intrinsic = with_sign ? llvm::Intrinsic::fptosi_sat : llvm::Intrinsic::fptoui_sat;
    return b.CreateIntrinsic(intrinsic, {target, value->getType()}, {value});
  }
  // The intrinsic goes lane by lane on vectors.
  const auto bits = static_cast<unsigned>(8 * bytes_of(to)), digits = with_sign ? bits - 1 : bits;
  const auto limit = [&](double x) { return llvm::ConstantFP::get(value->getType(), x); };
  const auto integer = [&](const llvm::APInt& x) { return llvm::ConstantInt::get(target, x); };
  const llvm::APInt lowest = with_sign ? llvm::APInt::getSignedMinValue(bits) : llvm::APInt::getMinValue(bits),
                    highest = with_sign ? llvm::APInt::getSignedMaxValue(bits) : llvm::APInt::getMaxValue(bits);
  const double end = std::ldexp(1.0, static_cast<int>(digits)), begin = with_sign ? -end : 0;
  Value* fits = with_sign ? b.CreateFPToSI(value, target) : b.CreateFPToUI(value, target);
  fits = b.CreateSelect(b.CreateFCmpOLT(value, limit(end)), fits, integer(highest));
  fits = b.CreateSelect(b.CreateFCmpOGE(value, limit(begin)), fits, integer(lowest));
  return b.CreateSelect(b.CreateFCmpUNO(value, value), llvm::Constant::getNullValue(target), fits);
}

Value* Code::cast(DType to, DType from, Value* value) {
  if (to == from) return value;
  llvm::Type* target = type(to, lanes_in(value));
  if (to == DType::Bool) {
    Value* zero = llvm::Constant::getNullValue(value->getType());
    return is_float(from) ? b.CreateFCmpUNE(value, zero) : b.CreateICmpNE(value, zero);
  }
  if (is_float(from)) {
    if (is_float(to)) return b.CreateFPCast(value, target);
    return saturated(to, value, target);
  }
  if (is_float(to)) return is_signed(from) ? b.CreateSIToFP(value, target) : b.CreateUIToFP(value, target);
  return is_signed(from) ? b.CreateSExtOrTrunc(value, target) : b.CreateZExtOrTrunc(value, target);
}

}  // namespace hotloop::codegen
