// Kernel IR: what a schedule produces and the only thing a backend sees.
//
// A Program is SPMD: every worker (member of a CPU team; on a GPU, a thread block or a few of them side by side) runs the same body. `Grid` deals
// blocks of tiles to workers, `Single` is run by worker 0, each of `Sections` by one worker while others run the rest, `Barrier` joins
// all workers: what stands between two of them runs at once, and shares nothing that one of these statements writes. Inside a Grid, Single or section, one worker runs the statements in order; on a GPU its threads share the points of each
// Map and Dot and meet after each statement, which is why a statement never reads what another point of the same statement writes.
//
// Nothing here assumes a CPU. A logical vector is 64 bytes (16 f32, 8 f64) on every target, so that orders of
// summation, and so results, do not depend on the width of the registers.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "hotloop/array.h"
#include "ir/scalar.h"

namespace hotloop::kernel {

using ir::ScalarOp;

inline constexpr int vector_bytes = 64;
inline int lanes_of(DType d) { return vector_bytes / static_cast<int>(size_of(d)); }

// A 64-bit integer variable: a loop counter or a run-time extent. Var 0 is the number of batch rows of this call.
using Var = int;
inline constexpr Var rows_var = 0;

struct Term {
  Var var;
  std::int64_t coefficient;
  bool operator==(const Term&) const = default;
};

// constant + sum of coefficient * var; terms are sorted by var, with no zero coefficients.
struct Affine {
  std::int64_t constant = 0;
  std::vector<Term> terms;

