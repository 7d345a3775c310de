// Dots of pairs in blocks: 32 rows times 32 columns of C at a time in matrix registers, or up to 16 rows times 64 columns, so that each register of a factor is
// multiplied with two others or more. Few rows all pass over some columns of B before the next ones come, since B may come from far: a processor fetches ahead of
// one stream of it as fast as it can, and gains nothing by being asked. Of many rows each block passes over a group of columns, of which a part of B stays in the second
// cache, and a part of A in the first one. Between parts C waits in memory.
#include <algorithm>
#include <utility>

#include "backends/llvm/code.h"
#include "backends/llvm/dot_emitter.h"
#include "backends/llvm/dot_walk.h"
#include "backends/llvm/matrix_registers.h"
#include "core/index.h"
#include "schedule/footprint.h"

namespace hotloop::codegen {

using kernel::Dot;
using kernel::DotSegment;
using Values = Code::Values;

namespace {

constexpr std::int64_t side = MatrixRegisters::most_rows;  // of a block, and the columns of a register
constexpr std::int64_t bytes = 4;                          // of pairs, and of what they are added to

class BlockEmitter {
 public:
  BlockEmitter(Code& code, const Dot& dot, const Values& arguments) : code_(code), dot_(dot), registers_(code) {
    auto argument = arguments.begin();
    c_ = *argument++;
    if (dot.init) init_ = *argument++;
    for (const DotSegment& s : dot.segments) {
      segments_.push_back({argument[0], argument[1], s.depth()});
      argument += 2;
    }
    m_ = dot.m.is_static() ? code.i64(dot.m.bound) : *argument++;
    if (is_long(dot)) cancel_ = *argument;
  }

  void emit() {
    const std::int64_t m = dot_.m.bound, n = dot_.n.bound, rows = most_rows(), columns = most_columns();
    const auto groups = [&](Value* shift, std::int64_t begin, std::int64_t end) {
      const auto of_rows = [&](Value* from, Value* to) {
        for_each_part([&](const std::vector<Chunk>& part, bool is_first) {
          is_first_ = is_first;
          all_rows(from, to, [&](const RowRange& range) {
            if (!has_many_rows()) return emit_columns(part, range, shift, begin, end);
            code_.loop(range.from, range.to, 2 * side, [&](Value* row) {
              Value* next = code_.b.CreateAdd(row, code_.i64(2 * side));
              emit_columns(part, {row, next, range.of_register}, shift, begin, end);
            });
          });
        });
      };
      if (rows >= m) return of_rows(code_.i64(0), m_);
      code_.loop(code_.i64(0), m_, rows, [&](Value* from) {
        Value* to = code_.b.CreateAdd(from, code_.i64(rows));
        of_rows(from, code_.b.CreateBinaryIntrinsic(llvm::Intrinsic::smin, to, m_));
      });
    };
    const std::int64_t whole = columns < n ? n / columns * columns : 0;
    code_.loop(code_.i64(0), code_.i64(whole), columns, [&](Value* shift) { groups(shift, 0, columns); });
    if (whole < n) groups(nullptr, whole, n);
    registers_.release();
  }

 private:
  struct Segment {
    Value* a;
    Value* b;
    std::int64_t depth;
  };
  // Some blocks of k.
  struct Chunk {
    const Segment* segment;
    Value* first;
    std::int64_t blocks;
  };
  // Of C: up to 32 rows from `row` on, in one register or two.
  struct Rows {
    Value* row;
    Values of_register;
    std::int64_t registers() const { return static_cast<std::int64_t>(of_register.size()); }
  };
  // Columns from `first` on (+ `shift` if not null), of so many registers, the last with `last` columns.
  struct Columns {
    std::int64_t first;
    Value* shift;
    std::int64_t registers, last;
  };

