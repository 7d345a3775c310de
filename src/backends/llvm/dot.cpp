// Dot: register-tiled micro-kernels. An element's accumulator takes its steps in the order of the kernel IR whatever
// the tile, so tile shapes are chosen for speed alone: panels of columns outside, blocks of rows inside (the panel of
// B stays in cache), all segments accumulated in registers. A deep product of many rows, such as a weight gradient over all
// steps, is cut along k: a part of the panel of B that fits the first cache is packed beside it, all rows pass over it, and
// between the parts accumulators wait in C.
#include <algorithm>
#include <functional>
#include <sstream>

#include "backends/llvm/dot_walk.h"
#include "backends/llvm/held_values.h"
#include "hotloop/error.h"

namespace hotloop::codegen {

using kernel::Dot;
using kernel::DotSegment;
using kernel::KDim;

namespace {

using Values = Code::Values;

// Long enough on its own that a cancelled call must not wait for its end: some 10 ms of a slow core. Others end soon, and polling
// loops stand around them.
bool is_long(const Dot& dot) {
  if (!dot.m.is_static()) return false;
  double products = 0;
  for (const DotSegment& s : dot.segments)
    products += static_cast<double>(dot.m.bound) * static_cast<double>(dot.n.bound) * static_cast<double>(depth(s));
  return products > 1e8;
}

// Accumulators start from what lies at C.
bool starts_from_c(const Dot& dot) {
  return dot.init && dot.init->buffer == dot.c.buffer && dot.init->index == dot.c.index && dot.init_m == dot.c_m &&
         dot.init_n == dot.c_n;
}

std::string key_of(const Dot& dot) {
  std::ostringstream text;
  const auto extent = [](const kernel::Extent& e) { return (e.is_static() ? "" : "?") + std::to_string(e.bound); };
  text << "dot " << name_of(dot.dtype) << (dot.pairs ? " pairs " : " ") << extent(dot.m) << ' ' << extent(dot.n) << ' '
       << dot.init.has_value() << starts_from_c(dot) << ' ' << dot.init_m << ' ' << dot.init_n << ' ' << dot.c_m << ' '
       << dot.c_n;
  for (const DotSegment& s : dot.segments) {
    text << "; " << s.a_m << ' ' << s.b_n << ' ' << s.packed;
    for (const KDim& k : s.k) text << ' ' << extent(k.extent) << ',' << k.a_stride << ',' << k.b_stride;
  }
  return text.str();
}

class DotEmitter {
 public:
  // `arguments`: see emit_dot().
  DotEmitter(Code& code, const Dot& dot, const Values& arguments)
      : code_(code),
        dot_(dot),
        lanes_(dot.n.is_static() && dot.n.bound == 1 ? 1 : lanes_of(dot.dtype)),  // one column fills no vector
        bytes_(bytes_of(dot.dtype)) {
    auto argument = arguments.begin();
    c_ = *argument++;
    if (dot.init) init_ = *argument++;
    for (const DotSegment& s : dot.segments) {
      Segment segment{argument[0], argument[1], s.a_m, s.b_n, s.packed, depth(s), collapsed(s), {}};
      argument += 2;
      for (const KDim& dim : segment.k) {
        segment.extents.push_back(dim.extent.is_static() ? code.i64(dim.extent.bound) : *argument++);
      }
      segments_.push_back(std::move(segment));
    }
    m_ = dot.m.is_static() ? code.i64(dot.m.bound) : *argument++;
    if (alternates(code.state().program.target, dot)) backwards_ = *argument++;
    if (is_long(dot)) cancel_ = *argument;
  }

  void emit() {
    const kernel::Target& target = code_.state().program.target;
    const std::int64_t panel = target.dot_vectors, n = dot_.n.bound;
    budget_ = target.dot_rows * target.dot_vectors;
    const std::int64_t side = panels_side_by_side(target, dot_);
    const std::int64_t panel_columns = panel * lanes_, panels = n / panel_columns;
    const std::int64_t wide = panels / side * side;
    columns(0, wide, side);
    columns(wide, panels, 1);
    if (const std::int64_t rest = n - panels * panel_columns; rest > 0) {
      const auto vectors = static_cast<int>((rest + lanes_ - 1) / lanes_);
      tile_of({panels * panel_columns, nullptr, vectors, vectors, static_cast<int>(rest - (vectors - 1) * lanes_)});
    }
  }

