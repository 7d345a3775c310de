// An interpreter of kernel IR, one element at a time, in the documented order of every sum: the reference that
// backends must match to the bit. Worker 0 of 1; library functions (exp, sin, ...) are left out.
#pragma once

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <functional>
#include <limits>
#include <stdexcept>
#include <vector>

#include "hotloop/error.h"
#include "schedule/kernel_ir.h"

namespace hotloop::kernel {

class Reference {
 public:
  Reference(const Program& program, const std::vector<Array>& arguments, std::vector<Array>& results, std::int64_t rows)
      : program_(program), vars_(program.vars.size() + 1) {
    vars_[rows_var] = rows;
    for (const Buffer& buffer : program.buffers) {
      const auto index = static_cast<std::size_t>(buffer.index);
      if (buffer.space == Space::Argument) memory_.push_back(arguments[index]);
      if (buffer.space == Space::Result) memory_.push_back(results[index]);
      if (buffer.space == Space::Constant) memory_.push_back(buffer.data);
      if (buffer.space == Space::Shared || buffer.space == Space::Worker) {
        memory_.emplace_back(buffer.dtype, Shape{buffer.elements});
        std::memset(memory_.back().raw(), 0xff, memory_.back().bytes());
      }
    }
  }
  void run() { block(program_.body); }
  bool backwards = false;  // the sections of a round from the last to the first

 private:
  using Bits = std::uint64_t;
  using Registers = std::vector<Bits>;

  template <class T> static T as(Bits bits) {
    T value;
    std::memcpy(&value, &bits, sizeof value);
    return value;
  }
  template <class T> static Bits bits_of(T value) {
    Bits bits = 0;
    std::memcpy(&bits, &value, sizeof value);
    return bits;
  }
  std::int64_t value(const Affine& a) const {
    std::int64_t sum = a.constant;
    for (const Term& term : a.terms) sum += term.coefficient * vars_[static_cast<std::size_t>(term.var)];
    return sum;
  }
  std::int64_t value(const Extent& e) const { return e.is_static() ? e.bound : vars_[static_cast<std::size_t>(e.var)]; }
  Bits read(int buffer, std::int64_t index) const {
    const Array& array = memory_[static_cast<std::size_t>(buffer)];
    HOTLOOP_CHECK(index >= 0 && index < array.size(), "a read outside its buffer");
    const std::size_t size = size_of(array.dtype());
    Bits bits = 0;
    std::memcpy(&bits, static_cast<const char*>(array.raw()) + static_cast<std::size_t>(index) * size, size);
    return bits;
  }
  void write(int buffer, std::int64_t index, Bits bits) {
    Array& array = memory_[static_cast<std::size_t>(buffer)];
    HOTLOOP_CHECK(index >= 0 && index < array.size(), "a write outside its buffer");
    const std::size_t size = size_of(array.dtype());
    std::memcpy(static_cast<char*>(array.raw()) + static_cast<std::size_t>(index) * size, &bits, size);
  }

