// How the blocks of a worker, and the threads of a block, divide a Dot among them. Chosen by shape and by what a multiprocessor has room for; it changes no order of summation.
#pragma once

#include <cstdint>
#include <vector>

#include "schedule/kernel_ir.h"

namespace hotloop::render {

// Each thread computes `rows` x `columns` sums, one accumulator each.
struct RegisterTile {
  int rows = 1, columns = 1;
};
RegisterTile choose_register_tile(std::int64_t m, std::int64_t n, DType dtype, int threads);

// A worker: a block of threads, or several side by side that store into each other's near memory.
struct WorkerShape {
  int blocks = 1;              // a power of two
  int threads = 256;           // of a block, a multiple of 32
  std::int64_t near_room = 0;  // bytes of near memory that a block may have
};

// A worker of several blocks divides the columns of a Dot among them, in equal parts: into how many. Blocks beyond that have none.
int parts_of_columns(const kernel::Dot& dot, int blocks);
// The Dot with as many columns as a part has.
kernel::Dot part_of(const kernel::Dot& dot, int parts);

// What a block may keep from one iteration of a loop to the next.
struct KeepingRoom {
  std::int64_t registers = 0;   // of each thread, 32 bits each
  std::int64_t near_bytes = 0;  // of near memory
};

// Of the 255 that a thread may have.
inline constexpr std::int64_t most_registers_kept = 128;
// Reading what is kept takes as long as one iteration without.
inline constexpr std::int64_t fewest_iterations_of_keeping = 3;

// Of a segment, the steps of the sum whose right factors stay: the first ones in registers, the next in near memory.
struct KeptSteps {
  std::int64_t in_registers = 0, near = 0;
  std::int64_t all() const { return in_registers + near; }
};

struct DotShape {
  RegisterTile tile;
  std::vector<KeptSteps> kept;  // of each segment
  double cycles = 0;            // of a multiprocessor, each time, by estimate
};
// `m`: its rows; `stays`: of each segment, whether its right factor is the same in all iterations of a loop around.
DotShape choose_dot_shape(const kernel::Dot& dot, std::int64_t m, int threads, const std::vector<bool>& stays,
                          const KeepingRoom& room);

// What the shape keeps; of near memory each segment has whole words of 16 bytes.
std::int64_t near_bytes_of(std::int64_t bytes);
KeepingRoom kept_by(const kernel::Dot& dot, const DotShape& shape);

// Whether neighbouring threads take neighbouring rows, which lie side by side in the result, rather than columns.
inline bool rows_go_first(const kernel::Dot& dot) { return dot.c_m == 1 && dot.c_n != 1; }

// Whether a segment is one whose right factor may be kept: there is one, its steps are along one dim, and their number is known.
inline bool may_be_kept(const kernel::Dot& dot, const kernel::DotSegment& segment) {
  return segment.k.size() == 1 && segment.k[0].extent.is_static() && segment.depth() > 0 && dot.n.bound > 0;
}

// Whether each thread has the same columns every time, whatever the number of rows.
bool has_columns_of_its_own(const kernel::Dot& dot, int columns, int threads);

// The segment with dims of k as one that follow each other without gaps in both factors; the left one has none where it is `dense`, whatever its strides.
kernel::DotSegment merged(kernel::DotSegment segment, bool dense);

}  // namespace hotloop::render