 private:
  struct Segment {
    Value* a;
    Value* b;
    std::int64_t a_m, b_n;
    bool packed;
    std::int64_t depth;
    std::vector<KDim> k;
    Values extents;
  };
  // A tile of columns: first column `first` (+ `loop_columns` if not null), `vectors` logical vectors of which the
  // last has `last_lanes` lanes; `panel_vectors` of them are one panel of a packed B.
  struct Tile {
    std::int64_t first;
    Value* loop_columns;
    int vectors, panel_vectors;
    int last_lanes;
  };

  void columns(std::int64_t begin, std::int64_t end, std::int64_t side) {
    const std::int64_t panel = code_.state().program.target.dot_vectors, width = panel * lanes_;
    code_.loop(code_.i64(begin * width), code_.i64(end * width), side * width, [&](Value* forwards) {
      Value* column = forwards;
      if (backwards_ != nullptr && end - begin > side)
        column = code_.b.CreateSelect(backwards_, code_.b.CreateSub(code_.i64((begin + end - side) * width), forwards),
                                      forwards);
      tile_of({0, column, static_cast<int>(side * panel), static_cast<int>(panel), lanes_});
    });
  }

  void tile_of(const Tile& tile) {
    if (is_deep(tile)) return parts(tile);
    row_blocks(tile, [&](Value* row, std::int64_t rows) { block(tile, row, rows); });
  }

  Value* column_offset(Value* pointer, const Tile& tile, std::int64_t elements_per_column) {
    pointer = code_.offset(pointer, tile.first * elements_per_column * bytes_);
    return tile.loop_columns == nullptr ? pointer
                                        : code_.offset(pointer, tile.loop_columns, elements_per_column * bytes_);
  }

  // body(row, rows) for blocks of rows.
  void row_blocks(const Tile& tile, const std::function<void(Value*, std::int64_t)>& body) {
    const std::int64_t most = std::min<std::int64_t>(12, std::max<std::int64_t>(1, budget_ / tile.vectors));
    const std::int64_t blocks = (dot_.m.bound + most - 1) / most;
    if (blocks == 0) return;
    const std::int64_t height = (dot_.m.bound + blocks - 1) / blocks;
    if (dot_.m.is_static()) {  // blocks as equal as can be: at most two heights
      const std::int64_t low = dot_.m.bound / blocks, num_high = dot_.m.bound % blocks;
      const std::int64_t high_rows = num_high * (low + 1);
      const auto unless_cancelled = [&](Value* row, std::int64_t rows) {
        if (cancel_ == nullptr) return body(row, rows);
        code_.when(code_.b.CreateNot(code_.is_cancelled(cancel_)), [&] { body(row, rows); });
      };
      code_.loop(code_.i64(0), code_.i64(high_rows), low + 1, [&](Value* row) { unless_cancelled(row, low + 1); });
      code_.loop(code_.i64(high_rows), m_, low, [&](Value* row) { unless_cancelled(row, low); });
      return;
    }
    // Full blocks, then the rest in lower ones of sixteen and eight accumulators, then single rows.
    const std::int64_t middle = 16 / tile.vectors, low = std::clamp<std::int64_t>(8 / tile.vectors, 1, 4);
    Value* row = code_.i64(0);
    const auto rows_of = [&](std::int64_t h) {
      Value* end = code_.b.CreateSub(m_, code_.b.CreateURem(code_.b.CreateSub(m_, row), code_.i64(h)));
      code_.loop(row, end, h, [&](Value* r) { body(r, h); });
      row = end;
    };
    rows_of(height);
    if (middle > low && middle < height) rows_of(middle);
    if (low > 1 && low < height) rows_of(low);
    if (height > 1) rows_of(1);
  }