  void block(const Block& statements) {
    for (const Stmt& s : statements) {
      std::visit([this](const auto& node) { run(node); }, s.node);
    }
  }
  void run(const Single& single) { block(single.body); }
  void run(const Barrier&) {}
  void run(const Sections& all) {
    const std::size_t n = all.sections.size();
    for (std::int64_t round = 0; round < all.num_rounds(); ++round)
      for (std::size_t i = 0; i < n; ++i) {
        const Section& section = all.sections[backwards ? n - 1 - i : i];
        const std::int64_t chunk = round - section.delay;
        if (chunk < 0 || chunk >= all.num_chunks()) continue;
        if (section.first >= 0) {
          const std::int64_t first = (all.reverse ? all.num_chunks() - 1 - chunk : chunk) * all.chunk;
          vars_[static_cast<std::size_t>(section.first)] = first;
          vars_[static_cast<std::size_t>(section.steps)] = std::min(all.chunk, all.trip - first);
        }
        block(section.body);
      }
  }
  void run(const Let& let) {
    std::int64_t v = 0;
    if (let.number) {
      v = value(*let.number);
    } else {
      const Bits bits = read(let.source.buffer, value(let.source.index));
      v = let.dtype == DType::I32 ? as<std::int32_t>(bits) : as<std::int64_t>(bits);
    }
    vars_[static_cast<std::size_t>(let.var)] = std::min(std::max(v, let.low), let.high);
  }
  void run(const For& loop) {
    const std::int64_t trip = value(loop.trip);
    for (std::int64_t i = 0; i < trip; ++i) {
      vars_[static_cast<std::size_t>(loop.counter)] = loop.reverse ? trip - 1 - i : i;
      block(loop.test);
      if (loop.stop && (read(loop.stop->buffer, value(loop.stop->index)) & 1) != 0) return;
      block(loop.body);
    }
  }
  void run(const Grid& grid) {
    const std::int64_t total = value(grid.total), tiles = (total + grid.tile_rows - 1) / grid.tile_rows;
    for (std::int64_t b = 0; b < grid.num_blocks; ++b) {
      if (grid.block >= 0) vars_[static_cast<std::size_t>(grid.block)] = b;
      block(grid.prologue);
      for (std::int64_t t = b * grid.tiles_per_block; t < std::min(tiles, (b + 1) * grid.tiles_per_block); ++t) {
        vars_[static_cast<std::size_t>(grid.row0)] = t * grid.tile_rows;
        vars_[static_cast<std::size_t>(grid.rows)] = std::min(grid.tile_rows, total - t * grid.tile_rows);
        block(grid.body);
      }
    }
  }

  void run(const Pack& pack) {
    const std::int64_t panel = pack.panel, lanes = lanes_of(pack.dtype);
    for (std::int64_t n0 = 0; n0 < pack.n; n0 += panel) {
      const std::int64_t columns = std::min(panel, pack.n - n0), width = (columns + lanes - 1) / lanes * lanes;
      for (std::int64_t k = 0; k < pack.k; ++k) {
        for (std::int64_t j = 0; j < width; ++j) {
          const std::int64_t from = value(pack.source.index) + k * pack.k_stride + (n0 + j) * pack.n_stride;
          write(pack.target, n0 * pack.k + k * width + j, j < columns ? read(pack.source.buffer, from) : 0);
        }
      }
    }
  }

  template <class T> void dot(const Dot& d) {
    const std::int64_t lanes = lanes_of(d.dtype);
    for (std::int64_t m = 0; m < value(d.m); ++m) {
      for (std::int64_t n = 0; n < d.n.bound; ++n) {
        T sum = d.init ? as<T>(read(d.init->buffer, value(d.init->index) + m * d.init_m + n * d.init_n)) : T(0);
        for (const DotSegment& s : d.segments) {
          std::int64_t depth = 1;
          for (const KDim& k : s.k) depth *= value(k.extent);
          T upper(0), lower(0);  // of pairs in blocks
          for (std::int64_t flat = 0; flat < depth; ++flat) {
            std::int64_t a = value(s.a.index) + m * s.a_m, b = value(s.b.index) + n * s.b_n, rest = flat;
            for (std::size_t i = s.k.size(); i-- > 0;) {
              const std::int64_t extent = value(s.k[i].extent);
              a += rest % extent * s.k[i].a_stride;
              b += rest % extent * s.k[i].b_stride;
              rest /= extent;
            }
            if (s.packed()) {
              const std::int64_t n0 = n / s.panel * s.panel, columns = std::min(s.panel, d.n.bound - n0);
              const std::int64_t width = (columns + lanes - 1) / lanes * lanes;
              b = value(s.b.index) + n0 * depth + flat * width + (n - n0);
            }
            if (d.in_blocks) {
              constexpr std::int64_t rows = rows_of_blocks, block = steps_of_block;
              a = value(s.a.index) + m / rows * rows * depth + (flat / block * rows + m % rows) * block + flat % block;
            }
            const auto add = [&](T x, T y, T& to) { to = program_.target.has_fma ? std::fma(x, y, to) : x * y + to; };
            const Bits left = read(s.a.buffer, a), right = read(s.b.buffer, b);
            if (!d.pairs) {
              add(as<T>(left), as<T>(right), sum);
              continue;
            }
            add(as<T>(left & 0xffff0000u), as<T>(right & 0xffff0000u), d.in_blocks ? upper : sum);
            add(as<T>((left & 0xffffu) << 16), as<T>((right & 0xffffu) << 16), d.in_blocks ? lower : sum);
            if (d.in_blocks && flat % steps_of_block == steps_of_block - 1) {
              sum += lower + upper;
              upper = lower = T(0);
            }
          }
        }
        write(d.c.buffer, value(d.c.index) + m * d.c_m + n * d.c_n, bits_of(sum));
      }
    }
  }
  void run(const Dot& d) { d.dtype == DType::F32 ? dot<float>(d) : dot<double>(d); }

