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
  // Rows in memory, `stride` elements apart or each at a place of its own.
  struct Rows {
    Value* pointer;
    std::int64_t stride;
    Value* count;             // how many there are; null for as many as lanes
    Value* places = nullptr;  // instead of stride and count: i64 for each lane, in elements from the pointer on
    Value* mask = nullptr;    // which of the places have rows; null for all
  };
  // Rows that are not there read as 0, and nothing is written of them.
  void read(DType dtype, const Rows& rows, std::int64_t columns, Value* square);
  void write(DType dtype, Value* square, const Rows& rows, std::int64_t columns);

 private:
  Value* lines(DType dtype);  // a square of which each vector holds a row
  // Calls body(row, where it lies); of rows that the mask leaves out this is a line of zeros, for all of them the same, that nobody reads once it is
  // written.
  void for_each(DType dtype, const Rows& rows, const std::function<void(Value* row, Value* address)>& body);
  Value* mask(DType dtype, std::int64_t columns) {
    return columns < lanes_of(dtype) ? code_.tail_mask(lanes_of(dtype), code_.i64(columns)) : nullptr;
  }

  Code& code_;
  std::map<DType, Value*> lines_;
};

}  // namespace hotloop::codegen