  Value* tail_of(const Tile& tile, int vector) {
    if (vector + 1 < tile.vectors || tile.last_lanes == lanes_) return nullptr;
    return code_.tail_mask(lanes_, code_.i64(tile.last_lanes));
  }

  void block(const Tile& tile, Value* row, std::int64_t rows) {
    Values accumulators = initial(tile, row, rows);
    ahead_ = waits_for_init(tile) ? next_init(tile, row) : nullptr;
    for (const Segment& segment : segments_) {
      Value* a = code_.offset(segment.a, row, segment.a_m * bytes_);
      // Panels begin at (first column) * depth.
      Value* b = column_offset(segment.b, tile, segment.packed ? segment.depth : segment.b_n);
      accumulators = steps(segment, 0, tile, rows, a, b, accumulators);
    }
    store_c(accumulators, tile, row, rows);
  }

  void store_c(Values values, const Tile& tile, Value* row, std::int64_t rows) {
    if (code_.held != nullptr) code_.held->writes(dot_.c.buffer);
    Value* c = address_of_c(tile, row);
    for (std::int64_t i = 0; i < rows; ++i) {
      for (int j = 0; j < tile.vectors; ++j) {
        Value* to = code_.offset(c, (i * dot_.c_m + j * lanes_ * dot_.c_n) * bytes_);
        code_.store(dot_.dtype, at(values, tile, i, j), to, dot_.c_n, lanes_, tail_of(tile, j));
      }
    }
  }

  // A k of many parts, and rows enough to pay for packing and for accumulators that come and go; or columns that lie apart, which every
  // block of rows would gather anew.
  bool is_deep(const Tile& tile) const {
    constexpr std::int64_t enough_blocks = 4, enough_parts = 2;
    if (std::ranges::any_of(segments_, [](const Segment& s) { return s.packed; })) return false;
    const std::int64_t blocks = dot_.m.bound / std::max<std::int64_t>(1, budget_ / tile.vectors);
    if (blocks < enough_blocks) return false;
    return std::ranges::all_of(segments_, [&](const Segment& s) {
      return (s.b_n > 1 && dot_.n.bound > 1) || s.depth >= enough_parts * part_steps(tile);
    });
  }

  // Steps of k whose columns of a tile fill half of the first cache.
  std::int64_t part_steps(const Tile& tile) const {
    return std::max<std::int64_t>(1, code_.state().program.target.l1_bytes / 2 / (tile.vectors * kernel::vector_bytes));
  }

  // Whose accumulators need not wait in C.
  bool is_one_part(const Tile& tile) const {
    const auto is_static = [](const KDim& k) { return k.extent.is_static() && k.extent.bound > 0; };
    return segments_.size() == 1 && segments_[0].depth <= part_steps(tile) &&
           std::ranges::all_of(segments_[0].k, is_static);
  }

  Value* address_of_c(const Tile& tile, Value* row) {
    return code_.offset(column_offset(c_, tile, dot_.c_n), row, dot_.c_m * bytes_);
  }

  void parts(const Tile& tile) {
    if (!starts_from_c(dot_) && !is_one_part(tile))
      row_blocks(tile, [&](Value* row, std::int64_t rows) { store_c(initial(tile, row, rows), tile, row, rows); });
    Value* const packed = part_buffer(part_steps(tile) * tile.vectors * kernel::vector_bytes);
    for (const Segment& segment : segments_)
      cut(segment, 0, segment.a, column_offset(segment.b, tile, segment.b_n), tile, packed);
  }