  // Points in order; `lane` says which accumulator lane a point of the vector dim belongs to.
  void run(const Map& map) {
    int widest = 4;
    for (const Instr& instr : map.instrs)
      if (instr.kind != Instr::Kind::Op && instr.kind != Instr::Kind::Const)
        widest = std::max(widest, static_cast<int>(size_of(instr.dtype)));
    const int lanes = vector_bytes / widest;
    const auto reduced_begin = static_cast<std::size_t>(map.body_end);
    std::size_t finish = reduced_begin;
    while (finish < map.instrs.size() && map.instrs[finish].kind == Instr::Kind::Reduced) ++finish;
    const bool lane_wise = map.vector_dim >= map.num_outer;
    Registers registers(map.instrs.size());
    nest(map, 0, map.num_outer, [&] {
      std::vector<Registers> sums(lane_wise ? static_cast<std::size_t>(lanes) : 1, Registers(map.instrs.size()));
      for (Registers& sum : sums) {
        for (std::size_t r = reduced_begin; r < finish; ++r) sum[r] = identity(map.instrs[r]);
      }
      nest(map, map.num_outer, static_cast<int>(map.dims.size()), [&] {
        instructions(map, 0, reduced_begin, registers);
        std::size_t lane = 0;
        if (lane_wise) {
          const Var var = map.dims[static_cast<std::size_t>(map.vector_dim)].var;
          lane = static_cast<std::size_t>(vars_[static_cast<std::size_t>(var)] % lanes);
        }
        for (std::size_t r = reduced_begin; r < finish; ++r) {
          const Instr& it = map.instrs[r];
          const Bits x = registers[static_cast<std::size_t>(it.args[0])];
          if (it.op != ScalarOp::Fma) {
            sums[lane][r] = combine(it, sums[lane][r], x);
            continue;
          }
          const Bits y = registers[static_cast<std::size_t>(it.args[1])];
          sums[lane][r] = visit_dtype(it.dtype, [&](auto t) { return operate<decltype(t)>(it, x, y, sums[lane][r]); });
        }
      });
      for (std::size_t half = sums.size() / 2; half > 0; half /= 2) {
        for (std::size_t l = 0; l < half; ++l) {
          for (std::size_t r = reduced_begin; r < finish; ++r) {
            sums[l][r] = combine(map.instrs[r], sums[l][r], sums[l + half][r]);
          }
        }
      }
      for (std::size_t r = reduced_begin; r < finish; ++r) registers[r] = sums[0][r];
      if (finish > reduced_begin || reduced_begin < map.instrs.size()) {
        instructions(map, finish, map.instrs.size(), registers);
      }
    });
  }

  void nest(const Map& map, int dim, int end, const std::function<void()>& body) {
    if (dim == end) return body();
    const Dim& d = map.dims[static_cast<std::size_t>(dim)];
    for (std::int64_t i = 0, n = value(d.extent); i < n; ++i) {
      vars_[static_cast<std::size_t>(d.var)] = i;
      nest(map, dim + 1, end, body);
    }
  }

