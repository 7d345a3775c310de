// C and LLVM give the same bits on random programs.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <cstring>
#include <random>

#include "kernel_builder.h"
#include "schedule/lower_math.h"
#include "targets.h"

namespace hotloop::kernel {
namespace {

// Draws a program of a few statements: Maps over one, two or three dims with random straight-line code, with or
// without a reduction, dots and packs, in a Single, in a Grid with a tail, or split.
class Draw {
 public:
  Draw(std::uint64_t seed, const Target& target) : rng_(seed), builder_(target, max_rows) {}

  Program run() {
    const DType f = float_ = chance(2) ? DType::F32 : DType::F64;
    for (int k = 0; k < 3; ++k) inputs_.push_back(builder_.argument(f, size));
    integers_ = builder_.argument(DType::I32, size);
    bools_ = builder_.argument(DType::Bool, size);
    const int num_statements = 2 + pick(4);
    for (int k = 0; k < num_statements; ++k) {
      switch (pick(4)) {
        case 0: builder_.add(Single{{{map({}, {})}}}); break;
        case 1: builder_.add(Single{{{dot(false)}}}); break;
        case 2: builder_.add(grid()); break;
        case 3: {
          builder_.add(map({}, {}, true));
          builder_.add(Barrier{});
          break;
        }
      }
    }
    builder_.add(packed_dot());
    Program program = builder_.build();
    lower_math(program);
    return program;
  }

  std::vector<Array> arguments(const Program& program) {
    std::vector<Array> arrays;
    for (const ValueType& type : program.arguments) {
      Array a(type.dtype, type.shape);
      for (std::int64_t i = 0; i < a.size(); ++i) {
        if (type.dtype == DType::Bool)
          a.set(i, pick(2));
        else if (type.dtype == DType::I32)
          a.set(i, pick(41) - 20);
        else
          a.set(i, chance(40) ? special() : std::ldexp(uniform(), pick(8) - 3));
      }
      arrays.push_back(std::move(a));
    }
    return arrays;
  }
  std::int64_t rows() { return 1 + pick(static_cast<int>(max_rows)); }

 private:
  static constexpr std::int64_t max_rows = 23, columns = 37, size = max_rows * columns;

  int pick(int n) { return static_cast<int>(rng_() % static_cast<unsigned>(n)); }
  bool chance(int n) { return pick(n) == 0; }
  double uniform() { return static_cast<double>(static_cast<std::int64_t>(rng_())) * 0x1p-63; }
  double special() {
    const double values[] = {0.0, -0.0, INFINITY, -INFINITY, NAN, 1e-40, -1e-310, 88.8, -103.9, 710.0};
    return values[pick(10)];
  }
  Var fresh(const char* name) { return builder_.var(name + std::to_string(counter_++)); }

  // Points (row, column) of the 23 x 37 matrices; rows come from a tile when given.
  Map map(std::optional<Affine> row0, Extent rows, bool split = false) {
    const Var r = fresh("r"), c = fresh("c");
    if (!row0) rows = chance(2) ? Extent{max_rows, rows_var} : Extent{max_rows, -1};
    const bool reduces = chance(2);
    const int vector_dim = chance(4) ? -1 : chance(4) ? 0 : 1;
    const Affine row = (row0 ? *row0 : Affine(0)) + Affine::of(r);
    const Affine index = row * columns + Affine::of(c);
    const std::int64_t width = chance(2) ? columns : 1 + pick(columns);
    MapBuilder m({{r, rows}, {c, {width, -1}}}, reduces ? 1 : 2, vector_dim);
    floats_.clear(), ints_.clear(), conditions_.clear();
    for (const int input : inputs_) floats_.push_back(m.load(float_, at(input, index)));
    ints_.push_back(m.load(DType::I32, at(integers_, index)));
    conditions_.push_back(m.load(DType::Bool, at(bools_, index)));
    floats_.push_back(m.load(float_, at(inputs_[0], index), conditions_[0]));
    const int num_instrs = 3 + pick(12);
    for (int k = 0; k < num_instrs; ++k) draw_instr(m);
    if (!reduces) {
      const int out = builder_.result(float_, size), whole = builder_.result(DType::I32, size);
      m.store(float_, at(out, index), floats_.back(), chance(3) ? conditions_.back() : -1);
      m.store(DType::I32, at(whole, index), ints_.back());
      return m.build(split);
    }
    const ScalarOp sums[] = {ScalarOp::Add, ScalarOp::Mul, ScalarOp::Max, ScalarOp::Min};
    const int body = floats_.back(), body_int = ints_.back();
    std::vector<int> after{m.reduced(ScalarOp::Add, float_, body), m.reduced(sums[pick(4)], float_, body)};
    const int total = m.reduced(sums[pick(4)], DType::I32, body_int);
    const int out = builder_.result(float_, max_rows), whole = builder_.result(DType::I32, max_rows);
    m.store(float_, at(out, row), m.op(ScalarOp::Tanh, float_, m.op(ScalarOp::Sub, float_, after[0], after[1])));
    m.store(DType::I32, at(whole, row), total);
    return m.build(split);
  }