  // Parts of dim d, or of one further in where a single iteration of d is more than a part.
  void cut(const Segment& segment, std::size_t d, Value* a, Value* b, const Tile& tile, Value* packed) {
    const std::int64_t a_step = segment.k[d].a_stride * bytes_, b_step = segment.k[d].b_stride * bytes_;
    std::int64_t inner = 1;  // steps of one iteration
    for (std::size_t i = d + 1; i < segment.k.size(); ++i) inner *= segment.k[i].extent.bound;
    if (inner > part_steps(tile)) {
      code_.loop(code_.i64(0), segment.extents[d], 1, [&](Value* k) {
        cut(segment, d + 1, code_.offset(a, k, a_step), code_.offset(b, k, b_step), tile, packed);
      });
      return;
    }
    const std::int64_t bound = std::max<std::int64_t>(1, segment.k[d].extent.bound), most = part_steps(tile) / inner;
    const std::int64_t num_parts = (bound + most - 1) / most, count = (bound + num_parts - 1) / num_parts;
    Segment part = segment;
    part.packed = true;
    Tile beside = tile;
    beside.panel_vectors = tile.vectors;
    code_.loop(code_.i64(0), segment.extents[d], count, [&](Value* begin) {
      Value* length = segment.extents[d];
      if (num_parts > 1)
        length = code_.b.CreateBinaryIntrinsic(llvm::Intrinsic::smin, code_.i64(count),
                                               code_.b.CreateSub(segment.extents[d], begin));
      pack_part(segment, d, length, tile, code_.offset(b, begin, b_step), packed);
      row_blocks(tile, [&](Value* row, std::int64_t rows) {
        Value* from = code_.offset(code_.offset(a, begin, a_step), row, segment.a_m * bytes_);
        Values carried = is_one_part(tile) ? initial(tile, row, rows) : from_c(tile, row, rows);
        carried.push_back(packed);
        carried = part_of(part, d, length, beside, rows, from, carried);
        carried.pop_back();
        store_c(carried, tile, row, rows);
      });
    });
  }

  // Room on the stack, in the entry block: one for the whole function.
  Value* part_buffer(std::int64_t bytes) {
    if (part_buffer_ == nullptr) {
      part_buffer_ = code_.stack_room(code_.b.getInt8Ty(), 0);
      part_buffer_->setAlignment(llvm::Align(kernel::vector_bytes));
    }
    part_bytes_ = std::max(part_bytes_, bytes);
    part_buffer_->setAllocatedType(llvm::ArrayType::get(code_.b.getInt8Ty(), static_cast<std::uint64_t>(part_bytes_)));
    return part_buffer_;
  }

  // Copies the columns of a tile for `extent` iterations of dim d to `to`, zeros beyond the last column; gives the end.
  Value* pack_part(const Segment& segment, std::size_t d, Value* extent, const Tile& tile, Value* b, Value* to) {
    Value* begin = code_.i64(0);
    if (d + 1 == segment.k.size() && reads_transposed(segment, d)) {
      const auto squares = [&](Value* first, Value* last, int count) {
        to = code_.loop(first, last, count, {to}, [&](Value* k, const Values& carried) -> Values {
          Value* from = code_.offset(b, k, bytes_);
          for (int j = 0; j < tile.vectors; ++j) {
            code_.copy_transposed(factor_dtype(dot_), code_.offset(from, j * lanes_ * segment.b_n * bytes_),
                                  segment.b_n, j + 1 == tile.vectors ? tile.last_lanes : lanes_, count,
                                  code_.offset(carried[0], j * lanes_ * bytes_), tile.vectors * lanes_);
          }
          return {code_.offset(carried[0], count * tile.vectors * lanes_ * bytes_)};
        })[0];
      };
      Value* rest = code_.b.CreateURem(extent, code_.i64(lanes_));
      Value* whole = code_.b.CreateSub(extent, rest);
      squares(begin, whole, lanes_);
      begin = whole;
      if (const auto* left = llvm::dyn_cast<llvm::ConstantInt>(rest); left != nullptr && !left->isZero()) {
        squares(begin, extent, static_cast<int>(left->getSExtValue()));
        begin = extent;
      }
    }
    const Values end = code_.loop(begin, extent, 1, {to}, [&](Value* k, const Values& carried) -> Values {
      Value* from = code_.offset(b, k, segment.k[d].b_stride * bytes_);
      if (d + 1 < segment.k.size()) return {pack_part(segment, d + 1, segment.extents[d + 1], tile, from, carried[0])};
      for (int j = 0; j < tile.vectors; ++j)
        code_.store(factor_dtype(dot_), load_b(segment, tile, from, j), code_.offset(carried[0], j * lanes_ * bytes_),
                    1, lanes_, nullptr);
      return {code_.offset(carried[0], tile.vectors * lanes_ * bytes_)};
    });
    return end[0];
  }