  std::int64_t index_of(const Map& map, const Access& access, const Registers& registers) const {
    std::int64_t index = value(access.index);
    for (const Indirect& term : access.indirect) {
      const auto reg = static_cast<std::size_t>(term.reg);
      const DType dtype = map.instrs[reg].dtype;
      std::int64_t i = as<std::int64_t>(registers[reg]);
      if (dtype == DType::I32) i = as<std::int32_t>(registers[reg]);
      if (dtype == DType::U32) i = as<std::uint32_t>(registers[reg]);
      index += i * term.stride;
    }
    return index;
  }

  void instructions(const Map& map, std::size_t begin, std::size_t end, Registers& registers) {
    for (std::size_t i = begin; i < end; ++i) {
      const Instr& it = map.instrs[i];
      const auto arg = [&](int k) { return registers[static_cast<std::size_t>(it.args[k])]; };
      switch (it.kind) {
        case Instr::Kind::Const: registers[i] = it.bits; break;
        case Instr::Kind::Index:
          visit_dtype(it.dtype,
                      [&](auto t) { registers[i] = bits_of(static_cast<decltype(t)>(value(it.access.index))); });
          break;
        case Instr::Kind::Load:
          registers[i] =
              it.args[0] >= 0 && arg(0) == 0 ? 0 : read(it.access.buffer, index_of(map, it.access, registers));
          break;
        case Instr::Kind::Store:
          if (it.args[1] < 0 || arg(1) != 0) write(it.access.buffer, index_of(map, it.access, registers), arg(0));
          break;
        case Instr::Kind::Reduced: break;
        case Instr::Kind::Op: {
          const int last = it.args[2] >= 0 ? 2 : it.args[1] >= 0 ? 1 : 0;
          const DType operand = map.instrs[static_cast<std::size_t>(it.args[last])].dtype;
          const Bits a = arg(0), b = last > 0 ? arg(1) : 0, c = last > 1 ? arg(2) : 0;
          registers[i] = visit_dtype(operand, [&](auto t) { return operate<decltype(t)>(it, a, b, c); });
        }
      }
    }
  }

  Bits combine(const Instr& reduced, Bits a, Bits b) const {
    Instr both = reduced;
    both.op = combiner(reduced);
    return visit_dtype(reduced.dtype, [&](auto t) { return operate<decltype(t)>(both, a, b, 0); });
  }
  static Bits identity(const Instr& reduced) {
    return visit_dtype(reduced.dtype, [&](auto t) -> Bits {
      using T = decltype(t);
      using Limits = std::numeric_limits<T>;
      constexpr bool floating = std::is_floating_point_v<T>;
      switch (reduced.op) {
        case ScalarOp::Mul: return bits_of(T(1));
        case ScalarOp::Max: return bits_of(floating ? -Limits::infinity() : Limits::lowest());
        case ScalarOp::Min: return bits_of(floating ? Limits::infinity() : Limits::max());
        case ScalarOp::And: return reduced.dtype == DType::Bool ? 1 : bits_of(T(floating ? 0 : -1));
        default: return 0;
      }
    });
  }

