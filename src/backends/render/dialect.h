// What differs between the languages of the C family, as data: one renderer prints them all.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "hotloop/array.h"
#include "ir/scalar.h"

namespace hotloop::render {

// Spelling of a scalar operation: $a, $b, $c stand for the operands, $T for the type, $D for the dtype's short name (f32).
struct Spelling {
  ir::ScalarOp op;
  std::string_view floats, integers, bools;  // empty: the operation does not exist for these
};

struct Dialect {
  std::string_view name;
  std::string_view types[6];  // by DType
  // The same of numbers in memory that holds numbers of another type before or after, where a compiler must be told.
  std::string_view shared_types[6] = {};
  std::string_view bool_memory;         // type of a bool in memory
  std::string_view index_type;          // an integer that counts all elements
  std::string_view constant_data = {};  // qualifiers of literal arrays
  std::string_view prelude;             // before everything: context, helper functions
  std::string_view kernel_open;         // signature of the kernel and its opening brace
  std::string kernel_name = {};         // what begins the names beside it: of a long program's parts
  std::string_view part_open = {};      // of a part, which returns whether it was cancelled, up to its name
  std::string_view context = {}, context_type = {};    // what a part takes, and how
  std::string_view argument, result, shared, scratch;  // pointer to one: $i index, $o byte offset
  std::string_view rows = {}, worker = {}, num_workers = {}, barrier;
  std::string_view cancelled = {};         // a condition; empty where nothing cancels
  std::string_view independent_loop = {};  // stands before a loop whose points may run together
  std::string_view rolled_loop = {};       // stands before one that is not to be unrolled
  std::string_view one_by_one = {};        // a statement in a loop whose points are not to run together
  std::string_view hide = {};              // a statement behind which a compiler knows nothing of $r
  std::string_view float_suffix;           // of an f32 literal
  std::vector<Spelling> spellings;

  const Spelling& spelling(ir::ScalarOp op) const;
  std::string_view memory_type(DType dtype) const {
    return dtype == DType::Bool ? bool_memory : types[static_cast<std::size_t>(dtype)];
  }
};

// Functions that are not one expression, in what C and C++ have in common. They follow the comments of ir::ScalarOp to the bit. Of a language they want
// the integer types of stdint.h, bool, memcpy, hl_fabs_f32 and the like of floor, ceil, rint, sqrt and fma for both dtypes, hl_wide (128 bits without sign),
// hl_clz, HL_LIKELY and HL_UNROLL.
std::string common_functions();
// Of the operations, by operators of C and these functions.
const std::vector<Spelling>& common_spellings();

const Dialect& plain_c();

}  // namespace hotloop::render
