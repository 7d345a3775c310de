// What emits a Dot: register tiles of rows and columns. An element's accumulator takes its steps in the order of the kernel IR whatever the tile, so tile
// shapes are chosen for speed alone: panels of columns outside, blocks of rows inside (the panel of B stays in cache), all segments accumulated
// in registers.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "backends/llvm/code.h"
#include "backends/llvm/dot_walk.h"
#include "schedule/column_walk.h"

namespace hotloop::codegen {

class DotEmitter {
 public:
  using Values = Code::Values;
  using TileRun = kernel::TileRun;

  // `arguments`: see emit_dot().
  DotEmitter(Code& code, const kernel::Dot& dot, kernel::ColumnWalk walk, const Values& arguments)
      : code_(code),
        dot_(dot),
        walk_(std::move(walk)),
        lanes_(lanes_for_columns(dot, code.held != nullptr)),
        bytes_(bytes_of(dot.dtype)),
        budget_(code.state().program.target.dot_rows * code.state().program.target.dot_vectors) {
    auto argument = arguments.begin();
    c_ = *argument++;
    if (dot.init) init_ = *argument++;
    for (const kernel::DotSegment& s : dot.segments) {
      Segment segment{argument[0], argument[1], s.a_m, s.b_n, s.packed(), s.depth(), collapsed(s), {}};
      argument += 2;
      for (const kernel::KDim& dim : segment.k) {
        segment.extents.push_back(dim.extent.is_static() ? code.i64(dim.extent.bound) : *argument++);
      }
      segments_.push_back(std::move(segment));
    }
    m_ = dot.m.is_static() ? code.i64(dot.m.bound) : *argument++;
    n_ = dot.n.is_static() ? code.i64(dot.n.bound) : *argument++;
    if (walk_.turns) backwards_ = *argument++;
    if (is_long(dot)) cancel_ = *argument;
  }

  void emit();

  // Beside the products, sums over all steps of one factor's columns or rows, in the order of the steps: the products of B with a row of ones more, or of A
  // with a column of ones. What they add is on its way through registers anyway.
  enum class Summed { Columns, Rows };  // of B; of A
  // Whether there are registers for them, and B passes through these as it lies, or packed part by part.
  bool may_sum(Summed which) const;
  // `to`: room for the sums side by side, in whole vectors.
  void emit_with_sums(Summed which, Value* to);

  // The same tile by tile of `walk`, in one direction or the other, the first two tiles in turned places. After each tile `finish` emits what follows for
  // its blocks, `walk.width` from this one on. With `c_stays` all tiles write their sums where those of the first blocks lie.
  void emit_by_blocks(const kernel::BlockWalk& walk, bool c_stays, const std::function<void(Value* block)>& finish);

 private:
  struct Segment {
    Value* a;
    Value* b;
    std::int64_t a_m, b_n;
    bool packed;
    std::int64_t depth;
    std::vector<kernel::KDim> k;
    Values extents;
  };
  // What the walk reads after a tile: the columns from `column` on (null: nobody knows), of rows so many further on, those of the next step of a loop.
  struct NextTile {
    Value *column = nullptr, *rows = nullptr;
    std::int64_t vectors = 0;
  };
  // A tile of columns: first column `first` (+ `loop_columns` if not null), `vectors` logical vectors of which the
  // last has `last_lanes` lanes; `panel_vectors` of them are one panel of a packed B. Of a walk by blocks `side` vectors lie side by side, and the
  // next ones `apart` vectors further on.
  struct Tile {
    std::int64_t first;
    Value* loop_columns;
    int vectors, panel_vectors;
    int last_lanes;
    NextTile next;
    std::int64_t side = 0, apart = 0;
    bool c_stays = false;     // see emit_by_blocks()
    Value* active = nullptr;  // lanes of the last vector, where their number is known at run time
    // Where vector j lies: so many vectors after the first.
    std::int64_t at(std::int64_t j) const { return side == 0 ? j : j / side * apart + j % side; }
  };

  using TileBody = std::function<void(const Tile&)>;