  template <class T> Bits operate(const Instr& it, Bits x, Bits y, Bits z) const {
    const T a = as<T>(x), b = as<T>(y);
    constexpr bool floating = std::is_floating_point_v<T>;
    using Wide = std::conditional_t<std::is_same_v<T, std::int64_t>, std::uint64_t,
                                    std::conditional_t<std::is_same_v<T, std::int32_t>, std::uint32_t, T>>;
    const auto wide = [](T v) { return static_cast<Wide>(v); };
    const auto nan = [](T v) { return floating && v != v; };
    const auto truth = [](bool v) -> Bits { return v ? 1 : 0; };
    switch (it.op) {
      case ScalarOp::Copy: return x;
      case ScalarOp::Neg: return bits_of(floating ? static_cast<T>(-a) : static_cast<T>(Wide{} - wide(a)));
      case ScalarOp::Abs:
        if constexpr (floating) return bits_of(std::fabs(a));
        return bits_of(a < T(0) ? static_cast<T>(Wide{} - wide(a)) : a);
      case ScalarOp::Sign: return bits_of(a > T(0) ? T(1) : a < T(0) ? static_cast<T>(-1) : a);
      case ScalarOp::Add: return bits_of(static_cast<T>(wide(a) + wide(b)));
      case ScalarOp::Sub: return bits_of(static_cast<T>(wide(a) - wide(b)));
      case ScalarOp::Mul: return bits_of(static_cast<T>(wide(a) * wide(b)));
      case ScalarOp::Max: return bits_of(nan(a) ? a : nan(b) ? b : a < b ? b : a);
      case ScalarOp::Min: return bits_of(nan(a) ? a : nan(b) ? b : b < a ? b : a);
      case ScalarOp::Eq: return truth(a == b);
      case ScalarOp::Ne: return truth(a != b);
      case ScalarOp::Lt: return truth(a < b);
      case ScalarOp::Le: return truth(a <= b);
      case ScalarOp::Gt: return truth(a > b);
      case ScalarOp::Ge: return truth(a >= b);
      case ScalarOp::Select: return x != 0 ? y : z;
      case ScalarOp::Bitcast: return x;
      case ScalarOp::Cast:
        return visit_dtype(it.dtype, [&](auto t) -> Bits {
          using To = decltype(t);
          if (it.dtype == DType::Bool) return truth(a != T(0));
          if constexpr (floating && std::is_integral_v<To>) {
            if (a != a) return 0;
            const auto v = static_cast<long double>(a);
            if (v <= static_cast<long double>(std::numeric_limits<To>::lowest()))
              return bits_of(std::numeric_limits<To>::lowest());
            if (v >= static_cast<long double>(std::numeric_limits<To>::max()))
              return bits_of(std::numeric_limits<To>::max());
          }
          return bits_of(static_cast<To>(a));
        });
      default: break;
    }
    if constexpr (floating) {
      switch (it.op) {
        case ScalarOp::Div: return bits_of(a / b);
        case ScalarOp::Rem: return bits_of(std::fmod(a, b));
        case ScalarOp::Floor: return bits_of(std::floor(a));
        case ScalarOp::Ceil: return bits_of(std::ceil(a));
        case ScalarOp::Rint: return bits_of(std::nearbyint(a));
        case ScalarOp::Sqrt: return bits_of(std::sqrt(a));
        case ScalarOp::Ldexp: return bits_of(std::ldexp(a, static_cast<int>(b)));
        case ScalarOp::Fma: return bits_of(program_.target.has_fma ? std::fma(a, b, as<T>(z)) : a * b + as<T>(z));
        default: break;
      }
    } else {
      constexpr int width = static_cast<int>(sizeof(T)) * 8;
      const int amount = static_cast<int>(static_cast<std::uint64_t>(b) % width);  // amounts wrap
      switch (it.op) {
        case ScalarOp::Div:
          return b == 0                                           ? 0
                 : b == static_cast<T>(-1) && std::is_signed_v<T> ? bits_of(static_cast<T>(Wide{} - wide(a)))
                                                                  : bits_of(static_cast<T>(a / b));
        case ScalarOp::Rem:
          if (b == 0) return x;
          return b == static_cast<T>(-1) && std::is_signed_v<T> ? 0 : bits_of(static_cast<T>(a % b));
        case ScalarOp::And: return bits_of(static_cast<T>(a & b));
        case ScalarOp::Or: return bits_of(static_cast<T>(a | b));
        case ScalarOp::Xor: return bits_of(static_cast<T>(a ^ b));
        case ScalarOp::Not: return it.dtype == DType::Bool ? truth(a == 0) : bits_of(static_cast<T>(~a));
        case ScalarOp::Shl: return bits_of(static_cast<T>(wide(a) << amount));
        case ScalarOp::Shr: return bits_of(static_cast<T>(a >> amount));
        default: break;
      }
    }
    throw std::logic_error("the reference has no " + std::string(ir::name_of(it.op)));
  }

  const Program& program_;
  std::vector<Array> memory_;
  std::vector<std::int64_t> vars_;
};

}  // namespace hotloop::kernel
