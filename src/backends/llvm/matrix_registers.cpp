#include "backends/llvm/matrix_registers.h"

#include <llvm/IR/IntrinsicsX86.h>

namespace hotloop::codegen {

void MatrixRegisters::call(llvm::Intrinsic::ID id, std::initializer_list<Value*> arguments) {
  code_.b.CreateIntrinsic(code_.b.getVoidTy(), id, {arguments.begin(), arguments.size()});
}

// What `ldtilecfg` reads: 64 bytes, of which the first says that there are eight registers, those from 16 on how many bytes a row of each has, and those from
// 48 on how many rows.
Value* MatrixRegisters::configuration(const Shapes& shapes) {
  constexpr std::size_t first_width = 16, first_rows = 48;
  std::array<std::uint8_t, kernel::vector_bytes> bytes = {};
  bytes[0] = 1;
  bool is_known = true;
  for (std::size_t r = 0; r < count; ++r) {
    if (shapes[r].rows == nullptr) continue;
    bytes[first_width + 2 * r] = static_cast<std::uint8_t>(shapes[r].columns * 4);
    const auto* rows = llvm::dyn_cast<llvm::ConstantInt>(shapes[r].rows);
    is_known = is_known && rows != nullptr;
    bytes[first_rows + r] = rows == nullptr ? 0 : static_cast<std::uint8_t>(rows->getZExtValue());
  }
  llvm::Constant* constant = llvm::ConstantDataArray::get(code_.context(), bytes);
  if (is_known) {
    for (llvm::GlobalVariable& global : code_.state().module.globals())
      if (global.hasInitializer() && global.getInitializer() == constant) return &global;
    auto* global = new llvm::GlobalVariable(code_.state().module, constant->getType(), true,
                                            llvm::GlobalValue::InternalLinkage, constant, "registers");
    global->setAlignment(llvm::Align(kernel::vector_bytes));
    return global;
  }
  if (stack_ == nullptr) stack_ = code_.stack_row(DType::U32, kernel::vector_bytes / 4);
  code_.b.CreateStore(constant, stack_);
  for (std::size_t r = 0; r < count; ++r)
    if (shapes[r].rows != nullptr)
      code_.b.CreateStore(code_.b.CreateTrunc(shapes[r].rows, code_.b.getInt8Ty()),
                          code_.offset(stack_, static_cast<std::int64_t>(first_rows + r)));
  return stack_;
}

void MatrixRegisters::configure(const Shapes& shapes) {
  shapes_ = shapes;
  if (is_there()) call(llvm::Intrinsic::x86_ldtilecfg, {configuration(shapes)});
}

void MatrixRegisters::release() {
  if (is_there()) call(llvm::Intrinsic::x86_tilerelease, {});
}

Value* MatrixRegisters::memory(int r) {
  Value*& known = memory_[static_cast<std::size_t>(r)];
  if (known == nullptr) known = code_.stack_row(DType::U32, std::int64_t{most_rows} * most_columns);
  return known;
}

Value* MatrixRegisters::mask(int r) {
  const int columns = shapes_[static_cast<std::size_t>(r)].columns;
  return columns == most_columns ? nullptr : code_.tail_mask(most_columns, code_.i64(columns));
}

void MatrixRegisters::zero(int r) {
  if (is_there()) return call(llvm::Intrinsic::x86_tilezero, {number(r)});
  code_.loop(code_.i64(0), code_.i64(most_rows), 1, [&](Value* row) {
    code_.store(DType::U32, code_.zero(DType::U32, most_columns), row_of(r, row), 1, most_columns, nullptr);
  });
}

void MatrixRegisters::load(int r, Value* pointer, std::int64_t stride) {
  if (is_there()) return call(llvm::Intrinsic::x86_tileloadd64, {number(r), pointer, code_.i64(stride)});
  code_.loop(code_.i64(0), shapes_[static_cast<std::size_t>(r)].rows, 1, [&](Value* row) {
    Value* line = code_.load(DType::U32, code_.offset(pointer, row, stride), 1, most_columns, mask(r));
    code_.store(DType::U32, line, row_of(r, row), 1, most_columns, nullptr);
  });
}

void MatrixRegisters::store(int r, Value* pointer, std::int64_t stride) {
  if (is_there()) return call(llvm::Intrinsic::x86_tilestored64, {number(r), pointer, code_.i64(stride)});
  code_.loop(code_.i64(0), shapes_[static_cast<std::size_t>(r)].rows, 1, [&](Value* row) {
    Value* line = code_.load(DType::U32, row_of(r, row), 1, most_columns, nullptr);
    code_.store(DType::U32, line, code_.offset(pointer, row, stride), 1, most_columns, mask(r));
  });
}

void MatrixRegisters::multiply(int c, int a, int b) {
  if (is_there()) return call(llvm::Intrinsic::x86_tdpbf16ps, {number(c), number(a), number(b)});
  code_.loop(code_.i64(0), shapes_[static_cast<std::size_t>(c)].rows, 1, [&](Value* row) {
    Value* none = code_.zero(DType::F32, most_columns);
    const Code::Values sums = code_.loop(
        code_.i64(0), code_.i64(kernel::steps_of_block), 1, {none, none}, [&](Value* k, const Code::Values& before) {
          Value* of_row = code_.load(DType::U32, code_.offset(row_of(a, row), k, 4), 1, 1, nullptr);
          Value* x = code_.widen(of_row, most_columns);
          Value* y = code_.load(DType::U32, row_of(b, k), 1, most_columns, nullptr);
          return Code::Values{code_.fma(code_.upper_halves(x), code_.upper_halves(y), before[0]),
                              code_.fma(code_.lower_halves(x), code_.lower_halves(y), before[1])};
        });
    Value* sum = code_.load(DType::F32, row_of(c, row), 1, most_columns, nullptr);
    sum = code_.b.CreateFAdd(sum, code_.b.CreateFAdd(sums[1], sums[0]));
    code_.store(DType::F32, sum, row_of(c, row), 1, most_columns, nullptr);
  });
}

}  // namespace hotloop::codegen
