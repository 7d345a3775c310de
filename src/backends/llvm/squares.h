// Squares of numbers: as many rows as a vector has lanes, up to as many columns. What lies row by row in memory is moved to memory of the function, where
// vectors hold the numbers of all rows in one column, and back.
#pragma once

#include <functional>
#include <map>

#include "backends/llvm/code.h"

namespace hotloop::codegen {

class Squares {
 public:
  explicit Squares(Code& code) : code_(code) {}

  // Memory for a square.
  Value* allocate(DType dtype);
  // Column `column` of a square.
  Value* column(DType dtype, Value* square, Value* column) {
    return code_.offset(square, column, lanes_of(dtype) * bytes_of(dtype));
  }
  // From and to rows `stride` elements apart. Null `rows`: as many as there are lanes; what others would be reads as 0.
  void read(DType dtype, Value* source, std::int64_t stride, Value* rows, std::int64_t columns, Value* square);
  void write(DType dtype, Value* square, Value* target, std::int64_t stride, Value* rows, std::int64_t columns);
  // From and to rows at places of their own, i64 for each lane, in elements from the pointer on. Null `mask`: all of them; those left out read as 0, and
  // nothing is written there.
  void read_at(DType dtype, Value* source, Value* places, Value* mask, std::int64_t columns, Value* square);
  void write_at(DType dtype, Value* square, Value* target, Value* places, Value* mask, std::int64_t columns);

 private:
  Value* lines(DType dtype);  // a square of which each vector holds a row
  // Calls body(row, where that row lies); of rows left out this is a line of zeros, for all of them the same, that nobody reads once it is written.
  void at_rows(DType dtype, Value* pointer, Value* places, Value* mask,
               const std::function<void(Value* row, Value* address)>& body);
  Value* mask(DType dtype, std::int64_t columns) {
    return columns < lanes_of(dtype) ? code_.tail_mask(lanes_of(dtype), code_.i64(columns)) : nullptr;
  }

  Code& code_;
  std::map<DType, Value*> lines_;
};

}  // namespace hotloop::codegen