  // The first of those that the walk has most of; nothing where it leaves all columns to the last panel.
  std::optional<Tile> widest_tile() const;
  // All tiles of columns in the order of the walk.
  void all_columns(const TileBody& body);
  // As many columns as are there at run time.
  void columns_there(const TileBody& body);
  // The tiles of a run; the walk reads `after` next.
  void columns(const TileRun& run, const NextTile& after, const TileBody& body);
  // The columns of a last panel that is narrower.
  void rest_of_columns(const TileBody& body);
  void emit_tile(const Tile& tile);
  Value* column_offset(Value* pointer, const Tile& tile, std::int64_t elements_per_column);
  // Where the columns of a tile begin in B.
  Value* b_of(const Segment& segment, const Tile& tile);
  // Of a block.
  std::int64_t most_rows(const Tile& tile) const { return std::clamp<std::int64_t>(budget_ / tile.vectors, 1, 12); }
  std::int64_t num_row_blocks(const Tile& tile) const;
  struct RowRange {
    std::int64_t begin, end, height;  // whole blocks of that height
  };
  // A static number of rows, in blocks as equal as can be: at most two heights. The last block, the lowest, stands alone where sums of columns run beside it.
  std::vector<RowRange> row_ranges(const Tile& tile) const;
  void unless_cancelled(const std::function<void()>& body);
  // body(row, rows) for blocks of rows.
  void row_blocks(const Tile& tile, const std::function<void(Value*, std::int64_t)>& body);
  Value* tail_of(const Tile& tile, int vector);
  void block(const Tile& tile, Value* row, std::int64_t rows);
  bool has_room_for_sums() const;
  bool leaves_room(std::int64_t rows, const Tile& tile) const;
  // The sums of a block of rows follow its accumulators, of columns those of the last block. Sums of rows are taken again beside each tile of columns.
  struct Sums {  // a vector of them
    Value* at;
    int lanes;
    Value* mask;
  };
  std::vector<Sums> sums_of(const Tile& tile, Value* row, std::int64_t rows);
  Value* mask_of_rows(std::int64_t rows);  // of a vector for so many; null where they fill it
  void append_sums(Values& values, const Tile& tile, Value* row, std::int64_t rows, bool from_memory);
  void take_sums(Values& values, const Tile& tile, Value* row, std::int64_t rows);  // to memory
  void clear_sums(const Tile& tile);
  void add_to_sums(Values& accumulators, const Tile& tile, std::int64_t rows, std::int64_t number, Value* value);
  void add_rows(Values& accumulators, const Tile& tile, std::int64_t rows, Value* a);
  void store_c(Values values, const Tile& tile, Value* row, std::int64_t rows);
  Value* address_of_c(const Tile& tile, Value* row);
  Values from_c(const Tile& tile, Value* row, std::int64_t rows);
  static Value*& at(Values& values, const Tile& tile, std::int64_t i, int j) {
    return values[static_cast<std::size_t>(i * tile.vectors + j)];
  }
  Values initial(const Tile& tile, Value* row, std::int64_t rows);
  // Whether accumulators start from numbers of their own, which may come from far: products of all steps, as long as a sequence. Processors fetch
  // ahead along lines that lie side by side, but a block of rows reads a few of each.
  bool waits_for_init(const Tile& tile) const;
  // Where lies what the same rows of the next tile of columns start from; in the last one, what they would in rows that follow, as those of the next
  // step do. It is fetched a line a step, since a processor drops what it is asked for all at once.
  // Where nothing lies nothing is fetched, and nothing fails.
  Value* next_init(const Tile& tile, Value* row);
  // Lines of the next tile of columns, for a B that the second cache does not hold: the first block of rows would wait for each of them, and while the
  // others pass over what it read nothing would be on its way. So each block fetches its share while it passes over this tile, from one end to the
  // other: a processor that sees some of neighbouring lines asked for fetches all of them at once, for which the first block would wait as before.
  // Shares are as large as blocks are high. Of fewer rows than there may be, the last part of a tile is not fetched.
  struct NextLines {
    Value* b;               // where the next tile begins
    Value* first;           // the first line of this block's share, times all rows,
    std::int64_t a_step;    // and how many a step takes, times all rows
    std::int64_t vectors;   // lines of a step of k
    std::int64_t all_rows;  // of the blocks that share the tile
  };
  std::optional<NextLines> lines_of_next_tile(const Segment& segment, const Tile& tile, Value* row, std::int64_t rows);
  void fetch(const NextLines& next, Value* k, std::int64_t b_bytes);
  enum class Cache { Second = 2, First = 3 };  // as LLVM numbers them
  void prefetch(Value* line, Cache cache);
  // Where rows begin within a line, that of a vector's first number came with the vector in front of it, and what is to be fetched is that of its last one.
  Value* end_of(Value* vector, std::int64_t stride = 1) {
    return stride == 1 ? code_.offset(vector, (lanes_ - 1) * bytes_) : vector;
  }

  // Few rows, and a B that lies as it came and does not stay in the caches (dot_parts.cpp): some of its lines at a time are read from one end to the other,
  // as processors fetch ahead, while accumulators wait in C. A tile of columns would read a few numbers of each line, one line after the other.
  bool reads_bands(const Tile& widest) const;
  void bands();
  void bands_of(const Segment& segment, std::size_t d, Value* a, Value* b);

