// Where the time of a call goes: measured, statement by statement of its one kernel.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "hotloop/jit.h"

namespace hotloop {

// A statement of the kernel IR (Executable::kernel_text()), or two that run as one; all its runs of one call, on the average.
struct StatementTime {
  std::string statement;  // by name and extents: "dot scan.10 32 x 128 of 32" is 32 rows and 128 columns of 32 steps
  double time_us = 0;
  double runs = 0;
  double flops = 0;     // of a product, whose multiply-add is two; 0 of others
  double elements = 0;  // points of a map, numbers that are packed; 0 where there is a product
};

struct Profile {
  std::string program;
  std::vector<StatementTime> statements;  // longest first; together they take call_us
  std::int64_t num_calls = 0;             // measured of each of the two:
  double call_us = 0;                     // a call of one worker with the clocks, on the average,
  double without_clocks_us = 0;           // and one of the program as it is, in turns with these
  // Whether arithmetic met numbers below the normal range, with which some processors compute many times more slowly, in a program that does not count them
  // as 0 (CompileOptions::flush_denormals). On x86-64; false elsewhere.
  bool met_denormals = false;
  std::string str() const;  // a table in 80 columns
};

// Calls the program on these inputs for `seconds` or a little longer, three times at least, by one worker: in turns as it is, and as a copy of it, compiled for
// this, that reads a clock after each statement. A reading costs some ten nanoseconds, and a processor begins what follows before a statement has ended, so that
// of statements of less than 0.1 us times are rough. Loops are no statements: what they cost is counted with what stands in them. UserError for inputs of other
// types, and for a program that is not one kernel of the llvm backend: on a CUDA device, with dispatch per_op, or interpreted.
Profile profile(const Executable& program, std::span<const Array> inputs, double seconds = 0.5);

}  // namespace hotloop
