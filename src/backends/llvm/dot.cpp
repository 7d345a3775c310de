// Dot: register-tiled micro-kernels. An element's accumulator takes its steps in the order of the kernel IR whatever
// the tile, so tile shapes are chosen for speed alone: panels of columns outside, blocks of rows inside (the panel of
// B stays in cache), all segments accumulated in registers.
#include <algorithm>
#include <sstream>

#include "backends/llvm/code.h"
#include "hotloop/error.h"

namespace hotloop::codegen {

using kernel::Dot;
using kernel::DotSegment;
using kernel::KDim;

namespace {

using Values = Code::Values;

// Steps along k that are evenly spaced in both operands become one dim.
std::vector<KDim> collapsed(const DotSegment& segment) {
  std::vector<KDim> dims;
  for (const KDim& dim : segment.k) {
    if (dim.extent == kernel::Extent{}) continue;
    if (!dims.empty() && dim.extent.is_static() && dims.back().extent.is_static()) {
      KDim& outer = dims.back();
      const std::int64_t n = dim.extent.bound;
      if (outer.a_stride == dim.a_stride * n && (segment.packed || outer.b_stride == dim.b_stride * n)) {
        outer = {kernel::Extent{outer.extent.bound * n}, dim.a_stride, dim.b_stride};
        continue;
      }
    }
    dims.push_back(dim);
  }
  if (dims.empty()) dims.push_back({kernel::Extent{1}, 0, 0});
  return dims;
}

std::int64_t depth(const DotSegment& segment) {
  std::int64_t k = 1;
  for (const KDim& dim : segment.k) k *= dim.extent.bound;
  return k;
}

// C' = A' B' computes the same sums; rows and columns change places. Worth it when A, not B, is contiguous.
bool better_transposed(const Dot& dot) {
  if (!dot.m.is_static()) return false;
  const bool b_strided = dot.n.bound > 1 && std::any_of(dot.segments.begin(), dot.segments.end(),
                                                        [](const auto& s) { return !s.packed && s.b_n != 1; });
  const bool narrow = dot.n.bound * 2 <= lanes_of(dot.dtype) && dot.m.bound > dot.n.bound;
  if (!b_strided && !narrow) return false;
  return std::all_of(dot.segments.begin(), dot.segments.end(), [](const auto& s) { return !s.packed && s.a_m == 1; });
}

Dot transposed(const Dot& dot) {
  Dot other = dot;
  std::swap(other.m, other.n);
  std::swap(other.init_m, other.init_n);
  std::swap(other.c_m, other.c_n);
  for (DotSegment& segment : other.segments) {
    std::swap(segment.a, segment.b);
    std::swap(segment.a_m, segment.b_n);
    for (KDim& dim : segment.k) std::swap(dim.a_stride, dim.b_stride);
  }
  return other;
}

std::string key_of(const Dot& dot) {
  std::ostringstream text;
  const auto extent = [](const kernel::Extent& e) { return (e.is_static() ? "" : "?") + std::to_string(e.bound); };
  text << "dot " << name_of(dot.dtype) << ' ' << extent(dot.m) << ' ' << extent(dot.n) << ' ' << dot.init.has_value()
       << ' ' << dot.init_m << ' ' << dot.init_n << ' ' << dot.c_m << ' ' << dot.c_n;
  for (const DotSegment& s : dot.segments) {
    text << "; " << s.a_m << ' ' << s.b_n << ' ' << s.packed;
    for (const KDim& k : s.k) text << ' ' << extent(k.extent) << ',' << k.a_stride << ',' << k.b_stride;
  }
  return text.str();
}

class DotEmitter {
 public:
  DotEmitter(Code& code, const Dot& dot, llvm::Function* function)
      : code_(code), dot_(dot), lanes_(lanes_of(dot.dtype)), bytes_(bytes_of(dot.dtype)) {
    auto* argument = function->arg_begin();
    c_ = argument++;
    if (dot.init) init_ = argument++;
    for (const DotSegment& s : dot.segments) {
      Segment segment{argument, argument + 1, s.a_m, s.b_n, s.packed, depth(s), collapsed(s), {}};
      argument += 2;
      for (const KDim& dim : segment.k) {
        segment.extents.push_back(dim.extent.is_static() ? code.i64(dim.extent.bound)
                                                         : static_cast<Value*>(argument++));
      }
      segments_.push_back(std::move(segment));
    }
    m_ = dot.m.is_static() ? code.i64(dot.m.bound) : static_cast<Value*>(argument);
  }