  // steps() over `extent` iterations of dim d with B packed as it is read: the last of the carried values is where.
  Values part_of(const Segment& segment, std::size_t d, Value* extent, const Tile& tile, std::int64_t rows, Value* a,
                 const Values& carried) {
    const std::int64_t a_step = segment.k[d].a_stride * bytes_, b_step = tile.vectors * lanes_ * bytes_;
    if (d + 1 < segment.k.size()) {
      return code_.loop(code_.i64(0), extent, 1, carried, [&](Value* k, const Values& now) {
        return part_of(segment, d + 1, segment.extents[d + 1], tile, rows, code_.offset(a, k, a_step), now);
      });
    }
    const auto run = [&](Value* begin, Value* end, std::int64_t count, const Values& from) {
      return code_.loop(begin, end, count, from, [&](Value* k, Values now) {
        Value* b = now.back();
        now.pop_back();
        Value* a_k = code_.offset(a, k, a_step);
        for (std::int64_t u = 0; u < count; ++u)
          step(segment, tile, rows, code_.offset(a_k, u * a_step), code_.offset(b, u * b_step), now);
        now.push_back(code_.offset(b, count * b_step));
        return now;
      });
    };
    const std::int64_t unroll = std::clamp<std::int64_t>(24 / (rows * tile.vectors), 1, 4);
    if (unroll == 1) return run(code_.i64(0), extent, 1, carried);
    Value* main = code_.b.CreateSub(extent, code_.b.CreateURem(extent, code_.i64(unroll)));
    return run(main, extent, 1, run(code_.i64(0), main, unroll, carried));
  }

  Values from_c(const Tile& tile, Value* row, std::int64_t rows) {
    Values values;
    Value* c = address_of_c(tile, row);
    for (std::int64_t i = 0; i < rows; ++i)
      for (int j = 0; j < tile.vectors; ++j)
        values.push_back(code_.load(dot_.dtype, code_.offset(c, (i * dot_.c_m + j * lanes_ * dot_.c_n) * bytes_),
                                    dot_.c_n, lanes_, tail_of(tile, j)));
    return values;
  }

  static Value*& at(Values& values, const Tile& tile, std::int64_t i, int j) {
    return values[static_cast<std::size_t>(i * tile.vectors + j)];
  }

  Values initial(const Tile& tile, Value* row, std::int64_t rows) {
    Values values(static_cast<std::size_t>(rows * tile.vectors), code_.zero(dot_.dtype, lanes_));
    if (init_ == nullptr) return values;
    Value* from = code_.offset(column_offset(init_, tile, dot_.init_n), row, dot_.init_m * bytes_);
    for (std::int64_t i = 0; i < rows; ++i) {
      for (int j = 0; j < tile.vectors; ++j) {
        if (i > 0 && dot_.init_m == 0) {
          at(values, tile, i, j) = at(values, tile, 0, j);
          continue;
        }
        Value* pointer = code_.offset(from, (i * dot_.init_m + j * lanes_ * dot_.init_n) * bytes_);
        Value* mask = dot_.init_n == 0 ? nullptr : tail_of(tile, j);
        at(values, tile, i, j) = code_.load(dot_.dtype, pointer, dot_.init_n, lanes_, mask);
      }
    }
    return values;
  }

  // Whether accumulators start from numbers of their own, which may come from far: products of all steps, as long as a sequence. Processors fetch
  // ahead along lines that lie side by side, but a block of rows reads a few of each.
  bool waits_for_init(const Tile& tile) const {
    constexpr std::int64_t deep = 128;  // one more instruction for each vector is nothing
    return init_ != nullptr && dot_.init_m != 0 && dot_.init_n == 1 && tile.loop_columns != nullptr && lanes_ > 1 &&
           std::ranges::any_of(segments_, [](const Segment& s) { return s.depth >= deep; });
  }