  void draw_instr(MapBuilder& m) {
    const auto any = [&](const std::vector<int>& regs) {
      return regs[static_cast<std::size_t>(pick(static_cast<int>(regs.size())))];
    };
    static constexpr ScalarOp unary[] = {
        ScalarOp::Neg,     ScalarOp::Abs,     ScalarOp::Sign,  ScalarOp::Floor, ScalarOp::Ceil,   ScalarOp::Rint,
        ScalarOp::Sqrt,    ScalarOp::Exp,     ScalarOp::Expm1, ScalarOp::Log,   ScalarOp::Log1p,  ScalarOp::Tanh,
        ScalarOp::Sigmoid, ScalarOp::Sin,     ScalarOp::Cos,   ScalarOp::Erf,   ScalarOp::ErfInv, ScalarOp::Erfc,
        ScalarOp::Ndtr,    ScalarOp::LogNdtr, ScalarOp::Copy};
    static constexpr ScalarOp binary[] = {ScalarOp::Add, ScalarOp::Sub, ScalarOp::Mul, ScalarOp::Div,
                                          ScalarOp::Rem, ScalarOp::Pow, ScalarOp::Min, ScalarOp::Max};
    static constexpr ScalarOp integer[] = {ScalarOp::Add, ScalarOp::Sub, ScalarOp::Mul, ScalarOp::Div,
                                           ScalarOp::Rem, ScalarOp::Min, ScalarOp::Max, ScalarOp::And,
                                           ScalarOp::Or,  ScalarOp::Xor, ScalarOp::Shl, ScalarOp::Shr};
    static constexpr ScalarOp compare[] = {ScalarOp::Eq, ScalarOp::Ne, ScalarOp::Lt,
                                           ScalarOp::Le, ScalarOp::Gt, ScalarOp::Ge};
    const auto word = [&] { return m.op(ScalarOp::Cast, DType::U32, any(ints_)); };
    switch (pick(10)) {
      case 0:
      case 1: floats_.push_back(m.op(unary[pick(18)], float_, any(floats_))); break;
      case 2:
      case 3: floats_.push_back(m.op(binary[pick(8)], float_, any(floats_), any(floats_))); break;
      case 4: floats_.push_back(m.op(ScalarOp::Fma, float_, any(floats_), any(floats_), any(floats_))); break;
      case 5: ints_.push_back(m.op(integer[pick(12)], DType::I32, any(ints_), any(ints_))); break;
      case 6: conditions_.push_back(m.op(compare[pick(6)], DType::Bool, any(floats_), any(floats_))); break;
      case 7: floats_.push_back(m.op(ScalarOp::Select, float_, any(conditions_), any(floats_), any(floats_))); break;
      case 8:
        if (chance(2))
          ints_.push_back(m.op(ScalarOp::Cast, DType::I32, any(floats_)));
        else
          floats_.push_back(m.op(ScalarOp::Cast, float_, any(ints_)));
        break;
      case 9:
        ints_.push_back(m.op(ScalarOp::Cast, DType::I32, m.op(ScalarOp::Random, DType::U32, word(), word(), word())));
    }
  }

  Dot dot(bool tiled, Affine row0 = {}, Extent rows = {max_rows, -1}) {
    Dot d;
    d.name = "d", d.dtype = float_, d.m = rows, d.n = {1 + pick(columns), -1};
    const std::int64_t depth = 1 + pick(max_rows);
    const Affine first = tiled ? row0 * columns : Affine(0);
    d.segments.push_back({at(inputs_[0], first), at(inputs_[1]), columns, 1, {{{depth, -1}, 1, columns}}, false});
    if (chance(2))
      d.segments.push_back({at(inputs_[1], first),
                            at(inputs_[2]),
                            columns,
                            1,
                            {{{3, -1}, 5, columns}, {{2, -1}, 1, 2 * columns}},
                            false});
    if (chance(2)) d.init = at(inputs_[2], first), d.init_m = columns, d.init_n = 1;
    d.c = at(builder_.result(float_, size), first), d.c_m = columns;
    return d;
  }