  // Deep products (dot_parts.cpp), cut along k: a part of the panel of B that fits the first cache is packed beside it, all rows pass over it, and
  // between the parts accumulators wait in C.
  // A k of many parts, and rows enough to pay for packing and for accumulators that come and go; or columns that lie apart, which every
  // block of rows would gather anew.
  bool is_deep(const Tile& tile) const;
  // Steps of k whose columns of a tile fill half of the first cache.
  std::int64_t part_steps(const Tile& tile) const;
  // Whose accumulators need not wait in C.
  bool is_one_part(const Tile& tile) const;
  // Puts into C what accumulators start from.
  void begin_in_c(const Tile& tile);
  void parts(const Tile& tile);
  // Where some steps of k begin in A and B, and which one is the first, of those of a segment.
  struct AtStep {
    Value *a, *b, *step;
  };
  // `length` iterations of a dim of k, with all of the dims within it.
  struct Part {
    std::size_t dim;
    Value* length;
    AtStep at;
  };
  // Parts of `steps` steps at most: of dim d, or of one further in where a single iteration of d is more than that.
  void cut(const Segment& segment, std::size_t d, std::int64_t steps, const AtStep& at,
           const std::function<void(const Part&)>& body);

  // Large products (dot_large.cpp).
  bool is_large(const Tile& widest) const;
  bool is_large() const;  // of the widest tile there is
  struct LargeCut {
    std::int64_t steps;              // of k in a part, at most
    std::int64_t height, high_rows;  // of a block of rows, and how many rows come in such blocks;
    std::int64_t low_height;         // the others come in lower ones, with the last group
    std::int64_t group;              // rows that all columns pass over before the next ones come
    std::int64_t columns;            // of the widest tile
  };
  LargeCut large_cut(const Tile& widest) const;
  void large(const Tile& widest);
  struct RowsToPack {
    Value* rows = nullptr;    // how many, of which
    std::int64_t height = 0;  // so many lie beside each other in a panel
    Value* depth = nullptr;   // of so many steps
    Value* sums = nullptr;    // what of each is to be added to, see Summed::Rows, or null
  };
  // The rows of the next group, packed piece by piece beside the multiplications of this one: what a block has of one step is a piece, and those of a step
  // follow each other, so that lines are read once.
  struct NextRows {
    RowsToPack rows;
    Value *rooms = nullptr, *packed = nullptr;  // for two groups; that of these rows
    std::int64_t pieces = 0;                    // packed at a time
    // Of the next piece, on the stack: its step, its block, the step's place in the innermost dim of k, and where the step begins in A.
    Value *step = nullptr, *block = nullptr, *inner = nullptr, *line = nullptr;
    // Of that dim: steps, bytes from one to the next, and to what follows the last one.
    Value *extent = nullptr, *step_bytes = nullptr, *turn_bytes = nullptr;
    Value *blocks = nullptr, *end = nullptr;  // how many, and up to which step there is something to pack
  };
  struct RowGroup {
    Value *packed_a = nullptr, *packed_b = nullptr;  // room for a group's rows, and for a tile's columns
    Value* packed_low = nullptr;                     // and for the rows of low blocks
    std::optional<NextRows> next;
    Value* depth = nullptr;                  // steps of this part
    Value* begins = nullptr;                 // i1: sums begin here
    Value *first = nullptr, *end = nullptr;  // the rows, and
    Value* low_end = nullptr;                // to where the low blocks go that come with them
  };
  void group_of_rows(const Segment& segment, const Part& part, const LargeCut& shape, RowGroup group);
  bool has_registers_to_pack() const;  // beside multiplications
  bool packs_beside(const Segment& segment, const Part& part) const;
  NextRows next_rows(const LargeCut& shape, Value* rooms);
  void begin_next_rows(const Segment& segment, const Part& part, const LargeCut& shape, RowGroup& group);
  void pack_piece(const NextRows& next);
  void pack_pieces(const NextRows& next);       // some, if there are any left
  void finish_next_rows(const NextRows& next);  // all that are left
  // Rows that lie side by side, so that each step's are in another line.
  bool packs_rows(const Segment& segment) const;
  // Copies some steps of a block, adding them up at `sums_at` if that is not null.
  void copy_steps(const RowsToPack& of, std::int64_t steps, Value* from, std::int64_t from_bytes, Value* to,
                  Value* sums_at);
  // Copies `extent` iterations of dim d; gives where the next step of the first panel is to lie. Some steps at a time, so that lines of A are read once.
  Value* pack_rows(const Segment& segment, std::size_t d, Value* extent, Value* a, const RowsToPack& some, Value* to);
  // What a block of rows reads of a part, and what it fetches meanwhile. Steps are bytes.
  struct LargeBlock {
    Value *a = nullptr, *b = nullptr;
    std::int64_t b_step = 0;
    Value* unpacked_b = nullptr;  // if not null, B is packed from here to `b` first, step by step
    std::int64_t unpacked_b_step = 0;
    Value* row = nullptr;     // its first row in the group
    std::int64_t group = 0;   // rows of that, at most
    Value* next_b = nullptr;  // the next tile's columns, if they are to be fetched
    std::int64_t next_b_step = 0;
    Value* next_c = nullptr;  // what the next block adds to
    const NextRows* next_rows = nullptr;
  };
  Values large_block(const Segment& segment, const Tile& tile, std::int64_t rows, Value* depth, const LargeBlock& block,
                     Values accumulators);
  // Room on the stack, in the entry block: one for the whole function.
  Value* part_buffer(std::int64_t bytes);
  // Copies the columns of a tile for one step, zeros beyond the last one.
  void pack_step(const Segment& segment, const Tile& tile, Value* b, Value* to);
  // Copies the columns of a tile for `extent` iterations of dim d to `to`, zeros beyond the last column; gives the end.
  Value* pack_part(const Segment& segment, std::size_t d, Value* extent, const Tile& tile, Value* b, Value* to);
  // Rows that lie side by side, each step's in another line, where these do not all stay in the first cache: a block of rows reads a piece of many
  // lines far apart, which no processor foresees.
  bool fetches_rows(const Segment& segment, const Tile& tile, std::int64_t rows) const;
  // steps() over `extent` iterations of dim d with B packed as it is read: the last of the carried values is where.
  Values part_of(const Segment& segment, std::size_t d, Value* extent, const Tile& tile, std::int64_t rows, Value* a,
                 const Values& carried);