  bool has_many_rows() const { return dot_.m.bound > 8 * side; }
  // Blocks of k in a part, at most: of many rows so many that a block of rows takes two thirds of the first cache.
  std::int64_t most_blocks() const {
    constexpr std::int64_t of_few = 64, block_bytes = 2 * side * kernel::vector_bytes;
    return has_many_rows() ? std::max<std::int64_t>(4, target().l1_bytes_there * 2 / 3 / block_bytes) : of_few;
  }
  std::int64_t num_blocks() const {
    std::int64_t blocks = 0;
    for (const Segment& segment : segments_) blocks += segment.depth / kernel::steps_of_block;
    return blocks;
  }
  // Blocks that follow each other in one part rather than in two, of which one is short.
  bool are_one_part(std::int64_t blocks) const { return blocks <= most_blocks() + most_blocks() / 4; }
  const kernel::Target& target() const { return code_.state().program.target; }
  // Of a group: so many that C, which comes and goes with each part, stays in the second cache.
  std::int64_t most_rows() const {
    constexpr std::int64_t of_a_group = 512;
    return has_many_rows() && !are_one_part(num_blocks()) ? of_a_group : dot_.m.bound;
  }
  // Of a group: so many that B of a part takes a quarter of it.
  std::int64_t most_columns() const {
    constexpr std::int64_t several = 4 * side;
    if (!has_many_rows()) return dot_.n.bound;
    const std::int64_t blocks = std::max<std::int64_t>(1, std::min(num_blocks(), most_blocks()));
    return std::max<std::int64_t>(1, target().l2_bytes_there / 4 / (blocks * kernel::vector_bytes) / several) * several;
  }

  // Calls body(chunks, whether they are the first ones) for all parts of k in order.
  void for_each_part(const std::function<void(const std::vector<Chunk>&, bool)>& body) {
    bool is_first = true;
    std::vector<Chunk> part;
    std::int64_t in_part = 0;
    const auto finish = [&] {
      if (part.empty()) return;
      body(part, is_first);
      is_first = false;
      part.clear();
      in_part = 0;
    };
    for (const Segment& segment : segments_) {
      const std::int64_t blocks = segment.depth / kernel::steps_of_block;
      if (!are_one_part(in_part + blocks)) finish();
      if (are_one_part(blocks)) {
        part.push_back({&segment, code_.i64(0), blocks});
        in_part += blocks;
        continue;
      }
      const std::int64_t of_part = divided_up(blocks, divided_up(blocks, most_blocks()));
      std::int64_t at = 0;
      if (is_first) {
        body({{&segment, code_.i64(0), of_part}}, true);
        is_first = false;
        at = of_part;
      }
      const std::int64_t whole = at + (blocks - at) / of_part * of_part;
      code_.loop(code_.i64(at), code_.i64(whole), of_part, [&](Value* first) {
        body({{&segment, first, of_part}}, false);
      });
      if (whole < blocks) body({{&segment, code_.i64(whole), blocks - whole}}, false);
    }
    finish();
  }

  void unless_cancelled(const std::function<void()>& body) {
    if (cancel_ == nullptr) return body();
    code_.when(code_.b.CreateNot(code_.is_cancelled(cancel_)), body);
  }

  // Rows in blocks of 32, and what is left.
  struct RowRange {
    Value *from, *to;
    Values of_register;
  };
  void all_rows(Value* from, Value* to, const std::function<void(const RowRange&)>& body) {
    constexpr std::int64_t two = 2 * side;
    Value* full = code_.i64(side);
    Value* whole = code_.b.CreateAnd(to, code_.i64(-two));
    const bool is_static = dot_.m.is_static();
    const auto when = [&](Value* condition, const std::function<void()>& then) {
      const auto* known = llvm::dyn_cast<llvm::ConstantInt>(condition);
      if (known == nullptr) return code_.when(condition, then);
      if (known->isOne()) then();
    };
    when(code_.b.CreateICmpSLT(from, whole), [&] { body({from, whole, {full, full}}); });
    const std::int64_t left = dot_.m.bound % two;
    if (is_static && left == 0) return;
    Value* rows = code_.b.CreateSub(to, whole);
    // Whichever it is, if it is known; of groups of rows the last one alone has any left.
    if (!is_static || left > side)
      when(code_.b.CreateICmpSGT(rows, full), [&] {
        body({whole, to, {full, is_static ? code_.i64(left - side) : code_.b.CreateSub(rows, full)}});
      });
    if (!is_static || left <= side)
      when(code_.b.CreateAnd(code_.b.CreateICmpSGT(rows, code_.i64(0)), code_.b.CreateICmpSLE(rows, full)), [&] {
        body({whole, to, {is_static ? code_.i64(left) : rows}});
      });
  }