  Single packed_dot() {
    const std::int64_t n = 1 + pick(columns), k = 1 + pick(max_rows), lanes = lanes_of(float_);
    Pack pack;
    pack.source = at(inputs_[1]), pack.k = k, pack.n = n, pack.k_stride = columns, pack.n_stride = 1,
    pack.panel = pick(2) == 0 ? lanes : host_target().panel(float_), pack.dtype = float_;
    pack.target = builder_.worker(float_, (n + lanes - 1) / lanes * lanes * k);
    Dot d;
    d.name = "packed", d.dtype = float_, d.m = {max_rows, -1}, d.n = {n, -1};
    d.segments.push_back({at(inputs_[0]), at(pack.target), columns, 0, {{{k, -1}, 1, 0}}, pack.panel});
    d.c = at(builder_.result(float_, size)), d.c_m = columns;
    return {{{pack}, {d}}};
  }

  Grid grid() {
    Grid g;
    g.block = fresh("block"), g.row0 = fresh("row0"), g.rows = fresh("rows");
    g.total = {max_rows, rows_var}, g.tile_rows = 1 + pick(9);
    g.num_blocks = 1 + pick(4);
    g.tiles_per_block = (max_rows + g.tile_rows * g.num_blocks - 1) / (g.tile_rows * g.num_blocks);
    g.body.push_back({map(Affine::of(g.row0), {g.tile_rows, g.rows})});
    g.body.push_back({dot(true, Affine::of(g.row0), {g.tile_rows, g.rows})});
    return g;
  }

  std::mt19937_64 rng_;
  ProgramBuilder builder_;
  DType float_ = DType::F32;
  std::vector<int> inputs_, floats_, ints_, conditions_;
  int integers_ = -1, bools_ = -1, counter_ = 0;
};

template <class T> bool same_bits(const T& a, const T& b) {
  if constexpr (std::is_floating_point_v<T>) {
    if (std::isnan(a) && std::isnan(b)) return true;  // payloads are not fixed
  }
  return std::memcmp(&a, &b, sizeof a) == 0;
}

// HOTLOOP_SEED=N runs one program, HOTLOOP_RUNS=M that many for each target, from N on if both are given.
TEST(BackendsAgree, OnRandomPrograms) {
  const char* only = std::getenv("HOTLOOP_SEED");
  const char* runs = std::getenv("HOTLOOP_RUNS");
  const std::uint64_t first = only ? std::strtoull(only, nullptr, 10) : 1;
  const std::uint64_t count = runs ? std::strtoull(runs, nullptr, 10) : only ? 1 : 12;
  for (const std::string& target : hotloop::kernel::runnable_targets()) {
    for (std::uint64_t seed = first; seed < first + count; ++seed) {
      SCOPED_TRACE(std::string("HOTLOOP_SEED=") + std::to_string(seed) + " target " + target);
      Draw draw(seed, target_named(target));
      const Program program = draw.run();
      verify(program);
      const std::vector<Array> arguments = draw.arguments(program);
      const std::int64_t rows = draw.rows();
      const auto in_c = compile_c(program), in_llvm = compile_llvm(program);
      std::vector<Array> from_c, from_llvm;
      for (const ValueType& type : program.results) {
        from_c.push_back(Array::zeros(type.dtype, type.shape));
        from_llvm.push_back(Array::zeros(type.dtype, type.shape));
      }
      run_kernel(program, in_c->function(), arguments, from_c, rows, 1);
      run_kernel(program, in_llvm->function(), arguments, from_llvm, rows, 1 + static_cast<int>(seed % 3));
      for (std::size_t k = 0; k < from_c.size(); ++k) {
        visit_dtype(from_c[k].dtype(), [&](auto tag) {
          using T = decltype(tag);
          const auto c = std::as_const(from_c[k]).template data<T>(),
                     l = std::as_const(from_llvm[k]).template data<T>();
          for (std::size_t i = 0; i < c.size(); ++i) {
            if (same_bits(c[i], l[i])) continue;
            ADD_FAILURE() << "result " << k << " element " << i << ": C " << +c[i] << ", LLVM " << +l[i] << "\n"
                          << print(program);
            break;
          }
        });
        if (testing::Test::HasFailure()) return;
      }
    }
  }
}

}  // namespace
}  // namespace hotloop::kernel