  Affine() = default;
  Affine(std::int64_t c) : constant(c) {}  // NOLINT: a number is an affine expression
  static Affine of(Var var, std::int64_t coefficient = 1);
  std::int64_t coefficient(Var var) const;
  Affine without(Var var) const;
  Affine substituted(Var var, const Affine& by) const;
  bool operator==(const Affine&) const = default;
};
Affine operator+(const Affine& a, const Affine& b);
Affine operator*(const Affine& a, std::int64_t factor);

// Number of points: `bound`, or the run-time value of `var` (never above `bound`).
struct Extent {
  std::int64_t bound = 1;
  Var var = -1;
  bool is_static() const { return var < 0; }
  bool operator==(const Extent&) const = default;
};

enum class Space : std::uint8_t {
  Argument,  // memory of an input of the program (read only)
  Result,    // memory of an output
  Shared,    // arena shared by all workers
  Worker,    // arena private to each worker; what a tile keeps
  Constant,  // literal data
};

struct Buffer {
  std::string name;
  DType dtype = DType::F32;
  std::int64_t elements = 0;
  Space space = Space::Worker;
  int index = 0;            // Argument, Result: which
  std::int64_t offset = 0;  // Shared, Worker: bytes from the start of the arena, a multiple of 64, set by plan_memory
  Array data;               // Constant
  bool near = false;        // Worker: in the near arena, whose offsets count from its own start, set by plan_memory
};
inline std::int64_t bytes_of(const Buffer& buffer) {
  return buffer.elements * static_cast<std::int64_t>(size_of(buffer.dtype));
}

// Element `index` (plus indirect terms) of a buffer, in elements.
struct Indirect {
  int reg;              // an integer instruction of the same Map
  std::int64_t stride;  // elements
  bool operator==(const Indirect&) const = default;
};
struct Access {
  int buffer = -1;
  Affine index;
  std::vector<Indirect> indirect;
};

// One instruction of a Map; its register is its position.
struct Instr {
  enum class Kind : std::uint8_t {
    Op,     // scalar operation on args
    Const,  // `bits`, the bit pattern of the dtype (zero-extended)
    Index,  // access.index as an integer of `dtype`
    Load,   // args[0]: predicate or -1; false lanes read nothing and give 0
    Store,  // args[0]: value; args[1]: predicate or -1
    Reduced,  // the reduction of body register args[0] by `op` (Add, Mul, Max, Min, And, Or) over the reduced dims; by Fma the
              // sum of args[0] * args[1] of floats, one fma a step (two roundings on targets without)
  };
  Kind kind = Kind::Op;
  ScalarOp op = ScalarOp::None;
  DType dtype = DType::F32;  // of the result; of the stored value for Store
  int args[3] = {-1, -1, -1};
  std::uint64_t bits = 0;
  Access access;
};

int lanes_of_map(const std::vector<Instr>& instrs);  // L below
// Whether `access.index` means something.
bool has_index(const Instr& instr);
// One of each kind; arguments are registers, -1 for none.
Instr op_instr(ScalarOp op, DType dtype, int a, int b = -1, int c = -1);
Instr const_instr(DType dtype, std::uint64_t bits);
Instr index_instr(DType dtype, Affine index);
Instr load_instr(DType dtype, Access access, int predicate = -1);
Instr store_instr(DType dtype, Access access, int value, int predicate = -1);
Instr reduced_instr(ScalarOp op, DType dtype, int value, int factor = -1);
ScalarOp combiner(const Instr& reduced);  // of two accumulators

// A loop nest over `dims`, with straight-line scalar code at each point.
// instrs[0, body_end) run at each point of all dims; the rest, which starts with the Reduced instructions and may not
// use body registers otherwise, at each point of the outer dims only (without reduced dims, body_end is the end).
// Order of a reduction. Over the vector dim: lane l of a logical vector takes elements l, l+L, ..., the lanes are then
// combined in halves (l with l+L/2, ...). Else sequential, dims in order. L is 64 bytes
// over the size (at least 4) of the widest dtype of all but Op and Const: what is wider in between takes several registers,
// and changes no order. Other reduced dims run around or inside the vector dim, in the order of dims. Every accumulator starts at the identity of `op` (0, 1, -inf, +inf, all ones) and
// takes values as op(accumulator, value); the accumulators of Fma are combined by Add.
// With vector_dim -1 points run in order, one after the other; only then may a point read what an earlier one wrote.
struct Dim {
  Var var = -1;
  Extent extent;
};
struct Map {
  std::string name;
  std::vector<Dim> dims;  // outer dims, then reduced dims; the last of them varies fastest
  int num_outer = 0;
  int vector_dim = -1;  // index into dims: the dim whose points fill vectors
  std::vector<Instr> instrs;
  int body_end = 0;
  bool split = false;  // outside Grid and Single: dims[0] is divided among the workers
  int lanes() const;   // L
};

// C[m,n] = init[m,n] + sum over segments, then over each segment's k (row-major over its dims), of A[m,k] * B[k,n]:
// one accumulator an element, one fma a step, exactly in this order. (Targets without fma multiply and add.)
// With `pairs` A and B are of u32, each element two bfloat16, and the dot is of f32: a step adds the product of the upper halves, then that of the
// lower ones. These products are exact; factors, products and sums below the normal range may count as 0.
// Pairs `in_blocks` are taken 16 steps at a time: of these, the products of the upper halves and those of the lower ones are two sums from zero on, one
// fma a step, which are added to each other, and that to the accumulator. Segments have one dim of k then, of whole blocks, and both factors are packed: B in panels
// of `columns_of_blocks`, and A in panels of `rows_of_blocks` rows, of which the last may have fewer, but takes as much room. Panel p starts at element
// p * rows_of_blocks * K and holds step k of its row i at (k / 16 * rows_of_blocks + i) * 16 + k % 16.
inline constexpr std::int64_t steps_of_block = 16, rows_of_blocks = 32, columns_of_blocks = 32;
struct KDim {
  Extent extent;
  std::int64_t a_stride = 0, b_stride = 0;  // elements
};
struct DotSegment {
  Access a, b;
  std::int64_t a_m = 0, b_n = 0;  // strides, elements; b_n is ignored when packed, in blocks both
  std::vector<KDim> k;            // at most 3, outermost first
  std::int64_t panel = 0;         // of Pack's panels, which b lies in (k's b_strides are ignored); 0: b is not packed
  bool packed() const { return panel > 0; }
  std::int64_t depth() const;  // steps along all of k
};
struct Dot {
  std::string name;
  DType dtype = DType::F32;  // of C
  bool pairs = false, in_blocks = false;
  Extent m, n;  // n is static
  std::vector<DotSegment> segments;
  std::optional<Access> init;  // none: zero
  std::int64_t init_m = 0, init_n = 0;
  Access c;
  std::int64_t c_m = 0, c_n = 1;
  std::int64_t panel() const;  // columns of the panels of its packed segments; 0: none is
};

// Copies B[k,n] into panels: columns are cut into panels of `panel` columns, whole logical vectors; the last one is narrower, rounded up to
// whole vectors and zero-filled. Panel p (first column n0 = p * panel, width w) starts at element n0 * K
// and holds row k at k * w. Size: K * round_up(n, lanes) elements.
struct Pack {
  Access source;
  std::int64_t k_stride = 0, n_stride = 0;
  std::int64_t k = 0, n = 0, panel = 0;
  int target = -1;  // buffer
  DType dtype = DType::F32;
  bool split = false;  // outside Grid and Single: the panels are divided among the workers
};

inline DType factor_dtype(const Dot& dot) { return dot.pairs ? DType::U32 : dot.dtype; }

struct Stmt;
using Block = std::vector<Stmt>;

// for counter in 0..trip-1 (trip-1..0 if reverse): if `test`: run it, stop when the Bool scalar `stop` is true; body.
struct For {
  Var counter = -1;
  Extent trip;
  bool reverse = false;
  Block test;
  std::optional<Access> stop;
  Block body;
};

// var = the integer scalar at `source`, or `number`, which reads no memory, clamped into [low, high].
struct Let {
  Var var = -1;
  Access source;
  DType dtype = DType::I32;
  std::int64_t low = 0, high = 0;
  std::optional<Affine> number = {};
};

// The rows 0..total-1 are cut into tiles of `tile_rows`; consecutive tiles form `num_blocks` blocks of
// `tiles_per_block` (some may be empty). A worker runs whole blocks: prologue once, then the body for each of its tiles with
// row0 and rows set. Which worker runs a block never changes a result.
struct Grid {
  Var block = -1, row0 = -1, rows = -1;
  Extent total;
  std::int64_t tile_rows = 1, num_blocks = 1, tiles_per_block = 1;
  std::int64_t slots = 0;  // more than 0: the rows of a tile stream through so many places (stream_lanes.h)
  Block prologue, body;
};

struct Single {
  Block body;
};
struct Barrier {};

// Work that several workers do at once, each section by one of them; sections share nothing that one of them writes.
// In several rounds sections follow one another along `trip` steps (of loops over time): each goes through the chunks of `chunk` steps in
// turn, from the last to the first if `reverse`, `delay` rounds after the start, with `first` and `steps` set; all workers meet between
// rounds. What such a section shares with one of less delay lies in chunks that the other has done, and never with one of the same delay.
struct Section {
  Block body;
  std::int64_t delay = 0;
  Var first = -1, steps = -1;  // -1 where there is one round
};
struct Sections {
  std::vector<Section> sections;
  std::int64_t trip = 1, chunk = 1;
  bool reverse = false;
  std::int64_t num_chunks() const { return (trip + chunk - 1) / chunk; }
  std::int64_t num_rounds() const;
};
// Which of the workers runs a section: there and back through the workers, so that of sections in the order of their cost each gets as
// much. A backend may do otherwise: it changes no result.
std::int64_t runner_of_section(std::int64_t section, std::int64_t num_workers);

struct Stmt {
  std::variant<Map, Dot, Pack, For, Let, Grid, Single, Sections, Barrier> node;
};

// What a schedule needs to know of the machine.
struct Target {
  std::string name = "avx512";  // amx | avx512 | avx2 | neon | portable | cuda
  int dot_rows = 6;             // register tile of the dot micro-kernel
  int dot_vectors = 4;          // in logical vectors
  int vector_registers = 1;     // of the machine, for one of them
  bool has_fma = true;
  bool multiplies_blocks = false;  // pairs of bfloat16 are multiplied in blocks
  std::int64_t l1_bytes = 32 << 10, l2_bytes = 1 << 20;
  // The first cache of the machine that runs the code; where it is not known, with AVX-512 rather 48 KB than the 32 KB that every processor
  // has. It decides in which order numbers are read, never a result.
  std::int64_t l1_bytes_there = 48 << 10;
  std::int64_t l2_bytes_there = 1 << 20;  // the same of the second cache
  double l1_rate_there = 128;             // bytes a cycle from it: two loads of the widest registers
  bool l3_is_near_there =
      false;  // the third cache gives lines as fast as rows of a product want them, not across a mesh
  // Of a device whose workers are blocks of threads, one or a few each: what of a worker's memory may be near, and how many workers there may be use for. 0: a
  // worker is a thread of the processor, whose caches hold what it uses.
  std::int64_t near_bytes = 0;
  std::int64_t blocks_worth_having = 0;
  bool has_blocks() const { return blocks_worth_having > 0; }
  // What does not stay in the third cache from one pass over it to the next, of which all cores of a processor have a share.
  std::int64_t far_bytes() const { return 12 * l2_bytes; }
  int panel(DType d) const { return dot_vectors * lanes_of(d); }  // columns of a register tile
};
Target target_named(const std::string& name);  // UserError for an unknown name
std::vector<std::string> target_names();       // of processors, the best of each first
bool has_wide_vectors(const Target& target);   // AVX-512
// The best one this machine runs, for programs whose dots have factors in bfloat16 or for others, unless HOTLOOP_TARGET says which.
Target host_target(bool rounds_factors = false);
Target cuda_target();  // blocks of threads of a CUDA device, the same for every device
Target with_caches_of_host(Target target);

struct Program {
  std::string name;
  Target target;
  std::vector<Buffer> buffers;
  std::vector<std::string> vars;  // names; vars[0] = "rows"
  std::vector<ValueType> arguments, results;
  // For each result the argument whose memory it takes over, or -1; empty: none does. When a run begins, such a result's memory holds
  // the argument, and no statement names the argument's buffer.
  std::vector<int> in_place;
  bool flushes_denormals = false;  // whoever runs it sets the processor so; see CompileOptions
  std::int64_t max_rows = 1;       // greatest value of rows_var
  std::int64_t shared_bytes = 0, worker_bytes = 0, near_bytes = 0;
  Block body;

  Var new_var(std::string name);
  int add_buffer(Buffer buffer);  // its number
};

void append(Block& block, Block part);

// The last dim along which the access moves element by element; without one the last dim.
int contiguous_dim(const Map& map, const Access& access);

std::string print(const Program& program);  // deterministic text: golden tests and cache keys
void verify(const Program& program);        // InternalError on a broken rule

}  // namespace hotloop::kernel
