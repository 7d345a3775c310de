// The matrix registers of AMX: eight, of up to 16 rows of 64 bytes. On processors without them they are memory of the function, and give the same bits.
#pragma once

#include <array>

#include "backends/llvm/code.h"

namespace hotloop::codegen {

class MatrixRegisters {
 public:
  static constexpr int count = 8, most_rows = 16, most_columns = 16;
  struct Shape {
    Value* rows = nullptr;  // null: it is not used
    int columns = 0;        // of 4 bytes
  };
  using Shapes = std::array<Shape, count>;

  explicit MatrixRegisters(Code& code) : code_(code) {}

  // To be called before all others; leaves nothing in them.
  void configure(const Shapes& shapes);
  // When they are no longer needed.
  void release();

  void zero(int r);
  // Rows in memory, `stride` bytes apart.
  void load(int r, Value* pointer, std::int64_t stride);
  void store(int r, Value* pointer, std::int64_t stride);
  // c += a * b of pairs of bfloat16, a block as kernel::Dot has it.
  void multiply(int c, int a, int b);

 private:
  bool is_there() const { return code_.state().multiplies_blocks; }
  void call(llvm::Intrinsic::ID id, std::initializer_list<Value*> arguments);
  Value* configuration(const Shapes& shapes);
  Value* number(int r) { return code_.b.getInt8(static_cast<std::uint8_t>(r)); }
  // Of a register that is memory.
  Value* memory(int r);
  Value* row_of(int r, Value* row) { return code_.offset(memory(r), row, kernel::vector_bytes); }
  Value* mask(int r);

  Code& code_;
  Shapes shapes_;
  Value* stack_ = nullptr;
  std::array<Value*, count> memory_ = {};
};

}  // namespace hotloop::codegen