  // Where lies what the same rows of the next tile of columns start from; in the last one, what they would in rows that follow, as those of the next
  // step do, which goes through the tiles the other way. It is fetched a line a step, since a processor drops what it is asked for all at once.
  // Where nothing lies nothing is fetched, and nothing fails.
  Value* next_init(const Tile& tile, Value* row) {
    const std::int64_t width = tile.vectors * lanes_, last = (dot_.n.bound / width - 1) * width;
    Value *step = code_.i64(width), *end = code_.i64(last), *following = code_.b.CreateMul(m_, code_.i64(dot_.init_m));
    if (backwards_ != nullptr) {
      step = code_.b.CreateSelect(backwards_, code_.i64(-width), step);
      end = code_.b.CreateSelect(backwards_, code_.i64(0), end);
    } else {
      following = code_.b.CreateSub(following, end);  // from the first tile again
    }
    Value* next = code_.b.CreateSelect(code_.b.CreateICmpEQ(tile.loop_columns, end), following, step);
    Value* here = code_.offset(column_offset(init_, tile, dot_.init_n), row, dot_.init_m * bytes_);
    return code_.offset(here, next, bytes_);
  }

  void prefetch(Value* line) {
    code_.b.CreateIntrinsic(llvm::Intrinsic::prefetch, {line->getType()},
                            {line, code_.b.getInt32(0), code_.b.getInt32(3), code_.b.getInt32(1)});
  }

  // Elements from one step of dim d to the next in B. Panels are whole logical vectors wide.
  std::int64_t b_step(const Segment& segment, std::size_t d, const Tile& tile) const {
    if (!segment.packed) return segment.k[d].b_stride;
    std::int64_t step = tile.panel_vectors * lanes_of(dot_.dtype);
    for (std::size_t inner = d + 1; inner < segment.k.size(); ++inner) step *= segment.k[inner].extent.bound;
    return step;
  }

  Values steps(const Segment& segment, std::size_t d, const Tile& tile, std::int64_t rows, Value* a, Value* b,
               Values accumulators) {
    const std::int64_t a_step = segment.k[d].a_stride * bytes_, b_bytes = b_step(segment, d, tile) * bytes_;
    Value* extent = segment.extents[d];
    if (d + 1 < segment.k.size()) {
      return code_.loop(code_.i64(0), extent, 1, accumulators, [&](Value* k, const Values& carried) {
        return steps(segment, d + 1, tile, rows, code_.offset(a, k, a_step), code_.offset(b, k, b_bytes), carried);
      });
    }
    if (reads_transposed(segment, d)) return transposed_steps(segment, d, tile, rows, a, b, std::move(accumulators));
    const std::int64_t unroll = steps_in_body(segment.k[d].extent, rows * tile.vectors, b_bytes);
    // With `fetches`, a line for each step: a row of them for each body.
    const auto run = [&](Value* begin, Value* end, std::int64_t count, bool fetches = false) {
      accumulators = code_.loop(begin, end, count, accumulators, [&](Value* k, Values carried) {
        Value* a_k = code_.offset(a, k, a_step);
        Value* b_k = code_.offset(b, k, b_bytes);
        Value* lines =
            fetches ? code_.offset(ahead_, code_.b.CreateUDiv(k, code_.i64(count)), dot_.init_m * bytes_) : nullptr;
        for (std::int64_t u = 0; u < count; ++u) {
          step(segment, tile, rows, code_.offset(a_k, u * a_step), code_.offset(b_k, u * b_bytes), carried);
          if (fetches) prefetch(code_.offset(lines, u * lanes_ * bytes_));
        }
        return carried;
      });
    };
    if (segment.k[d].extent.is_static()) {
      const std::int64_t k = segment.k[d].extent.bound, lines = rows * tile.vectors;
      const std::int64_t begin = ahead_ != nullptr && lines <= k ? lines : 0, main = k - (k - begin) % unroll;
      if (begin > 0) {
        run(code_.i64(0), code_.i64(begin), tile.vectors, true);
        ahead_ = nullptr;
      }
      run(code_.i64(begin), code_.i64(main), unroll);
      run(code_.i64(main), code_.i64(k), std::max<std::int64_t>(1, k - main));
      return accumulators;
    }
    Value* main = code_.b.CreateSub(extent, code_.b.CreateURem(extent, code_.i64(unroll)));
    run(code_.i64(0), main, unroll);
    if (unroll > 1) run(main, extent, 1);
    return accumulators;
  }