  // The columns from `begin` to `end`, + `shift`, of the panels of B. Whole panels come in as many registers as there are sums for.
  void emit_columns(const std::vector<Chunk>& part, const RowRange& range, Value* shift, std::int64_t begin,
                    std::int64_t end) {
    const auto num_rows = static_cast<std::int64_t>(range.of_register.size());
    const std::int64_t step = 4 / num_rows * side, whole = begin + (end - begin) / step * step;
    const auto blocks_of = [&](const Columns& columns) {
      code_.loop(range.from, range.to, 2 * side, [&](Value* row) {
        unless_cancelled([&] { emit_block(part, {row, range.of_register}, columns); });
      });
    };
    if (begin < whole) {
      configure(range.of_register, step / side, side);
      code_.loop(code_.i64(begin), code_.i64(whole), step, [&](Value* column) {
        blocks_of({0, shift == nullptr ? column : code_.b.CreateAdd(shift, column), step / side, side});
      });
    }
    if (whole == end) return;
    const std::int64_t registers = divided_up(end - whole, side), last = end - whole - (registers - 1) * side;
    configure(range.of_register, registers, last);
    blocks_of({whole, shift, registers, last});
  }

  // Registers: four of sums, row by row, then those of A and of B. Of B the last columns may be fewer, and have one of their own.
  static int sum_at(const Rows& rows, std::int64_t i, std::int64_t j) {
    return static_cast<int>(i * (4 / rows.registers()) + j);
  }
  static int a_at(std::int64_t i) { return static_cast<int>(4 + i); }
  static int b_at(const Rows& rows, std::int64_t j, std::int64_t registers) {
    if (rows.registers() == 2) return static_cast<int>(6 + j);
    return static_cast<int>(j + 1 == registers ? 7 : 5 + j % 2);
  }

  void configure(const Values& of_register, std::int64_t registers, std::int64_t last) {
    const Rows rows{nullptr, of_register};
    MatrixRegisters::Shapes shapes;
    const auto at = [&](int r) -> MatrixRegisters::Shape& { return shapes[static_cast<std::size_t>(r)]; };
    for (std::int64_t i = 0; i < rows.registers(); ++i) {
      Value* here = rows.of_register[static_cast<std::size_t>(i)];
      at(a_at(i)) = {here, static_cast<int>(side)};
      for (std::int64_t j = 0; j < registers; ++j) {
        const auto columns = static_cast<int>(j + 1 == registers ? last : side);
        at(sum_at(rows, i, j)) = {here, columns};
        at(b_at(rows, j, registers)) = {code_.i64(kernel::steps_of_block), columns};
      }
    }
    registers_.configure(shapes);
  }

  Value* at_column(Value* pointer, const Columns& columns, std::int64_t j, std::int64_t stride) {
    pointer = code_.offset(pointer, (columns.first + j * side) * stride * bytes);
    return columns.shift == nullptr ? pointer : code_.offset(pointer, columns.shift, stride * bytes);
  }

  // Where the columns of register j begin in B, and how far its steps are apart.
  std::pair<Value*, std::int64_t> b_of(const Segment& segment, const Columns& columns, std::int64_t j) {
    const std::int64_t panel = dot_.panel(), within = (columns.first + j * side) % panel,
                       first = columns.first + j * side - within;
    // What the loop adds are whole panels.
    const std::int64_t left = columns.shift == nullptr ? dot_.n.bound - first : panel,
                       width = std::min(panel, divided_up(left, side) * side);
    Value* b = code_.offset(segment.b, (first * segment.depth + within) * bytes);
    if (columns.shift != nullptr) b = code_.offset(b, columns.shift, segment.depth * bytes);
    return {b, width * bytes};
  }