  void emit() {
    const kernel::Target& target = code_.state().program.target;
    const std::int64_t panel = target.dot_vectors, n = dot_.n.bound;
    budget_ = target.dot_rows * target.dot_vectors;
    // With few rows, several panels side by side keep enough accumulators in flight.
    const std::int64_t rows = std::min<std::int64_t>(dot_.m.bound, target.dot_rows);
    const std::int64_t side =
        std::clamp<std::int64_t>(budget_ / (rows * panel), 1, std::max<std::int64_t>(1, 8 / panel));
    const std::int64_t panel_columns = panel * lanes_, panels = n / panel_columns;
    const std::int64_t wide = panels / side * side;
    columns(0, wide, side);
    columns(wide, panels, 1);
    if (const std::int64_t rest = n - panels * panel_columns; rest > 0) {
      const auto vectors = static_cast<int>((rest + lanes_ - 1) / lanes_);
      row_blocks({panels * panel_columns, nullptr, vectors, vectors, static_cast<int>(rest - (vectors - 1) * lanes_)});
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
    code_.loop(code_.i64(begin * width), code_.i64(end * width), side * width, [&](Value* column) {
      row_blocks({0, column, static_cast<int>(side * panel), static_cast<int>(panel), lanes_});
    });
  }

  Value* column_offset(Value* pointer, const Tile& tile, std::int64_t elements_per_column) {
    pointer = code_.offset(pointer, tile.first * elements_per_column * bytes_);
    return tile.loop_columns == nullptr ? pointer
                                        : code_.offset(pointer, tile.loop_columns, elements_per_column * bytes_);
  }

  void row_blocks(const Tile& tile) {
    const std::int64_t most = std::min<std::int64_t>(12, std::max<std::int64_t>(1, budget_ / tile.vectors));
    const std::int64_t blocks = (dot_.m.bound + most - 1) / most;
    if (blocks == 0) return;
    const std::int64_t height = (dot_.m.bound + blocks - 1) / blocks;
    if (dot_.m.is_static()) {  // blocks as equal as can be: at most two heights
      const std::int64_t low = dot_.m.bound / blocks, num_high = dot_.m.bound % blocks;
      const std::int64_t high_rows = num_high * (low + 1);
      code_.loop(code_.i64(0), code_.i64(high_rows), low + 1, [&](Value* row) { block(tile, row, low + 1); });
      code_.loop(code_.i64(high_rows), m_, low, [&](Value* row) { block(tile, row, low); });
      return;
    }
    // Full blocks, then the rest in lower ones that still have eight accumulators, then single rows.
    const std::int64_t low = std::clamp<std::int64_t>(8 / tile.vectors, 1, 4);
    Value* row = code_.i64(0);
    const auto rows_of = [&](std::int64_t h) {
      Value* end = code_.b.CreateSub(m_, code_.b.CreateURem(code_.b.CreateSub(m_, row), code_.i64(h)));
      code_.loop(row, end, h, [&](Value* r) { block(tile, r, h); });
      row = end;
    };
    rows_of(height);
    if (low > 1 && low < height) rows_of(low);
    if (height > 1) rows_of(1);
  }

  Value* tail_of(const Tile& tile, int vector) {
    if (vector + 1 < tile.vectors || tile.last_lanes == lanes_) return nullptr;
    return code_.tail_mask(lanes_, code_.i64(tile.last_lanes));
  }

  void block(const Tile& tile, Value* row, std::int64_t rows) {
    Values accumulators = initial(tile, row, rows);
    for (const Segment& segment : segments_) {
      Value* a = code_.offset(segment.a, row, segment.a_m * bytes_);
      // Panels begin at (first column) * depth.
      Value* b = column_offset(segment.b, tile, segment.packed ? segment.depth : segment.b_n);
      accumulators = steps(segment, 0, tile, rows, a, b, accumulators);
    }
    Value* c = code_.offset(column_offset(c_, tile, dot_.c_n), row, dot_.c_m * bytes_);
    for (std::int64_t i = 0; i < rows; ++i) {
      for (int j = 0; j < tile.vectors; ++j) {
        Value* to = code_.offset(c, (i * dot_.c_m + j * lanes_ * dot_.c_n) * bytes_);
        code_.store(dot_.dtype, at(accumulators, tile, i, j), to, dot_.c_n, lanes_, tail_of(tile, j));
      }
    }
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

  // Elements from one step of dim d to the next in B.
  static std::int64_t b_step(const Segment& segment, std::size_t d, const Tile& tile, int lanes) {
    if (!segment.packed) return segment.k[d].b_stride;
    std::int64_t step = tile.panel_vectors * lanes;
    for (std::size_t inner = d + 1; inner < segment.k.size(); ++inner) step *= segment.k[inner].extent.bound;
    return step;
  }

  Values steps(const Segment& segment, std::size_t d, const Tile& tile, std::int64_t rows, Value* a, Value* b,
               Values accumulators) {
    const std::int64_t a_step = segment.k[d].a_stride * bytes_, b_bytes = b_step(segment, d, tile, lanes_) * bytes_;
    Value* extent = segment.extents[d];
    if (d + 1 < segment.k.size()) {
      return code_.loop(code_.i64(0), extent, 1, accumulators, [&](Value* k, const Values& carried) {
        return steps(segment, d + 1, tile, rows, code_.offset(a, k, a_step), code_.offset(b, k, b_bytes), carried);
      });
    }
    const std::int64_t unroll = unroll_of(segment.k[d].extent, rows * tile.vectors);
    const auto run = [&](Value* begin, Value* end, std::int64_t count) {
      accumulators = code_.loop(begin, end, count, accumulators, [&](Value* k, Values carried) {
        Value* a_k = code_.offset(a, k, a_step);
        Value* b_k = code_.offset(b, k, b_bytes);
        for (std::int64_t u = 0; u < count; ++u) {
          step(segment, tile, rows, code_.offset(a_k, u * a_step), code_.offset(b_k, u * b_bytes), carried);
        }
        return carried;
      });
    };
    if (segment.k[d].extent.is_static()) {
      const std::int64_t k = segment.k[d].extent.bound, main = k / unroll * unroll;
      run(code_.i64(0), code_.i64(main), unroll);
      run(code_.i64(main), code_.i64(k), std::max<std::int64_t>(1, k - main));
      return accumulators;
    }
    Value* main = code_.b.CreateSub(extent, code_.b.CreateURem(extent, code_.i64(unroll)));
    run(code_.i64(0), main, unroll);
    if (unroll > 1) run(main, extent, 1);
    return accumulators;
  }

  // Enough multiplications in the loop's body to hide its overhead; a divisor of the extent if there is one.
  static std::int64_t unroll_of(const kernel::Extent& extent, std::int64_t accumulators) {
    const std::int64_t most = std::clamp<std::int64_t>(24 / accumulators, 1, 8);
    if (!extent.is_static()) return std::min<std::int64_t>(most, 4);
    if (extent.bound <= most) return std::max<std::int64_t>(1, extent.bound);
    for (std::int64_t u = most; u * 2 > most; --u) {
      if (extent.bound % u == 0) return u;
    }
    return most;
  }

  Value* load_a(const Segment& segment, Value* a, std::int64_t i) {
    return code_.load(dot_.dtype, code_.offset(a, i * segment.a_m * bytes_), 0, lanes_, nullptr);
  }

  Value* load_b(const Segment& segment, const Tile& tile, Value* b, int j) {
    if (segment.packed) {  // zero-filled to whole vectors
      const std::int64_t panel = j / tile.panel_vectors, vector = j % tile.panel_vectors;
      const std::int64_t at = panel * tile.panel_vectors * lanes_ * segment.depth + vector * lanes_;
      return code_.load(dot_.dtype, code_.offset(b, at * bytes_), 1, lanes_, nullptr);
    }
    Value* mask = segment.b_n == 0 ? nullptr : tail_of(tile, j);
    return code_.load(dot_.dtype, code_.offset(b, j * lanes_ * segment.b_n * bytes_), segment.b_n, lanes_, mask);
  }

  // One step of k. The shorter side of the tile is held in registers, the other one passes through.
  void step(const Segment& segment, const Tile& tile, std::int64_t rows, Value* a, Value* b, Values& accumulators) {
    const auto multiply = [&](std::int64_t i, int j, Value* x, Value* y) {
      Value*& accumulator = at(accumulators, tile, i, j);
      accumulator = code_.fma(x, y, accumulator);
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
  std::vector<Segment> segments_;
};

}  // namespace

void emit_dot(Code& code, const Frame& frame, const Dot& dot) {
  HOTLOOP_CHECK(is_float(dot.dtype) && dot.n.is_static(), "a Dot is of floats and has a static n");
  if (better_transposed(dot)) return emit_dot(code, frame, transposed(dot));
  ModuleState& state = code.state();
  llvm::Function*& function = state.outlined[key_of(dot)];
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
  if (function == nullptr) {
    std::vector<llvm::Type*> types;
    for (Value* arg : args) types.push_back(arg->getType());
    function =
        state.create_function("dot_" + dot.name, llvm::FunctionType::get(code.b.getVoidTy(), types, false), false);
    Code inner(state, llvm::BasicBlock::Create(code.context(), "entry", function));
    DotEmitter(inner, dot, function).emit();
    inner.b.CreateRetVoid();
  }
  code.b.CreateCall(function, args);
}

}  // namespace hotloop::codegen
