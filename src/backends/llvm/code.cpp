#include "backends/llvm/code.h"

#include <llvm/IR/MDBuilder.h>

#include <bit>
#include <numeric>

#include "backends/llvm/held_values.h"
#include "core/index.h"
#include "hotloop/error.h"

namespace hotloop::codegen {

llvm::Function* ModuleState::create_function(const std::string& name, llvm::FunctionType* type, bool is_entry) {
  auto* function = llvm::Function::Create(
      type, is_entry ? llvm::GlobalValue::ExternalLinkage : llvm::GlobalValue::InternalLinkage, name, module);
  function->addFnAttr(llvm::Attribute::NoUnwind);
  function->addFnAttr(llvm::Attribute::NoInline);
  const std::string width = std::to_string(register_bytes * 8);
  function->addFnAttr("prefer-vector-width", width);
  function->addFnAttr("min-legal-vector-width", width);
  if (program.flushes_denormals) function->addFnAttr("denormal-fp-math", "preserve-sign,preserve-sign");
  return function;
}

llvm::Type* Code::scalar_type(DType dtype) {
  switch (dtype) {
    case DType::Bool: return b.getInt1Ty();
    case DType::I32:
    case DType::U32: return b.getInt32Ty();
    case DType::I64: return b.getInt64Ty();
    case DType::F32: return b.getFloatTy();
    case DType::F64: break;
  }
  return b.getDoubleTy();
}

llvm::Type* Code::type(DType dtype, int lanes) {
  llvm::Type* element = scalar_type(dtype);
  return lanes == 1 ? element : llvm::FixedVectorType::get(element, static_cast<unsigned>(lanes));
}

llvm::Type* Code::memory_type(DType dtype, int lanes) {
  if (dtype != DType::Bool) return type(dtype, lanes);
  return lanes == 1 ? static_cast<llvm::Type*>(b.getInt8Ty())
                    : llvm::FixedVectorType::get(b.getInt8Ty(), static_cast<unsigned>(lanes));
}

Value* Code::constant(DType dtype, std::uint64_t bits) {
  if (dtype == DType::Bool) return b.getInt1(bits != 0);
  if (dtype == DType::I64) return b.getInt64(bits);
  if (dtype == DType::F64) {
    return llvm::ConstantFP::get(context(), llvm::APFloat(llvm::APFloat::IEEEdouble(), llvm::APInt(64, bits)));
  }
  const auto low = static_cast<std::uint32_t>(bits);
  if (dtype == DType::F32) {
    return llvm::ConstantFP::get(context(), llvm::APFloat(llvm::APFloat::IEEEsingle(), llvm::APInt(32, low)));
  }
  return b.getInt32(low);
}

Value* Code::splat(Value* like, std::int64_t value) { return llvm::ConstantInt::getSigned(like->getType(), value); }

Value* Code::widen(Value* value, int lanes) {
  return lanes == 1 || lanes_in(value) != 1 ? value : b.CreateVectorSplat(static_cast<unsigned>(lanes), value);
}

Value* Code::lane_numbers(llvm::Type* element, int lanes, std::int64_t stride) {
  if (lanes == 1) return llvm::ConstantInt::get(element, 0);
  std::vector<llvm::Constant*> numbers;
  for (int l = 0; l < lanes; ++l) numbers.push_back(llvm::ConstantInt::getSigned(element, l * stride));
  return llvm::ConstantVector::get(numbers);
}

Value* Code::tail_mask(int lanes, Value* active, std::int64_t most) {
  llvm::Type* i32 = b.getInt32Ty();
  // A loop that is masked throughout counts what is left of its row, which may be more than 32 bits hold.
  if (most > std::numeric_limits<std::int32_t>::max() && active->getType() != i32)
    active =
        b.CreateBinaryIntrinsic(llvm::Intrinsic::smin, active, llvm::ConstantInt::getSigned(active->getType(), lanes));
  return b.CreateICmpSLT(lane_numbers(i32, lanes, 1), widen(b.CreateTrunc(active, i32), lanes));
}

Value* Code::offset(Value* pointer, std::int64_t bytes) {
  return bytes == 0 ? pointer : b.CreateGEP(b.getInt8Ty(), pointer, i64(bytes));
}

Value* Code::offset(Value* pointer, Value* index, std::int64_t scale_bytes) {
  if (scale_bytes == 0) return pointer;
  if (scale_bytes == 4) return b.CreateGEP(b.getInt32Ty(), pointer, index);
  if (scale_bytes == 8) return b.CreateGEP(b.getInt64Ty(), pointer, index);
  return b.CreateGEP(b.getInt8Ty(), pointer, b.CreateMul(index, i64(scale_bytes)));
}

Code::Values Code::loop(Value* begin, Value* end, std::int64_t step, Values carried,
                        const std::function<Values(Value*, const Values&)>& body) {
  const auto* first = llvm::dyn_cast<llvm::ConstantInt>(begin);
  const auto* last = llvm::dyn_cast<llvm::ConstantInt>(end);
  const bool known = first != nullptr && last != nullptr;
  if (known && first->getSExtValue() >= last->getSExtValue()) return carried;
  if (known && first->getSExtValue() + step >= last->getSExtValue()) return body(begin, carried);
  if (known && held != nullptr) {
    for (std::int64_t i = first->getSExtValue(); i < last->getSExtValue(); i += step) carried = body(i64(i), carried);
    return carried;
  }

  llvm::BasicBlock* before = b.GetInsertBlock();
  llvm::Function* function = before->getParent();
  auto* head = llvm::BasicBlock::Create(context(), "loop", function);
  auto* done = llvm::BasicBlock::Create(context(), "done", function);
  if (known) {
    b.CreateBr(head);
  } else {
    b.CreateCondBr(b.CreateICmpSLT(begin, end), head, done);
  }
  b.SetInsertPoint(head);
  llvm::PHINode* iv = b.CreatePHI(b.getInt64Ty(), 2);
  iv->addIncoming(begin, before);
  std::vector<llvm::PHINode*> phis;
  Values current;
  for (Value* value : carried) {
    phis.push_back(b.CreatePHI(value->getType(), 2));
    phis.back()->addIncoming(value, before);
    current.push_back(phis.back());
  }
  const Values next = body(iv, current);
  HOTLOOP_CHECK(next.size() == carried.size(), "a loop must return as many values as it carries");
  Value* iv_next = b.CreateNSWAdd(iv, i64(step));
  llvm::BasicBlock* latch = b.GetInsertBlock();
  b.CreateCondBr(b.CreateICmpSLT(iv_next, end), head, done);
  iv->addIncoming(iv_next, latch);
  for (std::size_t i = 0; i < phis.size(); ++i) phis[i]->addIncoming(next[i], latch);
  b.SetInsertPoint(done);
  if (known) return next;
  Values merged;
  for (std::size_t i = 0; i < phis.size(); ++i) {
    llvm::PHINode* phi = b.CreatePHI(carried[i]->getType(), 2);
    phi->addIncoming(carried[i], before);
    phi->addIncoming(next[i], latch);
    merged.push_back(phi);
  }
  return merged;
}

void Code::loop(Value* begin, Value* end, std::int64_t step, const std::function<void(Value*)>& body) {
  loop(begin, end, step, Values{}, [&](Value* iv, const Values&) {
    body(iv);
    return Values{};
  });
}

void Code::when(Value* condition, const std::function<void()>& body) {
  if (const auto* known = llvm::dyn_cast<llvm::ConstantInt>(condition)) {
    if (known->isOne()) body();
    return;
  }
  llvm::Function* function = b.GetInsertBlock()->getParent();
  auto* then = llvm::BasicBlock::Create(context(), "then", function);
  auto* done = llvm::BasicBlock::Create(context(), "done", function);
  b.CreateCondBr(condition, then, done);
  b.SetInsertPoint(then);
  body();
  b.CreateBr(done);
  b.SetInsertPoint(done);
}

Value* Code::when_rarely(Value* condition, Value* otherwise, const std::function<Value*()>& body) {
  llvm::BasicBlock* before = b.GetInsertBlock();
  auto* rare = llvm::BasicBlock::Create(context(), "rare", before->getParent());
  auto* done = llvm::BasicBlock::Create(context(), "done", before->getParent());
  b.CreateCondBr(condition, rare, done, llvm::MDBuilder(context()).createBranchWeights(1, 1 << 20));
  b.SetInsertPoint(rare);
  Value* value = body();
  llvm::BasicBlock* last = b.GetInsertBlock();
  b.CreateBr(done);
  b.SetInsertPoint(done);
  llvm::PHINode* phi = b.CreatePHI(otherwise->getType(), 2);
  phi->addIncoming(otherwise, before);
  phi->addIncoming(value, last);
  return phi;
}

Code::Values Code::either(Value* condition, const std::function<Values()>& then,
                          const std::function<Values()>& otherwise) {
  if (const auto* known = llvm::dyn_cast<llvm::ConstantInt>(condition)) return known->isOne() ? then() : otherwise();
  llvm::Function* function = b.GetInsertBlock()->getParent();
  auto* if_true = llvm::BasicBlock::Create(context(), "then", function);
  auto* if_false = llvm::BasicBlock::Create(context(), "otherwise", function);
  auto* done = llvm::BasicBlock::Create(context(), "done", function);
  b.CreateCondBr(condition, if_true, if_false);
  const auto emit = [&](llvm::BasicBlock* block, const std::function<Values()>& body) {
    b.SetInsertPoint(block);
    const Values values = body();
    llvm::BasicBlock* last = b.GetInsertBlock();
    b.CreateBr(done);
    return std::pair(values, last);
  };
  const auto [values, from_true] = emit(if_true, then);
  const auto [others, from_false] = emit(if_false, otherwise);
  b.SetInsertPoint(done);
  Values chosen;
  for (std::size_t i = 0; i < values.size(); ++i) {
    llvm::PHINode* phi = b.CreatePHI(values[i]->getType(), 2);
    phi->addIncoming(values[i], from_true);
    phi->addIncoming(others[i], from_false);
    chosen.push_back(phi);
  }
  return chosen;
}

llvm::AllocaInst* Code::stack_room(llvm::Type* type, std::int64_t count) {
  llvm::BasicBlock& entry = b.GetInsertBlock()->getParent()->getEntryBlock();
  llvm::IRBuilder<> first(&entry, entry.begin());
  return first.CreateAlloca(llvm::ArrayType::get(type, static_cast<std::uint64_t>(count)));
}

llvm::AllocaInst* Code::stack_row(DType dtype, std::int64_t count) {
  const std::int64_t lanes = kernel::lanes_of(dtype);
  llvm::AllocaInst* row = stack_room(type(dtype, static_cast<int>(lanes)), divided_up(count, lanes));
  row->setAlignment(llvm::Align(kernel::vector_bytes));
  return row;
}

Value* Code::is_cancelled(Value* flag) {
  auto* raised = b.CreateAlignedLoad(b.getInt32Ty(), flag, llvm::Align(4), "cancel");
  raised->setAtomic(llvm::AtomicOrdering::Monotonic);
  return b.CreateICmpNE(raised, b.getInt32(0));
}

Value* Code::memory_value(DType dtype, Value* value) {
  return dtype == DType::Bool ? b.CreateZExt(value, memory_type(dtype, lanes_in(value))) : value;
}

Value* Code::register_value(DType dtype, Value* value) {
  return dtype == DType::Bool ? b.CreateICmpNE(value, llvm::Constant::getNullValue(value->getType())) : value;
}

// A tail of few pieces is moved as such: what a masked store wrote is not passed on to a load that follows, and a load that reaches
// beyond its last element waits for whatever is being written there.
bool Code::is_short_tail(DType dtype, int count, int lanes) const {
  return dtype != DType::Bool && count > 0 && count < lanes &&
         std::popcount(static_cast<unsigned>(count)) <= most_pieces;
}

Value* Code::joined(Value* low, Value* high) {
  std::vector<int> all(static_cast<std::size_t>(lanes_in(low) + lanes_in(high)));
  std::iota(all.begin(), all.end(), 0);
  return b.CreateShuffleVector(low, high, all);
}

// What lies in front of zeros. Halves are put together, and wider registers get their zeros at no cost; a piece laid into some wide register would make
// LLVM take any for the rest, and wait for that, in a loop for the sum that the numbers are added to.
Value* Code::load_tail(DType dtype, Value* pointer, int count, int lanes) {
  const int whole = static_cast<int>(std::bit_floor(static_cast<unsigned>(count)));
  Value* result = b.CreateAlignedLoad(type(dtype, whole), pointer, llvm::Align(size_of(dtype)));
  if (whole == 1) result = b.CreateInsertElement(zero(dtype, 2), result, std::uint64_t{0});
  if (whole < count)
    result = joined(result, load_tail(dtype, offset(pointer, whole * bytes_of(dtype)), count - whole, whole));
  while (lanes_in(result) < lanes) result = joined(result, zero(dtype, lanes_in(result)));
  return result;
}

// In pieces of as many lanes as a power of two, the longest first.
void Code::store_tail(DType dtype, Value* value, Value* pointer, int count) {
  for (int first = 0, length; first < count; first += length) {
    length = static_cast<int>(std::bit_floor(static_cast<unsigned>(count - first)));
    std::vector<int> lanes;
    for (int l = 0; l < length; ++l) lanes.push_back(first + l);
    Value* piece = length == 1 ? b.CreateExtractElement(value, static_cast<std::uint64_t>(first))
                               : b.CreateShuffleVector(value, lanes);
    b.CreateAlignedStore(piece, offset(pointer, first * bytes_of(dtype)), llvm::Align(size_of(dtype)));
  }
}

// Zeros in memory, as many as the longest vector has, in one page.
llvm::GlobalVariable* Code::zeros() {
  llvm::GlobalVariable* zeros = state_.module.getGlobalVariable("zeros", true);
  if (zeros != nullptr) return zeros;
  auto* type = llvm::ArrayType::get(b.getInt64Ty(), 32);
  zeros = new llvm::GlobalVariable(state_.module, type, true, llvm::GlobalValue::InternalLinkage,
                                   llvm::Constant::getNullValue(type), "zeros");
  zeros->setAlignment(llvm::Align(256));
  return zeros;
}

Value* Code::near_if_off(Value* pointer, Value* mask) {
  return b.CreateSelect(lanes_in(mask) == 1 ? mask : b.CreateOrReduce(mask), pointer, zeros());
}

Value* Code::load(DType dtype, Value* pointer, std::int64_t stride, int lanes, Value* mask) {
  const llvm::Align align(size_of(dtype));
  llvm::Type* memory = memory_type(dtype, lanes);
  if (held != nullptr) {
    if (Value* value = held->find(*this, dtype, pointer, stride, lanes, mask)) return value;
    if (lanes == 1 && mask == nullptr) {
      Value* value = register_value(dtype, b.CreateAlignedLoad(memory, pointer, align));
      held->keep_load(dtype, pointer, value);
      return value;
    }
  }
  if (lanes == 1 || stride == 0) {
    llvm::Type* scalar = memory_type(dtype, 1);
    if (mask != nullptr) {  // a scalar predicate: read a zero instead
      HOTLOOP_CHECK(lanes_in(mask) == 1, "a broadcast load needs a scalar predicate");
      pointer = b.CreateSelect(mask, pointer, zeros());
    }
    return widen(register_value(dtype, b.CreateAlignedLoad(scalar, pointer, align)), lanes);
  }
  if (stride != 1) return gather(dtype, pointer, lane_numbers(b.getInt64Ty(), lanes, stride), mask);
  if (const auto count = known_lanes(mask, lanes); count && is_short_tail(dtype, *count, lanes))
    return load_tail(dtype, pointer, *count, lanes);
  Value* value = mask == nullptr ? static_cast<Value*>(b.CreateAlignedLoad(memory, pointer, align))
                                 : masked_load(dtype, pointer, widen(mask, lanes));
  return register_value(dtype, value);
}

// Whether lanes first .. first + count - 1 are off, whatever happens.
static bool are_known_off(const Value* mask, int first, int count) {
  if (const auto* both = llvm::dyn_cast<llvm::BinaryOperator>(mask);
      both && both->getOpcode() == llvm::Instruction::And)
    return are_known_off(both->getOperand(0), first, count) || are_known_off(both->getOperand(1), first, count);
  const auto* constant = llvm::dyn_cast<llvm::Constant>(mask);
  for (int l = first; constant != nullptr && l < first + count; ++l) {
    const llvm::Constant* lane = constant->getAggregateElement(static_cast<unsigned>(l));
    if (lane == nullptr || !lane->isNullValue()) return false;
  }
  return constant != nullptr;
}

// LLVM 19 splits a mask of one condition for all lanes and a tail into registers, and takes one that is all tail for undefined: it reads the
// whole register. So what is off is left out here.
bool Code::has_idle_register(DType dtype, const Value* mask) const {
  const int lanes = lanes_in(mask), of_register = state_.register_bytes / static_cast<int>(size_of(dtype));
  for (int first = 0; first < lanes && lanes > of_register; first += of_register)
    if (are_known_off(mask, first, of_register)) return true;
  return false;
}

Value* Code::masked_load(DType dtype, Value* pointer, Value* mask) {
  const int lanes = lanes_in(mask), half = lanes / 2;
  llvm::Type* memory = memory_type(dtype, lanes);
  if (are_known_off(mask, 0, lanes)) return llvm::Constant::getNullValue(memory);
  if (!has_idle_register(dtype, mask))
    return b.CreateMaskedLoad(memory, pointer, llvm::Align(size_of(dtype)), mask, llvm::Constant::getNullValue(memory));
  Value* low = masked_load(dtype, pointer, half_of_mask(mask, 0));
  Value* high = masked_load(dtype, offset(pointer, half * bytes_of(dtype)), half_of_mask(mask, half));
  return joined(low, high);
}

void Code::masked_store(DType dtype, Value* value, Value* pointer, Value* mask) {
  const int lanes = lanes_in(mask), half = lanes / 2;
  if (are_known_off(mask, 0, lanes)) return;
  if (!has_idle_register(dtype, mask)) {
    b.CreateMaskedStore(value, pointer, llvm::Align(size_of(dtype)), mask);
    return;
  }
  masked_store(dtype, lanes_from(value, 0, half), pointer, half_of_mask(mask, 0));
  masked_store(dtype, lanes_from(value, half, half), offset(pointer, half * bytes_of(dtype)), half_of_mask(mask, half));
}

// The half from lane `first` on. What was known of the lanes is so still.
Value* Code::half_of_mask(Value* mask, int first) {
  if (auto* both = llvm::dyn_cast<llvm::BinaryOperator>(mask); both && both->getOpcode() == llvm::Instruction::And)
    return b.CreateAnd(half_of_mask(both->getOperand(0), first), half_of_mask(both->getOperand(1), first));
  return lanes_from(mask, first, lanes_in(mask) / 2);
}

void Code::store(DType dtype, Value* value, Value* pointer, std::int64_t stride, int lanes, Value* mask) {
  const llvm::Align align(size_of(dtype));
  if (lanes == 1) {
    const auto write = [&] { b.CreateAlignedStore(memory_value(dtype, value), pointer, align); };
    if (mask != nullptr) {
      if (held != nullptr) held->forget_store();
      when(mask, write);
    } else {
      write();
      if (held != nullptr) held->keep_store(dtype, pointer, value, nullptr);
    }
    return;
  }
  value = widen(value, lanes);
  if (stride != 1) return scatter(dtype, value, pointer, lane_numbers(b.getInt64Ty(), lanes, stride), mask);
  if (held != nullptr) {
    held->keep_store(dtype, pointer, value, mask);
    mask = held->mask_of_store(dtype, pointer, lanes, mask);
  }
  if (const auto count = known_lanes(mask, lanes); count && is_short_tail(dtype, *count, lanes))
    return store_tail(dtype, value, pointer, *count);
  value = memory_value(dtype, value);
  if (mask == nullptr) {
    b.CreateAlignedStore(value, pointer, align);
  } else {
    masked_store(dtype, value, pointer, widen(mask, lanes));
  }
}

// Indices fit 32 bits whenever they are small constants: half the registers of 64-bit ones.
static Value* narrowed(Code& code, Value* indices) {
  auto* constant = llvm::dyn_cast<llvm::ConstantDataVector>(indices);
  if (constant == nullptr || !constant->getElementType()->isIntegerTy(64)) return indices;
  std::vector<llvm::Constant*> narrow;
  for (unsigned i = 0; i < constant->getNumElements(); ++i) {
    const auto value = static_cast<std::int64_t>(constant->getElementAsInteger(i));
    if (value != static_cast<std::int32_t>(value)) return indices;
    narrow.push_back(code.b.getInt32(static_cast<std::uint32_t>(value)));
  }
  return llvm::ConstantVector::get(narrow);
}

Value* Code::gather(DType dtype, Value* pointer, Value* indices, Value* mask) {
  if (Value* value = gather_by_vectors(dtype, pointer, indices, mask)) return value;
  const int lanes = lanes_in(indices);
  llvm::Type* memory = memory_type(dtype, lanes);
  Value* zero = llvm::Constant::getNullValue(memory);
  if (moves_lane_by_lane(mask)) {
    Value* addresses = lane_addresses(dtype, pointer, indices, mask, nowhere());
    Value* all = zero;
    for (int l = 0; l < lanes; ++l) {
      Value* number =
          b.CreateAlignedLoad(memory_type(dtype, 1), lane_pointer(addresses, l), llvm::Align(size_of(dtype)));
      all = b.CreateInsertElement(all, number, static_cast<std::uint64_t>(l));
    }
    return register_value(dtype, b.CreateSelect(widen(mask, lanes), all, zero));
  }
  Value* pointers = b.CreateGEP(memory_type(dtype, 1), pointer, narrowed(*this, indices));
  Value* active = mask == nullptr ? llvm::Constant::getAllOnesValue(type(DType::Bool, lanes)) : widen(mask, lanes);
  return register_value(dtype, b.CreateMaskedGather(memory, pointers, llvm::Align(size_of(dtype)), active, zero));
}

void Code::scatter(DType dtype, Value* value, Value* pointer, Value* indices, Value* mask) {
  if (held != nullptr) held->forget_store();
  const int lanes = lanes_in(indices);
  value = memory_value(dtype, widen(value, lanes));
  if (moves_lane_by_lane(mask)) {
    Value* addresses = lane_addresses(dtype, pointer, indices, mask, nowhere());
    for (int l = 0; l < lanes; ++l)
      b.CreateAlignedStore(b.CreateExtractElement(value, static_cast<std::uint64_t>(l)), lane_pointer(addresses, l),
                           llvm::Align(size_of(dtype)));
    return;
  }
  Value* pointers = b.CreateGEP(memory_type(dtype, 1), pointer, narrowed(*this, indices));
  Value* active = mask == nullptr ? llvm::Constant::getAllOnesValue(type(DType::Bool, lanes)) : widen(mask, lanes);
  b.CreateMaskedScatter(value, pointers, llvm::Align(size_of(dtype)), active);
}

// LLVM makes a branch for each lane, which is not foreseen, and starts over at the function's beginning for each.
bool Code::moves_lane_by_lane(const Value* mask) const {
  return mask != nullptr && !state_.masks_freely() && !llvm::isa<llvm::Constant>(mask);
}

Value* Code::lane_addresses(DType dtype, Value* pointer, Value* places, Value* mask, Value* instead) {
  const int lanes = lanes_in(places);
  const auto address = [&](Value* of) { return widen(b.CreatePtrToInt(of, b.getInt64Ty()), lanes); };
  Value* addresses = b.CreateAdd(address(pointer), b.CreateMul(places, widen(i64(bytes_of(dtype)), lanes)));
  return mask == nullptr ? addresses : b.CreateSelect(widen(mask, lanes), addresses, address(instead));
}

Value* Code::lane_pointer(Value* addresses, int lane) {
  return b.CreateIntToPtr(b.CreateExtractElement(addresses, static_cast<std::uint64_t>(lane)), b.getPtrTy());
}

Value* Code::nowhere() {
  if (nowhere_ == nullptr) nowhere_ = stack_room(b.getInt64Ty(), 1);
  return nowhere_;
}

Value* Code::identity(ir::ScalarOp op, DType dtype) {
  using ir::ScalarOp;
  llvm::Type* scalar = scalar_type(dtype);
  if (is_float(dtype)) {
    if (op == ScalarOp::Add) return llvm::ConstantFP::getZero(scalar);
    if (op == ScalarOp::Mul) return llvm::ConstantFP::get(scalar, 1.0);
    HOTLOOP_CHECK(op == ScalarOp::Max || op == ScalarOp::Min, "a float reduction is Add, Mul, Max or Min");
    return llvm::ConstantFP::getInfinity(scalar, op == ScalarOp::Max);
  }
  const unsigned bits = scalar->getIntegerBitWidth();
  const bool is_signed = dtype == DType::I32 || dtype == DType::I64;
  switch (op) {
    case ScalarOp::Add:
    case ScalarOp::Or: return llvm::Constant::getNullValue(scalar);
    case ScalarOp::Mul: return llvm::ConstantInt::get(scalar, 1);
    case ScalarOp::And: return llvm::Constant::getAllOnesValue(scalar);
    case ScalarOp::Max:
      return llvm::ConstantInt::get(scalar, is_signed ? llvm::APInt::getSignedMinValue(bits) : llvm::APInt(bits, 0));
    case ScalarOp::Min:
      return llvm::ConstantInt::get(scalar,
                                    is_signed ? llvm::APInt::getSignedMaxValue(bits) : llvm::APInt::getMaxValue(bits));
    default: break;
  }
  HOTLOOP_CHECK(false, "no identity for this reduction");
  return nullptr;
}

Value* Frame::extent(Code& code, const kernel::Extent& extent) const {
  if (extent.is_static()) return code.i64(extent.bound);
  Value* value = vars[static_cast<std::size_t>(extent.var)];
  HOTLOOP_CHECK(value != nullptr, "a run-time extent is used outside the scope of its variable");
  return value;
}

Value* Frame::affine(Code& code, const kernel::Affine& index) const {
  Value* sum = code.i64(index.constant);
  for (const kernel::Term& term : index.terms) {
    Value* var = vars[static_cast<std::size_t>(term.var)];
    HOTLOOP_CHECK(var != nullptr, "an index uses a variable outside its scope");
    sum = code.b.CreateAdd(sum, code.b.CreateMul(var, code.i64(term.coefficient)));
  }
  return sum;
}

Value* Frame::address(Code& code, const kernel::Access& access) const {
  HOTLOOP_CHECK(access.indirect.empty(), "only a Map may index indirectly");
  return address(code, access.buffer, access.index);
}

Value* Frame::address(Code& code, int index, const kernel::Affine& element) const {
  const std::int64_t bytes = bytes_of(code.state().buffer(index).dtype);
  if (held == nullptr || element.terms.empty()) return code.offset(buffer(index), affine(code, element), bytes);
  Value* base = held->moving(index, element.terms, [&] {
    kernel::Affine variable = element;
    variable.constant = 0;
    return code.offset(buffer(index), affine(code, variable), bytes);
  });
  return code.offset(base, element.constant * bytes);
}

std::optional<int> known_lanes(const Value* mask, int lanes) {
  if (mask == nullptr) return lanes;
  const auto* constant = llvm::dyn_cast<llvm::Constant>(mask);
  if (constant == nullptr || lanes_in(mask) != lanes) return std::nullopt;
  int count = 0;
  for (int l = 0; l < lanes; ++l) {
    const llvm::Constant* lane = constant->getAggregateElement(static_cast<unsigned>(l));
    if (lane == nullptr) return std::nullopt;
    if (lane->isNullValue()) continue;
    if (!lane->isOneValue() || count != l) return std::nullopt;
    ++count;
  }
  return count;
}

}  // namespace hotloop::codegen