  void emit_block(const std::vector<Chunk>& part, const Rows& rows, const Columns& columns) {
    for (std::int64_t i = 0; i < rows.registers(); ++i)
      for (std::int64_t j = 0; j < columns.registers; ++j) begin(rows, columns, i, j);
    for (const Chunk& chunk : part) {
      const Segment& segment = *chunk.segment;
      std::vector<std::pair<Value*, std::int64_t>> b;
      for (std::int64_t j = 0; j < columns.registers; ++j) {
        b.push_back(b_of(segment, columns, j));
        b.back().first = code_.offset(b.back().first, chunk.first, kernel::steps_of_block * b.back().second);
      }
      // Rows begin with a panel.
      constexpr std::int64_t line_bytes = kernel::vector_bytes, block_bytes = kernel::rows_of_blocks * line_bytes;
      Value* a = code_.offset(code_.offset(segment.a, rows.row, segment.depth * bytes), chunk.first, block_bytes);
      code_.loop(code_.i64(0), code_.i64(chunk.blocks), 1, [&](Value* block) {
        Value* of_rows = code_.offset(a, block, block_bytes);
        for (std::int64_t i = 0; i < rows.registers(); ++i)
          registers_.load(a_at(i), code_.offset(of_rows, i * side * line_bytes), line_bytes);
        for (std::int64_t j = 0; j < columns.registers; ++j) {
          const auto& [of_column, stride] = b[static_cast<std::size_t>(j)];
          const int r = b_at(rows, j, columns.registers);
          registers_.load(r, code_.offset(of_column, block, kernel::steps_of_block * stride), stride);
          for (std::int64_t i = 0; i < rows.registers(); ++i) registers_.multiply(sum_at(rows, i, j), a_at(i), r);
        }
      });
    }
    for (std::int64_t i = 0; i < rows.registers(); ++i)
      for (std::int64_t j = 0; j < columns.registers; ++j) end(rows, columns, i, j);
  }

  Value* lines() {
    if (lines_ == nullptr) lines_ = code_.stack_row(DType::F32, side * side);
    return lines_;
  }
  Value* mask(const Columns& columns, std::int64_t j) {
    const bool is_whole = j + 1 < columns.registers || columns.last == side;
    return is_whole ? nullptr : code_.tail_mask(static_cast<int>(side), code_.i64(columns.last));
  }

  // What the sums of a register begin with.
  void begin(const Rows& rows, const Columns& columns, std::int64_t i, std::int64_t j) {
    const int r = sum_at(rows, i, j);
    const bool from_c = !is_first_ || starts_from_c(dot_);
    if (!from_c && init_ == nullptr) return registers_.zero(r);
    const std::int64_t m = from_c ? dot_.c_m : dot_.init_m, n = from_c ? dot_.c_n : dot_.init_n;
    Value* from = at_column(from_c ? c_ : init_, columns, j, n);
    from = code_.offset(code_.offset(from, rows.row, m * bytes), i * side * m * bytes);
    if (n == 1) return registers_.load(r, from, m * bytes);
    code_.loop(code_.i64(0), rows.of_register[static_cast<std::size_t>(i)], 1, [&](Value* row) {
      Value* line = code_.load(DType::F32, code_.offset(from, row, m * bytes), n, static_cast<int>(side),
                               n == 0 ? nullptr : mask(columns, j));
      code_.store(DType::F32, line, code_.offset(lines(), row, kernel::vector_bytes), 1, static_cast<int>(side),
                  nullptr);
    });
    registers_.load(r, lines(), kernel::vector_bytes);
  }

  void end(const Rows& rows, const Columns& columns, std::int64_t i, std::int64_t j) {
    const int r = sum_at(rows, i, j);
    Value* to = code_.offset(at_column(c_, columns, j, dot_.c_n), rows.row, dot_.c_m * bytes);
    to = code_.offset(to, i * side * dot_.c_m * bytes);
    if (dot_.c_n == 1) return registers_.store(r, to, dot_.c_m * bytes);
    registers_.store(r, lines(), kernel::vector_bytes);
    code_.loop(code_.i64(0), rows.of_register[static_cast<std::size_t>(i)], 1, [&](Value* row) {
      Value* line =
          code_.load(DType::F32, code_.offset(lines(), row, kernel::vector_bytes), 1, static_cast<int>(side), nullptr);
      code_.store(DType::F32, line, code_.offset(to, row, dot_.c_m * bytes), dot_.c_n, static_cast<int>(side),
                  mask(columns, j));
    });
  }

  Code& code_;
  const Dot& dot_;
  MatrixRegisters registers_;
  std::vector<Segment> segments_;
  Value *c_ = nullptr, *init_ = nullptr, *m_ = nullptr, *cancel_ = nullptr;
  Value* lines_ = nullptr;  // memory for one register
  bool is_first_ = true;    // sums begin here
};

}  // namespace

void emit_blocks(Code& code, const Dot& dot, const Values& arguments) {
  static_assert(kernel::rows_of_blocks == 2 * side && kernel::columns_of_blocks == 2 * side);
  BlockEmitter(code, dot, arguments).emit();
}

}  // namespace hotloop::codegen
