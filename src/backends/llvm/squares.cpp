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

void Squares::for_each(DType dtype, const Rows& rows, const std::function<void(Value* row, Value* address)>& body) {
  const int lanes = lanes_of(dtype);
  llvm::IRBuilder<>& b = code_.b;
  if (rows.places == nullptr) {
    code_.loop(code_.i64(0), rows.count == nullptr ? code_.i64(lanes) : rows.count, 1,
               [&](Value* row) { body(row, code_.offset(rows.pointer, row, rows.stride * bytes_of(dtype))); });
    return;
  }
  Value* nowhere = nullptr;
  if (rows.mask != nullptr) {
    nowhere = code_.stack_room(code_.type(dtype, lanes), 1);
    code_.store(dtype, code_.zero(dtype, lanes), nowhere, 1, lanes, nullptr);
  }
  Value* addresses = code_.lane_addresses(dtype, rows.pointer, rows.places, rows.mask, nowhere);
  Value* list = code_.stack_room(addresses->getType(), 1);
  b.CreateStore(addresses, list);
  code_.loop(code_.i64(0), code_.i64(lanes), 1, [&](Value* row) {
    Value* address = b.CreateLoad(b.getInt64Ty(), b.CreateGEP(b.getInt64Ty(), list, row));
    body(row, b.CreateIntToPtr(address, b.getPtrTy()));
  });
}

void Squares::read(DType dtype, const Rows& rows, std::int64_t columns, Value* square) {
  const int lanes = lanes_of(dtype), count = static_cast<int>(columns);
  if (rows.places == nullptr && rows.count == nullptr)
    return code_.copy_transposed(dtype, rows.pointer, rows.stride, lanes, count, square, lanes);
  Value* line = lines(dtype);
  for_each(dtype, rows, [&](Value* row, Value* from) {
    code_.store(dtype, code_.load(dtype, from, 1, lanes, mask(dtype, columns)), column(dtype, line, row), 1, lanes,
                nullptr);
  });
  if (rows.places == nullptr)
    code_.loop(rows.count, code_.i64(lanes), 1, [&](Value* row) {
      code_.store(dtype, code_.zero(dtype, lanes), column(dtype, line, row), 1, lanes, nullptr);
    });
  code_.copy_transposed(dtype, line, lanes, lanes, count, square, lanes);
}

void Squares::write(DType dtype, Value* square, const Rows& rows, std::int64_t columns) {
  const int lanes = lanes_of(dtype);
  Value* line = lines(dtype);
  code_.copy_transposed(dtype, square, lanes, static_cast<int>(columns), lanes, line, lanes);
  for_each(dtype, rows, [&](Value* row, Value* to) {
    code_.store(dtype, code_.load(dtype, column(dtype, line, row), 1, lanes, nullptr), to, 1, lanes,
                mask(dtype, columns));
  });
}

}  // namespace hotloop::codegen
