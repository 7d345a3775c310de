// The instructions of a nest at one point of it: arithmetic, addresses, loads and stores.
#pragma once

#include <cstdint>
#include <map>
#include <tuple>

#include "backends/llvm/map_nest.h"
#include "backends/llvm/squares.h"

namespace hotloop::codegen {

// A set of lanes computed together: where each access group points to, and what the registers hold.
struct Point {
  Code::Values pointers;  // by group
  Code::Values indices;   // by index group
  Value* mask = nullptr;
  Code::Values registers;
  int vector = 0;                                                 // number in a block of vectors
  Value* column = nullptr;                                        // of a square
  std::map<std::tuple<int, int, int>, Code::Values> random_keys;  // by the registers of a key, and lanes
};

class PointCode {
 public:
  PointCode(Code& code, const MapNest& nest);

  // Instructions begin .. end - 1 that the point has no values of yet.
  void instrs(Point& point, int begin, int end, int lanes);
  // What does not vary along the vector dim, once in front of its loop.
  void uniform_instrs(Point& point);

  // What is the same for all columns of squares, before the loop over these.
  void row_instrs(Point& point);

  // Memory for the squares that the i-th instruction reads or writes.
  Value* square(int i);
  // Moves the square of the i-th instruction, a load or a store, which begins at `start`. `active`: how many rows it has; null for as many as lanes.
  void move_square(const Point& start, int i, Value* active, std::int64_t columns);
  // Which lanes of a store's predicate hold, null if all do.
  Value* lanes_where(const Point& point, int predicate) { return mask_of(point, predicate, nest_.lanes, point.mask); }

 private:
  struct Address {
    Value* pointer;
    std::int64_t stride;       // elements from lane to lane
    Value* indices = nullptr;  // per lane, where it is not a stride
  };
  bool in_square(const Point& point, int i) const {
    return point.column != nullptr && nest_.squares[static_cast<std::size_t>(i)];
  }
  void instr(Point& point, int i, int lanes);
  Value* operand(const Point& point, int reg, int lanes);
  Value* mask_of(const Point& point, int predicate, int lanes, Value* tail);  // of both; null if neither
  Value* tail_of(const Point& point, int i) const {
    return nest_.has_room[static_cast<std::size_t>(i)] ? nullptr : point.mask;
  }
  Value* index(const Point& point, int i, int lanes);
  Address address(const Point& point, int i, int lanes);
  Value* load(const Point& point, int i, int lanes);
  void store(const Point& point, int i, int lanes);
  bool is_woven(const Point& point, int i, int lanes) const {
    return nest_.woven[static_cast<std::size_t>(i)] >= 0 && lanes == nest_.lanes && lanes > 1 &&
           code_.held == nullptr && point.column == nullptr && tail_of(point, i) == nullptr;
  }
  std::vector<int> woven_with(int one) const;  // in the order of their places
  void load_woven(Point& point, int first, int lanes);
  void store_woven(const Point& point, int last, int lanes);
  // Which words of their blocks the lanes of a random word are, and how far apart the blocks are.
  struct RandomUse {
    enum { AnyWord, OneWord, BothWords } words = AnyWord;
    std::int64_t step = 0;
  };
  RandomUse random_use(int i, int lanes) const;
  void hoist_random_keys(Point& point);
  Value* random(const Point& point, int i, int lanes);

  Code& code_;
  const MapNest& nest_;
  bool leaves_out_lanes_;  // some load or store has a predicate
  Squares squares_{code_};
  // By instruction: rows of one array may be looked up, or left out, in more than one way.
  std::map<int, Value*> square_memory_;
};

}  // namespace hotloop::codegen