  // Columns of B that lie apart while the steps of dim d lie side by side, as in W^T x.
  bool reads_transposed(const Segment& segment, std::size_t d) const {
    const KDim& k = segment.k[d];
    return !segment.packed && !dot_.pairs && lanes_ > 1 && k.extent.is_static() &&
           pays_to_transpose(dot_.dtype, segment.b_n, k.b_stride, k.extent.bound);
  }

  // As many vectors of B as have steps in a square of lanes, for vector j of the tile.
  Values load_square(const Segment& segment, const Tile& tile, Value* b, int j, std::int64_t steps) {
    const bool tail = j + 1 == tile.vectors;
    return code_.load_transposed(factor_dtype(dot_), code_.offset(b, j * lanes_ * segment.b_n * bytes_),
                                 code_.i64(segment.b_n), tail ? tile.last_lanes : lanes_, static_cast<int>(steps));
  }

  // steps() of the last dim, where squares of B are turned in registers.
  Values transposed_steps(const Segment& segment, std::size_t d, const Tile& tile, std::int64_t rows, Value* a,
                          Value* b, Values accumulators) {
    const std::int64_t a_step = segment.k[d].a_stride * bytes_, k = segment.k[d].extent.bound,
                       main = k / lanes_ * lanes_;
    const auto run = [&](std::int64_t begin, std::int64_t end, std::int64_t count) {
      accumulators =
          code_.loop(code_.i64(begin), code_.i64(end), count, accumulators, [&](Value* at_k, Values carried) {
            Value* a_k = code_.offset(a, at_k, a_step);
            for (int j = 0; j < tile.vectors; ++j) {
              const Values square = load_square(segment, tile, code_.offset(b, at_k, bytes_), j, count);
              for (std::int64_t u = 0; u < count; ++u) {
                for (std::int64_t i = 0; i < rows; ++i) {
                  Value*& sum = at(carried, tile, i, j);
                  sum = code_.fma(load_a(segment, code_.offset(a_k, u * a_step), i),
                                  square[static_cast<std::size_t>(u)], sum);
                }
              }
            }
            return carried;
          });
    };
    run(0, main, lanes_);
    if (main < k) run(main, k, k - main);
    return accumulators;
  }

  Value* load_a(const Segment& segment, Value* a, std::int64_t i) {
    return code_.load(factor_dtype(dot_), code_.offset(a, i * segment.a_m * bytes_), 0, lanes_, nullptr);
  }

  Value* load_b(const Segment& segment, const Tile& tile, Value* b, int j) {
    if (segment.packed) {  // zero-filled to whole vectors
      const std::int64_t panel = j / tile.panel_vectors, vector = j % tile.panel_vectors;
      const std::int64_t at = panel * tile.panel_vectors * lanes_ * segment.depth + vector * lanes_;
      return code_.load(factor_dtype(dot_), code_.offset(b, at * bytes_), 1, lanes_, nullptr);
    }
    Value* mask = segment.b_n == 0 ? nullptr : tail_of(tile, j);
    return code_.load(factor_dtype(dot_), code_.offset(b, j * lanes_ * segment.b_n * bytes_), segment.b_n, lanes_,
                      mask);
  }

