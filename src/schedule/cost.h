// What a program costs in time, estimated from its statements: how many workers are worth waking for it.
#pragma once

#include <cstdint>

#include "schedule/kernel_ir.h"

namespace hotloop::kernel {

// What it takes for a team to work together.
struct TeamCost {
  double wake_ns = 2000;  // until the others run, and until all have returned
  double join_ns = 250;   // a barrier
  // What one worker wrote another reads from his cache, and writes again in the next call: weights that were packed, sums of blocks.
  // Measured on two cores of a Zen 5, over training steps, dealt out by tiles, whose arenas have 24 to 360 kB.
  double shared_ns_per_byte = 0.25;
  // Where sections say which buffers change hands. Reading 16 to 512 kB that the other core wrote takes 0.02 to 0.04 longer there.
  double passed_ns_per_byte = 0.05;
};

// One call with so many rows, by so many workers. A run-time number of iterations counts as its bound, one that a condition may end
// as a few: where such a loop is inside a tile the others wait for nothing, where it is not its barriers are counted along.
double estimate_time_ns(const Program& program, std::int64_t rows, int num_workers, const TeamCost& team = {});

// Statements of a tile, each run once by one worker.
double estimate_ns(const Program& program, const Block& block);

// The number of workers, at most `most`, for which the estimate is least; more than one only where that saves a good part.
int best_num_workers(const Program& program, std::int64_t rows, int most, const TeamCost& team = {});

}  // namespace hotloop::kernel
