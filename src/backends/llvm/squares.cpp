#include "backends/llvm/squares.h"

namespace hotloop::codegen {

Value* Squares::allocate(DType dtype) {
  const int lanes = lanes_of(dtype);
  return code_.stack_room(code_.type(dtype, lanes), lanes);
}

Value* Squares::lines(DType dtype) {
  Value*& known = lines_[dtype];
  if (known == nullptr) known = allocate(dtype);
  return known;
}

void Squares::read(DType dtype, Value* source, std::int64_t stride, Value* rows, std::int64_t columns, Value* square) {
  const int lanes = lanes_of(dtype), count = static_cast<int>(columns);
  if (rows == nullptr) return code_.copy_transposed(dtype, source, stride, lanes, count, square, lanes);
  Value* line = lines(dtype);
  code_.loop(code_.i64(0), rows, 1, [&](Value* row) {
    Value* from = code_.offset(source, row, stride * bytes_of(dtype));
    code_.store(dtype, code_.load(dtype, from, 1, lanes, mask(dtype, columns)), column(dtype, line, row), 1, lanes,
                nullptr);
  });
  code_.loop(rows, code_.i64(lanes), 1, [&](Value* row) {
    code_.store(dtype, code_.zero(dtype, lanes), column(dtype, line, row), 1, lanes, nullptr);
  });
  code_.copy_transposed(dtype, line, lanes, lanes, count, square, lanes);
}

void Squares::write(DType dtype, Value* square, Value* target, std::int64_t stride, Value* rows, std::int64_t columns) {
  const int lanes = lanes_of(dtype);
  Value* line = lines(dtype);
  code_.copy_transposed(dtype, square, lanes, static_cast<int>(columns), lanes, line, lanes);
  code_.loop(code_.i64(0), rows == nullptr ? code_.i64(lanes) : rows, 1, [&](Value* row) {
    Value* to = code_.offset(target, row, stride * bytes_of(dtype));
    code_.store(dtype, code_.load(dtype, column(dtype, line, row), 1, lanes, nullptr), to, 1, lanes,
                mask(dtype, columns));
  });
}

void Squares::at_rows(DType dtype, Value* pointer, Value* places, Value* mask,
                      const std::function<void(Value* row, Value* address)>& body) {
  const int lanes = lanes_of(dtype);
  llvm::IRBuilder<>& b = code_.b;
  Value* nowhere = nullptr;
  if (mask != nullptr) {
    nowhere = code_.stack_room(code_.type(dtype, lanes), 1);
    code_.store(dtype, code_.zero(dtype, lanes), nowhere, 1, lanes, nullptr);
  }
  Value* addresses = code_.lane_addresses(dtype, pointer, places, mask, nowhere);
  Value* list = code_.stack_room(addresses->getType(), 1);
  b.CreateStore(addresses, list);
  code_.loop(code_.i64(0), code_.i64(lanes), 1, [&](Value* row) {
    Value* address = b.CreateLoad(b.getInt64Ty(), b.CreateGEP(b.getInt64Ty(), list, row));
    body(row, b.CreateIntToPtr(address, b.getPtrTy()));
  });
}

void Squares::read_at(DType dtype, Value* source, Value* places, Value* mask, std::int64_t columns, Value* square) {
  const int lanes = lanes_of(dtype);
  Value* line = lines(dtype);
  at_rows(dtype, source, places, mask, [&](Value* row, Value* from) {
    code_.store(dtype, code_.load(dtype, from, 1, lanes, this->mask(dtype, columns)), column(dtype, line, row), 1,
                lanes, nullptr);
  });
  code_.copy_transposed(dtype, line, lanes, lanes, static_cast<int>(columns), square, lanes);
}

void Squares::write_at(DType dtype, Value* square, Value* target, Value* places, Value* mask, std::int64_t columns) {
  const int lanes = lanes_of(dtype);
  Value* line = lines(dtype);
  code_.copy_transposed(dtype, square, lanes, static_cast<int>(columns), lanes, line, lanes);
  at_rows(dtype, target, places, mask, [&](Value* row, Value* to) {
    code_.store(dtype, code_.load(dtype, column(dtype, line, row), 1, lanes, nullptr), to, 1, lanes,
                this->mask(dtype, columns));
  });
}

}  // namespace hotloop::codegen