  // One step of k. The shorter side of the tile is held in registers, the other one passes through.
  void step(const Segment& segment, const Tile& tile, std::int64_t rows, Value* a, Value* b, Values& accumulators) {
    const auto multiply = [&](std::int64_t i, int j, Value* x, Value* y) {
      Value*& accumulator = at(accumulators, tile, i, j);
      accumulator = dot_.pairs ? code_.fma_pairs(x, y, accumulator) : code_.fma(x, y, accumulator);
    };
    Values held;
    if (rows < tile.vectors) {
      for (std::int64_t i = 0; i < rows; ++i) held.push_back(load_a(segment, a, i));
      for (int j = 0; j < tile.vectors; ++j) {
        Value* y = load_b(segment, tile, b, j);
        for (std::int64_t i = 0; i < rows; ++i) multiply(i, j, held[static_cast<std::size_t>(i)], y);
      }
      return;
    }
    for (int j = 0; j < tile.vectors; ++j) held.push_back(load_b(segment, tile, b, j));
    for (std::int64_t i = 0; i < rows; ++i) {
      Value* x = load_a(segment, a, i);
      for (int j = 0; j < tile.vectors; ++j) multiply(i, j, x, held[static_cast<std::size_t>(j)]);
    }
  }

  Code& code_;
  const Dot& dot_;
  int lanes_;
  std::int64_t bytes_, budget_ = 1;
  Value* c_;
  Value* init_ = nullptr;
  Value* m_;
  Value* backwards_ = nullptr;  // i1: the last panel comes first
  Value* cancel_ = nullptr;     // of a long dot
  Value* ahead_ = nullptr;      // what is fetched during the first steps of a block, see next_init()
  llvm::AllocaInst* part_buffer_ = nullptr;
  std::int64_t part_bytes_ = 0;
  std::vector<Segment> segments_;
};

// As of Maps: few vectors, and few steps.
bool is_small(const Dot& dot) {
  constexpr std::int64_t most_vectors = 24, most_steps = 96;
  if (!dot.m.is_static()) return false;
  const std::int64_t lanes = dot.n.bound == 1 ? 1 : lanes_of(dot.dtype);
  const std::int64_t vectors = dot.m.bound * ((dot.n.bound + lanes - 1) / lanes);
  std::int64_t steps = 0;
  for (const DotSegment& s : dot.segments) {
    steps += vectors * depth(s);
    if (!std::all_of(s.k.begin(), s.k.end(), [](const KDim& k) { return k.extent.is_static(); })) return false;
  }
  return vectors <= most_vectors && steps <= most_steps;
}

}  // namespace

void emit_dot(Code& code, const Frame& frame, const Dot& dot, HeldValues* held) {
  HOTLOOP_CHECK(is_float(dot.dtype) && dot.n.is_static(), "a Dot is of floats and has a static n");
  if (better_transposed(dot)) return emit_dot(code, frame, transposed(dot), held);
  ModuleState& state = code.state();
  Values args{frame.address(code, dot.c)};
  if (dot.init) args.push_back(frame.address(code, *dot.init));
  for (const DotSegment& segment : dot.segments) {
    args.push_back(frame.address(code, segment.a));
    args.push_back(frame.address(code, segment.b));
    for (const KDim& dim : collapsed(segment)) {
      HOTLOOP_CHECK(dim.extent.is_static() || !segment.packed, "a packed segment has static k");
      if (!dim.extent.is_static()) args.push_back(frame.extent(code, dim.extent));
    }
  }
  if (!dot.m.is_static()) args.push_back(frame.extent(code, dot.m));
  if (alternates(state.program.target, dot)) args.push_back(code.b.CreateTrunc(frame.turn, code.b.getInt1Ty()));
  if (is_long(dot)) args.push_back(frame.cancel);
  if (held != nullptr && is_small(dot)) {
    code.held = held;
    DotEmitter(code, dot, args).emit();
    code.held = nullptr;
    return;
  }
  llvm::Function*& function = state.outlined[key_of(dot)];
  if (function == nullptr) {
    std::vector<llvm::Type*> types;
    for (Value* arg : args) types.push_back(arg->getType());
    function =
        state.create_function("dot_" + dot.name, llvm::FunctionType::get(code.b.getVoidTy(), types, false), false);
    Code inner(state, llvm::BasicBlock::Create(code.context(), "entry", function));
    Values parameters;
    for (llvm::Argument& argument : function->args()) parameters.push_back(&argument);
    DotEmitter(inner, dot, parameters).emit();
    inner.b.CreateRetVoid();
  }
  code.b.CreateCall(function, args);
  if (held != nullptr) held->forget(dot.c.buffer);
}

}  // namespace hotloop::codegen