  // Steps of k for one register tile (dot_steps.cpp).
  // Elements from one step of dim d to the next in B. Panels are whole logical vectors wide.
  std::int64_t b_step(const Segment& segment, std::size_t d, const Tile& tile) const;
  Values steps(const Segment& segment, std::size_t d, const Tile& tile, std::int64_t rows, Value* a, Value* b,
               Values accumulators);
  // Columns of B that lie apart while the steps of dim d lie side by side, as in W^T x.
  bool reads_transposed(const Segment& segment, std::size_t d) const;
  // As many vectors of B as have steps in a square of lanes, for vector j of the tile.
  Values load_square(const Segment& segment, const Tile& tile, Value* b, int j, std::int64_t steps);
  // steps() of the last dim, where squares of B are turned in registers.
  Values transposed_steps(const Segment& segment, std::size_t d, const Tile& tile, std::int64_t rows, Value* a,
                          Value* b, Values accumulators);
  Value* load_a(const Segment& segment, Value* a, std::int64_t i);
  Value* load_b(const Segment& segment, const Tile& tile, Value* b, int j);
  // One step of k. The shorter side of the tile is held in registers, the other one passes through.
  void step(const Segment& segment, const Tile& tile, std::int64_t rows, Value* a, Value* b, Values& accumulators);

  Code& code_;
  const kernel::Dot& dot_;
  kernel::ColumnWalk walk_;
  int lanes_;
  std::int64_t bytes_, budget_;
  Value* c_;
  Value* init_ = nullptr;
  Value *m_, *n_;
  Value* backwards_ = nullptr;           // i1: the last tile comes first, see ColumnWalk
  Value* cancel_ = nullptr;              // of a long dot
  Value* ahead_ = nullptr;               // what is fetched during the first steps of a block, see next_init():
  std::int64_t ahead_vectors_ = 0;       // so many lines of each row
  std::optional<NextLines> next_lines_;  // by each step
  std::optional<Summed> summed_;         // by this dot, see emit_with_sums(),
  bool sums_here_ = false;               // in this block of rows
  Value* sums_ = nullptr;
  llvm::AllocaInst* part_buffer_ = nullptr;
  std::int64_t part_bytes_ = 0;
  std::vector<Segment> segments_;
};

// The whole of a dot of pairs in blocks (dot_blocks.cpp).
void emit_blocks(Code& code, const kernel::Dot& dot, const Code::Values& arguments);

// What the function of a dot takes: see DotEmitter's constructor.
Code::Values dot_arguments(Code& code, const Frame& frame, const kernel::Dot& dot, bool turns);
// Whether it is emitted where it stands: few vectors and few steps, in a loop.
bool stands_in_place(const kernel::Target& target, const kernel::Dot& dot, const HeldValues* held);
// Of dots whose functions are the same.
std::string key_of(const kernel::Dot& dot, const kernel::ColumnWalk& walk);

}  // namespace hotloop::codegen
